//! Answers of Route 53 that stand for a while: a question whose answer seldom changes is asked ever more seldom.
//!
//! *Invariant:* nothing is written by an answer that stands. It says that a name is somebody else's, or that a change is under way.

use std::time::{Duration, Instant};

use runtime::Backoff;

use super::by_uid::ByUid;

/// Between two looks at a name that somebody else has; the longest is what the condition about it says.
const TAKEN: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(5));
/// Between two questions how far a change came that nobody waits for with a database that serves.
const UNDER_WAY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// What a name holds, under this wish.
    Records(String, i64),
    /// How far a change came.
    Change(String),
}

impl Question {
    const fn pace(&self) -> Backoff {
        match self {
            Self::Records(..) => TAKEN,
            Self::Change(_) => UNDER_WAY,
        }
    }
}

/// What is known of one.
#[derive(Debug)]
pub(crate) struct Look<A> {
    question: Question,
    answer: A,
    attempts: u32,
    until: Instant,
}

/// The latest answer of each database, by uid of its resource.
pub(crate) type Looks<A> = ByUid<Look<A>>;

impl<A: Clone> ByUid<Look<A>> {
    /// The answer that stands still.
    pub(crate) fn standing(&self, uid: &str, question: &Question, now: Instant) -> Option<A> {
        let looks = self.lock();
        let same = |look: &&Look<A>| look.question == *question && now < look.until;
        looks.get(uid).filter(same).map(|look| look.answer.clone())
    }

    /// An answer that stands for a while, the longer the more often it was the same; `share` of that is left to chance.
    pub(crate) fn stands(&self, uid: &str, question: Question, answer: A, (now, share): (Instant, f64)) {
        let mut looks = self.lock();
        let known = looks.get(uid).filter(|look| look.question == question);
        let attempts = known.map_or(0, |look| look.attempts.saturating_add(1));
        let until = now + question.pace().delay(attempts, 0.5 + share / 2.0);
        looks.insert(uid.to_owned(), Look { question, answer, attempts, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long an answer stands each time, in half seconds.
    fn paces(question: &Question, share: f64, count: usize) -> Vec<u128> {
        let (looks, mut now) = (Looks::default(), Instant::now());
        let mut pace = || {
            looks.stands("a", question.clone(), (), (now, share));
            let then = now;
            while looks.standing("a", question, now).is_some() {
                now += Duration::from_millis(500);
            }
            now.duration_since(then).as_millis() / 500
        };
        (0..count).map(|_| pace()).collect()
    }

    #[test]
    fn the_same_answer_stands_longer_each_time_and_by_chance() {
        let taken = Question::Records("a.example.com".to_owned(), 1);
        assert_eq!(paces(&taken, 1.0, 6), [60, 120, 240, 480, 600, 600]);
        assert_eq!(paces(&taken, 0.0, 6), [30, 60, 120, 240, 300, 300]);
        let under_way = Question::Change("C1".to_owned());
        assert_eq!(paces(&under_way, 1.0, 6), [2, 4, 8, 16, 20, 20]);
    }

    #[test]
    fn another_question_another_wish_and_another_answer_are_asked_at_once() {
        let (looks, now) = (Looks::default(), Instant::now());
        let question = |name: &str, generation| Question::Records(name.to_owned(), generation);
        looks.stands("a", question("x", 1), 7, (now, 1.0));
        assert_eq!(looks.standing("a", &question("x", 1), now), Some(7));
        let others = [question("y", 1), question("x", 2), Question::Change("x".to_owned())];
        assert!(others.iter().all(|other| looks.standing("a", other, now).is_none()));
        assert_eq!(looks.standing("b", &question("x", 1), now), None);
        looks.forget("a");
        assert_eq!(looks.standing("a", &question("x", 1), now), None);
        // From the beginning, too.
        looks.stands("a", question("x", 1), 7, (now, 1.0));
        assert_eq!(looks.standing("a", &question("x", 1), now + Duration::from_secs(30)), None);
        looks.stands("a", question("x", 1), 7, (now, 1.0));
        looks.retain(|uid| uid != "a");
        assert_eq!(looks.standing("a", &question("x", 1), now), None);
    }
}
