//! Databases that ask for one host: whoever has it keeps it, and of those that ask for it exactly one gets it.

use std::sync::Arc;

use kube::core::DynamicObject;
use resources::names::condition;
use resources::{IngressSpec, QuestDB, RouteSpec, RunState};
use serde_json::json;

use super::model::World;
use super::reach::{OTHERS, condition, kinds, wanting};
use super::{check_serving, pass, settle, wish};
use crate::Kind;
use crate::fixture::resource;

/// The host that the database of these tests has by its own name.
const HOST: &str = "trades-33445566.qdb-acme.apps.example.com";
const OTHER: &str = "quotes.qdb-acme.apps.example.com";
const ALL: [Kind; 3] = [Kind::ServiceMonitor, Kind::IngressRoute, Kind::IngressRouteTcp];
const WITHOUT: [Kind; 2] = [Kind::ServiceMonitor, Kind::IngressRouteTcp];

fn made_on(resource: &mut QuestDB, day: u32) {
    let text = format!("2026-01-{day:02}T00:00:00Z");
    resource.metadata.creation_timestamp = serde_json::from_value(json!(text)).unwrap();
}

/// The database of these tests, made on the second.
fn asking() -> World {
    let mut world = wanting(&OTHERS);
    made_on(&mut world.resource, 2);
    world
}

/// Another one, made on a day, that asks for the same host, but for what is changed.
fn quotes(day: u32, change: impl FnOnce(&mut QuestDB)) -> Arc<QuestDB> {
    let mut other = resource(1);
    (other.metadata.name, other.metadata.uid) = (Some("quotes".to_owned()), Some("uid-2".to_owned()));
    made_on(&mut other, day);
    let http = Some(RouteSpec { entry_points: vec!["websecure".to_owned()] });
    other.spec.network.ingress =
        Some(IngressSpec { host: Some(HOST.to_owned()), http, ..IngressSpec::default() });
    change(&mut other);
    Arc::new(other)
}

/// The other's route to a host.
fn route(host: &str) -> (Kind, Arc<DynamicObject>) {
    let route = json!({
        "apiVersion": "traefik.io/v1alpha1", "kind": "IngressRoute", "metadata": { "name": "quotes" },
        "spec": { "entryPoints": ["websecure"], "routes": [{ "match": format!("Host(`{host}`)") }] },
    });
    (Kind::IngressRoute, Arc::new(serde_json::from_value(route).unwrap()))
}

/// What is said of the host: the reason, and that it names the other and the field.
fn is_told(world: &World, words: &str) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == condition::INTEGRATIONS_READY).unwrap();
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "HostTaken"), "{found:?}");
    for part in ["spec.network.ingress.http", "QuestDB quotes", "websecure", words] {
        assert!(found.message.contains(part), "{part}: {}", found.message);
    }
}

#[test]
fn a_host_that_another_database_has_is_left_to_it_and_told() {
    let mut world = asking();
    // It is younger, and was there first.
    world.neighbours = (vec![quotes(3, |_| {})], vec![route(HOST)]);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(kinds(&world), WITHOUT, "what is not contested is made");
    is_told(&world, "which QuestDB quotes has");
    let before = world.resource.status.clone();
    assert_eq!(pass(&mut world, &mut 0, None, false).actions, []);
    assert_eq!(world.resource.status, before, "the same is said in the same words");

    world.neighbours = (vec![quotes(3, |other| other.spec.network.ingress = None)], Vec::new());
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(kinds(&world), ALL);
    assert_eq!(condition(&world, condition::INTEGRATIONS_READY).unwrap().0, "True");
}

#[test]
fn of_two_that_have_nothing_yet_the_older_goes_first() {
    // On one day the name decides.
    for (day, made) in [(1, WITHOUT.as_slice()), (2, WITHOUT.as_slice()), (3, ALL.as_slice())] {
        let mut world = asking();
        world.neighbours.0 = vec![quotes(day, |_| {})];
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(kinds(&world), made, "made on day {day}");
        if made.len() < ALL.len() {
            is_told(&world, "which is older");
        }
    }
    let mut world = asking();
    world.neighbours.0 = vec![quotes(1, |other| other.spec.run_state = RunState::Paused)];
    settle(&mut world, None, false);
    assert_eq!(kinds(&world), WITHOUT, "who is paused comes back");
}

#[test]
fn who_has_its_route_keeps_it_whoever_asks_for_the_host() {
    let mut world = asking();
    settle(&mut world, None, false);
    let before = world.children.others.clone();
    world.neighbours.0 = vec![quotes(1, |_| {})];
    assert_eq!(pass(&mut world, &mut 0, None, false).actions, []);
    assert_eq!(condition(&world, condition::INTEGRATIONS_READY).unwrap().0, "True", "the other has to yield");
    // An operator of before made both.
    world.neighbours.1 = vec![route(HOST)];
    assert_eq!(pass(&mut world, &mut 0, None, false).actions, []);
    is_told(&world, "goes to either of both");
    assert_eq!(world.children.others, before);
}

#[test]
fn a_route_stays_as_it_is_while_the_host_that_it_is_to_have_is_anothers() {
    let mut world = asking();
    settle(&mut world, None, false);
    let of_http = |world: &World| {
        let mut others = world.children.others.iter();
        others.find(|(kind, _)| *kind == Kind::IngressRoute).unwrap().1.data.to_string()
    };
    let before = of_http(&world);
    let named = |other: &mut QuestDB| other.spec.network.ingress.as_mut().unwrap().host = None;
    world.neighbours = (vec![quotes(3, named)], vec![route(OTHER)]);
    let ask = |spec: &mut resources::QuestDBSpec| {
        spec.network.ingress.as_mut().unwrap().host = Some(OTHER.to_owned());
    };
    wish(&mut world, 2, ask);
    settle(&mut world, None, false);
    check_serving(&world, None);
    is_told(&world, OTHER);
    assert_eq!(of_http(&world), before, "what comes in by its former host still does");
    world.neighbours = (Vec::new(), Vec::new());
    settle(&mut world, None, false);
    assert!(of_http(&world).contains(OTHER));
}

#[test]
fn who_asks_for_something_else_is_in_nobodys_way() {
    type Change = fn(&mut QuestDB);
    let changes: [Change; 5] = [
        |other| other.spec.network.ingress.as_mut().unwrap().host = Some(OTHER.to_owned()),
        |other| {
            let route = other.spec.network.ingress.as_mut().unwrap().http.as_mut().unwrap();
            route.entry_points = vec!["internal".to_owned()];
        },
        |other| other.spec.run_state = RunState::Deleted,
        |other| other.metadata.namespace = Some("qdb-other".to_owned()),
        |other| other.metadata.uid = Some("uid-1".to_owned()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut world = asking();
        world.neighbours.0 = vec![quotes(1, change)];
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(kinds(&world), ALL, "change {number}");
        assert_eq!(condition(&world, condition::INTEGRATIONS_READY).unwrap().0, "True", "change {number}");
    }
}
