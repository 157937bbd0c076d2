//! Which database is meant: its names in Kubernetes and in AWS. Made once, so that no two places spell it differently.

use std::collections::BTreeMap;

use cloud::{Owner, Role};
use resources::names;
use serde_json::{Value, json};

/// A database and its custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Cluster, as in every tag.
    pub cluster: String,
    /// Namespace of the resource.
    pub namespace: String,
    /// Name of the resource.
    pub name: String,
    /// Uid of the resource: for owner references and nothing else.
    pub uid: String,
    /// Identity of the database, hyphenated. *Invariant:* never a Kubernetes uid.
    pub database: String,
}

impl Subject {
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

    /// Metadata of a namespaced child that goes when the resource goes.
    pub(crate) fn owned(&self, name: &str) -> Value {
        let mut metadata = self.unowned(name);
        metadata["ownerReferences"] = json!([{
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": names::KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": false,
        }]);
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
        format!("{}/{}/{}", self.cluster, self.namespace, self.name)
    }

    /// Whether labels say that an object belongs to this database.
    pub fn owns(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        labels.is_some_and(|labels| {
            labels.get(names::LABEL_DATABASE) == Some(&self.database)
                && labels.get(names::LABEL_NAME) == Some(&self.name)
        })
    }
}
