//! What keeps a disk from being copied: each guard has a row that only it refuses.

mod stopped;

use std::sync::Arc;

use cloud::{
    Attachment, AttachmentState, Instance, InstanceId, InstanceState, Owner, Role, Tags, Volume, VolumeId,
    VolumeState, key,
};
use domain::catalogue::{InstanceTypes, Repository, Versions};
use k8s_openapi::api::core::v1::{Node, Pod};
use plan::snapshot::{Disk, Ground};
use plan::{Neighbours, Settings, Subject};
use resources::{QuestDB, names};
use serde_json::{Value, json};

use super::ended::{is_left, is_not_asked, is_of_other};
use super::ground::{
    Way, as_found, asked_at, believed, is_apart, is_held, is_stopped, known, left_out, machine_of, only,
    unread, version_on, way,
};
use crate::error::Error;
use crate::fixture;

const DATABASE: &str = "0192f3a4-5b6c-7d8e-9f00-112233445566";
const OTHER: &str = "0192f3a4-5b6c-7d8e-9f00-998877665544";

fn settings() -> Settings {
    Settings {
        cluster: "eu-west-1".to_owned(),
        hosted_zone: "Z1".to_owned(),
        dns_suffix: "eu.example.com".to_owned(),
        vpc: "vpc-1".to_owned(),
        zones: [("eu-west-1a".to_owned(), "subnet-a".to_owned())].into(),
        node_image: "ami-1".to_owned(),
        instance_profile: None,
        versions: Versions::default(),
        questdb_image: Repository::default(),
        image_pull_secrets: Vec::new(),
        instance_types: InstanceTypes::default(),
        neighbours: Neighbours::default(),
    }
}

/// A resource of people that was stopped and carried out.
fn value(run_state: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "crd.questdb.io/v1",
        "kind": "QuestDB",
        "metadata": { "name": "trades", "namespace": "ns", "uid": "u", "generation": 3 },
        "spec": {
            "version": "9.3.4",
            "runState": run_state,
            "compute": { "instanceType": "m7i.large" },
            "storage": { "sizeGib": 50, "deletionPolicy": "Snapshot" },
        },
        "status": { "phase": phase, "observedGeneration": 3, "databaseId": DATABASE },
    })
}

type Change = fn(&mut Value);

fn changed(mut value: Value, change: Change) -> QuestDB {
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

fn subject() -> Subject {
    Subject::of(&changed(value("Purged", "Deleting"), |_| {}), &settings()).unwrap()
}

fn instruct(value: &mut Value, database: &str) {
    value["spec"]["instruction"] =
        json!({ "id": "i-1", "databaseId": database, "epoch": 1, "seq": 1, "render": 1, "hash": "h" });
}

/// A pod that serves.
fn pod(change: Change) -> Pod {
    let labels =
        json!({ names::LABEL_NAME: "trades", names::LABEL_NAMESPACE: "ns", names::LABEL_DATABASE: DATABASE });
    let mut pod = json!({
        "metadata": { "name": "trades-0", "namespace": "ns", "labels": labels },
        "status": { "podIP": "10.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn numbered(number: u64) -> Tags {
    Owner { generation: Some(number), ..subject().owner(Role::Volume) }.tags()
}

fn machine(state: InstanceState) -> Instance {
    Instance {
        id: InstanceId::new("i-1"),
        state,
        state_reason: None,
        zone: "eu-west-1a".to_owned(),
        subnet: None,
        vpc: None,
        private_ip: None,
        instance_type: "m7i.large".to_owned(),
        image: "ami-1".to_owned(),
        security_groups: Vec::new(),
        metadata_guarded: Some(true),
        tags: Tags::new(),
        client_token: None,
        protection: None,
        launched_at: None,
    }
}

#[test]
fn what_the_cache_does_not_give_is_absent_only_where_it_has_nothing() {
    assert_eq!(unread("trades", false), Ground::Absent);
    assert!(matches!(unread("trades", true), Ground::Unclear(why) if why.contains("could not be read")));
}

#[test]
fn only_an_identity_that_status_holds_is_believed() {
    let table: [(&str, Change, bool); 5] = [
        ("of the status", |_| {}, true),
        ("of both", |value| instruct(value, DATABASE), true),
        (
            "of the instruction alone",
            |value| {
                instruct(value, DATABASE);
                value["status"]["databaseId"] = Value::Null;
            },
            false,
        ),
        ("of another in the instruction", |value| instruct(value, OTHER), false),
        ("of nobody", |value| value["status"]["databaseId"] = Value::Null, false),
    ];
    for (what, change, is_believed) in table {
        let database = changed(value("Purged", "Deleting"), change);
        assert_eq!(believed(&database, &settings()).is_some(), is_believed, "{what}");
    }
}

#[test]
fn a_last_copy_is_taken_of_what_has_no_pod_and_owes_nothing() {
    let pod = pod(|_| {});
    let table = [
        ((Some(7), false, None), Way::Ended(7)),
        ((Some(7), false, Some(&pod)), Way::Shut),
        ((Some(7), true, None), Way::Stopped),
        ((Some(7), true, Some(&pod)), Way::Serving(&pod)),
        ((None, false, None), Way::Stopped),
        ((None, false, Some(&pod)), Way::Serving(&pod)),
        ((None, true, None), Way::Stopped),
        ((None, true, Some(&pod)), Way::Serving(&pod)),
    ];
    for ((last_copy, owes, pod), expected) in table {
        assert_eq!(way(last_copy, owes, pod), expected, "{last_copy:?} {owes}");
    }
}

#[test]
fn a_pod_is_asked_that_is_of_the_database_and_serves_or_owes() {
    // What is asked where nothing is owed, and where a release is.
    let table: [(&str, Change, bool, bool); 8] = [
        ("it serves", |_| {}, true, true),
        (
            "it does not answer its probes",
            |pod| pod["status"]["conditions"][0]["status"] = json!("False"),
            false,
            true,
        ),
        (
            "it is being stopped",
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            false,
            false,
        ),
        ("it has no address yet", |pod| pod["status"]["podIP"] = Value::Null, false, false),
        ("it has no labels", |pod| pod["metadata"]["labels"] = Value::Null, false, false),
        (
            "it is of another database",
            |pod| pod["metadata"]["labels"][names::LABEL_DATABASE] = json!(OTHER),
            false,
            false,
        ),
        (
            "it is of another resource",
            |pod| pod["metadata"]["labels"][names::LABEL_NAME] = json!("other"),
            false,
            false,
        ),
        (
            "it is of another namespace",
            |pod| pod["metadata"]["labels"][names::LABEL_NAMESPACE] = json!("other"),
            false,
            false,
        ),
    ];
    for (what, change, plainly, owing) in table {
        let (subject, pod) = (subject(), pod(change));
        let is_asked =
            |owes| asked_at(&subject, &pod, owes).is_ok_and(|found| found.to_string() == "10.0.0.1");
        assert_eq!((is_asked(false), is_asked(true)), (plainly, owing), "{what}");
    }
}

#[test]
fn without_ec2_nothing_new_rests_on_a_disk_and_who_owes_is_let_go() {
    let disk = |volume: &str| Disk {
        volume: VolumeId::new(volume),
        cluster: String::new(),
        database: String::new(),
        version: String::new(),
        unrestored: None,
    };
    let odd = || Ok(Err("QuestDB trades has 2 volumes".to_owned()));
    let reported = || disk("vol-reported");
    let found = || Ok(Ok((disk("vol-1"), fixture::disk(Tags::new()))));
    let failed = || Err(Error::Stale { what: "EC2 does not answer".to_owned() });
    for owes in [false, true] {
        let (seen, blind) = known(found(), owes, reported).unwrap();
        assert_eq!((seen, blind.is_none()), (disk("vol-1"), true), "{owes}");
        let (seen, blind) = known(failed(), owes, reported).unwrap();
        assert_eq!((seen, blind.is_some()), (reported(), true), "{owes}: nothing new may rest on it");
    }
    assert!(known(odd(), false, reported).unwrap_err().contains("2 volumes"));
    let (seen, blind) = known(odd(), true, reported).unwrap();
    assert_eq!((seen, blind.is_some()), (reported(), true));
}

/// Restored into a version that cannot read it, a copy would be lost on whoever trusts it.
#[test]
fn a_copy_is_of_the_newest_version_that_may_have_written() {
    let disk = |version: Option<&str>| {
        let tags = version.map_or_else(Tags::new, |version| Tags::new().with(key::QUESTDB, version));
        fixture::disk(tags)
    };
    for (reported, shown, expected) in [
        (Some("9.3.4"), None, "9.3.4"),
        (Some("9.3.4"), Some("9.4.0"), "9.3.4"),
        (Some("9.3.4"), Some("10.0.0"), "10.0.0"),
        (Some("10.0.0"), Some("9.3.4"), "10.0.0"),
        (Some("9.3.4"), Some("nightly"), "9.3.4"),
        (None, Some("8.3.3"), "8.3.3"),
        // Of a disk that nothing is known of: what is asked for.
        (None, None, "9.3.4"),
    ] {
        let mut database = changed(value("Paused", "Paused"), |_| {});
        database.status.as_mut().unwrap().version = reported.map(str::to_owned);
        assert_eq!(version_on(&disk(shown), &database), expected, "{reported:?} {shown:?}");
    }
}

/// Restored, a database was paused before its first pod ran.
#[test]
fn a_copy_of_a_disk_that_was_never_restored_says_so() {
    let made = |snapshot: Option<&str>| Volume {
        snapshot: snapshot.map(str::to_owned),
        created_at: Some(std::time::SystemTime::UNIX_EPOCH),
        ..fixture::disk(Tags::new().with(key::BASIS, "checkpoint:1"))
    };
    let database = changed(value("Paused", "Paused"), |value| {
        value["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z");
        value["spec"]["storage"]["source"] = json!({ "snapshotId": "snap-0123456789abcdef0" });
    });
    for (snapshot, expected) in [(Some("snap-0123456789abcdef0"), Some("vol-1")), (None, None)] {
        let found = as_found(&made(snapshot), &database, &subject());
        assert_eq!((found.volume.as_str(), found.unrestored.as_deref()), ("vol-1", expected));
    }
}

#[test]
fn stopped_is_what_was_reported_of_this_very_wish() {
    let table: [(&str, Change, bool); 8] = [
        ("paused", |_| {}, true),
        ("deleted", |value| value["status"]["phase"] = json!("Deleted"), true),
        ("about to be", |value| value["status"]["phase"] = json!("Pausing"), false),
        ("ready", |value| value["status"]["phase"] = json!("Ready"), false),
        ("another wish came", |value| value["metadata"]["generation"] = json!(4), false),
        (
            "and was only seen, because nobody is to carry it out",
            |value| {
                value["metadata"]["generation"] = json!(4);
                value["status"]["observedGeneration"] = json!(4);
                value["status"]["conditions"] = json!([{
                    "type": "Ready", "status": "False", "reason": "Paused", "message": "", "observedGeneration": 3,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]);
            },
            false,
        ),
        (
            "the resource goes",
            |value| value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            false,
        ),
        ("nothing was reported", |value| value["status"] = Value::Null, false),
    ];
    for (what, change, expected) in table {
        assert_eq!(is_stopped(&changed(value("Paused", "Paused"), change)), expected, "{what}");
    }
}

fn attached(state: AttachmentState) -> Attachment {
    Attachment {
        volume: VolumeId::new("vol-1"),
        instance: InstanceId::new("i-1"),
        device: "/dev/sdf".to_owned(),
        state,
        goes_with_machine: false,
    }
}

/// A checkpoint that holds one disk says nothing of another, which only has its tags.
#[test]
fn of_a_database_that_answers_no_disk_is_copied_but_that_of_its_pod() {
    for (state, machine, is_its) in [
        (AttachmentState::Attached, Some("i-1"), true),
        (AttachmentState::Attached, None, true),
        (AttachmentState::Attached, Some("i-11"), false),
        (AttachmentState::Detached, Some("i-1"), false),
        (AttachmentState::Detached, None, false),
    ] {
        let what = format!("{state} {machine:?}");
        let volume = Volume { attachments: vec![attached(state)], ..fixture::disk(Tags::new()) };
        let machine = machine.map(InstanceId::new);
        assert_eq!(is_apart(&volume, machine.as_ref()).is_none(), is_its, "{what}");
    }
    assert!(is_apart(&fixture::disk(Tags::new()), None).is_some(), "on no machine");

    let node = |provider: &str| -> Arc<Node> {
        let node = json!({ "metadata": { "name": "one" }, "spec": { "providerID": provider } });
        Arc::new(serde_json::from_value(node).unwrap())
    };
    let placed = pod(|pod| pod["spec"] = json!({ "nodeName": "one", "containers": [] }));
    let nodes = [node("aws:///eu-west-1a/i-1")];
    assert_eq!(machine_of(&placed, &nodes), Some(InstanceId::new("i-1")));
    assert_eq!(machine_of(&placed, &[]), None, "its Node is not seen");
    assert_eq!(machine_of(&pod(|_| {}), &nodes), None, "it is on none");
}

#[test]
fn a_disk_is_free_when_nothing_has_it_in_any_state() {
    let volume = |state: VolumeState, attachments: Vec<Attachment>| Volume {
        state,
        attachments,
        ..fixture::disk(Tags::new())
    };
    let free = VolumeState::Available;
    for (volume, expected) in [
        (volume(free.clone(), vec![]), true),
        (volume(free.clone(), vec![attached(AttachmentState::Detached)]), true),
        (volume(free.clone(), vec![attached(AttachmentState::Detaching)]), false),
        (volume(free, vec![attached(AttachmentState::Attached)]), false),
        (volume(VolumeState::InUse, vec![]), false),
        (volume(VolumeState::Error, vec![]), false),
    ] {
        assert_eq!(is_held(&volume).is_none(), expected, "{volume:?}");
    }
}

#[test]
fn of_several_disks_none_is_copied_but_those_that_end_do_not_count() {
    let volume =
        |id: &str, state: VolumeState| Volume { id: VolumeId::new(id), state, ..fixture::disk(Tags::new()) };
    let (one, ending) = (volume("vol-1", VolumeState::Available), volume("vol-0", VolumeState::Deleting));
    let of = |found: &[&Volume]| only(found.iter().copied().cloned().collect(), &subject()).ok();
    assert_eq!(of(&[&one]), Some(one.clone()));
    assert_eq!(of(&[&one, &ending]), Some(one.clone()));
    assert_eq!(of(&[&one, &volume("vol-2", VolumeState::InUse)]), None);
    assert_eq!((of(&[&ending]), of(&[])), (None, None));
}

#[test]
fn only_the_disk_of_the_report_that_an_answer_leaves_out_is_asked_for_by_its_id() {
    let reported: Change =
        |value| value["status"]["volume"] = json!({ "id": "vol-1", "sizeGib": 50, "state": "available" });
    let (reported, unreported) =
        (changed(value("Paused", "Paused"), reported), changed(value("Paused", "Paused"), |_| {}));
    let shown = fixture::disk(Tags::new());
    let other = Volume { id: VolumeId::new("vol-2"), ..shown.clone() };
    for (found, expected) in [
        (vec![], Some(VolumeId::new("vol-1"))),
        (vec![other.clone()], Some(VolumeId::new("vol-1"))),
        (vec![shown.clone()], None),
        (vec![other, shown], None),
    ] {
        assert_eq!(left_out(&found, &reported), expected, "{found:?}");
        assert_eq!(left_out(&found, &unreported), None, "{found:?}");
    }
}

#[test]
fn a_machine_is_left_until_ec2_calls_it_terminated() {
    for state in [
        InstanceState::Pending,
        InstanceState::Running,
        InstanceState::ShuttingDown,
        InstanceState::Stopping,
        InstanceState::Stopped,
        InstanceState::Unknown("odd".to_owned()),
    ] {
        let machines = [machine(InstanceState::Terminated), machine(state.clone())];
        assert!(is_left(&machines).is_some_and(|why| why.contains("i-1")), "{state}");
    }
    assert_eq!((is_left(&[machine(InstanceState::Terminated)]), is_left(&[])), (None, None));
}

#[test]
fn a_disk_carries_the_number_that_the_copy_is_asked_for_of() {
    let own = || subject().owner(Role::Volume);
    let (this, role) = (Some(7), Role::Volume);
    for (what, tags, expected) in [
        ("it does", numbered(7), true),
        ("a lower one", numbered(6), false),
        ("a higher one: it served again", numbered(8), false),
        ("none", own().tags(), false),
        (
            "of another database",
            Owner { generation: this, ..Owner::new("eu-west-1", OTHER, role) }.tags(),
            false,
        ),
        (
            "of another cluster",
            Owner { generation: this, ..Owner::new("us-east-1", DATABASE, role) }.tags(),
            false,
        ),
        ("as something else", Owner { generation: this, ..subject().owner(Role::Snapshot) }.tags(), false),
        ("not in our words", numbered(7).with(cloud::key::GENERATION, "+7"), false),
        ("no tags", Tags::new(), false),
    ] {
        assert_eq!(is_of_other(&fixture::disk(tags), &subject(), 7).is_none(), expected, "{what}");
    }
}

#[test]
fn a_last_copy_is_asked_for_by_a_wish_that_destroys_the_disk_and_is_carried_out() {
    let table: [(&str, Change, Option<&str>); 9] = [
        ("it is", |_| {}, None),
        (
            "the resource is deleted",
            |value| {
                value["spec"]["runState"] = json!("Running");
                value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            },
            None,
        ),
        (
            "nothing is to be done",
            |value| value["metadata"]["annotations"] = json!({ names::PAUSE_RECONCILE: "true" }),
            Some("annotation"),
        ),
        ("it is to run", |value| value["spec"]["runState"] = json!("Running"), Some("copied and destroyed")),
        ("it is to rest", |value| value["spec"]["runState"] = json!("Paused"), Some("copied and destroyed")),
        (
            "its disk is to stay",
            |value| value["spec"]["runState"] = json!("Deleted"),
            Some("copied and destroyed"),
        ),
        (
            "no copy is to be kept",
            |value| value["spec"]["storage"]["deletionPolicy"] = json!("Delete"),
            Some("copied and destroyed"),
        ),
        (
            "it is protected",
            |value| value["spec"]["deletionProtection"] = json!(true),
            Some("copied and destroyed"),
        ),
        (
            "its spec is refused",
            |value| {
                value["spec"]["runState"] = json!("Running");
                value["spec"]["config"] = json!({ "an odd": "7" });
            },
            Some("is refused"),
        ),
    ];
    for (what, change, expected) in table {
        let found = is_not_asked(&changed(value("Purged", "Deleting"), change), &subject(), &settings());
        match (&found, expected) {
            (None, None) => {}
            (Some(why), Some(text)) => assert!(why.contains(text), "{what}: {why}"),
            _ => panic!("{what}: {found:?}"),
        }
    }
}
