//! The trait itself. Each method is one intent of the operator; paging, batching of ids, retries, deadlines and rate
//! limits are inside. No method waits for a state to be reached, and none decides anything.
//!
//! *Invariant:* an answer that did not arrive is never reported as a refusal. See [`Error::outcome_unknown`]: after it
//! only a fresh describe, or the same call with the same token, tells what happened.

use async_trait::async_trait;

use crate::{
    Attachment, ChangeId, ClientToken, DnsChange, DnsRecord, Error, HostedZoneId, IngressRule, Instance,
    InstanceId, InstanceState, Launch, NewSecurityGroup, NewSnapshot, NewVolume, Protection, RecordChange,
    SecurityGroup, SecurityGroupId, Select, SnapshotId, Tags, UserData, Volume, VolumeChange, VolumeId,
    VolumeModification, VolumeSnapshot,
};

/// Everything Slipway asks of one AWS account in one region. Held as `Arc<dyn Cloud>`.
#[async_trait]
pub trait Cloud: Send + Sync + 'static {
    /// Launches exactly one instance, or returns the one this token launched before (in whatever state it is now,
    /// terminated included: a token outlives its instance by a day). Other parameters under the same token are
    /// [`Error::ParameterMismatch`].
    async fn run_instance(&self, launch: &Launch, token: &ClientToken) -> Result<Instance, Error>;

    /// The instances selected, in no particular order, terminated ones included for as long as EC2 shows them.
    /// Ids that EC2 does not know (or does not know *yet*) are absent, not an error.
    async fn describe_instances(&self, select: &Select<InstanceId>) -> Result<Vec<Instance>, Error>;

    /// Asks for termination; repeating it is harmless. [`Error::NotPermitted`] while termination protection is on.
    async fn terminate_instance(&self, instance: &InstanceId) -> Result<InstanceState, Error>;

    /// Asks for a stop; repeating it is harmless. [`Error::NotPermitted`] while stop protection is on.
    async fn stop_instance(&self, instance: &InstanceId) -> Result<InstanceState, Error>;

    /// Sets both protections. Two requests to EC2: after an error either may have been done, so say it again.
    async fn set_protection(&self, instance: &InstanceId, protection: Protection) -> Result<(), Error>;

    /// Puts an instance into these security groups and no others: its first interface, whatever other ones are attached to it. Two
    /// requests to EC2, of which the first asks for that interface.
    async fn set_security_groups(
        &self,
        instance: &InstanceId,
        groups: &[SecurityGroupId],
    ) -> Result<(), Error>;

    /// Has an instance's metadata service answer its own processes alone (not a container with a network of its own), and these in
    /// sessions alone, as each instance is launched. Repeating it is harmless.
    async fn guard_metadata(&self, instance: &InstanceId) -> Result<(), Error>;

    /// Reads both protections, live. (A describe does not show them.)
    async fn describe_protection(&self, instance: &InstanceId) -> Result<Protection, Error>;

    /// The user data an instance was launched with, decoded.
    async fn describe_user_data(&self, instance: &InstanceId) -> Result<Option<UserData>, Error>;

    /// Creates a volume, or returns the one this token created before.
    async fn create_volume(&self, volume: &NewVolume, token: &ClientToken) -> Result<Volume, Error>;

    /// The volumes selected. Unknown ids are absent, not an error.
    async fn describe_volumes(&self, select: &Select<VolumeId>) -> Result<Vec<Volume>, Error>;

    /// Starts attaching. [`Error::InUse`] when the volume is attached (also: to this very instance).
    async fn attach_volume(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        device: &str,
    ) -> Result<Attachment, Error>;

    /// Starts detaching from exactly this instance; never by force. [`Error::IncorrectState`] or
    /// [`Error::NotFound`] when it is not attached there.
    async fn detach_volume(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Attachment, Error>;

    /// Destroys a volume and what is on it. [`Error::InUse`] while it is attached.
    async fn delete_volume(&self, volume: &VolumeId) -> Result<(), Error>;

    /// Starts changing size, kind or performance. [`Error::TooSoon`] when EC2 says the volume was changed too often
    /// or the last change is still being worked on: that answer is the authority, not a timer of ours.
    async fn modify_volume(
        &self,
        volume: &VolumeId,
        change: &VolumeChange,
    ) -> Result<VolumeModification, Error>;

    /// The latest modification of each of these volumes; volumes never modified are absent.
    async fn describe_volume_modifications(
        &self,
        volumes: &[VolumeId],
    ) -> Result<Vec<VolumeModification>, Error>;

    /// Begins a snapshot of a volume as it is now; sent once and never repeated by itself. There is no client token: after
    /// an error with an unknown outcome only a describe by tags, begun long enough afterwards, tells whether there is one.
    /// [`Error::TooSoon`] when one of this volume was begun a moment ago, or too many are under way.
    async fn create_snapshot(&self, snapshot: &NewSnapshot) -> Result<VolumeSnapshot, Error>;

    /// The snapshots selected, of this account only. Unknown ids are absent, not an error.
    async fn describe_snapshots(&self, select: &Select<SnapshotId>) -> Result<Vec<VolumeSnapshot>, Error>;

    /// Destroys a snapshot. [`Error::InUse`] while a machine image rests on it.
    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Error>;

    /// Creates a security group. It has no client token: the name, unique in its VPC, is the fence, and a second
    /// call is [`Error::AlreadyExists`]; find it with [`Cloud::find_security_group`] and check its owner tags.
    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<SecurityGroupId, Error>;

    /// The groups selected. Unknown ids are absent, not an error.
    async fn describe_security_groups(
        &self,
        select: &Select<SecurityGroupId>,
    ) -> Result<Vec<SecurityGroup>, Error>;

    /// The group of that name in that VPC.
    async fn find_security_group(&self, vpc: &str, name: &str) -> Result<Option<SecurityGroup>, Error>;

    /// Adds ingress rules. [`Error::AlreadyExists`] when one of them is there; then none of them was added.
    async fn authorize_ingress(&self, group: &SecurityGroupId, rules: &[IngressRule]) -> Result<(), Error>;

    /// Removes ingress rules. [`Error::NotFound`] when one of them is not there.
    async fn revoke_ingress(&self, group: &SecurityGroupId, rules: &[IngressRule]) -> Result<(), Error>;

    /// Deletes a group. [`Error::InUse`] while an instance uses it.
    async fn delete_security_group(&self, group: &SecurityGroupId) -> Result<(), Error>;

    /// Sets tags on any EC2 resources by their ids; other tags stay.
    async fn create_tags(&self, resources: &[&str], tags: &Tags) -> Result<(), Error>;

    /// Every record of exactly this name, of any kind.
    async fn list_records(&self, zone: &HostedZoneId, name: &str) -> Result<Vec<DnsRecord>, Error>;

    /// Every record of a zone, of any name and kind.
    async fn list_zone(&self, zone: &HostedZoneId) -> Result<Vec<DnsRecord>, Error>;

    /// Carries out all changes or none. A delete must match what is there exactly (take it from
    /// [`Cloud::list_records`]). Answers before the change is in sync: ask [`Cloud::get_change`].
    async fn change_records(&self, zone: &HostedZoneId, changes: &[RecordChange])
    -> Result<DnsChange, Error>;

    /// How far a change has come.
    async fn get_change(&self, change: &ChangeId) -> Result<DnsChange, Error>;
}
