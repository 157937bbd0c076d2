//! How much may happen: the size of the world, and how often each fault strikes. Everything within is checked, but for
//! [`Bounds::LOST_CHANGES`].

use domain::RunState;

/// How often each fault may still strike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A provisioner, or the relay, loses its memory.
    pub crashes: usize,
    /// A record of the past is produced once more: by a replay, a second relay, a reply that was lost.
    pub duplicates: usize,
    /// The partition moves to another provisioner while the first one works on.
    pub rebalances: usize,
    /// A reply of the API server is lost; the request arrives whenever it likes.
    pub timeouts: usize,
    /// The API server does not answer for a while.
    pub outages: usize,
    /// An operator, an observer or a sink sleeps with its hand on the switch, and wakes up late.
    pub sleepers: usize,
    /// Kafka loses the newest record.
    pub losses: usize,
    /// Postgres falls back to what an asynchronous standby had.
    pub failovers: usize,
    /// A cluster says something of a database of another cluster.
    pub strangers: usize,
}

/// The size of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Databases.
    pub databases: usize,
    /// Changes that are asked for, of all databases together.
    pub mints: usize,
    /// Provisioners.
    pub provisioners: usize,
    /// How far a database may come to its end.
    pub end: RunState,
    /// Whether there are operators, observers and sinks; without them only the way to the cluster is modelled.
    pub gossip: bool,
    /// How often what lags may be sent again; with 0 nothing is said or sent a second time.
    pub resends: usize,
    /// Whether tombstones are removed in the end.
    pub closing: bool,
    /// Faults.
    pub faults: Faults,
}

/// No fault at all.
pub(crate) const CALM: Faults = Faults {
    crashes: 0,
    duplicates: 0,
    rebalances: 0,
    timeouts: 0,
    outages: 0,
    sleepers: 0,
    losses: 0,
    failovers: 0,
    strangers: 0,
};

/// One database, three changes, no fault.
const ONE: Bounds = Bounds {
    databases: 1,
    mints: 3,
    provisioners: 2,
    end: RunState::Deleted,
    gossip: false,
    resends: 0,
    closing: false,
    faults: CALM,
};

/// The way back too; one provisioner is enough for it.
const TWO_WAYS: Bounds = Bounds { mints: 2, provisioners: 1, gossip: true, ..ONE };

impl Bounds {
    /// From the API to the custom resource, without a second chance: crashes, and records that come again.
    pub const REPLAYS: Self = Self { faults: Faults { crashes: 1, duplicates: 1, ..CALM }, ..ONE };

    /// The partition moves while work is in flight.
    pub const ZOMBIES: Self = Self { faults: Faults { crashes: 1, rebalances: 1, ..CALM }, ..ONE };

    /// A cluster that does not answer, or answers too late: parked and drained meanwhile.
    pub const PARKING: Self = Self {
        mints: 2,
        provisioners: 1,
        faults: Faults { crashes: 1, timeouts: 1, outages: 1, ..CALM },
        ..ONE
    };

    /// The same with one change more, and records that come again.
    pub const LONG_PARKING: Self =
        Self { provisioners: 1, faults: Faults { duplicates: 1, outages: 1, ..CALM }, ..ONE };

    /// The same with one that drains beside the owner of the partition.
    pub const HEIRS: Self =
        Self { mints: 2, faults: Faults { crashes: 1, outages: 1, timeouts: 1, ..CALM }, ..ONE };

    /// What is parked, and seen to be passed.
    pub const PASSING: Self = Self { faults: Faults { duplicates: 1, outages: 1, ..CALM }, ..TWO_WAYS };

    /// Two databases in one partition.
    pub const NEIGHBOURS: Self =
        Self { databases: 2, provisioners: 1, faults: Faults { crashes: 1, ..CALM }, ..ONE };

    /// From the custom resource back to Postgres: an operator, an observer or a sink sleeps and wakes up.
    pub const SLEEPERS: Self = Self { faults: Faults { sleepers: 1, ..CALM }, ..TWO_WAYS };

    /// Another cluster meddles.
    pub const STRANGERS: Self = Self { faults: Faults { strangers: 1, ..CALM }, ..TWO_WAYS };

    /// Kafka loses records: everything is said again.
    pub const LOSSES: Self =
        Self { resends: 2, faults: Faults { losses: 1, outages: 1, ..CALM }, ..TWO_WAYS };

    /// Postgres loses what it had acknowledged, a purge perhaps.
    pub const LOST_ROWS: Self =
        Self { end: RunState::Purged, resends: 2, faults: Faults { failovers: 1, ..CALM }, ..TWO_WAYS };

    /// Postgres loses a change, and another one is minted at its position. Too wide to be walked to its end: the tests stop at a depth.
    pub const LOST_CHANGES: Self = Self { mints: 3, end: RunState::Running, ..Self::LOST_ROWS };

    /// Postgres loses the term under which an observer has spoken.
    pub const LOST_TERMS: Self = Self {
        mints: 1,
        end: RunState::Running,
        faults: Faults { failovers: 1, sleepers: 1, ..CALM },
        ..Self::LOST_ROWS
    };

    /// The end of a database, and the end of its tombstone.
    pub const BURIAL: Self =
        Self { end: RunState::Purged, closing: true, faults: Faults { duplicates: 1, ..CALM }, ..TWO_WAYS };
}
