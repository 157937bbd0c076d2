//! What this process remembers of each database between passes: attempts and what they taught. Losing all of it costs a
//! few repeated calls and never a duplicate.

mod by_uid;
mod entry;
pub(crate) mod listed;
pub(crate) mod looks;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod waits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cloud::{DnsChange, DnsRecord, Holdings, Role};
use jiff::{SignedDuration, Timestamp, Unit};
use kube::core::ObjectMeta;
use plan::{Agreement, Failure, Memory, Part};
use runtime::Backoff;

use self::entry::{Entry, Held};
use self::listed::Lists;
use self::looks::Looks;
use self::tables::Tables;
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
/// How often in a row somebody may be quicker in writing an object before that goes on.
const OFTEN: u32 = 5;
/// How long an object that was found to be as intended is not compared again.
const AGREED: Duration = Duration::from_secs(30);

/// What a resource is called that was written over this version of it.
fn after(version: &str) -> String {
    format!("after version {version}")
}

/// All databases, by uid of their resource.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    took_over: OnceLock<Instant>,
    /// What another name than the one in force holds, while that is somebody else's.
    pub(crate) taken: Looks<Vec<DnsRecord>>,
    /// How far the change of such a name came, while it is under way.
    pub(crate) under_way: Looks<DnsChange>,
    /// Which keys of server.conf those list that may not know one which is asked for.
    pub(crate) lists: Lists,
    /// Which WAL tables those have suspended that serve.
    pub(crate) tables: Tables,
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
        self.until_shown(uid, moment, lag).is_none()
    }

    /// How long after `moment` it is until a look does; none when one begun then does.
    pub(crate) fn until_shown(&self, uid: &str, moment: Instant, lag: Duration) -> Option<Duration> {
        let Some(took_over) = self.took_over.get() else { return Some(lag) };
        let asked = self.lock().get(uid).and_then(|entry| entry.asked);
        let shown = asked.map_or(*took_over, |asked| asked.max(*took_over)) + lag;
        shown.checked_duration_since(moment).filter(|left| !left.is_zero())
    }

    /// What planning may know. A part rests only under the wish that it failed under.
    pub(crate) fn recall(&self, uid: &str, generation: i64) -> Memory {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(uid) else { return Memory::default() };
        let now = Instant::now();
        // This pass compares all of them.
        entry.agreed.take_if(|(since, _)| now.saturating_duration_since(*since) >= AGREED);
        let without = |role: Role| -> Vec<String> {
            let recent = entry.exhausted.iter().filter(|(of, _, until)| *of == role && now < *until);
            recent.map(|(_, zone, _)| zone.clone()).collect()
        };
        let of_wish = || entry.held.iter().filter(move |held| held.generation == generation);
        let resting = of_wish().filter(|held| now < held.until);
        let refused = of_wish().filter(|held| held.failure.lasting);
        Memory {
            spent: entry.spent,
            exhausted_zones: without(Role::Instance),
            zones_without_volumes: without(Role::Volume),
            resting: resting.map(|held| held.failure.part).collect(),
            refused: refused.map(|held| held.failure.part).collect(),
            agreed: entry.agreed.as_ref().map(|(_, agreed)| agreed.clone()).unwrap_or_default(),
            ..Memory::default()
        }
    }

    /// What a plan found to be as intended, for the next ones: some of it by what the last one had found, so its time is that of the
    /// first. Of a database at rest, which is looked at seldom, nothing is to be kept.
    pub(crate) fn agreed(&self, uid: &str, agreed: Vec<Agreement>) {
        let mut entries = self.lock();
        if !agreed.is_empty() {
            let entry = entries.entry(uid.to_owned()).or_default();
            let since = entry.agreed.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            entry.agreed = Some((since, agreed));
        } else if let Some(entry) = entries.get_mut(uid) {
            entry.agreed = None;
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

    /// The resource was written just now over what was seen of it, and is stored under this version: whoever still sees that sees what
    /// is no more. Where nothing was to be changed it is stored as it was.
    pub(crate) fn overtook(&self, seen: &ObjectMeta, stored: Option<&str>) {
        let (Some(uid), Some(version)) = (&seen.uid, &seen.resource_version) else { return };
        if stored.is_some_and(|stored| stored != version) {
            self.brought(uid, after(version));
        }
    }

    /// Whether this is what was written over so lately that what was written need not show yet.
    pub(crate) fn is_overtaken(&self, seen: &ObjectMeta) -> bool {
        let (Some(uid), Some(version)) = (&seen.uid, &seen.resource_version) else { return false };
        self.may_show_later(uid, &after(version))
    }

    /// A status was written just now.
    pub(crate) fn reported(&self, uid: &str) {
        let mut entries = self.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        (entry.reported, entry.unsaid) = (Some(Instant::now()), None);
    }

    /// A database without a status: its first one may be kept back from its first pass on.
    pub(crate) fn begins(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().reported.get_or_insert_with(Instant::now);
    }

    /// A first status is kept back, with the identity in it: what is made meanwhile is made for that database.
    pub(crate) fn keeps_back(&self, uid: &str, identity: Option<&String>) {
        self.lock().entry(uid.to_owned()).or_default().unsaid = identity.cloned();
    }

    /// The identity of a database of which nothing was said yet, although things are made for it.
    pub(crate) fn unsaid(&self, uid: &str) -> Option<String> {
        self.lock().get(uid)?.unsaid.clone()
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

    /// Counts that somebody was quicker in writing an object of a part. Whether that goes on.
    pub(crate) fn overtaken(&self, uid: &str, part: Part, object: String) -> bool {
        let mut entries = self.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        let times = entry.overtaken.entry((part, object)).or_default();
        *times = times.saturating_add(1);
        *times > OFTEN
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

    /// How long it takes until one of the parts is tried again that rest under this wish: those that `rested` when the pass began, and
    /// those that failed in it. One whose time had come before, and that no plan has tried since, would have it looked at all the time.
    pub(crate) fn rests_for(&self, uid: &str, generation: i64, rested: &[Part]) -> Option<Duration> {
        let entries = self.lock();
        let now = Instant::now();
        let counts = |held: &&Held| {
            held.generation == generation && (now < held.until || rested.contains(&held.failure.part))
        };
        let until = entries.get(uid)?.held.iter().filter(counts).map(|held| held.until).min()?;
        Some(until.saturating_duration_since(now))
    }

    /// A part went well.
    pub(crate) fn went_well(&self, uid: &str, part: Part) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.held.retain(|held| held.failure.part != part);
            entry.overtaken.retain(|(of, _), _| *of != part);
        }
    }

    pub(crate) fn succeeded(&self, uid: &str) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.failures = 0;
            entry.overtaken.clear();
        }
    }

    /// Whether nothing is remembered of any.
    pub(crate) fn is_empty(&self) -> bool {
        let looks = self.taken.is_empty() && self.under_way.is_empty();
        let asked = self.lists.is_empty() && self.tables.is_empty();
        looks && asked && self.waits.is_empty() && self.lock().is_empty()
    }

    /// Forgets one that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.taken.forget(uid);
        self.under_way.forget(uid);
        self.lists.forget(uid);
        self.tables.forget(uid);
        self.waits.forget(uid);
        self.lock().remove(uid);
    }

    /// Keeps only these, and of them only those of which something is still worth knowing.
    pub(crate) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.taken.retain(&known);
        self.under_way.retain(&known);
        self.lists.retain(&known);
        self.tables.retain(&known);
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
