//! What a move holds on to when something goes wrong in the midst of it: what serves is not stopped for a machine that cannot
//! take it, no machine is ended while anything may still need it, and none is left over.

use std::net::IpAddr;
use std::sync::Arc;

use cloud::{DnsRecord, InstanceState, Tags, key};
use k8s_openapi::api::core::v1::Taint;
use resources::names::{self, condition};
use resources::{DnsState, Phase};
use serde_json::json;

use super::credentials::in_force;
use super::model::World;
use super::operations::{
    begin_move, change, end_machine, half_drained, half_moved, just_moved, on_the_way, other_name,
};
use super::oracle::{check_end, check_moment};
use super::runner::{pass, settle};
use super::serving;
use super::silent::{say, say_of};
use crate::fixture::{settings, validated};
use crate::{Kind, Part, Plan, State, Step};

fn passes(world: &mut World, count: usize) -> Vec<Plan> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(pass(world, &mut 0, None, false));
        world.tick();
        check_moment(world, "on the way");
    }
    all
}

fn said(world: &World, kind: &str) -> (String, String) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind).unwrap();
    (found.status.clone(), found.message.clone())
}

fn taint(world: &mut World, number: usize, key: Option<&str>) {
    let taint =
        key.map(|key| Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() });
    let node = Arc::make_mut(&mut world.children.nodes[number]);
    node.spec.get_or_insert_default().taints = Some(taint.into_iter().collect());
}

fn lives(world: &World, generation: &str) -> bool {
    let mut living = world.instances.iter().filter(|found| !found.state.is_ending());
    living.any(|found| found.tags.get(key::GENERATION) == Some(generation))
}

/// What happens to a world.
type Change = fn(&mut World);

#[test]
fn a_pod_is_not_stopped_for_a_node_that_cannot_take_it() {
    let hindrances: [(Change, Change); 3] = [
        (|world| say_of(world, 1, "False"), |world| say_of(world, 1, "True")),
        (|world| say_of(world, 1, "Unknown"), |world| say_of(world, 1, "True")),
        (|world| taint(world, 1, Some("node.kubernetes.io/disk-pressure")), |world| taint(world, 1, None)),
    ];
    for (begin, end) in hindrances {
        let mut world = just_moved();
        let before = world.pod_uid();
        begin(&mut world);
        passes(&mut world, 8);
        assert_eq!((world.pod_uid(), before.is_some()), (before, true), "what serves, serves on");
        assert!(lives(&world, "1") && lives(&world, "2"));
        end(&mut world);
        settle(&mut world, None, false);
        check_end(&world, "it could in the end");
    }
}

#[test]
fn nothing_is_pinned_to_a_node_that_another_taint_closes() {
    let mut world = half_moved();
    taint(&mut world, 1, Some("node.cloudprovider.kubernetes.io/uninitialized"));
    passes(&mut world, 10);
    assert!(world.pinned().unwrap().ends_with("-g1"));
    assert!(
        said(&world, condition::MOVING).1.contains("uninitialized"),
        "{:?}",
        said(&world, condition::MOVING)
    );
    taint(&mut world, 1, None);
    settle(&mut world, None, false);
    check_end(&world, "the taint is gone");
}

#[test]
fn a_picture_without_the_disk_ends_no_machine() {
    let losses: [(&str, Change); 4] = [
        ("nothing", |_| {}),
        ("the Node", |world| drop(world.children.nodes.remove(0))),
        ("the tags of the disk", |world| world.volumes[0].tags = Tags::new()),
        ("the disk", |_| {}),
    ];
    for (what, lose) in losses {
        let mut world = just_moved();
        lose(&mut world);
        let next = world.instances[1].private_ip.unwrap().to_string();
        world.resource.status.as_mut().unwrap().dns.as_mut().unwrap().address = Some(next);
        let mut observed = world.look();
        observed.children.pod = None;
        observed.children.attachments.clear();
        observed.account.volumes[0].attachments.clear();
        let seen = world.resource.clone();
        let plan = crate::plan(&seen, &validated(&seen), &observed, &settings());
        let proof = plan.actions.iter().find(|action| matches!(action.step, Step::ProveLeft(_)));
        let Some(proof) = proof else { panic!("{what}: {:#?}", plan.actions) };
        // Only the disk is left to speak against it.
        world.children.pod = None;
        if what == "the disk" {
            world.volumes.clear();
        }
        assert!(world.apply(&proof.step, &seen).is_err(), "{what}: {:?}", proof.step);
    }
}

#[test]
fn a_pod_counts_although_its_node_is_gone() {
    let mut world = just_moved();
    world.children.nodes.remove(0);
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(!planned.actions.iter().any(|action| matches!(action.step, Step::ProveLeft(_))));
}

#[test]
fn a_machine_that_lost_its_tags_is_found_by_its_node() {
    for number in [0, 1] {
        let mut world = just_moved();
        world.instances[number].tags = Tags::new();
        settle(&mut world, None, false);
        check_end(&world, "without tags");
    }
}

#[test]
fn what_ec2_has_forgotten_leaves_nothing_behind() {
    let mut world = just_moved();
    world = on_the_way(world, |_| {}, |world| world.instances[0].state == InstanceState::Terminated);
    assert_eq!(world.children.nodes.len(), 2, "its Node is still there");
    world.instances.remove(0);
    say(&mut world, "Unknown");
    settle(&mut world, None, false);
    check_end(&world, "moved");

    // The home itself, with its pod.
    let mut world = serving();
    world.volumes[0].attachments.clear();
    world.children.attachments.clear();
    world.instances.clear();
    say(&mut world, "Unknown");
    settle(&mut world, None, false);
    check_end(&world, "healed");
    assert!(lives(&world, "2"));
}

#[test]
fn a_node_with_a_forged_label_names_no_machine() {
    let mut world = serving();
    let mut forged = (*world.children.nodes[0]).clone();
    forged.metadata.name = Some("forged".to_owned());
    forged.metadata.labels.as_mut().unwrap().remove(names::LABEL_NODE);
    forged.spec.as_mut().unwrap().provider_id = Some("aws:///eu-west-1a/i-of-others".to_owned());
    world.children.nodes.push(Arc::new(forged));
    let lost = crate::lost(&world.resource, &validated(&world.resource), &world.look());
    assert_eq!(lost, crate::Lost::default());
}

#[test]
fn a_database_goes_back_to_the_machine_that_has_its_disk_when_the_next_one_dies() {
    let mut world = just_moved();
    let before = world.pod_uid();
    world.full.machines = vec![world.volumes[0].zone.clone()];
    world.clock = jiff::SignedDuration::from_mins(1);
    end_machine(&mut world, 1);
    passes(&mut world, 12);
    assert_eq!((world.pod_uid(), world.pinned().unwrap().ends_with("-g1")), (before, true));
    assert_eq!(said(&world, "Ready").0, "True");
    assert!(said(&world, condition::MOVING).1.contains("no machine is free"));
    world.full.machines.clear();
    world.memory.resting.clear();
    settle(&mut world, None, false);
    check_end(&world, "there is one again");
}

#[test]
fn machines_that_end_by_themselves_are_not_replaced_at_once() {
    let mut world = half_moved();
    world.clock = jiff::SignedDuration::from_secs(20);
    let before = world.pod_uid();
    for _ in 0..20 {
        passes(&mut world, 1);
        let next = world.instances.iter_mut().skip(1).filter(|found| !found.state.is_ending());
        next.for_each(|found| {
            found.state = InstanceState::Terminated;
            found.state_reason = Some("Server.InternalError".to_owned());
        });
    }
    assert!((2..=3).contains(&world.instances.len()), "{:#?}", world.instances);
    assert_eq!((said(&world, "Ready").0, world.pod_uid()), ("True".to_owned(), before));
    assert!(said(&world, condition::MOVING).1.contains("Server.InternalError"));
}

#[test]
fn a_machine_that_is_not_what_it_was_launched_as_is_told_and_not_launched_again() {
    let mut world = half_moved();
    "m7i.metal".clone_into(&mut world.instances[1].instance_type);
    passes(&mut world, 20);
    assert_eq!(world.instances.len(), 2, "{:#?}", world.instances);
    assert_eq!((said(&world, "Ready").0, said(&world, "Degraded").0), ("True".to_owned(), "True".to_owned()));
    assert!(said(&world, "Degraded").1.contains("terminate it"));
    end_machine(&mut world, 1);
    world.clock = jiff::SignedDuration::from_mins(1);
    settle(&mut world, None, false);
    check_end(&world, "replaced");
}

#[test]
fn a_machine_is_kept_while_the_name_leads_to_it() {
    let mut world = just_moved();
    world.broken = vec![validated(&world.resource).image];
    passes(&mut world, 15);
    let on = world.volumes[0].live_attachments().map(|found| found.instance.clone()).collect::<Vec<_>>();
    assert_eq!(on, [world.instances[1].id.clone()], "QuestDB and its disk have left");
    assert!(lives(&world, "1"), "its address would be somebody else's");
    let dns = world.resource.status.as_ref().unwrap().dns.clone().unwrap();
    assert_eq!(dns.address, world.instances[0].private_ip.map(|address| address.to_string()));
    assert!(said(&world, condition::MOVING).1.contains("the name"));
    world.broken.clear();
    settle(&mut world, None, false);
    check_end(&world, "it serves");
    assert!(!lives(&world, "1"));
    let status = world.resource.status.unwrap();
    assert_eq!((status.phase, status.dns.unwrap().state), (Some(Phase::Ready), DnsState::InSync));
}

#[test]
fn a_database_that_does_not_serve_where_it_went_moves_on() {
    for next in ["m7i.large", "r7i.2xlarge"] {
        let mut world = just_moved();
        world.broken = vec![validated(&world.resource).image];
        passes(&mut world, 15);
        assert!(lives(&world, "1") && lives(&world, "2") && said(&world, "Ready").0 == "False");
        change(&mut world, |spec| next.clone_into(&mut spec.compute.instance_type));
        passes(&mut world, 15);
        assert!(lives(&world, "1"), "its address would be somebody else's");
        assert!(world.pinned().unwrap().ends_with("-g3"), "{next}: {:?}", said(&world, condition::MOVING));
        world.broken.clear();
        settle(&mut world, None, false);
        check_end(&world, "it serves");
        assert!(lives(&world, "3"));
    }
}

#[test]
fn a_database_that_does_not_serve_moves_before_its_disk_is_copied() {
    let mut world = half_drained();
    change(&mut world, |spec| "9.4.0".clone_into(&mut spec.version));
    world.children.pod = None;
    world.volumes[0].attachments.clear();
    world.children.attachments.clear();
    settle(&mut world, None, false);
    check_end(&world, "moved and upgraded");
    let version = world.resource.status.as_ref().unwrap().version.clone();
    assert_eq!((version.as_deref(), world.snapshots.len()), (Some("9.4.0"), 1));
    assert!(lives(&world, "2"));
}

#[test]
fn whichever_name_is_in_force_leads_to_the_next_machine() {
    let other = "other.eu.example.com";
    for taken in [false, true] {
        let mut world = serving();
        let name = world.resource.status.as_ref().unwrap().dns.as_ref().unwrap().name.clone();
        if taken {
            world.records.push(DnsRecord::cname(other, 300, "elsewhere.example.org"));
        }
        change(&mut world, other_name);
        begin_move(&mut world);
        settle(&mut world, None, false);
        assert!(lives(&world, "2") && !lives(&world, "1"));
        let Some(IpAddr::V4(address)) = world.instances[1].private_ip else { panic!("it has no address") };
        let name = if taken { name } else { other.to_owned() };
        assert!(world.records.contains(&DnsRecord::a(&name, 30, address)), "{:#?}", world.records);
        let dns = world.resource.status.as_ref().unwrap().dns.clone().unwrap();
        assert_eq!((dns.name, dns.state, dns.address), (name, DnsState::InSync, Some(address.to_string())));
        let accepted = if taken { "False" } else { "True" };
        let said = |kind| said(&world, kind).0;
        assert_eq!((said("Ready"), said("ConfigAccepted")), ("True".into(), accepted.into()));
    }
}

#[test]
fn a_machine_that_does_not_become_ready_holds_no_restart() {
    let hindrances: [Change; 4] = [
        |world| "m7i.metal".clone_into(&mut world.instances[1].instance_type),
        |world| {
            say_of(world, 1, "False");
            // Nor is that of the one that takes its place ready.
            world.unready = 1;
        },
        |world| {
            taint(world, 1, Some("node.kubernetes.io/disk-pressure"));
            // Nor does the one that takes its place join.
            world.strangers = 1;
        },
        |world| {
            world.children.nodes.remove(1);
            // Nor does the one that takes its place join.
            world.strangers = 1;
        },
    ];
    for (number, hinder) in hindrances.into_iter().enumerate() {
        let mut world = half_moved();
        hinder(&mut world);
        world.login("own", "psql", ("ada", "new"));
        world.clock = jiff::SignedDuration::from_mins(1);
        let plans = passes(&mut world, 30);
        let steps = plans.iter().flat_map(|plan| &plan.actions).map(|action| &action.step);
        let restarts = steps.filter(|step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod));
        assert_eq!(restarts.count(), 1, "{number}");
        assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"), "{number}");
        assert!(world.pinned().unwrap().ends_with("-g1") && said(&world, "Ready").0 == "True", "{number}");
    }
}

#[test]
fn machines_that_never_come_hold_no_restart() {
    let hindrances: [(&str, Change); 2] = [
        ("each ends by itself", |world| {
            let next = world.instances.iter_mut().skip(1).filter(|found| !found.state.is_ending());
            next.for_each(|found| found.state = InstanceState::Terminated);
        }),
        ("none is launched", |world| {
            world.full.machines = vec![world.volumes[0].zone.clone()];
            world.instances[1].state = InstanceState::Terminated;
            // Nobody remembers that it failed, as where something before the launch fails.
            world.memory.resting.clear();
        }),
    ];
    for (what, hinder) in hindrances {
        let mut world = half_moved();
        world.login("own", "psql", ("ada", "new"));
        world.clock = jiff::SignedDuration::from_secs(20);
        let (mut restarts, mut first) = (0, None);
        for number in 0..90 {
            let planned = passes(&mut world, 1);
            let stops = |step: &Step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod);
            let count = planned[0].actions.iter().filter(|action| stops(&action.step)).count();
            first = first.or_else(|| (count > 0).then_some(number));
            restarts += count;
            hinder(&mut world);
        }
        assert_eq!(restarts, 1, "{what}");
        assert!(first >= Some(40), "{what}: it is left to the move at first: {first:?}");
        assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"), "{what}");
        assert!(world.pinned().unwrap().ends_with("-g1") && said(&world, "Ready").0 == "True", "{what}");
    }
}

#[test]
fn what_serves_is_not_stopped_by_the_way_for_a_node_that_cannot_take_it() {
    let mut world = just_moved();
    taint(&mut world, 1, Some("node.kubernetes.io/disk-pressure"));
    for number in 0..6 {
        let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
        let conditions = pod.status.get_or_insert_default().conditions.iter_mut().flatten();
        let answers = if number % 2 == 0 { "False" } else { "True" };
        let ready = conditions.filter(|found| found.type_ == "Ready");
        ready.for_each(|found| answers.clone_into(&mut found.status));
        let planned = pass(&mut world, &mut 0, None, false);
        let mut steps = planned.actions.iter().map(|action| &action.step);
        assert!(
            !steps.any(|step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod)),
            "{number}"
        );
    }
    taint(&mut world, 1, None);
    settle(&mut world, None, false);
    check_end(&world, "the taint is gone");
}

/// More is asked for beside QuestDB than its machine has room for, and a larger machine.
pub(super) fn larger_and_more_beside(world: &mut World) {
    change(world, |spec| {
        "m7i.xlarge".clone_into(&mut spec.compute.instance_type);
        let beside = json!({ "containers": [{ "name": "beside", "image": "example.com/beside:1",
            "resources": { "cpu": "1500m", "memory": "1Gi" } }] });
        spec.pod = Some(serde_json::from_value(beside).unwrap());
    });
}

#[test]
fn a_pod_that_has_no_room_at_home_is_not_asked_for_there() {
    let containers = |world: &World| {
        let set = world.children.stateful_set.as_ref().unwrap();
        set.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers.len()
    };
    for answers in [true, false] {
        let mut world = serving();
        world.full.machines = vec![world.volumes[0].zone.clone()];
        let before = world.pod_uid();
        if !answers {
            world.broken = vec![validated(&world.resource).image];
            passes(&mut world, 1);
        }
        larger_and_more_beside(&mut world);
        passes(&mut world, 8);
        assert!(!world.memory.resting.is_empty() && world.pod_uid() == before);
        assert_eq!((containers(&world), said(&world, "Ready").0 == "True"), (1, answers));
        // Whatever ends its pod: the next one starts.
        world.children.pod = None;
        world.broken.clear();
        passes(&mut world, 4);
        assert_eq!((containers(&world), said(&world, "Ready").0.as_str()), (1, "True"));
        world.full.machines.clear();
        world.memory.resting.clear();
        settle(&mut world, None, false);
        check_end(&world, "there is room");
        assert_eq!((containers(&world), lives(&world, "2")), (2, true));
    }
}

#[test]
fn a_move_that_is_broken_is_told_as_such() {
    let mut world = half_moved();
    "m7i.metal".clone_into(&mut world.instances[1].instance_type);
    passes(&mut world, 5);
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == condition::MOVING).unwrap();
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "Broken"));
    assert!(found.message.contains("terminate it"), "{}", found.message);
}

#[test]
fn what_holds_other_credentials_is_told() {
    let mut world = serving();
    taint(&mut world, 0, Some("node.kubernetes.io/disk-pressure"));
    world.login("own", "psql", ("ada", "new"));
    passes(&mut world, 5);
    let steps = &world.resource.status.as_ref().unwrap().steps;
    let told = steps.iter().find(|step| step.name == Part::Credentials.as_str()).unwrap();
    assert!(told.message.as_ref().unwrap().contains("taint"), "{told:?}");
    assert_eq!(said(&world, "Ready").0, "True");
    taint(&mut world, 0, None);
    settle(&mut world, None, false);
    check_end(&world, "the taint is gone");
}

#[test]
fn a_taint_that_a_restart_would_cure_does_not_hold_it() {
    for (key, broken) in [("disk-pressure", true), ("memory-pressure", false)] {
        let mut world = serving();
        if broken {
            world.broken = vec![validated(&world.resource).image];
            passes(&mut world, 1);
        }
        taint(&mut world, 0, Some(&format!("node.kubernetes.io/{key}")));
        let before = world.pod_uid();
        change(&mut world, |spec| spec.config.clear());
        passes(&mut world, 8);
        assert!(before.is_some() && world.pod_uid() != before, "{key}");
        world.broken.clear();
        taint(&mut world, 0, None);
        settle(&mut world, None, false);
        check_end(&world, key);
    }
}

#[test]
fn how_far_a_version_is_stays_said_while_something_else_is_written() {
    let mut world = serving();
    world.read_only_for = Some(Kind::Snapshot);
    change(&mut world, |spec| "9.4.0".clone_into(&mut spec.version));
    passes(&mut world, 3);
    world.children.config = None;
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(planned.state(Part::Pod) == Some(&State::Pending) && planned.state(Part::Upgrade).is_some());
}
