//! The watches of one kind, one for each place, as one stream that keeps one store up to date.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Error, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::merge::{Merge, Told};
use crate::kept::Kept;

/// A watch that broke and has been silent for so long works: what is begun anew without success says so sooner, and what
/// succeeds says nothing before something changes.
pub(crate) const SILENCE: Duration = Duration::from_secs(90);

/// Pauses between attempts that fail, from a second to half a minute. They grow although each attempt at a list begins with an
/// event that says nothing, and begin anew two minutes after the last.
#[derive(Default)]
pub(crate) struct Pauses(watcher::DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {}
}

/// Where a kind is watched.
pub(crate) struct Source<K> {
    /// The namespace; none for the whole cluster.
    pub(crate) place: Option<String>,
    pub(crate) api: Api<K>,
}

/// What one watch said.
pub(crate) enum Heard {
    /// It has said nothing for long.
    Silence,
    /// A list is begun, or shown by half, which is not yet an answer.
    Begun,
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
pub(crate) struct News<K> {
    /// Which of them.
    pub(crate) source: usize,
    pub(crate) heard: Heard,
    /// What changed; the store shows all of it.
    pub(crate) events: Vec<Event<K>>,
    /// Whether all that there is in the place can be seen from here on.
    pub(crate) listed: bool,
}

type Said<K> = (usize, Option<Result<Event<K>, Error>>);

/// The watches of one kind.
pub(crate) struct Merged<K: Resource + Clone + 'static>
where
    K::DynamicType: Hash + Eq + Clone,
{
    watches: SelectAll<BoxStream<'static, Said<K>>>,
    merge: Merge<K>,
    writer: Writer<K>,
    store: Store<K>,
}

impl<K> Merged<K>
where
    K: Kept + Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    pub(crate) fn new(sources: Vec<Source<K>>, config: &watcher::Config, writer: Writer<K>) -> Self {
        let places = sources.iter().map(|source| source.place.clone()).collect();
        let watches =
            sources.into_iter().enumerate().map(|(number, source)| said(number, source.api, config));
        Self {
            watches: futures::stream::select_all(watches),
            merge: Merge::new(places),
            store: writer.as_reader(),
            writer,
        }
    }

    /// What one of the watches says next; none once all ended, which they do not by themselves.
    pub(crate) async fn next(&mut self) -> Option<News<K>> {
        let (source, said) = self.watches.next().await?;
        let (heard, told) = match said {
            None => (Heard::Silence, Told::NOTHING),
            Some(Err(error)) => (Heard::Broke(error), Told::NOTHING),
            Some(Ok(event)) => (Heard::of(&event), self.merge.take_in(source, event, &self.store)),
        };
        for event in &told.events {
            self.writer.apply_watcher_event(event);
        }
        Some(News { source, heard, events: told.events, listed: told.listed })
    }
}

/// One watch, which also tells of its silence.
fn said<K>(number: usize, api: Api<K>, config: &watcher::Config) -> BoxStream<'static, Said<K>>
where
    K: Kept + Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let stream = watch(api, config.clone())
        .backoff(Pauses::default())
        .filter(|event| std::future::ready(may_be_ours(event)))
        .modify(|object| {
            object.managed_fields_mut().clear();
            object.strip();
        });
    let next = |mut stream: std::pin::Pin<Box<_>>| async move {
        match tokio::time::timeout(SILENCE, futures::StreamExt::next(&mut stream)).await {
            Ok(said) => said.map(|said| (Some(said), stream)),
            Err(_) => Some((None, stream)),
        }
    };
    futures::stream::unfold(Box::pin(stream), next).map(move |said| (number, said)).boxed()
}

fn may_be_ours<K: Kept>(event: &Result<Event<K>, Error>) -> bool {
    match event {
        Ok(Event::Apply(object) | Event::Delete(object) | Event::InitApply(object)) => object.is_ours(),
        Ok(Event::Init | Event::InitDone) | Err(_) => true,
    }
}
