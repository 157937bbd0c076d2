//! The operator dies right after a write, and the next one carries on: after the k-th write to the API server and to AWS of every
//! operation in the lives of a database, with its status lost meanwhile, and after the first step of each kind. There is never a
//! machine, a disk, a firewall, a record or a copy more than there should be, and none is left.
//!
//! `cargo xtask test faults` goes through every k, until no operation has as many writes: k counts what all operators have written
//! that carry an operation out, and of one life they die as many writes apart as there are lives. Anywhere else it is every
//! so-many-th, in one life, from one on that is drawn, so that a few runs meet them all; the first step of each kind is met by each
//! run. Of the lives that are led less often (`rare`) one is drawn, and led for the writes to the API server alone: all of them at
//! once are more than a small machine bears beside other tests.
//!
//! In the same lives two operators lead at once, from the first moment to the last, and nothing else is different.

mod leaders;
mod life;
mod origin;
mod rare;
mod sweep;

use cloud::{DnsRecord, RecordKind, VolumeId, VolumeState};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use resources::{Phase, names};
use serde_json::{Value, json};

pub(super) use self::leaders::apart;
use self::life::{Act, Turn};
use self::sweep::{Least, Place, Road};
use super::rig::patiently;
use super::subject::Subject;

/// The version that a database gets in place of the one that it begins with.
const OTHER_VERSION: &str = "9.3.5";

/// Machines, disks, firewalls and addresses.
type Left = [usize; 4];

const SERVING: Left = [1, 1, 1, 1];
/// No name leads to what takes no ports of its machine.
const PORTLESS: Left = [1, 1, 1, 0];
const PAUSED: Left = [0, 1, 1, 0];
const KEPT: Left = [0, 1, 0, 0];
const NOTHING: Left = [0; 4];

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

/// What each of them has at least: by fewer writes none can be done.
const LEAST: [Least; OPERATIONS.len()] = [
    Least { api: 8, aws: 5, kinds: 12 },
    Least { api: 8, aws: 2, kinds: 6 },
    Least { api: 8, aws: 5, kinds: 8 },
    Least { api: 8, aws: 3, kinds: 6 },
    // Seven were seen: of its statuses some are kept back until there is more to say.
    Least { api: 7, aws: 3, kinds: 5 },
    Least { api: 8, aws: 5, kinds: 9 },
];

/// A life of wishes that nobody has to ask QuestDB for, until its resource is removed.
fn usual() -> Road {
    let turn = |((word, change, end), least): (Operation, Least)| wish(word, change, end, least);
    let mut turns: Vec<Turn> = OPERATIONS.into_iter().zip(LEAST).map(turn).collect();
    turns.push(turn_of("removal", Act::Delete, Phase::Deleted, Least { api: 1, aws: 0, kinds: 1 }));
    Road { turns, ending: 2, questdb: false, source: None }
}

/// A life in which the disk is copied: before another version, because somebody asks for it, and before it goes; and in which the
/// database is deleted and returns.
fn copied() -> Road {
    // How it begins is gone through in the other life.
    let create = wish("create", |_| {}, Phase::Ready, Least { api: 8, aws: 5, kinds: 0 });
    let upgrade = wish("upgrade", upgraded, Phase::Ready, Least { api: 4, aws: 0, kinds: 3 });
    let copy = Turn { word: "copy", act: Act::Copy, least: Least { api: 7, aws: 0, kinds: 0 }, ..create };
    let delete = wish("delete", deleted, Phase::Deleted, Least { api: 5, aws: 3, kinds: 5 });
    let back = wish("return", upgraded, Phase::Ready, Least { api: 6, aws: 3, kinds: 5 });
    let purge = wish("purge with a copy", gone_but_for_a_copy, Phase::Deleted, LEAST[5]);
    let turns = vec![
        create,
        Turn { copies: 1, ..upgrade },
        Turn { copies: 1, ..copy },
        Turn { left: KEPT, ..delete },
        back,
        Turn { copies: 1, ..purge },
    ];
    Road { turns, ending: 1, questdb: true, source: None }
}

/// All that are led: the two of each run, and these.
fn roads(rare: Vec<Road>) -> Vec<Road> {
    let mut roads = vec![usual(), copied()];
    roads.extend(rare);
    roads
}

fn wish(word: &'static str, change: fn(&mut Value), end: Phase, least: Least) -> Turn {
    turn_of(word, Act::Wish(change), end, least)
}

const fn turn_of(word: &'static str, act: Act, end: Phase, least: Least) -> Turn {
    Turn { word, act, end, left: left(end), copies: 0, least }
}

fn upgraded(spec: &mut Value) {
    spec["version"] = json!(OTHER_VERSION);
}

fn deleted(spec: &mut Value) {
    upgraded(spec);
    spec["runState"] = json!("Deleted");
}

fn gone_but_for_a_copy(spec: &mut Value) {
    upgraded(spec);
    spec["runState"] = json!("Purged");
    spec["storage"]["deletionPolicy"] = json!("Snapshot");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_any_write_to_the_api_server_is_made_good() {
    die_everywhere(Place::Api, false, sweep::all_or_one(rare::all())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_any_write_to_aws_is_made_good() {
    die_everywhere(Place::Aws, false, sweep::all_or_none(rare::all())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_lost_at_a_death_after_any_write_is_made_good() {
    die_everywhere(Place::Api, true, sweep::all_or_none(rare::all())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_lead_at_once_do_no_harm_in_any_operation() {
    join_all(roads(sweep::all_or_one(rare::all())).iter().map(sweep::never_alone)).await;
}

async fn die_everywhere(place: Place, wiped: bool, rare: Vec<Road>) {
    join_all(roads(rare).iter().map(|road| sweep::sweep(road, place, wiped))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deaths_after_the_first_step_of_each_kind_are_made_good() {
    join_all(roads(sweep::all_or_none(rare::all())).iter().map(sweep::kinds)).await;
}

/// What there is of a database that came so far.
const fn left(end: Phase) -> Left {
    match end {
        Phase::Ready => SERVING,
        Phase::Paused => PAUSED,
        _ => NOTHING,
    }
}

/// One of each, or none.
pub(super) async fn judge(subject: &Subject, end: Phase, what: &str) {
    has(subject, left(end), what).await;
}

/// The same; the disk that there is, if there is one.
async fn has(subject: &Subject, wanted: Left, what: &str) -> Option<VolumeId> {
    let rig = &subject.rig;
    let machines = rig.instances().await;
    let mut volumes = rig.volumes().await;
    volumes.retain(|volume| !matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted));
    let groups = rig.groups().await.len();
    let records = records(subject).await;
    let addresses = addresses(&records);
    let found = [machines.len(), volumes.len(), groups, addresses];
    assert_eq!(found, wanted, "{what}: {machines:?} {volumes:?} {records:?}");
    assert!(wanted != NOTHING || records.is_empty(), "{what}: {records:?}");
    for machine in &machines {
        let protection = patiently(|| rig.aws.describe_protection(&machine.id)).await;
        assert!(protection.termination && protection.stop, "{what}: {} is not protected", machine.id);
    }
    volumes.pop().map(|volume| volume.id)
}

/// Another name than the one it is born with.
fn other_hostname(subject: &Subject) -> String {
    subject.rig.hostname(&format!("{}-anew", subject.name))
}

/// The records of all its names.
async fn records(subject: &Subject) -> Vec<DnsRecord> {
    let rig = &subject.rig;
    let mut records = rig.records(&rig.hostname(&subject.name)).await;
    records.extend(rig.records(&other_hostname(subject)).await);
    records
}

fn addresses(records: &[DnsRecord]) -> usize {
    records.iter().filter(|record| record.kind == RecordKind::A).count()
}

/// The password that was drawn for it.
pub(super) async fn secret(subject: &Subject) -> Option<k8s_openapi::ByteString> {
    let secrets: Api<Secret> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let found = secrets.get_opt(&names::credentials(&subject.name)).await.unwrap()?;
    found.data?.remove(names::secret::PG_PASSWORD)
}
