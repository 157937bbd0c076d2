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
