//! How long each database has waited for the same, and when one that waits is looked at again.
//!
//! What Kubernetes tells is noticed at once, whatever is said here: these looks are for what only EC2 and Route 53 know, and each of them
//! is paid for with requests that everybody in the account shares.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use plan::Part;

use super::by_uid::ByUid;
use crate::slot::into_round;

/// Between two looks at first.
pub(crate) const FIRST: Duration = Duration::from_secs(1);
/// Between two looks at first, while others wait long for their turns: for each look at one that only waits they would wait the longer.
pub(crate) const CROWDED: Duration = Duration::from_secs(4);
/// Between two looks at last: what changes in EC2 is noticed sooner than of one at rest.
const LAST: Duration = Duration::from_secs(16);
/// What is waited for is noticed late by so small a part of the time that it took, more or less.
const SHARE: u32 = 16;

/// Since when each database waits for the same, by uid of its resource. Losing it costs a few looks.
pub(crate) type Waits = ByUid<Wait>;

/// What is known of one.
#[derive(Debug)]
pub(crate) struct Wait {
    /// A number made of the wish and of all that is waited for.
    what: u64,
    since: Instant,
}

impl ByUid<Wait> {
    /// For how long a database has waited for this, part by part, under the wish of a generation. Another text is another thing.
    pub(crate) fn lasted(
        &self,
        uid: &str,
        generation: i64,
        parts: &[(Part, &str)],
        now: Instant,
    ) -> Duration {
        let mut hasher = DefaultHasher::new();
        (generation, parts).hash(&mut hasher);
        let what = hasher.finish();
        let mut waits = self.lock();
        if let Some(known) = waits.get(uid).filter(|known| known.what == what) {
            return now.saturating_duration_since(known.since);
        }
        waits.insert(uid.to_owned(), Wait { what, since: now });
        Duration::ZERO
    }
}

/// How long it is until the next look at a database that has waited for so long: the longer it has, the more, and never more than
/// `resync`, unless that is less than at first. `crowded` says whether others wait long for their turns now; `now` is the time since
/// this process began to lead.
pub(crate) fn pause(waited: Duration, crowded: bool, resync: Duration, now: Duration) -> Duration {
    let mut pause = if crowded { CROWDED } else { FIRST };
    while pause < LAST && pause * 2 <= waited / SHARE {
        pause *= 2;
    }
    let pause = pause.min(resync);
    if pause <= FIRST { FIRST } else { together(pause, now) }
}

/// How long it is until the next look at a database of which there is one in each pause: at most one pause. All pauses of a length end
/// at the same moments, whenever they began, because those who look together share what they ask of EC2.
pub(crate) fn together(pause: Duration, now: Duration) -> Duration {
    pause.saturating_sub(into_round(now, pause))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_takes_longer_is_looked_at_seldomer_and_soon_enough() {
        // At a time at which all pauses begin.
        let check = |waited: u64, resync: Duration, expected: u64| {
            let found = pause(seconds(waited), false, resync, HOUR * 16);
            assert_eq!(found, seconds(expected), "{waited} {resync:?}");
        };
        for (waited, expected) in
            [(0, 1), (31, 1), (32, 2), (63, 2), (64, 4), (128, 8), (255, 8), (256, 16), (86_400, 16)]
        {
            check(waited, HOUR, expected);
        }
        check(86_400, seconds(3), 3);
        check(86_400, seconds(1), 1);
        check(0, seconds(3), 1);
    }

    #[test]
    fn while_others_wait_for_their_turns_none_that_only_waits_is_looked_at_each_second() {
        let check = |waited: u64, resync: Duration, expected: [u64; 2]| {
            let found = [true, false].map(|crowded| pause(seconds(waited), crowded, resync, HOUR * 16));
            assert_eq!(found, expected.map(seconds), "{waited} {resync:?}");
        };
        // Once they wait no more it is as it was.
        check(0, HOUR, [4, 1]);
        check(32, HOUR, [4, 2]);
        check(127, HOUR, [4, 4]);
        check(128, HOUR, [8, 8]);
        check(86_400, HOUR, [16, 16]);
        check(0, seconds(3), [3, 1]);
        check(0, seconds(1), [1, 1]);
    }

    #[test]
    fn those_who_wait_look_together_whenever_they_began() {
        for waited in [seconds(32), seconds(100), seconds(200), HOUR] {
            let whole = pause(waited, false, HOUR, HOUR * 16);
            for millis in (0..40_000).step_by(130) {
                let now = Duration::from_millis(millis);
                let left = pause(waited, false, HOUR, now);
                assert!(!left.is_zero() && left <= whole, "{waited:?} {now:?}: {left:?}");
                assert_eq!((now + left).as_nanos() % whole.as_nanos(), 0, "{waited:?} {now:?}");
            }
        }
    }

    #[test]
    fn a_wait_lasts_until_something_else_is_waited_for_or_was_done() {
        let (waits, began) = (Waits::default(), Instant::now());
        let lasted = |uid: &str, generation, parts: &[(Part, &str)], second| {
            waits.lasted(uid, generation, parts, began + seconds(second)).as_secs()
        };
        let pod = [(Part::Pod, "waiting for QuestDB to start")];
        assert_eq!((lasted("a", 1, &pod, 0), lasted("a", 1, &pod, 50)), (0, 50));
        assert_eq!(lasted("b", 1, &pod, 50), 0, "each for itself");
        assert_eq!((lasted("a", 2, &pod, 60), lasted("a", 2, &pod, 70)), (0, 10), "another wish");
        let both = [(Part::Attachment, "waiting for the disk"), pod[0]];
        assert_eq!((lasted("a", 2, &both, 80), lasted("a", 2, &both, 90)), (0, 10), "another part");
        let other = [both[0], (Part::Pod, "container questdb waits: ErrImagePull")];
        assert_eq!((lasted("a", 2, &other, 91), lasted("a", 2, &other, 93)), (0, 2), "another text");
        waits.forget("a");
        assert_eq!(lasted("a", 2, &other, 100), 0, "it has ended");
        waits.retain(|uid| uid == "a");
        assert_eq!((lasted("a", 2, &other, 110), lasted("b", 1, &pod, 110)), (10, 0));
        waits.retain(|_| false);
        assert!(waits.is_empty());
    }
}
