//! Kubernetes Events: what was done to a database or a snapshot, for `kubectl describe`. Nobody decides by them, so a failure to write
//! one is logged and forgotten (a namespace on its way out takes none).

use std::time::Duration;

use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use resources::names;

/// How long writing one may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest text that the API server takes.
const LONGEST: usize = 1_000;

/// What an event can be about.
pub(crate) trait Subject: Resource<DynamicType = ()> {}

impl<K: Resource<DynamicType = ()>> Subject for K {}

/// Writes events.
#[derive(Clone)]
pub(crate) struct Events(Recorder);

impl Events {
    pub(crate) fn new(client: Client, instance: &str) -> Self {
        let reporter =
            Reporter { controller: names::OPERATOR.to_owned(), instance: Some(instance.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    /// Something was done.
    pub(crate) async fn done<K: Subject>(&self, resource: &K, action: &str, note: String) {
        self.publish(resource, EventType::Normal, action, note).await;
    }

    /// Something went wrong.
    pub(crate) async fn wrong<K: Subject>(&self, resource: &K, action: &str, note: String) {
        self.publish(resource, EventType::Warning, action, note).await;
    }

    async fn publish<K: Subject>(&self, resource: &K, type_: EventType, action: &str, note: String) {
        let note: String = note.chars().take(LONGEST).collect();
        let event = Event {
            type_,
            reason: action.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        let reference = resource.object_ref(&());
        match tokio::time::timeout(LIMIT, self.0.publish(&event, &reference)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "could not write an event"),
            Err(_) => tracing::debug!("writing an event takes too long"),
        }
    }
}
