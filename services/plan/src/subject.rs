//! Which database is meant: its names in Kubernetes and in AWS. Made once, so that no two places spell it differently.

use std::collections::BTreeMap;

use cloud::{Owner, Role};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::core::ObjectMeta;
use resources::{QuestDB, names};
use serde_json::{Value, json};

use crate::identity::{display, goes_with, settled_identity};
use crate::{Kind, Manifest, Settings};

/// A database and its custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Cluster, as in every tag.
    pub cluster: String,
    /// Namespace of the resource.
    pub namespace: String,
    /// Name of the resource.
    pub name: String,
    /// Uid of the resource: for the mark on what goes with it and nothing else.
    pub uid: String,
    /// Identity of the database, hyphenated. *Invariant:* never a Kubernetes uid.
    pub database: String,
}

impl Subject {
    /// Of a resource; `None` until its identity is settled.
    pub fn of(resource: &QuestDB, settings: &Settings) -> Option<Self> {
        Self::naming(resource, settings, settled_identity(resource)?)
    }

    /// Of a resource that names this database, be it only in an annotation.
    pub fn naming(resource: &QuestDB, settings: &Settings, database: &str) -> Option<Self> {
        Some(Self {
            cluster: settings.cluster.clone(),
            namespace: resource.metadata.namespace.clone()?,
            name: resource.metadata.name.clone()?,
            uid: resource.metadata.uid.clone()?,
            database: database.to_owned(),
        })
    }

    /// The last eight digits of the identity.
    pub fn short(&self) -> &str {
        let start = self.database.len().saturating_sub(8);
        self.database.get(start..).unwrap_or(&self.database)
    }

    /// Labels of every child.
    pub fn labels(&self) -> BTreeMap<&'static str, &str> {
        BTreeMap::from([
            (names::LABEL_NAME, self.name.as_str()),
            (names::LABEL_NAMESPACE, self.namespace.as_str()),
            (names::LABEL_DATABASE, self.database.as_str()),
            (names::LABEL_MANAGED_BY, names::OPERATOR),
        ])
    }

    /// Labels by which the Service and the StatefulSet find the pod.
    pub fn selector(&self) -> BTreeMap<&'static str, &str> {
        BTreeMap::from([
            ("app.kubernetes.io/name", "questdb"),
            (names::LABEL_DATABASE, self.database.as_str()),
        ])
    }

    /// Metadata of a namespaced child that the operator takes away before it lets the resource go. *Invariant:* it has no
    /// `ownerReference`: of a resource that is deleted in the foreground Kubernetes takes away whatever has one at once, and asks
    /// neither the protection of a database nor the policy for its disk.
    pub(crate) fn owned(&self, name: &str) -> Value {
        let mut metadata = self.unowned(name);
        metadata["annotations"] = json!({ names::RESOURCE: self.uid });
        metadata
    }

    /// Metadata of a namespaced child that outlives the resource's objects until it is taken away on purpose.
    pub(crate) fn unowned(&self, name: &str) -> Value {
        json!({ "name": name, "namespace": self.namespace, "labels": self.labels() })
    }

    /// Tags of something that this database owns in AWS.
    pub fn owner(&self, role: Role) -> Owner {
        Owner::new(&self.cluster, &self.database, role)
    }

    /// What the AWS console shows.
    pub fn display(&self) -> String {
        display(&self.cluster, &self.namespace, &self.name)
    }

    /// Whether labels say that an object belongs to this database.
    pub fn owns(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        labels.is_some_and(|labels| {
            labels.get(names::LABEL_DATABASE) == Some(&self.database)
                && labels.get(names::LABEL_NAME) == Some(&self.name)
                && labels.get(names::LABEL_NAMESPACE) == Some(&self.namespace)
        })
    }

    /// Whether an object is of this database: by its labels, or, should somebody have taken those off, because it goes with our
    /// resource. That a StatefulSet of our name controls it says nothing: somebody else's may have that name.
    pub fn holds(&self, object: &ObjectMeta) -> bool {
        self.owns(object.labels.as_ref()) || goes_with(object, &self.uid)
    }

    /// Whether a `PersistentVolume` is for the claim of this resource.
    pub fn is_claimant(&self, volume: &PersistentVolume) -> bool {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        claim.is_some_and(|claim| {
            claim.namespace.as_ref() == Some(&self.namespace)
                && claim.name.as_ref() == Some(&names::claim(&self.name))
        })
    }

    /// Whether what is to be made is there and was not seen yet, although whoever sees our objects sees it soon. A StatefulSet says
    /// on which machine its database is, and which version has written to the disk: it is not written over unseen.
    pub fn is_yet_to_be_seen(&self, intended: &Manifest, found: &ObjectMeta) -> bool {
        intended.kind == Kind::StatefulSet && intended.uid.is_none() && self.owns(found.labels.as_ref())
    }

    /// Whether what was found under the name of one of our objects is that object. What bears no mark is known by what
    /// it leads to: claim, disk and pod each to the next.
    pub fn recognises(&self, intended: &Manifest, found: &Value) -> bool {
        let metadata = found.get("metadata").cloned().unwrap_or_default();
        if serde_json::from_value(metadata).is_ok_and(|metadata| self.holds(&metadata)) {
            return true;
        }
        let same = |field: &str| {
            let wanted = intended.body.pointer(field);
            wanted.is_some() && found.pointer(field) == wanted
        };
        match intended.kind {
            Kind::PersistentVolumeClaim => same("/spec/volumeName"),
            Kind::PersistentVolume => {
                let fields = ["/spec/csi/volumeHandle", "/spec/claimRef/name", "/spec/claimRef/namespace"];
                fields.into_iter().all(same)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::fixture::{resource, subject, validated, volume};

    #[test]
    fn a_stateful_set_that_was_not_seen_is_written_over_only_where_it_never_would_be() {
        let subject = subject();
        let set = build::stateful_set(&validated(&resource(1)), "node", None);
        let metadata: ObjectMeta = serde_json::from_value(set.body["metadata"].clone()).unwrap();
        assert!(subject.is_yet_to_be_seen(&set, &metadata));
        let hidden = ObjectMeta { labels: None, ..metadata.clone() };
        assert!(!subject.is_yet_to_be_seen(&set, &hidden), "its labels come back by that alone");
        let seen = Manifest { uid: Some("u".to_owned()), ..set.clone() };
        assert!(!subject.is_yet_to_be_seen(&seen, &metadata));
        let other = build::config_map(&validated(&resource(1)));
        assert!(!subject.is_yet_to_be_seen(&other, &metadata), "what says nothing of its own is made again");
    }

    #[test]
    fn an_object_without_labels_is_known_by_its_mark_or_its_disk() {
        let subject = subject();
        let mark = format!("/metadata/annotations/{}", names::RESOURCE.replace('/', "~1"));
        let table = [
            (build::config_map(&validated(&resource(1))), mark.as_str()),
            (build::secret(&subject), mark.as_str()),
            (build::claim(&subject, &volume(50)), "/spec/volumeName"),
            (build::persistent_volume(&subject, &volume(50)), "/spec/csi/volumeHandle"),
            (build::persistent_volume(&subject, &volume(50)), "/spec/claimRef/name"),
            (build::persistent_volume(&subject, &volume(50)), "/spec/claimRef/namespace"),
        ];
        for (intended, field) in table {
            let mut found = intended.body.clone();
            assert!(subject.recognises(&intended, &found), "{field}");
            found["metadata"]["labels"] = json!({});
            assert!(subject.recognises(&intended, &found), "{field}: labels taken off");
            *found.pointer_mut(field).unwrap() = json!("other");
            assert!(!subject.recognises(&intended, &found), "{field}: somebody else's");
        }
    }

    #[test]
    fn what_an_older_operator_made_is_known_by_its_controller() {
        let (subject, intended) = (subject(), build::config_map(&validated(&resource(1))));
        let known = |uid: &str, controls: bool| {
            let owner = json!({
                "apiVersion": "crd.questdb.io/v1", "kind": names::KIND, "name": subject.name, "uid": uid,
                "controller": controls, "blockOwnerDeletion": false,
            });
            let mut found = intended.body.clone();
            found["metadata"] = json!({ "name": intended.name, "ownerReferences": [owner] });
            subject.recognises(&intended, &found)
        };
        assert!(known(&subject.uid, true));
        assert!(!known(&subject.uid, false) && !known("other", true));
    }

    #[test]
    fn the_pod_of_a_stateful_set_of_our_name_is_ours_only_by_its_labels() {
        let subject = subject();
        let pod = |database: &str| -> ObjectMeta {
            let owner = json!({
                "apiVersion": "apps/v1", "kind": Kind::StatefulSet.as_str(), "name": subject.name, "uid": "set",
                "controller": true, "blockOwnerDeletion": true,
            });
            let mut labels = json!(subject.labels());
            labels[names::LABEL_DATABASE] = json!(database);
            let pod = json!({
                "name": names::pod(&subject.name), "labels": labels, "ownerReferences": [owner],
            });
            serde_json::from_value(pod).unwrap()
        };
        assert!(subject.holds(&pod(&subject.database)));
        assert!(!subject.holds(&pod("0192f3a4-0000-7d8e-9f00-112233445566")));
        assert!(!subject.holds(&ObjectMeta { labels: None, ..pod(&subject.database) }));
    }
}
