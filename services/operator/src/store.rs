//! What is seen of the objects of one kind: each packed as text, and unpacked for whoever looks at it.
//!
//! As Kubernetes' types hold it, an object takes four times the memory of its text, and is looked at once an hour. What somebody
//! asks of all objects at once is kept beside the text, as the kind's brief. What changed a moment ago is looked at again and again,
//! and so kept unpacked for a while (`fresh`).
//!
//! *Invariant:* nobody unpacks all objects. *Invariant:* what was packed is unpacked as it was; a text that cannot be read is an
//! error in the log, and the object counts as not seen.

mod fresh;
mod key;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use kube::runtime::watcher::Event;
use tokio::sync::watch;

use self::fresh::Fresh;
pub(crate) use self::key::Key;
use crate::kept::Kept;

type Shelf<K> = HashMap<Key, Packed<K>>;

/// The objects of one kind. Clones share them.
pub(crate) struct Store<K: Kept> {
    shelf: Arc<RwLock<Shelf<K>>>,
    /// *Invariant:* whoever changes it has the shelf to itself, and nobody fills it meanwhile.
    fresh: Arc<Fresh<K>>,
    /// Whether a first list was taken in.
    filled: watch::Receiver<bool>,
}

/// Where the objects of one kind are put: there is one for each store.
pub(crate) struct Writer<K: Kept> {
    shelf: Arc<RwLock<Shelf<K>>>,
    fresh: Arc<Fresh<K>>,
    filled: watch::Sender<bool>,
    /// What a list has shown so far.
    next: Shelf<K>,
    scratch: Vec<u8>,
}

/// An object.
struct Packed<K: Kept> {
    text: Box<str>,
    brief: K::Brief,
}

/// The briefs of all objects; nothing is put into the store meanwhile.
///
/// *Invariant:* nobody who holds them asks the store for anything else.
pub(crate) struct Briefs<'a, K: Kept>(RwLockReadGuard<'a, Shelf<K>>);

/// What a list or a change shows another way than the store did, or no more: as the store showed it.
pub(crate) struct Former<K: Kept> {
    shown: Shelf<K>,
    /// The only one, where it had changed, or been looked at, a moment before.
    unpacked: Option<Arc<K>>,
}

/// An empty store and its writer.
pub(crate) fn store<K: Kept>() -> (Store<K>, Writer<K>) {
    let (filled, receiver) = watch::channel(false);
    let (shelf, fresh) = (Arc::<RwLock<Shelf<K>>>::default(), Arc::<Fresh<K>>::default());
    let writer = Writer {
        shelf: Arc::clone(&shelf),
        fresh: Arc::clone(&fresh),
        filled,
        next: Shelf::default(),
        scratch: Vec::new(),
    };
    (Store { shelf, fresh, filled: receiver }, writer)
}

impl<K: Kept> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { shelf: Arc::clone(&self.shelf), fresh: Arc::clone(&self.fresh), filled: self.filled.clone() }
    }
}

impl<K: Kept> Store<K> {
    /// Waits until a first list was taken in; that it never will be only means that the program ends.
    pub(crate) async fn ready(&self) -> bool {
        self.filled.clone().wait_for(|filled| *filled).await.is_ok()
    }

    /// An object as it was seen last.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        // Until it is dropped nothing changes: what is kept is what this very text says.
        let all = self.read();
        let packed = all.get(key)?;
        if let Some(known) = self.fresh.get(key) {
            return Some(known);
        }
        let object = packed.unpack(key)?;
        self.fresh.keep(key, &object);
        Some(object)
    }

    /// Forgets in time what is kept unpacked; to be waited for as long as there is a writer. It never ends.
    pub(crate) async fn forget_in_time(&self) {
        self.fresh.forget_in_time().await;
    }

    /// What is told by the brief of an object.
    pub(crate) fn told_of<T>(&self, key: &Key, tell: impl FnOnce(&K::Brief) -> T) -> Option<T> {
        self.read().get(key).map(|packed| tell(&packed.brief))
    }

    /// Whether an object is there.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.read().contains_key(key)
    }

    /// How many objects are there.
    pub(crate) fn count(&self) -> usize {
        self.read().len()
    }

    /// All objects that are there.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.read().keys().cloned().collect()
    }

    /// The objects of which this is so.
    pub(crate) fn keys_of(&self, is_so: impl Fn(&Key, &K::Brief) -> bool) -> Vec<Key> {
        self.briefs().iter().filter(|(key, brief)| is_so(key, brief)).map(|(key, _)| key.clone()).collect()
    }

    /// What is known of all objects.
    pub(crate) fn briefs(&self) -> Briefs<'_, K> {
        Briefs(self.read())
    }

    fn read(&self) -> RwLockReadGuard<'_, Shelf<K>> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kept> Briefs<'_, K> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &K::Brief)> {
        self.0.iter().map(|(key, packed)| (key, &packed.brief))
    }
}

impl<K: Kept> Former<K> {
    /// Nothing.
    pub(crate) fn none() -> Self {
        Self { shown: Shelf::default(), unpacked: None }
    }

    /// The one that changed.
    pub(crate) fn one(&self) -> Option<Arc<K>> {
        let unpack = || self.shown.iter().find_map(|(key, packed)| packed.unpack(key));
        self.unpacked.clone().or_else(unpack)
    }

    /// One after the other: there may be many.
    pub(crate) fn objects(&self) -> impl Iterator<Item = K> {
        self.shown.iter().filter_map(|(key, packed)| packed.unpack(key)).map(Arc::unwrap_or_clone)
    }
}

impl<K: Kept> Writer<K> {
    /// Another handle on what is put here.
    pub(crate) fn store(&self) -> Store<K> {
        Store {
            shelf: Arc::clone(&self.shelf),
            fresh: Arc::clone(&self.fresh),
            filled: self.filled.subscribe(),
        }
    }

    /// Takes in what a watch tells. A list is shown once it has ended, and then all of it at once.
    pub(crate) fn take_in(&mut self, event: &Event<Box<K>>) -> Former<K> {
        match event {
            Event::Init => self.next = Shelf::default(),
            Event::InitApply(object) => {
                if let Some(packed) = self.pack(object) {
                    self.next.insert(Key::of(&**object), packed);
                }
            }
            Event::InitDone => return self.turn(),
            Event::Apply(object) => {
                let (key, packed) = (Key::of(&**object), self.pack(object));
                let mut shown = self.write();
                let before = shown.remove_entry(&key);
                let is_same =
                    |before: &Packed<K>| packed.as_ref().is_some_and(|packed| packed.text == before.text);
                let stays = before.as_ref().is_some_and(|(_, before)| is_same(before));
                let unpacked = if stays {
                    None
                } else {
                    let bytes = packed.as_ref().map(|packed| packed.text.len());
                    let before = self.fresh.change(&key, bytes, Instant::now());
                    // It has just been read: nearly always somebody is asked to look at it.
                    self.fresh.told(&key, || (**object).clone());
                    before
                };
                if let Some(packed) = packed {
                    shown.insert(key, packed);
                }
                return Former { shown: before.filter(|_| !stays).into_iter().collect(), unpacked };
            }
            Event::Delete(object) => {
                let key = Key::of(&**object);
                let mut shown = self.write();
                shown.remove(&key);
                self.fresh.change(&key, None, Instant::now());
            }
        }
        Former::none()
    }

    /// A list has ended.
    fn turn(&mut self) -> Former<K> {
        let next = mem::take(&mut self.next);
        let is_same = |key, packed: &Packed<K>| next.get(key).is_some_and(|next| next.text == packed.text);
        // Before it is shown: whoever is concerned is told the sooner afterwards.
        let shown = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let changed = shown.iter().filter(|(key, packed)| !is_same(key, packed));
        let changed: Vec<Key> = changed.map(|(key, _)| key.clone()).collect();
        drop(shown);
        let mut shown = self.write();
        let mut before = mem::replace(&mut *shown, next);
        self.fresh.clear();
        drop(shown);
        self.filled.send_replace(true);
        let shown = changed.iter().filter_map(|key| before.remove_entry(key)).collect();
        Former { shown, unpacked: None }
    }

    fn pack(&mut self, object: &K) -> Option<Packed<K>> {
        self.scratch.clear();
        let written = serde_json::to_writer(&mut self.scratch, object).map_err(|error| error.to_string());
        let text = written.and_then(|()| str::from_utf8(&self.scratch).map_err(|error| error.to_string()));
        match text {
            Ok(text) => Some(Packed { text: text.into(), brief: K::brief(object) }),
            Err(error) => {
                tracing::error!(error, object = %Key::of(object), "an object cannot be kept");
                None
            }
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelf<K>> {
        self.shelf.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kept> Packed<K> {
    fn unpack(&self, key: &Key) -> Option<Arc<K>> {
        // At once where it stays: an object takes kilobytes, and each step here would move it.
        let read = serde_json::from_str(&self.text).map(Arc::new);
        read.inspect_err(
            |error| tracing::error!(%error, object = %key, "an object that is kept cannot be read"),
        )
        .ok()
    }
}
