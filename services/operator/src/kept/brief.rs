//! What is known of an object without unpacking it: what somebody asks of all objects of a kind at once, and no more. There are
//! as many of these as objects.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::DynamicObject;
use resources::{
    Phase, QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, QuestDBStatus, RunState, StepState, names,
};

use crate::caches::owner;
use crate::store::Key;

/// What a machine lacks that has an alert of its own, as grave as that of every other trouble.
const CALLED_FOR: [&str; 2] = [names::reason::NOT_JOINED, names::reason::NOT_READY];

/// How little is known of an object.
pub(crate) trait Brief<K>: Send + Sync + 'static {
    fn of(object: &K) -> Self;
}

/// Nothing.
impl<K> Brief<K> for () {
    fn of(_: &K) {}
}

/// Who an object is.
pub(crate) struct Uid(Option<Box<str>>);

impl Uid {
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl Brief<QuestDBSnapshot> for Uid {
    fn of(object: &QuestDBSnapshot) -> Self {
        Self(boxed(object.metadata.uid.as_deref()))
    }
}

impl AsRef<Self> for Uid {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A schedule of snapshots.
pub(crate) struct Schedule {
    uid: Uid,
    state: Option<Box<str>>,
}

impl Schedule {
    /// What the last pass said of it, in a word.
    pub(crate) fn state(&self) -> &str {
        self.state.as_deref().unwrap_or("New")
    }
}

impl AsRef<Uid> for Schedule {
    fn as_ref(&self) -> &Uid {
        &self.uid
    }
}

impl Brief<QuestDBSnapshotSchedule> for Schedule {
    fn of(object: &QuestDBSnapshotSchedule) -> Self {
        let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
        let ready = conditions.find(|condition| condition.type_ == names::condition::READY);
        Self {
            uid: Uid(boxed(object.metadata.uid.as_deref())),
            state: boxed(ready.map(|ready| ready.reason.as_str())),
        }
    }
}

/// Whose an object is.
pub(crate) struct Owner(pub(crate) Option<Key>);

impl Brief<DynamicObject> for Owner {
    fn of(object: &DynamicObject) -> Self {
        Self(owner(&object.metadata).map(|owner| Key::to(&owner)))
    }
}

/// For which resource the object of a disk was made, where that has the name that we give: asked in each pass of each database.
pub(crate) struct MadeFor(Option<Key>);

impl MadeFor {
    /// Whether it was made for this one, by its labels.
    pub(crate) fn is(&self, resource: &Key) -> bool {
        self.0.as_ref() == Some(resource)
    }
}

impl Brief<PersistentVolume> for MadeFor {
    fn of(object: &PersistentVolume) -> Self {
        let owner = owner(&object.metadata).filter(|_| plan::is_named_by_us(object));
        Self(owner.map(|owner| Key::to(&owner)))
    }
}

/// A database.
pub(crate) struct Database {
    uid: Option<Box<str>>,
    identity: Option<Box<str>>,
    /// Whether its identity cannot be lost any more.
    is_settled: bool,
    is_believed: bool,
    pub(crate) wants: Wants,
    pub(crate) phase: Option<Phase>,
    /// Whether it has a trouble of its own that does not heal by itself: that may be so in every phase.
    pub(crate) is_degraded: bool,
    /// What a machine of it lacks to take it, by the place of that reason among all: a text would take more than all else here.
    lack: Option<u8>,
    pub(crate) leaving: Leaving,
}

/// What a database wants of what is not its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// Whether it asks for any of the kinds that a cluster may lack.
    pub(crate) others: bool,
    /// Whether it is to begin with a copy and has no disk yet.
    pub(crate) copy: bool,
}

/// Since when a database is being taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It is not, or is gone.
    No,
    /// It has only just been asked for: nobody has reported on it.
    Asked,
    Since(Timestamp),
}

impl Database {
    pub(crate) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// The identity that it claims, however loosely.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Whether it claims this identity, however loosely.
    pub(crate) fn claims(&self, database: &str) -> bool {
        self.identity.as_deref() == Some(database)
    }

    /// Whether its status holds the identity that it claims.
    pub(crate) fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// The identity that cannot be lost any more.
    pub(crate) fn settled(&self) -> Option<&str> {
        self.identity.as_deref().filter(|_| self.is_settled)
    }
}

impl Brief<QuestDB> for Database {
    fn of(resource: &QuestDB) -> Self {
        let settled = plan::settled_identity(resource);
        let network = &resource.spec.network;
        Self {
            uid: boxed(resource.metadata.uid.as_deref()),
            identity: boxed(settled.or_else(|| plan::annotated(resource))),
            is_settled: settled.is_some(),
            is_believed: plan::is_believed(resource),
            wants: Wants {
                others: network.ingress.is_some() || network.monitor.is_some(),
                copy: plan::schedule::awaits_copy(resource),
            },
            phase: resource.status.as_ref().and_then(|status| status.phase),
            is_degraded: is_degraded(resource),
            lack: lack(resource),
            leaving: leaving(resource),
        }
    }
}

fn boxed(text: Option<&str>) -> Option<Box<str>> {
    text.map(Into::into)
}

impl Database {
    /// What a machine of it lacks to take it, by the reason of a condition.
    pub(crate) fn lack(&self) -> Option<&'static str> {
        names::reason::OF_MACHINES.get(usize::from(self.lack?)).copied()
    }
}

/// That its namespace cannot be seen is no trouble of its own, and is counted apart. So is that a machine does not join, or is not ready,
/// where that is all it says: of the same nobody is to be called twice.
fn is_degraded(resource: &QuestDB) -> bool {
    let conditions = || resource.status.iter().flat_map(|status| &status.conditions);
    let is_trouble = |found: &&Condition| found.type_ == names::condition::DEGRADED && found.status == "True";
    let Some(trouble) = conditions().find(is_trouble) else { return false };
    let says_the_same = |of_machine: &Condition| {
        let is_called_for = CALLED_FOR.contains(&of_machine.reason.as_str());
        is_called_for && !of_machine.message.is_empty() && trouble.message.ends_with(&of_machine.message)
    };
    trouble.reason != names::reason::NAMESPACE_UNSEEN && !conditions().any(says_the_same)
}

fn lack(resource: &QuestDB) -> Option<u8> {
    let conditions = || resource.status.iter().flat_map(|status| &status.conditions);
    let is_told = |reason: &str| conditions().any(|condition| condition.reason == reason);
    let mut all = (0..).zip(names::reason::OF_MACHINES);
    all.find(|(_, reason)| is_told(reason)).map(|(place, _)| place)
}

fn leaving(resource: &QuestDB) -> Leaving {
    if let Some(deleted) = &resource.metadata.deletion_timestamp
        && plan::is_leaving(resource)
    {
        return Leaving::Since(deleted.0);
    }
    let status = resource.status.as_ref();
    let ends = matches!(resource.spec.run_state, RunState::Deleted | RunState::Purged);
    let is_deleted = status.is_some_and(|status| status.phase == Some(Phase::Deleted));
    let carried_out = is_deleted && plan::is_judged(resource);
    if !ends || carried_out {
        return Leaving::No;
    }
    let stuck = || status.filter(|_| plan::is_judged(resource)).and_then(stuck_since);
    status.and_then(working_since).or_else(stuck).map_or(Leaving::Asked, Leaving::Since)
}

/// Since when steps are being taken.
fn working_since(status: &QuestDBStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter();
    let working =
        conditions.find(|found| found.type_ == names::condition::PROGRESSING && found.status == "True");
    working.map(|found| found.last_transition_time.0)
}

/// Since when the first of the steps that are not done was begun. Of one that heals by no waiting nobody says that it makes progress.
fn stuck_since(status: &QuestDBStatus) -> Option<Timestamp> {
    let open =
        status.steps.iter().filter(|step| matches!(step.state, StepState::Running | StepState::Failed));
    open.filter_map(|step| step.started_at.as_ref()).map(|began| began.0).min()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn database(change: impl FnOnce(&mut Value)) -> Database {
        let mut object = json!({
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "annotations": { names::ADOPTED_ID: "loose" } },
            "spec": { "storage": { "sizeGib": 20 } },
        });
        change(&mut object);
        let object: QuestDB = serde_json::from_value(object).unwrap();
        Database::of(&object)
    }

    #[test]
    fn a_disk_is_made_for_whom_its_labels_name_where_its_object_has_the_name_that_we_give() {
        let is_for = |name: &str, labels: &Value, resource: (&str, &str)| {
            let object = json!({
                "metadata": { "name": name, "labels": labels },
                "spec": { "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1" } },
            });
            let object: PersistentVolume = serde_json::from_value(object).unwrap();
            MadeFor::of(&object).is(&Key::new(Some(resource.0), resource.1))
        };
        let ours = names::persistent_volume("vol-1");
        let labels = json!({ names::LABEL_NAMESPACE: "n", names::LABEL_NAME: "a" });
        assert!(is_for(&ours, &labels, ("n", "a")));
        assert!(!is_for(&ours, &labels, ("other", "a")) && !is_for(&ours, &labels, ("n", "b")));
        assert!(!is_for("brought-back", &labels, ("n", "a")), "a backup gives a name of its own");
        for lacking in [names::LABEL_NAMESPACE, names::LABEL_NAME] {
            let mut labels = labels.clone();
            labels.as_object_mut().unwrap().remove(lacking);
            assert!(!is_for(&ours, &labels, ("n", "a")), "without {lacking} it is looked at in whole");
        }
    }

    #[test]
    fn an_identity_is_claimed_by_an_annotation_and_settled_by_more() {
        let loose = database(|_| {});
        assert_eq!((loose.claims("loose"), loose.settled(), loose.uid()), (true, None, Some("u")));
        let settled = database(|object| object["status"] = json!({ "databaseId": "firm" }));
        assert_eq!((settled.claims("firm"), settled.settled()), (true, Some("firm")));
        assert!(!settled.claims("loose"), "what is settled is not overruled");
        assert_eq!((loose.is_believed(), settled.is_believed()), (false, true));
    }

    #[test]
    fn an_instruction_settles_an_identity_and_only_status_has_it_believed() {
        let instruction =
            json!({ "id": "i", "databaseId": "firm", "epoch": 1, "seq": 1, "render": 1, "hash": "h" });
        let managed = |noted: Option<&str>| {
            database(|object| {
                object["spec"]["instruction"] = instruction.clone();
                object["status"] = json!({ "databaseId": noted });
            })
        };
        for (noted, believed) in [(None, false), (Some("other"), false), (Some("firm"), true)] {
            let brief = managed(noted);
            assert_eq!((brief.settled(), brief.is_believed()), (Some("firm"), believed), "{noted:?}");
        }
    }

    #[test]
    fn an_end_that_is_stuck_is_counted_since_the_step_that_is_not_done_was_begun() {
        let purged = |change: fn(&mut Value)| {
            let progressing = json!({
                "type": "Progressing", "status": "False", "reason": "Detachment", "message": "",
                "lastTransitionTime": "2026-01-01T00:10:00Z",
            });
            let known = database(|object| {
                object["metadata"]["generation"] = json!(2);
                object["spec"]["runState"] = json!("Purged");
                object["status"] = json!({
                    "phase": "Deleting",
                    "observedGeneration": 2,
                    "conditions": [progressing],
                    "steps": [
                        { "name": "pod-stop", "state": "Succeeded", "startedAt": "2026-01-01T00:01:00Z" },
                        { "name": "detachment", "state": "Failed", "startedAt": "2026-01-01T00:02:00Z" },
                        { "name": "instance-stop", "state": "Pending" },
                    ],
                });
                change(object);
            });
            known.leaving
        };
        let since = |text: &str| Leaving::Since(text.parse().unwrap());
        assert_eq!(purged(|_| {}), since("2026-01-01T00:02:00Z"));
        let goes_on = purged(|object| object["status"]["conditions"][0]["status"] = json!("True"));
        assert_eq!(goes_on, since("2026-01-01T00:10:00Z"));
        let only_asked = purged(|object| object["metadata"]["generation"] = json!(3));
        assert_eq!(only_asked, Leaving::Asked, "what was said is of the wish before");
    }

    #[test]
    fn what_does_not_heal_by_itself_is_known_by_the_condition_in_every_phase() {
        let is_degraded = |phase: &str, [kind, status, reason]: [&str; 3]| {
            let other = json!({
                "type": "Ready", "status": "True", "reason": "Serving", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let mut told = other.clone();
            for (field, word) in [("type", kind), ("status", status), ("reason", reason)] {
                told[field] = json!(word);
            }
            let status = json!({ "phase": phase, "conditions": [other, told] });
            database(|object| object["status"] = status).is_degraded
        };
        for phase in ["Ready", "Pausing", "Paused", "Deleting", "Deleted", "Degraded"] {
            assert!(is_degraded(phase, ["Degraded", "True", "StrangeMachine"]), "{phase}");
            assert!(!is_degraded(phase, ["Degraded", "False", "AsExpected"]), "{phase}");
            assert!(!is_degraded(phase, ["Conflict", "True", "Identity"]), "{phase}");
            let unseen = ["Degraded", "True", names::reason::NAMESPACE_UNSEEN];
            assert!(!is_degraded(phase, unseen), "{phase}: it is counted apart");
        }
        assert!(!database(|_| {}).is_degraded, "nothing is said of it yet");
    }

    #[test]
    fn a_machine_that_does_not_join_is_no_other_trouble_where_it_is_all_that_is_told() {
        let is_degraded = |[kind, reason, message]: [&str; 3], trouble: &str| {
            let told = |kind: &str, status: &str, reason: &str, message: &str| {
                json!({
                    "type": kind, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            };
            let conditions =
                [told("Degraded", "True", "Node", trouble), told(kind, "False", reason, message)];
            database(|object| object["status"] = json!({ "phase": "Degraded", "conditions": conditions }))
                .is_degraded
        };
        for (kind, reason) in
            [("NodeHealthy", "NotJoined"), ("NodeHealthy", "NotReady"), ("Moving", "NotJoined")]
        {
            let of_machine = |message| [kind, reason, message];
            assert!(
                !is_degraded(of_machine("i-1 has not joined"), "node: i-1 has not joined"),
                "{kind} {reason}"
            );
            assert!(
                is_degraded(of_machine("i-1 has not joined"), "volume: vol-1 is gone"),
                "{kind} {reason}"
            );
            assert!(is_degraded(of_machine(""), "node: i-1 is gone"), "{kind} {reason}");
        }
        let closed = ["Moving", "NodeClosed", "Node n is cordoned"];
        assert!(is_degraded(closed, "candidate: Node n is cordoned"), "nobody is called for that otherwise");
    }

    #[test]
    fn a_schedule_is_known_by_what_the_last_pass_said_of_it() {
        let schedule = |status: Value| {
            let mut object: Value = json!({
                "metadata": { "name": "a", "namespace": "n", "uid": "u" },
                "spec": { "database": "d", "schedule": "0 3 * * *" },
            });
            object["status"] = status;
            let object: QuestDBSnapshotSchedule = serde_json::from_value(object).unwrap();
            Schedule::of(&object)
        };
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "HeldBack", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let held_back = schedule(json!({ "conditions": [condition] }));
        assert_eq!((held_back.state(), held_back.uid.get()), ("HeldBack", Some("u")));
        assert_eq!(schedule(Value::Null).state(), "New");
    }

    #[test]
    fn who_asks_for_kinds_that_a_cluster_may_lack_is_known() {
        assert!(!database(|_| {}).wants.others);
        assert!(database(|object| object["spec"]["network"] = json!({ "monitor": {} })).wants.others);
        let ingress = json!({ "ingress": {} });
        assert!(database(|object| object["spec"]["network"] = ingress).wants.others);
    }

    #[test]
    fn who_is_still_to_begin_with_a_copy_is_known() {
        assert!(!database(|_| {}).wants.copy);
        let source = |object: &mut Value| object["spec"]["storage"]["source"] = json!({ "snapshot": "s" });
        assert!(database(source).wants.copy);
        let with_disk = |object: &mut Value| {
            source(object);
            object["status"] = json!({ "volume": { "id": "vol-1", "sizeGib": 20, "state": "creating" } });
        };
        assert!(!database(with_disk).wants.copy);
    }
}
