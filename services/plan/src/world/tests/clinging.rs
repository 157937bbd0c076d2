//! A disk that does not leave a machine where QuestDB runs no more: after a while people are told who has it, and the way out. So they are of
//! an object that somebody holds.

use std::net::Ipv4Addr;
use std::sync::Arc;

use cloud::{
    Attachment, AttachmentState, ClientToken, DnsRecord, InstanceId, InstanceState, Role, VolumeState, key,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{RunState, names};

use super::kubernetes::node;
use super::model::World;
use super::operations::{change, just_moved, on_the_way, paused};
use super::oracle::check_end;
use super::runner::ENOUGH;
use super::silent::CLOCK;
use super::{check_serving, pass, serving, settle, wish};
use crate::fixture::{settings, subject, validated};
use crate::{Part, Plan, State, Step};

/// Who has the disk, by the word of EC2 and of Kubernetes.
type Grip = (Vec<Attachment>, Vec<Arc<VolumeAttachment>>);

/// So many passes, before each of which the disk is held again; what the last one planned.
fn passes(world: &mut World, count: usize, (attachments, objects): &Grip) -> Plan {
    let mut planned = Plan::default();
    for _ in 0..count {
        let disk = &mut world.volumes[0];
        (disk.attachments, disk.state) = (attachments.clone(), VolumeState::InUse);
        world.children.attachments.clone_from(objects);
        planned = pass(world, &mut 0, None, false);
        world.tick();
    }
    planned
}

fn check_told(told: Option<&State>, words: &[String]) {
    let Some(State::Broken(text)) = told else { panic!("{told:?}") };
    for word in words {
        assert!(text.contains(word.as_str()), "{word}: {text}");
    }
}

#[test]
fn a_disk_that_does_not_leave_its_machine_is_told_with_the_way_out() {
    for state in [RunState::Paused, RunState::Deleted, RunState::Purged] {
        let mut world = serving();
        world.clock = CLOCK;
        let mut grip: Grip = (world.volumes[0].attachments.clone(), world.children.attachments.clone());
        grip.0[0].state = AttachmentState::Busy;
        wish(&mut world, 2, |spec| spec.run_state = state);
        let waits = |plan: &Plan| matches!(plan.state(Part::Detachment), Some(State::Running(_)));
        assert!((0..ENOUGH).any(|_| waits(&passes(&mut world, 1, &grip))));
        assert!(waits(&passes(&mut world, 19, &grip)), "it may still leave");
        let planned = passes(&mut world, 1, &grip);
        let (disk, machine) = (world.volumes[0].id.clone(), world.instances[0].id.clone());
        let words = [
            format!("EC2 calls {disk} busy on {machine}, and VolumeAttachment va has it"),
            format!("stop-instances --instance-ids {machine}"),
        ];
        check_told(planned.state(Part::Detachment), &words);
        assert_eq!(world.instances[0].state, InstanceState::Running, "it is left to people");

        world.instances[0].state = InstanceState::Stopped;
        let ends = |world: &mut World| {
            passes(world, 1, &grip);
            world.instances[0].state.is_ending()
        };
        assert!((0..8).any(|_| ends(&mut world)), "the way out is none");
        settle(&mut world, None, false);
        check_end(&world, "its machine was stopped");
    }
}

fn name_of(node: &Node) -> String {
    node.metadata.name.clone().unwrap()
}

/// Whether the pod is on the second machine.
fn runs_there(world: &World) -> bool {
    let on = world.children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    let second = world.children.nodes.get(1).map(|node| name_of(node));
    on.is_some() && on == second
}

/// What differs here.
type Change = fn(&mut World);

/// Of two clusters of one name the other has its own copy of the resource, and lets the database run.
fn resumed_elsewhere() -> World {
    let subject = subject();
    let mut resumed = paused();
    let mut machine = serving().instances.remove(0);
    machine.id = InstanceId::new("i-elsewhere");
    machine.tags = machine.tags.with(key::GENERATION, "7");
    let token = ClientToken::new(&subject.cluster, &subject.database, Role::Instance, 7);
    machine.client_token = Some(token.to_string());
    let disk = &mut resumed.volumes[0];
    disk.state = VolumeState::InUse;
    disk.attachments = vec![Attachment {
        volume: disk.id.clone(),
        instance: machine.id.clone(),
        device: "/dev/sdf".to_owned(),
        state: AttachmentState::Attached,
        goes_with_machine: false,
    }];
    resumed.instances.push(machine);
    resumed
}

#[test]
fn a_machine_to_which_another_cluster_gave_the_disk_is_not_ended() {
    let resumed = resumed_elsewhere();
    let changes: [(&str, Change, bool); 5] = [
        ("nothing here knows it", |_| {}, true),
        (
            "this resource gave its number",
            |world| {
                let annotations = world.resource.metadata.annotations.get_or_insert_default();
                annotations.insert(names::GENERATION.to_owned(), "7".to_owned());
            },
            false,
        ),
        (
            "it is a Node here",
            |world| world.children.nodes.push(Arc::new(node(world.instances.last().unwrap()))),
            false,
        ),
        (
            "the disk was given away here",
            |world| world.children.attachments.clone_from(&serving().children.attachments),
            false,
        ),
        ("it is stopped", |world| world.instances.last_mut().unwrap().state = InstanceState::Stopped, false),
    ];
    for (what, change, is_told) in changes {
        let mut world = resumed.clone();
        change(&mut world);
        let seen = world.resource.clone();
        let planned = crate::plan(&seen, &validated(&seen), &world.look(), &settings());
        let told = planned.state(Part::InstanceStop);
        let found = matches!(told, Some(State::Broken(text)) if text.contains("another cluster"));
        assert_eq!(found, is_told, "{what}: {told:?}");
        let ends = planned.actions.iter().any(|action| matches!(action.step, Step::WriteReleased { .. }));
        assert!(!(is_told && ends), "{what}: {:#?}", planned.actions);
    }
}

#[test]
fn the_name_that_leads_to_a_machine_of_another_cluster_is_left() {
    let mut world = resumed_elsewhere();
    let planned = |world: &World| {
        let seen = &world.resource;
        crate::plan(seen, &validated(seen), &world.look(), &settings())
    };
    let name = world.records[0].name.clone();
    world.records.push(DnsRecord::a(&name, 30, Ipv4Addr::new(10, 0, 0, 9)));
    let found = planned(&world);
    let told = found.state(Part::DnsRelease);
    assert!(matches!(told, Some(State::Broken(text)) if text.contains("another cluster")), "{told:?}");
    let changes = |step: &Step| matches!(step, Step::ChangeRecords { .. } | Step::WriteReleased { .. });
    assert!(!found.actions.iter().any(|action| changes(&action.step)), "{:#?}", found.actions);
    // Nobody is to be sent to one that does not run.
    world.instances.last_mut().unwrap().state = InstanceState::Stopped;
    let found = planned(&world);
    let told = found.state(Part::DnsRelease);
    assert!(matches!(told, Some(State::Running(_))), "{told:?}");
}

/// Somebody has it deleted, and whoever has put a finalizer on it may have gone away without it.
pub(super) fn hold(set: &mut Arc<StatefulSet>) {
    let metadata = &mut Arc::make_mut(set).metadata;
    metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    metadata.finalizers = Some(vec!["backup.example.com/held".to_owned()]);
}

/// What is planned so many minutes later.
fn planned_after(world: &World, minutes: i64) -> Plan {
    let (seen, mut observed) = (world.resource.clone(), world.look());
    observed.at = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
    crate::plan(&seen, &validated(&seen), &observed, &settings())
}

#[test]
fn a_stateful_set_that_somebody_holds_is_told() {
    let mut world = paused();
    let mut set = serving().children.stateful_set.unwrap();
    hold(&mut set);
    world.children.stateful_set = Some(set);
    let told = |minutes| planned_after(&world, minutes).state(Part::PodStop).cloned();
    assert!(matches!(told(9), Some(State::Running(_))), "{:?}", told(9));
    check_told(told(10).as_ref(), &["StatefulSet".to_owned(), "backup.example.com/held".to_owned()]);
}

/// Its pod may stay, as where it was to be let alone (`--cascade=orphan`).
#[test]
fn a_stateful_set_that_somebody_holds_is_told_of_a_database_that_is_to_serve() {
    let words = ["made again once it is gone".to_owned(), "backup.example.com/held".to_owned()];
    let mut world = serving();
    hold(world.children.stateful_set.as_mut().unwrap());
    assert_eq!(planned_after(&world, 9).state(Part::Pod), Some(&State::Done));
    let planned = planned_after(&world, 10);
    check_told(planned.state(Part::Pod), &words);
    assert!(planned.serves, "it serves all the same");

    // Where it was deleted in the foreground it waits for its pod, which others may hold.
    let pod = &mut Arc::make_mut(world.children.pod.as_mut().unwrap()).metadata;
    pod.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    pod.finalizers = Some(vec!["logs.example.com/kept".to_owned()]);
    let both = [words.as_slice(), &["; Pod ".to_owned(), "logs.example.com/kept".to_owned()]].concat();
    check_told(planned_after(&world, 10).state(Part::Pod), &both);

    world.children.pod = None;
    (world.volumes[0].attachments, world.volumes[0].state) = (Vec::new(), VolumeState::Available);
    let early = planned_after(&world, 9);
    let told = early.state(Part::Pod);
    assert!(matches!(told, Some(State::Running(text)) if text.contains(&words[0])), "{told:?}");
    assert_eq!(early.state(Part::Attachment), Some(&State::Pending), "its disk waits for the pod");
    check_told(planned_after(&world, 10).state(Part::Pod), &words);
}

#[test]
fn nothing_is_restarted_while_no_pod_would_be_made_of_the_stateful_set() {
    let mut world = serving();
    let before = world.pod_uid();
    change(&mut world, |spec| spec.restart_nonce = Some("now".to_owned()));
    let mut planned = Plan::default();
    for _ in 0..10 {
        hold(world.children.stateful_set.as_mut().unwrap());
        planned = pass(&mut world, &mut 0, None, false);
        world.tick();
        let pod = world.children.pod.as_ref().unwrap();
        assert!(pod.metadata.deletion_timestamp.is_none() && world.pod_uid() == before);
    }
    let told = planned.state(Part::Pod);
    assert!(matches!(told, Some(State::Running(text)) if text.contains("no pod would be made")), "{told:?}");

    // Whoever held it lets go.
    world.children.stateful_set = None;
    settle(&mut world, None, false);
    check_end(&world, "it is restarted in the end");
    assert_ne!(world.pod_uid(), before);
}

#[test]
fn a_disk_that_stays_on_the_machine_before_is_told_while_the_pod_waits_for_it() {
    let mut world = on_the_way(just_moved(), |_| {}, runs_there);
    let (former, node) = (world.instances[0].id.clone(), name_of(&world.children.nodes[0]));
    let held = &mut world.volumes[0].attachments[0];
    (held.instance, held.state) = (former.clone(), AttachmentState::Detaching);
    Arc::make_mut(&mut world.children.attachments[0]).spec.node_name = node;
    let pod = world.children.pod.as_ref().unwrap();
    let made = pod.metadata.creation_timestamp.as_ref().unwrap().0;
    let told = |minutes| {
        let (seen, mut observed) = (world.resource.clone(), world.look());
        observed.at = made + SignedDuration::from_mins(minutes);
        crate::plan(&seen, &validated(&seen), &observed, &settings()).state(Part::Attachment).cloned()
    };
    assert!(matches!(told(9), Some(State::Running(_))), "{:?}", told(9));
    let words =
        [format!("detaching on {former}, and"), format!("modify-instance-attribute --instance-id {former} ")];
    check_told(told(10).as_ref(), &words);
}

/// Kubernetes has it there by its own word, so that nobody brings it back: a pod that is made again waits for it.
#[test]
fn a_disk_that_was_taken_off_by_hand_is_told_and_comes_back_with_the_next_run() {
    let mut world = serving();
    world.clock = CLOCK;
    // Its pod has been there for longer than any disk may take.
    world.now += SignedDuration::from_hours(1);
    (world.volumes[0].attachments, world.volumes[0].state) = (Vec::new(), VolumeState::Available);
    let mut told = |count| {
        let mut planned = Plan::default();
        for _ in 0..count {
            planned = pass(&mut world, &mut 0, None, false);
            world.tick();
        }
        planned.state(Part::Attachment).cloned()
    };
    let early = told(20);
    assert!(matches!(early, Some(State::Running(_))), "{early:?}");
    let late = told(1);
    let words = ["calls vol-", "available", "describe volumeattachment va,", "pause the database"];
    check_told(late.as_ref(), &words.map(str::to_owned));

    for (seq, run_state) in [(2, RunState::Paused), (3, RunState::Running)] {
        wish(&mut world, seq, |spec| spec.run_state = run_state);
        settle(&mut world, None, false);
    }
    check_serving(&world, None);
}

/// Kubernetes may also have been told nothing.
#[test]
fn a_disk_that_nobody_asks_for_is_told_with_where_to_look() {
    let mut world = serving();
    (world.volumes[0].attachments, world.volumes[0].state) = (Vec::new(), VolumeState::Available);
    pass(&mut world, &mut 0, None, false);
    world.children.attachments.clear();
    let (seen, mut observed) = (world.resource.clone(), world.look());
    observed.at += SignedDuration::from_mins(10);
    let planned = crate::plan(&seen, &validated(&seen), &observed, &settings());
    let words = ["nobody has asked for it", "describe pod trades-33445566-0"];
    check_told(planned.state(Part::Attachment), &words.map(str::to_owned));
}

/// Its Node was cordoned until then, say.
#[test]
fn a_disk_is_not_late_for_a_pod_that_was_given_its_machine_a_moment_ago() {
    let mut world = serving();
    (world.volumes[0].attachments, world.volumes[0].state) = (Vec::new(), VolumeState::Available);
    pass(&mut world, &mut 0, None, false);
    let told = |placed_before: SignedDuration| {
        let (seen, mut observed) = (world.resource.clone(), world.look());
        observed.at += SignedDuration::from_mins(30);
        let placed = Some(Time(observed.at - placed_before));
        let pod = Arc::make_mut(observed.children.pod.as_mut().unwrap());
        let mut conditions = pod.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
        conditions.find(|found| found.type_ == "PodScheduled").unwrap().last_transition_time = placed;
        crate::plan(&seen, &validated(&seen), &observed, &settings()).state(Part::Attachment).cloned()
    };
    let early = told(SignedDuration::from_mins(9));
    assert!(matches!(early, Some(State::Running(_))), "{early:?}");
    check_told(told(SignedDuration::from_mins(10)).as_ref(), &["available".to_owned()]);
}

/// A machine of others stands behind it, say.
#[test]
fn a_firewall_that_ec2_keeps_is_told_with_where_to_look() {
    let mut world = serving();
    world.clock = CLOCK;
    let kept = world.groups.clone();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Deleted);
    let mut told = || {
        let planned = pass(&mut world, &mut 0, None, false);
        world.tick();
        world.groups.clone_from(&kept);
        planned.state(Part::SecurityGroupRemoval).cloned()
    };
    let waits = |told: Option<State>| matches!(told, Some(State::Running(_)));
    assert!((0..ENOUGH).any(|_| waits(told())));
    assert!((0..19).all(|_| waits(told())), "it may still go");
    let late = told();
    let words = ["describe-network-interfaces", "describe-security-groups"];
    check_told(late.as_ref(), &words.map(|look| format!("aws ec2 {look} --filters Name=")));

    settle(&mut world, None, false);
    check_end(&world, "nobody uses it any more");
}
