//! Where an object of a kind lies.

use std::fmt;

use kube::Resource;
use kube::core::ObjectMeta;
use kube::runtime::reflector::{Lookup, ObjectRef};

/// `namespace/name`, or the name alone of what lies in no namespace: one text, because there are many of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(Box<str>);

impl Key {
    pub(crate) fn new(namespace: Option<&str>, name: &str) -> Self {
        Self(match namespace {
            Some(namespace) => [namespace, "/", name].concat().into(),
            None => name.into(),
        })
    }

    /// Of an object.
    pub(crate) fn of<K: Resource>(object: &K) -> Self {
        let ObjectMeta { namespace, name, .. } = object.meta();
        Self::new(namespace.as_deref(), name.as_deref().unwrap_or_default())
    }

    /// Of what somebody refers to.
    pub(crate) fn to<K: Lookup>(reference: &ObjectRef<K>) -> Self {
        Self::new(reference.namespace.as_deref(), &reference.name)
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    pub(crate) fn reference<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        let reference = ObjectRef::new(self.name());
        match self.namespace() {
            Some(namespace) => reference.within(namespace),
            None => reference,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    use super::*;

    #[test]
    fn a_key_says_where_an_object_lies() {
        let one = Key::new(Some("n"), "a");
        assert_eq!((one.namespace(), one.name(), one.to_string()), (Some("n"), "a", "n/a".to_owned()));
        let reference = one.reference::<ConfigMap>();
        assert_eq!(reference, ObjectRef::new("a").within("n"));
        assert_eq!(Key::to(&reference), one);
        let node = Key::new(None, "a");
        assert_eq!(
            (node.namespace(), node.name(), node.reference::<Node>()),
            (None, "a", ObjectRef::new("a"))
        );
        assert_ne!(one, node);
    }
}
