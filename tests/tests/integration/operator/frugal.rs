//! What a database's life costs the API server, request by request: every object is written once and asked for never, and
//! a wish that is said again costs nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::http::Method;
use resources::{Phase, QuestDBStatus, StepState};
use serde_json::{Value, json};
use testkit::{Spawned, eventually, unique};

use super::edits::OBJECTS;
use super::exact::path;
use super::quiet::{asked, assert_quiet, rounds};
use super::rig::PATIENCE;
use super::subject::Subject;
use crate::front::{Front, Seen};

/// Writes for each that is needed at least. Beyond them are events, and what is said once more. News are counted apart.
const MOST: f64 = 1.3;
/// Those of the resource itself: for its finalizer and for the generation of its machine, each of which has to be stored before the
/// next thing is done.
const OWN: usize = 2;
/// Objects of a database outside of its namespace: its disk's, and the Node that its machine is.
const OUTSIDE: usize = 2;
/// The phases that people see.
const PHASES: [Phase; 2] = [Phase::Provisioning, Phase::Ready];
/// What a create needs, whatever it was seen to write: those of the resource, one for each object and one for each phase.
const LEAST: usize = OWN + OBJECTS.len() + OUTSIDE + PHASES.len();
/// The operator leaves at least so much time between two statuses that say no more than how far a new database is. How many of
/// them there are is a matter of how long the create takes, and not counted: any that comes sooner is.
const PROGRESS: Duration = Duration::from_secs(3);
/// News of a new database, each of which is said at once: its disk (which the phase waits for as long as something is done, and tells of
/// most often), its version and two words about its name (it is written, and it answers, which is when the database is known to serve),
/// and one to spare. How many of them a status says together is a matter of how quick everybody is. That a call failed, and that this is
/// over, is said at once too, and in an event, and not counted: for how many calls AWS has no patience is a matter of who else asks.
const MOST_NEWS: usize = 5;
/// How often a create is looked at where watches were told too late of what it wrote: a machine that stands still for a moment
/// does so in one of them.
const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_writes_everything_once_and_asks_nothing_and_a_redelivery_costs_nothing() {
    let (mut subject, front, operator) = frugally_created().await;
    let made = eventually(PATIENCE, "the time that it took to be measured", async || {
        let made = operator.metric("provisioning_duration_seconds_count", "outcome=\"succeeded\"").await;
        (made > 0.0).then_some(made)
    })
    .await;
    assert!(made < 2.0, "one database was made, and {made} were measured");
    let before = asked(&front).len();
    subject.say_again().await;
    rounds(&operator, 2.0).await;
    let before = assert_quiet(&front, before, "a redelivery costs requests");
    subject.wish_run_state("Purged").await;
    eventually(PATIENCE, "another wish to be heard", async || (asked(&front).len() > before).then_some(()))
        .await;
    drop(operator);
    subject.rig.end().await;
}

/// A database that serves, the way of its operator to the API server, and that: once all was written as it should be.
async fn frugally_created() -> (Subject, Front, Spawned) {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut subject = Subject::new(&unique("frugal")).await;
        let lease = subject.rig.lease().await;
        let front = Front::before(&subject.rig.rights(&lease).await).await;
        // Who is told late of its own status is refused what it writes over the one before, and writes it again.
        front.tell_before_answers();
        let kubeconfig = front.kubeconfig(&testkit::scratch());
        let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
        subject.serving().await;
        rounds(&operator, 2.0).await;

        let (counts, objects) = (Counts::of(&front), objects(&subject).await);
        println!("{:.2} of the least: {counts:?}", counts.share());
        let wrong = counts.wrong(&objects);
        if wrong.is_empty() {
            return (subject, front, operator);
        }
        let is_told_late = front.told_late() > 0;
        assert!(is_told_late && tries < TRIES, "{wrong:?}, try {tries}: {counts:?}, and not {objects:?}");
        drop(operator);
        subject.rig.end().await;
    }
}

/// The objects that a create makes or writes on, each of them once.
async fn objects(subject: &Subject) -> BTreeMap<String, u32> {
    let mut objects = BTreeMap::from([(format!("/api/v1/nodes/{}", subject.node(1)), 1)]);
    objects.insert(path(subject, "PersistentVolume").await, 1);
    for (.., kind, affix) in OBJECTS {
        objects.insert(path(subject, &format!("{kind} {affix}")).await, 1);
    }
    assert_eq!(objects.len(), OBJECTS.len() + OUTSIDE, "{objects:?}");
    objects
}

/// What was asked of the API server, sorted.
#[derive(Debug, Default)]
struct Counts {
    reads: Vec<String>,
    /// Writes of each object but the resource.
    objects: BTreeMap<String, u32>,
    /// Writes of the resource's annotations and finalizers, however often the same.
    resource: u32,
    /// Phases as they followed each other, and how often a status was written but to tell of news or of progress.
    phases: Vec<Option<Phase>>,
    statuses: u32,
    /// How many statuses of a new database told what none before them did, failures aside.
    news: usize,
    /// What was said, and when.
    said: Vec<(QuestDBStatus, Instant)>,
    /// Those of failures aside.
    events: u32,
}

impl Counts {
    fn of(front: &Front) -> Self {
        let mut counts = Self::default();
        let process = |seen: &Seen| seen.is_watch() || seen.is_of_lease() || seen.is_discovery();
        for seen in front.seen(|seen| !process(seen)) {
            counts.count(&seen);
        }
        // The first look at all objects of a kind is the process's: it begins the watch.
        counts.reads.retain(|path| !path.contains("limit="));
        counts
    }

    fn count(&mut self, seen: &Seen) {
        let path = seen.path.split('?').next().unwrap_or_default().to_owned();
        if seen.method == Method::GET {
            self.reads.push(seen.path.clone());
        } else if path.starts_with("/apis/events.k8s.io/") {
            self.events += u32::from(!tells_of_failure(seen));
        } else if path.ends_with("/status") {
            let body: Value = serde_json::from_str(&seen.body).unwrap_or_default();
            self.count_status(serde_json::from_value(body["status"].clone()).unwrap_or_default(), seen.at);
        } else if path.contains("/questdbs/") {
            self.resource += 1;
        } else {
            *self.objects.entry(path + &made(seen)).or_default() += 1;
        }
    }

    fn count_status(&mut self, status: QuestDBStatus, at: Instant) {
        let is_next = self.phases.last() != Some(&status.phase);
        if is_next {
            self.phases.push(status.phase);
        }
        let is_new = self.is_new(&status, QuestDBStatus::clone);
        let tells_more = self.is_new(&status, without_failures);
        let of_progress =
            self.said.last().is_some_and(|(_, then)| at.saturating_duration_since(*then) >= PROGRESS);
        if !is_next && is_new {
            self.news += usize::from(tells_more);
        } else if is_next || !of_progress {
            self.statuses += 1;
        }
        self.said.push((status, at));
    }

    /// Whether a status of a new database tells what none before it did, as far as `told` leaves it.
    fn is_new(&self, status: &QuestDBStatus, told: fn(&QuestDBStatus) -> QuestDBStatus) -> bool {
        let status = told(status);
        let is_told = || self.said.iter().any(|(said, _)| plan::can_wait(&told(said), &status));
        status.phase == Some(Phase::Provisioning) && !is_told()
    }

    /// In what a create with these objects was not as it should be.
    fn wrong(&self, objects: &BTreeMap<String, u32>) -> Vec<&'static str> {
        let all = [
            (self.reads.is_empty(), "something was asked for"),
            (self.objects == *objects, "not each object once, and no other"),
            (self.phases == PHASES.map(Some), "other phases"),
            (self.share() <= MOST, "too many writes"),
            (self.news <= MOST_NEWS, "too many news"),
        ];
        all.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
    }

    /// All writes that are no matter of time, nor of who was quicker, against the least that there can be.
    fn share(&self) -> f64 {
        let written: u32 = self.objects.values().sum();
        let all = written + self.resource + self.statuses + self.events;
        f64::from(all) / u32::try_from(LEAST).map_or(f64::NAN, f64::from)
    }
}

/// A status without the steps that failed.
fn without_failures(status: &QuestDBStatus) -> QuestDBStatus {
    let mut bare = status.clone();
    bare.steps.retain(|step| step.state != StepState::Failed);
    bare
}

/// Whether an event tells that a step failed.
fn tells_of_failure(seen: &Seen) -> bool {
    let body: Value = serde_json::from_str(&seen.body).unwrap_or_default();
    body["type"] == "Warning" && body["reason"].as_str().is_some_and(|reason| reason.ends_with("Failed"))
}

/// What follows in the path of an object that was made under the path of all of its kind.
fn made(seen: &Seen) -> String {
    let body: Value = serde_json::from_str(&seen.body).unwrap_or_default();
    let name = body["metadata"]["name"].as_str().filter(|_| seen.method == Method::POST);
    name.map(|name| format!("/{name}")).unwrap_or_default()
}

/// A write of something of a resource.
fn write(method: Method, path: &str, body: &Value, at: Instant) -> Seen {
    let path = format!("/apis/crd.questdb.io/v1/namespaces/a/{path}?");
    Seen { method, path, authorization: String::new(), body: body.to_string(), at, beside: 0 }
}

/// The phases of a create, as people see them.
#[test]
fn phases_are_counted_once_each() {
    let begun = Instant::now();
    let seen = |phase: Phase, after: Duration| {
        let body = json!({ "status": { "phase": phase.as_str() } });
        write(Method::PUT, "questdbs/b/status", &body, begun + after)
    };
    let mut counts = Counts::default();
    for phase in [Phase::Provisioning, Phase::Provisioning, Phase::Ready, Phase::Ready] {
        counts.count(&seen(phase, Duration::ZERO));
    }
    assert_eq!((counts.statuses, counts.phases.len()), (4, 2));
    // What comes late enough tells of progress; what comes sooner after it is one too many, and so is another phase.
    for (phase, after, counted) in
        [(Phase::Ready, 1, 4), (Phase::Ready, 2, 4), (Phase::Degraded, 3, 5), (Phase::Degraded, 4, 5)]
    {
        counts.count(&seen(phase, PROGRESS * after));
        assert_eq!(counts.statuses, counted, "{phase:?} at {after}");
    }
    counts.count(&seen(Phase::Degraded, PROGRESS * 4 + Duration::from_secs(1)));
    assert_eq!((counts.statuses, counts.phases.len()), (6, 3));
}

/// What tells something new is no write too many, however soon it comes; what tells again what was told before is.
#[test]
fn news_are_counted_once_each() {
    let (mut counts, begun) = (Counts::default(), Instant::now());
    let mut say = |version: Option<&str>, after: Duration| {
        let body = json!({ "status": { "phase": Phase::Provisioning.as_str(), "version": version } });
        counts.count(&write(Method::PUT, "questdbs/b/status", &body, begun + after));
        (counts.statuses, counts.news)
    };
    let soon = Duration::from_secs(1);
    assert_eq!(say(None, Duration::ZERO), (1, 0), "the phase");
    assert_eq!(say(Some("9.3.4"), soon), (1, 1));
    assert_eq!(say(Some("9.3.4"), soon * 2), (2, 1), "the same");
    assert_eq!(say(None, soon * 3), (3, 1), "the first again");
    assert_eq!(say(None, soon * 3 + PROGRESS), (3, 1), "how far it is");
    assert_eq!(say(Some("9.3.5"), soon * 4 + PROGRESS), (3, 2));
}

/// However often AWS has no patience with a create, it tells no more of itself.
#[test]
fn failures_are_neither_news_nor_writes_too_many() {
    let (mut counts, begun) = (Counts::default(), Instant::now());
    let mut say = |version: Option<&str>, failed: Option<&str>, after: u64| {
        let step = |message: &str| json!({ "name": "volume", "state": "Failed", "message": message });
        let steps: Vec<Value> = failed.map(step).into_iter().collect();
        let status = json!({ "phase": Phase::Provisioning.as_str(), "version": version, "steps": steps });
        let at = begun + Duration::from_secs(after);
        counts.count(&write(Method::PUT, "questdbs/b/status", &json!({ "status": status }), at));
        (counts.statuses, counts.news)
    };
    assert_eq!(say(None, None, 0), (1, 0), "the phase");
    assert_eq!(say(None, Some("busy"), 1), (1, 0));
    assert_eq!(say(Some("9.3.4"), Some("busy"), 2), (1, 1), "the version");
    assert_eq!(say(Some("9.3.4"), None, 3), (1, 1), "it is over");
    assert_eq!(say(Some("9.3.4"), None, 4), (2, 1), "the same");
    for (kind, reason, counted) in
        [("Warning", "RunInstanceFailed", 0), ("Warning", "Odd", 1), ("Normal", "Ready", 2)]
    {
        let mut seen = write(Method::POST, "", &json!({ "type": kind, "reason": reason }), begun);
        seen.path = "/apis/events.k8s.io/v1/namespaces/a/events?".to_owned();
        counts.count(&seen);
        assert_eq!(counts.events, counted, "{reason}");
    }
}

/// What is written more raises the share, whatever that is: an object too many, or the same again.
#[test]
fn the_least_is_what_a_create_needs_and_not_what_one_wrote() {
    let (mut counts, at) = (Counts::default(), Instant::now());
    for number in 0..OBJECTS.len() + OUTSIDE {
        let body = json!({ "metadata": { "name": format!("o-{number}") } });
        counts.count(&write(Method::POST, "things", &body, at));
    }
    let finalizer = write(Method::PATCH, "questdbs/b", &json!({ "metadata": { "finalizers": ["a"] } }), at);
    (0..OWN).for_each(|_| counts.count(&finalizer));
    for phase in PHASES {
        let body = json!({ "status": { "phase": phase.as_str() } });
        counts.count(&write(Method::PUT, "questdbs/b/status", &body, at));
    }
    assert!((counts.share() - 1.0).abs() < f64::EPSILON, "{counts:?}");
    counts.count(&write(Method::PATCH, "things/more", &json!({}), at));
    counts.count(&finalizer);
    let more = f64::from(u32::try_from(LEAST + 2).unwrap()) / f64::from(u32::try_from(LEAST).unwrap());
    assert!((counts.share() - more).abs() < f64::EPSILON, "{counts:?}");
}
