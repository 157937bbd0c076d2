//! A disk that was made empty for its database, and on which QuestDB has never begun: nothing is on it that anybody was told is kept.
//! Another version of the same major one is started on it as the first one, an older one too, and without a copy: one whose image is not
//! to be had would be waited for without end.
//!
//! That nothing tells of an answer is not enough to know that there was none. Nobody may have looked while there was one: nothing is done
//! for a resource whose annotation says so, or whose spec is refused, and the operator may be down, while Kubernetes sends clients to
//! whatever answers. A report goes with its resource, and a cluster that is restored from a backup shows the resource, the StatefulSet and
//! the report of before. And one that ends each time is what a disk with data looks like that is full or spoilt. So it has to be seen that
//! QuestDB cannot have begun: its image is not on the machine, and that is the only one that the database ever had. What ever ran on a
//! machine is there.
//!
//! *Invariant:* none of what is known is believed alone, because an operator that does not know the tag leaves it as it is: another version
//! is started without a copy only on a disk that was made empty after its resource and says that QuestDB has never begun on it, in the
//! place of one that lacks its image on the first machine, and while no report and no pod tells otherwise.
//! *Invariant:* it is of the same major version as the one before: should that begin all the same, what the disk says of its version is not
//! of another one.

use cloud::{Volume, key};
use domain::catalogue;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use resources::{QuestDB, UpgradeStatus, names};

use super::{Look, disk, start, version_of};
use crate::change::image_of_pod;
use crate::planner::{is_older_than, is_on, is_ready, living};

/// What the tag of a disk says until QuestDB has begun on it.
pub(crate) const NEVER: &str = "false";
/// The same from then on: it may have answered from it.
pub(crate) const ONCE: &str = "true";
/// The generation of the machine that is the first one of a database.
const FIRST: u64 = 1;

/// What is known of such a disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// QuestDB has never begun on it.
    Never,
    /// This image has begun on it, as the first one: it is in force, whatever was to be started in its place.
    First(String),
}

/// Whether a disk says that QuestDB has never begun on it.
pub(crate) fn says_unserved(disk: &Volume) -> bool {
    disk.tags.get(key::SERVED) == Some(NEVER)
}

impl Look<'_> {
    /// What is known of a disk that says that QuestDB has never begun on it, and was made empty for this database; nothing of any other.
    pub(super) fn unserved(&self, record: Option<&UpgradeStatus>) -> Option<Unserved> {
        let children = &self.observed.children;
        let mut disks = living(&self.observed.account.volumes);
        let disk = disks.next().filter(|disk| is_own(self.resource, disk))?;
        if disks.next().is_some() || record.is_some() || self.validated.storage.source.is_some() {
            return None;
        }
        let pod = children.pod.as_deref();
        if let Some(pod) = pod.filter(|pod| start::has_begun(pod)) {
            return image_of_pod(pod).map(Unserved::First);
        }
        // Its pod may be gone by now.
        if let Some(version) = self.resource.status.as_ref().and_then(|status| status.version.as_deref()) {
            return Some(Unserved::First(catalogue::image_of(version)));
        }
        let image = image_of_pod(pod.filter(|pod| self.cannot_have_begun(pod))?)?;
        let is_readable = |version: &str| is_of_one_major(version, &self.validated.version);
        let never = disk::version_of_disk(disk).is_some_and(is_readable)
            && is_readable(version_of(&image))
            && !has_served_from_it(children.stateful_set.as_deref());
        never.then_some(Unserved::Never)
    }

    /// Whether QuestDB has not begun in a pod, nor in any before it: its image is not on the machine, which is the first one.
    fn cannot_have_begun(&self, pod: &Pod) -> bool {
        let mut nodes = self.observed.children.nodes.iter();
        // The word of a kubelet that is silent is old.
        let node = nodes.find(|node| is_on(pod, node)).filter(|node| is_ready(node));
        let label = node.and_then(|node| node.metadata.labels.as_ref()?.get(names::LABEL_NODE));
        let generation = label.and_then(|label| names::generation_of_node(label));
        generation == Some(FIRST) && pod.metadata.deletion_timestamp.is_none() && start::lacks_image(pod)
    }
}

/// Whether a disk says so, and was made for this very resource, of nothing: one that was there before may have been served from by what
/// does not know the tag.
fn is_own(resource: &QuestDB, disk: &Volume) -> bool {
    let is_made_of_nothing = disk.snapshot.is_none() && disk.tags.get(key::BASIS).is_none();
    says_unserved(disk) && is_made_of_nothing && is_older_than(resource, disk) == Some(false)
}

/// Whether two versions are of one major one. Of a version that is no number nobody knows.
fn is_of_one_major(one: &str, other: &str) -> bool {
    catalogue::major(one).is_some_and(|major| catalogue::major(other) == Some(major))
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
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use resources::{QuestDBStatus, StorageSource};
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{resource, validated, volume};
    use crate::secrets::choose;
    use crate::{Account, Observed, build};

    type Change = fn(&mut QuestDB, &mut Observed);

    /// What is known of a disk that was made empty a minute after its resource, while the image of 9.4.0 is not to be had on the first
    /// machine and 9.3.4 is asked for, once something else is so.
    fn known(change: Change, record: Option<&UpgradeStatus>) -> Option<Unserved> {
        let (mut resource, mut disk) = (resource(1), volume(50));
        resource.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        disk.tags = disk.tags.with(key::SERVED, NEVER).with(key::QUESTDB, "9.4.0");
        disk.created_at = Some(SystemTime::UNIX_EPOCH + Duration::from_mins(1));
        let account = Account { volumes: vec![disk], ..Account::default() };
        let mut observed = Observed { account, ..Observed::default() };
        set_node(&mut observed, FIRST, "True");
        set_pod(&mut observed, &waits("ErrImagePull"));
        change(&mut resource, &mut observed);
        let validated = validated(&resource);
        let choice = choose(&validated, &observed);
        let look = Look { resource: &resource, validated: &validated, observed: &observed, choice: &choice };
        look.unserved(record)
    }

    fn set_node(observed: &mut Observed, generation: u64, ready: &str) {
        let label = build::node_value(&crate::fixture::subject(), generation);
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "n", "labels": { names::LABEL_NODE: label } },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap();
        observed.children.nodes = vec![Arc::new(node)];
    }

    fn waits(reason: &str) -> Value {
        json!({ "state": { "waiting": { "reason": reason } } })
    }

    /// A pod of 9.4.0 whose container is so.
    fn set_pod(observed: &mut Observed, container: &Value) {
        let mut status =
            json!({ "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 0 });
        status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let pod = json!({
            "metadata": { "name": "trades-33445566-0" },
            "spec": { "nodeName": "n",
                "containers": [{ "name": "questdb", "image": catalogue::image_of("9.4.0") }] },
            "status": { "conditions": [{ "type": "Ready", "status": "False" }], "containerStatuses": [status] },
        });
        observed.children.pod = Some(Arc::new(serde_json::from_value(pod).unwrap()));
    }

    fn pod(observed: &mut Observed) -> &mut Pod {
        Arc::make_mut(observed.children.pod.as_mut().unwrap())
    }

    fn disk(observed: &mut Observed) -> &mut Volume {
        &mut observed.account.volumes[0]
    }

    fn tag(observed: &mut Observed, key: &str, value: &str) {
        let disk = disk(observed);
        disk.tags = disk.tags.clone().with(key, value);
    }

    #[test]
    fn questdb_has_never_begun_where_its_image_is_not_on_the_only_machine_that_there_was() {
        let never: [(&str, Change); 5] = [
            ("its image is not to be had", |_, _| {}),
            ("nor for some time", |_, observed| set_pod(observed, &waits("ImagePullBackOff"))),
            ("it is known to have a disk", |resource, _| resource.spec.storage.provisioned = true),
            ("its report was lost", |resource, _| resource.status = None),
            ("the very same is asked for", |resource, _| "9.4.0".clone_into(&mut resource.spec.version)),
        ];
        for (what, change) in never {
            assert_eq!(known(change, None), Some(Unserved::Never), "{what}");
        }
        let first = |version: &str| Some(Unserved::First(catalogue::image_of(version)));
        let begun: [(Change, &str); 4] = [
            (|_, observed| set_pod(observed, &json!({ "started": true })), "9.4.0"),
            (|_, observed| set_pod(observed, &json!({ "state": { "running": {} } })), "9.4.0"),
            (
                |_, observed| {
                    let mut waits = waits("ErrImagePull");
                    waits["restartCount"] = json!(1);
                    set_pod(observed, &waits);
                },
                "9.4.0",
            ),
            (
                |resource, _| {
                    let version = Some("9.3.5".to_owned());
                    resource.status = Some(QuestDBStatus { version, ..QuestDBStatus::default() });
                },
                "9.3.5",
            ),
        ];
        for (change, version) in begun {
            assert_eq!(known(change, None), first(version), "{version}");
        }
    }

    #[test]
    fn a_pod_before_may_have_begun_where_the_image_need_not_be() {
        let others: [(&str, Change); 10] = [
            ("there is no pod", |_, observed| observed.children.pod = None),
            ("it is only made", |_, observed| set_pod(observed, &waits("ContainerCreating"))),
            ("nothing is said of it", |_, observed| pod(observed).status = None),
            ("it is on its way out", |_, observed| {
                pod(observed).metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            }),
            ("it has no place", |_, observed| pod(observed).spec.as_mut().unwrap().node_name = None),
            ("nobody tells of it", |_, observed| set_node(observed, FIRST, "Unknown")),
            ("its Node is gone", |_, observed| observed.children.nodes.clear()),
            ("it is another machine", |_, observed| set_node(observed, 2, "True")),
            ("nobody knows which machine it is", |_, observed| {
                Arc::make_mut(&mut observed.children.nodes[0]).metadata.labels = None;
            }),
            ("pods are told of the disk", |_, observed| {
                let told = json!({ "metadata": {}, "spec": { "selector": {}, "serviceName": "", "template": {
                    "metadata": { "annotations": { names::SERVED_FROM: "vol-1" } } } } });
                observed.children.stateful_set = Some(Arc::new(serde_json::from_value(told).unwrap()));
            }),
        ];
        for (what, change) in others {
            assert_eq!(known(change, None), None, "{what}");
        }
    }

    #[test]
    fn of_any_other_disk_nothing_is_known() {
        let others: [(&str, Change); 13] = [
            ("there is none", |_, observed| observed.account.volumes.clear()),
            ("there are two", |_, observed| observed.account.volumes.push(volume(50))),
            ("something has begun on it", |_, observed| tag(observed, key::SERVED, ONCE)),
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
            ("it says another major version", |_, observed| tag(observed, key::QUESTDB, "10.0.0")),
            ("it says one that is no number", |_, observed| tag(observed, key::QUESTDB, "nightly")),
            ("another major version is asked for", |resource, _| {
                "10.0.0".clone_into(&mut resource.spec.version);
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
