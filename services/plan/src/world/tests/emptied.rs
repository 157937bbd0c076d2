//! A disk that the database has served from and that somebody emptied: nobody begins on it without a word, and whatever else
//! becomes of a database is not held up by that. And one that somebody brought, with its tables where nobody looks for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use resources::names::{self, condition};
use resources::{Phase, RunState};
use serde_json::json;

use super::kubernetes::parse;
use super::model::World;
use super::operations::{become_, change, end_machine, fresh, on_the_way, paused};
use super::reach::condition as told;
use super::reload::{more_connections, no_connections};
use super::source::{fresh_of_copy, fresh_on_disk};
use super::{ENOUGH, check_serving, pass, phase, serving, settle};
use crate::{Kind, Manifest, Part, Plan, State, Step};

fn served_from(annotations: Option<&BTreeMap<String, String>>) -> Option<&str> {
    annotations?.get(names::SERVED_FROM).map(String::as_str)
}

/// What the pod was told, and what the next one is.
fn told_pods(world: &World) -> [Option<&str>; 2] {
    let pod = world.children.pod.as_deref().unwrap();
    let template = &world.children.stateful_set.as_deref().unwrap().spec.as_ref().unwrap().template;
    let of_template = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    [served_from(pod.metadata.annotations.as_ref()), served_from(of_template)]
}

fn disk(world: &World) -> String {
    world.volumes[0].id.to_string()
}

#[test]
fn who_has_not_served_yet_may_begin_on_an_empty_disk_and_nothing_is_written_for_what_serves() {
    for world in [fresh, fresh_of_copy, fresh_on_disk] {
        let mut world = world();
        settle(&mut world, None, false);
        assert_eq!((phase(&world), told_pods(&world)), (Some(Phase::Ready), [None; 2]));
    }
}

/// How a database comes to start again.
type Way<'a> = &'a dyn Fn(&mut World);

#[test]
fn every_start_after_the_first_is_told_from_which_disk_the_database_has_served() {
    let returns = |run_state: RunState| {
        move |world: &mut World| {
            become_(world, run_state);
            settle(world, None, false);
            become_(world, RunState::Running);
        }
    };
    let (pause, delete) = (returns(RunState::Paused), returns(RunState::Deleted));
    let restart = |world: &mut World| change(world, |spec| spec.restart_nonce = Some("again".to_owned()));
    let move_away =
        |world: &mut World| change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    let replace = |world: &mut World| end_machine(world, 0);
    let ways: [(&str, Way<'_>); 5] = [
        ("a pause", &pause),
        ("a deletion taken back", &delete),
        ("a restart", &restart),
        ("another machine", &move_away),
        ("the end of its machine", &replace),
    ];
    for (what, way) in ways {
        let mut world = serving();
        way(&mut world);
        settle(&mut world, None, false);
        check_serving(&world, None);
        let disk = disk(&world);
        assert_eq!(told_pods(&world), [Some(disk.as_str()); 2], "{what}");
    }
}

#[test]
fn who_serves_is_told_with_another_change_and_is_not_restarted() {
    let mut world = serving();
    let before = world.pod_uid();
    change(&mut world, more_connections);
    settle(&mut world, None, false);
    let disk = disk(&world);
    assert_eq!((told_pods(&world), world.pod_uid()), ([None, Some(disk.as_str())], before.clone()));
    // It stays so although every report is lost.
    change(&mut world, no_connections);
    world.wiped = ENOUGH / 2;
    settle(&mut world, None, false);
    assert_eq!((told_pods(&world), world.pod_uid()), ([None, Some(disk.as_str())], before));
}

#[test]
fn who_serves_is_told_with_what_a_newer_operator_writes_and_is_not_restarted() {
    let mut world = serving();
    let before = world.pod_uid();
    let set = Arc::make_mut(world.children.stateful_set.as_mut().unwrap());
    let template = set.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
    let pod = &mut Arc::make_mut(world.children.pod.as_mut().unwrap()).metadata;
    for made in [template, pod] {
        let annotations = made.annotations.get_or_insert_default();
        annotations.insert(names::TEMPLATE.to_owned(), "older".to_owned());
    }
    settle(&mut world, None, false);
    let disk = disk(&world);
    assert_eq!((told_pods(&world), world.pod_uid()), ([None, Some(disk.as_str())], before));
}

#[test]
fn another_disk_that_people_put_in_its_place_is_what_the_next_pod_is_told_of() {
    let mut world = paused();
    world.volumes[0].id = cloud::VolumeId::new("vol-restored");
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(told_pods(&world), [Some("vol-restored"); 2]);
}

/// A database that was paused and runs again, whose pod has found its disk empty.
fn emptied() -> World {
    let begin = |world: &mut World| become_(world, RunState::Running);
    let mut world = on_the_way(paused(), begin, |world| world.children.pod.is_some());
    refuse(&mut world, 66);
    world
}

/// What prepares for QuestDB keeps it from the disk again and again, and says why by this exit code.
fn refuse(world: &mut World, code: i32) {
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.status.get_or_insert_default().init_container_statuses = parse(&json!([{
        "name": "link-config", "image": "", "imageID": "", "ready": false, "restartCount": 4,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": { "exitCode": code } },
    }]));
}

fn look(world: &mut World) -> Plan {
    pass(world, &mut 0, None, false)
}

fn say(world: &mut World, text: &str) {
    let annotations = world.resource.metadata.annotations.get_or_insert_default();
    annotations.insert(names::MAY_BE_EMPTY.to_owned(), text.to_owned());
    world.touch();
}

/// What pods are told by a plan.
fn written(planned: &Plan) -> Vec<&Manifest> {
    let written = planned.actions.iter().filter_map(|action| match &action.step {
        Step::Apply(manifest) if manifest.kind == Kind::Pod => Some(manifest),
        _ => None,
    });
    written.collect()
}

/// The word that people are asked to say.
fn asked(planned: &Plan) -> String {
    let Some(State::Broken(text)) = planned.state(Part::Pod) else { panic!("{:?}", planned.progress) };
    assert!(text.contains("holds no data") && text.contains("restores nothing"), "{text}");
    text.rsplit_once("crd.questdb.io/may-be-empty=").unwrap().1.to_owned()
}

#[test]
fn an_emptied_disk_is_told_with_its_id_and_served_only_by_a_word_for_this_start() {
    let mut world = emptied();
    let (disk, pod) = (disk(&world), world.pod_uid().unwrap());
    let wanted = asked(&look(&mut world));
    assert!(wanted.starts_with(&format!("{disk}/")), "{wanted}");
    assert_eq!(phase(&world), Some(Phase::Degraded));
    assert_eq!(told(&world, condition::READY).unwrap().0, "False");
    let (degraded, text) = told(&world, condition::DEGRADED).unwrap();
    assert!(degraded == "True" && text.contains(&disk) && text.contains("snapshot"), "{text}");

    for other in ["true", &disk, "vol-0/pod"] {
        say(&mut world, other);
        let planned = look(&mut world);
        assert!(written(&planned).is_empty() && asked(&planned) == wanted, "{other}");
    }
    say(&mut world, &wanted);
    let planned = look(&mut world);
    let now = written(&planned);
    let [manifest] = &now[..] else { panic!("{:?}", planned.actions) };
    assert_eq!(manifest.body["metadata"]["annotations"], json!({ names::SERVED_FROM: "" }));
    assert_eq!(manifest.uid.as_ref(), Some(&pod));
    assert!(matches!(planned.state(Part::Pod), Some(State::Running(text)) if text.contains(&disk)));

    // It is told, and begins when its kubelet tries again.
    let told = Arc::make_mut(world.children.pod.as_mut().unwrap());
    told.metadata.annotations.get_or_insert_default().insert(names::SERVED_FROM.to_owned(), String::new());
    let planned = look(&mut world);
    assert!(written(&planned).is_empty(), "{:?}", planned.actions);
    assert!(matches!(planned.state(Part::Pod), Some(State::Running(_))), "{:?}", planned.progress);
    // The next pod that finds it empty is another matter.
    let next = Arc::make_mut(world.children.pod.as_mut().unwrap());
    next.metadata.uid = Some("another".to_owned());
    next.metadata.annotations.get_or_insert_default().insert(names::SERVED_FROM.to_owned(), disk.clone());
    let planned = look(&mut world);
    assert!(written(&planned).is_empty() && asked(&planned) != wanted);
}

#[test]
fn what_begins_after_all_serves_as_ever() {
    let mut world = emptied();
    look(&mut world);
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.status.get_or_insert_default().init_container_statuses = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn tables_at_the_top_of_a_disk_that_was_brought_are_told_with_what_to_do() {
    let mut world = on_the_way(fresh_on_disk(), |_| {}, |world| world.children.pod.is_some());
    refuse(&mut world, 65);
    let planned = look(&mut world);
    let Some(State::Broken(text)) = planned.state(Part::Pod) else { panic!("{:?}", planned.progress) };
    assert!(
        text.contains(&disk(&world)) && text.contains("into a folder db there that belongs to user 10001"),
        "{text}"
    );
    let (degraded, text) = told(&world, condition::DEGRADED).unwrap();
    assert!(degraded == "True" && text.contains("into a folder db"), "{text}");

    // Once they are there it begins when its kubelet tries again.
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.status.get_or_insert_default().init_container_statuses = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}
