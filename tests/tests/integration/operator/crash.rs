//! The operator dies right after its k-th write, for every k of every operation to AWS and for the first ones to the API
//! server; the next one carries on, and there is never a machine, a disk, a firewall or a record more than there should be,
//! and none is left.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud::{RecordKind, VolumeState};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::{Failpoint, Spawned, eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig};
use super::subject::Subject;

/// Lives that are led at once.
const AT_ONCE: usize = 4;
/// No operation has as many writes to AWS.
const MANY: u32 = 20;
/// How many writes to the API server a death may come after: those of one round of lives. A life takes about a minute, and
/// most of the later writes are reports.
const FEW: u32 = 8;
/// How long a life may be waited for between two of its turns, when all of them are led at once.
const LONG: Duration = Duration::from_mins(2);

/// A word for it, what the wish becomes, and where it ends.
pub(super) type Operation = (&'static str, fn(&mut Value), Phase);

/// The operations of a life in order: what the wish becomes, and where it ends.
pub(super) const OPERATIONS: [Operation; 6] = [
    ("create", |_| {}, Phase::Ready),
    ("change", changed, Phase::Ready),
    ("move", moved, Phase::Ready),
    ("pause", |spec| also(spec, "Paused"), Phase::Paused),
    ("resume", |spec| also(spec, "Running"), Phase::Ready),
    ("purge", |spec| also(spec, "Purged"), Phase::Deleted),
];

fn changed(spec: &mut Value) {
    spec["storage"]["sizeGib"] = json!(30);
    spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] });
    spec["config"] = json!({ "shared.worker.count": "2" });
}

fn moved(spec: &mut Value) {
    changed(spec);
    spec["compute"] = json!({ "instanceType": "m7i.xlarge" });
}

fn also(spec: &mut Value, run_state: &str) {
    moved(spec);
    spec["runState"] = json!(run_state);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_each_of_the_first_writes_to_the_api_server_is_made_good() {
    die_everywhere("operator.write", FEW, [FEW; OPERATIONS.len()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_any_write_to_aws_is_made_good() {
    // By fewer writes none of them can be done.
    die_everywhere("operator.aws", MANY, [5, 2, 5, 3, 3, 5]).await;
}

/// How often each operation passes the place: the greatest k at which a death came.
#[derive(Default)]
struct Deaths {
    /// The next life's k.
    next: AtomicU32,
    last: [AtomicU32; OPERATIONS.len()],
    /// The least k that an operation did not reach.
    end: Mutex<[Option<u32>; OPERATIONS.len()]>,
}

impl Deaths {
    /// The k of the next life, if there is to be one.
    fn next(&self, most: u32) -> Option<u32> {
        let k = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        (k <= most && !self.all_over(k)).then_some(k)
    }

    fn is_over(&self, operation: usize, k: u32) -> bool {
        self.end.lock().unwrap()[operation].is_some_and(|end| end <= k)
    }

    fn all_over(&self, k: u32) -> bool {
        (0..OPERATIONS.len()).all(|operation| self.is_over(operation, k))
    }

    /// The operations of the next life, by number: one that is led only for its beginning is cut short.
    fn road(&self, k: u32) -> Vec<usize> {
        let all = 0..OPERATIONS.len();
        let over = (1..OPERATIONS.len() - 1).all(|operation| self.is_over(operation, k));
        if over { vec![0, OPERATIONS.len() - 1] } else { all.collect() }
    }

    fn note(&self, operation: usize, k: u32, died: bool) {
        if died {
            self.last[operation].fetch_max(k, Ordering::Relaxed);
            return;
        }
        let mut ends = self.end.lock().unwrap();
        ends[operation] = Some(ends[operation].map_or(k, |end| end.min(k)));
    }
}

async fn die_everywhere(place: &'static str, most: u32, least: [u32; OPERATIONS.len()]) {
    let deaths = Arc::new(Deaths::default());
    let leaders = (0..AT_ONCE).map(|_| {
        let deaths = Arc::clone(&deaths);
        async move {
            while let Some(k) = deaths.next(most) {
                live(place, k, &deaths).await;
            }
        }
    });
    futures::future::join_all(leaders).await;
    let died = deaths.last.each_ref().map(|last| last.load(Ordering::Relaxed));
    assert!(died.iter().zip(least).all(|(died, least)| *died >= least), "{place}: {died:?}");
    assert!(most == FEW || died.iter().all(|died| *died < most), "no end of writes: {died:?}");
}

/// A whole life, with a death after the k-th write of each operation that has as many.
async fn live(place: &'static str, k: u32, deaths: &Deaths) {
    let mut subject = Subject::new(&unique("dies")).await;
    let others = Others::of(&subject.rig);
    let admin = subject.rig.admin.clone();
    let lease = || async { testkit::temporary_namespace(&admin, "lease").await.unwrap() };
    let folder = testkit::scratch();
    let road = deaths.road(k);
    let place_of =
        |turn: usize| Failpoint::abort_at(place, &format!("{}:{}", subject.name, turn + 1), k, &folder);
    let places: Vec<Failpoint> = (0..road.len()).map(place_of).collect();
    let mut operator = start(&subject.rig, &lease().await, &places).await;
    let mut password = None;
    for (turn, number) in road.into_iter().enumerate() {
        let (word, change, end) = OPERATIONS[number];
        subject.wish(change).await;
        let died = died(&subject, end, &operator, (&places[turn], &format!("{word}, k = {k}"))).await;
        if died {
            operator.dies(PATIENCE).await.unwrap();
            operator = start(&subject.rig, &lease().await, &places[turn + 1..]).await;
        }
        deaths.note(number, k, died);
        subject.carried_out(end).await;
        judge(&subject, end, &format!("{place} {word} {k}")).await;
        let drawn = secret(&subject).await;
        assert!(end == Phase::Deleted || password.is_none() || drawn == password, "another password");
        password = drawn;
    }
    operator.kill().await.unwrap();
    drop(others);
    subject.rig.end().await;
}

/// Whether it dies before the wish is carried out, or of saying so.
async fn died(subject: &Subject, end: Phase, operator: &Spawned, (place, what): (&Failpoint, &str)) -> bool {
    let passes = async || operator.metric("controller_runtime_reconcile_time_seconds_count", "").await;
    let mut carried_out = None;
    eventually(LONG, what, async || {
        if place.has_fired() {
            return Some(true);
        }
        match carried_out {
            // A pass that ended after that: it lives on.
            Some(before) => (passes().await > before).then_some(false),
            None if subject.is_carried_out(end).await => {
                carried_out = Some(passes().await);
                None
            }
            None => None,
        }
    })
    .await
}

async fn start(rig: &Rig, lease: &str, places: &[Failpoint]) -> Spawned {
    rig.spawn(
        (lease, &rig.rights(lease).await),
        &places.iter().collect::<Vec<_>>(),
        &[("SLIPWAY_RESYNC", "1s")],
    )
}

/// One of each, or none.
pub(super) async fn judge(subject: &Subject, end: Phase, what: &str) {
    let rig = &subject.rig;
    let machines = rig.instances().await;
    let mut volumes = rig.volumes().await;
    volumes.retain(|volume| !matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted));
    let groups = rig.groups().await.len();
    let records = rig.records(&rig.hostname(&subject.name)).await;
    let addresses = records.iter().filter(|record| record.kind == RecordKind::A).count();
    let found = (machines.len(), volumes.len(), groups, addresses);
    let wanted = match end {
        Phase::Ready => (1, 1, 1, 1),
        Phase::Paused => (0, 1, 1, 0),
        _ => (0, 0, 0, 0),
    };
    assert_eq!(found, wanted, "{what}: {machines:?} {volumes:?} {records:?}");
    assert!(end != Phase::Deleted || records.is_empty(), "{what}: {records:?}");
    for machine in &machines {
        let protection = rig.aws.describe_protection(&machine.id).await.unwrap();
        assert!(protection.termination && protection.stop, "{what}: {} is not protected", machine.id);
    }
}

/// The password that was drawn for it.
pub(super) async fn secret(subject: &Subject) -> Option<k8s_openapi::ByteString> {
    let secrets: Api<Secret> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let found = secrets.get_opt(&names::credentials(&subject.name)).await.unwrap()?;
    found.data?.remove(names::secret::PG_PASSWORD)
}
