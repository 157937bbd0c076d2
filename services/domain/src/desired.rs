//! The whole desired state of a database, valid by construction. Never a delta, never a verb.

use std::collections::BTreeMap;

use crate::id::DatabaseName;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word used in every contract.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The value of a word.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words!(
    /// Whether a database should run.
    RunState {
        /// Serving.
        Running => "running",
        /// Stopped: the machine is gone, volume and name stay.
        Paused => "paused",
        /// Gone for its users; the volume is kept and the database can still be brought back.
        Deleted => "deleted",
        /// Gone for good: the only state in which a volume is destroyed.
        Purged => "purged",
    }
);

words!(
    /// What becomes of the volume when the database is deleted.
    DeletionPolicy {
        /// The volume stays until the database is purged; a purge keeps no copy.
        Retain => "retain",
        /// The volume is destroyed with the database, once a last copy of it is complete; the copy stays.
        Snapshot => "snapshot",
        /// The volume is destroyed with the database.
        Delete => "delete",
    }
);

words!(
    /// EBS volume types on offer.
    VolumeType {
        /// General purpose, IOPS and throughput set apart from the size.
        Gp3 => "gp3",
        /// Provisioned IOPS.
        Io2 => "io2",
    }
);

words!(
    /// Who can reach the database.
    Exposure {
        /// Inside the cluster's network only.
        Internal => "internal",
        /// Also from the allowed CIDRs.
        Public => "public",
    }
);

/// The machine a database has to itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compute {
    /// An EC2 instance type of the catalogue.
    pub instance_type: String,
    /// The machine image; `None` means the cluster's default.
    pub node_image: Option<String>,
}

/// The volume of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Size in GiB; it grows, or is taken back to no less than the disk has.
    pub size_gib: u32,
    /// EBS volume type.
    pub volume_type: VolumeType,
    /// I/O operations a second.
    pub iops: u32,
    /// Throughput in MiB/s.
    pub throughput: u32,
    /// Set once the database had a volume: from then on a missing volume is an alarm, never an order to make one.
    pub provisioned: bool,
    /// What becomes of the volume on delete.
    pub deletion_policy: DeletionPolicy,
}

/// How a database is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Fully qualified DNS name.
    pub hostname: String,
    /// CIDRs that may connect, sorted, without repetition.
    pub allowed_cidrs: Vec<String>,
    /// Who can reach it.
    pub exposure: Exposure,
}

/// The whole desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// The database's name.
    pub name: DatabaseName,
    /// Whether it should run.
    pub run_state: RunState,
    /// QuestDB version of the catalogue.
    pub version: String,
    /// The machine.
    pub compute: Compute,
    /// The volume.
    pub storage: Storage,
    /// Keys of server.conf.
    pub config: BTreeMap<String, String>,
    /// How it is reached.
    pub network: Network,
    /// Changed to ask for one restart.
    pub restart_nonce: Option<String>,
    /// Whether nobody may delete the database. *Invariant:* never beside a run state that ends it.
    pub deletion_protection: bool,
}

impl RunState {
    /// Whether the database is gone for its users.
    pub const fn is_end(self) -> bool {
        match self {
            Self::Running | Self::Paused => false,
            Self::Deleted | Self::Purged => true,
        }
    }
}

impl DeletionPolicy {
    /// Of two policies the one that keeps more.
    #[must_use]
    pub const fn most_careful(self, other: Self) -> Self {
        match (self, other) {
            (Self::Retain, _) | (_, Self::Retain) => Self::Retain,
            (Self::Snapshot, _) | (_, Self::Snapshot) => Self::Snapshot,
            (Self::Delete, Self::Delete) => Self::Delete,
        }
    }
}

impl Desired {
    /// Whether it asks for the end of what it protects: nobody mints that, and nobody carries it out.
    pub const fn contradicts_itself(&self) -> bool {
        self.deletion_protection && self.run_state.is_end()
    }

    /// The same with all of another state by which data is safer: of the deletion policies the more careful one, and the
    /// protection, while there is something to protect.
    #[must_use]
    pub fn as_careful_as(mut self, other: &Self) -> Self {
        let policy = &mut self.storage.deletion_policy;
        *policy = policy.most_careful(other.storage.deletion_policy);
        self.deletion_protection |= other.deletion_protection;
        self.deletion_protection &= !self.run_state.is_end();
        self
    }
}
