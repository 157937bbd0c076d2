//! A disk that was made empty for its database, and from which QuestDB has never answered: nothing is on it that anybody was told is
//! kept. Whatever version is asked for is started on it as the first one, an older one too, and without a copy: one that never starts
//! would be waited for without end.
//!
//! That nothing tells of an answer is not enough to know that there was none: a report goes with its resource, and a cluster that is
//! restored from a backup shows the resource, the StatefulSet and the report of before. So the disk is made with a tag that says it,
//! which is written over once QuestDB has answered.
//!
//! *Invariant:* the tag alone is not believed either, because an operator that does not know it leaves it as it is: another version is
//! started without a copy only on a disk that was made empty after its resource, and while no report and no pod tells of an answer.

use cloud::{Volume, key};
use domain::catalogue;
use k8s_openapi::api::apps::v1::StatefulSet;
use resources::{QuestDB, UpgradeStatus, names};

use super::{Look, start};
use crate::change::image_of_pod;
use crate::planner::{is_older_than, living};

/// What the tag of a disk says until QuestDB has answered from it.
pub(crate) const NEVER: &str = "false";
/// The same from then on.
pub(crate) const ONCE: &str = "true";

/// What is known of such a disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// QuestDB has never answered from it.
    Never,
    /// This image answered a moment ago, as the first one: it is in force, whatever was to be started in its place.
    First(String),
}

/// Whether a disk says that QuestDB has never answered from it.
pub(crate) fn says_unserved(disk: &Volume) -> bool {
    disk.tags.get(key::SERVED) == Some(NEVER)
}

impl Look<'_> {
    /// What is known of a disk that says that QuestDB has never answered from it, and was made empty for this database; nothing of any
    /// other.
    pub(super) fn unserved(&self, record: Option<&UpgradeStatus>) -> Option<Unserved> {
        let (resource, children) = (self.resource, &self.observed.children);
        let mut disks = living(&self.observed.account.volumes);
        disks.next().filter(|disk| is_own(resource, disk))?;
        if disks.next().is_some() || record.is_some() || self.validated.storage.source.is_some() {
            return None;
        }
        if let Some(pod) = children.pod.as_deref().filter(|pod| start::served(pod)) {
            return image_of_pod(pod).map(Unserved::First);
        }
        // Its pod may be gone by now.
        if let Some(version) = resource.status.as_ref().and_then(|status| status.version.as_deref()) {
            return Some(Unserved::First(catalogue::image_of(version)));
        }
        (!has_served_from_it(children.stateful_set.as_deref())).then_some(Unserved::Never)
    }
}

/// Whether a disk says so, and was made for this very resource, of nothing: one that was there before may have been served from by what
/// does not know the tag.
fn is_own(resource: &QuestDB, disk: &Volume) -> bool {
    let is_made_of_nothing = disk.snapshot.is_none() && disk.tags.get(key::BASIS).is_none();
    says_unserved(disk) && is_made_of_nothing && is_older_than(resource, disk) == Some(false)
}

/// Whether pods are told of a disk that QuestDB has answered from: a report that said so was there once.
fn has_served_from_it(set: Option<&StatefulSet>) -> bool {
    let template = set.and_then(|set| set.spec.as_ref()?.template.metadata.as_ref());
    let annotations = template.and_then(|template| template.annotations.as_ref());
    annotations.is_some_and(|annotations| annotations.contains_key(names::SERVED_FROM))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use resources::{QuestDBStatus, StorageSource};
    use serde_json::json;

    use super::*;
    use crate::fixture::{resource, validated, volume};
    use crate::secrets::choose;
    use crate::{Account, Observed};

    type Change = fn(&mut QuestDB, &mut Observed);

    /// What is known of a disk that was made empty a minute after its resource, and never served, once something else is so.
    fn known(change: Change, record: Option<&UpgradeStatus>) -> Option<Unserved> {
        let (mut resource, mut disk) = (resource(1), volume(50));
        resource.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        disk.tags = disk.tags.with(key::SERVED, NEVER).with(key::QUESTDB, "10.0.0");
        disk.created_at = Some(SystemTime::UNIX_EPOCH + Duration::from_mins(1));
        let account = Account { volumes: vec![disk], ..Account::default() };
        let mut observed = Observed { account, ..Observed::default() };
        change(&mut resource, &mut observed);
        let validated = validated(&resource);
        let choice = choose(&validated, &observed);
        let look = Look { resource: &resource, validated: &validated, observed: &observed, choice: &choice };
        look.unserved(record)
    }

    fn set_pod(observed: &mut Observed, ready: &str) {
        let pod = json!({
            "metadata": { "name": "trades-33445566-0" },
            "spec": { "containers": [{ "name": "questdb", "image": catalogue::image_of("9.4.0") }] },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        });
        observed.children.pod = Some(Arc::new(serde_json::from_value(pod).unwrap()));
    }

    fn disk(observed: &mut Observed) -> &mut Volume {
        &mut observed.account.volumes[0]
    }

    fn tag(observed: &mut Observed, key: &str, value: &str) {
        let disk = disk(observed);
        disk.tags = disk.tags.clone().with(key, value);
    }

    #[test]
    fn nobody_was_served_from_a_disk_that_was_made_empty_while_nothing_tells_otherwise() {
        let never: [(&str, Change); 4] = [
            ("nothing was started", |_, _| {}),
            ("it does not answer", |_, observed| set_pod(observed, "False")),
            ("it is known to have a disk", |resource, _| resource.spec.storage.provisioned = true),
            ("its report was lost", |resource, _| resource.status = None),
        ];
        for (what, change) in never {
            assert_eq!(known(change, None), Some(Unserved::Never), "{what}");
        }
        let first = |version: &str| Some(Unserved::First(catalogue::image_of(version)));
        let answered: [(Change, &str); 2] = [
            (|_, observed| set_pod(observed, "True"), "9.4.0"),
            (
                |resource, _| {
                    let version = Some("9.3.5".to_owned());
                    resource.status = Some(QuestDBStatus { version, ..QuestDBStatus::default() });
                },
                "9.3.5",
            ),
        ];
        for (change, version) in answered {
            assert_eq!(known(change, None), first(version), "{version}");
        }
    }

    #[test]
    fn of_any_other_disk_nothing_is_known() {
        let others: [(&str, Change); 11] = [
            ("there is none", |_, observed| observed.account.volumes.clear()),
            ("there are two", |_, observed| observed.account.volumes.push(volume(50))),
            ("it has answered", |_, observed| tag(observed, key::SERVED, ONCE)),
            ("it does not say it", |_, observed| disk(observed).tags = volume(50).tags),
            ("it was made of a copy", |_, observed| disk(observed).snapshot = Some("snap-1".to_owned())),
            ("it was made of a copy of ours", |_, observed| tag(observed, key::BASIS, "stopped:u:3")),
            ("it was there before its resource", |_, observed| {
                disk(observed).created_at = Some(SystemTime::UNIX_EPOCH - Duration::from_mins(1));
            }),
            ("nobody knows since when it is there", |_, observed| disk(observed).created_at = None),
            ("nobody knows since when its resource is there", |resource, _| {
                resource.metadata.creation_timestamp = None;
            }),
            ("it is another's", |resource, _| {
                let volume_id = Some("vol-01234567890123456".to_owned());
                resource.spec.storage.source = Some(StorageSource { volume_id, ..StorageSource::default() });
            }),
            ("pods are told of it", |_, observed| {
                let told = json!({ "metadata": {}, "spec": { "selector": {}, "serviceName": "", "template": {
                    "metadata": { "annotations": { names::SERVED_FROM: "vol-1" } } } } });
                observed.children.stateful_set = Some(Arc::new(serde_json::from_value(told).unwrap()));
            }),
        ];
        for (what, change) in others {
            assert_eq!(known(change, None), None, "{what}");
        }
        let record =
            json!({ "from": "a", "to": "b", "result": "Running", "startedAt": "1970-01-01T00:00:00Z" });
        let record: UpgradeStatus = serde_json::from_value(record).unwrap();
        assert_eq!(known(|_, _| {}, Some(&record)), None, "another version was started before");
    }
}
