//! Kafka's words on what was queued, as they come and not in the order in which it was queued: a partition without a leader gives
//! none for as long as the producer is patient, and what other partitions took is marked meanwhile.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::STRETCH;

/// Words with the number of what each is about, stretch by stretch.
pub(super) type Words<W> = BoxStream<'static, Vec<(usize, W)>>;

/// Waits for the words on up to `most` that are queued. A word waits for others for the time `together`, and for none where all
/// have come.
pub(super) fn words<Q, A>(
    queued: mpsc::Receiver<(usize, Q)>,
    most: usize,
    together: Duration,
    wait: impl Fn(Q) -> A + Send + 'static,
) -> Words<A::Output>
where
    Q: Send + 'static,
    A: Future<Output: Send + 'static> + Send + 'static,
{
    let words = ReceiverStream::new(queued)
        .map(move |(which, one)| {
            let word = wait(one);
            async move { (which, word.await) }
        })
        .buffer_unordered(most);
    tokio_stream::StreamExt::chunks_timeout(words, STRETCH, together).boxed()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Longer than a test may take.
    const LONG: Duration = Duration::from_mins(1);

    /// So many that wait for a word, and who gives it.
    fn queue(count: usize, together: Duration) -> (Vec<oneshot::Sender<u8>>, Words<u8>) {
        let (tell, queued) = mpsc::channel(count);
        let mut brokers = Vec::new();
        for which in 0..count {
            let (broker, word) = oneshot::channel::<u8>();
            tell.try_send((which, word)).unwrap();
            brokers.push(broker);
        }
        (brokers, words(queued, count, together, |word| async move { word.await.unwrap() }))
    }

    async fn next(words: &mut Words<u8>) -> Option<Vec<(usize, u8)>> {
        tokio::time::timeout(LONG / 2, words.next()).await.unwrap()
    }

    #[tokio::test]
    async fn what_one_partition_took_does_not_wait_for_another_without_a_leader() {
        let (mut brokers, mut words) = queue(4, Duration::from_millis(1));
        let silent = brokers.remove(0);
        for (broker, said) in brokers.into_iter().zip([7, 8, 9]) {
            broker.send(said).unwrap();
        }
        let mut told = next(&mut words).await.unwrap();
        told.sort_unstable();
        assert_eq!(told, [(1, 7), (2, 8), (3, 9)]);
        silent.send(6).unwrap();
        assert_eq!(next(&mut words).await, Some(vec![(0, 6)]));
        assert_eq!(next(&mut words).await, None);
    }

    #[tokio::test]
    async fn many_words_are_told_together() {
        let (brokers, mut words) = queue(2 * STRETCH + 1, LONG);
        for broker in brokers {
            broker.send(0).unwrap();
        }
        let mut stretches = Vec::new();
        while let Some(stretch) = next(&mut words).await {
            stretches.push(stretch.len());
        }
        assert_eq!(stretches, [STRETCH, STRETCH, 1]);
    }
}
