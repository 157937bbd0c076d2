//! Another hand in AWS: who undoes a rule of a firewall, or changes a tag or a record, again and again is told, and what was there
//! comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::{DnsRecord, HostedZoneId, IngressRule, RecordChange, RecordKind, Tags, key};
use resources::Phase;
use resources::names::condition;
use serde_json::json;
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig};
use super::subject::Subject;

/// Who is let in, and by which port somebody else does not want that.
const RANGE: &str = "10.9.0.0/16";
const PORT: u16 = 9000;
/// Who is let in by the next wish.
const OTHER: &str = "10.10.0.0/16";

/// What is said of two writers, once it is this.
async fn told(subject: &Subject, what: &str, status: &str) -> String {
    let (api, name) = (subject.rig.as_admin(), subject.name.as_str());
    eventually(PATIENCE, what, async || {
        let found = api.get(name).await.unwrap().status?;
        let found = found.conditions.into_iter().find(|found| found.type_ == condition::CONTENDED)?;
        (found.status == status).then_some(found.message)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_undoes_a_rule_again_and_again_is_told_and_put_right_at_a_bounded_rate() {
    let mut subject = Subject::new(&unique("ruled")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let way = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &way), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": [RANGE] })).await;
    subject.carried_out(Phase::Ready).await;
    let (other, begun) = (tokio::spawn(undo(Arc::clone(&subject.rig))), Instant::now());
    let text = told(&subject, "a word about the other", "True").await;
    assert!(text.contains(&format!("tcp {PORT} from {RANGE} (sg-")), "{text}");
    // It is made once, and put right three times at most before it waits for its turn, which comes once a minute.
    let done = "step=\"AuthorizeIngress\",result=\"done\"";
    let repairs = eventually(PATIENCE, "repairs and what they are for to be counted", async || {
        let contended = operator.metric("slipway_contended_objects", "SecurityGroup").await;
        let repairs = operator.metric("slipway_operator_steps", done).await;
        (contended > 0.0 && repairs >= 2.0).then_some(repairs)
    })
    .await;
    let turns = (begun.elapsed().as_secs_f64() / 60.0).ceil();
    assert!(repairs <= 4.0 + turns, "{repairs} repairs, and {turns} minutes at most");

    // Another wish waits for nothing.
    other.abort();
    assert!(other.await.unwrap_err().is_cancelled());
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": [RANGE, OTHER] })).await;
    subject.carried_out(Phase::Ready).await;
    told(&subject, "that nobody else writes", "False").await;
    // What the other one had asked for when it ended may be done only now, and is put right like all else.
    eventually(PATIENCE, "both rules", async || {
        let group = subject.rig.groups().await.remove(0);
        let has = |range: &str| group.ingress.contains(&IngressRule::tcp(PORT, range));
        [RANGE, OTHER].into_iter().all(has).then_some(())
    })
    .await;
    subject.purge_with_others().await;
}

/// Between two looks of somebody else: soon after each repair, and not more of what EC2 answers in a second than others need.
const EACH: Duration = Duration::from_millis(200);

/// Somebody who wants nobody to come in by one rule, whatever it takes.
async fn undo(rig: Arc<Rig>) {
    let rule = [IngressRule::tcp(PORT, RANGE)];
    loop {
        for group in rig.groups().await {
            if group.ingress.contains(&rule[0]) {
                // What was refused, because AWS was busy, is tried again.
                let _ = rig.aws.revoke_ingress(&group.id, &rule).await;
            }
        }
        tokio::time::sleep(EACH).await;
    }
}

/// What somebody else calls the firewall.
const THEIRS: &str = "theirs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changes_a_tag_again_and_again_is_told_and_it_is_put_back_at_a_bounded_rate() {
    let mut subject = Subject::new(&unique("called")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let way = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &way), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let role = subject.rig.groups().await[0].tags.get(key::ROLE).unwrap().to_owned();
    let done = "step=\"Tag\",result=\"done\"";
    let before = operator.metric("slipway_operator_steps", done).await;
    let other = tokio::spawn(call_otherwise(Arc::clone(&subject.rig)));
    let text = told(&subject, "a word about the other", "True").await;
    assert!(text.contains("tags of sg-") && text.contains(&format!("{}={role}", key::ROLE)), "{text}");
    // Until it is known to be fought over it is put back every three seconds at most, for twenty.
    let repairs = eventually(PATIENCE, "repairs and what they are for to be counted", async || {
        let contended = operator.metric("slipway_contended_objects", "Tags").await;
        let repairs = operator.metric("slipway_operator_steps", done).await - before;
        (contended > 0.0 && repairs >= 3.0).then_some(repairs)
    })
    .await;
    assert!(repairs <= 20.0, "{repairs} repairs");

    other.abort();
    assert!(other.await.unwrap_err().is_cancelled());
    eventually(PATIENCE, "the tag to come back", async || {
        let group = subject.rig.groups().await.remove(0);
        (group.tags.get(key::ROLE) == Some(role.as_str())).then_some(())
    })
    .await;
    subject.purge_with_others().await;
}

/// Somebody who has another word for what the firewall is, whatever it takes.
async fn call_otherwise(rig: Arc<Rig>) {
    let theirs = Tags::new().with(key::ROLE, THEIRS);
    loop {
        for group in rig.groups().await {
            if group.tags.get(key::ROLE) != Some(THEIRS) {
                // What was refused, because AWS was busy, is tried again.
                let _ = rig.aws.create_tags(&[group.id.as_str()], &theirs).await;
            }
        }
        tokio::time::sleep(EACH).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changes_a_record_again_and_again_is_told_and_it_is_put_right_all_the_same() {
    let mut subject = Subject::new(&unique("pointed")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let way = subject.rig.rights(&lease).await;
    let often = [("SLIPWAY_RESYNC", "1s"), ("SLIPWAY_ZONE_PERIOD", "1s")];
    let operator = subject.rig.spawn((&lease, &way), &[], &often);
    subject.wish_run_state("Running").await;
    let name = subject.carried_out(Phase::Ready).await.status.unwrap().dns.unwrap().name;
    let records = subject.rig.records(&name).await;
    let ours = records.into_iter().find(|record| record.kind == RecordKind::A).unwrap();
    let other = tokio::spawn(lead_elsewhere(Arc::clone(&subject.rig), ours.clone()));
    let text = told(&subject, "a word about the other", "True").await;
    assert!(text.contains(&name) && text.contains("ChangeResourceRecordSets"), "{text}");
    eventually(PATIENCE, "it to be counted", async || {
        (operator.metric("slipway_contended_objects", "Records").await > 0.0).then_some(())
    })
    .await;

    other.abort();
    assert!(other.await.unwrap_err().is_cancelled());
    eventually(PATIENCE, "the address to come back", async || {
        subject.rig.records(&name).await.contains(&ours).then_some(())
    })
    .await;
    subject.purge_with_others().await;
}

/// Between two looks of somebody else at a name: all who use the account share a few requests to Route 53 a second.
const SELDOM: Duration = Duration::from_secs(2);

/// Somebody who wants a name to lead elsewhere, whatever it takes.
async fn lead_elsewhere(rig: Arc<Rig>, ours: DnsRecord) {
    let zone = HostedZoneId::new(rig.zone());
    let theirs = DnsRecord { values: vec!["192.0.2.9".to_owned()], ..ours.clone() };
    loop {
        if rig.records(&ours.name).await.contains(&ours) {
            // What was refused, because AWS was busy, is tried again.
            let _ = rig.aws.change_records(&zone, &[RecordChange::Upsert(theirs.clone())]).await;
        }
        tokio::time::sleep(SELDOM).await;
    }
}
