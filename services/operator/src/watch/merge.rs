//! One kind watched in several namespaces as if in one place: what their watches tell, put in the order in which a single
//! watch would have told it.
//!
//! *Invariant:* of a namespace nothing is shown before it was listed to the end, and then all of it at once. *Invariant:* what
//! one namespace tells, or does not, holds no other up. So a store that is full shows some namespaces whole and others not at
//! all: which, is for the table of watches to say.

use std::collections::HashSet;
use std::sync::Arc;

use kube::runtime::watcher::Event;

use crate::kept::Kept;
use crate::store::{Key, Store};

/// What was told by now.
pub(super) struct Merge<K> {
    parts: Vec<Part<K>>,
    /// Whether a first list was passed on as such.
    shown: bool,
}

/// One place.
struct Part<K> {
    /// Its namespace; none for the whole cluster.
    place: Option<String>,
    /// What was told and not passed on.
    held: Vec<Box<K>>,
    /// Whether it was listed to the end.
    listed: bool,
}

/// What is to be passed on.
pub(super) struct Told<K> {
    pub(super) events: Vec<Event<Box<K>>>,
    /// Whether all that there is in the place can be seen from here on.
    pub(super) listed: bool,
}

impl<K> Told<K> {
    pub(super) const NOTHING: Self = Self { events: Vec::new(), listed: false };

    fn one(event: Event<Box<K>>) -> Self {
        Self { events: vec![event], listed: false }
    }
}

impl<K: Kept> Merge<K> {
    pub(super) fn new(places: Vec<Option<String>>) -> Self {
        let part = |place| Part { place, held: Vec::new(), listed: false };
        Self { parts: places.into_iter().map(part).collect(), shown: false }
    }

    /// Takes in what the watch of one place tells; `store` shows what was passed on by now.
    pub(super) fn take_in(&mut self, source: usize, event: Event<Box<K>>, store: &Store<K>) -> Told<K> {
        if self.parts.len() == 1 {
            return Told { listed: matches!(event, Event::InitDone), events: vec![event] };
        }
        let part = &mut self.parts[source];
        match event {
            Event::Init => part.held.clear(),
            Event::InitApply(object) => part.held.push(object),
            Event::InitDone => return part.show(!std::mem::replace(&mut self.shown, true), store),
            event @ (Event::Apply(_) | Event::Delete(_)) if part.listed => return Told::one(event),
            Event::Apply(object) => {
                part.drop_held(&object);
                part.held.push(object);
            }
            Event::Delete(object) => part.drop_held(&object),
        }
        Told::NOTHING
    }
}

impl<K: Kept> Part<K> {
    fn drop_held(&mut self, object: &K) {
        let (namespace, name) = (&object.meta().namespace, &object.meta().name);
        self.held.retain(|held| held.meta().name != *name || held.meta().namespace != *namespace);
    }

    /// It was listed to the end: the first of all places fills the store, any other adds what it has and takes away what it has
    /// no more.
    fn show(&mut self, first: bool, store: &Store<K>) -> Told<K> {
        self.listed = true;
        let listed = std::mem::take(&mut self.held);
        if first {
            let all = listed.into_iter().map(Event::InitApply);
            let events = std::iter::once(Event::Init).chain(all).chain([Event::InitDone]).collect();
            return Told { events, listed: true };
        }
        let there: HashSet<_> = listed.iter().map(|object| Key::of(&**object)).collect();
        let gone = store.keys_of(|key, _| key.namespace() == self.place.as_deref() && !there.contains(key));
        let gone = gone.iter().filter_map(|key| store.get(key));
        let gone = gone.map(|known| Event::Delete(Box::new(Arc::unwrap_or_clone(known))));
        let events = gone.chain(listed.into_iter().map(Event::Apply)).collect();
        Told { events, listed: true }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    use super::*;
    use crate::store::{self, Writer};
    use crate::watch::boxed;

    fn map(namespace: &str, name: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    struct Stand {
        merge: Merge<ConfigMap>,
        store: Store<ConfigMap>,
        writer: Writer<ConfigMap>,
        listed: Vec<usize>,
    }

    impl Stand {
        fn new(places: &[&str]) -> Self {
            let (store, writer) = store::store();
            let places = places.iter().map(|place| Some((*place).to_owned())).collect();
            Self { merge: Merge::new(places), store, writer, listed: Vec::new() }
        }

        fn pass_on(&mut self, source: usize, told: &Told<ConfigMap>) -> String {
            self.listed.extend(told.listed.then_some(source));
            for event in &told.events {
                self.writer.take_in(event);
            }
            told.events.iter().map(word).collect::<Vec<_>>().join(" ")
        }

        fn tell(&mut self, source: usize, event: Event<ConfigMap>) -> String {
            let told = self.merge.take_in(source, boxed::of(event, Box::new), &self.store);
            self.pass_on(source, &told)
        }

        fn list(&mut self, source: usize, found: &[ConfigMap]) -> String {
            assert_eq!(self.tell(source, Event::Init), "");
            for each in found {
                assert_eq!(self.tell(source, Event::InitApply(each.clone())), "");
            }
            self.tell(source, Event::InitDone)
        }

        fn known(&self) -> Vec<String> {
            let mut known: Vec<_> = self.store.keys().iter().map(ToString::to_string).collect();
            known.sort();
            known
        }
    }

    fn word(event: &Event<Box<ConfigMap>>) -> String {
        match event {
            Event::Init => "init".to_owned(),
            Event::InitDone => "done".to_owned(),
            Event::InitApply(map) | Event::Apply(map) => format!("+{}", Key::of(&**map)),
            Event::Delete(map) => format!("-{}", Key::of(&**map)),
        }
    }

    #[test]
    fn a_place_is_shown_once_it_was_listed_whatever_the_others_do() {
        let mut stand = Stand::new(&["a", "b", "c"]);
        // One is listed by half and refused from there on, another never answers.
        stand.tell(0, Event::Init);
        stand.tell(0, Event::InitApply(map("a", "1")));
        assert!(stand.known().is_empty() && stand.listed.is_empty());
        assert_eq!(stand.list(1, &[map("b", "1")]), "init +b/1 done");
        assert_eq!((stand.known(), &*stand.listed), (vec!["b/1".to_owned()], &[1][..]));
        assert_eq!(stand.tell(1, Event::Apply(map("b", "2"))), "+b/2");
        assert_eq!(stand.tell(0, Event::Apply(map("a", "3"))), "", "not before it was listed");
        // What it showed by half is not what it has.
        assert_eq!(stand.list(0, &[map("a", "2")]), "+a/2");
        assert_eq!(
            (stand.known(), &*stand.listed),
            (["a/2", "b/1", "b/2"].map(str::to_owned).into(), &[1, 0][..])
        );
    }

    #[test]
    fn what_changes_before_a_list_ends_is_shown_with_it() {
        let mut stand = Stand::new(&["a", "b"]);
        stand.tell(0, Event::Init);
        for name in ["1", "2"] {
            stand.tell(0, Event::InitApply(map("a", name)));
        }
        assert_eq!(stand.tell(0, Event::Apply(map("a", "3"))), "");
        assert_eq!(stand.tell(0, Event::Delete(map("a", "1"))), "");
        assert!(stand.known().is_empty() && stand.listed.is_empty());
        assert_eq!(stand.tell(0, Event::InitDone), "init +a/2 +a/3 done");
    }

    #[test]
    fn a_place_that_is_empty_is_listed_as_well() {
        let mut stand = Stand::new(&["a", "b"]);
        assert_eq!((stand.list(0, &[]), stand.list(1, &[])), ("init done".to_owned(), String::new()));
        assert_eq!(stand.listed, [0, 1]);
    }

    #[test]
    fn a_list_of_one_place_says_nothing_of_the_others() {
        let mut stand = Stand::new(&["a", "b"]);
        stand.list(0, &[map("a", "1"), map("a", "2")]);
        stand.list(1, &[map("b", "1")]);
        // The same names in another namespace stay.
        assert_eq!(stand.list(0, &[map("a", "2"), map("a", "3")]), "-a/1 +a/2 +a/3");
        assert_eq!(stand.known(), ["a/2", "a/3", "b/1"]);
        assert_eq!(stand.tell(1, Event::Delete(map("b", "1"))), "-b/1");
        assert_eq!(stand.known(), ["a/2", "a/3"]);
    }

    #[test]
    fn while_a_place_is_listed_anew_what_it_showed_stands() {
        let mut stand = Stand::new(&["a", "b"]);
        stand.list(0, &[map("a", "1")]);
        stand.list(1, &[map("b", "1")]);
        stand.tell(1, Event::Init);
        stand.tell(1, Event::InitApply(map("b", "2")));
        assert_eq!(stand.known(), ["a/1", "b/1"]);
        assert_eq!(stand.tell(1, Event::InitDone), "-b/1 +b/2");
    }

    #[test]
    fn one_place_alone_tells_as_its_watch_does() {
        let mut stand = Stand::new(&["a"]);
        assert_eq!(stand.tell(0, Event::Init), "init");
        assert_eq!(stand.tell(0, Event::InitApply(map("a", "1"))), "+a/1");
        assert!(stand.listed.is_empty());
        assert_eq!((stand.tell(0, Event::InitDone), stand.listed), ("done".to_owned(), vec![0]));
    }
}
