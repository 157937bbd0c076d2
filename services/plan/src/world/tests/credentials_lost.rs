//! Credentials that are lost, refused, revoked or put off: what is in force stays known to who may come in, and to nobody else.

use std::sync::Arc;

use kube::core::ObjectMeta;
use resources::names::condition;
use resources::{CredentialsSpec, QuestDBSpec, RunState, SecretSpec, SnapshotPhase, names};

use super::credentials::{
    NAME, asks_for_keys, in_force, is_behind, jwk, opens_ilp, refusal, watched, wishing, written,
};
use super::model::{Lost, World};
use super::operations::{become_, change};
use super::{Trouble, check_serving, pass, serving, settle};
use crate::fixture::validated;
use crate::{Step, secrets};

/// The Secret in which a key is handed out.
fn handed_out<'a>(world: &'a World, id: &str) -> Option<&'a str> {
    let name = names::drawn_key(NAME, id);
    let found = world.secrets.iter().find(|found| found.metadata.name.as_ref() == Some(&name))?;
    found.metadata.uid.as_deref()
}

fn upgrade(spec: &mut QuestDBSpec) {
    "9.4.0".clone_into(&mut spec.version);
}

/// Looks that in every pass the values are in force, or on the best way to it.
fn check_written_with_its_restart(world: &mut World, what: &str) {
    let mut behind = 0;
    watched(world, |world, _| {
        let differs = is_behind(world, "http-password");
        behind = if differs { behind + 1 } else { 0 };
        assert!(behind < 6, "{what}: written, and nobody restarts QuestDB");
        let phases = world.snapshots.iter().map(|found| found.status.as_ref().and_then(|found| found.phase));
        let begins = |phase: Option<SnapshotPhase>| {
            matches!(phase, None | Some(SnapshotPhase::Pending | SnapshotPhase::Checkpointing))
        };
        assert!(
            !(differs && phases.into_iter().any(begins)),
            "{what}: copied by who does not know the password"
        );
    });
    assert_eq!(in_force(world, "http-password").as_deref(), Some("new"), "{what}");
}

/// What happens to a world, by name.
type Event = (&'static str, fn(&mut World));

#[test]
fn values_are_written_only_with_the_restart_that_they_need() {
    let changes: [Event; 3] = [
        ("upgrade", |world| change(world, upgrade)),
        ("move", |world| change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type))),
        ("drain", |world| {
            let node = Arc::make_mut(&mut world.children.nodes[0]);
            node.spec.get_or_insert_default().unschedulable = Some(true);
        }),
    ];
    for (what, begin) in changes {
        let mut world = serving();
        begin(&mut world);
        world.login("own", "http", ("web", "new"));
        check_written_with_its_restart(&mut world, what);
    }
}

#[test]
fn what_was_written_is_brought_into_force_before_an_upgrade_begins() {
    let mut world = serving();
    world.login("own", "http", ("web", "new"));
    for _ in 0..9 {
        if is_behind(&world, "http-password") {
            break;
        }
        pass(&mut world, &mut 0, None, false);
    }
    assert!(is_behind(&world, "http-password"));
    change(&mut world, upgrade);
    check_written_with_its_restart(&mut world, "upgrade after the write");
}

#[test]
fn what_the_secret_held_comes_back_with_it() {
    let mut world = serving();
    world.key("keys", &[jwk("k1", 0)]);
    world.login("reads", "psql-readonly", ("bob", "reads"));
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    world.take_back(&names::drawn_key(NAME, "first"));
    let keys = in_force(&world, "ilp-keys");
    assert_eq!(keys.as_ref().map(|keys| keys.lines().count()), Some(2));
    world.children.secret = None;
    world.secrets_lost += 1;
    let stops = watched(&mut world, |world, _| {
        assert!(opens_ilp(world) && asks_for_keys(world), "shut while QuestDB has its keys");
    });
    assert_eq!((stops, in_force(&world, "ilp-keys")), (1, keys));
    assert_eq!(in_force(&world, "pg-readonly-password").as_deref(), Some("reads"));
    assert_eq!(world.keys_drawn["first"], 1, "a key that was handed out is drawn again");
}

#[test]
fn labels_and_keys_that_were_taken_off_come_back() {
    let mut world = serving();
    world.key("keys", &[jwk("k1", 0)]);
    settle(&mut world, None, false);
    let before = world.children.secret.as_ref().unwrap().metadata.clone();
    let hands: [fn(&mut ObjectMeta); 4] = [
        |metadata| metadata.labels = None,
        |metadata| drop(metadata.annotations.as_mut().unwrap().remove(names::RESOURCE).unwrap()),
        |metadata| drop(metadata.annotations.as_mut().unwrap().remove(names::SECRET_OF).unwrap()),
        |metadata| drop(metadata.labels.as_mut().unwrap().remove(names::LABEL_MANAGED_BY).unwrap()),
    ];
    for hand in hands {
        hand(&mut Arc::make_mut(world.children.secret.as_mut().unwrap()).metadata);
        assert_eq!(watched(&mut world, |_, _| {}), 0);
        let after = &world.children.secret.as_ref().unwrap().metadata;
        assert_eq!(after.labels, before.labels);
        assert_eq!(after.owner_references, before.owner_references);
        assert_eq!(after.annotations, before.annotations);
    }
    let keys = in_force(&world, "ilp-keys");
    let own = Arc::make_mut(world.children.secret.as_mut().unwrap());
    own.data.as_mut().unwrap().remove("ilp-keys").unwrap();
    settle(&mut world, None, false);
    assert_eq!((in_force(&world, "ilp-keys"), opens_ilp(&world)), (keys, true));
}

#[test]
fn nobody_takes_the_name_of_the_other_user() {
    let mut world = serving();
    world.login("reads", "psql-readonly", ("bob", "reads"));
    settle(&mut world, None, false);
    let user = written(&world, "pg-user");
    world.login("own", "psql", ("bob", "writes"));
    for _ in 0..2 {
        assert_eq!(watched(&mut world, |_, _| {}), 0);
        let text = refusal(&world).unwrap();
        assert!(text.contains("Secret own") && text.contains("only read"), "{text}");
        assert_eq!(
            (written(&world, "pg-user"), written(&world, "pg-password").as_deref()),
            (user.clone(), Some("drawn-1"))
        );
    }
    world.login("own", "psql", ("ada", "writes"));
    settle(&mut world, None, false);
    assert_eq!((refusal(&world), in_force(&world, "pg-user").as_deref()), (None, Some("ada")));
    // Both at once.
    world.login("own", "psql", ("eve", "writes"));
    world.login("reads", "psql-readonly", ("eve", "reads"));
    settle(&mut world, None, false);
    assert!(refusal(&world).unwrap().contains("Secret own, reads"));
    assert_eq!(in_force(&world, "pg-user").as_deref(), Some("ada"));
}

#[test]
fn a_secret_that_cannot_be_read_is_told_and_holds_nothing_up() {
    let mut world = serving();
    world.login("own", "psql", ("ada", "new"));
    world.unreadable = vec!["own".to_owned()];
    change(&mut world, |spec| spec.storage.size_gib = 80);
    settle(&mut world, None, false);
    let text = refusal(&world).unwrap();
    assert!(text.contains("Secret own") && text.contains("403"), "{text}");
    check_serving(&world, None);
    assert_eq!(
        (world.volumes[0].size_gib, in_force(&world, "pg-password").as_deref()),
        (80, Some("drawn-1"))
    );
    world.unreadable.clear();
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"));
}

#[test]
fn what_was_refused_is_not_read_again_before_it_changes() {
    let mut world = serving();
    let names = |world: &World| secrets::to_read(&validated(&world.resource), &world.look());
    world.give("own", Some("psql"), &[("username", "ada")]);
    world.give("keys", Some("ilp"), &[("auth.json", "{")]);
    assert_eq!(names(&world).len(), 3);
    for _ in 0..2 {
        assert_eq!(watched(&mut world, |_, _| {}), 0);
        let text = refusal(&world).unwrap();
        assert!(text.contains("Secret own") && text.contains("Secret keys"), "{text}");
        assert!(names(&world).is_empty());
    }
    world.login("own", "psql", ("ada", "new"));
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"));
    let text = refusal(&world).unwrap();
    assert!(!text.contains("Secret own") && text.contains("Secret keys"), "{text}");
    world.take_back("keys");
    settle(&mut world, None, false);
    assert_eq!(refusal(&world), None);
}

#[test]
fn a_key_that_cannot_be_drawn_holds_up_no_other() {
    let mut world = serving();
    wishing(&mut world, &["former"]);
    settle(&mut world, None, false);
    let name = names::drawn_key(NAME, "first");
    world.give(&name, None, &[("auth.json", &jwk("first", 0))]);
    let theirs = world.secrets.iter_mut().find(|found| found.metadata.name.as_ref() == Some(&name));
    theirs.unwrap().metadata.annotations = None;
    wishing(&mut world, &["first", "second"]);
    settle(&mut world, None, false);
    let text = refusal(&world).unwrap();
    assert!(text.contains(&name) && text.contains("somebody else"), "{text}");
    let keys = in_force(&world, "ilp-keys").unwrap();
    assert!(keys.starts_with("second ") && keys.lines().count() == 1, "{keys}");
    world.take_back(&name);
    world.touch();
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "ilp-keys").unwrap().lines().count(), 2);
    assert_eq!(world.keys_drawn["first"], 1);
}

/// Which keys are in force.
fn ids(world: &World) -> Vec<String> {
    let keys = in_force(world, "ilp-keys").unwrap_or_default();
    keys.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn a_key_that_is_given_and_to_be_drawn_too_holds_up_the_end_of_no_other() {
    let mut world = serving();
    world.key("keys", &[jwk("k1", 0)]);
    wishing(&mut world, &["first", "second"]);
    settle(&mut world, None, false);
    assert_eq!(ids(&world), ["first", "k1", "second"]);
    let drawn = in_force(&world, "ilp-keys");
    let second = |keys: Option<String>| {
        keys.unwrap().lines().find(|line| line.starts_with("second ")).map(str::to_owned)
    };

    // Which of the two is meant nobody knows, and that nobody asks for the first any more is clear.
    world.key("keys", &[jwk("k1", 0), jwk("second", 1)]);
    wishing(&mut world, &["second"]);
    settle(&mut world, None, false);
    let text = refusal(&world).unwrap();
    assert!(text.contains("names second") && text.contains("Secret keys"), "{text}");
    assert_eq!(ids(&world), ["k1", "second"]);
    assert_eq!(second(in_force(&world, "ilp-keys")), second(drawn.clone()), "what was drawn stays in force");

    wishing(&mut world, &[]);
    settle(&mut world, None, false);
    assert_eq!((refusal(&world), ids(&world).len()), (None, 2));
    let given = in_force(&world, "ilp-keys");
    assert_ne!(second(given.clone()), second(drawn), "it is the one that is given");
    wishing(&mut world, &["second"]);
    settle(&mut world, None, false);
    assert!(refusal(&world).unwrap().contains("names second"));
    assert_eq!((in_force(&world, "ilp-keys"), world.keys_drawn["second"]), (given, 1));
}

#[test]
fn a_key_that_is_given_and_to_be_drawn_too_holds_up_none_that_is_given_and_the_end_of_none() {
    let mut world = serving();
    world.key("keys", &[jwk("k1", 0)]);
    wishing(&mut world, &["drawn"]);
    settle(&mut world, None, false);
    assert_eq!(ids(&world), ["drawn", "k1"]);
    let keys = in_force(&world, "ilp-keys").unwrap();
    let drawn = keys.lines().find(|line| line.starts_with("drawn ")).unwrap();

    // Somebody else may have come to know the one that is taken out.
    world.key("keys", &[jwk("k2", 1), jwk("drawn", 3)]);
    settle(&mut world, None, false);
    assert!(refusal(&world).unwrap().contains("names drawn"));
    assert_eq!(ids(&world), ["drawn", "k2"]);
    assert!(in_force(&world, "ilp-keys").unwrap().contains(drawn), "what was drawn stays in force");

    // Of one that was never drawn nobody knows which is meant: neither is in force.
    world.key("keys", &[jwk("k3", 0), jwk("other", 3)]);
    wishing(&mut world, &["drawn", "other"]);
    settle(&mut world, None, false);
    assert!(refusal(&world).unwrap().contains("names other"));
    assert_eq!(ids(&world), ["drawn", "k3"]);
    assert!(!world.keys_drawn.contains_key("other"));

    world.key("keys", &[jwk("k3", 0)]);
    settle(&mut world, None, false);
    assert_eq!((refusal(&world), ids(&world).len()), (None, 3));
}

#[test]
fn a_key_is_known_from_the_moment_on_that_it_is_handed_out() {
    let mut world = serving();
    wishing(&mut world, &["first"]);
    for _ in 0..9 {
        let annotations = world.children.secret.as_ref().unwrap().metadata.annotations.clone();
        if annotations.is_some_and(|found| {
            found.get(names::secret::TAKEN_FROM).is_some_and(|text| text.contains("\"keys\""))
        }) {
            break;
        }
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(handed_out(&world, "first").is_some() && written(&world, "ilp-keys").is_none());
    world.take_back(&names::drawn_key(NAME, "first"));
    settle(&mut world, None, false);
    assert!(in_force(&world, "ilp-keys").unwrap().starts_with("first "));
    assert_eq!(world.keys_drawn["first"], 1);
}

#[test]
fn a_revoked_key_is_gone_for_good() {
    let mut world = serving();
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    let former = handed_out(&world, "first").unwrap().to_owned();
    wishing(&mut world, &[]);
    settle(&mut world, None, false);
    assert_eq!((handed_out(&world, "first"), in_force(&world, "ilp-keys")), (None, None));
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    assert_eq!(world.keys_drawn["first"], 2, "the old key came back");
    assert!(handed_out(&world, "first").is_some_and(|found| found != former));
    become_(&mut world, RunState::Purged);
    settle(&mut world, None, false);
    assert_eq!(handed_out(&world, "first"), None);
}

#[test]
fn a_key_that_only_the_stateful_set_knows_is_revoked_too() {
    let mut world = serving();
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    forget_sources(&mut world);
    wishing(&mut world, &[]);
    settle(&mut world, None, false);
    assert_eq!((handed_out(&world, "first"), in_force(&world, "ilp-keys")), (None, None));
    assert_eq!((written(&world, "ilp-keys"), opens_ilp(&world)), (None, false));
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    assert_eq!(world.keys_drawn["first"], 2, "the old key came back");
}

#[test]
fn a_revoked_key_is_told_from_those_that_may_still_be_given() {
    let mut world = serving();
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    forget_sources(&mut world);
    // Which of the two is meant is not known, so that what was given would stay.
    world.key("keys", &[jwk("k1", 0)]);
    world.key("others", &[jwk("k2", 1)]);
    wishing(&mut world, &[]);
    settle(&mut world, None, false);
    assert!(refusal(&world).unwrap().contains("Secrets keys, others"));
    assert_eq!((handed_out(&world, "first"), in_force(&world, "ilp-keys")), (None, None));
}

/// Somebody takes off the own Secret what it says of itself.
pub(super) fn forget_sources(world: &mut World) {
    let own = Arc::make_mut(world.children.secret.as_mut().unwrap());
    own.metadata.annotations.as_mut().unwrap().remove(names::secret::TAKEN_FROM).unwrap();
}

#[test]
fn what_nobody_gives_and_nothing_explains_goes() {
    let mut world = serving();
    world.login("reads", "psql-readonly", ("bob", "reads"));
    world.key("keys", &[jwk("k1", 0)]);
    settle(&mut world, None, false);
    forget_sources(&mut world);
    world.take_back("reads");
    world.take_back("keys");
    settle(&mut world, None, false);
    let found = ["pg-readonly-user", "pg-readonly-password", "ilp-keys"].map(|key| in_force(&world, key));
    assert_eq!(found, [None, None, None]);
    assert!(secrets::to_read(&validated(&world.resource), &world.look()).is_empty());
    check_serving(&world, None);
}

#[test]
fn a_restart_waits_for_a_key_that_is_still_to_be_drawn() {
    let mut world = serving();
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    pass(&mut world, &mut 0, None, false);
    world.tick();
    wishing(&mut world, &["first"]);
    world.login("own", "psql", ("ada", "new"));
    // That it is to be drawn is noted first.
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(matches!(planned.actions[0].step, Step::SetCredentials(_)), "{:?}", planned.actions);
    world.tick();
    let mut restarts = 0;
    for number in 0..20 {
        // At first it cannot be drawn.
        let trouble = Trouble { at: 0, lost: Lost::Request, crash: false };
        let planned = pass(&mut world, &mut 0, Some(trouble).filter(|_| number < 5), false);
        assert!(number > 4 || matches!(planned.actions[0].step, Step::DrawKey(..)), "{number}");
        let deletes = planned.actions.iter().filter(|action| matches!(action.step, Step::Delete(_)));
        restarts += deletes.count();
        world.tick();
    }
    assert_eq!((restarts, in_force(&world, "ilp-keys").is_some()), (1, true));
    check_serving(&world, None);
}

#[test]
fn the_port_stays_open_to_a_pod_that_does_not_say_that_it_has_keys() {
    let mut world = serving();
    world.key("keys", &[jwk("k1", 0)]);
    settle(&mut world, None, false);
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    let running = pod.metadata.annotations.as_mut().unwrap().get_mut(names::RUNNING).unwrap();
    let mut parsed: serde_json::Value = serde_json::from_str(running).unwrap();
    assert!(parsed.as_object_mut().unwrap().remove("ilp").is_some());
    *running = parsed.to_string();
    let stops = watched(&mut world, |world, _| assert!(opens_ilp(world), "shut by another operator"));
    assert_eq!(stops, 0);
}

#[test]
fn what_the_spec_names_is_withdrawn_as_what_is_annotated() {
    let mut world = serving();
    change(&mut world, |spec| {
        let psql_readonly = Some(SecretSpec { secret_name: "mine".to_owned() });
        spec.credentials = Some(CredentialsSpec { psql_readonly, ..CredentialsSpec::default() });
    });
    world.login("mine", "psql-readonly", ("bob", "reads"));
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "pg-readonly-user").as_deref(), Some("bob"));
    world.take_back("mine");
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "pg-readonly-user"), None);
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let told = conditions.iter().find(|found| found.type_ == condition::CREDENTIALS_ACCEPTED).unwrap();
    assert!(told.status == "False" && told.message.contains("mine"), "{}", told.message);
    assert!(!told.message.contains("last good"), "{}", told.message);
}
