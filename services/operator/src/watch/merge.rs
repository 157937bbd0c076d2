//! One kind watched in several namespaces as if in one place: what their watches tell, put in the order in which a single
//! watch would have told it.
//!
//! *Invariant:* nothing is shown before every namespace was listed or was refused to us, so that a store that is full shows
//! all that may be seen. *Invariant:* a namespace that is refused holds no other up.

use std::collections::HashSet;

use kube::ResourceExt;
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;

/// What was told by now.
pub(super) struct Merge<K> {
    parts: Vec<Part<K>>,
    /// Whether a first list of everything was passed on.
    shown: bool,
}

/// One place.
struct Part<K> {
    /// Its namespace; none for the whole cluster.
    place: Option<String>,
    /// What was told and not passed on.
    held: Vec<K>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Refused,
    Listed,
}

/// What is to be passed on.
pub(super) struct Told<K> {
    pub(super) events: Vec<Event<K>>,
    /// Places of which all that there is can be seen from here on.
    pub(super) listed: Vec<usize>,
}

impl<K> Told<K> {
    pub(super) const NOTHING: Self = Self { events: Vec::new(), listed: Vec::new() };

    fn one(event: Event<K>) -> Self {
        Self { events: vec![event], listed: Vec::new() }
    }
}

impl<K: ResourceExt + Clone> Merge<K>
where
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    pub(super) fn new(places: Vec<Option<String>>) -> Self {
        let part = |place| Part { place, held: Vec::new(), state: State::Waits };
        Self { parts: places.into_iter().map(part).collect(), shown: false }
    }

    /// Takes in what the watch of one place tells; `store` shows what was passed on by now.
    pub(super) fn take_in(&mut self, source: usize, event: Event<K>, store: &Store<K>) -> Told<K> {
        if self.parts.len() == 1 {
            let listed = if matches!(event, Event::InitDone) { vec![0] } else { Vec::new() };
            return Told { events: vec![event], listed };
        }
        let (shown, part) = (self.shown, &mut self.parts[source]);
        match event {
            Event::Init => part.held.clear(),
            Event::InitApply(object) => part.held.push(object),
            Event::InitDone if shown => return part.listed_again(source, store),
            Event::InitDone => {
                part.state = State::Listed;
                return self.show();
            }
            event @ (Event::Apply(_) | Event::Delete(_)) if shown => return Told::one(event),
            Event::Apply(object) => {
                part.drop_held(&object);
                part.held.push(object);
            }
            Event::Delete(object) => part.drop_held(&object),
        }
        Told::NOTHING
    }

    /// We may not list one place.
    pub(super) fn refuse(&mut self, source: usize) -> Told<K> {
        if self.parts.len() == 1 || self.parts[source].state != State::Waits {
            return Told::NOTHING;
        }
        self.parts[source].state = State::Refused;
        self.show()
    }

    /// Everything at once, when nothing more is waited for.
    fn show(&mut self) -> Told<K> {
        let has = |state: State| self.parts.iter().any(|part| part.state == state);
        if self.shown || has(State::Waits) || !has(State::Listed) {
            return Told::NOTHING;
        }
        self.shown = true;
        let mut told = Told::one(Event::Init);
        for (number, part) in self.parts.iter_mut().enumerate() {
            if part.state == State::Listed {
                told.events.extend(std::mem::take(&mut part.held).into_iter().map(Event::InitApply));
                told.listed.push(number);
            }
        }
        told.events.push(Event::InitDone);
        told
    }
}

impl<K: ResourceExt + Clone> Part<K>
where
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    fn drop_held(&mut self, object: &K) {
        self.held.retain(|held| key(held) != key(object));
    }

    /// A list of one place among others: what it has, and what it has no more.
    fn listed_again(&mut self, source: usize, store: &Store<K>) -> Told<K> {
        self.state = State::Listed;
        let listed = std::mem::take(&mut self.held);
        let there: HashSet<_> = listed.iter().map(key).collect();
        let gone =
            store.state_filter(|known| known.namespace() == self.place && !there.contains(&key(known)));
        let gone = gone.into_iter().map(|known| Event::Delete((*known).clone()));
        let events = gone.chain(listed.into_iter().map(Event::Apply)).collect();
        Told { events, listed: vec![source] }
    }
}

fn key<K: ResourceExt>(object: &K) -> (Option<String>, String) {
    (object.namespace(), object.name_any())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use kube::runtime::reflector;
    use kube::runtime::reflector::store::Writer;

    use super::*;

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
            let (store, writer) = reflector::store();
            let places = places.iter().map(|place| Some((*place).to_owned())).collect();
            Self { merge: Merge::new(places), store, writer, listed: Vec::new() }
        }

        fn pass_on(&mut self, told: Told<ConfigMap>) -> String {
            self.listed.extend(told.listed);
            for event in &told.events {
                self.writer.apply_watcher_event(event);
            }
            told.events.iter().map(word).collect::<Vec<_>>().join(" ")
        }

        fn tell(&mut self, source: usize, event: Event<ConfigMap>) -> String {
            let told = self.merge.take_in(source, event, &self.store);
            self.pass_on(told)
        }

        fn list(&mut self, source: usize, found: &[ConfigMap]) -> String {
            assert_eq!(self.tell(source, Event::Init), "");
            for each in found {
                assert_eq!(self.tell(source, Event::InitApply(each.clone())), "");
            }
            self.tell(source, Event::InitDone)
        }

        fn known(&self) -> Vec<String> {
            let mut known: Vec<_> = self.store.state().iter().map(|map| text(map)).collect();
            known.sort();
            known
        }
    }

    fn text(map: &ConfigMap) -> String {
        format!("{}/{}", map.namespace().unwrap_or_default(), map.name_any())
    }

    fn word(event: &Event<ConfigMap>) -> String {
        match event {
            Event::Init => "init".to_owned(),
            Event::InitDone => "done".to_owned(),
            Event::InitApply(map) | Event::Apply(map) => format!("+{}", text(map)),
            Event::Delete(map) => format!("-{}", text(map)),
        }
    }

    #[test]
    fn nothing_is_shown_before_every_place_was_listed() {
        let mut stand = Stand::new(&["a", "b"]);
        assert_eq!(stand.list(0, &[map("a", "1"), map("a", "2")]), "");
        assert_eq!(stand.tell(0, Event::Apply(map("a", "3"))), "");
        assert_eq!(stand.tell(0, Event::Delete(map("a", "1"))), "");
        assert!(stand.known().is_empty() && stand.listed.is_empty());
        assert_eq!(stand.list(1, &[map("b", "1")]), "init +a/2 +a/3 +b/1 done");
        assert_eq!(
            (stand.known(), stand.listed),
            (["a/2", "a/3", "b/1"].map(str::to_owned).into(), vec![0, 1])
        );
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
    fn a_place_that_is_refused_holds_no_other_up_and_may_come_later() {
        let mut stand = Stand::new(&["a", "b"]);
        let told = stand.merge.refuse(0);
        assert_eq!(stand.pass_on(told), "", "that all are refused is not that all are empty");
        assert_eq!(stand.list(1, &[map("b", "1")]), "init +b/1 done");
        assert_eq!(stand.listed, [1]);
        assert_eq!(stand.list(0, &[map("a", "1")]), "+a/1");
        assert_eq!((stand.known(), &*stand.listed), (["a/1", "b/1"].map(str::to_owned).into(), &[1, 0][..]));
        let told = stand.merge.refuse(0);
        assert_eq!(stand.pass_on(told), "", "what was seen stays seen");
    }

    #[test]
    fn what_was_listed_by_half_is_not_shown() {
        let mut stand = Stand::new(&["a", "b"]);
        stand.tell(0, Event::Init);
        stand.tell(0, Event::InitApply(map("a", "1")));
        let told = stand.merge.refuse(0);
        stand.pass_on(told);
        assert_eq!(stand.list(1, &[map("b", "1")]), "init +b/1 done");
    }
}
