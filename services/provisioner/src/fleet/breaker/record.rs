//! How a server does while every call goes through to it: whether it should be left alone.
//!
//! Two things say so. Failures in a row find out soon that it is down. Failures that outweigh what goes well in the last minute
//! find out one that answers now and then: a single good answer ends a row, and takes back no more than it is worth here.
//! Bounded: however many calls there are, the minute is a few slots of counts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Failures in a row without an answer that are enough.
pub(super) const SILENT: u32 = 3;
/// Answers in a row that say "I cannot" that are enough.
pub(super) const SICK: u32 = 5;
/// What failures of the last minute must weigh: as much as either row.
const LEAST: u32 = SILENT * SICK;
/// Failures that come this quickly after each other count as one: they were in flight together.
const TOGETHER: Duration = Duration::from_millis(250);
/// How long a call is remembered.
const MINUTE: Duration = Duration::from_mins(1);
/// Calls that end within this time are counted together.
const SLOT: Duration = Duration::from_secs(5);
/// It is too much if there are more than three failures for each two calls that went well.
const TOO_MANY: (u64, u64) = (3, 2);
/// So many calls are taken to have gone well before: the first few failures prove nothing, nor does one database whose calls alone
/// are slow, each until its deadline, however often it is tried again.
const CREDIT: u64 = 5;

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It said that it cannot.
    Sick,
    /// There was no answer.
    Silent,
    /// There was none in time, but others were answered meanwhile: it may be this call's own trouble, so it stands in no row.
    Slow,
}

impl Failure {
    const fn weight(self) -> u32 {
        match self {
            Self::Sick => LEAST / SICK,
            Self::Silent | Self::Slow => LEAST / SILENT,
        }
    }
}

/// What is remembered of a server's answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    /// In a row.
    silent: u32,
    /// In a row.
    sick: u32,
    last_failure: Option<Instant>,
    /// The oldest first.
    minute: VecDeque<Slot>,
}

/// Calls that ended at about the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    began: Instant,
    well: u64,
    failed: u64,
    /// What its failures weigh, those that came together once.
    weight: u32,
}

impl Record {
    /// A call went well.
    pub(super) fn well(&mut self, now: Instant) {
        (self.silent, self.sick) = (0, 0);
        self.slot(now).well += 1;
    }

    /// It is there, which does not say that it can do its work.
    pub(super) const fn reached(&mut self) {
        self.silent = 0;
    }

    /// A call failed. Says whether that is enough.
    pub(super) fn failed(&mut self, failure: Failure, now: Instant) -> bool {
        let counted = self.counted(now);
        let slot = self.slot(now);
        slot.failed += 1;
        slot.weight += counted * failure.weight();
        self.row(failure, counted) || self.outweighs()
    }

    /// A probe failed. Says whether that is enough. Probes stand in rows alone: one that goes well says nothing of work.
    pub(super) fn probe_failed(&mut self, failure: Failure, now: Instant) -> bool {
        let counted = self.counted(now);
        self.row(failure, counted)
    }

    fn row(&mut self, failure: Failure, counted: u32) -> bool {
        match failure {
            Failure::Sick => (self.silent, self.sick) = (0, self.sick + counted),
            Failure::Silent => self.silent += counted,
            Failure::Slow => {}
        }
        self.silent >= SILENT || self.sick >= SICK
    }

    /// Whether too many calls of the last minute failed.
    fn outweighs(&self) -> bool {
        let (mut well, mut failed, mut weight) = (CREDIT, 0, 0);
        for slot in &self.minute {
            well += slot.well;
            failed += slot.failed;
            weight += slot.weight;
        }
        weight >= LEAST && failed * TOO_MANY.1 > well * TOO_MANY.0
    }

    /// What a failure counts for: nothing, if it comes together with one that was counted.
    fn counted(&mut self, now: Instant) -> u32 {
        if self.last_failure.is_some_and(|last| now.saturating_duration_since(last) < TOGETHER) {
            return 0;
        }
        self.last_failure = Some(now);
        1
    }

    /// Where a call that ends now is counted; what is older than a minute is forgotten.
    fn slot(&mut self, now: Instant) -> &mut Slot {
        let age = |slot: &Slot| now.saturating_duration_since(slot.began);
        while self.minute.front().is_some_and(|oldest| age(oldest) >= MINUTE) {
            self.minute.pop_front();
        }
        if self.minute.back().is_none_or(|newest| age(newest) >= SLOT) {
            self.minute.push_back(Slot { began: now, well: 0, failed: 0, weight: 0 });
        }
        let newest = self.minute.len() - 1;
        &mut self.minute[newest]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Calls at a steady pace: `+` went well, `-` said that it cannot, `~` was not answered, `s` was slow. At which call it was
    /// enough, from 1.
    fn enough(calls: &str, apart: Duration) -> Option<usize> {
        let (mut record, mut now) = (Record::default(), Instant::now());
        for (index, call) in calls.chars().enumerate() {
            now += apart;
            let failure = match call {
                '-' => Failure::Sick,
                '~' => Failure::Silent,
                's' => Failure::Slow,
                _ => {
                    record.well(now);
                    continue;
                }
            };
            if record.failed(failure, now) {
                return Some(index + 1);
            }
        }
        None
    }

    #[test]
    fn rows_and_shares_are_weighed() {
        // Calls, how often these, how many milliseconds apart, and at which it was enough.
        let table = [
            // In a row.
            ("-----", 1, 1_000, Some(5)),
            ("~~~", 1, 1_000, Some(3)),
            ("++++++++++++++++++++~~~", 1, 1_000, Some(23)),
            // Neither row is whole.
            ("~-", 4, 1_000, Some(8)),
            // One in five, one in four and one in three is answered.
            ("----+", 9, 1_000, Some(13)),
            ("---+", 9, 1_000, Some(18)),
            ("--+", 19, 1_000, Some(38)),
            ("~~+", 19, 1_000, Some(38)),
            // Three of five fail, and a half, and a third.
            ("-+-+-", 99, 1_000, None),
            ("-+", 99, 1_000, None),
            ("-++", 99, 1_000, None),
            // Slow ones stand in no row.
            ("s", 7, 1_000, None),
            ("s", 8, 1_000, Some(8)),
            ("++++ss+s", 99, 1_000, None),
            // One database alone, again and again.
            ("s", 99, 10_000, None),
            // What came together counts once, however much of it there is.
            ("-", 40, 5, None),
            // Longer ago than a minute.
            ("ssss+", 99, 20_000, None),
        ];
        for (calls, times, apart, expected) in table {
            let found = enough(&calls.repeat(times), Duration::from_millis(apart));
            assert_eq!(found, expected, "{calls} {times} times, {apart} ms apart");
        }
    }

    /// A busy server that fails most of its calls: of the hundred in a second twenty go well, evenly spread.
    #[test]
    fn many_calls_do_not_hide_that_most_of_them_fail() {
        let found = enough(&"----+".repeat(100), Duration::from_millis(10));
        assert!(found.is_some_and(|calls| calls <= 200), "{found:?}");
        assert_eq!(enough(&"+-+-+".repeat(1_000), Duration::from_millis(10)), None);
    }

    fn failures() -> impl Strategy<Value = Failure> {
        prop_oneof![Just(Failure::Sick), Just(Failure::Silent), Just(Failure::Slow)]
    }

    proptest! {
        /// Wherever the one good answer of five stands, and whatever the others are.
        #[test]
        fn one_answer_in_five_is_soon_not_enough(
            places in prop::collection::vec(0_usize..5, 4),
            failure in failures(),
            apart in 250_u64..=2_500,
        ) {
            let (mut record, mut now) = (Record::default(), Instant::now());
            let mut found = false;
            for call in 0..20 {
                now += Duration::from_millis(apart);
                if call % 5 == places[call / 5] {
                    record.well(now);
                } else {
                    found = found || record.failed(failure, now);
                }
            }
            prop_assert!(found);
        }

        /// At any pace, whatever the failures are.
        #[test]
        fn it_is_never_enough_while_every_failure_is_followed_by_a_call_that_goes_well(
            calls in prop::collection::vec((failures(), 0_u64..20_000), 0..200),
        ) {
            let (mut record, mut now) = (Record::default(), Instant::now());
            for (failure, apart) in calls {
                now += Duration::from_millis(apart);
                prop_assert!(!record.failed(failure, now));
                record.well(now);
            }
        }

        #[test]
        fn what_is_remembered_is_bounded(calls in prop::collection::vec((any::<bool>(), 0_u64..9_000), 0..500)) {
            let (mut record, mut now) = (Record::default(), Instant::now());
            for (well, apart) in calls {
                now += Duration::from_millis(apart);
                if well {
                    record.well(now);
                } else {
                    record.failed(Failure::Sick, now);
                }
                prop_assert!(record.minute.len() <= 12, "{}", record.minute.len());
            }
        }
    }
}
