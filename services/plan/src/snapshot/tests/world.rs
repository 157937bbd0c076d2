//! A world with one database, EC2's snapshots of its disk, and the objects that ask for them. It knows what nobody who
//! looks at it can know: whether a copy was really begun while the database stood still.

use std::time::{Duration, SystemTime};

use cloud::{NewSnapshot, SnapshotId, SnapshotState, Tags, VolumeSnapshot, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::snapshot::{FINALIZER, IDENTITY, RELEASE_OWED};
use resources::{CopyPolicy, QuestDBSnapshot, QuestDBSnapshotSpec, SnapshotPhase};

use super::memory::Memory;
use crate::snapshot::{
    Checkpoint, Disk, Ground, Held, Plan, Requests, Seen, Step, comes_before, identity, owes, plan,
    rests_on_database, status,
};

/// How long EC2 may take to show what was asked of it.
const LAG: i64 = 30;
/// Seconds from one look to the next.
const TICK: i64 = 5;
/// Seconds that EBS takes.
const EBS: i64 = 60;
/// Seconds for which somebody else holds the database.
const THEIRS: i64 = 120;

/// What EC2 names as the volume of what `CopySnapshot` made.
pub(super) const OF_NOTHING: &str = "vol-ffffffff";

/// What goes wrong with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It never arrives.
    RequestLost,
    /// It is done, and nobody hears of it.
    AnswerLost,
    /// It is done, and the process that asked dies.
    Crash,
    /// QuestDB is killed and starts again before it arrives.
    Restart,
    /// QuestDB is killed and starts again after it.
    RestartAfter,
    /// QuestDB is killed, starts again, and somebody else holds it for a while, from before it arrives.
    Usurped,
    /// The database does not answer for a while, from here on.
    Silence,
    /// Status is wiped after it.
    Wiped,
}

pub(super) const FAULTS: [Fault; 8] = [
    Fault::RequestLost,
    Fault::AnswerLost,
    Fault::Crash,
    Fault::Restart,
    Fault::RestartAfter,
    Fault::Usurped,
    Fault::Silence,
    Fault::Wiped,
];

/// A snapshot in EC2.
pub(super) struct Copy {
    shown: VolumeSnapshot,
    /// When describes begin to show it.
    visible: Timestamp,
    done: Timestamp,
    /// Whether it was really begun while the database stood still for it.
    pub(super) whole: bool,
    pub(super) deleted: bool,
}

pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) objects: Vec<QuestDBSnapshot>,
    pub(super) copies: Vec<Copy>,
    pub(super) held_since: Option<Timestamp>,
    /// A checkpoint that is nobody's here, and when it ends.
    pub(super) foreign: Option<(Timestamp, Timestamp)>,
    /// The wish under which it is stopped, when it is.
    pub(super) stopped: Option<u64>,
    pub(super) absent: bool,
    pub(super) silent_until: Option<Timestamp>,
    /// By object.
    memory: Vec<Memory>,
    took_over: Timestamp,
    /// How late the next request for a checkpoint arrives, whose answer nobody hears.
    pub(super) late_by: Option<SignedDuration>,
    /// When it does.
    arrives: Option<Timestamp>,
    /// Objects that are not looked at again until they change.
    asleep: Vec<bool>,
    /// How late EC2 shows a copy.
    pub(super) shows_after: i64,
    /// Whether EC2 gives up what it copies.
    pub(super) gives_up: bool,
    /// Whether EC2 refuses what is asked of it for a copy.
    pub(super) refuses: bool,
    pub(super) steps: Vec<&'static str>,
    serial: u32,
}

impl World {
    pub(super) fn new(names: &[&str]) -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let objects: Vec<_> = names.iter().map(|name| object(name, now)).collect();
        let long_ago = now - SignedDuration::from_hours(1);
        Self {
            memory: vec![Memory::new(long_ago); objects.len()],
            took_over: long_ago,
            late_by: None,
            arrives: None,
            asleep: vec![false; objects.len()],
            now,
            objects,
            copies: Vec::new(),
            held_since: None,
            foreign: None,
            stopped: None,
            absent: false,
            silent_until: None,
            shows_after: 10,
            gives_up: false,
            refuses: false,
            steps: Vec::new(),
            serial: 0,
        }
    }

    pub(super) fn seen(&self, of: usize) -> Seen {
        let object = &self.objects[of];
        let mine = |copy: &&Copy| {
            !copy.deleted
                && copy.visible <= self.now
                && copy.shown.tags.get(key::SNAPSHOT) == identity(object)
        };
        let asked = self.memory[of].asked;
        Seen {
            ground: self.ground(),
            copies: self.copies.iter().filter(mine).map(|copy| self.show(copy)).collect(),
            conclusive: self.now.duration_since(asked) >= SignedDuration::from_secs(LAG),
            before: comes_before(object, &self.objects).and_then(|one| one.metadata.name.clone()),
            known: self.memory[of].known(self.took_over, self.now),
            refused: self.memory[of].refused(self.now),
            now: self.now,
        }
    }

    fn show(&self, copy: &Copy) -> VolumeSnapshot {
        let mut shown = copy.shown.clone();
        if self.gives_up {
            shown.state = SnapshotState::Error;
            shown.message = Some("the key is disabled".to_owned());
        } else if copy.done <= self.now {
            shown.state = SnapshotState::Completed;
        }
        shown
    }

    fn ground(&self) -> Ground {
        let disk = Disk {
            volume: "vol-1".into(),
            cluster: "eu".to_owned(),
            database: "db1".to_owned(),
            version: "9.3.4".to_owned(),
            unrestored: None,
        };
        match (self.absent, self.stopped) {
            (true, _) => Ground::Absent,
            (_, Some(wish)) => Ground::Stopped { disk, wish: wish.to_string() },
            _ if self.is_silent() => Ground::Unclear("QuestDB does not answer".to_owned()),
            _ => Ground::Serving {
                disk,
                held: self.held_since.map(|since| Held { since, age: self.now.duration_since(since) }),
            },
        }
    }

    /// One pass over one object, with a fault at its step if one is given; what was planned.
    pub(super) fn pass(&mut self, of: usize, fault: Option<Fault>) -> Plan {
        assert!(!self.asleep[of], "nobody would look at it again: {:?}", self.objects[of].status);
        let mut seen = self.seen(of);
        if seen.known.requests == Requests::Unanswered && self.is_silent() {
            self.memory[of].unanswered = Some(self.now);
        }
        if !rests_on_database(&self.objects[of], &seen.copies) {
            let informed = plan(&self.objects[of], &seen);
            seen.ground = Ground::Unclear("nobody asked".to_owned());
            assert_eq!(plan(&self.objects[of], &seen), informed, "it rests on the database after all");
        }
        let plan = plan(&self.objects[of], &seen);
        self.asleep[of] = plan.settled;
        self.objects[of].status = Some(status(&self.objects[of], &seen, &plan, None));
        if let Some(step) = plan.step.clone() {
            let is_known = seen.known.checkpoint != Checkpoint::Unknown;
            let theirs = self.is_theirs() && is_known && seen.known.requests == Requests::Answered;
            assert!(!theirs || step != Step::Release, "somebody else's checkpoint is to be released");
            self.steps.push(step.name());
            self.act(of, &step, fault);
        }
        plan
    }

    fn act(&mut self, of: usize, step: &Step, fault: Option<Fault>) {
        match fault {
            Some(Fault::RequestLost) => {
                // Whoever hears nothing has to think that it was done.
                self.memory[of].asked = self.now;
                self.in_doubt(of, step);
                return;
            }
            Some(Fault::Restart) => self.held_since = None,
            Some(Fault::Usurped) if self.stopped.is_none() => {
                self.usurp(self.now - SignedDuration::from_secs(1));
            }
            Some(Fault::Silence) => self.silent_until = Some(self.now + SignedDuration::from_secs(90)),
            _ => {}
        }
        if self.is_silent() && matches!(step, Step::Checkpoint | Step::Release) {
            self.in_doubt(of, step);
        } else if self.refuses && matches!(step, Step::Begin(_) | Step::Trust(_)) {
            self.memory[of].refuse(self.now);
        } else {
            self.carry_out(of, step, fault == Some(Fault::AnswerLost));
        }
        match fault {
            Some(Fault::Crash) => {
                self.took_over = self.now;
                self.memory.fill(Memory::new(self.now));
            }
            Some(Fault::RestartAfter) => self.held_since = None,
            Some(Fault::Wiped) => self.wipe(of),
            _ => {}
        }
    }

    /// Somebody else makes a checkpoint.
    pub(super) fn usurp(&mut self, since: Timestamp) {
        self.foreign = Some((since, self.now + SignedDuration::from_secs(THEIRS)));
        self.held_since = Some(since);
    }

    /// Whether it is somebody else who holds the database.
    pub(super) fn is_theirs(&self) -> bool {
        self.held_since.is_some() && self.held_since == self.foreign.map(|(since, _)| since)
    }

    /// Nobody heard what became of a step.
    fn in_doubt(&mut self, of: usize, step: &Step) {
        if matches!(step, Step::Checkpoint) {
            self.memory[of].checkpoint = Checkpoint::Unknown;
            self.memory[of].unanswered = Some(self.now);
        }
    }

    fn is_silent(&self) -> bool {
        self.silent_until.is_some_and(|until| self.now < until)
    }

    fn carry_out(&mut self, of: usize, step: &Step, unheard: bool) {
        match step {
            Step::Hold => {
                self.serial += 1;
                let minted = identity(&self.objects[of])
                    .map_or_else(|| format!("00000000-0000-0000-0000-{:012}", self.serial), str::to_owned);
                let metadata = &mut self.objects[of].metadata;
                metadata.annotations = Some([(IDENTITY.to_owned(), minted)].into());
                metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
            }
            Step::Owe => {
                self.objects[of].metadata.finalizers.get_or_insert_default().push(RELEASE_OWED.to_owned());
                self.memory[of].unanswered = None;
                self.memory[of].checkpoint = if unheard { Checkpoint::Unknown } else { Checkpoint::Unmade };
            }
            Step::Checkpoint => {
                assert!(self.objects.iter().filter(|one| owes(one)).count() == 1, "nobody owes it");
                if let Some(late) = self.late_by.take() {
                    self.arrives = Some(self.now + late);
                    self.in_doubt(of, step);
                    return;
                }
                // QuestDB refuses a second one.
                if self.held_since.is_none() {
                    self.held_since = Some(self.now);
                    self.memory[of].made(self.took_over, self.now);
                }
                if unheard {
                    self.in_doubt(of, step);
                }
            }
            Step::Begin(new) => self.begin(of, new),
            Step::Trust(id) => {
                self.memory[of].asked = self.now;
                let copy = self.copy(id);
                copy.shown.tags = std::mem::take(&mut copy.shown.tags).with(key::CONSISTENT, "true");
            }
            Step::Release => self.held_since = None,
            Step::Strike => {
                assert!(self.is_free(), "a debt is struck while the database is held");
                self.memory[of].checkpoint = Checkpoint::Unknown;
                self.memory[of].unanswered = None;
                self.drop_finalizer(of, RELEASE_OWED);
            }
            Step::Discard(id) => {
                let copy = self.copy(id);
                assert_ne!(copy.shown.volume.as_str(), OF_NOTHING, "what somebody else made is destroyed");
                copy.deleted = true;
            }
            Step::LetGo => self.drop_finalizer(of, FINALIZER),
        }
    }

    fn begin(&mut self, of: usize, new: &NewSnapshot) {
        self.memory[of].asked = self.now;
        self.serial += 1;
        let id = format!("snap-{:03}", self.serial);
        let at = u64::try_from(self.now.as_second()).unwrap();
        self.copies.push(Copy {
            whole: self.stopped.is_some() || (self.held_since.is_some() && !self.is_theirs()),
            deleted: false,
            visible: self.now + SignedDuration::from_secs(self.shows_after),
            done: self.now + SignedDuration::from_secs(EBS),
            shown: VolumeSnapshot {
                id: id.as_str().into(),
                state: SnapshotState::Pending,
                volume: new.volume.clone(),
                size_gib: 20,
                progress: Some(0),
                message: None,
                encrypted: true,
                tags: new.tags.clone(),
                started_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(at)),
            },
        });
    }

    /// Something that was asked for before and arrives only now.
    pub(super) fn arrive(&mut self, tags: Tags) {
        let new = NewSnapshot { volume: "vol-1".into(), description: String::new(), tags };
        let asked = self.memory[0].asked;
        self.begin(0, &new);
        self.memory[0].asked = asked;
    }

    /// Somebody copies what there is with its tags, by `CopySnapshot`; whether there was anything.
    pub(super) fn copy_by_hand(&mut self) -> bool {
        let Some(first) = self.living().first().map(|copy| (copy.shown.clone(), copy.whole)) else {
            return false;
        };
        let (shown, whole) = first;
        self.serial += 1;
        let id = format!("snap-{:03}", self.serial);
        let at = u64::try_from(self.now.as_second()).unwrap();
        self.copies.push(Copy {
            whole,
            deleted: false,
            visible: self.now,
            done: self.now,
            shown: VolumeSnapshot {
                id: id.as_str().into(),
                volume: OF_NOTHING.into(),
                started_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(at)),
                ..shown
            },
        });
        true
    }

    /// Those that are left of what people copied.
    pub(super) fn by_hand(&self) -> usize {
        self.living().iter().filter(|copy| copy.shown.volume.as_str() == OF_NOTHING).count()
    }

    fn copy(&mut self, id: &SnapshotId) -> &mut Copy {
        self.copies.iter_mut().find(|copy| copy.shown.id == *id).unwrap()
    }

    fn drop_finalizer(&mut self, of: usize, name: &str) {
        self.objects[of].metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != name);
    }

    pub(super) fn tick(&mut self) {
        self.now += SignedDuration::from_secs(TICK);
        if self.foreign.is_some_and(|(_, until)| until <= self.now) {
            self.held_since = self.held_since.filter(|_| !self.is_theirs());
            self.foreign = None;
        }
        if self.arrives.is_some_and(|at| at <= self.now) && !self.is_silent() {
            self.arrives = None;
            // QuestDB refuses a second one.
            self.held_since.get_or_insert(self.now);
        }
    }

    /// Nobody looks any more; what is under way arrives.
    pub(super) fn let_arrive(&mut self) {
        while self.arrives.is_some() {
            self.tick();
        }
        self.check();
    }

    pub(super) fn wipe(&mut self, of: usize) {
        self.objects[of].status = None;
        self.asleep[of] = false;
    }

    pub(super) fn delete(&mut self, of: usize, policy: CopyPolicy) {
        self.objects[of].spec.deletion_policy = policy;
        self.asleep[of] &= self.objects[of].metadata.deletion_timestamp.is_some();
        self.objects[of].metadata.deletion_timestamp.get_or_insert(Time(self.now));
    }

    /// Whether nothing keeps the object any more.
    pub(super) fn is_gone(&self, of: usize) -> bool {
        let metadata = &self.objects[of].metadata;
        metadata.deletion_timestamp.is_some() && metadata.finalizers.iter().flatten().next().is_none()
    }

    pub(super) fn phase(&self, of: usize) -> Option<SnapshotPhase> {
        self.objects[of].status.as_ref()?.phase
    }

    pub(super) fn living(&self) -> Vec<&Copy> {
        self.copies.iter().filter(|copy| !copy.deleted).collect()
    }

    /// Whether nothing of ours holds the database.
    pub(super) fn is_free(&self) -> bool {
        self.held_since.is_none() || self.is_theirs()
    }

    /// What must hold at every moment.
    pub(super) fn check(&self) {
        for copy in self.living() {
            let trusted = copy.shown.tags.get(key::CONSISTENT).is_some();
            assert!(!trusted || copy.whole, "a torn copy is trusted: {:?}", copy.shown);
        }
        let owed = self.objects.iter().any(owes);
        assert!(self.is_free() || owed, "the database is held and nobody owes its release");
    }
}

fn object(name: &str, now: Timestamp) -> QuestDBSnapshot {
    let spec = QuestDBSnapshotSpec {
        database: "trades".to_owned(),
        deadline_seconds: 3_600,
        deletion_policy: CopyPolicy::Retain,
    };
    let mut object = QuestDBSnapshot::new(name, spec);
    object.metadata.namespace = Some("ns".to_owned());
    object.metadata.uid = Some(format!("uid-{name}"));
    object.metadata.generation = Some(1);
    object.metadata.creation_timestamp = Some(Time(now));
    object
}
