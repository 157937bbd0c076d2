//! What a database's life costs the API server, request by request: every object is written once and asked for never, and
//! a wish that is said again costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::http::Method;
use resources::Phase;
use serde_json::Value;
use testkit::{eventually, unique};

use super::quiet::{asked, rounds};
use super::rig::PATIENCE;
use super::subject::Subject;
use crate::front::{Front, Seen};

/// Writes for each that is needed at least: two of the resource itself, for its finalizer and for the generation of its
/// machine, each of which has to be stored before the next thing is done; one for each object, one for each phase that people
/// see. Beyond them is what people want to see in between: steps in status, and events.
const MOST: f64 = 1.3;
/// Those of the resource itself.
const OWN: f64 = 2.0;
/// The operator leaves at least so much time between two statuses that say no more than how far a new database is. How many of
/// them there are is a matter of how long the create takes, and not counted: any that comes sooner is.
const PROGRESS: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_writes_everything_once_and_asks_nothing_and_a_redelivery_costs_nothing() {
    let mut subject = Subject::new(&unique("frugal")).await;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.serving().await;
    rounds(&operator, 2.0).await;

    let counts = Counts::of(&front);
    assert_eq!(counts.reads, Vec::<String>::new(), "something was asked for");
    let twice: Vec<_> = counts.objects.iter().filter(|(_, writes)| **writes != 1).collect();
    assert!(twice.is_empty(), "not written once: {twice:?}");
    assert!(counts.resource.len() <= 2 && counts.objects.len() >= 8, "{counts:?}");
    println!("{:.2} of the least: {counts:?}", counts.share());
    assert!(counts.share() <= MOST, "{} of the least: {counts:?}", counts.share());

    let before = asked(&front).len();
    subject.say_again().await;
    rounds(&operator, 2.0).await;
    assert_eq!(asked(&front)[before..], *Vec::<String>::new(), "a redelivery costs requests");
    subject.wish_run_state("Purged").await;
    eventually(PATIENCE, "another wish to be heard", async || (asked(&front).len() > before).then_some(()))
        .await;
    drop(operator);
    subject.rig.end().await;
}

/// What was asked of the API server, sorted.
#[derive(Debug, Default)]
struct Counts {
    reads: Vec<String>,
    /// Writes of each object but the resource.
    objects: BTreeMap<String, u32>,
    /// What was written of the resource's annotations and finalizers. One that names a version which is not the newest any
    /// more, because the operator is told late of its own status, is refused, and made again.
    resource: BTreeSet<String>,
    /// Phases as they followed each other, and how often a status was written but to tell of progress.
    phases: Vec<Value>,
    statuses: u32,
    /// The phase that each status said last, and when.
    said: BTreeMap<String, (Value, Instant)>,
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
            self.events += 1;
        } else if path.ends_with("/status") {
            let body: Value = serde_json::from_str(&seen.body).unwrap_or_default();
            self.count_status(path, &body["status"]["phase"], seen.at);
        } else if path.contains("/questdbs/") {
            self.resource.insert(written(&seen.body));
        } else {
            *self.objects.entry(path).or_default() += 1;
        }
    }

    fn count_status(&mut self, path: String, phase: &Value, at: Instant) {
        if self.phases.last() != Some(phase) {
            self.phases.push(phase.clone());
        }
        let before = self.said.insert(path, (phase.clone(), at));
        let of_progress = before
            .is_some_and(|(said, then)| said == *phase && at.saturating_duration_since(then) >= PROGRESS);
        self.statuses += u32::from(!of_progress);
    }

    /// All writes that are no matter of time, against the least that there can be.
    fn share(&self) -> f64 {
        let number = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        let written: u32 = self.objects.values().sum();
        let own = u32::try_from(self.resource.len()).unwrap_or(u32::MAX);
        let all = written + own + self.statuses + self.events;
        f64::from(all) / (OWN + number(self.objects.len()) + number(self.phases.len()))
    }
}

/// Which of its metadata a write of the resource is about.
fn written(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let metadata = &body["metadata"];
    let annotations = metadata["annotations"].as_object();
    let keys: Vec<&String> = annotations.iter().flat_map(|annotations| annotations.keys()).collect();
    format!("{} {keys:?}", metadata["finalizers"])
}

/// The phases of a create, as people see them.
#[test]
fn phases_are_counted_once_each() {
    let begun = Instant::now();
    let seen = |phase: Phase, after: Duration| Seen {
        method: Method::PUT,
        path: "/apis/crd.questdb.io/v1/namespaces/a/questdbs/b/status?".to_owned(),
        authorization: String::new(),
        body: serde_json::json!({ "status": { "phase": phase.as_str() } }).to_string(),
        at: begun + after,
        beside: 0,
    };
    let mut counts = Counts::default();
    for phase in [Phase::Provisioning, Phase::Provisioning, Phase::Ready, Phase::Ready] {
        counts.count(&seen(phase, Duration::ZERO));
    }
    assert_eq!((counts.statuses, counts.phases.len()), (4, 2));
    assert!((counts.share() - 1.0).abs() < f64::EPSILON);
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
