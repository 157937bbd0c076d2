//! A disk gets other numbers and another type while QuestDB serves: one change of EC2's for each wish, told on the way, and one
//! that AWS does not take yet waits and holds nothing back. The first is made where there is room for it.

use std::time::Duration;

use cloud::{ClientToken, Role, Volume, VolumeKind, key};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use resources::names::condition;
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{Spawned, eventually, unique};

use super::apart::{changes, word};
use super::others::Others;
use super::quiet::rounds;
use super::rig::PATIENCE;
use super::subject::Subject;
use crate::endpoint::{control, fault, serial};

/// A database that serves, and an operator that looks at it every second.
async fn serving(name: &str) -> (Subject, Spawned) {
    let mut subject = Subject::new(&unique(name)).await;
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.serving().await;
    (subject, operator)
}

/// What is asked for of the disk.
async fn wish(subject: &mut Subject, storage: &Value) {
    let storage = storage.as_object().unwrap().clone();
    subject.wish(move |spec| spec["storage"].as_object_mut().unwrap().extend(storage)).await;
}

/// Size, type, operations and throughput.
fn numbers(volume: &Volume) -> (u32, VolumeKind, Option<u32>, Option<u32>) {
    (volume.size_gib, volume.kind.clone(), volume.iops, volume.throughput)
}

/// The resource, once the condition says this of the disk in these words; and the text.
async fn told(subject: &Subject, expected: (&str, &str), words: &str) -> (QuestDB, String) {
    let api = subject.rig.as_admin();
    eventually(PATIENCE, &format!("{expected:?} of the disk, {words}"), async || {
        let found = api.get(&subject.name).await.unwrap();
        let (status, reason, text) = word(&found, condition::VOLUME_RESIZING)?;
        let text = text.to_owned();
        ((status, reason) == expected && text.contains(words)).then_some((found, text))
    })
    .await
}

/// Keeps EC2 from going on with the disk until it is given up.
async fn stuck(volume: &Volume, transition: &str) -> String {
    fault(&json!({ "kind": "stick", "transition": transition, "contains": volume.id.as_str() })).await
}

async fn give_up(fault: &str) {
    control("DELETE", &format!("/faults/{fault}"), &Value::Null).await;
}

fn serves(resource: &QuestDB) -> bool {
    word(resource, condition::READY).is_some_and(|(status, ..)| status == "True")
}

/// The number before the percent sign.
fn percent(text: &str) -> Option<u8> {
    text.split_once(" % done")?.0.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_faster_disk_is_one_change_told_until_ec2_is_done_and_the_next_one_waits_for_that() {
    let (mut subject, _operator) = serving("faster").await;
    let volume = subject.volume().await;
    assert_eq!(numbers(&volume), (20, VolumeKind::Gp3, Some(3_000), Some(125)));
    let (modifying, optimizing) =
        (stuck(&volume, "volume-modifying").await, stuck(&volume, "volume-optimizing").await);

    let since = serial().await;
    wish(&mut subject, &json!({ "iops": 4_000 })).await;
    // First that it is asked for, then what EC2 says of it.
    let api = subject.rig.as_admin();
    let found = eventually(PATIENCE, "a word that EC2 works on it", async || {
        let found = api.get(&subject.name).await.unwrap();
        let (status, reason, text) = word(&found, condition::VOLUME_RESIZING)?;
        let tells = (status, reason) == ("True", "Modifying") && text.contains("EC2 is changing vol-");
        tells.then_some(found)
    })
    .await;
    assert_eq!(found.status.as_ref().unwrap().phase, Some(Phase::Updating));
    assert!(serves(&found));
    assert_eq!(subject.volume().await.iops, Some(3_000));

    // It can be used: that is what was asked for, however long EC2 moves what lies on it.
    give_up(&modifying).await;
    subject.carried_out(Phase::Ready).await;
    let (_, text) = told(&subject, ("False", "Optimizing"), " % done").await;
    assert!(percent(&text).is_some_and(|percent| percent.is_multiple_of(10)), "{text}");
    assert_eq!(subject.volume().await.iops, Some(4_000));
    assert_eq!(changes(&volume, since).await, 1);

    let since = serial().await;
    wish(&mut subject, &json!({ "iops": 4_000, "throughput": 250 })).await;
    let words = "is to have 250 MiB/s as soon as EC2 has optimized it";
    let (found, _) = told(&subject, ("False", "Delayed"), words).await;
    assert!(serves(&found));
    assert_eq!(found.status.as_ref().unwrap().phase, Some(Phase::Updating));
    assert_eq!(changes(&volume, since).await, 0, "what EC2 is known to refuse is asked for");

    give_up(&optimizing).await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(numbers(&subject.volume().await), (20, VolumeKind::Gp3, Some(4_000), Some(250)));
    let (_, text) = told(&subject, ("False", "Done"), "").await;
    assert_eq!(text, "the disk is as asked for");
    assert_eq!(changes(&volume, since).await, 1);
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_becomes_another_one_by_one_change_a_wish_until_aws_takes_no_more_that_day() {
    let (mut subject, operator) = serving("another").await;
    let volume = subject.volume().await;
    let steps = [
        (json!({ "throughput": 250 }), (20, VolumeKind::Gp3, Some(3_000), Some(250))),
        (json!({ "type": "io2", "iops": 5_000 }), (20, VolumeKind::Io2, Some(5_000), None)),
        (json!({ "type": "gp3", "iops": 5_000 }), (20, VolumeKind::Gp3, Some(5_000), Some(125))),
        (
            json!({ "sizeGib": 30, "iops": 6_000, "throughput": 500 }),
            (30, VolumeKind::Gp3, Some(6_000), Some(500)),
        ),
    ];
    let last = steps[3].1.clone();
    for (storage, expected) in steps {
        let since = serial().await;
        wish(&mut subject, &storage).await;
        subject.carried_out(Phase::Ready).await;
        assert_eq!(numbers(&subject.volume().await), expected, "{storage}");
        told(&subject, ("False", "Done"), "").await;
        assert_eq!(changes(&volume, since).await, 1, "{storage}");
    }

    // The fifth of a day.
    let since = serial().await;
    let storage = json!({ "sizeGib": 40, "iops": 7_000, "throughput": 500 });
    let fifth = |cidr: &'static str| {
        let storage = storage.as_object().unwrap().clone();
        move |spec: &mut Value| {
            spec["storage"].as_object_mut().unwrap().extend(storage);
            spec["network"] = json!({ "allowedCidrs": [cidr] });
        }
    };
    subject.wish(fifth("10.9.0.0/16")).await;
    // A change that EC2 was too busy to answer is delayed as well, in other words.
    let (found, text) = told(&subject, ("False", "Delayed"), "VolumeModificationRateExceeded").await;
    assert!(text.contains("tried again after 2"), "{text}");
    assert!(serves(&found));
    let policies: Api<NetworkPolicy> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    eventually(PATIENCE, "the other part of the wish", async || {
        let found = policies.get(&format!("{}-questdb", subject.name)).await.unwrap();
        serde_json::to_string(&found.spec).unwrap().contains("10.9.0.0/16").then_some(())
    })
    .await;
    let passes = async || operator.metric("controller_runtime_reconcile_total", "").await;
    let wanted = passes().await + 1.0;
    eventually(PATIENCE, "another look", async || (passes().await >= wanted).then_some(())).await;
    assert_eq!(changes(&volume, since).await, 1, "what AWS allows now and then is asked for at every look");
    assert_eq!(numbers(&subject.volume().await), last);
    let found = subject.rig.as_admin().get(&subject.name).await.unwrap();
    assert_eq!(found.status.unwrap().phase, Some(Phase::Updating), "not all is done");

    // A day later. Another edit, so that the test need not wait for the next attempt.
    let day = control("POST", &format!("/volumes/{}/age", volume.id), &json!({ "seconds": 86_400 })).await;
    assert!(day["error"].is_null(), "{day}");
    let since = serial().await;
    subject.wish(fifth("10.8.0.0/16")).await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(numbers(&subject.volume().await), (40, VolumeKind::Gp3, Some(7_000), Some(500)));
    told(&subject, ("False", "Done"), "").await;
    assert_eq!(changes(&volume, since).await, 1);
    rounds(&operator, 3.0).await;
    assert_eq!(changes(&volume, since).await, 1);
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_a_disk_goes_to_another_zone_when_there_is_no_room_for_it_in_the_first() {
    let mut subject = Subject::new(&unique("room")).await;
    let token = ClientToken::new(&subject.rig.cluster, &subject.database, Role::Volume, 1);
    let full = fault(&json!({
        "kind": "fail", "action": "CreateVolume", "contains": token.as_str(), "code": "InsufficientVolumeCapacity",
        "status": 500,
    }))
    .await;
    let _others = Others::of(&subject.rig);
    // What was asked for in vain may show for so long: meanwhile it is told where there is no room. A busy machine may take long to
    // say so, and to look.
    let _operator = subject.rig.start_with_lag(Duration::from_secs(20)).await;
    subject.wish_run_state("Running").await;
    let api = subject.rig.as_admin();
    let text = eventually(PATIENCE, "a word on the zone", async || {
        let found = api.get(&subject.name).await.unwrap();
        let (status, _, text) = word(&found, condition::READY)?;
        (status == "False" && text.contains("asked for in another zone")).then(|| text.to_owned())
    })
    .await;
    assert!(text.contains("InsufficientVolumeCapacity"), "{text}");
    let first = subject.rig.zones().into_iter().find(|zone| text.contains(zone.as_str())).unwrap();
    let next = eventually(PATIENCE, "a machine in another zone", async || {
        subject.machines().await.into_iter().find(|machine| machine.zone != first)
    })
    .await;
    assert_eq!(subject.machines().await.len(), 1, "the one in {first} is ended first");
    give_up(&full).await;
    let served = subject.carried_out(Phase::Ready).await;
    subject.exists_once(&served).await;
    let (disk, machine) = (subject.volume().await, subject.machines().await.remove(0));
    assert_eq!((&disk.zone, &machine.id), (&next.zone, &next.id));
    assert_eq!(disk.tags.get(key::GENERATION), Some("2"));
    subject.purge_with_others().await;
}
