//! Kubernetes Events: what was done to a database or a snapshot, for `kubectl describe`. Nobody decides by them, so a failure to write
//! one is logged and forgotten (a namespace on its way out takes none).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use resources::names;

/// How long writing one may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest note that the API server takes, in bytes.
const LONGEST: usize = 1_024;

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
    pub(crate) async fn done<K: Subject>(&self, resource: &K, reason: &str, note: String) {
        self.publish(resource, event(EventType::Normal, reason, &note, &note)).await;
    }

    /// Something is wrong.
    pub(crate) async fn wrong<K: Subject>(&self, resource: &K, reason: &str, note: String) {
        self.publish(resource, event(EventType::Warning, reason, &note, &note)).await;
    }

    /// A step failed; `same` is the note without what differs each time, such as the number of a request.
    pub(crate) async fn failed<K: Subject>(&self, resource: &K, step: &str, note: &str, same: &str) {
        self.publish(resource, event(EventType::Warning, &format!("{step}Failed"), note, same)).await;
    }

    async fn publish<K: Subject>(&self, resource: &K, event: Event) {
        let reference = resource.object_ref(&());
        match tokio::time::timeout(LIMIT, self.0.publish(&event, &reference)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "could not write an event"),
            Err(_) => tracing::debug!("writing an event takes too long"),
        }
    }
}

/// What is told. The recorder counts an event that it told before instead of telling it again, and takes everything for that but
/// another note: `kubectl describe` would show the first note for all that came within minutes. So what makes notes the same goes
/// into the action, which no tool shows.
fn event(type_: EventType, reason: &str, note: &str, same: &str) -> Event {
    let mut hasher = DefaultHasher::new();
    same.hash(&mut hasher);
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note[..note.floor_char_boundary(LONGEST)].to_owned()),
        action: format!("{reason}-{:016x}", hasher.finish()),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_again_is_counted_as_the_same() {
        let action =
            |reason: &str, note: &str, same: &str| event(EventType::Warning, reason, note, same).action;
        let first = action("LaunchFailed", "machine: no capacity (request 1)", "machine: no capacity");
        assert_eq!(first, action("LaunchFailed", "machine: no capacity (request 2)", "machine: no capacity"));
        assert_ne!(first, action("LaunchFailed", "machine: no such image", "machine: no such image"));
        assert_ne!(first, action("AttachFailed", "machine: no capacity", "machine: no capacity"));
        // The API server takes 128 characters.
        assert!(first.len() <= 128);
    }

    #[test]
    fn a_note_is_cut_where_the_api_server_takes_no_more_and_never_within_a_character() {
        let note = |note: &str| event(EventType::Normal, "Ready", note, note).note.unwrap();
        assert_eq!(note("short"), "short");
        let long = format!("a{}", "é".repeat(LONGEST));
        assert_eq!(note(&long).len(), LONGEST - 1);
    }
}
