//! What can happen next, and what it makes of the world.
//!
//! Three kinds of step: *progress*, which the programs make by themselves; *repair*, which they make when nothing else
//! moves any more (in the product: after a while); and *chance*, which may strike or not: what users ask for, faults, and
//! zombies that wake up. A state without progress and repair is at rest, and every promise must be kept there.

mod backend;
mod cluster;
mod provisioner;

use domain::RunState;

use crate::Protocol;
use crate::state::{Late, Said, State};

/// Where a provisioner has a job from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// From the topic.
    Topic,
    /// From among the parked.
    Parked,
}

/// Whose work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Desk {
    /// The provisioner.
    pub provisioner: usize,
    /// The database.
    pub database: usize,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A user asks for something; row, operation and history are written in one transaction.
    Mint {
        /// Of which database.
        database: usize,
        /// What should be.
        state: RunState,
    },
    /// Without the row lock: an API replica reads the row.
    MintLook {
        /// Which replica.
        replica: usize,
        /// Of which database.
        database: usize,
    },
    /// Without the row lock: it writes what it made of that.
    MintWrite {
        /// Which replica.
        replica: usize,
    },
    /// The relay sends the newest state of a row.
    Publish {
        /// Of which database.
        database: usize,
    },
    /// The relay hears from Kafka and marks the position.
    Mark,
    /// A provisioner gets the partition that nobody has.
    Assign {
        /// The provisioner.
        provisioner: usize,
    },
    /// The owner of the partition reads the next record.
    Read,
    /// A provisioner takes a parked instruction in hand.
    Drain(Desk),
    /// An apply reaches the API server, and its reply the provisioner.
    Carry {
        /// Whose.
        desk: Desk,
        /// From where.
        source: Source,
    },
    /// What became of it is made durable and told; the record is finished.
    Settle {
        /// Whose.
        desk: Desk,
        /// From where.
        source: Source,
    },
    /// The owner commits what it may.
    Commit,
    /// The operator has carried a spec out and says so in the status.
    Reconcile {
        /// Of which database.
        database: usize,
    },
    /// The observer tells what it sees.
    Observe {
        /// Of which database.
        database: usize,
    },
    /// The sink takes in this many records of gossip.
    Absorb {
        /// How many.
        count: usize,
    },
    /// What is ahead of Postgres, or other than it, makes the current state be minted again.
    MintAgain {
        /// Of which database.
        database: usize,
    },
    /// The observer's term is put above what was heard under a higher one.
    RaiseTerm,
    /// What is parked goes, because its cluster is seen to be ahead of it.
    Pass {
        /// Of which database.
        database: usize,
    },
    /// The API server answers again.
    Return,
    /// Repair: the slow roll tells what is seen once more.
    SayAgain {
        /// Of which database.
        database: usize,
    },
    /// Repair: what lags counts as unpublished.
    SendAgain {
        /// Of which database.
        database: usize,
    },
    /// Chance: a tombstone is removed after all.
    Close {
        /// Of which database.
        database: usize,
    },
    /// Chance: a zombie wakes up.
    Wake(Late),
    /// Fault: a provisioner dies; its requests are still on their way.
    Crash {
        /// Which one.
        provisioner: usize,
    },
    /// Fault: the relay dies, or does not hear from Kafka.
    RelayCrash,
    /// Fault: something of the past is produced once more.
    Duplicate {
        /// Its place in the history.
        index: usize,
    },
    /// Fault: the partition is given to another provisioner.
    Rebalance {
        /// To this one.
        provisioner: usize,
    },
    /// Fault: the reply to an apply does not come in time; the request arrives whenever it likes.
    TimeOut {
        /// Whose.
        desk: Desk,
        /// From where.
        source: Source,
    },
    /// Fault: the API server does not answer.
    Leave,
    /// Fault: an operator sleeps before it writes a status.
    OperatorSleeps {
        /// Of which database.
        database: usize,
    },
    /// Fault: an observer sleeps before it tells; another one takes over.
    ObserverSleeps {
        /// Of which database.
        database: usize,
    },
    /// Fault: a sink sleeps before it stores its batch; another one takes over.
    SinkSleeps,
    /// Fault: the sink dies between two transactions that should be one.
    SinkCrash,
    /// Fault: Kafka loses the newest instruction.
    LoseInstruction,
    /// Fault: Kafka loses the newest gossip.
    LoseGossip,
    /// Fault: from now on the standby stays behind.
    StandbyLags,
    /// Fault: the standby becomes the primary.
    FailOver,
    /// Fault: another cluster speaks.
    StrangerSpeaks {
        /// Of which database.
        database: usize,
    },
    /// Fault: another cluster says that an instruction will never be taken.
    StrangerRefuses {
        /// Of which database.
        database: usize,
    },
}

/// What the programs do by themselves.
pub fn progress(protocol: &Protocol, state: &State) -> Vec<Step> {
    let mut steps = Vec::new();
    backend::progress(protocol, state, &mut steps);
    provisioner::progress(protocol, state, &mut steps);
    cluster::progress(protocol, state, &mut steps);
    if steps.is_empty() {
        backend::repair(protocol, state, &mut steps);
    }
    steps
}

/// What may strike or not.
pub fn chance(protocol: &Protocol, state: &State) -> Vec<Step> {
    let mut steps = Vec::new();
    backend::chance(protocol, state, &mut steps);
    provisioner::chance(state, &mut steps);
    cluster::chance(state, &mut steps);
    steps.extend(state.late.iter().cloned().map(Step::Wake));
    steps
}

/// The world after a step.
pub fn apply(protocol: &Protocol, state: &mut State, step: &Step) {
    if let Step::Wake(late) = step {
        wake(protocol, state, late);
    } else {
        backend::apply(protocol, state, step);
        provisioner::apply(protocol, state, step);
        cluster::apply(protocol, state, step);
    }
    state.forget_gossip();
}

fn wake(protocol: &Protocol, state: &mut State, late: &Late) {
    state.late.remove(late);
    match late {
        Late::Apply(instruction) => {
            cluster::admit(protocol, state, instruction);
        }
        Late::Status { database, position } => cluster::report(protocol, state, *database, *position),
        Late::Say(said) => state.gossip.push(*said),
        Late::Store { from, count } => backend::store(protocol, state, *from, *count),
    }
}

/// Tells what became of an instruction, where anybody listens.
fn tell(protocol: &Protocol, state: &mut State, said: Said) {
    if protocol.bounds.gossip {
        state.gossip.push(said);
    }
}
