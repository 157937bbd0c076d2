//! Which process uses which volume, and whether EC2 still says it may. One holder per volume on this machine, whatever
//! EC2 and Kubernetes believe; and a process whose volume is no longer attached to its instance is told so.
//!
//! *Invariant:* a single stale answer of EC2 takes no disk away: several in a row must agree.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cloud::{AttachmentState, Cloud, Error, InstanceId, Select, Volume, VolumeId};

/// Answers in a row that must agree before a disk counts as lost.
const MISSES: u32 = 3;

/// A volume in use.
#[derive(Clone, Debug)]
struct Use {
    pod: String,
    instance: InstanceId,
    misses: u32,
    seen: String,
}

impl Use {
    /// How the volume is attached to the instance, if it is.
    fn note(&mut self, state: Option<AttachmentState>) {
        match state {
            Some(AttachmentState::Attached | AttachmentState::Busy) => self.misses = 0,
            Some(other) => self.miss(other.to_string()),
            None => self.miss("detached".to_owned()),
        }
    }

    fn miss(&mut self, seen: String) {
        self.seen = seen;
        self.misses = self.misses.saturating_add(1);
    }
}

/// All volumes in use by processes of this agent.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    uses: Arc<Mutex<BTreeMap<VolumeId, Use>>>,
}

impl Disks {
    /// Takes a volume for a pod. `Err` names the pod that has it.
    pub fn claim(&self, volume: &VolumeId, pod: &str, instance: &InstanceId) -> Result<(), String> {
        self.with(|uses| match uses.get(volume) {
            Some(other) if other.pod != pod => Err(other.pod.clone()),
            Some(_) => Ok(()),
            None => {
                let taken =
                    Use { pod: pod.to_owned(), instance: instance.clone(), misses: 0, seen: String::new() };
                uses.insert(volume.clone(), taken);
                Ok(())
            }
        })
    }

    /// Lets go of everything a pod holds.
    pub fn release(&self, pod: &str) {
        self.with(|uses| uses.retain(|_, other| other.pod != pod));
    }

    /// What a pod holds.
    pub fn of_pod(&self, pod: &str) -> Vec<VolumeId> {
        self.with(|uses| {
            uses.iter().filter(|(_, used)| used.pod == pod).map(|(volume, _)| volume.clone()).collect()
        })
    }

    /// Whether a pod holds it.
    pub fn is_used(&self, volume: &VolumeId) -> bool {
        self.with(|uses| uses.contains_key(volume))
    }

    /// What is used on an instance.
    pub fn of_instance(&self, instance: &InstanceId) -> Vec<VolumeId> {
        self.with(|uses| {
            let here = uses.iter().filter(|(_, used)| used.instance == *instance);
            here.map(|(volume, _)| volume.clone()).collect()
        })
    }

    /// What a pod has lost, in words, if anything.
    pub fn lost(&self, pod: &str) -> Option<String> {
        self.with(|uses| {
            let mut lost = uses.iter().filter(|(_, used)| used.pod == pod && used.misses >= MISSES);
            lost.next()
                .map(|(volume, used)| format!("volume {volume} is {} for {}", used.seen, used.instance))
        })
    }

    /// Asks EC2 about every volume in use. An answer that does not come changes nothing.
    pub async fn look(&self, cloud: &dyn Cloud) -> Result<(), Error> {
        let volumes: Vec<VolumeId> = self.with(|uses| uses.keys().cloned().collect());
        if volumes.is_empty() {
            return Ok(());
        }
        let described = cloud.describe_volumes(&Select::Ids(volumes.clone())).await?;
        self.note(&volumes, &described);
        Ok(())
    }

    /// Takes in what EC2 says of these volumes.
    fn note(&self, asked: &[VolumeId], described: &[Volume]) {
        self.with(|uses| {
            for (volume, used) in uses.iter_mut().filter(|(volume, _)| asked.contains(volume)) {
                let found = described.iter().find(|described| described.id == *volume);
                match found {
                    Some(found) => used.note(attachment(found, &used.instance)),
                    None => used.miss("unknown".to_owned()),
                }
            }
        });
    }

    fn with<T>(&self, body: impl FnOnce(&mut BTreeMap<VolumeId, Use>) -> T) -> T {
        body(&mut self.uses.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How a volume is attached to an instance, if it is.
pub fn attachment(volume: &Volume, instance: &InstanceId) -> Option<AttachmentState> {
    volume.live_attachments().find(|found| found.instance == *instance).map(|found| found.state.clone())
}

#[cfg(test)]
mod tests {
    use cloud::Attachment;

    use super::*;
    use crate::fixture;

    fn volume(id: &str, attached: Option<(&str, AttachmentState)>) -> Volume {
        let attachments = attached.into_iter().map(|(instance, state)| Attachment {
            volume: id.into(),
            instance: instance.into(),
            device: "/dev/sdf".into(),
            state,
            goes_with_machine: false,
        });
        Volume { attachments: attachments.collect(), ..fixture::volume(id) }
    }

    #[test]
    fn a_volume_has_one_holder() {
        let disks = Disks::default();
        let (volume, instance) = (VolumeId::from("vol-1"), InstanceId::from("i-1"));
        assert_eq!(disks.claim(&volume, "a", &instance), Ok(()));
        assert_eq!(disks.claim(&volume, "a", &instance), Ok(()));
        assert_eq!(disks.claim(&volume, "b", &"i-2".into()), Err("a".to_owned()));
        assert_eq!(disks.of_instance(&instance), std::slice::from_ref(&volume));
        disks.release("a");
        assert_eq!(disks.claim(&volume, "b", &"i-2".into()), Ok(()));
        assert_eq!(disks.of_pod("b"), [volume]);
    }

    #[test]
    fn a_disk_is_lost_when_answers_agree() {
        let disks = Disks::default();
        let id = VolumeId::from("vol-1");
        disks.claim(&id, "a", &"i-1".into()).unwrap();
        let note = |attached| disks.note(std::slice::from_ref(&id), &[volume("vol-1", attached)]);
        let good = || Some(("i-1", AttachmentState::Attached));
        note(None);
        note(Some(("i-2", AttachmentState::Attached)));
        assert_eq!(disks.lost("a"), None);
        note(good());
        note(None);
        note(None);
        assert_eq!(disks.lost("a"), None);
        note(Some(("i-1", AttachmentState::Detaching)));
        assert_eq!(disks.lost("a"), Some("volume vol-1 is detaching for i-1".to_owned()));
        disks.note(std::slice::from_ref(&id), &[]);
        assert_eq!(disks.lost("a"), Some("volume vol-1 is unknown for i-1".to_owned()));
    }
}
