//! Everything that is somewhere: in Postgres, on the topics, in the memory of programs, in the cluster, on the way.
//!
//! Small on purpose: a record is forgotten here as soon as nobody can read it again, so that histories that differ only in
//! their past are one state.

use std::collections::{BTreeMap, BTreeSet};

use domain::{OperationState, Position, RunState};

use crate::bounds::Faults;
use crate::invariants::Promise;

/// What a desired state says. `nonce` stands for everything but the run state: two states of one nonce are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wish {
    /// Whether it should run.
    pub state: RunState,
    /// All the rest, and with it the content hash.
    pub nonce: usize,
}

/// A desired state as it was minted: what a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instruction {
    /// Of which database.
    pub database: usize,
    /// Where it stands in the database's history.
    pub position: Position,
    /// What should be.
    pub wish: Wish,
}

/// What is seen of a custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seen {
    /// Of which database.
    pub database: usize,
    /// Position that the spec holds.
    pub position: Position,
    /// Term of the observer.
    pub term: usize,
    /// Version of the resource.
    pub version: usize,
    /// Content of the spec.
    pub wish: Wish,
    /// Position that the status says was carried out.
    pub carried: Option<Position>,
    /// Whether another cluster than the database's own says so.
    pub foreign: bool,
}

/// A record of the gossip topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Said {
    /// The provisioner: this instruction was applied.
    Applied(Instruction),
    /// The provisioner: this instruction will never be taken.
    Refused(Instruction),
    /// Another cluster's provisioner says the same.
    Foreign(Instruction),
    /// An observer.
    Seen(Seen),
}

/// What was asked for, and how far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The position that carries it out.
    pub position: Position,
    /// How far.
    pub state: OperationState,
}

/// A database in Postgres, over all tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    /// What should be.
    pub desired: Option<Instruction>,
    /// The newest position that Kafka took.
    pub published: Option<Position>,
    /// What its cluster could not take.
    pub parked: Option<Instruction>,
    /// What is believed of its custom resource.
    pub belief: Option<Seen>,
    /// Its operations, the oldest first.
    pub operations: Vec<Operation>,
    /// Whether its tombstone was removed, long after its end.
    pub closed: bool,
    /// Whether an operation failed by another cluster's word: for the checker alone.
    pub misled: bool,
}

/// All of Postgres.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Postgres {
    /// By database.
    pub rows: Vec<Row>,
    /// The first gossip that is not taken in.
    pub offset: usize,
    /// Term of the observer. Who speaks asks for it every few seconds, so it is the observer's own.
    pub term: usize,
}

/// The one partition of the instructions topic; what lies before the committed offset is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Topic {
    /// From the committed offset on.
    pub records: Vec<Instruction>,
    /// The provisioner that has the partition.
    pub owner: Option<usize>,
}

/// How the handling of an instruction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The resource holds it.
    Applied,
    /// The resource holds something newer.
    Superseded,
    /// Will never be taken.
    Refused,
    /// Its cluster cannot take it now, or nobody knows.
    Park,
}

/// An instruction in the hands of a provisioner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// The instruction.
    pub instruction: Instruction,
    /// Its offset; `None` if it was read in an earlier assignment, or from among the parked.
    pub offset: Option<usize>,
    /// How it ended, while that is known here only.
    pub ended: Option<Ended>,
}

/// A database's place in a provisioner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    /// What is being handled.
    pub running: Option<Job>,
    /// What is next.
    pub waiting: Option<Job>,
}

/// The memory of a provisioner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Provisioner {
    /// Records read behind the committed offset.
    pub read: usize,
    /// Those of them that are dealt with.
    pub done: BTreeSet<usize>,
    /// By database.
    pub lanes: Vec<Lane>,
    /// Parked instructions that it carries out, by database.
    pub drains: Vec<Option<Job>>,
}

/// A custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Position of the spec.
    pub position: Position,
    /// Content of the spec.
    pub wish: Wish,
    /// Position in the status.
    pub carried: Option<Position>,
    /// Raised with every write that changes something.
    pub version: usize,
}

/// A custom resource's place in its cluster, with what only the checker remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The resource.
    pub object: Option<Object>,
    /// Term and version that were told last.
    pub told: Option<(usize, usize)>,
    /// Whether it was told again since it changed.
    pub told_again: bool,
    /// The greatest position it ever held, and its run state there: for the checker alone.
    pub highest: Option<(Position, RunState)>,
}

/// What is still going to happen although its sender crashed, gave up or sleeps: the work of zombies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Late {
    /// A request to the API server.
    Apply(Instruction),
    /// A status by an operator that was the leader.
    Status {
        /// Of which database.
        database: usize,
        /// What it saw carried out.
        position: Position,
    },
    /// Gossip of an observer whose term has passed.
    Say(Said),
    /// A batch of a sink that lost its partition.
    Store {
        /// Where it began.
        from: usize,
        /// How many records it holds.
        count: usize,
    },
}

/// The whole world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The primary.
    pub postgres: Postgres,
    /// What an asynchronous standby has, once one lags.
    pub standby: Option<Postgres>,
    /// Instructions.
    pub topic: Topic,
    /// Gossip that some copy of Postgres has not taken in.
    pub gossip: Vec<Said>,
    /// What the relay has sent and not yet marked.
    pub relay: Option<Instruction>,
    /// What API replicas read before they write, by replica: only while nobody locks.
    pub unlocked: BTreeMap<usize, Instruction>,
    /// Provisioners.
    pub provisioners: Vec<Provisioner>,
    /// The work of zombies.
    pub late: BTreeSet<Late>,
    /// Custom resources, by database.
    pub resources: Vec<Resource>,
    /// Whether the API server does not answer.
    pub away: bool,
    /// Everything that was ever minted, the oldest first.
    pub history: Vec<Instruction>,
    /// How much of it users asked for.
    pub asked: usize,
    /// Whether Postgres lost what it had acknowledged.
    pub failed_over: bool,
    /// How often what lags may still be sent again.
    pub resends: usize,
    /// Faults that may still happen.
    pub left: Faults,
    /// The promise that the last step broke; nothing happens afterwards.
    pub broken: Option<Promise>,
}

impl State {
    /// Nothing was asked for yet.
    pub fn new(databases: usize, provisioners: usize, resends: usize, left: Faults) -> Self {
        let provisioner = Provisioner::new(databases);
        Self {
            postgres: Postgres { rows: vec![Row::default(); databases], offset: 0, term: 1 },
            standby: None,
            topic: Topic { records: Vec::new(), owner: Some(0) },
            gossip: Vec::new(),
            relay: None,
            unlocked: BTreeMap::new(),
            provisioners: vec![provisioner; provisioners],
            late: BTreeSet::new(),
            resources: vec![Resource::default(); databases],
            away: false,
            history: Vec::new(),
            asked: 0,
            failed_over: false,
            resends,
            left,
            broken: None,
        }
    }

    /// What the observer sees of a custom resource now.
    pub fn look(&self, database: usize) -> Option<Seen> {
        let object = self.resources.get(database)?.object?;
        let Object { position, wish, carried, version } = object;
        Some(Seen { database, position, term: self.postgres.term, version, wish, carried, foreign: false })
    }

    /// Forgets the gossip that nobody will look at again.
    pub fn forget_gossip(&mut self) {
        let behind = self.standby.iter().map(|standby| standby.offset);
        let asleep = self.late.iter().filter_map(|late| match late {
            Late::Store { from, .. } => Some(*from),
            _ => None,
        });
        let known = behind.chain(asleep).fold(self.postgres.offset, usize::min);
        if known == 0 {
            return;
        }
        self.gossip.drain(..known);
        self.postgres.offset -= known;
        if let Some(standby) = &mut self.standby {
            standby.offset -= known;
        }
        let shift = |late: Late| match late {
            Late::Store { from, count } => Late::Store { from: from - known, count },
            other => other,
        };
        self.late = std::mem::take(&mut self.late).into_iter().map(shift).collect();
    }
}

impl Provisioner {
    /// One that has just started.
    pub fn new(databases: usize) -> Self {
        let (lanes, drains) = (vec![Lane::default(); databases], vec![None; databases]);
        Self { read: 0, done: BTreeSet::new(), lanes, drains }
    }
}
