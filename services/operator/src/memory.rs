//! What this process remembers of each database between passes: attempts and what they taught. Losing all of it costs a
//! few repeated calls and never a duplicate.

pub(crate) mod looks;
pub(crate) mod waits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cloud::{DnsChange, DnsRecord, Holdings, Role};
use jiff::{SignedDuration, Timestamp, Unit};
use plan::{Failure, Memory, Part};
use runtime::Backoff;

use self::looks::Looks;
use self::waits::Waits;

/// Between attempts that failed.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// Between attempts that only a person or another wish can cure.
const PATIENCE: Backoff = Backoff::new(Duration::from_secs(15), Duration::from_mins(5));
/// How long a zone counts as exhausted, beside what EC2 takes to show what was asked for in vain.
const EXHAUSTED: Duration = Duration::from_mins(10);
/// How many zones without room for a disk may be tried, one after the other, before the first counts as exhausted no more: in each of
/// them a machine waits for a disk until EC2 is sure to show none.
const GIVEN_UP: u32 = 3;
/// Between two attempts at what AWS allows only a few times a day.
const RATIONED: Duration = Duration::from_mins(5);

/// How long what was asked for may not show, before it is asked for again.
const UNSHOWN: Duration = Duration::from_secs(3);

/// How long it counts when something was asked of AWS: no picture that anybody plans with is so old.
const SHOWN: Duration = Duration::from_hours(1);
/// The same for a status, whose successors keep a distance of seconds.
const SAID: Duration = Duration::from_mins(1);

/// One database.
#[derive(Clone, Debug, Default)]
struct Entry {
    spent: Option<u64>,
    /// Of what, where, and until when.
    exhausted: Vec<(Role, String, Instant)>,
    wrote: Option<Instant>,
    asked: Option<Instant>,
    seen: Option<Arc<Holdings>>,
    failures: u32,
    reported: Option<Instant>,
    brought: Vec<(String, Instant)>,
    held: Vec<Held>,
}

impl Entry {
    /// Whether it makes no difference any more: of ten thousand that have come to rest, nothing is to be kept.
    fn is_over(&self) -> bool {
        let Self { spent, exhausted, wrote, asked, seen, failures, reported, brought, held } = self;
        let past = |at: &Option<Instant>, after: Duration| at.is_none_or(|at| at.elapsed() >= after);
        let now = Instant::now();
        let for_good = spent.is_none() && seen.is_none() && *failures == 0 && held.is_empty();
        for_good
            && exhausted.iter().all(|(.., until)| now >= *until)
            && brought.iter().all(|(_, at)| at.elapsed() >= UNSHOWN)
            && past(wrote, SHOWN)
            && past(asked, SHOWN)
            && past(reported, SAID)
    }
}

/// A part that nobody needs, which failed and rests while the others go on.
#[derive(Clone, Debug)]
struct Held {
    generation: i64,
    until: Instant,
    attempts: u32,
    failure: Failure,
}

/// All databases, by uid of their resource.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    took_over: OnceLock<Instant>,
    /// What another name than the one in force holds, while that is somebody else's.
    pub(crate) taken: Looks<Vec<DnsRecord>>,
    /// How far the change of such a name came, while it is under way.
    pub(crate) under_way: Looks<DnsChange>,
    /// Since when those wait that wait.
    pub(crate) waits: Waits,
    entries: Mutex<HashMap<String, Entry>>,
}

impl Memories {
    /// From here on this process leads; what another one asked for, it asked for before.
    pub(crate) fn take_over(&self) {
        // Leadership is gained once: who loses it ends.
        self.took_over.get_or_init(Instant::now);
    }

    /// For how long this process has led.
    pub(crate) fn led_for(&self) -> Duration {
        self.took_over.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Something new was asked of AWS, or is about to be: it may be there from now on.
    pub(crate) fn asked(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().asked = Some(Instant::now());
    }

    /// Whether a look begun at `moment` shows all that there is of a database, when everything shows within `lag`.
    ///
    /// A leader of which nothing is known may have asked for something right before this one took over.
    pub(crate) fn shows_all(&self, uid: &str, moment: Instant, lag: Duration) -> bool {
        let Some(took_over) = self.took_over.get() else { return false };
        let asked = self.lock().get(uid).and_then(|entry| entry.asked);
        let last = asked.map_or(*took_over, |asked| asked.max(*took_over));
        moment.checked_duration_since(last).is_some_and(|since| since >= lag)
    }

    /// What planning may know. A part rests only under the wish that it failed under.
    pub(crate) fn recall(&self, uid: &str, generation: i64) -> Memory {
        let entries = self.lock();
        let Some(entry) = entries.get(uid) else { return Memory::default() };
        let now = Instant::now();
        let without = |role: Role| -> Vec<String> {
            let recent = entry.exhausted.iter().filter(|(of, _, until)| *of == role && now < *until);
            recent.map(|(_, zone, _)| zone.clone()).collect()
        };
        let held = entry.held.iter().filter(|held| held.generation == generation && now < held.until);
        Memory {
            spent: entry.spent,
            exhausted_zones: without(Role::Instance),
            zones_without_volumes: without(Role::Volume),
            resting: held.map(|held| held.failure.part).collect(),
        }
    }

    /// When something was last written to AWS: only a later picture shows it.
    pub(crate) fn wrote_at(&self, uid: &str) -> Option<Instant> {
        self.lock().get(uid)?.wrote
    }

    /// The newer of this picture and the one that an earlier pass saw at work: what was seen once is not unseen. A database
    /// that has just come to rest is shown what everybody shares, which is older; once that is newer, nothing is kept.
    pub(crate) fn newest(&self, uid: &str, picture: Arc<Holdings>, at_rest: bool) -> Arc<Holdings> {
        let mut entries = self.lock();
        // Of one at rest that nothing is known of, nothing is kept.
        let known = entries.get_mut(uid).map(|entry| &mut entry.seen);
        if let Some(Some(seen)) = &known
            && seen.as_of > picture.as_of
        {
            return Arc::clone(seen);
        }
        match known {
            Some(seen) => *seen = (!at_rest).then(|| Arc::clone(&picture)),
            None if at_rest => {}
            None => entries.entry(uid.to_owned()).or_default().seen = Some(Arc::clone(&picture)),
        }
        picture
    }

    /// When the newest picture is of that a pass saw.
    pub(crate) fn seen_at(&self, uid: &str) -> Option<Instant> {
        Some(self.lock().get(uid)?.seen.as_ref()?.as_of)
    }

    pub(crate) fn wrote(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().wrote = Some(Instant::now());
    }

    /// Something was brought about just now, as [`plan::Step::brings`] calls it.
    pub(crate) fn brought(&self, uid: &str, what: String) {
        let mut entries = self.lock();
        let brought = &mut entries.entry(uid.to_owned()).or_default().brought;
        brought.retain(|(other, at)| *other != what && at.elapsed() < UNSHOWN);
        brought.push((what, Instant::now()));
    }

    /// Whether something was brought about so lately that it need not show yet.
    pub(crate) fn may_show_later(&self, uid: &str, what: &str) -> bool {
        let entries = self.lock();
        let Some(entry) = entries.get(uid) else { return false };
        entry.brought.iter().any(|(brought, at)| brought == what && at.elapsed() < UNSHOWN)
    }

    /// A status was written just now.
    pub(crate) fn reported(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().reported = Some(Instant::now());
    }

    /// For how long what need not be said at once is kept back, so that statuses come no closer than this; none if one is due.
    pub(crate) fn report_waits(&self, uid: &str, spacing: Duration) -> Option<Duration> {
        let reported = self.lock().get(uid)?.reported?;
        spacing.checked_sub(reported.elapsed()).filter(|left| !left.is_zero())
    }

    pub(crate) fn spent(&self, uid: &str, generation: u64) {
        self.lock().entry(uid.to_owned()).or_default().spent = Some(generation);
    }

    /// A zone had no capacity for a machine, or for a disk. A machine without a disk is given up only once EC2, which may take `lag`,
    /// is sure to show none: until then, and until the other zones were tried in the same way, this one is passed over.
    pub(crate) fn exhausted(&self, uid: &str, (role, zone): (Role, &str), lag: Duration) {
        let mut entries = self.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        let (now, counts) = (Instant::now(), |of: Role, known: &str| (of, known) != (role, zone));
        entry.exhausted.retain(|(of, known, until)| counts(*of, known) && now < *until);
        entry.exhausted.push((role, zone.to_owned(), now + EXHAUSTED + lag * GIVEN_UP));
    }

    /// Counts a failure and says when to try again.
    pub(crate) fn failed(&self, uid: &str, lasting: bool) -> Duration {
        let mut entries = self.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        let attempt = entry.failures;
        entry.failures = attempt.saturating_add(1);
        let policy = if lasting { PATIENCE } else { RETRY };
        // Not from zero on: a failure that took no time would be repeated in no time.
        policy.delay(attempt, 0.5 + runtime::backoff::random_share() / 2.0)
    }

    /// Lets a part rest that failed under a wish; what is to be said of it. `rationed` is what AWS allows only now and then.
    pub(crate) fn hold(&self, uid: &str, generation: i64, failure: Failure, rationed: bool) -> Failure {
        let mut entries = self.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        let same = |held: &&Held| held.generation == generation && held.failure.part == failure.part;
        let attempts = entry.held.iter().find(same).map_or(0, |held| held.attempts.saturating_add(1));
        let policy = if failure.lasting { PATIENCE } else { RETRY };
        let (delay, failure) = if rationed {
            (RATIONED, Failure { message: told(&failure.message, Timestamp::now(), RATIONED), ..failure })
        } else {
            (policy.delay(attempts, 0.5 + runtime::backoff::random_share() / 2.0), failure)
        };
        let until = Instant::now() + delay;
        // Nobody asks for what rested under another wish: it would have this one looked at all the time.
        entry.held.retain(|held| held.generation == generation && held.failure.part != failure.part);
        entry.held.push(Held { generation, until, attempts, failure: failure.clone() });
        failure
    }

    /// The failure of a part that rests under this wish.
    pub(crate) fn held(&self, uid: &str, generation: i64, part: Part) -> Option<Failure> {
        let entries = self.lock();
        let now = Instant::now();
        let rests =
            |held: &&Held| held.generation == generation && held.failure.part == part && now < held.until;
        entries.get(uid)?.held.iter().find(rests).map(|held| held.failure.clone())
    }

    /// How long it takes until one of the parts that rest is tried again.
    pub(crate) fn rests_for(&self, uid: &str) -> Option<Duration> {
        let entries = self.lock();
        let until = entries.get(uid)?.held.iter().map(|held| held.until).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// A part went well.
    pub(crate) fn went_well(&self, uid: &str, part: Part) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.held.retain(|held| held.failure.part != part);
        }
    }

    pub(crate) fn succeeded(&self, uid: &str) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.failures = 0;
        }
    }

    /// Whether nothing is remembered of any.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.under_way.is_empty() && self.waits.is_empty() && self.lock().is_empty()
    }

    /// Keeps only these, and of them only those of which something is still worth knowing.
    pub(crate) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.taken.retain(&known);
        self.under_way.retain(&known);
        self.waits.retain(&known);
        self.lock().retain(|uid, entry| known(uid) && !entry.is_over());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message with the time of the next attempt.
fn told(message: &str, now: Timestamp, delay: Duration) -> String {
    let next = SignedDuration::try_from(delay).ok().and_then(|delay| now.checked_add(delay).ok());
    match next.and_then(|next| next.round(Unit::Second).ok()) {
        Some(next) => format!("{message}; tried again after {next}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_brought_about_may_show_later() {
        let memories = Memories::default();
        assert!(!memories.may_show_later("a", "volume"));
        memories.brought("a", "volume".to_owned());
        memories.brought("a", "machine 1".to_owned());
        assert!(memories.may_show_later("a", "volume") && memories.may_show_later("a", "machine 1"));
        assert!(!memories.may_show_later("a", "machine 2") && !memories.may_show_later("b", "volume"));
        let long_ago = Instant::now().checked_sub(UNSHOWN).unwrap();
        memories.lock().get_mut("a").unwrap().brought[0].1 = long_ago;
        assert!(!memories.may_show_later("a", "volume") && memories.may_show_later("a", "machine 1"));
        memories.brought("a", "machine 2".to_owned());
        assert_eq!(memories.lock()["a"].brought.len(), 2, "what is over is forgotten");
    }

    #[test]
    fn a_report_is_kept_back_only_for_so_long_after_another() {
        let memories = Memories::default();
        let hour = Duration::from_hours(1);
        assert_eq!(memories.report_waits("a", hour), None, "nobody knows of another");
        memories.reported("a");
        assert!(memories.report_waits("a", hour).is_some_and(|left| left <= hour));
        assert_eq!(memories.report_waits("a", Duration::ZERO), None);
        assert_eq!(memories.report_waits("b", hour), None);
    }

    #[test]
    fn nothing_is_kept_of_a_database_once_it_makes_no_difference() {
        let memories = Memories::default();
        let long_ago = Instant::now().checked_sub(Duration::from_hours(2)).unwrap();
        let all = |_: &str| true;
        let kept = |change: &dyn Fn(&mut Entry)| {
            let mut entry = Entry::default();
            change(&mut entry);
            memories.lock().insert("a".to_owned(), entry);
            memories.retain(all);
            !memories.is_empty()
        };
        assert!(!kept(&|_| {}));
        for (at, expected) in [(Instant::now(), true), (long_ago, false)] {
            assert_eq!(kept(&|entry| entry.wrote = Some(at)), expected);
            assert_eq!(kept(&|entry| entry.asked = Some(at)), expected);
            assert_eq!(kept(&|entry| entry.reported = Some(at)), expected);
            assert_eq!(kept(&|entry| entry.brought.push(("volume".to_owned(), at))), expected);
            let exhausted = (Role::Volume, "zone".to_owned(), at + EXHAUSTED);
            assert_eq!(kept(&|entry| entry.exhausted.push(exhausted.clone())), expected);
        }
        assert!(kept(&|entry| entry.spent = Some(1)));
        assert!(kept(&|entry| entry.failures = 1));
        assert!(kept(&|entry| {
            let nothing = (Vec::new(), Vec::new(), Vec::new());
            let (instances, volumes, security_groups) = nothing;
            entry.seen = Some(Arc::new(Holdings { as_of: long_ago, instances, volumes, security_groups }));
        }));
        assert!(kept(&|entry| {
            let failure = failure(true);
            entry.held.push(Held { generation: 1, until: long_ago, attempts: 1, failure });
        }));
        memories.retain(|_| false);
        assert!(memories.is_empty());
    }

    fn failure(lasting: bool) -> Failure {
        Failure { part: Part::Tuning, message: "no".to_owned(), lasting }
    }

    #[test]
    fn what_rests_is_not_tried_before_its_time_unless_the_wish_changes() {
        let memories = Memories::default();
        assert_eq!(memories.held("a", 1, Part::Tuning), None);
        let said = memories.hold("a", 1, failure(false), true);
        assert!(said.message.starts_with("no; tried again after 2"), "{}", said.message);
        assert_eq!(memories.held("a", 1, Part::Tuning), Some(said));
        assert_eq!(memories.held("a", 1, Part::Config), None);
        assert_eq!(memories.held("a", 2, Part::Tuning), None, "another wish may be accepted at once");
        let resting = |generation| memories.recall("a", generation).resting;
        assert_eq!((resting(1), resting(2)), (vec![Part::Tuning], Vec::new()));
        let left = |memories: &Memories| memories.rests_for("a").unwrap();
        assert!(left(&memories) > RATIONED / 2);
        // Once its time has come it is tried again by itself.
        memories.lock().get_mut("a").unwrap().held[0].until = Instant::now();
        assert_eq!((memories.held("a", 1, Part::Tuning), resting(1)), (None, Vec::new()));
        assert_eq!(memories.rests_for("a"), Some(Duration::ZERO));
        memories.hold("a", 2, failure(true), false);
        assert!(left(&memories) <= Duration::from_secs(15));
        memories.went_well("a", Part::Config);
        assert!(memories.held("a", 2, Part::Tuning).is_some());
        memories.went_well("a", Part::Tuning);
        assert_eq!((memories.held("a", 2, Part::Tuning), memories.rests_for("a")), (None, None));
    }

    #[test]
    fn what_rested_under_another_wish_has_nobody_look_sooner() {
        let memories = Memories::default();
        memories.hold("a", 1, failure(false), false);
        assert!(memories.rests_for("a").unwrap() <= Duration::from_secs(1));
        memories.hold("a", 2, Failure { part: Part::Candidate, ..failure(false) }, true);
        assert!(memories.rests_for("a").unwrap() > RATIONED / 2);
        // Of two that rest under one wish the first counts.
        memories.hold("a", 2, failure(false), false);
        assert!(memories.rests_for("a").unwrap() <= Duration::from_secs(1));
        assert!(memories.held("a", 2, Part::Candidate).is_some());
    }

    #[test]
    fn what_was_seen_is_not_unseen() {
        let (memories, began) = (Memories::default(), Instant::now());
        let at = |second| {
            let as_of = began + Duration::from_secs(second);
            let (instances, volumes, security_groups) = (Vec::new(), Vec::new(), Vec::new());
            Arc::new(Holdings { as_of, instances, volumes, security_groups })
        };
        let newest = |second, at_rest| {
            let found = memories.newest("a", at(second), at_rest);
            found.as_of.duration_since(began).as_secs()
        };
        assert_eq!((newest(5, false), memories.seen_at("a")), (5, Some(at(5).as_of)));
        assert_eq!((newest(3, true), newest(4, false)), (5, 5), "the past, for one at rest and one at work");
        assert_eq!(
            (newest(6, true), memories.seen_at("a")),
            (6, None),
            "what all share needs no second place"
        );
        assert_eq!(memories.newest("b", at(1), true).as_of, at(1).as_of);
        assert!(!memories.lock().contains_key("b"), "nothing is kept of one at rest");
    }

    #[test]
    fn the_time_of_the_next_attempt_is_told() {
        let now: Timestamp = "2026-01-01T23:59:59.4Z".parse().unwrap();
        assert_eq!(told("no", now, RATIONED), "no; tried again after 2026-01-02T00:04:59Z");
    }

    #[test]
    fn failures_wait_longer_each_time_and_success_forgets() {
        let memories = Memories::default();
        let first = memories.failed("a", false);
        for _ in 0..10 {
            memories.failed("a", false);
        }
        assert!(memories.failed("a", false) > first);
        assert!(memories.failed("b", false) <= Duration::from_secs(1));
        memories.succeeded("a");
        assert!(memories.failed("a", false) <= Duration::from_secs(1));
    }

    #[test]
    fn a_look_shows_all_only_some_time_after_the_last_create_and_the_take_over() {
        let lag = Duration::from_secs(30);
        let memories = Memories::default();
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert!(!memories.shows_all("a", later(90), lag), "before it leads nothing is known");
        memories.take_over();
        let took_over = *memories.took_over.get().unwrap();
        assert!(!memories.shows_all("a", took_over + lag / 2, lag));
        assert!(memories.shows_all("a", took_over + lag, lag));
        memories.asked("a");
        let asked = memories.lock()["a"].asked.unwrap();
        assert!(!memories.shows_all("a", asked + lag.saturating_sub(Duration::from_nanos(1)), lag));
        assert!(memories.shows_all("a", asked + lag, lag));
        assert!(!memories.shows_all("a", took_over, Duration::ZERO), "a look from before the create");
        memories.take_over();
        assert_eq!(memories.took_over.get(), Some(&took_over), "it is taken over once");
    }

    #[test]
    fn a_zone_is_passed_over_until_the_machine_there_can_be_given_up_and_others_are_tried() {
        for lag in [Duration::ZERO, Duration::from_secs(30), Duration::from_mins(10)] {
            let memories = Memories::default();
            memories.take_over();
            memories.asked("a");
            memories.exhausted("a", (Role::Volume, "eu-west-1a"), lag);
            let until = memories.lock()["a"].exhausted[0].2;
            // Then it is left for another zone, and that for a third: each takes as long, and a machine some minutes to come.
            let left = until.checked_sub(Duration::from_mins(9) + lag * 2).unwrap();
            assert!(memories.shows_all("a", left, lag), "{lag:?}");
        }
    }

    #[test]
    fn what_was_learnt_is_recalled_until_the_resource_is_gone() {
        let memories = Memories::default();
        memories.spent("a", 3);
        for (role, zone) in [
            (Role::Instance, "eu-west-1a"),
            (Role::Instance, "eu-west-1a"),
            (Role::Volume, "eu-west-1a"),
            (Role::Volume, "eu-west-1b"),
        ] {
            memories.exhausted("a", (role, zone), Duration::ZERO);
        }
        let zones = |of: &[&str]| of.iter().map(|zone| (*zone).to_owned()).collect();
        let expected = Memory {
            spent: Some(3),
            exhausted_zones: zones(&["eu-west-1a"]),
            zones_without_volumes: zones(&["eu-west-1a", "eu-west-1b"]),
            resting: Vec::new(),
        };
        assert_eq!(memories.recall("a", 1), expected);
        assert!(!memories.is_empty());
        memories.retain(|uid| uid != "a");
        assert_eq!(memories.recall("a", 1), Memory::default());
        assert!(memories.is_empty());
    }
}
