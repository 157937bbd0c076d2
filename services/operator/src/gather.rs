//! Looks that events ask for, gathered: what one pass writes comes back as an event of each object, one after the other, and the
//! first look sees what the others ask for as well.
//!
//! *Invariant:* whoever asks is answered by a turn that begins after that. *Invariant:* a look waits no longer than [`PAUSE`] after it
//! was asked for first, or after the end of the turn that its object had meanwhile, however often it is asked for again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::Stream;
use kube::runtime::reflector::ObjectRef;
use resources::QuestDB;
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;

use crate::store::Key;
use crate::work::Work;

/// How long a look waits for others of the same object. kube's own debounce would begin anew with each of them, and hold back what a
/// pass asks for by itself.
const PAUSE: Duration = Duration::from_millis(25);

/// What is asked for and not passed on yet. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Gather {
    looks: Arc<Mutex<Looks>>,
    /// A turn ended whose object is to be looked at again.
    ended: Arc<Notify>,
}

impl Gather {
    /// The objects to look at, for as long as there is somebody who may ask.
    pub(crate) fn looks(self, queue: Receiver<ObjectRef<QuestDB>>, work: Work) -> impl Stream<Item = Key> {
        futures::stream::unfold((self, queue), move |(gather, mut queue)| {
            let work = work.clone();
            async move {
                let next = gather.next(&mut queue, &work).await?;
                Some((next, (gather, queue)))
            }
        })
    }

    async fn next(&self, queue: &mut Receiver<ObjectRef<QuestDB>>, work: &Work) -> Option<Key> {
        loop {
            let (next, due) = self.lock().next(Instant::now());
            if next.is_some() {
                return next;
            }
            tokio::select! {
                asked = queue.recv() => {
                    let key = Key::to(&asked?);
                    work.asked(key.namespace(), key.name());
                    self.lock().ask(key, Instant::now());
                }
                () = self.ended.notified() => {}
                () = until(due) => {}
            }
        }
    }

    /// A turn of an object begins: to be called before the object is looked at.
    pub(crate) fn begin(&self, key: &Key) -> Turn {
        self.lock().begin(key);
        Turn { gather: self.clone(), key: key.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For ever, where there is no time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// A turn that is under way; over when dropped.
pub(crate) struct Turn {
    gather: Gather,
    key: Key,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.gather.lock().end(&self.key, Instant::now()) {
            self.gather.ended.notify_one();
        }
    }
}

/// Which looks wait, and until when.
#[derive(Debug, Default)]
struct Looks {
    /// By object. None is the end of the turn that it has.
    waiting: HashMap<Key, Option<Instant>>,
    /// The same in order of time, and what waits no more.
    order: VecDeque<(Instant, Key)>,
    /// Objects that have a turn.
    busy: HashSet<Key>,
}

impl Looks {
    fn ask(&mut self, key: Key, now: Instant) {
        if self.waiting.contains_key(&key) {
            return;
        }
        if self.busy.contains(&key) {
            self.waiting.insert(key, None);
        } else {
            self.line_up(key, now);
        }
    }

    fn line_up(&mut self, key: Key, now: Instant) {
        let due = now + PAUSE;
        self.order.push_back((due, key.clone()));
        self.waiting.insert(key, Some(due));
    }

    fn begin(&mut self, key: &Key) {
        // It sees what was asked for before it.
        self.waiting.remove(key);
        self.busy.insert(key.clone());
    }

    /// Whether the object is to be looked at again.
    fn end(&mut self, key: &Key, now: Instant) -> bool {
        self.busy.remove(key);
        let waits = self.waiting.contains_key(key);
        if waits {
            // What the turn did last is told of after it.
            self.line_up(key.clone(), now);
        }
        waits
    }

    /// One that has waited, or until when there is none.
    fn next(&mut self, now: Instant) -> (Option<Key>, Option<Instant>) {
        while self.order.front().is_some_and(|(due, _)| *due <= now) {
            let Some((due, key)) = self.order.pop_front() else { break };
            if self.waiting.get(&key) == Some(&Some(due)) {
                self.waiting.remove(&key);
                return (Some(key), None);
            }
        }
        (None, self.order.front().map(|(due, _)| *due))
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use runtime::Metrics;
    use tokio::sync::mpsc;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new(Some("n"), name)
    }

    /// Looks, and what time it is so many milliseconds after the beginning.
    struct Played {
        looks: Looks,
        began: Instant,
    }

    impl Played {
        fn new() -> Self {
            Self { looks: Looks::default(), began: Instant::now() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.began + Duration::from_millis(millis)
        }

        fn ask(&mut self, name: &str, millis: u64) {
            let now = self.at(millis);
            self.looks.ask(key(name), now);
        }

        fn end(&mut self, name: &str, millis: u64) -> bool {
            let now = self.at(millis);
            self.looks.end(&key(name), now)
        }

        /// All that are passed on by then.
        fn next(&mut self, millis: u64) -> Vec<String> {
            let now = self.at(millis);
            std::iter::from_fn(|| self.looks.next(now).0).map(|key| key.name().to_owned()).collect()
        }
    }

    #[test]
    fn a_look_waits_for_others_and_no_longer_however_often_it_is_asked_for() {
        let mut played = Played::new();
        played.ask("a", 0);
        played.ask("b", 10);
        for millis in 1..25 {
            played.ask("a", millis);
            assert_eq!(played.next(millis), Vec::<String>::new(), "{millis}");
        }
        let (now, due) = (played.at(24), played.at(25));
        assert_eq!(played.looks.next(now), (None, Some(due)));
        assert_eq!(played.next(25), ["a"]);
        played.ask("a", 26);
        assert_eq!(played.next(35), ["b"]);
        assert_eq!(played.next(50), Vec::<String>::new());
        assert_eq!(played.next(51), ["a"]);
        assert_eq!(played.next(1_000), Vec::<String>::new(), "each was answered");
        assert!(played.looks.waiting.is_empty() && played.looks.order.is_empty(), "{:?}", played.looks);
    }

    #[test]
    fn what_is_asked_for_during_a_turn_waits_for_what_that_does_last() {
        let mut played = Played::new();
        played.looks.begin(&key("a"));
        played.ask("a", 10);
        played.ask("b", 20);
        assert_eq!(played.next(100), ["b"], "others do not wait for it");
        assert!(played.end("a", 100));
        played.ask("a", 110);
        assert_eq!(played.next(124), Vec::<String>::new());
        assert_eq!(played.next(125), ["a"]);
        played.looks.begin(&key("a"));
        assert!(!played.end("a", 130), "nobody asked since");
        assert_eq!(played.next(1_000), Vec::<String>::new());
    }

    #[test]
    fn a_turn_answers_what_was_asked_for_before_it_and_nothing_that_comes_later() {
        let mut played = Played::new();
        played.ask("a", 0);
        // It was due by itself.
        played.looks.begin(&key("a"));
        assert!(!played.end("a", 5));
        assert_eq!(played.next(25), Vec::<String>::new());
        played.ask("a", 30);
        played.looks.begin(&key("a"));
        played.ask("a", 31);
        assert!(played.end("a", 32));
        assert_eq!(played.next(56), Vec::<String>::new());
        assert_eq!(played.next(57), ["a"]);
    }

    #[tokio::test]
    async fn a_look_that_waits_for_a_turn_comes_when_that_is_over_and_all_end_with_the_queue() {
        const LONG: Duration = Duration::from_secs(30);
        let (asks, queue) = mpsc::channel(10);
        let gather = Gather::default();
        let mut looks = Box::pin(gather.clone().looks(queue, Work::new(&Metrics::default())));
        let turn = gather.begin(&key("a"));
        for name in ["a", "a", "b"] {
            asks.send(key(name).reference()).await.unwrap();
        }
        let first = tokio::time::timeout(LONG, looks.next()).await;
        assert_eq!(first, Ok(Some(key("b"))));
        // It is waited for when the turn ends.
        let both = futures::future::join(looks.next(), async { drop(turn) });
        let (second, ()) = tokio::time::timeout(LONG, both).await.unwrap();
        assert_eq!(second, Some(key("a")));
        drop(asks);
        let end = tokio::time::timeout(LONG, looks.next()).await;
        assert_eq!(end, Ok(None));
    }
}
