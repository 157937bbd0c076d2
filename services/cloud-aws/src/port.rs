//! The port, implemented: each method hands on to the module of its resource.

use async_trait::async_trait;
use cloud::{
    Attachment, ChangeId, ClientToken, Cloud, DnsChange, DnsRecord, Error, HostedZoneId, IngressRule,
    Instance, InstanceId, InstanceState, Launch, NewSecurityGroup, NewSnapshot, NewVolume, Protection,
    RecordChange, SecurityGroup, SecurityGroupId, Select, SnapshotId, Tags, UserData, Volume, VolumeChange,
    VolumeId, VolumeModification, VolumeSnapshot,
};

use crate::client::Aws;

#[async_trait]
impl Cloud for Aws {
    async fn run_instance(&self, launch: &Launch, token: &ClientToken) -> Result<Instance, Error> {
        self.run(launch, token).await
    }

    async fn describe_instances(&self, select: &Select<InstanceId>) -> Result<Vec<Instance>, Error> {
        self.instances(select).await
    }

    async fn terminate_instance(&self, instance: &InstanceId) -> Result<InstanceState, Error> {
        self.terminate(instance).await
    }

    async fn stop_instance(&self, instance: &InstanceId) -> Result<InstanceState, Error> {
        self.stop(instance).await
    }

    async fn set_protection(&self, instance: &InstanceId, protection: Protection) -> Result<(), Error> {
        self.protect(instance, protection).await
    }

    async fn set_security_groups(
        &self,
        instance: &InstanceId,
        groups: &[SecurityGroupId],
    ) -> Result<(), Error> {
        self.put_into(instance, groups).await
    }

    async fn guard_metadata(&self, instance: &InstanceId) -> Result<(), Error> {
        self.guard(instance).await
    }

    async fn describe_protection(&self, instance: &InstanceId) -> Result<Protection, Error> {
        self.protection(instance).await
    }

    async fn describe_user_data(&self, instance: &InstanceId) -> Result<Option<UserData>, Error> {
        self.user_data(instance).await
    }

    async fn create_volume(&self, volume: &NewVolume, token: &ClientToken) -> Result<Volume, Error> {
        self.create(volume, token).await
    }

    async fn describe_volumes(&self, select: &Select<VolumeId>) -> Result<Vec<Volume>, Error> {
        self.volumes(select).await
    }

    async fn attach_volume(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        device: &str,
    ) -> Result<Attachment, Error> {
        self.attach(volume, instance, device).await
    }

    async fn detach_volume(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Attachment, Error> {
        self.detach(volume, instance).await
    }

    async fn delete_volume(&self, volume: &VolumeId) -> Result<(), Error> {
        self.delete(volume).await
    }

    async fn modify_volume(
        &self,
        volume: &VolumeId,
        change: &VolumeChange,
    ) -> Result<VolumeModification, Error> {
        self.modify(volume, change).await
    }

    async fn describe_volume_modifications(
        &self,
        volumes: &[VolumeId],
    ) -> Result<Vec<VolumeModification>, Error> {
        self.modifications(volumes).await
    }

    async fn create_snapshot(&self, snapshot: &NewSnapshot) -> Result<VolumeSnapshot, Error> {
        self.begin_snapshot(snapshot).await
    }

    async fn describe_snapshots(&self, select: &Select<SnapshotId>) -> Result<Vec<VolumeSnapshot>, Error> {
        self.snapshots(select).await
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Error> {
        self.destroy_snapshot(snapshot).await
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<SecurityGroupId, Error> {
        self.create_group(group).await
    }

    async fn describe_security_groups(
        &self,
        select: &Select<SecurityGroupId>,
    ) -> Result<Vec<SecurityGroup>, Error> {
        self.groups(select).await
    }

    async fn find_security_group(&self, vpc: &str, name: &str) -> Result<Option<SecurityGroup>, Error> {
        self.find_group(vpc, name).await
    }

    async fn authorize_ingress(&self, group: &SecurityGroupId, rules: &[IngressRule]) -> Result<(), Error> {
        self.authorize(group, rules).await
    }

    async fn revoke_ingress(&self, group: &SecurityGroupId, rules: &[IngressRule]) -> Result<(), Error> {
        self.revoke(group, rules).await
    }

    async fn delete_security_group(&self, group: &SecurityGroupId) -> Result<(), Error> {
        self.delete_group(group).await
    }

    async fn create_tags(&self, resources: &[&str], tags: &Tags) -> Result<(), Error> {
        self.tag(resources, tags).await
    }

    async fn list_records(&self, zone: &HostedZoneId, name: &str) -> Result<Vec<DnsRecord>, Error> {
        self.records(zone, name).await
    }

    async fn list_zone(&self, zone: &HostedZoneId) -> Result<Vec<DnsRecord>, Error> {
        self.all_records(zone).await
    }

    async fn change_records(
        &self,
        zone: &HostedZoneId,
        changes: &[RecordChange],
    ) -> Result<DnsChange, Error> {
        self.change(zone, changes).await
    }

    async fn get_change(&self, change: &ChangeId) -> Result<DnsChange, Error> {
        self.change_state(change).await
    }
}
