//! A database whose pod takes no ports of its machine: no name leads there, and clients come in by its Services.

use cloud::RecordKind;
use resources::QuestDBSpec;
use resources::names::condition;

use super::model::World;
use super::operations::{Operation, change, operation, other_name};
use super::oracle::check_end;
use super::reach::condition as told;
use super::runner::{ENOUGH, pass, settle};
use super::{check_serving, serving};
use crate::change::takes_host_ports;
use crate::fixture::resource;
use crate::{Part, State};

/// What is asked of it.
pub(super) const PORTLESS: &[Operation] = &[
    operation("create without host ports", fresh, |_| {}),
    operation("no host ports", serving, |world| change(world, no_host_ports)),
    operation("no host ports, and another name", serving, |world| change(world, no_ports_and_another_name)),
    operation("host ports again", serving_without, |world| change(world, host_ports)),
    operation("another machine without host ports", serving_without, |world| {
        change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    }),
];

pub(super) fn no_host_ports(spec: &mut QuestDBSpec) {
    spec.network.host_ports = Some(false);
}

fn no_ports_and_another_name(spec: &mut QuestDBSpec) {
    no_host_ports(spec);
    other_name(spec);
}

fn host_ports(spec: &mut QuestDBSpec) {
    spec.network.host_ports = None;
}

fn fresh() -> World {
    let mut resource = resource(1);
    no_host_ports(&mut resource.spec);
    World::new(resource)
}

fn serving_without() -> World {
    let mut world = fresh();
    settle(&mut world, None, false);
    world
}

fn answers_at(world: &World) -> String {
    world.resource.status.as_ref().unwrap().endpoints.as_ref().unwrap().pg.clone()
}

/// Status would tell of it until the next look, long after the name in force was given back.
#[test]
fn no_other_name_is_to_come_where_there_is_to_be_none() {
    let mut world = serving();
    change(&mut world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    settle(&mut world, None, false);
    change(&mut world, no_ports_and_another_name);
    settle(&mut world, None, false);
    check_end(&world, "another name, and none");
    let status = world.resource.status.unwrap();
    assert_eq!((status.dns, status.pending), (None, Vec::new()));
}

#[test]
fn status_names_the_services_and_no_name_leads_to_the_machine() {
    let mut world = serving_without();
    check_serving(&world, None);
    assert_eq!(answers_at(&world), "postgres://trades-33445566.qdb-acme.svc:8812/qdb");
    let status = world.resource.status.as_ref().unwrap();
    let metrics = &status.endpoints.as_ref().unwrap().min;
    assert_eq!(*metrics, "http://trades-33445566-pods.qdb-acme.svc:9003");
    assert_eq!(status.dns, None);
    assert_eq!(told(&world, condition::READY).unwrap().0, "True");
    assert_eq!(told(&world, condition::DNS_READY).unwrap().0, "False");
    change(&mut world, host_ports);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(answers_at(&world), "postgres://trades-33445566.eu.example.com:8812/qdb");
    assert_eq!(told(&world, condition::DNS_READY).unwrap().0, "True");
}

#[test]
fn the_name_leads_to_the_machine_for_as_long_as_the_pod_takes_its_ports() {
    let mut world = serving();
    change(&mut world, no_host_ports);
    let (mut taken, mut led) = (0, 0);
    for _ in 0..ENOUGH {
        let has_ports = world.children.pod.as_deref().is_some_and(takes_host_ports);
        let planned = pass(&mut world, &mut taken, None, false);
        let leads = world.records.iter().any(|record| record.kind == RecordKind::A);
        assert!(leads || !has_ports, "{:?}", planned.actions);
        led += usize::from(has_ports);
        if planned.is_settled() {
            break;
        }
        world.tick();
    }
    assert!(led > 1, "{led}");
    check_serving(&world, None);
}

#[test]
fn the_zone_is_asked_once_for_each_wish_and_not_by_every_pass() {
    let mut world = serving_without();
    change(&mut world, |spec| spec.storage.size_gib = 80);
    assert!(world.look().dns.records.is_some(), "a name may have been given without a report");
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(!planned.is_settled() && world.look().dns.records.is_none(), "{:?}", planned.progress);
}

#[test]
fn a_name_is_given_back_although_the_disk_is_missing_and_the_zone_is_not_asked_by_every_pass() {
    let mut world = serving();
    change(&mut world, no_host_ports);
    world.volumes.clear();
    world.children.pod = None;
    for _ in 0..5 {
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(matches!(planned.state(Part::Volume), Some(State::Broken(_))), "{:?}", planned.progress);
    }
    assert_eq!(world.records, []);
    assert_eq!(world.resource.status.as_ref().unwrap().dns, None);
    assert!(world.look().dns.records.is_none());
}
