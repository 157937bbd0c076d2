//! What the sweep reads and writes: turns and caps by the database's clock, each change at the position that was judged.

use std::time::Duration;

use ::store::{
    Batch, DeadLetter, Divergence, Error, Letters, Observation, OutcomeKind, Parked, Store, Subject, Term,
};
use domain::{DatabaseId, OperationKind, Position};
use testkit::eventually;
use testkit::postgres::Session;

use super::absorb::fresh;
use super::{Created, Try, as_minted, at, mint, observation, outcome};

const LONG: Duration = Duration::from_mins(5);
const PATIENCE: Duration = Duration::from_mins(2);
const GOSSIP: &str = "gossip";

async fn subject(scene: &Try, id: DatabaseId) -> Subject {
    let found = scene.store.sweep_subjects(None, 100, GOSSIP).await.unwrap();
    assert!(found.unreadable.is_empty(), "{:?}", found.unreadable);
    found.subjects.into_iter().find(|subject| subject.database == id).unwrap()
}

/// Created and taken by Kafka.
async fn published(scene: &Try, name: &str) -> Created {
    let created = scene.create(name).await;
    scene.store.mark(&[(created.id, at(1))]).await.unwrap();
    created
}

async fn waiting(store: &Store) -> Vec<(DatabaseId, bool)> {
    let unpublished = store.unpublished(100).await.unwrap().instructions;
    unpublished.into_iter().map(|one| (one.database, one.said_again)).collect()
}

#[tokio::test]
async fn replicas_take_turns() {
    let scene = Try::crowded().await;
    let asks = (0..8).map(|_| scene.store.begin_sweep(LONG));
    let turns: Vec<_> =
        futures::future::join_all(asks).await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(turns.len(), 1, "one of eight");
    assert_eq!(scene.store.begin_sweep(LONG).await.unwrap(), None, "not before the period is over");
    scene.ask("update turns set next_at = now()").await;
    assert!(scene.store.begin_sweep(LONG).await.unwrap().is_some_and(|next| next != turns[0]));
}

#[tokio::test]
async fn what_is_sent_again_in_a_turn_is_bounded_for_all_replicas_together() {
    let scene = Try::crowded().await;
    let mut due = Vec::new();
    for number in 0..5 {
        due.push((published(&scene, &format!("trades-{number}")).await.id, at(1)));
    }
    let turn = scene.store.begin_sweep(LONG).await.unwrap().unwrap();
    let (first, second) =
        tokio::join!(scene.store.resend(turn, 3, &due[..2]), scene.store.resend(turn, 3, &due[2..]));
    assert_eq!(first.unwrap() + second.unwrap(), 3);
    assert_eq!(scene.store.resend(turn, 3, &due).await.unwrap(), 0);
    assert_eq!(waiting(&scene.store).await.len(), 3);
    scene.ask("update turns set next_at = now()").await;
    let next = scene.store.begin_sweep(LONG).await.unwrap().unwrap();
    assert_eq!(scene.store.resend(turn, 3, &due).await.unwrap(), 0, "that turn is over");
    scene.ask("update databases set published_epoch = epoch, published_seq = seq").await;
    assert_eq!(scene.store.resend(next, 3, &due).await.unwrap(), 3);
}

#[tokio::test]
async fn only_the_state_that_was_judged_is_sent_again_behind_what_is_new() {
    let scene = Try::new().await;
    let old = published(&scene, "trades").await;
    let changed = published(&scene, "quotes").await;
    let new = scene.create("orders").await;
    scene.change(changed.id, |desired| desired.storage.size_gib = 100).await;
    let turn = scene.store.begin_sweep(LONG).await.unwrap().unwrap();
    assert_eq!(scene.store.resend(turn, 9, &[(old.id, at(1)), (changed.id, at(1))]).await.unwrap(), 1);
    assert_eq!(waiting(&scene.store).await, [(new.id, false), (changed.id, false), (old.id, true)]);
    assert!(scene.store.backlog().await.unwrap().oldest_seconds < 60.0);
    let sent = subject(&scene, old.id).await;
    assert!(sent.published_ago.is_none() && sent.resent_ago.is_some_and(|ago| ago < LONG));
    // What was sent again is marked as ever: only while it is what should be.
    scene.change(old.id, |desired| desired.storage.size_gib = 100).await;
    assert_eq!(scene.store.mark(&[(old.id, at(1))]).await.unwrap().len(), 0);
    assert_eq!(scene.store.mark(&[(old.id, at(2))]).await.unwrap().len(), 1);
    assert!(!waiting(&scene.store).await.iter().any(|(id, _)| *id == old.id));
    assert_eq!(scene.store.resend(turn, 9, &[(old.id, at(1))]).await.unwrap(), 0, "another state was judged");
    assert_eq!(scene.store.resend(turn, 9, &[(old.id, at(2))]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_database_that_somebody_holds_locked_holds_up_no_other() {
    let scene = Try::new().await;
    let due = [(published(&scene, "trades").await.id, at(1)), (published(&scene, "quotes").await.id, at(1))];
    let judged = due.map(|(id, at)| (id, at, Some(Divergence::Missing)));
    let turn = scene.store.begin_sweep(LONG).await.unwrap().unwrap();
    let mut holder = Session::open(&scene.url).await.unwrap();
    let hold = format!("begin; select 1 from databases where id = '{}' for update", due[0].0);
    holder.run(&hold).await.unwrap();
    for whose in ["the other one's", "its own, once it is free"] {
        assert_eq!(scene.store.mark_diverged(&judged).await.unwrap(), 1, "{whose}");
        assert_eq!(scene.store.resend(turn, 9, &due).await.unwrap(), 1, "{whose}");
        assert_eq!(scene.store.mark_purged(&due).await.unwrap(), 1, "{whose}");
        holder.run("rollback").await.unwrap();
    }
}

#[tokio::test]
async fn a_subject_has_all_that_it_is_judged_by() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let before = subject(&scene, created.id).await;
    assert_eq!((before.minted, before.seen.as_ref(), before.parked), (at(1), None, None));
    assert!(before.letters == Letters::None && !before.burying && !before.purged);
    let seen = Observation {
        term: 7,
        content_hash: "h".to_owned(),
        carried_out: Some(at(1)),
        ..observation(created.id, at(1))
    };
    scene.store.absorb(&fresh(vec![seen])).await.unwrap();
    let parked = Parked {
        database: created.id,
        cluster: "eu-west-1".parse().unwrap(),
        position: at(1),
        payload: vec![1],
        origin: None,
        traceparent: None,
        code: "unreachable".to_owned(),
        message: String::new(),
        attempts: 0,
        parked_at: jiff::Timestamp::UNIX_EPOCH,
    };
    scene.store.park(&parked, LONG).await.unwrap();
    let letter = |topic: &str, seq| DeadLetter {
        topic: topic.to_owned(),
        offset: seq,
        database: Some(created.id),
        position: Some(at(seq)),
        code: "invalid".to_owned(),
        ..DeadLetter::default()
    };
    scene.store.dead_letter(&letter(GOSSIP, 1)).await.unwrap();
    let after = subject(&scene, created.id).await;
    let sighting = after.seen.clone().unwrap();
    assert_eq!((sighting.position, sighting.term, sighting.carried_out), (at(1), 7, Some(at(1))));
    assert_eq!((after.parked, after.letters), (Some(at(1)), Letters::None));
    scene.store.dead_letter(&letter("instructions", 2)).await.unwrap();
    assert_eq!(subject(&scene, created.id).await.letters, Letters::Others);
    let passing =
        DeadLetter { code: "unknown_cluster".to_owned(), partition: 1, ..letter("instructions", 1) };
    scene.store.dead_letter(&passing).await.unwrap();
    assert_eq!(subject(&scene, created.id).await.letters, Letters::Others, "sent again it may be taken");
    scene.store.dead_letter(&letter("instructions", 1)).await.unwrap();
    assert_eq!(subject(&scene, created.id).await.letters, Letters::This);
    let page = scene.store.sweep_subjects(None, 1, GOSSIP).await.unwrap();
    assert_eq!(page.next, Some(created.id));
    let rest = scene.store.sweep_subjects(page.next, 1, GOSSIP).await.unwrap();
    assert!(rest.subjects.is_empty() && rest.next.is_none());
}

#[tokio::test]
async fn a_divergence_keeps_its_beginning_and_is_shown() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let mark = async |seq, kind| scene.store.mark_diverged(&[(created.id, at(seq), kind)]).await.unwrap();
    let shown = async || scene.store.database(None, created.id).await.unwrap().unwrap().diverged;
    assert_eq!(mark(2, Some(Divergence::Missing)).await, 0, "another position was judged");
    assert_eq!(mark(1, Some(Divergence::Missing)).await, 1);
    let (kind, since) = shown().await.unwrap();
    assert_eq!(kind, Divergence::Missing);
    assert_eq!(mark(1, Some(Divergence::Missing)).await, 0);
    assert_eq!(mark(1, Some(Divergence::Lagging)).await, 1);
    assert_eq!(shown().await, Some((Divergence::Lagging, since)));
    assert_eq!(scene.store.diverged_count().await.unwrap(), [("lagging".to_owned(), 1)]);
    assert_eq!(mark(1, None).await, 1);
    assert_eq!(shown().await, None);
    assert!(scene.store.diverged_count().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cluster_is_listed_under_the_term_of_its_observer_only() {
    let scene = Try::new().await;
    let cluster = "eu-west-1".parse().unwrap();
    let listing = async || {
        let all = scene.store.listings().await.unwrap();
        all.into_iter().map(Result::unwrap).find(|one| one.cluster == cluster).unwrap()
    };
    assert_eq!((listing().await.confirmed_ago, listing().await.term), (None, 0), "nobody observes");
    let term = scene.store.observe_cluster(&cluster, "a", LONG).await.unwrap().unwrap();
    assert_eq!(listing().await.confirmed_ago, None, "it has listed nothing yet");
    assert!(!scene.store.note_listed(&cluster, "b", term, (1, Duration::ZERO)).await.unwrap());
    assert!(!scene.store.note_listed(&cluster, "a", Term(9), (1, Duration::ZERO)).await.unwrap());
    assert!(scene.store.note_listed(&cluster, "a", term, (1, Duration::ZERO)).await.unwrap());
    let first = listing().await;
    assert!(first.term == 1 && first.confirmed_ago.is_some() && !first.arrived, "{first:?}");
    let created = scene.create("trades").await;
    scene.store.absorb(&fresh(vec![observation(created.id, at(1))])).await.unwrap();
    assert!(listing().await.arrived);
    eventually(PATIENCE, "the list to age", async || {
        (listing().await.listed_ago > first.listed_ago).then_some(())
    })
    .await;
    let aged = listing().await;
    assert!(scene.store.note_listed(&cluster, "a", term, (1, Duration::ZERO)).await.unwrap());
    let again = listing().await;
    assert!(again.listed_ago >= aged.listed_ago, "everything was told when it was told first");
    assert!(scene.store.note_listed(&cluster, "a", term, (1, LONG)).await.unwrap());
    assert!(listing().await.confirmed_ago >= Some(LONG), "what waits for so long was seen since");
    let next = scene.store.next_term(&cluster, "a", term).await.unwrap().unwrap();
    assert_eq!(listing().await.term, 1, "not yet listed under the new term");
    assert!(scene.store.note_listed(&cluster, "a", next, (0, Duration::ZERO)).await.unwrap());
    assert!(listing().await.term == 2 && listing().await.arrived, "there was nothing to tell");
}

#[tokio::test]
async fn what_was_gone_and_is_there_again_may_stand_lower() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let seen = |seq, version, present| {
        let phase = format!("{seq}/{version}");
        Observation { resource_version: version, present, phase, ..observation(created.id, at(seq)) }
    };
    let shown =
        async || scene.store.database(None, created.id).await.unwrap().unwrap().observed.unwrap().phase;
    for (said, expected) in [
        (seen(3, 10, true), "3/10"),
        (seen(2, 11, true), "3/10"),
        (seen(3, 12, false), "3/12"),
        (seen(2, 11, true), "3/12"),
        (seen(2, 13, true), "2/13"),
        (seen(1, 14, true), "2/13"),
        // Of the one that went, late or once more.
        (seen(3, 11, true), "2/13"),
        (seen(3, 12, false), "2/13"),
        (seen(3, 15, true), "3/15"),
    ] {
        let what = format!("{said:?}");
        scene.store.absorb(&fresh(vec![said])).await.unwrap();
        assert_eq!(shown().await, expected, "after {what}");
    }
}

#[tokio::test]
async fn a_change_that_began_before_its_database_was_sent_again_is_no_repetition() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let mut transaction = scene.store.begin().await.unwrap();
    let turn = scene.store.begin_sweep(LONG).await.unwrap().unwrap();
    assert_eq!(scene.store.resend(turn, 9, &[(created.id, at(1))]).await.unwrap(), 1);
    assert_eq!(waiting(&scene.store).await, [(created.id, true)]);
    let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
    transaction.change(&locked, mint(OperationKind::Update, &locked.desired)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(waiting(&scene.store).await, [(created.id, false)], "somebody waits for it");
}

#[tokio::test]
async fn a_repair_stands_above_what_the_cluster_holds() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let held = Position { epoch: 3, seq: 40 };
    let ahead = Observation { volume: true, ..observation(created.id, held) };
    scene.store.absorb(&fresh(vec![ahead])).await.unwrap();
    let open = "select code, resolved_at is null from unclaimed";
    assert_eq!(scene.ask(open).await, "ahead|t");
    scene.store.resolve_unclaimed().await.unwrap();
    assert_eq!(scene.ask(open).await, "ahead|t", "it still is");
    let mut transaction = scene.store.begin().await.unwrap();
    let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
    let again = mint(OperationKind::Update, &locked.desired);
    let minted = transaction.repair(&locked, held, again).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(minted.position, Position { epoch: 4, seq: 2 });
    let waiting = scene.store.unpublished(10).await.unwrap().instructions;
    assert_eq!((waiting[0].position, waiting[0].said_again), (minted.position, false));
    assert!(waiting[0].desired.storage.provisioned, "a volume was seen");
    assert_eq!(scene.store.resolve_unclaimed().await.unwrap(), 1);
    assert_eq!(scene.ask(open).await, "ahead|f");
    let outcomes =
        as_minted(&scene.url, vec![outcome(created.id, minted.position, OutcomeKind::Applied)]).await;
    scene.store.absorb(&Batch { outcomes, ..fresh(Vec::new()) }).await.unwrap();
    let operation = scene.store.operation(None, minted.operation).await.unwrap().unwrap();
    assert_eq!(operation.operation.state, domain::OperationState::Running);
}

#[tokio::test]
async fn what_is_being_told_is_not_resolved_by_what_was_so_before() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let held = Position { epoch: 3, seq: 40 };
    scene.store.absorb(&fresh(vec![observation(created.id, held)])).await.unwrap();
    // Minted above it: nothing is ahead any more, until the cluster is told of as ahead of that, too.
    assert_eq!(scene.change(created.id, |_| ()).await.position, Position { epoch: 4, seq: 2 });
    let mut telling = Session::open(&scene.url).await.unwrap();
    for statement in
        ["begin", "update observations set epoch = 9", "update unclaimed set epoch = 9, seen = seen + 1"]
    {
        telling.run(statement).await.unwrap();
    }
    assert_eq!(scene.store.resolve_unclaimed().await.unwrap(), 0, "nobody waits for whoever tells it");
    telling.run("commit").await.unwrap();
    assert_eq!(scene.store.resolve_unclaimed().await.unwrap(), 0);
    assert_eq!(scene.ask("select code, resolved_at is null from unclaimed").await, "ahead|t");
    scene.ask("update observations set epoch = 3").await;
    assert_eq!(scene.store.resolve_unclaimed().await.unwrap(), 1);
}

#[tokio::test]
async fn strangers_stay_unclaimed_until_they_are_gone() {
    let scene = Try::new().await;
    let stranger = DatabaseId::mint();
    let said =
        |version, present| Observation { resource_version: version, present, ..observation(stranger, at(4)) };
    let all = ::store::AsideFilter::default();
    let list = async |resolved| scene.store.unclaimed(&all, resolved, None, 10).await.unwrap();
    scene.store.absorb(&fresh(vec![said(1, true)])).await.unwrap();
    scene.store.resolve_unclaimed().await.unwrap();
    let found = list(false).await;
    assert_eq!(found.iter().map(|one| (one.database, one.position)).collect::<Vec<_>>(), [(stranger, at(4))]);
    scene.store.absorb(&fresh(vec![said(2, false)])).await.unwrap();
    assert!(list(false).await.is_empty());
    assert_eq!(list(true).await[0].seen, 2);
    assert!(scene.store.unclaimed_count().await.unwrap().is_empty());
    scene.store.absorb(&fresh(vec![said(3, true)])).await.unwrap();
    assert_eq!(list(false).await.len(), 1, "it is there again");
}

#[tokio::test]
async fn strangers_that_went_while_nobody_looked_are_resolved_by_a_later_term() {
    let scene = Try::new().await;
    let (stranger, other) = (DatabaseId::mint(), scene.create("trades").await.id);
    let said = |database, term| Observation { term, ..observation(database, at(4)) };
    scene.store.absorb(&fresh(vec![said(stranger, 1), said(other, 1)])).await.unwrap();
    let open = async || scene.store.unclaimed_count().await.unwrap();
    let both = [("ahead".to_owned(), 1), ("unknown_database".to_owned(), 1)];
    assert_eq!(open().await, both);
    let [here, elsewhere] = ["eu-west-1", "us-east-1"].map(|cluster| cluster.parse().unwrap());
    assert_eq!(scene.store.resolve_gone(&[(&here, 1)]).await.unwrap(), 0, "told under this very term");
    assert_eq!(scene.store.resolve_gone(&[(&elsewhere, 2)]).await.unwrap(), 0, "another cluster's");
    let mut telling = Session::open(&scene.url).await.unwrap();
    telling.run("begin; update unclaimed set seen = seen + 1").await.unwrap();
    assert_eq!(
        scene.store.resolve_gone(&[(&here, 2)]).await.unwrap(),
        0,
        "nobody waits for whoever tells it"
    );
    telling.run("rollback").await.unwrap();
    assert_eq!(scene.store.resolve_gone(&[(&here, 2)]).await.unwrap(), 1);
    assert_eq!(open().await, both[..1], "rows that were lost are not found again by silence");
}

#[tokio::test]
async fn a_tombstone_is_asked_for_claimed_and_noted_as_gone() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let cluster = "eu-west-1".parse().unwrap();
    let claim = async || {
        let claimed = scene.store.claim_tombstones(&cluster, 10, LONG).await.unwrap();
        claimed.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(scene.store.bury(&[(created.id, at(2))]).await.unwrap(), 0, "another position was judged");
    assert_eq!(scene.store.bury(&[(created.id, at(1))]).await.unwrap(), 1);
    assert_eq!(scene.store.bury(&[(created.id, at(1))]).await.unwrap(), 0);
    let claimed = claim().await;
    assert_eq!((claimed[0].database, claimed[0].position, claimed[0].attempts), (created.id, at(1), 1));
    assert!(claim().await.is_empty(), "somebody has it");
    assert!(subject(&scene, created.id).await.burying);
    scene.store.keep_tombstones(&[created.id]).await.unwrap();
    scene.store.bury(&[(created.id, at(1))]).await.unwrap();
    scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    assert!(claim().await.is_empty(), "it was minted again meanwhile");
    assert_eq!(scene.store.mark_purged(&[(created.id, at(1))]).await.unwrap(), 0);
    assert_eq!(scene.store.mark_purged(&[(created.id, at(2))]).await.unwrap(), 1);
    assert!(scene.store.database(None, created.id).await.unwrap().unwrap().purged_at.is_some());
    let left = scene.store.sweep_subjects(None, 10, GOSSIP).await.unwrap().subjects;
    assert!(left.is_empty(), "nothing of it is left to look at");
    scene.store.absorb(&fresh(vec![observation(created.id, at(1))])).await.unwrap();
    assert!(subject(&scene, created.id).await.purged, "it is there again");
    assert_eq!(scene.store.unmark_purged(&[(created.id, at(2))]).await.unwrap(), 1);
    assert!(!subject(&scene, created.id).await.purged);
}

/// Who holds the database may be sending its purge again, and takes away the same.
#[tokio::test]
async fn nothing_is_taken_away_of_a_tombstone_whose_database_others_hold() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let purged = [(created.id, at(1))];
    scene.store.bury(&purged).await.unwrap();
    let mut holder = Session::open(&scene.url).await.unwrap();
    holder.run("begin; select from databases for no key update").await.unwrap();
    assert_eq!(scene.store.mark_purged(&purged).await.unwrap(), 0);
    assert!(subject(&scene, created.id).await.burying);
    holder.run("rollback; begin; select from tombstones for update").await.unwrap();
    assert_eq!(scene.store.keep_tombstones(&[created.id]).await.unwrap(), 0, "nobody waits");
    holder.run("rollback").await.unwrap();
    assert_eq!(scene.store.mark_purged(&purged).await.unwrap(), 1);
    assert_eq!(scene.ask("select count(*) from tombstones").await, "0");
}

#[tokio::test]
async fn a_purge_that_is_sent_again_keeps_the_tombstone_that_it_makes() {
    let scene = Try::new().await;
    let created = published(&scene, "trades").await;
    let cluster = "eu-west-1".parse().unwrap();
    let claimed = async || scene.store.claim_tombstones(&cluster, 10, LONG).await.unwrap().len();
    let turn = scene.store.begin_sweep(LONG).await.unwrap().unwrap();
    let resent = async |seq| scene.store.resend(turn, 9, &[(created.id, at(seq))]).await.unwrap();
    assert_eq!(scene.store.bury(&[(created.id, at(1))]).await.unwrap(), 1);
    assert_eq!(resent(2).await, 0);
    assert!(subject(&scene, created.id).await.burying, "another position was judged");
    assert_eq!(resent(1).await, 1);
    assert!(!subject(&scene, created.id).await.burying);
    assert_eq!(claimed().await, 0);
    scene.store.mark(&[(created.id, at(1))]).await.unwrap();
    assert_eq!(scene.store.bury(&[(created.id, at(1))]).await.unwrap(), 1, "it is asked for in its time");
    assert_eq!(claimed().await, 1);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_holds_up_no_sweep() {
    let scene = Try::new().await;
    let broken = published(&scene, "trades").await;
    let good = published(&scene, "quotes").await;
    for damage in ["jsonb_set(desired, '{run_state}', '\"asleep\"')", "desired - 'run_state'"] {
        scene.ask(&format!("update databases set desired = {damage} where id = '{}'", broken.id)).await;
        let found = scene.store.sweep_subjects(None, 1, GOSSIP).await.unwrap();
        assert!(
            found.subjects.is_empty()
                && matches!(found.unreadable[0], (id, Error::Corrupt { .. }) if id == broken.id),
            "{damage}: {found:?}"
        );
        let rest = scene.store.sweep_subjects(found.next, 1, GOSSIP).await.unwrap();
        assert_eq!(rest.subjects[0].database, good.id, "{damage}");
    }
}

#[tokio::test]
async fn a_cluster_that_cannot_be_read_hides_no_other() {
    let scene = Try::new().await;
    scene.ask("alter table clusters drop constraint clusters_state_is_known").await;
    scene.ask("update clusters set state = 'resting' where id = 'us-east-1'").await;
    let (good, broken): (Vec<_>, Vec<_>) =
        scene.store.listings().await.unwrap().into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), broken.len()), (1, 1));
    assert!(broken[0].as_ref().unwrap_err().to_string().contains("us-east-1"), "{broken:?}");
}
