//! EC2 instances: what is asked for and what is seen.

use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use crate::word::words;
use crate::{Fingerprint, InstanceId, SecurityGroupId, Tags};

words! {
    /// Where an instance is in its life. EC2's own words.
    InstanceState {
        /// Being prepared.
        Pending = "pending",
        /// Running, which says nothing of the system inside.
        Running = "running",
        /// A stop was asked for; its processes may still write.
        Stopping = "stopping",
        /// Stopped: nothing runs, disks stay attached.
        Stopped = "stopped",
        /// A termination was asked for; its processes may still write.
        ShuttingDown = "shutting-down",
        /// Gone for good; shown for about an hour more.
        Terminated = "terminated",
    } else
    /// A word that EC2 did not have when this was written. Counts as running.
    Unknown
}

impl InstanceState {
    /// Whether it is certain that nothing on the instance runs any more. Anything unknown counts as running.
    pub fn is_confirmed_down(&self) -> bool {
        match self {
            Self::Stopped | Self::Terminated => true,
            Self::Pending | Self::Running | Self::Stopping | Self::ShuttingDown | Self::Unknown(_) => false,
        }
    }

    /// Whether it will never run again.
    pub fn is_ending(&self) -> bool {
        match self {
            Self::ShuttingDown | Self::Terminated => true,
            Self::Pending | Self::Running | Self::Stopping | Self::Stopped | Self::Unknown(_) => false,
        }
    }
}

/// The two API protections of an instance: the fence that AWS keeps for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// `TerminateInstances` is refused.
    pub termination: bool,
    /// `StopInstances` is refused.
    pub stop: bool,
}

impl Protection {
    /// Both on: what a serving instance carries.
    pub const ON: Self = Self { termination: true, stop: true };
    /// Both off.
    pub const OFF: Self = Self { termination: false, stop: false };
}

/// What a machine is told at its first boot. May hold secrets: never printed, compared only by the machine itself.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct UserData(String);

impl UserData {
    /// Plain text; the implementation encodes it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The plain text. The caller must not log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes, not shown)", self.0.len())
    }
}

/// An instance as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// Where it is in its life.
    pub state: InstanceState,
    /// Why it is in that state, where EC2 says (`Server.InsufficientInstanceCapacity`, …).
    pub state_reason: Option<String>,
    /// Availability zone.
    pub zone: String,
    /// Subnet; absent once terminated.
    pub subnet: Option<String>,
    /// VPC; absent once terminated.
    pub vpc: Option<String>,
    /// Private address; absent once terminated.
    pub private_ip: Option<IpAddr>,
    /// Instance type, like `m6i.large`.
    pub instance_type: String,
    /// Machine image it was launched from.
    pub image: String,
    /// Security groups of its first interface.
    pub security_groups: Vec<SecurityGroupId>,
    /// Whether its metadata service answers nobody but its own processes, and these in sessions alone; `None` where EC2 does not say.
    pub metadata_guarded: Option<bool>,
    /// Tags.
    pub tags: Tags,
    /// The client token of the launch, if it had one.
    pub client_token: Option<String>,
    /// Protections, `None` when not known: a describe does not tell, see `Cloud::describe_protection`.
    pub protection: Option<Protection>,
    /// When it was launched.
    pub launched_at: Option<SystemTime>,
}

/// What to launch. Everything in it is covered by the client token: change any of it and the token is spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Machine image.
    pub image: String,
    /// Instance type.
    pub instance_type: String,
    /// Subnet, which decides the zone.
    pub subnet: String,
    /// Security groups.
    pub security_groups: Vec<SecurityGroupId>,
    /// Told to the machine at first boot.
    pub user_data: UserData,
    /// Instance profile by name, if the machine has a role.
    pub instance_profile: Option<String>,
    /// Protections from the first moment on.
    pub protection: Protection,
    /// Tags of the instance (its root disk and interface get none, so that a search by tag finds only what we made).
    pub tags: Tags,
}

impl Launch {
    /// A hash of all parameters that the token covers; kept beside the generation, see [`crate::ClientToken`].
    pub fn fingerprint(&self) -> Fingerprint {
        let Self { image, instance_type, subnet, security_groups, user_data, .. } = self;
        let Self { instance_profile, protection, tags, .. } = self;
        let mut groups: Vec<&str> = security_groups.iter().map(SecurityGroupId::as_str).collect();
        groups.sort_unstable();
        let mut parts = vec!["launch/1", image, instance_type, subnet, user_data.expose()];
        parts.push(if instance_profile.is_some() { "profile" } else { "" });
        parts.push(instance_profile.as_deref().unwrap_or_default());
        parts.push(if protection.termination { "termination" } else { "" });
        parts.push(if protection.stop { "stop" } else { "" });
        parts.push("groups");
        parts.extend(groups);
        parts.push("tags");
        parts.extend(tags.iter().flat_map(|(key, value)| [key, value]));
        Fingerprint::of(&parts)
    }
}
