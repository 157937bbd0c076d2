//! What Kafka did not take waits before it is sent again, each database for itself, and what may be too large goes alone. Pure:
//! whoever calls brings the time and the chance.
//!
//! *Invariant:* nobody waits because another database failed, unless nobody's records are taken at all; and once some are, whoever
//! failed only meanwhile is let go. *Invariant:* whoever is to go alone when a word comes was sent alone: only words say so, and of
//! a database at most one is to come. Time only takes that back, and then the record is tried once more.

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
    /// Whether it failed while it was not dark: then it waits for itself, whatever becomes of others.
    is_own: bool,
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

    /// Whether no record is to go alone, of no database.
    pub(super) fn is_nobody_alone(&self) -> bool {
        self.alone.is_empty()
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
        let failed: Vec<DatabaseId> = failed.into_iter().collect();
        let (policy, was_dark) = (self.policy, self.is_dark);
        let some_are_new = failed.iter().any(|database| !self.failed.contains_key(database));
        self.is_dark = taken == 0 && (was_dark || some_are_new);
        // What fails in the while in which something is taken again was sent in the dark.
        let is_light = !was_dark && !self.is_dark;
        for database in failed {
            let wait = self.failed.entry(database).or_insert(Wait { times: 0, until: now, is_own: false });
            // Never at once: what fails without a wait would be tried in a circle.
            wait.until = now + policy.delay(wait.times, random()).max(policy.ceiling(0));
            wait.times = wait.times.saturating_add(1);
            wait.is_own |= is_light;
        }
        if was_dark && taken > 0 {
            self.let_go(now, random);
        }
    }

    /// It is dark no more: whoever failed only in the dark goes within the shortest wait, not all at the same moment, and begins
    /// anew. What fails again in the light waits for itself from then on, so no refused record is sent in a circle: it gets dark
    /// again only with the failure of somebody who had not failed before.
    fn let_go(&mut self, now: Instant, mut random: impl FnMut() -> f64) {
        let policy = self.policy;
        for wait in self.failed.values_mut().filter(|wait| !wait.is_own) {
            wait.until = wait.until.min(now + policy.delay(0, random()));
            wait.times = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

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

    /// How long a database waits after its next failure in the light, in seconds.
    fn own_wait(refusals: &mut Refusals, database: DatabaseId, now: Instant) -> Option<u32> {
        refusals.heard([database], 0, now, || 1.0);
        (0..=8).find(|seconds| !refusals.waiting(now + SECOND * *seconds).contains(&database))
    }

    #[test]
    fn who_failed_while_nothing_was_taken_is_let_go_once_something_is() {
        // The last failure is heard before the first record that is taken, or with it.
        for beside in [0, 1] {
            let (mut refusals, [first, second], now) = scene();
            for _ in 0..6 {
                refusals.heard([first, second], 0, now, || 1.0);
            }
            assert_eq!(refusals.waiting(now + 7 * SECOND).len(), 2, "dark, they wait longer and longer");
            refusals.heard([first], beside, now, || 0.5);
            refusals.heard([], 1 - beside, now, || 0.5);
            assert!(!refusals.is_dark());
            assert_eq!(refusals.waiting(now + SECOND / 4).len(), 2, "not at once");
            assert!(refusals.waiting(now + SECOND / 2).is_empty(), "soon");
            // They are let go once, and begin anew.
            for expected in [1, 2, 4, 8, 8] {
                assert_eq!(own_wait(&mut refusals, first, now), Some(expected));
                refusals.heard([], 1, now, || 0.0);
            }
        }
    }

    #[test]
    fn who_failed_while_others_were_taken_keeps_its_wait_in_the_dark_and_after_it() {
        let (mut refusals, [sick, other, third], now) = scene();
        for _ in 0..3 {
            refusals.heard([sick], 1, now, || 1.0);
        }
        refusals.heard([sick, other], 0, now, || 1.0);
        refusals.heard([other], 0, now, || 1.0);
        assert!(refusals.is_dark());
        refusals.heard([], 1, now, || 0.0);
        assert_eq!(refusals.waiting(now + 7 * SECOND), [sick], "its record alone is refused");
        refusals.heard([third], 0, now, || 1.0);
        refusals.heard([], 1, now, || 0.0);
        assert_eq!(refusals.waiting(now + 7 * SECOND), [sick], "however often it gets dark");
        refusals.settled(sick);
        refusals.heard([sick], 0, now, || 1.0);
        refusals.heard([], 1, now, || 0.0);
        assert!(refusals.waiting(now).is_empty(), "what was taken begins anew");
    }

    proptest! {
        #[test]
        fn once_something_is_taken_only_those_wait_long_who_failed_in_the_light(
            whiles in prop::collection::vec((0_usize..8, 0_usize..2, 0_u32..10), 1..40)
        ) {
            let (mut refusals, ids, mut now) = scene::<3>();
            let mut own = BTreeSet::new();
            for (which, taken, seconds) in whiles {
                let is_one = |(number, _): &(usize, &DatabaseId)| which & (1 << *number) != 0;
                let failed: Vec<DatabaseId> = ids.iter().enumerate().filter(is_one).map(|(_, id)| *id).collect();
                let was_dark = refusals.is_dark();
                refusals.heard(failed.iter().copied(), taken, now, || 1.0);
                let is_light = !was_dark && !refusals.is_dark();
                own.extend(failed.into_iter().filter(|_| is_light));
                let late = refusals.waiting(now + SECOND);
                let is_over = was_dark && taken > 0;
                prop_assert!(!is_over || late.iter().all(|one| own.contains(one)), "{late:?}, not {own:?}");
                now += SECOND * seconds;
            }
        }
    }

    #[test]
    fn only_what_went_alone_is_too_large_for_certain() {
        let (mut refusals, [large, beside], now) = scene();
        assert!(!refusals.too_large(large, now) && !refusals.too_large(beside, now));
        assert!(refusals.is_alone(large) && refusals.is_alone(beside) && !refusals.is_nobody_alone());
        refusals.settled(beside);
        assert!(refusals.too_large(large, now) && !refusals.is_alone(beside));
        refusals.settled(large);
        assert!(!refusals.is_alone(large), "the next state may be smaller");
        assert!(refusals.is_nobody_alone(), "nobody is needed for it");
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
