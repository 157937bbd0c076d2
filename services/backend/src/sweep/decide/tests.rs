//! Every judgement, by mutating a database that is as it should be.

use domain::{DatabaseId, Position};

use super::*;

const RULES: Rules = Rules {
    grace: Duration::from_mins(2),
    again: Duration::from_mins(10),
    listing: Duration::from_mins(9),
    retention: Some(RETENTION),
};
const RETENTION: Duration = Duration::from_hours(24);
const ALMOST: Duration = Duration::from_hours(23);
const LONG: Duration = Duration::from_hours(1);
const LATELY: Duration = Duration::from_secs(5);

const fn at(seq: i64) -> Position {
    Position { epoch: 1, seq }
}

fn sighting(seq: i64) -> Sighting {
    Sighting {
        position: at(seq),
        term: 3,
        present: true,
        content_hash: "hash".to_owned(),
        carried_out: Some(at(seq)),
    }
}

/// Minted at 1/5 an hour ago, and shown so.
fn healthy() -> (Subject, Listing) {
    let subject = Subject {
        database: DatabaseId::mint(),
        cluster: "a".parse().unwrap(),
        minted: at(5),
        content_hash: "hash".to_owned(),
        run_state: RunState::Running,
        minted_ago: LONG,
        published_ago: Some(LONG),
        resent_ago: None,
        purged: false,
        diverged: None,
        seen: Some(sighting(5)),
        parked: None,
        letters: Letters::None,
        burying: false,
        outgrown: false,
    };
    let listing = Listing {
        cluster: "a".parse().unwrap(),
        state: ClusterState::Active,
        term: 3,
        listed_ago: Some(LONG),
        confirmed_ago: Some(LATELY),
        arrived: true,
    };
    (subject, listing)
}

type Change = fn(&mut Subject, &mut Listing);

fn check(table: &[(&str, Change, Option<Divergence>, Act)]) {
    for (what, change, diverged, act) in table {
        let (mut subject, mut listing) = healthy();
        change(&mut subject, &mut listing);
        let judgement = judge(&subject, Some(&listing), &RULES);
        assert_eq!(judgement, Judgement { diverged: *diverged, act: *act }, "{what}");
    }
}

fn missing(subject: &mut Subject) {
    subject.seen = None;
}

fn lagging(subject: &mut Subject) {
    subject.seen = Some(sighting(4));
}

#[test]
fn what_is_not_shown_is_sent_again() {
    check(&[
        ("healthy", |_, _| {}, None, Act::Leave(Why::Healthy)),
        ("never seen", |s, _| missing(s), Some(Divergence::Missing), Act::Resend),
        (
            "gone",
            |s, _| s.seen = Some(Sighting { present: false, ..sighting(5) }),
            Some(Divergence::Missing),
            Act::Resend,
        ),
        ("older", |s, _| lagging(s), Some(Divergence::Lagging), Act::Resend),
        ("not told in this term", |_, l| l.term = 4, Some(Divergence::Missing), Act::Resend),
        (
            "not told yet in this term",
            |_, l| (l.term, l.listed_ago) = (4, Some(LATELY)),
            None,
            Act::Leave(Why::Healthy),
        ),
        (
            "told in no term, but nobody lists",
            |_, l| (l.term, l.confirmed_ago) = (4, Some(LONG)),
            None,
            Act::Leave(Why::Healthy),
        ),
        (
            "an older one is parked",
            |s, _| {
                lagging(s);
                s.parked = Some(at(4));
            },
            Some(Divergence::Lagging),
            Act::Resend,
        ),
        (
            "some other state is dead",
            |s, _| {
                lagging(s);
                s.letters = Letters::Others;
            },
            Some(Divergence::Lagging),
            Act::Resend,
        ),
        (
            "sent again long ago",
            |s, _| {
                missing(s);
                s.resent_ago = Some(LONG);
            },
            Some(Divergence::Missing),
            Act::Resend,
        ),
    ]);
}

#[test]
fn what_was_refused_because_the_volume_grew_is_minted_again() {
    check(&[
        (
            "smaller than what is there, and refused for it",
            |s, _| {
                lagging(s);
                (s.outgrown, s.letters) = (true, Letters::This);
            },
            Some(Divergence::Lagging),
            Act::Repair,
        ),
        (
            "smaller than what is there, but not refused",
            |s, _| {
                lagging(s);
                s.outgrown = true;
            },
            Some(Divergence::Lagging),
            Act::Resend,
        ),
    ]);
}

/// A reason, beside a database that is missing.
fn left(what: &'static str, change: Change, why: Why) -> (&'static str, Change, Option<Divergence>, Act) {
    (what, change, Some(Divergence::Missing), Act::Leave(why))
}

#[test]
fn whatever_stands_against_sending_again_is_heeded() {
    let reasons: [(&str, Change, Why); 11] = [
        ("unpublished", |s, _| s.published_ago = None, Why::Unpublished),
        ("just published", |s, _| s.published_ago = Some(LATELY * 2), Why::Young),
        ("parked", |s, _| s.parked = Some(at(5)), Why::Parked),
        ("dead", |s, _| s.letters = Letters::This, Why::DeadLetter),
        ("sent again", |s, _| s.resent_ago = Some(LATELY), Why::SentAgain),
        ("disabled", |_, l| l.state = ClusterState::Disabled, Why::Disabled),
        ("never listed", |_, l| (l.listed_ago, l.confirmed_ago) = (None, None), Why::Unlisted),
        ("not listed lately", |_, l| l.confirmed_ago = Some(RULES.listing + LATELY), Why::Unlisted),
        ("nothing told arrives", |_, l| l.arrived = false, Why::Unlisted),
        (
            "listed before",
            |s, l| (s.published_ago, l.confirmed_ago) = (Some(RULES.grace), Some(RULES.grace + LATELY)),
            Why::Unlisted,
        ),
        (
            "draining is still served",
            |_, l| (l.state, l.arrived) = (ClusterState::Draining, false),
            Why::Unlisted,
        ),
    ];
    for (what, change, why) in reasons {
        let (mut subject, mut listing) = healthy();
        missing(&mut subject);
        change(&mut subject, &mut listing);
        let expected = left(what, change, why);
        let judgement = judge(&subject, Some(&listing), &RULES);
        assert_eq!((judgement.diverged, judgement.act), (expected.2, expected.3), "{what}");
    }
    let (mut subject, _) = healthy();
    missing(&mut subject);
    assert_eq!(judge(&subject, None, &RULES).act, Act::Leave(Why::Unlisted), "no such cluster");
    subject.minted_ago = LATELY;
    let young = Judgement { diverged: None, act: Act::Leave(Why::Young) };
    assert_eq!(judge(&subject, None, &RULES), young);
}

#[test]
fn what_was_never_minted_is_outranked_and_other_content_is_reported() {
    check(&[
        ("ahead", |s, _| s.seen = Some(sighting(6)), Some(Divergence::Ahead), Act::Repair),
        (
            "ahead, and nobody lists",
            |s, l| {
                s.seen = Some(sighting(6));
                l.confirmed_ago = None;
            },
            Some(Divergence::Ahead),
            Act::Repair,
        ),
        (
            "ahead and gone",
            |s, _| s.seen = Some(Sighting { present: false, ..sighting(6) }),
            Some(Divergence::Ahead),
            Act::Repair,
        ),
        (
            "other content",
            |s, _| s.content_hash = "other".to_owned(),
            Some(Divergence::Content),
            Act::Leave(Why::Report),
        ),
        (
            "unknown content",
            |s, _| s.seen = Some(Sighting { content_hash: String::new(), ..sighting(5) }),
            None,
            Act::Leave(Why::Healthy),
        ),
    ]);
}

/// Purged, carried out, and older than anything that could still come.
fn over(subject: &mut Subject) {
    subject.run_state = RunState::Purged;
    subject.minted_ago = RETENTION * 2;
    subject.published_ago = Some(RETENTION);
}

fn over_and_gone(subject: &mut Subject) {
    over(subject);
    subject.seen = Some(Sighting { present: false, ..sighting(5) });
}

#[test]
fn a_tombstone_goes_when_nothing_can_come_any_more() {
    check(&[
        ("over", |s, _| over(s), None, Act::Bury),
        (
            "asked for",
            |s, _| {
                over(s);
                s.burying = true;
            },
            None,
            Act::Leave(Why::Healthy),
        ),
        ("gone", |s, _| over_and_gone(s), None, Act::MarkPurged),
        (
            "gone under an earlier term",
            |s, l| {
                over_and_gone(s);
                l.term = 4;
            },
            None,
            Act::MarkPurged,
        ),
        (
            "not told under this term, and not seen to go",
            |s, l| {
                over(s);
                l.term = 4;
            },
            Some(Divergence::Missing),
            Act::Resend,
        ),
        (
            "the same while it was to go",
            |s, l| {
                over(s);
                (s.burying, l.term) = (true, 4);
            },
            Some(Divergence::Missing),
            Act::Resend,
        ),
    ]);
}

#[test]
fn what_is_noted_as_purged_is_so_until_something_of_it_is_there_again() {
    check(&[
        (
            "noted",
            |s, _| {
                over_and_gone(s);
                s.purged = true;
            },
            None,
            Act::Leave(Why::Healthy),
        ),
        (
            "there again",
            |s, _| {
                over(s);
                s.purged = true;
            },
            None,
            Act::UnmarkPurged,
        ),
        (
            "there again, older",
            |s, _| {
                over(s);
                (s.purged, s.seen) = (true, Some(sighting(2)));
            },
            None,
            Act::UnmarkPurged,
        ),
    ]);
}

type Spoil = fn(&mut Subject);

#[test]
fn a_tombstone_stays_while_anything_can_come() {
    let reasons: [(&str, Spoil); 6] = [
        ("retention", |s| s.published_ago = Some(ALMOST)),
        ("unpublished", |s| s.published_ago = None),
        ("parked", |s| s.parked = Some(at(1))),
        ("dead letter", |s| s.letters = Letters::Others),
        ("kept volume", |s| s.run_state = RunState::Deleted),
        ("not carried out", |s| s.seen = Some(Sighting { carried_out: Some(at(4)), ..sighting(5) })),
    ];
    for (what, change) in reasons {
        let (mut subject, listing) = healthy();
        over(&mut subject);
        change(&mut subject);
        let judge = |subject: &Subject| judge(subject, Some(&listing), &RULES).act;
        assert_eq!(judge(&subject), Act::Leave(Why::Healthy), "{what}");
        subject.burying = true;
        assert_eq!(judge(&subject), Act::KeepTombstone, "{what}, asked for before");
        subject.seen.as_mut().unwrap().present = false;
        assert_ne!(judge(&subject), Act::MarkPurged, "{what}, removed by hand");
    }
    // Removed by hand before its time: it is set up again.
    let (mut subject, listing) = healthy();
    over_and_gone(&mut subject);
    subject.published_ago = Some(ALMOST);
    assert_eq!(judge(&subject, Some(&listing), &RULES).act, Act::Resend);
}

#[test]
fn while_nobody_knows_how_long_records_are_kept_no_tombstone_is_touched() {
    let unknown = Rules { retention: None, ..RULES };
    for burying in [false, true] {
        for (change, why) in
            [(over as fn(&mut Subject), Why::Healthy), (over_and_gone as fn(&mut Subject), Why::Young)]
        {
            let (mut subject, listing) = healthy();
            change(&mut subject);
            subject.burying = burying;
            let judged = judge(&subject, Some(&listing), &unknown);
            assert_eq!(judged, Judgement { diverged: None, act: Act::Leave(why) });
        }
    }
}

#[test]
fn what_does_not_heal_takes_nobodys_turn() {
    let lagging = |seconds: Option<u64>, seq| Lagging {
        resent_ago: seconds.map(Duration::from_secs),
        is_purge: seq > 5,
        at: (DatabaseId::new(uuid::Uuid::from_u128(1)), Position { epoch: 1, seq }),
    };
    let all = vec![
        lagging(None, 6),
        lagging(Some(800), 7),
        lagging(Some(700), 1),
        lagging(Some(900), 2),
        lagging(None, 3),
        lagging(Some(600), 4),
        lagging(None, 5),
    ];
    let order: Vec<i64> = in_turn(all).into_iter().map(|(_, position)| position.seq).collect();
    assert_eq!(order, [3, 5, 6, 2, 7, 1, 4], "6 and 7 are purges");
}
