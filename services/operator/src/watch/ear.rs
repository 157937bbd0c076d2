//! One watch heard out: what it tells, when it is answered, and that it says nothing.

use std::pin::Pin;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{Error, Event};

use super::answer::Answers;

/// A watch that was answered, and did not break for so long, works.
pub(crate) const LIVED: Duration = Duration::from_secs(30);

/// What a watch said.
pub(super) enum Said<K> {
    /// Nothing for long.
    Silence,
    /// It was answered. Told before whatever came after it.
    Answered,
    Told(Result<Event<K>, Error>),
}

struct Ear<S: Stream> {
    stream: Pin<Box<S>>,
    answers: Answers,
    /// What came after an answer.
    held: Option<S::Item>,
}

/// Listens to one watch; the stream ends with it.
pub(super) fn listen<K: Send + 'static>(
    stream: impl Stream<Item = Result<Event<K>, Error>> + Send + 'static,
    answers: Answers,
) -> BoxStream<'static, Said<K>> {
    let ear = Ear { stream: Box::pin(stream), answers, held: None };
    futures::stream::unfold(ear, |mut ear| async move { Some((ear.next().await?, ear)) }).boxed()
}

impl<K, S: Stream<Item = Result<Event<K>, Error>>> Ear<S> {
    async fn next(&mut self) -> Option<Said<K>> {
        if let Some(held) = self.held.take() {
            return Some(Said::Told(held));
        }
        let told = tokio::select! {
            biased;
            () = self.answers.next() => return Some(Said::Answered),
            told = tokio::time::timeout(LIVED, self.stream.next()) => told,
        };
        let Ok(told) = told else { return Some(Said::Silence) };
        let told = told?;
        if self.answers.any() {
            self.held = Some(told);
            return Some(Said::Answered);
        }
        Some(Said::Told(told))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::runtime::watcher;
    use serde_json::json;

    use super::*;
    use crate::played::{self, Answer};
    use crate::watch::{Source, pauses};

    /// What a watch says first, by what it answers to one request after the other.
    async fn said(answers: fn(usize) -> Answer, count: usize) -> Vec<&'static str> {
        let asked = AtomicUsize::default();
        let client =
            played::client(
                move |_, watches| {
                    if watches { answers(asked.fetch_add(1, Ordering::SeqCst)) } else { maps() }
                },
            );
        let source = Source::new(&client, None, |client, _| Api::<ConfigMap>::all(client));
        let stream = pauses::paced(watcher::watcher(source.api, watcher::Config::default()));
        let words = listen(stream, source.answers).map(|said| match said {
            Said::Silence => "silence",
            Said::Answered => "answered",
            Said::Told(Err(_)) => "broke",
            Said::Told(Ok(Event::Init | Event::InitApply(_))) => "lists",
            Said::Told(Ok(Event::InitDone)) => "listed",
            Said::Told(Ok(Event::Apply(_) | Event::Delete(_))) => "changed",
        });
        let words = words.take(count).collect();
        tokio::time::timeout(LIVED, words).await.expect("it says all of that soon")
    }

    fn maps() -> Answer {
        played::list("ConfigMap", "v1", &json!([]))
    }

    #[tokio::test]
    async fn a_watch_that_is_begun_again_says_so_although_nothing_changes() {
        let answers = |asked| if asked == 0 { played::failure() } else { Answer::Silence };
        assert_eq!(said(answers, 4).await, ["lists", "listed", "broke", "answered"]);
    }

    /// One that is answered and cut at once has not worked since.
    #[tokio::test]
    async fn an_answer_is_told_before_what_comes_after_it() {
        let expired = |_| {
            let status = json!({ "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired" });
            Answer::Is(200, json!({ "type": "ERROR", "object": status }))
        };
        let expected = ["lists", "listed", "answered", "broke", "lists", "listed", "answered", "broke"];
        assert_eq!(said(expired, 8).await, expected);
    }
}
