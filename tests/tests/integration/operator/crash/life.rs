//! A life of a database whose operator dies, with the next one after each death.

use std::iter;
use std::time::Duration;

use cloud::key;
use kube::api::{Patch, PatchParams};
use resources::{Phase, SnapshotPhase};
use serde_json::{Value, json};
use testkit::{Failpoint, Spawned, eventually, unique};

use super::super::others::Others;
use super::super::process::Processes;
use super::super::rig::PATIENCE;
use super::super::snapshots::{self, copies, found_settled, take};
use super::super::subject::Subject;
use super::sweep::{Least, Place};
use super::{Left, OTHER_VERSION, has, secret};

/// How long a life may be waited for between two deaths, when many are led at once.
const LONG: Duration = Duration::from_mins(2);
/// The copy that somebody asks for.
const COPY: &str = "asked-for";
/// What a status cannot lose: its definition keeps it.
const LASTING: [&str; 2] = ["databaseId", "instruction"];

/// What is done.
#[derive(Clone, Copy)]
pub(super) enum Act {
    /// Another wish: what one that lets the database run becomes.
    Wish(fn(&mut Value)),
    /// Somebody asks for a copy of the disk.
    Copy,
}

/// What is done with a database, and what there is of it afterwards.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) word: &'static str,
    pub(super) act: Act,
    pub(super) end: Phase,
    pub(super) left: Left,
    /// How many copies of the disk this adds.
    pub(super) copies: usize,
    pub(super) least: Least,
}

/// When the operator dies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Death {
    /// In every turn, right after it comes to this place for the k-th time.
    At(Place, u32),
    /// In one turn, right after the first step of each kind.
    OfEachKind(usize),
}

/// Leads a database through these turns; how often its operator died in each. Its status may be lost with each death.
pub(super) async fn lead(turns: &[Turn], questdb: bool, (death, wiped): (Death, bool)) -> Vec<usize> {
    let subject = Subject::new(&unique("dies")).await;
    let others = Others::of(&subject.rig);
    let name = iter::once(&*subject.name);
    let processes = if questdb { Some(Processes::of(&subject.rig, name).await) } else { None };
    let (places, deaths) = (places(&subject.name, turns, death), 0);
    let of_each = matches!(death, Death::OfEachKind(_));
    let mut life = Life { operator: None, subject, processes, places, of_each, wiped, deaths };
    life.start(0).await;
    let (mut password, mut copies) = (None, 0);
    for (number, turn) in turns.iter().enumerate() {
        let what = format!("{} of {}, {death:?}, status lost: {wiped}", turn.word, life.subject.name);
        life.carry_out((number, turn), &what).await;
        copies += turn.copies;
        life.judge(turn, copies, &what).await;
        let drawn = secret(&life.subject).await;
        let may_differ = turn.end == Phase::Deleted || password.is_none();
        assert!(may_differ || drawn == password, "{what}: another password");
        password = drawn;
    }
    let times = life.end().await;
    drop(others);
    times
}

/// Where it dies, for each turn.
fn places(name: &str, turns: &[Turn], death: Death) -> Vec<Option<Failpoint>> {
    let (folder, mut generation) = (testkit::scratch(), 0);
    let place = |(number, turn): (usize, &Turn)| {
        generation += u32::from(matches!(turn.act, Act::Wish(_)));
        let position = format!("{name}:{generation}");
        match (death, turn.act) {
            (Death::At(place, k), Act::Wish(_)) => {
                Some(Failpoint::abort_at(place.name(), &position, k, &folder))
            }
            (Death::At(Place::Api, k), Act::Copy) => {
                Some(Failpoint::abort_at("operator.snapshot.step", COPY, k, &folder))
            }
            (Death::OfEachKind(of), Act::Wish(_)) if of == number => {
                let beginning = format!("{position}:");
                Some(Failpoint::abort_at_each("operator.kind", &beginning, &folder).unwrap())
            }
            _ => None,
        }
    };
    turns.iter().enumerate().map(place).collect()
}

struct Life {
    operator: Option<Spawned>,
    subject: Subject,
    processes: Option<Processes>,
    places: Vec<Option<Failpoint>>,
    /// Whether one place is met by many.
    of_each: bool,
    wiped: bool,
    deaths: usize,
}

impl Life {
    /// Another operator, which dies from this turn on where none before it has died.
    async fn start(&mut self, number: usize) {
        let rig = &self.subject.rig;
        let lease = rig.lease().await;
        let versions = [domain::catalogue::DEFAULT_VERSION, OTHER_VERSION].join(",");
        let more = [("SLIPWAY_RESYNC", "1s"), ("SLIPWAY_QUESTDB_VERSIONS", versions.as_str())];
        let places = self.places[number..].iter().flatten();
        let places: Vec<_> = places.filter(|place| self.of_each || !place.has_fired()).collect();
        self.operator = Some(rig.spawn((&lease, &rig.rights(&lease).await), &places, &more));
    }

    async fn carry_out(&mut self, (number, turn): (usize, &Turn), what: &str) {
        match turn.act {
            Act::Wish(change) => self.subject.wish(change).await,
            Act::Copy => take(&self.subject, COPY, "Retain").await,
        }
        while self.dies(turn, what).await {
            self.deaths += 1;
            self.operator.take().unwrap().dies(PATIENCE).await.unwrap();
            if self.wiped {
                self.wipe(turn.act).await;
            }
            self.start(number).await;
        }
    }

    /// Whether it dies before this is carried out, or of saying so.
    async fn dies(&self, turn: &Turn, what: &str) -> bool {
        let operator = self.operator.as_ref().unwrap();
        let passes = async || operator.metric("controller_runtime_reconcile_time_seconds_count", "").await;
        let mut carried_out = None;
        eventually(LONG, what, async || {
            if self.met() > self.deaths {
                return Some(true);
            }
            match carried_out {
                // A pass that ended after that: it lives on.
                Some(before) => (passes().await > before).then_some(false),
                None if self.is_carried_out(turn).await => {
                    carried_out = Some(passes().await);
                    None
                }
                None => None,
            }
        })
        .await
    }

    async fn is_carried_out(&self, turn: &Turn) -> bool {
        match turn.act {
            Act::Wish(_) => self.subject.is_carried_out(turn.end).await,
            Act::Copy => found_settled(&self.subject, COPY, SnapshotPhase::Succeeded).await.is_some(),
        }
    }

    /// How often an operator came where it dies, in all turns: of the last thing that it says it may die when the next turn has
    /// begun.
    fn met(&self) -> usize {
        self.places.iter().flatten().map(Failpoint::times).sum()
    }

    /// Somebody takes away what status says.
    async fn wipe(&self, act: Act) {
        let (parameters, name) = (PatchParams::default(), &self.subject.name);
        if matches!(act, Act::Copy) {
            let nothing = Patch::Merge(json!({ "status": null }));
            snapshots::api(&self.subject).patch_status(COPY, &parameters, &nothing).await.unwrap();
        }
        let api = self.subject.rig.as_admin();
        let status = serde_json::to_value(api.get(name).await.unwrap().status).unwrap();
        let Value::Object(mut status) = status else { return };
        status.retain(|field, _| !LASTING.contains(&field.as_str()));
        status.values_mut().for_each(|value| *value = Value::Null);
        let nothing = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &parameters, &nothing).await.unwrap();
    }

    /// There is what there should be, and no copy but those that were to be made, which are whole.
    async fn judge(&self, turn: &Turn, wanted: usize, what: &str) {
        has(&self.subject, turn.left, what).await;
        let Some(processes) = &self.processes else { return };
        eventually(PATIENCE, &format!("{what}: {wanted} copies and no checkpoint"), async || {
            let found = copies(&self.subject).await;
            let trusted = found.iter().all(|copy| copy.tags.get(key::CONSISTENT) == Some("true"));
            (found.len() == wanted && trusted && !processes.is_held(&self.subject.name)).then_some(())
        })
        .await;
    }

    /// Nobody works any more; how often an operator died in each turn.
    async fn end(mut self) -> Vec<usize> {
        let operator = self.operator.take().unwrap();
        if self.met() > self.deaths {
            operator.dies(PATIENCE).await.unwrap();
        } else {
            operator.kill().await.unwrap();
        }
        self.subject.rig.end().await;
        self.places.iter().map(|place| place.as_ref().map_or(0, Failpoint::times)).collect()
    }
}
