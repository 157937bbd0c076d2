//! EC2 and Route 53 in the model.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use cloud::{
    ChangeId, ClientToken, DnsChange, DnsChangeState, Instance, InstanceId, InstanceState, Protection,
    RecordChange, Role, SecurityGroup, SecurityGroupId, Tags, Volume, VolumeId, VolumeKind, VolumeState, key,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{QuestDB, names};

use super::kubernetes::node;
use super::model::{Refusal, World};
use crate::fixture::{settings, validated};
use crate::{
    Goal, Left, MadeFor, Observed, Part, Proof, Step, Subject, is_still_its_disk, is_still_ours, lost,
};

/// MiB per second of a gp3 volume for which nobody asked for any.
const THROUGHPUT: u32 = 125;

impl World {
    pub(super) fn on_aws(&mut self, step: &Step, seen: &QuestDB) -> Result<(), Refusal> {
        if step.is_creation() {
            self.quiet = 0;
        }
        match step {
            Step::CreateSecurityGroup(new) => {
                if self.groups.iter().all(|group| group.name != new.name) {
                    let id = SecurityGroupId::new(format!("sg-{}", self.next()));
                    let (name, vpc, tags) = (new.name.clone(), new.vpc.clone(), new.tags.clone());
                    let description = new.description.clone();
                    self.groups.push(SecurityGroup { id, name, vpc, description, ingress: Vec::new(), tags });
                }
            }
            Step::AuthorizeIngress { group, rules } => {
                let most = self.full.rules;
                let group = self.group(group)?;
                let mut all = [group.ingress.as_slice(), rules.as_slice()].concat();
                all.sort();
                all.dedup();
                if super::firewall::are_too_many(&all, most) {
                    return Err(super::firewall::TOO_MANY);
                }
                group.ingress = all;
            }
            Step::RevokeIngress { group, rules } => {
                let group = self.group(group)?;
                group.ingress.retain(|rule| !rules.contains(rule));
            }
            Step::SetMachineGroups { instance, groups } => self.put_into(instance, groups)?,
            Step::GuardMetadata { instance } => self.guard(instance)?,
            Step::RunInstance { generation, zone, launch } => self.run(*generation, zone, launch)?,
            Step::CreateVolume(new) => self.create_volume(new)?,
            Step::Tag { resource, tags } => self.tag(resource, tags)?,
            Step::ModifyVolume { volume, change } => {
                if self.too_soon {
                    return Err("too soon");
                }
                if self.is_modifying() || self.is_optimizing() {
                    return Err("the last change is not done");
                }
                self.modified += 1;
                self.begin_modification(volume, change.clone());
                let volume = self.volume(volume)?;
                let before = volume.throughput.filter(|_| volume.kind == VolumeKind::Gp3);
                volume.kind = change.kind.clone().unwrap_or_else(|| volume.kind.clone());
                volume.size_gib = change.size_gib.unwrap_or(volume.size_gib);
                volume.iops = change.iops.or(volume.iops);
                let throughput = change.throughput.or(before).unwrap_or(THROUGHPUT);
                volume.throughput = (volume.kind == VolumeKind::Gp3).then_some(throughput);
            }
            other => return self.on_aws_at_the_end(other, seen),
        }
        Ok(())
    }

    fn tag(&mut self, resource: &str, tags: &Tags) -> Result<(), Refusal> {
        if self.offered.as_ref().is_some_and(|offered| offered.id.as_str() == resource) {
            self.volumes.extend(self.offered.take());
        }
        self.check_version(resource, tags)?;
        let is_full = self.full.tags;
        let known = self.tags_of(resource).ok_or("it is not there")?;
        if is_full && tags.iter().any(|(key, _)| known.get(key).is_none()) {
            return Err("it has as many tags as it may");
        }
        *known = tags.iter().fold(known.clone(), |known, (key, value)| known.with(key, value));
        Ok(())
    }

    fn on_aws_at_the_end(&mut self, step: &Step, seen: &QuestDB) -> Result<(), Refusal> {
        match step {
            Step::ProveLeft(left) => self.check_left(left, seen)?,
            Step::Protect { instance } => self.protected.set(instance, Protection::ON),
            Step::Unprotect { instance } => self.protected.set(instance, Protection::OFF),
            Step::TerminateInstance { instance } => {
                assert!(!self.protected.contains(instance), "{instance} is ended while it is protected");
                self.check_unused(instance);
                let found = self.instances.iter_mut().find(|found| found.id == *instance).unwrap();
                if found.state != InstanceState::Terminated {
                    found.state = InstanceState::ShuttingDown;
                }
            }
            Step::DeleteSecurityGroup { group } => {
                if !self.instances.iter().all(|found| found.state.is_ending()) {
                    return Err("the group is in use");
                }
                self.check_tags(group.as_str());
                self.groups.retain(|found| found.id != *group);
            }
            Step::DeleteVolume { volume, copy, persistent_volume } => {
                self.check_last_copy(volume, copy.as_ref())?;
                self.check_made_for(persistent_volume, seen)?;
                if crate::disk_reported(seen) != Some(volume.as_str()) {
                    return Err("no report says that it is the disk");
                }
                let attached = !self.children.attachments.is_empty();
                let Some(found) = self.volumes.iter_mut().find(|found| found.id == *volume) else {
                    return Ok(());
                };
                if attached || found.live_attachments().next().is_some() {
                    return Err("something holds the volume");
                }
                let asked =
                    matches!(Goal::of(seen), Goal::Purge) && matches!(Goal::of(&self.resource), Goal::Purge);
                assert!(asked, "{volume} is destroyed, and nobody said so");
                found.state = VolumeState::Deleting;
                self.check_tags(volume.as_str());
            }
            other => panic!("{} is not a step on EC2", other.name()),
        }
        Ok(())
    }

    /// What was made for another resource stays, by what there is of it in Kubernetes.
    fn check_made_for(&self, persistent_volume: &str, seen: &QuestDB) -> Result<(), Refusal> {
        let Some(subject) = Subject::of(seen, &settings()) else { return Ok(()) };
        let mut objects = self.children.persistent_volumes.iter();
        let object = objects.find(|found| found.metadata.name.as_deref() == Some(persistent_volume));
        match object.map(|found| MadeFor::by_object(&subject, found)) {
            Some(MadeFor::Other(_)) => Err("it was made for another resource"),
            Some(MadeFor::This | MadeFor::Untold) | None => Ok(()),
        }
    }

    /// Asked live, as the operator does, for the wish as it was seen.
    fn check_left(&self, left: &Left, seen: &QuestDB) -> Result<(), Refusal> {
        let mut nodes = self.children.nodes.iter();
        let node = nodes.find(|node| node.metadata.name.as_ref() == Some(&left.node));
        let on = (self.children.pod.as_deref(), node.filter(|_| left.asks_node()).map(|node| &**node));
        let set = self.children.stateful_set.as_deref();
        let objects = left.check_objects(&validated(seen), set, on, self.now);
        objects.map_err(|_| "the objects speak against it")?;
        match left.proof {
            Proof::All | Proof::Unjoined | Proof::Unready | Proof::Closed => {}
            Proof::Down => return left.check_down(&self.instances).map_err(|_| "it is not down"),
            Proof::Silent | Proof::Unattended => return Ok(()),
        }
        let subject = validated(&self.resource).subject;
        let asked = |volume: &&Volume| {
            let is_tagged = || volume.tags.get(key::DATABASE) == Some(&subject.database);
            left.disks.contains(&volume.id) || left.disks.is_empty() && is_tagged()
        };
        let volumes: Vec<Volume> = self.volumes.iter().filter(asked).cloned().collect();
        left.check_disks(&volumes).map_err(|_| "EC2 has the disk there")?;
        let mut attachments = self.children.attachments.iter();
        let all = attachments.try_for_each(|found| left.check_attachment(&volumes, found));
        all.map_err(|_| "Kubernetes has the disk there")
    }

    /// No machine is ended under a pod or a disk whose kubelet could let go of it, nor while the database is pinned to it.
    fn check_unused(&self, instance: &InstanceId) {
        let found = self.instances.iter().find(|found| found.id == *instance).unwrap();
        let node = self.children.nodes.iter().find(|node| super::kubernetes::is_of(node, found));
        let subject = validated(&self.resource).subject;
        let generation = found.tags.get(key::GENERATION).and_then(|text| text.parse().ok());
        let launched = generation.map(|generation| names::node(subject.short(), generation));
        let name = node.and_then(|node| node.metadata.name.clone()).or(launched);
        let name = name.as_deref();
        let pod = self.children.pod.as_ref();
        let has_pod = |pod: &&Arc<Pod>| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == name;
        let pod = pod.filter(|_| name.is_some()).filter(has_pod);
        let listens = node.is_none_or(|node| super::kubernetes::listens(node));
        assert!(pod.is_none() || !listens, "{instance} is ended under its pod");
        let end = pod.map(|pod| pod.metadata.deletion_timestamp.as_ref());
        let had_its_time = end.is_none_or(|end| end.is_some_and(|end| self.now > end.0));
        assert!(had_its_time, "{instance} is ended while its pod may still stop by itself");
        if found.state.is_ending() {
            return;
        }
        let pinned = self.pinned().is_some() && self.pinned() == name;
        assert!(!pinned, "{instance} is ended, and the database is pinned to it");
        let lets_go = !found.state.is_confirmed_down()
            && match Goal::of(&self.resource) {
                Goal::Serve => listens,
                // Whose Node never came, or is gone, nobody is waited for.
                _ => node.is_some() && listens,
            };
        let mut attached = self.volumes.iter().flat_map(Volume::live_attachments);
        assert!(!lets_go || attached.all(|found| found.instance != *instance), "{instance} has the disk");
    }

    fn group(&mut self, id: &SecurityGroupId) -> Result<&mut SecurityGroup, Refusal> {
        self.groups.iter_mut().find(|found| found.id == *id).ok_or("no such group")
    }

    /// Nothing is destroyed but by its tags.
    fn check_tags(&mut self, id: &str) {
        let subject = validated(&self.resource).subject;
        let Some(tags) = self.tags_of(id) else { return };
        let names = [tags.get(key::CLUSTER), tags.get(key::DATABASE)];
        assert_eq!(names, [&subject.cluster, &subject.database].map(|name| Some(name.as_str())), "{id}");
    }

    /// Tags of anything by its id.
    pub(super) fn tags_of(&mut self, id: &str) -> Option<&mut Tags> {
        let instance = self.instances.iter_mut().find(|found| found.id.as_str() == id);
        let volume = self.volumes.iter_mut().find(|found| found.id.as_str() == id);
        let group = self.groups.iter_mut().find(|found| found.id.as_str() == id);
        let tags = instance.map(|found| &mut found.tags).or_else(|| volume.map(|found| &mut found.tags));
        tags.or_else(|| group.map(|found| &mut found.tags))
    }

    /// EC2 shows what has the tags of the database, and by its id or name what lost them.
    pub(super) fn find_by_tags_and_ids(&self, resource: &QuestDB, observed: &mut Observed) {
        let validated = validated(resource);
        let subject = &validated.subject;
        let account = &mut observed.account;
        let has_tags = |tags: &Tags| {
            tags.get(key::CLUSTER) == Some(&subject.cluster)
                && tags.get(key::DATABASE) == Some(&subject.database)
        };
        account.instances.retain(|found| has_tags(&found.tags));
        account.volumes.retain(|found| has_tags(&found.tags));
        account.groups.retain(|found| has_tags(&found.tags));
        let missing = lost(resource, &validated, observed);
        let is_ours = |tags: &Tags| is_still_ours(subject, tags);
        let instances = self.instances.iter().filter(|found| missing.instances.contains(&found.id));
        let is_gone = |id: &&InstanceId| self.instances.iter().all(|found| found.id != **id);
        let is_asked = |found: &&Volume| missing.volume.as_ref() == Some(&found.id);
        let is_its = |found: &&Volume| is_still_its_disk(subject, &observed.account, &found.tags);
        let volumes: Vec<Volume> = self.volumes.iter().filter(is_asked).filter(is_its).cloned().collect();
        let groups = self.groups.iter().filter(|found| missing.group.as_ref() == Some(&found.name));
        let account = &mut observed.account;
        account.gone = missing.instances.iter().filter(is_gone).cloned().collect();
        account.instances.extend(instances.filter(|found| is_ours(&found.tags)).cloned());
        account.volumes.extend(volumes);
        account.groups.extend(groups.filter(|found| is_ours(&found.tags)).cloned());
    }

    fn volume(&mut self, id: &VolumeId) -> Result<&mut Volume, Refusal> {
        self.volumes.iter_mut().find(|found| found.id == *id).ok_or("no such volume")
    }

    /// A machine that served last and lives is not replaced: looked at live, whatever the shared picture shows.
    pub(super) fn check_no_living(
        &self,
        (next, beside): (u64, Option<&InstanceId>),
        seen: &QuestDB,
    ) -> Result<(), Refusal> {
        let written = seen.metadata.annotations.as_ref();
        let written = written.and_then(|found| found.get(names::GENERATION)?.parse::<u64>().ok());
        let served = seen.status.as_ref().and_then(|status| status.node.as_ref()?.instance_id.as_ref());
        let lives = self.instances.iter().any(|found| {
            let generation = found.tags.get(key::GENERATION).and_then(|text| text.parse().ok());
            let of_written = written.is_some_and(|written| written < next) && generation == written;
            let stays = beside == Some(&found.id);
            of_written
                && !stays
                && !found.state.is_ending()
                && served.is_some_and(|id| *id == found.id.as_str())
        });
        if lives { Err("the machine that served is still there") } else { Ok(()) }
    }

    /// Changes records as Route 53 does: all or none.
    pub(super) fn change_records(&mut self, changes: &[RecordChange]) -> Result<DnsChange, Refusal> {
        let mut records = self.records.clone();
        for change in changes {
            let record = change.record();
            let there =
                records.iter().position(|found| found.kind == record.kind && found.name == record.name);
            match (change, there) {
                (RecordChange::Delete(record), Some(there)) if records[there] == *record => {
                    records.remove(there);
                }
                (RecordChange::Delete(_), _) => return Err("no such record"),
                (RecordChange::Create(_), Some(_)) => return Err("the record is there"),
                (_, Some(there)) => records[there] = record.clone(),
                (_, None) => records.push(record.clone()),
            }
        }
        self.records = records;
        let change =
            DnsChange { id: ChangeId::new(format!("c-{}", self.next())), state: DnsChangeState::Pending };
        self.changes.push(change.clone());
        Ok(change)
    }

    pub(super) fn tick_aws(&mut self) {
        let mut ended = Vec::new();
        for instance in &mut self.instances {
            match instance.state {
                InstanceState::Pending => {
                    instance.state = InstanceState::Running;
                    let is_unready = self.unready > 0;
                    let joins =
                        (self.strangers == 0).then(|| Arc::new(joining(instance, is_unready, self.now)));
                    self.unready -= usize::from(is_unready && joins.is_some());
                    self.children.nodes.extend(joins);
                    self.strangers = self.strangers.saturating_sub(1);
                }
                InstanceState::ShuttingDown => {
                    instance.state = InstanceState::Terminated;
                    ended.push(instance.id.clone());
                }
                _ => {}
            }
        }
        self.tick_last_copies();
        self.volumes.retain(|volume| volume.state != VolumeState::Deleting);
        for volume in &mut self.volumes {
            volume.attachments.retain(|attachment| !ended.contains(&attachment.instance));
            assert!(volume.live_attachments().count() < 2, "two machines hold the disk: {volume:?}");
            let held = volume.live_attachments().next().is_some();
            volume.state = if held { VolumeState::InUse } else { VolumeState::Available };
        }
        for change in &mut self.changes {
            change.state = DnsChangeState::InSync;
        }
    }

    fn run(&mut self, generation: u64, zone: &str, launch: &cloud::Launch) -> Result<(), Refusal> {
        let annotations = self.resource.metadata.annotations.as_ref().unwrap();
        assert_eq!(
            annotations[names::GENERATION],
            generation.to_string(),
            "asked for before it was written down"
        );
        assert_eq!(annotations[names::LAUNCH], launch.fingerprint().as_str());
        let text = generation.to_string();
        if self.instances.iter().any(|found| found.tags.get(key::GENERATION) == Some(text.as_str())) {
            return Ok(());
        }
        if self.full.machines.iter().any(|found| found == zone) {
            self.memory.exhausted_zones.push(zone.to_owned());
            if self.pinned().is_some() {
                self.memory.resting = vec![Part::Candidate];
            }
            return Err("no machine is free");
        }
        self.third = super::oracle::is_third_needed(self);
        let number = self.next();
        let id = InstanceId::new(format!("i-{number}"));
        self.protected.set(&id, Protection::ON);
        let last = u8::try_from(number).unwrap();
        self.instances.push(Instance {
            id,
            state: InstanceState::Pending,
            state_reason: None,
            zone: zone.to_owned(),
            subnet: Some(launch.subnet.clone()),
            vpc: None,
            private_ip: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))),
            instance_type: launch.instance_type.clone(),
            image: launch.image.clone(),
            security_groups: launch.security_groups.clone(),
            metadata_guarded: Some(true),
            tags: launch.tags.clone(),
            client_token: Some(token(generation)),
            protection: None,
            launched_at: Some(self.now.into()),
        });
        Ok(())
    }

    fn create_volume(&mut self, new: &cloud::NewVolume) -> Result<(), Refusal> {
        if !self.volumes.is_empty() {
            return Ok(());
        }
        if self.full.disks.contains(&new.zone) {
            self.memory.zones_without_volumes.push(new.zone.clone());
            return Err("there is no room for a disk");
        }
        self.volumes.push(Volume {
            id: VolumeId::new(format!("vol-{}", self.number)),
            state: VolumeState::Creating,
            zone: new.zone.clone(),
            size_gib: new.size_gib,
            kind: new.kind.clone(),
            iops: new.iops,
            throughput: new.throughput,
            encrypted: new.encrypted,
            snapshot: new.snapshot.clone(),
            attachments: Vec::new(),
            tags: new.tags.clone(),
            created_at: Some(self.now.into()),
        });
        Ok(())
    }
}

/// The Node that a machine becomes, and whether its kubelet says that it is not ready.
fn joining(instance: &Instance, is_unready: bool, now: Timestamp) -> Node {
    let mut joined = node(instance);
    let conditions = joined.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
    for condition in conditions.filter(|_| is_unready) {
        "False".clone_into(&mut condition.status);
        condition.reason = Some("KubeletNotReady".to_owned());
        condition.last_transition_time = Some(Time(now));
    }
    joined
}

/// The token under which a machine of the database is asked for.
fn token(generation: u64) -> String {
    let subject = crate::fixture::subject();
    ClientToken::new(&subject.cluster, &subject.database, Role::Instance, generation).to_string()
}
