//! What kube's `applier` holds of an object that turns are taken of. It looks an object up in a store of its own before each
//! turn; the object itself is unpacked when the turn begins, and a ticket only says which it is.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kube::Resource;
use kube::core::ObjectMeta;
use kube::runtime::controller::{Action, Error as TurnError};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;

use crate::kept::Kept;
use crate::store::{self as objects, Key};

/// Which object of a kind a turn is taken of.
pub(crate) struct Ticket<K> {
    pub(crate) key: Key,
    /// The same as kube wants it; made when asked for, because it is much larger.
    metadata: OnceLock<Box<ObjectMeta>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Ticket<K> {
    fn new(key: Key) -> Self {
        Self { key, metadata: OnceLock::new(), kind: PhantomData }
    }
}

impl<K> Clone for Ticket<K> {
    fn clone(&self) -> Self {
        Self::new(self.key.clone())
    }
}

impl<K> fmt::Debug for Ticket<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.key)
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Ticket<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.metadata.get_or_init(|| {
            let (namespace, name) = (self.key.namespace().map(str::to_owned), self.key.name().to_owned());
            Box::new(ObjectMeta { namespace, name: Some(name), ..ObjectMeta::default() })
        })
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        let _made = self.meta();
        self.metadata.get_mut().expect("it was made right above")
    }
}

/// How a turn ended.
type Turn<K, E, Q> = Result<(ObjectRef<Ticket<K>>, Action), TurnError<E, Q>>;

/// The tickets of one kind.
pub(crate) struct Tickets<K: Resource<DynamicType = ()> + 'static> {
    writer: Mutex<Writer<Ticket<K>>>,
    store: Store<Ticket<K>>,
}

impl<K: Kept + Resource<DynamicType = ()>> Tickets<K> {
    /// None yet.
    pub(crate) fn new() -> Self {
        let (store, mut writer) = reflector::store();
        for event in [Event::Init, Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        Self { writer: Mutex::new(writer), store }
    }

    /// Where the applier finds them.
    pub(crate) fn store(&self) -> Store<Ticket<K>> {
        self.store.clone()
    }

    /// A look at an object is asked for; how its ticket is found.
    pub(crate) fn issue(&self, key: Key) -> ObjectRef<Ticket<K>> {
        let found = key.reference();
        if self.store.get(&found).is_none() {
            self.lock().apply_watcher_event(&Event::Apply(Ticket::new(key)));
        }
        found
    }

    /// The object of a turn that is over, if there is no such object any more: its ticket is withdrawn. To be called by whoever
    /// issues tickets, between two of them, lest one be withdrawn that was issued because the object is there again.
    pub(crate) fn gone<E, Q>(&self, objects: &objects::Store<K>, turn: &Turn<K, E, Q>) -> Option<Key> {
        let key = of_turn(turn).filter(|key| !objects.has(key))?;
        self.lock().apply_watcher_event(&Event::Delete(Ticket::new(key.clone())));
        Some(key)
    }

    fn lock(&self) -> MutexGuard<'_, Writer<Ticket<K>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of which object a turn was, or was to be.
fn of_turn<K: Resource<DynamicType = ()>, E, Q>(turn: &Turn<K, E, Q>) -> Option<Key> {
    match turn {
        Ok((ticket, _)) => Some(Key::to(ticket)),
        Err(TurnError::ObjectNotFound(missing) | TurnError::ReconcilerFailed(_, missing)) => {
            Some(Key::to(missing))
        }
        Err(TurnError::QueueError(_) | TurnError::RunnerError(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use resources::QuestDB;
    use serde_json::json;

    use super::*;

    type Ended = Turn<QuestDB, Infallible, Infallible>;

    #[test]
    fn a_ticket_is_found_from_its_issue_until_a_turn_of_what_is_gone_is_over() {
        let (tickets, key) = (Tickets::<QuestDB>::new(), Key::new(Some("n"), "a"));
        let found = tickets.issue(key.clone());
        assert_eq!(found, tickets.issue(key.clone()));
        let ticket = tickets.store().get(&found).unwrap();
        assert_eq!((tickets.store().len(), &ticket.key), (1, &key));
        assert!(ticket.metadata.get().is_none(), "what is large is not kept");
        let (objects, mut writer) = objects::store();
        let spec = serde_json::from_value(json!({ "storage": { "sizeGib": 20 } })).unwrap();
        let mut object = QuestDB::new("a", spec);
        object.metadata.namespace = Some("n".to_owned());
        writer.take_in(&Event::Apply(Box::new(object.clone())));
        let ended = || -> Ended { Ok((found.clone(), Action::await_change())) };
        assert_eq!(tickets.gone(&objects, &ended()), None);
        assert_eq!(tickets.store().len(), 1, "it is needed again");
        writer.take_in(&Event::Delete(Box::new(object)));
        assert_eq!(tickets.gone(&objects, &ended()), Some(key.clone()));
        assert!(tickets.store().is_empty());
        // A turn that was due before and has no ticket any more.
        let missing: Ended = Err(TurnError::ObjectNotFound(Box::new(found.clone().erase())));
        assert_eq!(tickets.gone(&objects, &missing), Some(key));
    }

    #[test]
    fn a_ticket_has_the_name_of_its_object() {
        let mut ticket = Ticket::<QuestDB>::new(Key::new(Some("n"), "a"));
        assert_eq!(ObjectRef::from_obj(&ticket), ObjectRef::new("a").within("n"));
        ticket.meta_mut().name = Some("b".to_owned());
        assert_eq!(ticket.meta().name.as_deref(), Some("b"));
    }
}
