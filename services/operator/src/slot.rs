//! When regular looks at databases at rest are due.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::memory::Memories;

/// Slots of a round. All databases of one slot are looked at together, which costs a fraction of as many single looks: the
/// process wakes up once, and what the first look fetches into the processor's caches serves all others.
const SLOTS: u32 = 120;

/// When the regular look at one database is due.
///
/// Its slot follows from its identity. So looks are spread evenly from a leader's start on, when all are looked at, and stay
/// so, whatever else asks for a look meanwhile.
pub(crate) struct Slot<'a> {
    pub(crate) uid: &'a str,
    /// Since this process began to lead.
    pub(crate) now: Duration,
}

impl<'a> Slot<'a> {
    /// That of a database, now.
    pub(crate) fn of(uid: &'a str, memories: &Memories) -> Self {
        Self { uid, now: memories.led_for() }
    }

    /// How long it is until the database's next slot, when one round of all slots takes this long. A slot that begins in
    /// less than half of one counts as this one.
    pub(crate) fn within(&self, round: Duration) -> Duration {
        let mut hasher = DefaultHasher::new();
        self.uid.hash(&mut hasher);
        // The remainder is smaller than the number of slots.
        let number = u32::try_from(hasher.finish() % u64::from(SLOTS)).unwrap_or_default();
        let length = round / SLOTS;
        let into = into_round(self.now, round);
        let begins = length * number;
        let left = begins.checked_sub(into).unwrap_or_else(|| (round + begins).saturating_sub(into));
        if left < length / 2 { left + round } else { left }
    }
}

/// What is left of a time by whole rounds.
pub(crate) fn into_round(time: Duration, round: Duration) -> Duration {
    // Less than a round, which is at most a day.
    let nanos = u64::try_from(time.as_nanos() % round.as_nanos().max(1));
    Duration::from_nanos(nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn of(number: u32, now: Duration, round: Duration) -> Duration {
        Slot { uid: &format!("0b3c3f5e-0000-4000-8000-{number:012}"), now }.within(round)
    }

    #[test]
    fn looks_at_what_rests_are_evenly_spread_whenever_all_were_looked_at_at_once() {
        const DATABASES: u32 = 12_000;
        for now in [Duration::ZERO, Duration::from_millis(2_500), HOUR * 7 + Duration::from_secs(1_234)] {
            let mut in_slot = BTreeMap::<u128, u32>::new();
            for number in 0..DATABASES {
                let delay = of(number, now, HOUR);
                let length = HOUR / SLOTS;
                assert!((length / 2..HOUR + length / 2).contains(&delay), "{delay:?}");
                // The next look begins with a slot, and the one after that a round later.
                let due = now + delay;
                assert_eq!(due.as_nanos() % length.as_nanos(), 0);
                assert_eq!(of(number, due, HOUR), HOUR);
                let late = Duration::from_millis(20);
                assert_eq!(late + of(number, due + late, HOUR), HOUR);
                *in_slot.entry(due.as_nanos() / length.as_nanos()).or_default() += 1;
            }
            assert_eq!(in_slot.len(), 120);
            let mean = DATABASES / SLOTS;
            // Six times the square root of the mean.
            assert!(in_slot.values().all(|count| count.abs_diff(mean) < 60), "{in_slot:?}");
        }
    }

    #[test]
    fn a_look_in_between_neither_moves_the_slot_nor_adds_another() {
        // Far enough from the beginning of the round that every look in between is one.
        let is_late = |number: &u32| of(*number, Duration::ZERO, HOUR) > HOUR / 2;
        let number = (0..1_000).find(is_late).unwrap();
        let due = of(number, Duration::ZERO, HOUR);
        for share in [0.1, 0.5, 0.9] {
            let between = due.mul_f64(share);
            assert_eq!(between + of(number, between, HOUR), due);
        }
        // What was just looked at is not looked at again at once.
        let shortly_before = due.checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(shortly_before + of(number, shortly_before, HOUR), due + HOUR);
    }
}
