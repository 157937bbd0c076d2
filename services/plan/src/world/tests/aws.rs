//! EC2 and Route 53 in the model.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use cloud::{
    DnsChangeState, Instance, InstanceId, InstanceState, SecurityGroup, SecurityGroupId, Volume, VolumeId,
    VolumeState, key,
};
use resources::names;

use super::model::{World, node};
use crate::Step;

impl World {
    pub(super) fn on_aws(&mut self, step: &Step) {
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
                let group = self.groups.iter_mut().find(|found| found.id == *group).unwrap();
                group.ingress.extend(rules.iter().cloned());
                group.ingress.sort();
                group.ingress.dedup();
            }
            Step::RevokeIngress { group, rules } => {
                let group = self.groups.iter_mut().find(|found| found.id == *group).unwrap();
                group.ingress.retain(|rule| !rules.contains(rule));
            }
            Step::RunInstance { generation, zone, launch } => self.run(*generation, zone, launch),
            Step::CreateVolume(new) => self.create_volume(new),
            Step::TagVolume { volume, tags } => {
                let volume = self.volumes.iter_mut().find(|found| found.id == *volume).unwrap();
                for (key, value) in tags.iter() {
                    volume.tags = volume.tags.clone().with(key, value);
                }
            }
            Step::ModifyVolume { volume, change } => {
                let volume = self.volumes.iter_mut().find(|found| found.id == *volume).unwrap();
                volume.size_gib = change.size_gib.unwrap_or(volume.size_gib);
                volume.iops = change.iops.or(volume.iops);
                volume.throughput = change.throughput.or(volume.throughput);
            }
            Step::Protect { instance } => {
                self.protected.retain(|id| id != instance);
                self.protected.push(instance.clone());
            }
            Step::Unprotect { instance } => self.protected.retain(|id| id != instance),
            Step::TerminateInstance { instance } => {
                assert!(!self.protected.contains(instance), "{instance} is ended while it is protected");
                assert!(self.children.pod.is_none() || !self.listens(), "{instance} is ended under its pod");
                let found = self.instances.iter_mut().find(|found| found.id == *instance).unwrap();
                if found.state != InstanceState::Terminated {
                    found.state = InstanceState::ShuttingDown;
                }
            }
            Step::DeleteSecurityGroup { group } => {
                assert!(self.instances.iter().all(|found| found.state.is_ending()), "{group} is in use");
                self.groups.retain(|found| found.id != *group);
            }
            Step::DeleteVolume { volume, .. } => {
                assert!(self.children.attachments.is_empty(), "{volume} is attached by Kubernetes' word");
                let Some(found) = self.volumes.iter_mut().find(|found| found.id == *volume) else { return };
                assert!(found.live_attachments().next().is_none(), "{volume} is attached");
                found.state = VolumeState::Deleting;
            }
            other => panic!("{} is not a step on EC2", other.name()),
        }
    }

    pub(super) fn tick_aws(&mut self) {
        let mut ended = Vec::new();
        for instance in &mut self.instances {
            match instance.state {
                InstanceState::Pending => {
                    instance.state = InstanceState::Running;
                    self.children.nodes.push(Arc::new(node(instance)));
                }
                InstanceState::ShuttingDown => {
                    instance.state = InstanceState::Terminated;
                    ended.push(instance.id.clone());
                }
                _ => {}
            }
        }
        self.volumes.retain(|volume| volume.state != VolumeState::Deleting);
        for volume in &mut self.volumes {
            volume.attachments.retain(|attachment| !ended.contains(&attachment.instance));
            let held = volume.live_attachments().next().is_some();
            volume.state = if held { VolumeState::InUse } else { VolumeState::Available };
        }
        if let Some(change) = &mut self.change {
            change.state = DnsChangeState::InSync;
        }
    }

    fn run(&mut self, generation: u64, zone: &str, launch: &cloud::Launch) {
        let annotations = self.resource.metadata.annotations.as_ref().unwrap();
        assert_eq!(
            annotations[names::GENERATION],
            generation.to_string(),
            "asked for before it was written down"
        );
        assert_eq!(annotations[names::LAUNCH], launch.fingerprint().as_str());
        let text = generation.to_string();
        if self.instances.iter().any(|found| found.tags.get(key::GENERATION) == Some(text.as_str())) {
            return;
        }
        let number = self.next();
        let id = InstanceId::new(format!("i-{number}"));
        self.protected.push(id.clone());
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
            tags: launch.tags.clone(),
            client_token: None,
            protection: None,
            launched_at: None,
        });
    }

    fn create_volume(&mut self, new: &cloud::NewVolume) {
        if !self.volumes.is_empty() {
            return;
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
            snapshot: None,
            attachments: Vec::new(),
            tags: new.tags.clone(),
            created_at: None,
        });
    }
}
