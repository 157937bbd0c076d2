//! What Kafka has not answered for when its round ended: it is in doubt, until there is a word.
//!
//! *Invariant:* of a database at most one state is in doubt, and while it is none of it is sent: two records of one database on
//! their way at once could be written in any order. Whatever was minted meanwhile is sent after the word on the former one.
//! *Invariant:* nothing is done here about a word: whoever asks for it marks the position that was sent, if it still is what should
//! be, or sends again.

use std::collections::BTreeMap;
use std::fmt;

use domain::{DatabaseId, Position};
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};

use super::words::Words;

/// A state as it was sent: of which database, and at which position.
pub(super) type Asked = (DatabaseId, Position);

/// So many in doubt are enough: nothing more is sent before there is a word on some. One round may go beyond.
const MOST: usize = 8_000;

/// What is in doubt, and the words that are to come.
pub(super) struct Doubts<W> {
    open: BTreeMap<DatabaseId, Position>,
    words: SelectAll<BoxStream<'static, Vec<(Asked, W)>>>,
}

impl<W: Send + 'static> Doubts<W> {
    /// How many are in doubt.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether so many are that nothing more is to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= MOST
    }

    /// The databases of which nothing is to be sent.
    pub(super) fn databases(&self) -> Vec<DatabaseId> {
        self.open.keys().copied().collect()
    }

    /// Keeps what of a round is not answered, with the words to come. Says how many that are.
    pub(super) fn keep(&mut self, asked: Vec<Asked>, answered: &[bool], words: Words<W>) -> usize {
        let before = self.open.len();
        let unanswered = asked.iter().zip(answered).filter(|(_, answered)| !**answered);
        self.open.extend(unanswered.map(|(one, _)| *one));
        let more = self.open.len() - before;
        if more > 0 {
            let named = move |stretch: Vec<(usize, W)>| {
                stretch.into_iter().map(|(which, word)| (asked[which], word)).collect::<Vec<_>>()
            };
            self.words.push(words.map(named).boxed());
        }
        more
    }

    /// The words that have come since: what they are about is in doubt no more. Waits for none.
    pub(super) fn answered(&mut self) -> Vec<(Asked, W)> {
        let mut answered = Vec::new();
        while let Some(Some(stretch)) = self.words.next().now_or_never() {
            answered.extend(stretch);
        }
        for ((database, _), _) in &answered {
            self.open.remove(database);
        }
        if self.words.is_empty() {
            // No word will come: nobody is to wait for one.
            self.open.clear();
        }
        answered
    }
}

impl<W> Default for Doubts<W> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), words: SelectAll::new() }
    }
}

impl<W> fmt::Debug for Doubts<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doubts").field("open", &self.open).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::sync::{mpsc, oneshot};

    use super::super::words::words;
    use super::*;

    /// Longer than a test may take.
    const LONG: Duration = Duration::from_mins(1);

    /// A round of so many, and who gives the words on it.
    fn round(count: usize) -> (Vec<Asked>, Vec<oneshot::Sender<u8>>, Words<u8>) {
        let (tell, queued) = mpsc::channel(count);
        let (mut asked, mut brokers) = (Vec::new(), Vec::new());
        for which in 0..count {
            let (broker, word) = oneshot::channel::<u8>();
            tell.try_send((which, word)).unwrap();
            asked.push((DatabaseId::mint(), Position::FIRST));
            brokers.push(broker);
        }
        let words = words(queued, count, Duration::from_millis(1), |word| async move { word.await.unwrap() });
        (asked, brokers, words)
    }

    /// The next words that come.
    async fn next(doubts: &mut Doubts<u8>) -> Vec<(Asked, u8)> {
        let late = Instant::now() + LONG;
        while Instant::now() < late {
            let answered = doubts.answered();
            if !answered.is_empty() {
                return answered;
            }
            tokio::task::yield_now().await;
        }
        Vec::new()
    }

    #[tokio::test]
    async fn what_is_not_answered_stays_in_doubt_until_its_own_word() {
        let (asked, mut brokers, mut words) = round(3);
        brokers.remove(0).send(7).unwrap();
        assert_eq!(words.next().await.unwrap(), [(0, 7)]);
        let mut doubts = Doubts::default();
        assert_eq!(doubts.keep(asked.clone(), &[true, false, false], words), 2);
        assert!(doubts.answered().is_empty(), "nobody said anything");
        let mut left = vec![asked[1].0, asked[2].0];
        left.sort_unstable();
        assert_eq!(doubts.databases(), left);
        brokers.pop().unwrap().send(9).unwrap();
        assert_eq!(next(&mut doubts).await, [(asked[2], 9)]);
        assert_eq!(doubts.databases(), [asked[1].0]);
        brokers.pop().unwrap().send(8).unwrap();
        assert_eq!(next(&mut doubts).await, [(asked[1], 8)]);
        assert!(doubts.is_empty());
    }

    #[tokio::test]
    async fn rounds_do_not_wait_for_each_other() {
        let ((early, early_brokers, early_words), (late, late_brokers, late_words)) = (round(1), round(1));
        let mut doubts = Doubts::default();
        assert_eq!(doubts.keep(early.clone(), &[false], early_words), 1);
        assert_eq!(doubts.keep(late.clone(), &[false], late_words), 1);
        for (broker, word) in late_brokers.into_iter().zip([2]) {
            broker.send(word).unwrap();
        }
        assert_eq!(next(&mut doubts).await, [(late[0], 2)]);
        for (broker, word) in early_brokers.into_iter().zip([1]) {
            broker.send(word).unwrap();
        }
        assert_eq!(next(&mut doubts).await, [(early[0], 1)]);
        assert_eq!(doubts.len(), 0);
    }

    #[tokio::test]
    async fn a_round_that_was_answered_leaves_nothing_and_too_many_are_enough() {
        let (asked, _brokers, words) = round(2);
        let mut doubts = Doubts::default();
        assert_eq!(doubts.keep(asked, &[true, true], words), 0);
        assert!(doubts.is_empty() && doubts.answered().is_empty());
        let (asked, _brokers, words) = round(MOST);
        assert_eq!(doubts.keep(asked, &vec![false; MOST], words), MOST);
        assert!(doubts.is_full());
    }

    #[tokio::test]
    async fn what_no_word_can_come_on_is_in_doubt_no_more() {
        let (asked, _, _) = round(1);
        let mut doubts = Doubts::<u8>::default();
        assert_eq!(doubts.keep(asked, &[false], futures::stream::empty().boxed()), 1);
        assert!(doubts.answered().is_empty() && doubts.is_empty());
    }
}
