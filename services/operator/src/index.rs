//! Which objects of a kind belong to what, without going through all of them: keys by what they belong to, kept beside a store.
//!
//! What the index tells is a hint: whoever reads the store by it looks at the object again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use kube::runtime::watcher::Event;

use crate::store::Key;

/// Objects by what they belong to.
#[derive(Debug, Default)]
pub(crate) struct Index {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Table,
    /// What a list has shown so far.
    next: Table,
}

#[derive(Debug, Default)]
struct Table {
    /// In order; nearly always it is one.
    objects: HashMap<Arc<str>, Vec<Key>>,
    owners: HashMap<Key, Arc<str>>,
}

impl Index {
    /// Takes in what a watch tells, after the store did.
    pub(crate) fn take_in<K: Resource>(&self, event: &Event<Box<K>>, owner: impl Fn(&K) -> Option<String>) {
        let mut state = self.lock();
        match event {
            Event::Init => state.next = Table::default(),
            Event::InitApply(object) => state.next.put(&**object, owner(object)),
            Event::InitDone => state.current = std::mem::take(&mut state.next),
            Event::Apply(object) => state.current.put(&**object, owner(object)),
            Event::Delete(object) => state.current.put(&**object, None),
        }
    }

    /// The objects that belong to this.
    pub(crate) fn of(&self, owner: &str) -> Vec<Key> {
        self.lock().current.objects.get(owner).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn put<K: Resource>(&mut self, object: &K, owner: Option<String>) {
        // Most kinds have no index: where nothing is in it, and nothing is to be, nobody's key is made.
        if owner.is_none() && self.owners.is_empty() {
            return;
        }
        let key = Key::of(object);
        if let Some(before) = self.owners.remove(&key)
            && let Some(objects) = self.objects.get_mut(&before)
        {
            objects.retain(|object| *object != key);
            if objects.is_empty() {
                self.objects.remove(&before);
            }
        }
        let Some(owner) = owner else { return };
        // One text for both: there are many.
        let owner = self
            .objects
            .get_key_value(&*owner)
            .map_or_else(|| owner.as_str().into(), |(known, _)| Arc::clone(known));
        self.owners.insert(key.clone(), Arc::clone(&owner));
        match self.objects.get_mut(&owner) {
            Some(objects) => {
                let place = objects.partition_point(|object| *object < key);
                objects.insert(place, key);
            }
            None => {
                self.objects.insert(owner, vec![key]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::ResourceExt as _;
    use kube::core::ObjectMeta;

    use super::*;
    use crate::watch::boxed;

    fn node(name: &str, of: Option<&str>) -> Node {
        let labels = of.map(|of| [("of".to_owned(), of.to_owned())].into());
        Node {
            metadata: ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() },
            ..Node::default()
        }
    }

    fn names(index: &Index, owner: &str) -> Vec<String> {
        index.of(owner).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_name_in_two_namespaces_is_two() {
        let index = Index::default();
        let tell = |event| index.take_in(&boxed::of(event, Box::new), |_: &Node| Some("k".to_owned()));
        let within = |namespace: &str| {
            let mut object = node("n", None);
            object.metadata.namespace = Some(namespace.to_owned());
            object
        };
        tell(Event::Apply(within("a")));
        tell(Event::Apply(within("b")));
        assert_eq!(names(&index, "k"), ["a/n", "b/n"]);
        tell(Event::Delete(within("a")));
        assert_eq!(names(&index, "k"), ["b/n"]);
    }

    #[test]
    fn names_follow_what_a_watch_tells() {
        let index = Index::default();
        let of = |node: &Node| node.labels().get("of").cloned();
        let tell = |event: Event<Node>| index.take_in(&boxed::of(event, Box::new), of);
        let check = |key: &str, expected: &[&str]| assert_eq!(names(&index, key), expected, "{key}");
        tell(Event::Apply(node("n1", Some("a"))));
        tell(Event::Apply(node("n2", Some("a"))));
        tell(Event::Apply(node("n3", None)));
        check("a", &["n1", "n2"]);
        tell(Event::Apply(node("n1", Some("b"))));
        check("a", &["n2"]);
        check("b", &["n1"]);
        tell(Event::Init);
        tell(Event::InitApply(node("n4", Some("a"))));
        check("a", &["n2"]);
        tell(Event::InitDone);
        check("a", &["n4"]);
        check("b", &[]);
        tell(Event::Delete(node("n4", Some("a"))));
        check("a", &[]);
        let state = index.lock();
        assert!(
            state.current.objects.is_empty() && state.current.owners.is_empty(),
            "nothing is kept of what is gone"
        );
    }
}
