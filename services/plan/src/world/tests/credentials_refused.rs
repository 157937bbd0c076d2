//! Credentials that are asked for and cannot be had: what came from another Secret stays in force, nobody is restarted, and that the wish
//! is not carried out is told for as long.

use resources::ChangeMeans::Refused;
use resources::names::condition;
use resources::{ChangeMeans, CredentialsSpec, IlpSpec, SecretSpec};

use super::credentials::{in_force, jwk, opens_ilp, refusal, watched};
use super::model::World;
use super::operations::change;
use super::{check_serving, pass, serving, settle};
use crate::fixture::validated;
use crate::{Step, secrets};

/// A spec that names a Secret, and a value that comes from it.
type Named = (fn(&str) -> CredentialsSpec, &'static str);

/// What goes with its Secret.
const OPTIONAL: [Named; 2] = [(keys, "ilp-keys"), (reader, "pg-readonly-password")];

fn keys(name: &str) -> CredentialsSpec {
    let ilp = Some(IlpSpec { secret_name: Some(name.to_owned()), drawn: Vec::new() });
    CredentialsSpec { ilp, ..CredentialsSpec::default() }
}

fn reader(name: &str) -> CredentialsSpec {
    let psql_readonly = Some(SecretSpec { secret_name: name.to_owned() });
    CredentialsSpec { psql_readonly, ..CredentialsSpec::default() }
}

fn ask(world: &mut World, credentials: Option<CredentialsSpec>) {
    change(world, |spec| spec.credentials = credentials);
}

/// Somebody makes a Secret that says nothing of itself.
fn make(world: &mut World, name: &str, data: &[(&str, &str)]) {
    world.give(name, None, data);
    let made = world.secrets.iter_mut().find(|found| found.metadata.name.as_deref() == Some(name));
    made.unwrap().metadata.annotations = None;
}

/// The same with a key, and with a user who may only read.
fn make_good(world: &mut World, name: &str, point: usize) {
    let (key, password) = (jwk("k1", point), format!("of-{name}"));
    make(world, name, &[("auth.json", &key), ("username", "bob"), ("password", &password)]);
}

/// A database with what Secret a gives in force.
fn with_a(named: fn(&str) -> CredentialsSpec) -> World {
    let mut world = serving();
    make_good(&mut world, "a", 0);
    ask(&mut world, Some(named("a")));
    settle(&mut world, None, false);
    assert_eq!(refusal(&world), None);
    world
}

/// Whatever is looked at, nobody is restarted, and in force stays what is.
fn check_kept(world: &mut World, key: &str) {
    let state = |world: &World| (in_force(world, key), opens_ilp(world));
    let before = state(world);
    assert!(before.0.is_some(), "{key}");
    let stops = watched(world, |world, _| assert_eq!(state(world), before, "{key}"));
    assert_eq!(stops, 0, "{key}: restarted without what it needs");
    let text = refusal(world).unwrap();
    assert!(text.contains("names Secret b, which is not there. ") && text.contains("last good"), "{text}");
    let read = secrets::to_read(&validated(&world.resource), &world.look());
    assert!(read.is_empty(), "{key}: {read:?} would be read again and again");
}

#[test]
fn a_secret_that_was_never_there_takes_nothing_away() {
    for (named, key) in OPTIONAL {
        let mut world = with_a(named);
        let (former, opens) = (in_force(&world, key), opens_ilp(&world));
        assert_eq!(opens, key == "ilp-keys");
        ask(&mut world, Some(named("b")));
        check_kept(&mut world, key);
        // The spec does not name it any more, so that nothing follows from its end.
        world.take_back("a");
        check_kept(&mut world, key);

        make_good(&mut world, "b", 1);
        let stops = watched(&mut world, |world, _| assert!(!opens || opens_ilp(world), "shut meanwhile"));
        assert_eq!((stops, refusal(&world)), (1, None), "{key}");
        let now = in_force(&world, key);
        assert!(now.is_some() && now != former, "{key}");
    }
}

#[test]
fn what_came_from_another_secret_than_the_one_that_is_not_there_goes_with_the_field() {
    for (named, key) in OPTIONAL {
        let mut world = with_a(named);
        ask(&mut world, Some(named("b")));
        settle(&mut world, None, false);
        ask(&mut world, None);
        let stops = watched(&mut world, |_, _| {});
        assert_eq!((stops, in_force(&world, key), refusal(&world)), (1, None, None), "{key}");
    }
}

#[test]
fn a_secret_of_which_nothing_was_good_takes_nothing_away_when_it_goes() {
    for (named, key) in OPTIONAL {
        let mut world = with_a(named);
        make(&mut world, "b", &[("auth.json", "{"), ("username", "bob")]);
        ask(&mut world, Some(named("b")));
        settle(&mut world, None, false);
        assert!(refusal(&world).unwrap().contains("Secret b"), "{key}");
        world.take_back("b");
        // That it was no good is not noted any more.
        settle(&mut world, None, false);
        check_kept(&mut world, key);
    }
}

#[test]
fn keys_of_a_secret_that_is_taken_in_part_go_with_it() {
    let mut world = with_a(keys);
    world.key("b", &[jwk("k2", 1), jwk("k3", 2)]);
    let mut wish = keys("b");
    wish.ilp.as_mut().unwrap().drawn = vec!["k2".to_owned()];
    ask(&mut world, Some(wish));
    settle(&mut world, None, false);
    assert!(refusal(&world).unwrap().contains("names k2"));
    assert!(in_force(&world, "ilp-keys").unwrap().starts_with("k3 "));
    world.take_back("b");
    settle(&mut world, None, false);
    let left = in_force(&world, "ilp-keys").unwrap();
    assert!(left.starts_with("k2 ") && left.lines().count() == 1, "{left}");
}

fn user(name: &str) -> CredentialsSpec {
    let psql = Some(SecretSpec { secret_name: name.to_owned() });
    CredentialsSpec { psql, ..CredentialsSpec::default() }
}

/// Whether anything needs somebody, and the reason; and what is asked for and not carried out.
fn told(world: &World) -> ((&str, &str), Vec<(&str, ChangeMeans)>) {
    let status = world.resource.status.as_ref().unwrap();
    let degraded = status.conditions.iter().find(|found| found.type_ == condition::DEGRADED).unwrap();
    let pending = status.pending.iter().map(|found| (found.field.as_str(), found.means));
    ((degraded.status.as_str(), degraded.reason.as_str()), pending.collect())
}

/// What is given and cannot be taken over, and how somebody puts that right.
type Given = (&'static str, fn(&mut World), fn(&mut World));

const GIVEN: [Given; 6] = [
    ("not there", |world| ask(world, Some(user("mine"))), give_mine),
    (
        "without a password",
        |world| {
            make(world, "mine", &[("username", "ada")]);
            ask(world, Some(user("mine")));
        },
        give_mine,
    ),
    (
        "with a colon",
        |world| {
            make(world, "mine", &[("username", "a:da"), ("password", "new")]);
            ask(world, Some(user("mine")));
        },
        give_mine,
    ),
    (
        "two of them by annotation",
        |world| {
            world.login("mine", "psql", ("ada", "new"));
            world.login("theirs", "psql", ("eve", "other"));
        },
        |world| world.take_back("theirs"),
    ),
    ("of no type", |world| world.give("mine", Some("pqsl"), &[]), give_mine),
    (
        "keys that are not there",
        |world| ask(world, Some(keys("keys"))),
        |world| {
            ask(world, None);
            give_mine(world);
        },
    ),
];

fn give_mine(world: &mut World) {
    world.login("mine", "psql", ("ada", "new"));
}

#[test]
fn credentials_that_are_refused_are_told_by_what_people_wait_for_until_they_are_good() {
    for (what, give, put_right) in GIVEN {
        let mut world = serving();
        give(&mut world);
        assert_eq!(watched(&mut world, |_, _| {}), 0, "{what}");
        check_serving(&world, None);
        assert_eq!(in_force(&world, "pg-password").as_deref(), Some("drawn-1"), "{what}");
        let refused = (("True", "CredentialsRefused"), vec![("/spec/credentials", Refused)]);
        assert_eq!(told(&world), refused, "{what}");
        let before = world.resource.status.clone();
        assert_eq!(before.as_ref().map(|status| status.pending[0].why.clone()), refusal(&world), "{what}");
        assert_eq!(pass(&mut world, &mut 0, None, false).actions, [], "{what}");
        assert_eq!(world.resource.status, before, "{what}: the same is told each time");

        put_right(&mut world);
        settle(&mut world, None, false);
        assert_eq!(told(&world), (("False", "AsExpected"), Vec::new()), "{what}");
        assert_eq!(refusal(&world), None, "{what}");
        assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"), "{what}");
    }
}

#[test]
fn what_is_refused_is_told_beside_the_restart_for_what_is_taken_over() {
    let mut world = serving();
    ask(&mut world, Some(keys("keys")));
    settle(&mut world, None, false);
    give_mine(&mut world);
    let mut both = false;
    let stops = watched(&mut world, |world, planned| {
        let pending = told(world).1;
        let restarts = [("/spec/credentials", ChangeMeans::Restart), ("/spec/credentials", Refused)];
        both |= pending == restarts;
        let deletes = planned.actions.iter().any(|action| matches!(action.step, Step::Delete(_)));
        assert!(both || !deletes, "restarted before it was told");
    });
    assert!(both && stops == 1, "{stops}");
    assert_eq!(told(&world), (("True", "CredentialsRefused"), vec![("/spec/credentials", Refused)]));
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"));
}
