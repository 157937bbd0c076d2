//! What is proved, by live looks, before a machine is ended, and before the pod of one that is down is forgotten.
//!
//! *Invariant:* what decides is what is there at that moment, and not what was observed before: caches show late what was made,
//! and what they do not show may run. Whoever could write to the disk says that nobody does there, or nobody is left to ask.

use cloud::{Attachment, Instance, InstanceId, InstanceState, Volume, VolumeId};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use resources::names;

use super::existing::living;
use super::machine::{generation_of, is_ready};
use super::ready::{is_abandoned, is_open};
use super::{World, former};
use crate::tagged::instance_of;
use crate::{Validated, build};

/// A machine that a database can do without, as far as was seen, and how that is to be proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The machine.
    pub instance: InstanceId,
    /// The value by which a StatefulSet would pin it.
    pub pin: String,
    /// The Node that it is, or was launched to become.
    pub node: String,
    /// All disks that carry the database's tags, by what nobody can take off them; none where there never was one.
    pub disks: Vec<VolumeId>,
    /// How.
    pub proof: Proof,
}

/// How it is proved. Whatever it is, no StatefulSet may pin the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By everybody's word: the pod is not there, and neither EC2 nor Kubernetes has the disk there.
    All,
    /// The same, and that it has not become a Node: it is ended for that alone.
    Unjoined,
    /// The same, and that its Node is not ready: it is ended for that alone.
    Unready,
    /// The same, and that its Node does not take the pod: it is ended for that alone.
    Closed,
    /// By silence: the pod was told to stop and nobody there stops it, so that the disk leaves only when the machine ends.
    Silent,
    /// By the word that the pod is gone, and no word from the Node: nobody is there to let go of the disk.
    Unattended,
    /// By EC2's word that it is down.
    Down,
}

impl Left {
    /// Whether what is known of the Node decides too.
    pub const fn asks_node(&self) -> bool {
        !matches!(self.proof, Proof::All | Proof::Down)
    }

    /// What the objects as they are now say against it, for a database that is wanted like this.
    pub fn check_objects(
        &self,
        validated: &Validated,
        set: Option<&StatefulSet>,
        (pod, node): (Option<&Pod>, Option<&Node>),
        at: Timestamp,
    ) -> Result<(), String> {
        let template = set.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
        if template.is_some_and(|spec| self.is_meant(spec)) {
            return Err(format!("the StatefulSet pins {}", self.instance));
        }
        let is_there = pod.is_some_and(|pod| self.has(pod));
        let is_silent = pod.zip(node).is_some_and(|(pod, node)| is_abandoned(pod, node, at));
        match self.proof {
            Proof::All | Proof::Unjoined | Proof::Unready | Proof::Closed | Proof::Unattended if is_there => {
                Err(format!("the pod is on {}", self.instance))
            }
            Proof::Unjoined if node.is_some_and(|node| self.has_become(node)) => {
                Err(format!("{} has joined the cluster as Node {}", self.instance, self.node))
            }
            Proof::Unready if node.is_some_and(is_ready) => {
                Err(format!("Node {} is ready by now", self.node))
            }
            Proof::Closed if node.is_some_and(|node| is_open(validated, node)) => {
                Err(format!("Node {} is open by now", self.node))
            }
            Proof::Unattended if node.is_some_and(is_ready) => {
                Err(format!("Node {} is ready, and lets go of the disk itself", self.node))
            }
            Proof::Silent if !is_silent => Err(format!("Node {} is not silent any more", self.node)),
            Proof::All
            | Proof::Unjoined
            | Proof::Unready
            | Proof::Closed
            | Proof::Silent
            | Proof::Unattended
            | Proof::Down => Ok(()),
        }
    }

    /// What EC2 as it is now says of the disks against it. One that is not found may be anywhere.
    pub fn check_disks(&self, found: &[Volume]) -> Result<(), String> {
        let is_found = |disk: &VolumeId| found.iter().any(|found| found.id == *disk);
        if let Some(disk) = self.disks.iter().find(|disk| !is_found(disk)) {
            return Err(format!("{disk} is not found, so that it may be anywhere"));
        }
        let mut attached = found.iter().flat_map(Volume::live_attachments);
        if let Some(attachment) = attached.find(|attachment| attachment.instance == self.instance) {
            return Err(format!("{} is still on {}", attachment.volume, self.instance));
        }
        Ok(())
    }

    /// The same of what EC2 would destroy with the machine.
    pub fn check_spared(&self, found: &[Volume]) -> Result<(), String> {
        going_with(&self.instance, found.iter()).map_or(Ok(()), Err)
    }

    /// The same of an attachment of Kubernetes, whichever it is.
    pub fn check_attachment(&self, found: &[Volume], attachment: &VolumeAttachment) -> Result<(), String> {
        let name = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        let of_disk = found.iter().any(|volume| names::persistent_volume(volume.id.as_str()) == name);
        if of_disk && attachment.spec.node_name == self.node {
            return Err(format!("Kubernetes still has the disk on Node {}", self.node));
        }
        Ok(())
    }

    /// What EC2 as it is now says of the machine itself against it.
    pub fn check_down(&self, found: &[Instance]) -> Result<(), String> {
        match found.iter().find(|found| found.id == self.instance) {
            Some(found) if found.state.is_confirmed_down() => Ok(()),
            Some(found) => Err(format!("{} is {} by now", found.id, found.state)),
            None => Err(format!("EC2 does not show {}", self.instance)),
        }
    }

    /// Whether a pod is on the machine, or can be on no other.
    fn has(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        spec.node_name.as_ref().map_or_else(|| self.is_meant(spec), |on| *on == self.node)
    }

    /// Whether a Node is the machine, wherever that is: by what nobody can change.
    fn has_become(&self, node: &Node) -> bool {
        instance_of(node) == Some(self.instance.as_str())
    }

    fn is_meant(&self, spec: &PodSpec) -> bool {
        let pin = spec.node_selector.as_ref().and_then(|selector| selector.get(names::LABEL_NODE));
        pin == Some(&self.pin)
    }
}

/// The disk that EC2 would destroy with a machine, because somebody marked it so there, and how that is taken off.
pub(super) fn doomed(world: &World<'_>, instance: &Instance) -> Option<String> {
    going_with(&instance.id, living(&world.observed.account.volumes))
}

fn going_with<'a>(machine: &InstanceId, mut disks: impl Iterator<Item = &'a Volume>) -> Option<String> {
    let is_doomed = |one: &&Attachment| one.instance == *machine && one.goes_with_machine;
    let Attachment { volume, instance, device, .. } =
        disks.find_map(|disk| disk.live_attachments().find(is_doomed))?;
    Some(format!(
        "EC2 would destroy {volume} with {instance}, as somebody has marked it, so the machine is not ended: aws ec2 \
         modify-instance-attribute --instance-id {instance} --block-device-mappings \
         'DeviceName={device},Ebs={{DeleteOnTermination=false}}'"
    ))
}

/// A machine, to be proved like this.
pub(super) fn of(world: &World<'_>, instance: &Instance, proof: Proof) -> Left {
    let pin = build::node_value(&world.validated.subject, generation_of(instance).unwrap_or_default());
    let node = former::node_name(world, instance).unwrap_or_else(|| pin.clone());
    let disks = living(&world.observed.account.volumes).map(|disk| disk.id.clone()).collect();
    Left { instance: instance.id.clone(), pin, node, disks, proof }
}

/// A machine of a database that is not to run any more.
pub(super) fn at_the_end(world: &World<'_>, instance: &Instance) -> Left {
    let proof = if instance.state.is_confirmed_down() {
        Proof::Down
    } else if former::is_silent(world, instance) {
        Proof::Silent
    } else if former::is_in_use(world, instance) {
        // Whoever could let go of the disk would be waited for.
        Proof::Unattended
    } else {
        Proof::All
    };
    of(world, instance, proof)
}

/// A machine whose pod is to be forgotten because it is down, where that is still to be proved: one that has ended starts no more.
pub(super) fn down(world: &World<'_>, instance: &Instance) -> Option<Left> {
    (instance.state != InstanceState::Terminated).then(|| of(world, instance, Proof::Down))
}

#[cfg(test)]
mod tests {
    use cloud::AttachmentState;
    use k8s_openapi::api::core::v1::NodeSpec;
    use serde_json::{Value, json};

    use super::super::ready;
    use super::*;
    use crate::fixture::{instance, resource, subject, validated, volume, with};

    const PIN: &str = "qdb-33445566-g1";
    /// The name under which the machine joined.
    const NODE: &str = "ip-10-0-0-1";

    fn left(proof: Proof) -> Left {
        let (instance, disks) = (instance().id, vec![volume(50).id]);
        Left { instance, pin: PIN.to_owned(), node: NODE.to_owned(), disks, proof }
    }

    fn pinned(pin: &str) -> Value {
        json!({ "nodeSelector": { names::LABEL_NODE: pin }, "containers": [] })
    }

    fn set(pin: &str) -> StatefulSet {
        let labels = json!({ "matchLabels": {} });
        let spec = json!({ "selector": labels, "serviceName": "a", "template": { "spec": pinned(pin) } });
        serde_json::from_value(json!({ "spec": spec })).unwrap()
    }

    fn pod(on: Option<&str>, pin: &str) -> Pod {
        let mut spec = pinned(pin);
        spec["nodeName"] = json!(on);
        let metadata = json!({ "deletionTimestamp": "2026-01-01T00:01:00Z" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn node(ready: &str) -> Node {
        let condition =
            json!({ "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = json!({ "conditions": [condition] });
        serde_json::from_value(json!({ "metadata": { "name": NODE }, "status": status })).unwrap()
    }

    #[test]
    fn the_objects_as_they_are_decide() {
        let at: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let wish = validated(&resource(1));
        let check = |proof: Proof, set: Option<&StatefulSet>, pod: Option<&Pod>, node: Option<&Node>| {
            left(proof).check_objects(&wish, set, (pod, node), at).is_ok()
        };
        let (here, elsewhere) = (pod(Some(NODE), "qdb-33445566-g2"), pod(Some("other"), PIN));
        let (silent, ready) = (node("Unknown"), node("True"));
        let all = [
            Proof::All,
            Proof::Unjoined,
            Proof::Unready,
            Proof::Closed,
            Proof::Silent,
            Proof::Unattended,
            Proof::Down,
        ];
        for proof in all {
            let on = (proof == Proof::Silent).then_some(&here);
            assert!(check(proof, None, on, Some(&silent)), "{proof:?}");
            assert!(check(proof, Some(&set("qdb-33445566-g2")), on, Some(&silent)), "{proof:?}");
            assert!(!check(proof, Some(&set(PIN)), on, Some(&silent)), "{proof:?}: it is pinned");
        }
        for proof in [Proof::All, Proof::Unjoined, Proof::Unready, Proof::Closed, Proof::Unattended] {
            assert!(!check(proof, None, Some(&here), None), "{proof:?}");
            assert!(!check(proof, None, Some(&pod(None, PIN)), None), "{proof:?}: it can go nowhere else");
            assert!(check(proof, None, Some(&elsewhere), None), "{proof:?}");
        }
        let joined = |machine: &str| {
            let spec =
                NodeSpec { provider_id: Some(format!("aws:///eu-west-1a/{machine}")), ..NodeSpec::default() };
            Node { spec: Some(spec), ..silent.clone() }
        };
        assert!(!check(Proof::Unjoined, None, None, Some(&joined("i-1"))), "it has joined meanwhile");
        assert!(check(Proof::Unjoined, None, None, Some(&joined("i-11"))), "another one, under its name");
        assert!(check(Proof::All, None, None, Some(&joined("i-1"))));
        assert!(!check(Proof::Unready, None, None, Some(&ready)), "it is of use after all");
        assert!(check(Proof::Unready, None, None, Some(&silent)) && check(Proof::Unready, None, None, None));
        assert!(!check(Proof::Silent, None, None, Some(&silent)), "nothing there was told to stop");
        assert!(!check(Proof::Silent, None, Some(&elsewhere), Some(&silent)));
        assert!(!check(Proof::Silent, None, Some(&here), Some(&ready)));
        assert!(!check(Proof::Unattended, None, None, Some(&ready)), "somebody is there");
        assert!(check(Proof::Unattended, None, None, None));
        assert!(check(Proof::Down, None, Some(&here), Some(&ready)), "it cannot run there");
    }

    #[test]
    fn a_node_that_was_found_closed_is_judged_in_the_same_way_as_before() {
        let desk = json!({ "tolerations": [{ "key": "desk", "value": "trading", "effect": "NoSchedule" }] });
        let wish = validated(&with("/spec/pod", desk));
        let check = |spec: &Value, is_closed: bool| {
            let node = Node { spec: serde_json::from_value(spec.clone()).unwrap(), ..node("True") };
            assert_eq!(ready::closed(&wish, &node).is_some(), is_closed, "as it is planned: {spec}");
            let found =
                left(Proof::Closed).check_objects(&wish, None, (None, Some(&node)), Timestamp::UNIX_EPOCH);
            assert_eq!(found.is_ok(), is_closed, "as it is looked at: {spec}");
        };
        let subject = subject();
        check(&json!({}), false);
        check(&json!({ "unschedulable": true }), true);
        for (key, value, effect, is_closed) in [
            (names::TAINT, subject.short(), "NoSchedule", false),
            (names::TAINT, subject.short(), "NoExecute", true),
            (names::TAINT, "other", "NoSchedule", true),
            ("desk", "trading", "NoSchedule", false),
            ("desk", "trading", "NoExecute", true),
            ("desk", "other", "NoSchedule", true),
            ("somebody/else", "", "NoSchedule", true),
            ("somebody/else", "", "PreferNoSchedule", false),
        ] {
            let taint = json!({ "key": key, "value": value, "effect": effect });
            check(&json!({ "taints": [taint] }), is_closed);
        }
    }

    #[test]
    fn ec2_and_the_attachments_of_kubernetes_decide() {
        let left = left(Proof::All);
        let on = |instance: &str| {
            let (instance, state) = (InstanceId::new(instance), AttachmentState::Detaching);
            let mut volume = volume(50);
            volume.attachments = vec![Attachment {
                volume: volume.id.clone(),
                instance,
                device: "/dev/sdf".to_owned(),
                state,
                goes_with_machine: false,
            }];
            volume
        };
        let mut doomed = on("i-1");
        doomed.attachments[0].goes_with_machine = true;
        assert!(left.check_spared(&[on("i-1")]).is_ok() && left.check_spared(&[]).is_ok());
        assert!(left.check_spared(&[on("i-1"), doomed.clone()]).is_err(), "it would be destroyed");
        let other = Left { instance: InstanceId::new("i-2"), ..left.clone() };
        assert!(other.check_spared(&[doomed]).is_ok(), "with another machine");
        assert!(left.check_disks(&[volume(50)]).is_ok() && left.check_disks(&[on("i-2")]).is_ok());
        assert!(left.check_disks(&[on("i-1")]).is_err(), "it is on its way, and still there");
        assert!(left.check_disks(&[]).is_err(), "it may be anywhere");
        assert!(Left { disks: Vec::new(), ..left.clone() }.check_disks(&[]).is_ok());
        let other = |found: Volume| Volume { id: VolumeId::new("vol-other"), ..found };
        let both = Left { disks: vec![volume(50).id, other(volume(50)).id], ..left.clone() };
        assert!(both.check_disks(&[volume(50), other(on("i-2"))]).is_ok());
        assert!(both.check_disks(&[volume(50), other(on("i-1"))]).is_err(), "the other one is there");
        assert!(both.check_disks(&[volume(50)]).is_err(), "the other one may be anywhere");
        let attached = |disk: &str, node: &str| {
            let source = json!({ "persistentVolumeName": names::persistent_volume(disk) });
            let spec = json!({ "attacher": "ebs", "nodeName": node, "source": source });
            let attachment = json!({ "metadata": { "name": "a" }, "spec": spec });
            left.check_attachment(&[volume(50)], &serde_json::from_value(attachment).unwrap()).is_ok()
        };
        assert!(!attached("vol-1", NODE));
        assert!(attached("vol-1", "other") && attached("vol-2", NODE));
    }

    #[test]
    fn a_machine_is_down_only_while_ec2_says_so() {
        let left = left(Proof::Down);
        let check = |state: InstanceState| left.check_down(&[Instance { state, ..instance() }]).is_ok();
        assert!(check(InstanceState::Stopped) && check(InstanceState::Terminated));
        for state in [InstanceState::Running, InstanceState::Pending, InstanceState::Stopping] {
            assert!(!check(state));
        }
        assert!(left.check_down(&[]).is_err(), "what is not shown may run");
    }
}
