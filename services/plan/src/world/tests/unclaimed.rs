//! A machine, or a firewall, without a resource: told, with whose it was.

use cloud::{Instance, InstanceState, key};

use super::serving;
use crate::fixture::{settings, subject};
use crate::{unclaimed, unclaimed_firewalls};

fn found(machine: &Instance, seen: &str, known: &[&str]) -> Vec<String> {
    let is_known = |database: &str| known.contains(&database);
    let found = unclaimed(&settings(), std::iter::once(machine), |namespace| namespace == seen, is_known);
    found.into_iter().map(|found| format!("{} {}", found.database, found.resource)).collect()
}

#[test]
fn a_machine_that_no_resource_stands_for_is_told_with_whose_it_was() {
    let machine = serving().instances.remove(0);
    let subject = subject();
    let told = format!("{} {}/{}", subject.database, subject.namespace, subject.name);
    let of = |change: fn(&mut Instance)| {
        let mut machine = machine.clone();
        change(&mut machine);
        found(&machine, "qdb-acme", &[])
    };
    assert_eq!(of(|_| {}), [told]);
    assert_eq!(of(|machine| machine.state = InstanceState::Stopped).len(), 1, "it costs and holds the disk");
    let nothing: [&str; 0] = [];
    assert_eq!(of(|machine| machine.state = InstanceState::Terminated), nothing);
    assert_eq!(of(|machine| machine.tags = machine.tags.clone().with(key::CLUSTER, "us-east-1")), nothing);
    assert_eq!(of(|machine| machine.tags = cloud::Tags::new()), nothing);
    assert_eq!(found(&machine, "another", &[]), nothing, "somebody else looks there");
    assert_eq!(found(&machine, "qdb-acme", &[&subject.database]), nothing);
}

#[test]
fn a_firewall_that_no_resource_stands_for_is_told_too() {
    let (world, subject) = (serving(), subject());
    let found = |known: bool| {
        let is_seen = |namespace: &str| namespace == subject.namespace;
        let found = unclaimed_firewalls(&settings(), world.groups.iter(), is_seen, |_| known);
        found.into_iter().map(|found| (found.id, found.database)).collect::<Vec<_>>()
    };
    assert_eq!(found(false), [(world.groups[0].id.to_string(), subject.database.clone())]);
    assert_eq!(found(true), Vec::new());
}
