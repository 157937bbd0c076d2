//! How long it may take after each fault until its promise is kept again. One table: what tests measure is told, and fails
//! where it is beyond its bound.
//!
//! A bound is about three times the longest that was measured (README's table). Where that was short it is 10 to 25 s, because a
//! busy machine hesitates; where programs are to end without a broker it is all that they may take.
//! Measured is from the end of the fault: a server that was away is back by then. What is measured does not go on while
//! the whole machine stands still ([`testkit::Stopwatch`]).

#![cfg(test)]

use std::io::Write as _;
use std::time::Duration;

use testkit::{how_long, stack};

/// Faults that last for long leave more behind: so many times the bound is theirs then.
const AT_FULL_LENGTH: u32 = 4;

/// What is measured after a fault, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recovery {
    /// For people.
    what: &'static str,
    at_most: Duration,
}

/// It may take so many seconds.
const fn within(seconds: u64, what: &'static str) -> Recovery {
    Recovery { what, at_most: Duration::from_secs(seconds) }
}

pub(crate) const PROVISIONER_KILLED: Recovery = within(45, "kill -9 of a provisioner, another one runs");
pub(crate) const PROVISIONER_HALTED: Recovery =
    within(40, "SIGSTOP of a provisioner past its session, another one runs");
pub(crate) const BACKEND_KILLED: Recovery =
    within(45, "kill -9 of the backend (API, relay, sink), started again");
pub(crate) const RELAY_HALTED: Recovery = within(35, "SIGSTOP of one of two relays");
pub(crate) const IN_TURN: Recovery = within(30, "SIGTERM of a provisioner after its successor began");
pub(crate) const IN_TURN_ENDS: Recovery = within(10, "SIGTERM of each program in turn (slowest end)");
/// Here members follow each other faster than their group settles. One that begins may forget the name that the coordinator gave
/// it (librdkafka's issue 5569), and the group waits for that name for as long as a session: 6 s of the 12.2 s that were measured.
pub(crate) const ROLLED: Recovery = within(36, "twenty rolls of a provisioner, the last one over");
/// One that such a group has not let in yet waits for 5.5 s at most until it may leave.
pub(crate) const ROLLED_ENDS: Recovery =
    within(17, "SIGTERM of a provisioner with work in hand (slowest end)");
pub(crate) const MEMBERS_COME_AND_GO: Recovery =
    within(25, "members of the group coming and going: no lag left");
pub(crate) const STORM: Recovery = within(120, "a storm of random faults: everything settled");

pub(crate) const BROKER_STARTS: Recovery = within(70, "kill -9 of the broker: listening again");
pub(crate) const BROKER_KILLED: Recovery =
    within(60, "kill -9 of the broker, listening again: everything flows");
pub(crate) const BROKER_SILENT: Recovery =
    within(30, "SIGSTOP of the broker for longer than a send is waited for");
pub(crate) const OFFSETS_LOST: Recovery =
    within(15, "lost offsets of the group, told to read from the oldest");
pub(crate) const TOO_FEW_COPIES: Recovery =
    within(40, "fewer copies of the topics than a write needs, then enough again");
pub(crate) const DISKS_FULL: Recovery = within(35, "full disks of all brokers, then room again");
pub(crate) const RIGHTS_TAKEN: Recovery = within(20, "rights on the topics taken away, then given back");
pub(crate) const PASSWORD_ENDED: Recovery =
    within(55, "a password of Kafka that holds no more, then the next one in the file");
pub(crate) const PASSWORD_REFUSED: Recovery =
    within(60, "a password of Kafka that one broker holds no more, the next one in the file");
/// No program may take longer than its grace, which the slowest needs nearly all of.
pub(crate) const BROKER_SILENT_ENDS: Recovery =
    within(20, "SIGTERM while the broker is silent (slowest end)");
pub(crate) const ENDED_WHILE_SILENT: Recovery =
    within(30, "programs started again after that: everything flows");
pub(crate) const NO_BROKER_ENDS: Recovery = within(20, "SIGTERM while no broker is there (slowest end)");
pub(crate) const ENDED_WITHOUT_BROKER: Recovery =
    within(40, "brokers and programs started again after that: everything flows");

pub(crate) const POSTGRES_STARTS: Recovery = within(45, "kill -9 of Postgres: answering again");
pub(crate) const POSTGRES_KILLED: Recovery =
    within(45, "kill -9 of Postgres, answering again: everything flows");
pub(crate) const POSTGRES_CUT: Recovery = within(25, "Postgres unreachable: connections cut");
pub(crate) const POSTGRES_SILENT: Recovery = within(25, "Postgres unreachable: silence");
pub(crate) const POSTGRES_STOPPED: Recovery = within(25, "Postgres stopped, and started again");
pub(crate) const LEFT_OPEN: Recovery = within(10, "a transaction of somebody else left open: others pass");
pub(crate) const PROMOTED_ACCEPTS: Recovery =
    within(10, "primary of Postgres crashed, standby promoted: changes accepted again");
pub(crate) const PROMOTED: Recovery =
    within(25, "primary of Postgres crashed, standby promoted: everything flows again");
pub(crate) const COMMITS_LOST: Recovery =
    within(25, "commits lost by a standby that lagged: noticed and outranked");
pub(crate) const ACCEPTED_ON_LOST: Recovery =
    within(20, "change accepted after rows were lost, refused by its cluster: outranked");
pub(crate) const ACCEPTED_ON_LOST_AND_HEARD: Recovery =
    within(20, "the same, with a sink that lives through it: outranked");

/// Five seconds may pass until it is asked whether it is back, which is more than was measured.
pub(crate) const BLACK_HOLE: Recovery =
    within(25, "API server of a cluster is a black hole: its instructions drained");
pub(crate) const API_SERVER_STARTS: Recovery = within(30, "kill -9 of an API server: listening again");
pub(crate) const API_SERVER_KILLED: Recovery =
    within(45, "kill -9 of an API server, listening again: everything flows");
pub(crate) const TOO_MANY_REQUESTS: Recovery = within(25, "API server answers 429");
pub(crate) const UNAVAILABLE: Recovery = within(25, "API server answers 503");

pub(crate) const CLOCKS_JUMP: Recovery = within(25, "clocks that are wrong and jump: others pass");
pub(crate) const BESIDE_HASTE: Recovery = within(20, "a tenant asks for ten times as much: others pass");
pub(crate) const NONSENSE: Recovery = within(25, "nonsense on both topics: others pass");
pub(crate) const SAID_AGAIN: Recovery = within(30, "every record once more, twice, in another order");
pub(crate) const DIED_BEFORE_APPLY: Recovery =
    within(20, "provisioner dies right before an apply: its heir has applied");
pub(crate) const DIED_AFTER_APPLY: Recovery =
    within(25, "provisioner dies between apply and commit: its heir has applied again");
pub(crate) const DIED_AFTER_COMMIT: Recovery =
    within(40, "provisioner dies right after a commit: everything flows again");
pub(crate) const GIVEN_BACK: Recovery = within(10, "partitions come back to a member whose keys are at work");
pub(crate) const SINK_DIED_INSIDE: Recovery = within(30, "sink dies before the commit of its transaction");
pub(crate) const SINK_DIED_AFTER: Recovery =
    within(30, "sink dies right after the commit of its transaction");
pub(crate) const RELAY_DIED: Recovery = within(10, "relay dies between Kafka's word and its mark");
pub(crate) const SLOW_COMMITS: Recovery =
    within(10, "commits of the sink take two seconds, then none any more");
pub(crate) const SINK_HALTED: Recovery = within(
    25,
    "sink halted inside its transaction past its session, awake again, its transaction still there",
);
pub(crate) const SINK_HALTED_AND_ENDED: Recovery =
    within(25, "sink halted inside its transaction past its session, awake again, its transaction ended");

/// Tells how long a promise took to be kept again, keeps it for those who gather such figures, and fails when that was too
/// long.
pub(crate) fn recovered(recovery: Recovery, after: Duration) {
    let Recovery { what, at_most } = recovery;
    let at_most = how_long(at_most, at_most * AT_FULL_LENGTH);
    let line = format!("{what}: {:.1} s, at most {} s", after.as_secs_f64(), at_most.as_secs());
    println!("recovered after {line}");
    let file = stack().state_dir.join("recovery.txt");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
    file.and_then(|mut file| writeln!(file, "{line}")).unwrap();
    assert!(after <= at_most, "too slow: {line}");
}
