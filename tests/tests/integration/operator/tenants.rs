//! What one tenant names and another has: snapshots, disks, names in DNS, hosts of routes, images. It is refused with the rule, and
//! whoever has it keeps it.

use std::sync::Arc;

use cloud::RecordKind;
use futures::future::join_all;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use resources::names::condition;
use resources::{DnsState, Phase, SnapshotPhase};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::foreign::DEFINING;
use super::hands::{define_routes, undefine_routes};
use super::identity::{operator, owned};
use super::others::Others;
use super::rig::{PATIENCE, Rig};
use super::snapshots::{copies, settled, take};
use super::source::{is_told, purge, wish_from};
use super::subject::Subject;

/// Waits until a condition of a resource has this status and reason, in words that name all of these.
async fn told(subject: &Subject, kind: &str, (status, reason): (&str, &str), words: &[&str]) {
    let api = subject.rig.as_admin();
    let what = format!("{kind} of {} to be {status} ({reason}) for {words:?}", subject.name);
    eventually(PATIENCE, &what, async || {
        let resource = api.get(&subject.name).await.ok()?;
        let conditions = &resource.status.as_ref()?.conditions;
        let found = conditions.iter().find(|found| found.type_ == kind)?;
        let is_so = (found.status.as_str(), found.reason.as_str()) == (status, reason);
        (is_so && words.iter().all(|word| found.message.contains(word))).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_begins_with_the_snapshot_or_the_disk_of_another_namespace() {
    let mut owner = Subject::new(&unique("owner")).await;
    let others = Others::of(&owner.rig);
    let beside = Arc::new(owner.rig.beside().await);
    let _operator = operator(&owner.rig, &beside).await;
    for (run_state, phase) in [("Running", Phase::Ready), ("Paused", Phase::Paused)] {
        owner.wish_run_state(run_state).await;
        owner.carried_out(phase).await;
    }
    take(&owner, "last", "Retain").await;
    settled(&owner, "last", SnapshotPhase::Succeeded).await;
    owner.no_machine().await;
    let (copy, disk) = (copies(&owner).await.remove(0), owner.volume().await.id);
    let (_, before, _) = owned(&owner.rig).await;

    let named = [
        (json!({ "snapshot": "last" }), "no copy that was made for a QuestDBSnapshot of that name"),
        (json!({ "snapshotId": copy.id.as_str() }), "is not known to belong to this namespace"),
        (json!({ "volumeId": disk.as_str() }), "is not known to belong to this namespace"),
        (json!({ "snapshotId": "snap-0123456789abcdef0" }), "none of that id in this account and region"),
    ];
    let mut refused = Vec::new();
    for (source, rule) in &named {
        let mut other = Subject::within(&beside, &unique("other"));
        wish_from(&mut other, source, copy.size_gib).await;
        is_told(&other, rule).await;
        refused.push((other, source));
    }
    let (machines, disks, _) = owned(&owner.rig).await;
    assert!(machines.is_empty(), "{machines:?}");
    assert_eq!(disks, before, "nothing was made of it, and nothing was written to it");
    let purges = refused.iter_mut().map(|(other, source)| purge(other, source, copy.size_gib));
    join_all(purges).await;
    let (_, disks, groups) = owned(&owner.rig).await;
    assert_eq!((disks, groups.len()), (before, 1), "nor is anything destroyed by who named it");
    assert_eq!(copies(&owner).await, [copy]);
    owner.purge_with_others().await;
    beside.end().await;
    drop(others);
}

/// Has a resource looked at now: of what somebody else has nobody tells when it is given back.
async fn look(subject: &Subject) {
    let note = json!({ "metadata": { "annotations": { "example.com/look": unique("look") } } });
    let api = subject.rig.as_admin();
    api.patch(&subject.name, &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_whose_it_was_first_in_every_namespace_and_cluster() {
    let mut owner = Subject::new(&unique("owner")).await;
    let (beside, elsewhere) = (Arc::new(owner.rig.beside().await), Arc::new(Rig::new().await));
    let _operators = (operator(&owner.rig, &beside).await, elsewhere.start().await);
    owner.serving().await;
    let name = owner.rig.hostname(&owner.name);
    let before = owner.rig.records(&name).await;
    assert_eq!(before.len(), 2, "{before:?}");

    let mut others = [&beside, &elsewhere].map(|rig| Subject::within(rig, &unique("other")));
    for other in &mut others {
        other.wish(|spec| spec["network"] = json!({ "hostname": name })).await;
        other.helped().await;
        told(other, condition::CONFLICT, ("True", "Dns"), &[name.as_str(), "is not ours"]).await;
    }
    assert_eq!(owner.rig.records(&name).await, before);
    assert!(owner.is_carried_out(Phase::Ready).await);

    // Given back, it goes to one of them.
    owner.purge().await;
    join_all(others.iter().map(look)).await;
    let has = async |other: &Subject| {
        let dns = other.rig.as_admin().get(&other.name).await.ok()?.status?.dns?;
        (dns.state == DnsState::InSync).then_some(other.database.clone())
    };
    let winner = eventually(PATIENCE, "one of them to have it", async || match has(&others[0]).await {
        None => has(&others[1]).await,
        winner => winner,
    })
    .await;
    let records = elsewhere.records(&name).await;
    let owners = records.iter().filter(|record| record.kind == RecordKind::Txt);
    let owners: Vec<_> = owners.flat_map(cloud::DnsRecord::texts).collect();
    assert!(owners.len() == 1 && owners[0].ends_with(&winner), "{records:?}");
    for other in &others {
        if other.database == winner {
            other.carried_out(Phase::Ready).await;
        } else {
            assert!(!other.is_carried_out(Phase::Ready).await, "{} has it too", other.name);
        }
    }
    // Once the winner goes, the other one may have it.
    for other in &mut others {
        other.purge().await;
    }
    assert_eq!(elsewhere.records(&name).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_machine_is_launched_from_another_image() {
    let mut subject = Subject::new(&unique("image")).await;
    let _operator = subject.rig.start().await;
    subject.wish(|spec| spec["compute"] = json!({ "nodeImage": "ami-0123456789abcdef0" })).await;
    let words = ["/spec/compute/nodeImage", "must be one of", "Nothing was changed"];
    told(&subject, condition::CONFIG_ACCEPTED, ("False", "Invalid"), &words).await;
    let (machines, disks) = (subject.rig.instances().await, subject.rig.volumes().await);
    assert!(machines.is_empty() && disks.is_empty(), "{machines:?} {disks:?}");
    subject.wish_run_state("Purged").await;
    subject.carried_out(Phase::Deleted).await;
    subject.rig.end().await;
}

fn asking(host: Option<&str>) -> Value {
    let mut ingress = json!({ "http": { "entryPoints": ["websecure"] } });
    if let Some(host) = host {
        ingress["host"] = json!(host);
    }
    json!({ "ingress": ingress })
}

fn host_of(route: &DynamicObject) -> String {
    let rule = route.data.pointer("/spec/routes/0/match").and_then(Value::as_str).unwrap();
    rule.split('`').nth(1).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_of_another_database_gets_no_second_route() {
    let _defining = DEFINING.lock().await;
    let mut first = Subject::new(&unique("first")).await;
    let (rig, others) = (Arc::clone(&first.rig), Others::of(&first.rig));
    let kind = define_routes(&rig.admin).await;
    let routes: Api<DynamicObject> = Api::namespaced_with(rig.admin.clone(), &rig.namespace, &kind);
    let lease = rig.lease().await;
    let kubeconfig = rig.rights(&lease).await;
    let _operator = rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    first.wish(|spec| spec["network"] = asking(None)).await;
    let route = eventually(PATIENCE, "its route", async || routes.get_opt(&first.name).await.ok()?).await;
    let host = host_of(&route);

    let mut second = Subject::within(&rig, &unique("second"));
    second.wish(|spec| spec["network"] = asking(Some(&host))).await;
    // Nothing else waits for it.
    second.carried_out(Phase::Ready).await;
    let words = [first.name.as_str(), host.as_str(), "spec.network.ingress.http"];
    told(&second, condition::INTEGRATIONS_READY, ("False", "HostTaken"), &words).await;
    assert!(routes.get_opt(&second.name).await.unwrap().is_none(), "a second route to one host");
    first.carried_out(Phase::Ready).await;
    let now = routes.get(&first.name).await.unwrap();
    assert_eq!(now.metadata.resource_version, route.metadata.resource_version, "it was touched");

    // Given back, it goes to who waits for it.
    first.wish(|_| {}).await;
    let given =
        eventually(2 * PATIENCE, "the route", async || routes.get_opt(&second.name).await.ok()?).await;
    assert_eq!(host_of(&given), host);
    told(&second, condition::INTEGRATIONS_READY, ("True", "Known"), &[]).await;

    // A route that is nobody's of ours, under the name of one.
    let mut third = Subject::within(&rig, &unique("third"));
    let theirs = DynamicObject::new(&third.name, &kind).data(json!({ "spec": { "routes": [] } }));
    let theirs = routes.create(&PostParams::default(), &theirs).await.unwrap();
    third.wish(|spec| spec["network"] = asking(None)).await;
    told(&third, condition::DEGRADED, ("True", "Reach"), &[third.name.as_str(), "is not ours"]).await;
    let now = routes.get(&third.name).await.unwrap();
    assert_eq!(now.metadata.resource_version, theirs.metadata.resource_version, "it was taken over");
    for subject in [&mut third, &mut second] {
        subject.wish_purged().await;
        subject.carried_out(Phase::Deleted).await;
    }
    first.purge_with_others().await;
    undefine_routes(&rig.admin).await;
    drop(others);
}
