//! Which objects of a kind belong to what, without going through all of them: names by key, kept beside a store.
//!
//! What lies in a namespace goes by `namespace/name`. What the index tells is a hint: whoever reads the store by it looks at the
//! object again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// Names by key.
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
    names: HashMap<String, BTreeSet<String>>,
    keys: HashMap<String, String>,
}

impl Index {
    /// Takes in what a watch tells, after the store did.
    pub(crate) fn take_in<K: ResourceExt>(&self, event: &Event<K>, key: impl Fn(&K) -> Option<String>) {
        let mut state = self.lock();
        match event {
            Event::Init => state.next = Table::default(),
            Event::InitApply(object) => state.next.put(name(object), key(object)),
            Event::InitDone => state.current = std::mem::take(&mut state.next),
            Event::Apply(object) => state.current.put(name(object), key(object)),
            Event::Delete(object) => state.current.put(name(object), None),
        }
    }

    /// Names of the objects with this key.
    pub(crate) fn names(&self, key: &str) -> Vec<String> {
        self.lock().current.names.get(key).into_iter().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name<K: ResourceExt>(object: &K) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

impl Table {
    fn put(&mut self, name: String, key: Option<String>) {
        let before = match &key {
            Some(key) => self.keys.insert(name.clone(), key.clone()),
            None => self.keys.remove(&name),
        };
        if let Some(before) = before
            && let Some(names) = self.names.get_mut(&before)
        {
            names.remove(&name);
            if names.is_empty() {
                self.names.remove(&before);
            }
        }
        if let Some(key) = key {
            self.names.entry(key).or_default().insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::core::ObjectMeta;

    use super::*;

    fn node(name: &str, of: Option<&str>) -> Node {
        let labels = of.map(|of| [("of".to_owned(), of.to_owned())].into());
        Node {
            metadata: ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() },
            ..Node::default()
        }
    }

    #[test]
    fn the_same_name_in_two_namespaces_is_two() {
        let index = Index::default();
        let tell = |event| index.take_in(&event, |_: &Node| Some("k".to_owned()));
        let within = |namespace: &str| {
            let mut object = node("n", None);
            object.metadata.namespace = Some(namespace.to_owned());
            object
        };
        tell(Event::Apply(within("a")));
        tell(Event::Apply(within("b")));
        assert_eq!(index.names("k"), ["a/n", "b/n"]);
        tell(Event::Delete(within("a")));
        assert_eq!(index.names("k"), ["b/n"]);
    }

    #[test]
    fn names_follow_what_a_watch_tells() {
        let index = Index::default();
        let tell = |event: Event<Node>| index.take_in(&event, |node| node.labels().get("of").cloned());
        let check = |key: &str, expected: &[&str]| assert_eq!(index.names(key), expected, "{key}");
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
            state.current.names.is_empty() && state.current.keys.is_empty(),
            "nothing is kept of what is gone"
        );
    }
}
