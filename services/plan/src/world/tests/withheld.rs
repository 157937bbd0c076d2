//! A hosted zone that is gone, or that may not be read: what does not need it goes on, and what is waited for is told.

use cloud::InstanceState;
use resources::names::condition;
use resources::{DnsState, Phase, RunState, StepState};
use serde_json::json;

use super::model::World;
use super::oracle::{check_end, check_moment};
use super::reach::condition as told;
use super::runner::ENOUGH;
use super::{check_serving, pass, phase, resource, serving, settle, wish};
use crate::{Dns, Part, Plan, Withheld};

const WHY: &str = "there is no hosted zone Z1: put it right";

impl World {
    /// What Route 53 says, if it says anything.
    pub(super) fn as_far_as_told(&self, dns: Dns) -> Dns {
        if self.withheld.is_some() && dns.records.is_some() {
            return Dns { withheld: self.withheld.clone(), ..Dns::default() };
        }
        dns
    }
}

fn withheld(is_gone: bool) -> Withheld {
    Withheld { why: WHY.to_owned(), is_gone }
}

fn passes(world: &mut World) {
    for _ in 0..ENOUGH {
        pass(world, &mut 0, None, false);
        world.tick();
        check_moment(world, "on the way");
    }
}

fn stops(plan: &Plan) -> bool {
    plan.actions.iter().any(|action| action.part == Part::PodStop)
}

fn check_told(world: &World, part: Part) {
    let status = world.resource.status.as_ref().unwrap();
    let step = status.steps.iter().find(|step| step.name == part.as_str()).unwrap();
    assert_eq!(step.state, StepState::Failed);
    assert!(step.message.as_deref().unwrap().contains(WHY) && step.started_at.is_some(), "{step:?}");
    for (kind, word) in [(condition::DEGRADED, "True"), (condition::DNS_READY, "False")] {
        let (found, text) = told(world, kind).unwrap();
        assert!(found == word && text.contains(WHY), "{kind}: {found} {text}");
    }
}

/// Only what the name needs is left: nothing runs, and nothing is let go.
fn check_ended(world: &World) {
    assert!(world.instances.iter().all(|found| found.state == InstanceState::Terminated));
    assert!(world.children.pod.is_none() && world.children.nodes.is_empty());
    assert_eq!((world.records.len(), world.released), (2, false), "what nobody sees is left as it is");
    check_told(world, Part::DnsRelease);
}

#[test]
fn the_machine_ends_without_the_zone_and_the_rest_with_it() {
    for (state, before, after) in [
        (RunState::Paused, Phase::Pausing, Phase::Paused),
        (RunState::Deleted, Phase::Deleting, Phase::Deleted),
        (RunState::Purged, Phase::Deleting, Phase::Deleted),
    ] {
        let mut world = serving();
        wish(&mut world, 2, |spec| spec.run_state = state);
        world.withheld = Some(withheld(true));
        let first = pass(&mut world, &mut 0, None, false);
        let dns = world.resource.status.as_ref().unwrap().dns.as_ref().unwrap();
        assert_eq!((stops(&first), dns.state), (false, DnsState::Releasing), "first it is told");
        assert!(stops(&pass(&mut world, &mut 0, None, false)));
        passes(&mut world);
        assert_eq!(phase(&world), Some(before));
        check_ended(&world);
        world.withheld = None;
        settle(&mut world, None, false);
        assert_eq!(phase(&world), Some(after));
        check_end(&world, "the zone is there again");
    }
}

#[test]
fn a_machine_keeps_its_address_while_a_name_leads_there_that_nobody_may_take_back() {
    for state in [RunState::Paused, RunState::Deleted, RunState::Purged] {
        let mut world = serving();
        wish(&mut world, 2, |spec| spec.run_state = state);
        world.withheld = Some(withheld(false));
        passes(&mut world);
        assert!(world.instances.iter().all(|found| found.state == InstanceState::Running));
        check_told(&world, Part::DnsRelease);
        world.withheld = None;
        settle(&mut world, None, false);
        check_end(&world, "the right is there again");
    }
}

#[test]
fn a_resource_that_people_delete_stays_until_its_name_is_given_back() {
    let mut world = serving();
    world.resource.spec.instruction = None;
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    world.withheld = Some(withheld(true));
    passes(&mut world);
    check_ended(&world);
    world.withheld = None;
    settle(&mut world, None, false);
    assert!(world.released && world.records.is_empty());
}

#[test]
fn a_new_database_says_what_its_name_waits_for() {
    let mut world = World::new(resource(1));
    world.withheld = Some(withheld(true));
    passes(&mut world);
    assert_eq!(phase(&world), Some(Phase::Degraded));
    check_told(&world, Part::Dns);
    world.withheld = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}
