//! A life of a database whose operator dies, with the next one after each death.

use std::iter;
use std::time::Duration;

use cloud::{VolumeId, key};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use resources::names::condition;
use resources::names::snapshot::LABEL_SCHEDULE;
use resources::{Phase, QuestDBStatus, SnapshotPhase, UpgradeResult};
use serde_json::{Value, json};
use testkit::{Failpoint, eventually, eventually_there, unique};

use super::super::others::{BROKEN_VERSION, Others};
use super::super::process::Processes;
use super::super::rig::{PATIENCE, apply};
use super::super::schedules::{make_earlier, make_schedule, schedules};
use super::super::snapshots::{self, copies, found_settled, take};
use super::super::subject::Subject;
use super::super::truth::plain;
use super::super::unobserved::left;
use super::leaders::Leaders;
use super::origin::Origin;
use super::sweep::{Least, MANY, Place, Road};
use super::{KEPT, Left, NOTHING, OTHER_VERSION, addresses, has, other_hostname, records, secret};

/// How long a life may be waited for between two deaths, when many are led at once.
const LONG: Duration = Duration::from_mins(6);
/// The copy that somebody asks for.
const COPY: &str = "asked-for";
/// The schedule that somebody makes.
const SCHEDULE: &str = "clock";
/// The copy that it made before, which goes when there is the next one.
const EARLIER: &str = "clock-202601010100";
/// What a status cannot lose: its definition keeps it.
const LASTING: [&str; 2] = ["databaseId", "instruction"];

/// What is done.
#[derive(Clone, Copy)]
pub(super) enum Act {
    /// Another wish: what one that lets the database run becomes.
    Wish(fn(&mut Value)),
    /// A wish for a version that does not start, and is taken back.
    Fail(fn(&mut Value)),
    /// Somebody makes a resource by hand, with this policy of deletion.
    Make(&'static str),
    /// Somebody deletes the resource.
    Delete,
    /// Somebody asks for a copy of the disk.
    Copy,
    /// Somebody makes a schedule, of which a time is due: a copy is made, and the one before it goes.
    Schedule,
}

impl Act {
    /// The generation of the resource, by that of before.
    const fn generation(self, before: u32) -> u32 {
        match self {
            // That it is to go raises it, too.
            Self::Wish(_) | Self::Fail(_) | Self::Delete => before + 1,
            Self::Make(_) => 1,
            Self::Copy | Self::Schedule => before,
        }
    }

    /// Whether it is done to the resource of the database.
    const fn is_of_database(self) -> bool {
        !matches!(self, Self::Copy | Self::Schedule)
    }

    /// Where an operator passes when it carries this out, and about what.
    fn passings(self, place: Place, position: &str) -> Vec<(&'static str, String)> {
        match (self, place) {
            (_, place) if self.is_of_database() => vec![(place.name(), position.to_owned())],
            (Self::Copy, Place::Api) => vec![("operator.snapshot.step", COPY.to_owned())],
            (Self::Schedule, Place::Api) => vec![
                ("operator.schedule.step", SCHEDULE.to_owned()),
                ("operator.snapshot.step", EARLIER.to_owned()),
            ],
            _ => Vec::new(),
        }
    }
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
    /// In every turn, right after it comes to this place for the `first` time of all, and each time that it has come there `apart`
    /// times since.
    At { place: Place, first: u32, apart: u32 },
    /// In one turn, right after the first step of each kind.
    OfEachKind(usize),
    /// Never, and another one leads beside it all the while.
    NeverAlone,
}

/// A place where operators die one after the other.
struct Spot {
    /// Where the next one dies.
    next: Failpoint,
    /// How many have died here.
    deaths: usize,
}

impl Spot {
    const fn new(next: Failpoint) -> Self {
        Self { next, deaths: 0 }
    }

    fn times(&self) -> usize {
        self.deaths + self.next.times()
    }
}

/// Leads a database down a road; how often its operator died in each turn, at one place. Its status may be lost with each death.
pub(super) async fn lead(road: &Road, (death, wiped): (Death, bool)) -> Vec<usize> {
    let subject = Subject::new(&unique("dies")).await;
    let others = Others::of(&subject.rig);
    let name = iter::once(&*subject.name);
    let processes = if road.questdb { Some(Processes::of(&subject.rig, name).await) } else { None };
    let origin = Origin::of(&subject, road.source).await;
    let (spots, deaths) = (spots(&subject.name, &road.turns, death), 0);
    let apart = match death {
        Death::At { apart, .. } => Some(apart),
        Death::OfEachKind(_) | Death::NeverAlone => None,
    };
    let (mut password, mut disk, mut copies) = (None, origin.disk.clone(), 0);
    let leaders = if matches!(death, Death::NeverAlone) { 2 } else { 1 };
    let (operators, identity) = (Leaders::new(&subject.rig, leaders).await, None);
    let mut life =
        Life { road, operators, subject, identity, processes, origin, spots, apart, wiped, deaths };
    life.start(0).await;
    for (number, turn) in road.turns.iter().enumerate() {
        let what = format!("{} of {}, {death:?}, status lost: {wiped}", turn.word, life.subject.name);
        life.carry_out((number, turn), &what).await;
        copies += turn.copies;
        let found = life.judge(turn, copies, &what).await;
        let is_same = found.is_none() || disk.is_none() || found == disk;
        assert!(is_same, "{what}: {found:?} in place of {disk:?}");
        disk = found;
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
fn spots(name: &str, turns: &[Turn], death: Death) -> Vec<Vec<Spot>> {
    let (folder, mut generation) = (testkit::scratch(), 0);
    let spots = |(number, turn): (usize, &Turn)| {
        generation = turn.act.generation(generation);
        let position = format!("{name}:{generation}");
        match death {
            Death::At { place, first, .. } => {
                let passings = turn.act.passings(place, &position).into_iter();
                let points =
                    passings.map(|(place, about)| Failpoint::abort_at(place, &about, first, &folder));
                points.map(Spot::new).collect()
            }
            Death::OfEachKind(of) if of == number && turn.act.is_of_database() => {
                let beginning = format!("{position}:");
                vec![Spot::new(Failpoint::abort_at_each("operator.kind", &beginning, &folder).unwrap())]
            }
            Death::OfEachKind(_) | Death::NeverAlone => Vec::new(),
        }
    };
    turns.iter().enumerate().map(spots).collect()
}

struct Life<'a> {
    road: &'a Road,
    operators: Leaders,
    subject: Subject,
    /// The database that a resource stands for which was made by hand.
    identity: Option<String>,
    processes: Option<Processes>,
    origin: Origin,
    /// By turn.
    spots: Vec<Vec<Spot>>,
    /// How many times operators come to a place between two deaths there, if it is not one place that is met by many.
    apart: Option<u32>,
    wiped: bool,
    deaths: usize,
}

impl Life<'_> {
    /// Other operators, which die from this turn on where the next one is to die. They need not wait for the end of the Leases of
    /// those before them: there are none any more.
    async fn start(&mut self, number: usize) {
        let versions = [domain::catalogue::DEFAULT_VERSION, OTHER_VERSION, BROKEN_VERSION].join(",");
        let more = [
            ("SLIPWAY_RESYNC", "1s"),
            ("SLIPWAY_ZONE_PERIOD", "5s"),
            ("SLIPWAY_QUESTDB_VERSIONS", versions.as_str()),
        ];
        // A resource that is made anew comes to the same places again.
        let mut anew = self.road.turns.iter().skip(number + 1);
        let until = anew.position(|turn| matches!(turn.act, Act::Make(_)));
        let until = until.map_or(self.spots.len(), |more| number + 1 + more);
        let places: Vec<_> = self.spots[number..until].iter().flatten().map(|spot| &spot.next).collect();
        self.operators.start(&self.subject.rig, &places, &more).await;
    }

    async fn carry_out(&mut self, (number, turn): (usize, &Turn), what: &str) {
        let is_made = matches!(turn.act, Act::Make(_));
        if is_made && number > 0 {
            self.stop().await;
            self.start(number).await;
        }
        self.ask(turn.act).await;
        let mut died = 0;
        while self.dies(turn, what).await {
            died += 1;
            assert!(died <= MANY, "{what}: no end of writes");
            self.stop().await;
            if self.wiped {
                self.wipe(turn.act).await;
            }
            self.start(number).await;
        }
        if is_made {
            self.identify(what).await;
        }
    }

    async fn ask(&mut self, act: Act) {
        let subject = &self.subject;
        let api = subject.rig.as_admin();
        match act {
            Act::Wish(change) | Act::Fail(change) => self.wish(change).await,
            Act::Make(policy) => {
                apply(&api, &plain(&subject.rig, &subject.name, policy)).await.unwrap();
            }
            Act::Delete => {
                api.delete(&subject.name, &DeleteParams::default()).await.unwrap();
            }
            Act::Copy => take(subject, COPY, "Retain").await,
            Act::Schedule => {
                assert_eq!(make_earlier(subject, SCHEDULE, "01").await, EARLIER);
                make_schedule(subject, SCHEDULE, 1).await;
            }
        }
    }

    /// Says a wish, with what the disk was made from, which stays what it is, and with the whole of a name.
    async fn wish(&mut self, change: fn(&mut Value)) {
        let (source, hostname) = (self.origin.source.clone(), other_hostname(&self.subject));
        let wish = |spec: &mut Value| {
            change(spec);
            if let Some(source) = source {
                spec["storage"]["source"] = source;
            }
            if let Some(other) = spec.pointer_mut("/network/hostname") {
                *other = json!(hostname);
            }
        };
        self.subject.wish(wish).await;
    }

    /// Whether it dies before this is carried out, or of saying so.
    async fn dies(&self, turn: &Turn, what: &str) -> bool {
        let mut carried_out: Option<Vec<f64>> = None;
        eventually(LONG, what, async || {
            if self.met() > self.deaths {
                return Some(true);
            }
            match &carried_out {
                Some(before) => {
                    let is_deleted = matches!(turn.act, Act::Delete);
                    self.operators.live_on(before, is_deleted).await.then_some(false)
                }
                None if self.is_carried_out(turn).await => {
                    carried_out = Some(self.operators.passes().await);
                    None
                }
                None => None,
            }
        })
        .await
    }

    async fn is_carried_out(&self, turn: &Turn) -> bool {
        let Subject { rig, name, .. } = &self.subject;
        match turn.act {
            Act::Wish(_) => self.subject.is_carried_out(turn.end).await,
            Act::Make(_) => self.is_told(turn.end, |_| true).await,
            Act::Fail(_) => self.is_told(turn.end, serves_as_before).await,
            Act::Delete => matches!(rig.as_admin().get_opt(name).await, Ok(None)),
            Act::Copy => found_settled(&self.subject, COPY, SnapshotPhase::Succeeded).await.is_some(),
            Act::Schedule => self.has_kept_one().await,
        }
    }

    /// Whether the status says this of the resource as it is.
    async fn is_told(&self, phase: Phase, is: fn(&QuestDBStatus) -> bool) -> bool {
        let api = self.subject.rig.as_admin();
        let Ok(found) = api.get(&self.subject.name).await else { return false };
        let (generation, status) = (found.metadata.generation, found.status.unwrap_or_default());
        status.phase == Some(phase) && status.observed_generation == generation && is(&status)
    }

    /// Whether the schedule has its copy, and the one before it is gone.
    async fn has_kept_one(&self) -> bool {
        let own = ListParams::default().labels(&format!("{LABEL_SCHEDULE}={SCHEDULE}"));
        let Ok(found) = snapshots::api(&self.subject).list(&own).await else { return false };
        let [one] = &found.items[..] else { return false };
        let name = one.metadata.name.as_deref().unwrap_or_default();
        let Ok(schedule) = schedules(&self.subject).get(SCHEDULE).await else { return false };
        let is_told = schedule.status.and_then(|status| status.last_snapshot).as_deref() == Some(name);
        let succeeded = found_settled(&self.subject, name, SnapshotPhase::Succeeded).await.is_some();
        name != EARLIER && is_told && succeeded
    }

    /// How often an operator came where it dies, in all turns: of the last thing that it says it may die when the next turn has
    /// begun.
    fn met(&self) -> usize {
        self.spots.iter().flatten().map(Spot::times).sum()
    }

    /// A resource that was made by hand stands for the database that the one before it stood for.
    async fn identify(&mut self, what: &str) {
        let found = self.subject.rig.as_admin().get(&self.subject.name).await.unwrap();
        let database = found.status.unwrap().database_id.unwrap();
        let before = self.identity.replace(database.clone());
        assert!(before.is_none_or(|before| before == database), "{what}: another database");
        self.subject.database = database;
    }

    /// Somebody takes away what status says.
    async fn wipe(&self, act: Act) {
        match act {
            Act::Copy => forget(&snapshots::api(&self.subject), COPY).await,
            Act::Schedule => {
                forget(&snapshots::api(&self.subject), EARLIER).await;
                forget(&schedules(&self.subject), SCHEDULE).await;
            }
            Act::Wish(_) | Act::Fail(_) | Act::Make(_) | Act::Delete => {}
        }
        let (parameters, name) = (PatchParams::default(), &self.subject.name);
        let api = self.subject.rig.as_admin();
        let Some(found) = api.get_opt(name).await.unwrap() else { return };
        let status = serde_json::to_value(found.status).unwrap();
        let Value::Object(mut status) = status else { return };
        status.retain(|field, _| !LASTING.contains(&field.as_str()));
        status.values_mut().for_each(|value| *value = Value::Null);
        let nothing = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &parameters, &nothing).await.unwrap();
    }

    /// There is what there should be, and no copy but those that were to be made, which are whole; its one disk.
    async fn judge(&self, turn: &Turn, wanted: usize, what: &str) -> Option<VolumeId> {
        if self.wiped {
            // Of a name that no status tells any more the next list of the zone tells.
            let wanted = turn.left[3];
            eventually(PATIENCE, &format!("{what}: {wanted} names"), async || {
                (addresses(&records(&self.subject).await) == wanted).then_some(())
            })
            .await;
        }
        let disk = has(&self.subject, turn.left, what).await;
        if turn.left == NOTHING || matches!(turn.act, Act::Delete) {
            // Beside a disk that is kept its credentials are.
            let credentials = format!("Secret {}-credentials", self.subject.name);
            let kept = if turn.left == KEPT { vec![credentials] } else { Vec::new() };
            let is_left = async || (left(&self.subject).await == kept).then_some(());
            eventually(PATIENCE, &format!("{what}: {kept:?} left in Kubernetes"), is_left).await;
        }
        let Some(processes) = &self.processes else { return disk };
        eventually_there(
            PATIENCE,
            &format!("{what}: {wanted} trusted copies and no checkpoint"),
            async || {
                let found = copies(&self.subject).await;
                let trusted =
                    found.iter().filter(|copy| copy.tags.get(key::CONSISTENT) == Some("true")).count();
                let is_held = processes.is_held(&self.subject.name);
                let is_well = (found.len(), trusted, is_held) == (wanted, wanted, false);
                is_well
                    .then_some(())
                    .ok_or_else(|| format!("held: {is_held}, {trusted} trusted of {found:?}"))
            },
        )
        .await;
        disk
    }

    /// The operators end: by the death that one has met, if it has.
    async fn stop(&mut self) {
        self.operators.worked(&self.subject.name).await;
        for operator in self.operators.take() {
            if self.met() > self.deaths {
                operator.dies(PATIENCE).await.unwrap();
            } else if let Err(error) = operator.kill().await {
                // It was quicker.
                assert!(self.met() > self.deaths, "{error:#}");
            }
        }
        self.deaths = self.met();
        self.renew();
    }

    /// Where one died, another one dies further on.
    fn renew(&mut self) {
        let Some(apart) = self.apart else { return };
        let folder = testkit::scratch();
        for spot in self.spots.iter_mut().flatten().filter(|spot| spot.next.has_fired()) {
            spot.next = spot.next.again(apart, &folder);
            spot.deaths += 1;
        }
    }

    /// Nobody works any more; how often an operator died in each turn, at one place.
    async fn end(mut self) -> Vec<usize> {
        self.stop().await;
        self.origin.end(&self.subject.rig).await;
        self.subject.rig.end().await;
        let most = |spots: &Vec<Spot>| spots.iter().map(Spot::times).max().unwrap_or_default();
        self.spots.iter().map(most).collect()
    }
}

/// Whether a version that did not start was taken back, and the one before it serves.
fn serves_as_before(status: &QuestDBStatus) -> bool {
    let last = status.last_upgrade.as_ref().map(|last| last.result);
    let mut conditions = status.conditions.iter();
    let serves = conditions.any(|found| found.type_ == condition::READY && found.status == "True");
    last == Some(UpgradeResult::RolledBack) && serves
}

/// Takes away what the status of an object says, if that is there.
async fn forget<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let nothing = Patch::Merge(json!({ "status": null }));
    match api.patch_status(name, &PatchParams::default(), &nothing).await {
        // Who died may have asked for its end beside what it died of.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        forgotten => drop(forgotten.unwrap()),
    }
}
