//! Each rule, by a letter and a database that it is about.

use domain::DatabaseId;
use store::About;

use super::*;

const GOSSIP: &str = "gossip";

fn at(seq: i64) -> Position {
    Position { epoch: 1, seq }
}

/// A letter at 1/5 of a database whose state stands at 1/5.
fn scene() -> (DeadLetterView, Standing) {
    let database = DatabaseId::mint();
    let about = About { name: "trades".to_owned(), tenant: "acme".to_owned(), minted: at(5) };
    let letter = DeadLetterView {
        id: 7,
        origin: ("instructions".to_owned(), 3, 42),
        database: Some(database),
        about: Some(about),
        cluster: Some("eu".to_owned()),
        position: Some(at(5)),
        code: "invalid".to_owned(),
        message: "why".to_owned(),
        size: 3,
        consumer: "provisioner".to_owned(),
        received_at: Timestamp::UNIX_EPOCH,
        settled: None,
    };
    let standing = Standing {
        database,
        tenant: "acme".parse().unwrap(),
        name: "trades".to_owned(),
        minted: at(5),
        run_state: RunState::Running,
        carried_out: Some(at(4)),
        purged_at: None,
        waits: false,
        set_aside: None,
        parked: None,
    };
    (letter, standing)
}

type Spoil = fn(&mut DeadLetterView, &mut Standing);

fn decided(verb: Verb, spoil: Spoil) -> Result<Plan, Refusal> {
    let (mut letter, mut standing) = scene();
    spoil(&mut letter, &mut standing);
    plan(verb, &letter, Some(&standing), GOSSIP)
}

#[test]
fn a_letter_for_the_newest_state_has_that_published_again() {
    let found = decided(Verb::Redrive, |_, _| {}).unwrap();
    assert_eq!((found.settles, found.publishes), (Settlement::Redriven, true));
    assert!(found.message.contains("refused it once"), "{}", found.message);
    let conflict = decided(Verb::Redrive, |letter, _| letter.code = "conflict".to_owned()).unwrap();
    assert!(conflict.message.contains("the next change"), "{}", conflict.message);
    let plain = decided(Verb::Redrive, |letter, _| letter.code = "panicked".to_owned()).unwrap();
    assert_eq!(plain.message, "the state at 1/5 is published again");
}

#[test]
fn an_older_letter_is_superseded_and_the_newest_state_is_published() {
    for spoil in [
        (|letter, _| letter.position = Some(at(4))) as Spoil,
        |_, standing| standing.minted = at(6),
        |_, standing| standing.minted = Position { epoch: 2, seq: 1 },
        // A deleted database's newest state is that it is deleted.
        |_, standing| (standing.minted, standing.run_state) = (at(6), RunState::Deleted),
        // A purge that no cluster has carried out is still to be told.
        |_, standing| (standing.minted, standing.run_state) = (at(6), RunState::Purged),
    ] {
        let found = decided(Verb::Redrive, spoil).unwrap();
        assert_eq!((found.settles, found.publishes), (Settlement::Superseded, true), "{found:?}");
        assert!(found.message.contains("is superseded"), "{}", found.message);
    }
}

#[test]
fn a_letter_of_unknown_age_has_the_newest_state_published() {
    let found = decided(Verb::Redrive, |letter, _| letter.position = None).unwrap();
    assert_eq!((found.settles, found.publishes), (Settlement::Redriven, true));
    assert!(found.message.contains("it is not sent"), "{}", found.message);
}

#[test]
fn nothing_is_sent_where_it_could_do_harm_or_nobody_knows_what() {
    let table: [(&str, Spoil); 8] = [
        ("no_instruction", |letter, _| letter.origin.0 = GOSSIP.to_owned()),
        ("no_database", |letter, _| letter.database = None),
        ("two_databases", |letter, _| letter.code = "key_mismatch".to_owned()),
        ("purged", |_, standing| standing.purged_at = Some(Timestamp::UNIX_EPOCH)),
        ("purged", |_, standing| {
            (standing.minted, standing.run_state, standing.carried_out) =
                (at(6), RunState::Purged, Some(at(6)));
        }),
        ("never_minted", |letter, _| letter.position = Some(at(6))),
        ("unpublishable", |_, standing| standing.set_aside = Some("too_large: why".to_owned())),
        ("settled", |letter, _| {
            letter.settled = Some(Settled {
                how: Settlement::Redriven,
                at: Timestamp::UNIX_EPOCH,
                by: Some("sre:ann".to_owned()),
                reason: Some("INC-1".to_owned()),
            });
        }),
    ];
    for (code, spoil) in table {
        let refusal = decided(Verb::Redrive, spoil).unwrap_err();
        assert_eq!(refusal.code(), code, "{refusal}");
    }
    let (letter, _) = scene();
    let unknown = plan(Verb::Redrive, &letter, None, GOSSIP).unwrap_err();
    assert_eq!(unknown, Refusal::UnknownDatabase);
}

#[test]
fn a_refusal_says_who_settled_it_and_why() {
    let settled = Settled {
        how: Settlement::Discarded,
        at: Timestamp::UNIX_EPOCH,
        by: Some("sre:ann".to_owned()),
        reason: Some("INC-1".to_owned()),
    };
    let text = Refusal::Settled(settled).to_string();
    assert_eq!(text, "it is settled: discarded at 1970-01-01T00:00:00Z by sre:ann (INC-1)");
}

#[test]
fn whatever_is_open_can_be_discarded_and_sends_nothing() {
    for spoil in [
        (|_, _| {}) as Spoil,
        |letter, _| letter.database = None,
        |letter, _| letter.origin.0 = GOSSIP.to_owned(),
        |letter, _| letter.position = Some(at(9)),
        |_, standing| standing.purged_at = Some(Timestamp::UNIX_EPOCH),
    ] {
        let found = decided(Verb::Discard, spoil).unwrap();
        assert_eq!((found.settles, found.publishes), (Settlement::Discarded, false));
    }
    assert!(decided(Verb::Discard, |_, _| {}).unwrap().message.contains("the sweep"));
    assert!(
        !decided(Verb::Discard, |_, standing| standing.minted = at(6)).unwrap().message.contains("the sweep")
    );
    let again = decided(Verb::Discard, |letter, _| {
        letter.settled =
            Some(Settled { how: Settlement::Superseded, at: Timestamp::UNIX_EPOCH, by: None, reason: None });
    });
    assert_eq!(again.unwrap_err().code(), "settled");
}

#[test]
fn what_waits_or_is_parked_is_said_so() {
    let words = |spoil: fn(&mut Standing)| {
        let mut standing = scene().1;
        spoil(&mut standing);
        resend(&standing).unwrap()
    };
    assert_eq!(words(|_| {}), "the state at 1/5 is published again");
    assert!(words(|standing| standing.waits = true).contains("waits to be published already"));
    assert!(words(|standing| standing.parked = Some(at(5))).contains("parked"));
    assert!(!words(|standing| standing.parked = Some(at(4))).contains("parked"));
}
