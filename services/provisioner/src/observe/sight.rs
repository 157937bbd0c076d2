//! Up to when all was seen that there was in a cluster. Pure: time is a parameter.
//!
//! A watch that tells nothing has nothing to tell, or is dead, and another connection to the same server says nothing of that. So
//! the server is asked at which version it stands, and the watch has to get there. *Invariant:* what changed before the moment that
//! is answered was seen.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long the watch may take to a version at which the server stands: API servers say about once a minute how far they are.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is known of one watch.
#[derive(Debug, Default)]
pub struct Sight {
    /// When the list was asked for that the watch goes on from.
    begun: Option<Instant>,
    /// Everything up to this version was seen.
    reached: u64,
    /// Where the server stood and when it was asked, oldest first, as far as the watch is not there yet.
    asked: VecDeque<(u64, Instant)>,
    proof: Option<Proof>,
}

/// All that was there at one moment was seen by another.
#[derive(Debug, Clone, Copy)]
struct Proof {
    was: Instant,
    seen: Instant,
}

impl Sight {
    /// A list begins that was asked for at `at`.
    pub fn begin_list(&mut self, at: Instant) {
        *self = Self { begun: Some(at), ..Self::default() };
    }

    /// The list is complete, and of this version.
    pub fn end_list(&mut self, version: u64, now: Instant) {
        self.proof = self.begun.map(|was| Proof { was, seen: now });
        self.reached = version;
        // What was asked meanwhile is of after the list, which may have taken long.
        self.asked.clear();
    }

    /// The watch was told of everything up to this version.
    pub fn reach(&mut self, version: u64, now: Instant) {
        self.reached = self.reached.max(version);
        while let Some(&(version, was)) = self.asked.front()
            && version <= self.reached
        {
            self.asked.pop_front();
            self.proof = Some(Proof { was, seen: now });
        }
    }

    /// The server, asked at `at`, stands at this version.
    pub fn ask(&mut self, version: u64, at: Instant, now: Instant) {
        self.asked.push_back((version, at));
        self.reach(self.reached, now);
    }

    /// Whether the watch does not get where the server was long ago.
    pub fn is_lost(&self, now: Instant) -> bool {
        self.asked.front().is_some_and(|(_, at)| now.saturating_duration_since(*at) > PATIENCE)
    }

    /// Up to when all was seen and told, where the oldest of what waits to be told has waited for so long: it must have come after
    /// all that. `None` where that is not so yet, or nothing new is known since [`Sight::noted`].
    pub fn told(&self, waits: Duration, now: Instant) -> Option<Instant> {
        let Proof { was, seen } = self.proof?;
        (waits <= now.saturating_duration_since(seen)).then_some(was)
    }

    /// What [`Sight::told`] said is known to whom it concerns.
    pub fn noted(&mut self, told: Instant) {
        if self.proof.is_some_and(|proof| proof.was == told) {
            self.proof = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Duration = Duration::ZERO;

    /// Moments, and a watch that began with a list: asked for at 0, there at 2, of version 10, and noted.
    fn listed() -> (impl Fn(u64) -> Instant, Sight) {
        let start = Instant::now();
        let at = move |seconds| start + Duration::from_secs(seconds);
        let mut sight = Sight::default();
        assert_eq!(sight.told(NOTHING, at(0)), None);
        sight.begin_list(at(0));
        assert_eq!(sight.told(NOTHING, at(1)), None, "it is not complete");
        sight.end_list(10, at(2));
        assert_eq!(sight.told(NOTHING, at(2)), Some(at(0)));
        sight.noted(at(0));
        assert_eq!(sight.told(NOTHING, at(3)), None, "nothing new is known");
        (at, sight)
    }

    #[test]
    fn what_the_server_says_is_proved_by_what_the_watch_gets() {
        let (at, mut sight) = listed();
        assert!(!sight.is_lost(at(200)), "nobody asked");
        sight.ask(12, at(5), at(6));
        sight.ask(15, at(7), at(8));
        assert_eq!(sight.told(NOTHING, at(9)), None, "the watch may be dead");
        sight.reach(11, at(9));
        assert_eq!(sight.told(NOTHING, at(9)), None, "that was before");
        sight.reach(13, at(10));
        assert_eq!(sight.told(NOTHING, at(10)), Some(at(5)));
        sight.reach(15, at(11));
        assert_eq!(sight.told(NOTHING, at(11)), Some(at(7)), "though the former is not noted yet");
        sight.noted(at(5));
        assert_eq!(sight.told(NOTHING, at(11)), Some(at(7)), "that was of the former");
        sight.noted(at(7));
        sight.ask(15, at(20), at(21));
        assert_eq!(sight.told(NOTHING, at(21)), Some(at(20)), "the server is where the watch is");
    }

    #[test]
    fn what_was_seen_by_then_is_told_before_it_counts() {
        let (at, mut sight) = listed();
        sight.ask(12, at(5), at(6));
        sight.reach(12, at(9));
        let seconds = Duration::from_secs;
        assert_eq!(sight.told(seconds(2), at(10)), None, "it came at 8, and may be of before 5");
        assert_eq!(sight.told(seconds(2), at(11)), Some(at(5)), "it came at 9, when that was known");
        assert_eq!(sight.told(NOTHING, at(11)), Some(at(5)));
    }

    #[test]
    fn a_watch_that_stays_behind_is_lost_until_everything_is_listed_anew() {
        let (at, mut sight) = listed();
        sight.ask(12, at(5), at(6));
        sight.ask(13, at(65), at(65));
        sight.reach(12, at(94));
        assert!(!sight.is_lost(at(155)), "it got to what was asked first");
        assert!(sight.is_lost(at(156)));
        sight.begin_list(at(157));
        assert!(!sight.is_lost(at(157)));
        sight.ask(14, at(158), at(158));
        sight.end_list(13, at(300));
        assert!(!sight.is_lost(at(300)), "it was listing all the while");
        assert_eq!(sight.told(NOTHING, at(300)), Some(at(157)));
    }
}
