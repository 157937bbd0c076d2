//! The watches of one kind, one for each place, as one stream that keeps one store up to date.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client, ResourceExt as _};

use super::answer::{self, Answers};
use super::boxed::Boxed;
use super::ear::{self, Said};
use super::merge::{Merge, Told};
use super::state::Watches;
use crate::kept::Kept;
use crate::store::{Former, Store, Writer};

/// Where a kind is watched.
pub(crate) struct Source<K> {
    /// The namespace; none for the whole cluster.
    pub(super) place: Option<String>,
    pub(super) api: Api<K>,
    pub(super) answers: Answers,
}

impl<K> Source<K> {
    /// `api` makes the API of that place out of a client.
    pub(crate) fn new(
        client: &Client,
        place: Option<String>,
        api: impl FnOnce(Client, Option<&str>) -> Api<K>,
    ) -> Self {
        let (client, answers) = answer::heeded(client, answer::ANSWER, answer::AT_ONCE);
        Self { api: api(client, place.as_deref()), answers, place }
    }

    pub(crate) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }
}

/// What one watch said.
pub(crate) enum Heard {
    /// It has said nothing for long.
    Silence,
    /// A list is begun, or shown by half, which is not yet an answer.
    Begun,
    /// The API server began to serve it, which is something only if it lasts.
    Answered,
    /// It works.
    Works,
    /// It broke and is begun again.
    Broke(Error),
}

impl Heard {
    pub(super) const fn of<K>(event: &Event<K>) -> Self {
        match event {
            Event::Init | Event::InitApply(_) => Self::Begun,
            Event::InitDone | Event::Apply(_) | Event::Delete(_) => Self::Works,
        }
    }
}

/// What there is to know after one watch said something.
pub(crate) struct News<K: Kept> {
    /// Which of them.
    pub(crate) source: usize,
    pub(crate) heard: Heard,
    /// What changed; the store shows all of it.
    pub(crate) changes: Vec<Change<K>>,
    /// Whether all that there is in the place can be seen from here on.
    pub(crate) listed: bool,
}

/// A change that the store shows by now.
pub(crate) struct Change<K: Kept> {
    pub(crate) event: Event<Box<K>>,
    /// At the end of a list, and after a change: what is shown another way than before, or no more.
    pub(crate) former: Former<K>,
    /// What a single object was before it changed. Not of databases: whose those are never changes.
    pub(crate) before: Option<Arc<K>>,
}

impl<K: Kept> Change<K> {
    pub(crate) fn of(event: Event<Box<K>>, former: Former<K>) -> Self {
        let may_differ = matches!(event, Event::Apply(_)) && !K::IS_DATABASE;
        // Unpacked once, for all who ask, if it was not anyway.
        let before = if may_differ { former.one() } else { None };
        Self { event, former, before }
    }
}

/// What one watch said, by its number.
type Numbered<K> = (usize, Said<Box<K>>);

/// The watches of one kind.
pub(crate) struct Merged<K: Kept> {
    watches: BoxStream<'static, Numbered<K>>,
    merge: Merge<K>,
    writer: Writer<K>,
    store: Store<K>,
}

impl<K: Kept> Merged<K> {
    pub(crate) fn new(
        sources: Vec<Source<Boxed<K>>>,
        config: &watcher::Config,
        (writer, watches): (Writer<K>, &Watches),
    ) -> Self {
        let places = sources.iter().map(|source| source.place.clone()).collect();
        let numbered = sources.into_iter().enumerate();
        let each = numbered.map(|(number, source)| said(number, source, config, watches));
        let mut each: Vec<_> = each.collect();
        // Who chooses among them allocates for each object of a list; of one alone nobody has to.
        let watches =
            if each.len() == 1 { each.remove(0) } else { futures::stream::select_all(each).boxed() };
        Self { watches, merge: Merge::new(places), store: writer.store(), writer }
    }

    /// What one of the watches says next; none once all ended, which they do not by themselves.
    pub(crate) async fn next(&mut self) -> Option<News<K>> {
        let (source, said) = self.watches.next().await?;
        let (heard, told) = match said {
            Said::Silence => (Heard::Silence, Told::NOTHING),
            Said::Answered => (Heard::Answered, Told::NOTHING),
            Said::Told(Err(error)) => (Heard::Broke(error), Told::NOTHING),
            Said::Told(Ok(event)) => {
                let heard = Heard::of(&event);
                (heard, self.merge.take_in(source, event, &self.store))
            }
        };
        let taken_in = told.events.into_iter().map(|event| {
            let former = self.writer.take_in(&event);
            Change::of(event, former)
        });
        Some(News { source, heard, changes: taken_in.collect(), listed: told.listed })
    }
}

fn said<K: Kept>(
    number: usize,
    source: Source<Boxed<K>>,
    config: &watcher::Config,
    watches: &Watches,
) -> BoxStream<'static, Numbered<K>> {
    let anew = watches.standing().anew();
    let stream = K::watched(source.api, source.place.as_deref(), config.clone(), anew);
    let stream = stream.filter(|event| std::future::ready(may_be_ours(event))).modify(|object| {
        let object: &mut K = object;
        object.managed_fields_mut().clear();
        object.strip();
    });
    ear::listen(stream, source.answers).map(move |said| (number, said)).boxed()
}

fn may_be_ours<K: Kept>(event: &Result<Event<Box<K>>, Error>) -> bool {
    match event {
        Ok(Event::Apply(object) | Event::Delete(object) | Event::InitApply(object)) => K::is_ours(object),
        Ok(Event::Init | Event::InitDone) | Err(_) => true,
    }
}
