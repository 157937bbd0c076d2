//! Provisioners replaced one by the next, again and again, each time with work under way.

use std::time::{Duration, Instant};

use domain::Position;
use testkit::Watched;
use wire::{Instruction, OutcomeKind};

use super::bulkhead::behind_a_front;
use super::rig::{Rig, Running, name};
use crate::front::{Act, Front, Seen};
use crate::support::within;

const ROLLS: i64 = 20;
const DATABASES: usize = 12;
/// An apply may be held for as long as it takes until all of them are.
const PATIENT: [&str; 2] = ["--call-timeout", "50"];
/// The same, and how long work under way may take at a stop where it does not end.
const SHORT: [&str; 4] = ["--call-timeout", "50", "--grace", "1"];
/// How long any end may take: the usual grace, and what the end of a consumer may take beyond it.
const END: Duration = Duration::from_secs(10 + 6 + 2);
/// How many of all may take longer: while they end a machine may stand still for a moment, and as a rule does not.
const LATE: usize = 3;

/// How a provisioner is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Roll {
    /// Its work ends within its grace; then the next one begins.
    InTurn,
    /// The next one begins first; the work ends within the grace of the old one.
    Overlapping,
    /// The next one begins first; the work of the old one does not end, and is left where it stands.
    Abandoned,
}

impl Roll {
    fn number(roll: i64) -> Self {
        [Self::InTurn, Self::Overlapping, Self::Abandoned][usize::try_from(roll % 3).unwrap()]
    }

    /// Starts the one that will be replaced like this.
    fn starts(self, rig: &Rig) -> Running {
        rig.start(if self == Self::Abandoned { &SHORT } else { &PATIENT })
    }
}

fn at(instruction: &Instruction, seq: i64) -> Instruction {
    let mut next = instruction.clone();
    next.position = Position { epoch: 1, seq };
    next.desired.storage.size_gib = 50 + u32::try_from(seq).unwrap();
    next
}

/// Lets every database have a next state, and replaces the provisioner while it works on all of them.
async fn replaced(rig: &Rig, front: &Front, first: &[Instruction], running: Running, roll: i64) -> Replaced {
    let (how, then) = (Roll::number(roll), Roll::number(roll + 1));
    let (what, seq) = (format!("roll {roll}, {how:?}"), roll + 1);
    let next: Vec<Instruction> = first.iter().map(|instruction| at(instruction, seq)).collect();
    let of_this = move |seen: &Seen| seen.is_apply() && seen.body.contains(&format!("\"seq\":{seq},"));
    let before = front.harmed();
    // Whoever was not told in time of the last commit of the one before it does the last states again, which is no work of this roll.
    front.hold_applies_of(of_this);
    for instruction in &next {
        rig.publish(instruction).await;
    }
    front.fired(before + DATABASES).await;
    let heir = (how != Roll::InTurn).then(|| then.starts(rig));
    let begun = Instant::now();
    let stopping = tokio::spawn(running.stop());
    if how == Roll::Abandoned {
        stopping.await.unwrap();
        front.release();
    } else {
        front.release();
        stopping.await.unwrap();
    }
    let took = begun.elapsed();
    // The one before may have done some of it twice itself: where a server is busy, or where its partition went and came.
    let done = front.seen(of_this).len();
    // Brokers that are busy for longer than a second at the end do not know the last commit: then it is done again.
    let known = how == Roll::InTurn && rig.is_committed().await;
    let running = heir.unwrap_or_else(|| then.starts(rig));
    for instruction in &next {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    let sent = front.seen(of_this).len();
    match how {
        Roll::InTurn if known => assert_eq!(sent, done, "{what}: what was done was done again"),
        Roll::InTurn | Roll::Overlapping => assert!(sent >= DATABASES, "{what}: {sent} applies"),
        Roll::Abandoned => assert!(sent > DATABASES, "{what}: nothing was left where it stood"),
    }
    Replaced { running, took, known }
}

/// The one in its place, how long the end took, and whether the brokers knew by then that all was done.
struct Replaced {
    running: Running,
    took: Duration,
    known: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_rolls_with_work_under_way_lose_nothing_and_repeat_nothing_that_was_done() {
    let rig = Rig::with_partitions(4).await;
    let front = Front::of(testkit::bare_cluster()).await;
    rig.credentials_at("bare", front.url());
    let watched =
        Watched::start(&testkit::bare_cluster().kubeconfig, &format!("qdb-{}", rig.tenant)).await.unwrap();
    let first: Vec<Instruction> = (0..DATABASES).map(|_| rig.instruction(1)).collect();
    let mut running = Roll::number(1).starts(&rig);
    for instruction in &first {
        rig.publish(instruction).await;
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    let (mut ends, mut known) = (Vec::new(), 0);
    for roll in 1..=ROLLS {
        let replaced = replaced(&rig, &front, &first, running, roll).await;
        ends.push(replaced.took);
        known += usize::from(replaced.known);
        running = replaced.running;
    }
    let late = ends.iter().filter(|took| **took >= END).count();
    assert!(late <= LATE, "{late} ends took longer than {END:?}: {ends:?}");
    assert!(known > 0, "the brokers never knew at an end that all was done");
    // Whoever finished its work before it ended left nothing of it to the next one.
    rig.committed().await;
    running.stop().await;
    let last = rig.instruction(1);
    rig.publish(&last).await;
    let before = front.applies();
    let running = rig.start(&["--offset-reset", "error"]);
    rig.outcome(&last, OutcomeKind::Applied).await;
    let applies = front.seen(Seen::is_apply).split_off(before);
    let again = applies.iter().filter(|seen| !seen.path.contains(&name(&last))).count();
    assert_eq!(again, 0, "what was done was done again");
    running.stop().await;
    assert_eq!(watched.wrong(), [""; 0]);
    for instruction in &first {
        let held: Vec<i64> = watched.states(&instruction.key()).iter().map(|seen| seen.position.1).collect();
        assert_eq!(held, (1..=ROLLS + 1).collect::<Vec<_>>(), "each state once, in order");
    }
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    let slowest = ends.iter().max().unwrap();
    println!(
        "the slowest of {ROLLS} ends took {slowest:?}; after {known} the brokers knew that all was done"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_drained_into_silence_is_left_where_it_stands_when_the_grace_has_passed() {
    within(END, an_end_in_silence).await;
}

/// How long the end takes of a provisioner that drains into silence.
async fn an_end_in_silence() -> Duration {
    let (rig, front) = behind_a_front().await;
    front.set(|_| Act::Answer(503, None));
    let running = rig.start(&SHORT);
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    rig.outcome(&instruction, OutcomeKind::Parked).await;
    front.hold_applies();
    front.fired(front.harmed() + 1).await;
    let begun = Instant::now();
    // Nobody cuts off what drains: that would be an end by an error.
    running.stop().await;
    let took = begun.elapsed();
    rig.count("select count(*) from parked_instructions", "1").await;
    took
}
