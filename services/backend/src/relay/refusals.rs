//! What Kafka did not take waits before it is sent again, each database for itself, and what may be too large goes alone. Pure:
//! whoever calls brings the time and the chance.
//!
//! *Invariant:* nobody waits because another database failed, unless nobody's records are taken at all. *Invariant:* whoever is
//! to go alone when a word comes was sent alone: only words say so, and of a database at most one is to come. Time only takes
//! that back, and then the record is tried once more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::DatabaseId;
use runtime::Backoff;

/// So many that wait are no matter of a few partitions: nothing more is sent before some are due again.
const MOST: usize = 16_000;
/// So long after a wait a failure is forgotten, and as long after its word what may be too large: somebody else published the
/// state, or had it put aside. Longer than any word takes to come.
const FORGET: Duration = Duration::from_mins(5);

/// What Kafka did not take.
#[derive(Debug)]
pub(super) struct Refusals {
    policy: Backoff,
    failed: BTreeMap<DatabaseId, Wait>,
    /// Sent in a batch with others they were too large, one of them at least. Until then they go alone.
    alone: BTreeMap<DatabaseId, Instant>,
    /// Whether Kafka took nothing since something failed that had not failed before, and is not forgotten.
    is_dark: bool,
}

#[derive(Debug)]
struct Wait {
    /// How often it failed in a row.
    times: u32,
    until: Instant,
}

impl Refusals {
    /// None yet; what fails waits by this policy.
    pub(super) const fn new(policy: Backoff) -> Self {
        Self { policy, failed: BTreeMap::new(), alone: BTreeMap::new(), is_dark: false }
    }

    /// The databases of which nothing is to be sent yet.
    pub(super) fn waiting(&mut self, now: Instant) -> Vec<DatabaseId> {
        self.failed.retain(|_, wait| wait.until + FORGET > now);
        let failed = &self.failed;
        self.alone.retain(|database, until| *until > now || failed.contains_key(database));
        self.is_dark &= !self.failed.is_empty();
        self.failed.iter().filter(|(_, wait)| wait.until > now).map(|(database, _)| *database).collect()
    }

    /// Whether so many wait that nothing more is to be sent.
    pub(super) const fn are_enough(waiting: usize) -> bool {
        waiting >= MOST
    }

    /// Whether nothing has failed lately.
    pub(super) fn is_calm(&self) -> bool {
        self.failed.is_empty()
    }

    /// Whether it looks as if nobody's records were taken.
    pub(super) const fn is_dark(&self) -> bool {
        self.is_dark
    }

    /// Whether a database's record is to go alone.
    pub(super) fn is_alone(&self, database: DatabaseId) -> bool {
        self.alone.contains_key(&database)
    }

    /// Kafka took a database's record, or never will.
    pub(super) fn settled(&mut self, database: DatabaseId) {
        self.failed.remove(&database);
        self.alone.remove(&database);
    }

    /// A broker found the batch too large in which a database's record was. Says whether it was that record.
    pub(super) fn too_large(&mut self, database: DatabaseId, now: Instant) -> bool {
        self.alone.insert(database, now + FORGET).is_some()
    }

    /// Takes in the words of a while: which databases failed, and how many records were taken. `random` gives numbers of
    /// `0.0..=1.0`.
    pub(super) fn heard(
        &mut self,
        failed: impl IntoIterator<Item = DatabaseId>,
        taken: usize,
        now: Instant,
        mut random: impl FnMut() -> f64,
    ) {
        let (policy, before) = (self.policy, self.failed.len());
        for database in failed {
            let wait = self.failed.entry(database).or_insert(Wait { times: 0, until: now });
            // Never at once: what fails without a wait would be tried in a circle.
            wait.until = now + policy.delay(wait.times, random()).max(policy.ceiling(0));
            wait.times = wait.times.saturating_add(1);
        }
        let some_are_new = self.failed.len() > before;
        self.is_dark = taken == 0 && (self.is_dark || some_are_new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const POLICY: Backoff = Backoff::new(SECOND, Duration::from_secs(8));

    /// Nothing refused, some databases, and a moment to begin with.
    fn scene<const N: usize>() -> (Refusals, [DatabaseId; N], Instant) {
        (Refusals::new(POLICY), std::array::from_fn(|_| DatabaseId::mint()), Instant::now())
    }

    #[test]
    fn who_failed_waits_longer_each_time_and_nobody_else_does() {
        let (mut refusals, [sick, other], mut now) = scene();
        for (random, seconds) in [(1.0, 1), (1.0, 2), (0.5, 2), (1.0, 8), (1.0, 8), (0.0, 1)] {
            refusals.heard([sick], 1, now, || random);
            assert_eq!(refusals.waiting(now), [sick], "and not {other}");
            let nearly = (2 * seconds - 1) * SECOND / 2;
            assert_eq!(refusals.waiting(now + nearly), [sick]);
            now += seconds * SECOND;
            assert!(refusals.waiting(now).is_empty(), "{seconds} s for {random}");
        }
        refusals.settled(sick);
        refusals.heard([sick], 1, now, || 1.0);
        assert!(refusals.waiting(now + SECOND).is_empty(), "what was taken begins anew");
    }

    #[test]
    fn what_nobody_heard_of_again_is_forgotten() {
        let (mut refusals, [sick], now) = scene();
        refusals.heard([sick], 0, now, || 1.0);
        assert!(refusals.waiting(now + SECOND).is_empty() && !refusals.is_calm() && refusals.is_dark());
        assert!(refusals.waiting(now + SECOND + FORGET).is_empty() && refusals.is_calm());
        assert!(!refusals.is_dark(), "nobody is known to wait");
    }

    #[test]
    fn it_is_dark_from_a_new_failure_until_something_is_taken() {
        let (mut refusals, [first, second], now) = scene();
        let mut heard = |failed: &[DatabaseId], taken| {
            refusals.heard(failed.iter().copied(), taken, now, || 1.0);
            refusals.is_dark()
        };
        assert!(!heard(&[first], 1), "others are taken");
        assert!(!heard(&[first], 0), "that this one fails says nothing of others");
        assert!(heard(&[first, second], 0));
        assert!(heard(&[], 0), "nobody said anything");
        assert!(heard(&[first], 0));
        assert!(!heard(&[second], 1));
    }

    #[test]
    fn only_what_went_alone_is_too_large_for_certain() {
        let (mut refusals, [large, beside], now) = scene();
        assert!(!refusals.too_large(large, now) && !refusals.too_large(beside, now));
        assert!(refusals.is_alone(large) && refusals.is_alone(beside));
        refusals.settled(beside);
        assert!(refusals.too_large(large, now) && !refusals.is_alone(beside));
        refusals.settled(large);
        assert!(!refusals.is_alone(large), "the next state may be smaller");
    }

    #[test]
    fn what_others_published_goes_with_all_others_again_after_a_while() {
        let (mut refusals, [taken, failed], now) = scene();
        assert!(!refusals.too_large(taken, now) && !refusals.too_large(failed, now));
        refusals.heard([failed], 0, now + SECOND, || 1.0);
        assert!(refusals.waiting(now + FORGET / 2).is_empty());
        assert!(refusals.is_alone(taken), "a word may be to come");
        assert!(refusals.waiting(now + FORGET).is_empty());
        assert!(!refusals.is_alone(taken), "nobody said anything for long");
        assert!(refusals.is_alone(failed), "it is still tried");
        assert!(refusals.waiting(now + 2 * FORGET).is_empty());
        assert!(!refusals.is_alone(failed) && !refusals.too_large(taken, now), "as if nothing had been said");
    }

    #[test]
    fn so_many_that_wait_are_enough() {
        assert!(!Refusals::are_enough(MOST - 1) && Refusals::are_enough(MOST));
    }
}
