//! What somebody writes over in the operator's own Secret, takes out of it or puts into it: it is as it was written by one more
//! write, and nobody is restarted who has not read it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::RunState;
use resources::names::{self, condition};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::clinging::hold;
use super::credentials::{in_force, jwk, opens_ilp, refusal, watched, written};
use super::model::{Lost, World};
use super::operations::{become_, change};
use super::{Trouble, check_serving, pass, serving, settle};
use crate::fixture::validated;
use crate::secrets::{self, Cause, NewCredentials, Revision};
use crate::{Children, Plan, Step};

/// The Secret as the operator makes it.
pub(super) fn held(body: Value) -> Secret {
    let mut own: Secret = serde_json::from_value(body).unwrap();
    let annotations = own.metadata.annotations.as_ref();
    let revision = annotations.and_then(|found| found.get(names::secret::REVISION)).cloned();
    let data = own.data.get_or_insert_default();
    let copy = secrets::copy(revision.as_deref(), data.clone());
    data.insert(names::secret::WRITTEN.to_owned(), copy);
    own
}

/// What the operator writes into it, of which it is the owner then. The same values that are given are the same revision.
pub(super) fn write(own: &mut Secret, new: &NewCredentials) {
    let mut after = own.clone();
    new.write(&mut after, "");
    let mut data = after.data.unwrap_or_default();
    data.remove(names::secret::WRITTEN);
    let digest = hex::encode(&Sha256::digest(json!(data).to_string())[..4]);
    let another = match new.cause {
        Cause::Given | Cause::Unheld => format!("given-{digest}"),
        Cause::Changed => format!("again-{}", new.over.version),
    };
    new.write(own, &another);
    own.metadata.managed_fields = None;
}

/// What is remembered of it.
pub(super) fn judge(children: &mut Children) {
    if let Some(own) = &mut children.secret {
        secrets::judge(Arc::make_mut(own));
    }
}

/// What somebody does to the Secret.
type Hand = fn(&mut Secret);

fn put(own: &mut Secret, key: &str, value: Option<&str>) {
    let data = own.data.get_or_insert_default();
    data.remove(key);
    data.extend(value.map(|value| (key.to_owned(), ByteString(value.as_bytes().to_vec()))));
}

fn revise(own: &mut Secret, revision: Option<&str>) {
    let annotations = own.metadata.annotations.get_or_insert_default();
    annotations.remove(names::secret::REVISION);
    annotations.extend(revision.map(|text| (names::secret::REVISION.to_owned(), text.to_owned())));
}

fn meddle(world: &mut World, hand: Hand) {
    let version = world.next().to_string();
    let own = Arc::make_mut(world.children.secret.as_mut().unwrap());
    hand(own);
    own.metadata.resource_version = Some(version);
}

const HANDS: [(&str, Hand); 11] = [
    ("a drawn password", |own| put(own, "http-password", Some("theirs"))),
    ("a given password", |own| put(own, "pg-password", Some("theirs"))),
    ("the name of a user", |own| put(own, "pg-user", Some("eve"))),
    ("a drawn password taken out", |own| put(own, "http-password", None)),
    ("a reader taken out", |own| put(own, "pg-readonly-password", None)),
    ("keys", |own| put(own, "ilp-keys", Some("theirs ec-p-256-sha256 x y\n"))),
    ("keys taken out", |own| put(own, "ilp-keys", None)),
    ("everything taken out", |own| {
        own.data.as_mut().unwrap().retain(|key, _| key == names::secret::WRITTEN);
    }),
    ("the revision", |own| revise(own, Some("theirs"))),
    ("the revision taken off", |own| revise(own, None)),
    ("every annotation taken off", |own| {
        own.metadata.annotations = None;
        put(own, "http-password", Some("theirs"));
    }),
];

/// A database with every credential: one of them drawn, the others given.
fn given() -> World {
    let mut world = serving();
    world.login("own", "psql", ("ada", "first"));
    world.login("reads", "psql-readonly", ("bob", "reads"));
    world.key("keys", &[jwk("k1", 0)]);
    settle(&mut world, None, false);
    check_serving(&world, None);
    world
}

/// Whether a plan writes credentials, and whether that puts right what somebody did.
fn writes(planned: &Plan) -> Option<bool> {
    let mut actions = planned.actions.iter();
    let found = actions.find(|action| matches!(action.step, Step::SetCredentials(_)));
    found.map(|action| action.puts_right)
}

fn passwords(world: &World) -> [Option<String>; 2] {
    ["pg-password", "http-password"].map(|key| written(world, key))
}

#[test]
fn whatever_somebody_changes_is_as_it_was_by_one_write_and_without_a_restart() {
    for (what, hand) in HANDS {
        let mut world = given();
        let (own, process, set) = (
            world.children.secret.clone().unwrap(),
            world.process.clone(),
            world.children.stateful_set.clone(),
        );
        meddle(&mut world, hand);
        let mut planned = pass(&mut world, &mut 0, None, false);
        if planned.actions.iter().any(|action| matches!(action.step, Step::CreateSecret(_))) {
            // It is known by its annotations.
            planned = pass(&mut world, &mut 0, None, false);
        }
        assert_eq!(writes(&planned), Some(true), "{what}: {:?}", planned.actions);
        assert_eq!(world.children.secret.as_ref().unwrap().data, own.data, "{what}");
        let stops = watched(&mut world, |world, _| assert!(opens_ilp(world), "{what}: shut"));
        assert_eq!(stops, 0, "{what}");
        let after = world.children.secret.as_ref().unwrap();
        assert_eq!(
            (&after.data, &after.metadata.annotations),
            (&own.data, &own.metadata.annotations),
            "{what}"
        );
        assert_eq!((&world.process, &world.children.stateful_set), (&process, &set), "{what}");
        check_serving(&world, None);
    }
}

#[test]
fn keys_that_somebody_puts_in_open_no_port() {
    let mut world = serving();
    let process = world.process.clone();
    meddle(&mut world, |own| put(own, "ilp-keys", Some("theirs ec-p-256-sha256 x y\n")));
    let stops = watched(&mut world, |world, _| assert!(!opens_ilp(world), "open by somebody's keys"));
    assert_eq!((stops, written(&world, "ilp-keys"), world.process), (0, None, process));
}

#[test]
fn nobody_is_started_with_what_somebody_wrote() {
    let begins: [fn(&mut World); 2] = [
        |world| change(world, |spec| spec.restart_nonce = Some("once".to_owned())),
        |world| change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type)),
    ];
    for begin in begins {
        let mut world = given();
        begin(&mut world);
        let before = passwords(&world);
        for _ in 0..12 {
            pass(&mut world, &mut 0, None, false);
            // After each write: whoever were stopped now would be started with it.
            meddle(&mut world, |own| put(own, "http-password", Some("theirs")));
            world.tick();
            assert_eq!(in_force(&world, "http-password"), before[1], "started with somebody's password");
        }
        settle(&mut world, None, false);
        assert_eq!(passwords(&world), before);
        assert_eq!(in_force(&world, "http-password"), before[1]);
    }
}

#[test]
fn what_somebody_writes_into_one_that_is_paused_is_put_right_before_it_starts() {
    let mut world = given();
    let before = passwords(&world);
    become_(&mut world, RunState::Paused);
    settle(&mut world, None, false);
    meddle(&mut world, |own| put(own, "http-password", Some("theirs")));
    let names = secrets::to_read(&validated(&world.resource), &world.look());
    assert!(names.is_empty(), "nobody needs what is in it: {names:?}");
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(planned.is_settled(), "{:?}", planned.actions);
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    assert_eq!(passwords(&world), before);
    assert_eq!(in_force(&world, "http-password"), before[1]);
    check_serving(&world, None);
}

#[test]
fn a_rotation_is_carried_out_whatever_somebody_writes_meanwhile() {
    let both: Hand = |own| {
        put(own, "pg-password", Some("theirs"));
        put(own, "http-password", Some("theirs"));
    };
    let unmarked: Hand = |own| own.metadata.labels = None;
    for (hand, at) in [both, unmarked].into_iter().flat_map(|hand| (0..9).map(move |at| (hand, at))) {
        let mut world = given();
        world.login("own", "psql", ("ada", "second"));
        for number in 0..9 {
            if number == at {
                meddle(&mut world, hand);
            }
            pass(&mut world, &mut 0, None, false);
            world.tick();
        }
        settle(&mut world, None, false);
        assert_eq!(passwords(&world), ["second", "drawn-1"].map(|value| Some(value.to_owned())), "{at}");
        let known = ["pg-password", "http-password"].map(|key| in_force(&world, key));
        assert_eq!(known, passwords(&world), "{at}");
        check_serving(&world, None);
    }
}

#[test]
fn a_copy_that_is_missing_or_spoilt_is_made_once_more_and_only_a_spoilt_one_is_counted() {
    let hands: [(Hand, bool); 2] = [
        (|own| put(own, names::secret::WRITTEN, None), false),
        (|own| put(own, names::secret::WRITTEN, Some("theirs")), true),
    ];
    for (hand, counts) in hands {
        let mut world = given();
        let (data, process) = (world.children.secret.as_ref().unwrap().data.clone(), world.process.clone());
        meddle(&mut world, hand);
        let planned = pass(&mut world, &mut 0, None, false);
        assert_eq!(writes(&planned), Some(counts), "{:?}", planned.actions);
        assert_eq!(watched(&mut world, |_, planned| assert_eq!(writes(planned), None)), 0);
        assert_eq!((&world.children.secret.as_ref().unwrap().data, &world.process), (&data, &process));
    }
}

#[test]
fn what_stands_against_what_is_given_is_told_while_something_is_put_right() {
    let mut world = given();
    world.login("own", "psql", ("ada", "second"));
    world.unreadable = vec!["own".to_owned()];
    world.give("reads", Some("psql-readonly"), &[("username", "bob")]);
    settle(&mut world, None, false);
    let told = refusal(&world);
    assert!(told.as_ref().is_some_and(|text| text.contains("Secret own") && text.contains("Secret reads")));
    meddle(&mut world, |own| put(own, "http-password", Some("theirs")));
    for _ in 0..3 {
        // It is left to the other for a while.
        let fails = Trouble { at: 0, lost: Lost::Request, crash: false };
        let planned = pass(&mut world, &mut 0, Some(fails), false);
        assert_eq!((writes(&planned), refusal(&world)), (Some(true), told.clone()));
        world.tick();
    }
    assert_eq!(watched(&mut world, |world, _| assert_eq!(refusal(world), told)), 0);
}

/// Somebody writes over a password, so long after the operator wrote last, and QuestDB starts in another pod before anybody puts it
/// right.
fn started_with_theirs(after: SignedDuration) -> World {
    let mut world = given();
    meddle(&mut world, |own| put(own, "http-password", Some("theirs")));
    let by = |manager: &str, time: Timestamp, key: &str| {
        let fields = json!({ "f:data": { key: {} } });
        let entry =
            json!({ "manager": manager, "operation": "Update", "time": Time(time), "fieldsV1": fields });
        serde_json::from_value(entry).unwrap()
    };
    let own = Arc::make_mut(world.children.secret.as_mut().unwrap());
    own.metadata.managed_fields = Some(vec![
        by(names::OPERATOR, world.now - after, "f:http-user"),
        by("somebody", world.now, "f:http-password"),
    ]);
    world.now += SignedDuration::from_mins(2);
    world.process.clone_from(&world.children.secret);
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.creation_timestamp = Some(Time(world.now));
    let container = json!({
        "name": "questdb", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "state": { "running": { "startedAt": Time(world.now) } },
    });
    let status = pod.status.get_or_insert_default();
    status.container_statuses = Some(vec![serde_json::from_value(container).unwrap()]);
    world
}

#[test]
fn a_questdb_that_started_with_what_somebody_wrote_is_told_and_restarted_once() {
    let mut world = started_with_theirs(SignedDuration::from_hours(1));
    let planned = pass(&mut world, &mut 0, None, false);
    let mut written_anew = planned.actions.iter().filter_map(|action| match &action.step {
        Step::SetCredentials(new) => Some((action, new)),
        _ => None,
    });
    let (action, new) = written_anew.next().unwrap();
    assert!(action.puts_right && action.reason.ends_with("is restarted for it"), "{}", action.reason);
    assert_eq!(new.revision, Revision::Another);
    let (mut told, mut stops) = (false, 0);
    let all = watched(&mut world, |world, planned| {
        let deletes = planned.actions.iter().filter(|action| matches!(action.step, Step::Delete(_)));
        stops += deletes.count();
        assert!(told || stops == 0, "restarted before it was told");
        let pending = &world.resource.status.as_ref().unwrap().pending;
        told |= pending.iter().any(|found| found.field == "/spec/credentials");
    });
    assert_eq!((all, passwords(&world)), (1, ["first", "drawn-1"].map(|value| Some(value.to_owned()))));
    assert_eq!(in_force(&world, "http-password"), written(&world, "http-password"));
    check_serving(&world, None);
}

/// What is put right has to be read by a restart, and that cannot be had.
#[test]
fn who_is_locked_out_until_a_restart_that_cannot_be_had_is_told_what_to_do() {
    let close = |world: &mut World, closed: Option<bool>| {
        Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = closed;
    };
    let said = |world: &World, kind: &str| {
        let conditions = &world.resource.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|found| found.type_ == kind).unwrap().clone();
        (found.status, found.reason, found.message)
    };
    let mut world = started_with_theirs(SignedDuration::from_hours(1));
    // It cannot go elsewhere.
    world.full.machines = vec![world.volumes[0].zone.clone()];
    close(&mut world, Some(true));
    for _ in 0..9 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!(written(&world, "http-password").as_deref(), Some("drawn-1"), "it is put right at once");
    assert_eq!(in_force(&world, "http-password").as_deref(), Some("theirs"));
    let (degraded, reason, text) = said(&world, condition::DEGRADED);
    assert_eq!((degraded.as_str(), reason.as_str()), ("True", "CredentialsNotInForce"), "{text}");
    for words in ["Secret trades-33445566-credentials", "the Node is cordoned", "; uncordon Node "] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert_eq!(said(&world, condition::READY).0, "True", "it answers");
    world.full.machines.clear();
    close(&mut world, None);
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "http-password").as_deref(), Some("drawn-1"));
    assert_eq!(said(&world, condition::DEGRADED).0, "False");
    check_serving(&world, None);
}

/// The same where somebody holds the StatefulSet, of which no pod would be made.
#[test]
fn who_is_locked_out_while_somebody_holds_the_stateful_set_is_told() {
    let mut world = started_with_theirs(SignedDuration::from_hours(1));
    let mut planned = Plan::default();
    for _ in 0..9 {
        hold(world.children.stateful_set.as_mut().unwrap());
        planned = pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!(written(&world, "http-password").as_deref(), Some("drawn-1"), "it is put right at once");
    assert_eq!(in_force(&world, "http-password").as_deref(), Some("theirs"));
    let text = planned.locked_out.unwrap();
    for words in ["Secret trades-33445566-credentials", "no pod would be made"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // After a while who holds it is told, and this beside that.
    world.now += SignedDuration::from_mins(10);
    hold(world.children.stateful_set.as_mut().unwrap());
    pass(&mut world, &mut 0, None, false);
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let degraded = conditions.iter().find(|found| found.type_ == condition::DEGRADED).unwrap();
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "Pod"));
    for words in ["backup.example.com/held", text.as_str()] {
        assert!(degraded.message.contains(words), "{words} in {}", degraded.message);
    }
    world.children.stateful_set = None;
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "http-password").as_deref(), Some("drawn-1"));
    check_serving(&world, None);
}

/// Whatever is put right, the next QuestDB could start with it again.
#[test]
fn a_questdb_that_started_with_what_is_fought_over_is_left_to_people() {
    let mut world = started_with_theirs(SignedDuration::from_mins(10));
    assert_eq!(watched(&mut world, |_, _| {}), 0);
    assert_eq!(written(&world, "http-password").as_deref(), Some("drawn-1"));
    assert_eq!(in_force(&world, "http-password").as_deref(), Some("theirs"));
    check_serving(&world, None);
}

#[test]
fn what_the_secret_is_known_by_is_written_first_and_nothing_else_over_the_same_version() {
    let bare: Hand = |own| {
        own.metadata.annotations = None;
        put(own, "http-password", Some("theirs"));
    };
    // As an operator from before there were copies kept it beside its disk.
    let kept: Hand = |own| {
        own.metadata.annotations.as_mut().unwrap().remove(names::RESOURCE).unwrap();
        put(own, names::secret::WRITTEN, None);
    };
    // Who took the annotations off took off where the values come from as well.
    for (hand, expected) in [(bare, vec!["SetCredentials", "SetCredentials"]), (kept, vec!["SetCredentials"])]
    {
        let mut world = given();
        meddle(&mut world, hand);
        let mut steps = Vec::new();
        let restarts = watched(&mut world, |_, planned| {
            steps.extend(planned.actions.iter().map(|action| action.step.name()));
        });
        assert_eq!((steps, restarts), ([vec!["CreateSecret"], expected].concat(), 0));
    }
}

/// An operator from before there were copies writes values and their revision, and leaves the copy of before.
#[test]
fn what_an_older_operator_wrote_stays_in_force() {
    let mut world = given();
    meddle(&mut world, |own| {
        put(own, "pg-password", Some("second"));
        revise(own, Some("older"));
    });
    let planned = pass(&mut world, &mut 0, None, false);
    assert_eq!(writes(&planned), Some(false), "{:?}", planned.actions);
    assert_eq!(watched(&mut world, |_, _| {}), 1);
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("second"));
    // From then on it is held.
    meddle(&mut world, |own| put(own, "pg-password", Some("theirs")));
    assert_eq!(watched(&mut world, |_, _| {}), 0);
    assert_eq!(written(&world, "pg-password").as_deref(), Some("second"));
}
