//! Another name for a living database, against a Route 53 that answers late: there is no moment at which none leads to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud::{DnsRecord, HostedZoneId, RecordChange, RecordKind};
use resources::{DnsState, Phase, QuestDB};
use serde_json::json;
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, listed_again, patiently};
use super::subject::Subject;

/// Looks until stopped: whatever name is in force has to lead to the address. Tells which names it saw in force.
async fn looks(
    rig: Arc<Rig>,
    name: String,
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
) {
    // Route 53 limits the calls of all together, and the operator needs some of them.
    let mut beat = tokio::time::interval(Duration::from_millis(500));
    while !stop.load(Ordering::Relaxed) {
        beat.tick().await;
        let dns = rig.as_admin().get(&name).await.unwrap().status.unwrap().dns.unwrap();
        assert_eq!(dns.state, DnsState::InSync, "{dns:?}");
        let found = rig.records(&dns.name).await;
        let leads = found
            .iter()
            .any(|record| record.kind == RecordKind::A && record.values == std::slice::from_ref(&address));
        // Between the two looks it may have been given back.
        let still = rig.as_admin().get(&name).await.unwrap().status.unwrap().dns.unwrap().name;
        assert!(leads || still != dns.name, "{} leads nowhere: {found:?}", dns.name);
        let mut seen = seen.lock().unwrap();
        if seen.last() != Some(&dns.name) {
            seen.push(dns.name);
        }
    }
}

fn ready(resource: &QuestDB) -> &str {
    let conditions = &resource.status.as_ref().unwrap().conditions;
    &conditions.iter().find(|found| found.type_ == "Ready").unwrap().status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_database_gets_another_name_and_one_always_leads_to_it() {
    let mut subject = Subject::new(&unique("renamed")).await;
    let _operator = subject.rig.start().await;
    let born = subject.serving().await.status.unwrap().dns.unwrap();
    let (former, address) = (born.name, born.address.unwrap());
    let other = subject.rig.hostname(&format!("{}-anew", subject.name));
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let looking = tokio::spawn(looks(
        Arc::clone(&subject.rig),
        subject.name.clone(),
        address.clone(),
        Arc::clone(&seen),
        Arc::clone(&stop),
    ));
    eventually(PATIENCE, "a look before the change", async || {
        (!seen.lock().unwrap().is_empty() || looking.is_finished()).then_some(())
    })
    .await;

    subject.wish(|spec| spec["network"]["hostname"] = json!(other)).await;
    let renamed = subject.carried_out(Phase::Ready).await;
    stop.store(true, Ordering::Relaxed);
    looking.await.unwrap();
    assert_eq!(seen.lock().unwrap().first(), Some(&former));
    let status = renamed.status.clone().unwrap();
    let dns = status.dns.unwrap();
    assert_eq!((&dns.name, &dns.next, &dns.former), (&other, &None, &None));
    assert_eq!(status.endpoints.unwrap().http, format!("http://{other}:9000"));
    assert_eq!(subject.rig.records(&former).await, [], "the former name is given back");
    assert_eq!(subject.rig.records(&other).await.len(), 2);

    // A name that somebody else has is told, and what serves goes on.
    let taken = subject.rig.hostname(&format!("{}-taken", subject.name));
    let zone = HostedZoneId::new(subject.rig.zone());
    let theirs = DnsRecord::cname(&taken, 300, "elsewhere.example.org");
    let take = [RecordChange::Create(theirs.clone())];
    patiently(|| subject.rig.aws.change_records(&zone, &take)).await;
    subject.wish(|spec| spec["network"]["hostname"] = json!(taken)).await;
    eventually(PATIENCE, "the refusal", async || {
        let found = subject.rig.as_admin().get(&subject.name).await.ok()?;
        let conditions = found.status.as_ref()?.conditions.clone();
        let refused = conditions.iter().find(|found| found.type_ == "ConfigAccepted")?;
        let is = |kind: &str, status: &str| {
            conditions.iter().any(|found| found.type_ == kind && found.status == status)
        };
        // Whoever waits for the edit is told that it is not carried out.
        let ended = is("Progressing", "False") && is("Degraded", "True");
        (refused.reason == "NameTaken" && ready(&found) == "True" && ended).then_some(())
    })
    .await;
    assert_eq!(subject.rig.records(&taken).await, std::slice::from_ref(&theirs));
    assert_eq!(subject.rig.records(&other).await.len(), 2);
    let give = [RecordChange::Delete(theirs)];
    patiently(|| subject.rig.aws.change_records(&zone, &give)).await;
    // What was refused is looked at again now and then.
    eventually(PATIENCE, "the name that is free now", async || {
        let found = subject.rig.as_admin().get(&subject.name).await.ok()?;
        (found.status?.dns?.name == taken).then_some(())
    })
    .await;
    subject.carried_out(Phase::Ready).await;
    subject.purge().await;
    for name in [former, other, taken] {
        assert_eq!(subject.rig.records(&name).await, [], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_its_own_that_nobody_knows_of_is_given_back_at_rest() {
    let mut subject = Subject::new(&unique("leftover")).await;
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_ZONE_PERIOD", "1s")]);
    let born = subject.serving().await.status.unwrap().dns.unwrap();
    let before = subject.rig.records(&born.name).await;
    let text = before.iter().find(|record| record.kind == RecordKind::Txt).unwrap();
    let [left, foreign] =
        ["left", "foreign"].map(|word| subject.rig.hostname(&format!("{}-{word}", subject.name)));
    let ours = DnsRecord { name: left.clone(), ..text.clone() };
    let theirs = DnsRecord::txt(&foreign, 30, "heritage=slipway,cluster=other,database=other");
    let zone = HostedZoneId::new(subject.rig.zone());
    let changes = [ours, theirs.clone()].map(RecordChange::Create);
    listed_again(&operator).await;
    patiently(|| subject.rig.aws.change_records(&zone, &changes)).await;
    eventually(PATIENCE, "what is left to be given back", async || {
        subject.rig.records(&left).await.is_empty().then_some(())
    })
    .await;
    assert_eq!(subject.rig.records(&foreign).await, std::slice::from_ref(&theirs));
    let sorted = |mut records: Vec<DnsRecord>| {
        records.sort_by_key(|record| record.kind.to_string());
        records
    };
    assert_eq!(sorted(subject.rig.records(&born.name).await), sorted(before));
    let give = [RecordChange::Delete(theirs)];
    patiently(|| subject.rig.aws.change_records(&zone, &give)).await;
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_without_the_zone_ends_the_machine_and_says_what_it_waits_for() {
    let mut subject = Subject::new(&unique("zoneless")).await;
    let _others = Others::of(&subject.rig);
    let mut operator = subject.rig.start().await;
    subject.wish_run_state("Running").await;
    let born = subject.carried_out(Phase::Ready).await.status.unwrap().dns.unwrap();
    operator.kill().await.unwrap();

    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let gone = [("SLIPWAY_HOSTED_ZONE_ID", "Z0NONESUCH")];
    let zoneless = subject.rig.spawn((&lease, &kubeconfig), &[], &gone);
    subject.wish_run_state("Paused").await;
    eventually(PATIENCE, "word of the zone", async || {
        let status = subject.rig.as_admin().get(&subject.name).await.ok()?.status?;
        let step = status.steps.iter().find(|step| step.name == "dns-release")?;
        step.message.as_ref()?.contains("finds no hosted zone Z0NONESUCH").then_some(())
    })
    .await;
    subject.no_machine().await;
    assert!(!subject.is_carried_out(Phase::Paused).await);
    assert_eq!(subject.rig.records(&born.name).await.len(), 2, "what nobody sees is left as it is");

    drop(zoneless);
    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Paused).await;
    let left = subject.rig.records(&born.name).await;
    assert!(matches!(&left[..], [left] if left.kind == RecordKind::Txt), "{left:?}");
    subject.purge_with_others().await;
}
