//! Whether the watches of a kind are still heard of: what they have shown is what there is, or was a moment ago.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::Answers;
use super::merged::Source;

/// The watches of a kind, by their place; none is the whole cluster.
#[derive(Clone)]
pub(crate) struct Hearing(Arc<[(Option<String>, Answers)]>);

impl Hearing {
    /// Of watches that are to be begun.
    pub(crate) fn of<K>(sources: &[Source<K>]) -> Self {
        let each = sources.iter().map(|source| (source.place.clone(), source.answers.clone()));
        Self(each.collect())
    }

    /// Whether the watch of a namespace has said something within this time.
    pub(crate) fn is_heard(&self, namespace: &str, (now, within): (Instant, Duration)) -> bool {
        let is_at = |place: &Option<String>| place.as_deref().is_none_or(|place| place == namespace);
        let mut at = self.0.iter().filter(|(place, _)| is_at(place));
        let lately = |last: Instant| now.saturating_duration_since(last) <= within;
        at.any(|(_, answers)| answers.last().is_some_and(lately))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::WatchParams;

    use super::*;
    use crate::played::{self, Answer};

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn the_watch_of_a_namespace_is_heard_for_a_while_after_its_last_word_and_no_other() {
        let client = played::client(|_, _| Answer::Silence);
        let maps_of = |client, place: Option<&str>| Api::<ConfigMap>::namespaced(client, place.unwrap());
        let sources = ["a", "b"].map(|place| Source::new(&client, Some(place.to_owned()), maps_of));
        let hearing = Hearing::of(&sources);
        let heard = |place: &str, after: Duration| {
            let now = Instant::now() + after;
            hearing.is_heard(place, (now, MINUTE))
        };
        assert!(!heard("a", Duration::ZERO), "nothing was asked yet");
        let _told = sources[0].api.watch(&WatchParams::default(), "1").await.unwrap();
        assert!(heard("a", Duration::ZERO) && !heard("a", MINUTE * 2) && !heard("b", Duration::ZERO));
    }

    #[tokio::test]
    async fn the_watch_of_all_namespaces_is_heard_for_each() {
        let client = played::client(|_, _| Answer::Silence);
        let source = Source::new(&client, None, |client, _| Api::<ConfigMap>::all(client));
        let hearing = Hearing::of(std::slice::from_ref(&source));
        let _told = source.api.watch(&WatchParams::default(), "1").await.unwrap();
        assert!(hearing.is_heard("a", (Instant::now(), MINUTE)));
    }
}
