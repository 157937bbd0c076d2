//! The product's own pure functions, asked in the words of the model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backend::sink::fold::{self, Order};
use backend::sweep::decide::{self, Act, Rules};
use bus::lanes::{Class, Entry, Lanes, Limits, Place};
use bus::tracker::{Ticket, Tracker};
use domain::{ClusterId, ClusterState, DatabaseId, OperationState, Position};
use provisioner::classify::{self, Verdict};
use resources::fence::Holder;
use store::{Letters, Listing, Sighting, Subject};

use crate::state::{Ended, Instruction, Object, Row, Seen};

/// What the provisioner makes of a refusal by the fence.
pub(crate) fn fenced(held: &Object, asked: &Instruction) -> Ended {
    let Position { epoch, seq } = held.position;
    let holder = Holder { epoch, seq, hash: held.wish.nonce.to_string() };
    match classify::fenced(holder, asked.position, &asked.wish.nonce.to_string()) {
        Verdict::Superseded(_) => Ended::Superseded,
        Verdict::Held => Ended::Applied,
        _ => Ended::Refused,
    }
}

/// How many of the records read, some of them done, the tracker would commit.
pub(crate) fn committable(read: usize, done: &BTreeSet<usize>) -> usize {
    let mut tracker = Tracker::default();
    for offset in 0..read {
        tracker.begin(number(offset));
    }
    for offset in done {
        tracker.finish(number(*offset));
    }
    tracker.committable().and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0)
}

/// Whether of two records that wait for one lane the one that came later goes.
pub(crate) fn arriving_goes(waiting: &Instruction, arriving: &Instruction) -> bool {
    let mut lanes = Lanes::new(Limits { total: 1, group: 1 });
    lanes.offer(entry(waiting, false));
    lanes.offer(entry(arriving, true)).is_some_and(|superseded| superseded.work)
}

fn entry(instruction: &Instruction, arriving: bool) -> Entry<bool> {
    let Position { epoch, seq } = instruction.position;
    let (key, tenant, group) = (Arc::from("key"), Arc::from("tenant"), Arc::from("group"));
    let place = Place { key, order: (epoch, seq), tenant, group, class: Class::default() };
    let ticket = Ticket { partition: 0, epoch: 0, offset: i64::from(arriving) };
    Entry { place, ticket, attempt: 0, panics: 0, bytes: 0, work: arriving }
}

/// What the sink's fold leaves of a batch.
pub(crate) fn fold(batch: &[Seen]) -> Vec<Seen> {
    let rows =
        batch.iter().map(|&seen| Said { seen, cluster: cluster(if seen.foreign { "b" } else { "a" }) });
    fold::fold(rows).into_iter().map(|said| said.seen).collect()
}

/// An observation as the sink's fold asks for it.
struct Said {
    seen: Seen,
    cluster: ClusterId,
}

impl fold::Seen for Said {
    fn database(&self) -> DatabaseId {
        DatabaseId::new(uuid::Uuid::from_u128(self.seen.database as u128))
    }

    fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    fn order(&self) -> Order {
        let Seen { position, term, version, .. } = self.seen;
        (position, number(term), number(version), jiff::Timestamp::UNIX_EPOCH)
    }

    fn present(&self) -> bool {
        // Resources that are seen to be gone are not in the model.
        true
    }
}

/// Longer than anybody waits in vain.
const LONG: Duration = Duration::from_hours(1);

/// What the sweep makes of a database of which nothing is on its way, in a cluster that listed everything just now.
pub(crate) fn sweep(row: &Row, term: usize) -> Option<Act> {
    let desired = row.desired?;
    let listing = Listing {
        cluster: cluster("a"),
        state: ClusterState::Active,
        term: number(term),
        listed_ago: Some(LONG),
        confirmed_ago: Some(Duration::ZERO),
        arrived: true,
    };
    let moment = Duration::from_secs(1);
    let rules = Rules { grace: moment, again: moment, listing: LONG, retention: Some(LONG * 2) };
    Some(decide::judge(&subject(row, &desired), Some(&listing), &rules).act)
}

fn subject(row: &Row, desired: &Instruction) -> Subject {
    let refused = row.operations.last().is_some_and(|newest| newest.state == OperationState::Failed);
    let sighting = |seen: Seen| Sighting {
        position: seen.position,
        term: number(seen.term),
        present: true,
        content_hash: seen.wish.nonce.to_string(),
        carried_out: seen.carried,
    };
    Subject {
        database: DatabaseId::new(uuid::Uuid::nil()),
        cluster: cluster("a"),
        minted: desired.position,
        content_hash: desired.wish.nonce.to_string(),
        run_state: desired.wish.state,
        minted_ago: LONG,
        published_ago: (row.published == Some(desired.position)).then_some(LONG),
        resent_ago: None,
        purged: row.closed,
        diverged: None,
        seen: row.belief.map(sighting),
        parked: row.parked.map(|parked| parked.position),
        letters: if refused { Letters::This } else { Letters::None },
        burying: false,
        outgrown: false,
    }
}

fn cluster(name: &str) -> ClusterId {
    name.parse().expect("a letter is the name of a cluster")
}

fn number(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}
