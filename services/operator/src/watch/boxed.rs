//! Events of objects in boxes. An object takes up to four kilobytes, and what a watch tells goes through a dozen streams, each of
//! which moves what it passes on.

use kube::runtime::watcher::Event;

/// The same event of another object.
pub(crate) fn of<A, B>(event: Event<A>, other: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Apply(object) => Event::Apply(other(object)),
        Event::Delete(object) => Event::Delete(other(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(other(object)),
        Event::InitDone => Event::InitDone,
    }
}

/// The event of the object itself: for who only reads its metadata, which are small.
pub(super) fn open<K>(event: Event<Box<K>>) -> Event<K> {
    of(event, |object| *object)
}
