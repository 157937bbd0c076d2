//! When a snapshot is looked at again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use plan::snapshot::{Plan, until_late};
use resources::{QuestDBSnapshot, SnapshotPhase};

use crate::turn::Next;

/// Between two looks while something is waited for that holds a database up, at first and at last.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Between two looks at what EBS copies by itself, once it has taken that long.
const COPY: Duration = Duration::from_mins(1);

/// How soon after a deadline it is looked at what has to be done then.
const AFTER_DEADLINE: Duration = Duration::from_millis(100);

/// Until a list that somebody else has asked for may be there.
const LIST: Duration = Duration::from_secs(2);

/// When to come again for a list that is under way: not all at once.
pub(super) fn after_list() -> Duration {
    LIST.mul_f64(1.0 + runtime::backoff::random_share())
}

/// When to come again for a database that does not tell whether a checkpoint of ours holds it.
pub(super) fn until_clear(resource: &QuestDBSnapshot, now: Timestamp) -> Duration {
    let (shortest, longest) = WAIT;
    (age(resource, now) / 20).clamp(shortest, longest)
}

/// At that time, unless it is sooner or something failed: that has a time of its own.
pub(super) fn no_later(next: Next, again: Duration) -> Next {
    match next {
        Next::Change | Next::Rest(_) => Next::Soon(again),
        Next::Soon(pause) => Next::Soon(pause.min(again)),
        Next::Overtaken(_) | Next::Failed { .. } => next,
    }
}

/// What failed is tried again in its time, and looked at no later than its deadline: from then on there is something else to do, and a
/// database may be held until that is done.
pub(super) fn by_deadline(next: Next, resource: &QuestDBSnapshot, now: Timestamp) -> Next {
    match next {
        Next::Failed { delay, lasting, category } => {
            Next::Failed { delay: in_time(delay, resource, now), lasting, category }
        }
        Next::Overtaken(delay) => Next::Overtaken(in_time(delay, resource, now)),
        Next::Rest(_) | Next::Soon(_) | Next::Change => next,
    }
}

fn in_time(pause: Duration, resource: &QuestDBSnapshot, now: Timestamp) -> Duration {
    let left = until_late(resource, now).and_then(|left| Duration::try_from(left).ok());
    left.map_or(pause, |left| pause.min(left + AFTER_DEADLINE))
}

/// The longer something takes, the seldomer it is looked at.
pub(super) fn pause(resource: &QuestDBSnapshot, plan: &Plan, now: Timestamp) -> Duration {
    let age = age(resource, now);
    if plan.phase == SnapshotPhase::Copying {
        let pause = age.clamp(WAIT.0, COPY);
        return pause.mul_f64(1.0 + runtime::backoff::random_share() / 2.0);
    }
    in_time(until_clear(resource, now), resource, now)
}

fn age(resource: &QuestDBSnapshot, now: Timestamp) -> Duration {
    let made = resource.metadata.creation_timestamp.as_ref();
    let age = made.map_or(SignedDuration::ZERO, |made| now.duration_since(made.0));
    Duration::try_from(age).unwrap_or_default()
}

/// Objects that wait for their next look, by uid: until then, what is seen of one in the version that was looked at last is
/// our own report coming back. Losing it costs a look.
#[derive(Debug, Default)]
pub(super) struct Rests(Mutex<HashMap<String, (String, Instant)>>);

impl Rests {
    /// An object was looked at, and its last report gave it this version.
    pub(super) fn until(&self, uid: &str, version: &str, pause: Duration) {
        self.lock().insert(uid.to_owned(), (version.to_owned(), Instant::now() + pause));
    }

    /// How long the object still waits, as far as nothing about it changed.
    pub(super) fn left(&self, resource: &QuestDBSnapshot, now: Instant) -> Option<Duration> {
        let (uid, version) = (resource.metadata.uid.as_ref()?, resource.metadata.resource_version.as_ref()?);
        let rests = self.lock();
        let (_, until) = rests.get(uid).filter(|(known, _)| known == version)?;
        until.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    pub(super) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.lock().retain(|uid, _| known(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(version: &str) -> QuestDBSnapshot {
        let mut made = QuestDBSnapshot::new(
            "a",
            serde_json::from_value(serde_json::json!({ "database": "d" })).unwrap(),
        );
        made.metadata.uid = Some("u".to_owned());
        made.metadata.resource_version = Some(version.to_owned());
        made.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        made
    }

    fn plan(phase: SnapshotPhase) -> Plan {
        Plan { step: None, phase, reason: "", message: String::new(), copy: None, settled: false }
    }

    #[test]
    fn what_may_be_held_is_looked_at_in_time_whatever_else_comes_of_the_pass() {
        let again = Duration::from_secs(5);
        for (next, expected) in [
            (Next::Change, Next::Soon(again)),
            (Next::Rest(again * 9), Next::Soon(again)),
            (Next::Soon(again * 9), Next::Soon(again)),
            (Next::Soon(again / 9), Next::Soon(again / 9)),
            (Next::Overtaken(again * 9), Next::Overtaken(again * 9)),
        ] {
            assert_eq!(no_later(next, again), expected);
        }
    }

    #[test]
    fn a_mere_copy_is_looked_at_seldomer_the_longer_it_takes_and_not_all_at_once() {
        let pauses = |seconds: i64, phase: SnapshotPhase| {
            let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
            let mut found = [(); 50].map(|()| pause(&snapshot("1"), &plan(phase), now));
            found.sort();
            found
        };
        for (age, shortest) in [(0, 1), (8, 8), (59, 59), (600, 60), (86_400, 60)] {
            let (found, shortest) = (pauses(age, SnapshotPhase::Copying), Duration::from_secs(shortest));
            assert!(found[0] >= shortest && found[49] <= shortest.mul_f64(1.5), "{age}: {found:?}");
            assert!(found[0] < found[49], "{age}: all at once");
        }
        for (age, expected) in [(0, 1), (200, 10), (86_400, 15)] {
            assert_eq!(pauses(age, SnapshotPhase::Checkpointing)[49], Duration::from_secs(expected));
        }
    }

    #[test]
    fn whatever_is_tried_again_is_looked_at_right_after_its_deadline() {
        let failed = |seconds: u64| Next::Failed {
            delay: Duration::from_secs(seconds),
            lasting: true,
            category: "aws",
        };
        let at = |seconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let waiting = snapshot("1");
        let deadline = i64::from(waiting.spec.deadline_seconds);
        let in_time = |left: u64| Duration::from_secs(left) + AFTER_DEADLINE;
        for (before, expected) in [(301, 300), (299, 299), (5, 5), (0, 0)] {
            let found = by_deadline(failed(300), &waiting, at(deadline - before));
            let delay = Duration::from_mins(5).min(in_time(expected));
            assert_eq!(found.delay(), Some(delay), "{before} seconds before");
            let now = at(deadline - before) + SignedDuration::try_from(delay).unwrap();
            let is_late = until_late(&waiting, now).is_none();
            assert_eq!(is_late, before < 300, "{before} seconds before");
        }
        assert_eq!(by_deadline(failed(300), &waiting, at(deadline + 1)), failed(300), "it was looked at");
        assert_eq!(by_deadline(Next::Change, &waiting, at(0)), Next::Change);
        let overtaken = by_deadline(Next::Overtaken(Duration::from_mins(5)), &waiting, at(deadline - 5));
        assert_eq!(overtaken, Next::Overtaken(in_time(5)), "who was overtaken decides anew by then");
        let mut copies = waiting.clone();
        copies.status.get_or_insert_default().phase = Some(SnapshotPhase::Copying);
        let mut ends = waiting.clone();
        ends.metadata.deletion_timestamp = ends.metadata.creation_timestamp.clone();
        for other in [copies, ends] {
            assert_eq!(
                by_deadline(failed(300), &other, at(deadline - 5)),
                failed(300),
                "nothing is due then"
            );
        }
        // What is only waited for, too.
        let found = pause(&waiting, &plan(SnapshotPhase::Checkpointing), at(deadline - 5));
        assert_eq!(found, in_time(5));
    }

    #[test]
    fn our_own_report_is_no_news() {
        let (rests, now) = (Rests::default(), Instant::now());
        let left = |version: &str, at: Instant| rests.left(&snapshot(version), at).is_some();
        assert!(!left("1", now));
        rests.until("u", "2", Duration::from_mins(1));
        assert!(left("2", now) && !left("3", now), "another version is news");
        assert!(!left("2", now + Duration::from_mins(2)), "its time has come");
        rests.retain(|_| false);
        assert!(!left("2", now));
    }
}
