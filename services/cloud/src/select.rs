//! Which resources a describe is about.

use std::collections::BTreeMap;

use crate::{Role, key};

/// By id, or by tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select<Id> {
    /// These; any number, asked for in pages. None at all answers nothing without a request.
    Ids(Vec<Id>),
    /// Everything with these tags.
    Tags(TagFilter),
}

impl<Id> Select<Id> {
    /// One resource.
    pub fn one(id: Id) -> Self {
        Self::Ids(vec![id])
    }

    /// Everything of a cluster.
    pub fn cluster(cluster: &str) -> Self {
        Self::Tags(TagFilter::cluster(cluster))
    }

    /// Everything of a database of a cluster.
    pub fn database(cluster: &str, database: &str) -> Self {
        Self::Tags(TagFilter::cluster(cluster).database(database))
    }
}

/// All of these tags, each with one of its values. At least one tag: there is no way to select a whole account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter(BTreeMap<String, Vec<String>>);

impl TagFilter {
    /// Tag `key` has this value.
    pub fn equals(key: &str, value: &str) -> Self {
        Self(BTreeMap::from([(key.to_owned(), vec![value.to_owned()])]))
    }

    /// Belongs to this cluster.
    pub fn cluster(cluster: &str) -> Self {
        Self::equals(key::CLUSTER, cluster)
    }

    /// And belongs to this database.
    #[must_use]
    pub fn database(self, database: &str) -> Self {
        self.and(key::DATABASE, &[database])
    }

    /// And has this role.
    #[must_use]
    pub fn role(self, role: Role) -> Self {
        self.and(key::ROLE, &[role.as_str()])
    }

    /// And tag `key` has one of these values (EC2 takes at most 200 values in a request).
    #[must_use]
    pub fn and(mut self, key: &str, values: &[&str]) -> Self {
        self.0.insert(key.to_owned(), values.iter().map(|&value| value.to_owned()).collect());
        self
    }

    /// Tag keys and the values allowed.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(key, values)| (key.as_str(), values.as_slice()))
    }
}
