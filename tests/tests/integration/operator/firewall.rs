//! Another hand in AWS: who undoes a rule of a firewall, or changes a tag or a record, again and again is told, and what was there comes
//! back. And rules that AWS refuses, which nothing else waits for.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::{DnsRecord, HostedZoneId, IngressRule, RecordChange, RecordKind, Tags, key};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use resources::names::{self, condition};
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::apart::word;
use super::others::Others;
use super::rig::{PATIENCE, Rig};
use super::subject::Subject;
use crate::endpoint::{control, serial};

/// Who is let in, and by which port somebody else does not want that.
const RANGE: &str = "10.9.0.0/16";
const PORT: u16 = 9000;
/// Who is let in by the next wish.
const OTHER: &str = "10.10.0.0/16";

/// What is said of two writers, once it is this.
pub(super) async fn told(subject: &Subject, what: &str, status: &str) -> String {
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
pub(super) const EACH: Duration = Duration::from_millis(200);

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

/// What AWS says where a group would have more rules than it may.
const TOO_MANY: &str = "RulesPerSecurityGroupLimitExceeded";
/// Another machine than the first.
const MACHINE: &str = "m7i.xlarge";

/// Ranges, each of which takes two rules.
fn ranges(numbers: Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("10.{}.0.0/16", 100 + number)).collect()
}

/// The rules by which ranges come in.
fn rules(numbers: Range<u32>) -> Vec<IngressRule> {
    let ranges = ranges(numbers);
    let of = |range: &String| [8812, 9000].map(|port| IngressRule::tcp(port, range));
    let mut rules: Vec<IngressRule> = ranges.iter().flat_map(of).collect();
    rules.sort();
    rules
}

async fn resource(subject: &Subject) -> QuestDB {
    subject.rig.as_admin().get(&subject.name).await.unwrap()
}

/// Waits until both fences let in these, as far as each can.
async fn fenced(subject: &Subject, by_rules: Range<u32>, by_policy: Range<u32>) {
    let policies: Api<NetworkPolicy> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    eventually(PATIENCE, &format!("rules of {by_rules:?} and a policy of {by_policy:?}"), async || {
        let policy = policies.get(&names::guard(&subject.name)).await.unwrap();
        let policy = json!(policy.spec).to_string();
        let lets_in = |number: u32| policy.contains(&ranges(number..number + 1)[0]);
        let is_fenced = (0..40).all(|number| lets_in(number) == by_policy.contains(&number));
        let group = subject.rig.groups().await.remove(0);
        (is_fenced && group.ingress == rules(by_rules.clone())).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_taken_out_goes_and_the_database_moves_while_aws_refuses_more_rules() {
    let mut subject = Subject::new(&unique("crowded")).await;
    let (_others, _operator) = (Others::of(&subject.rig), subject.rig.start().await);
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ranges(0..30) })).await;
    subject.carried_out(Phase::Ready).await;
    fenced(&subject, 0..30, 0..30).await;
    let since = serial().await;
    subject
        .wish(|spec| {
            spec["network"] = json!({ "allowedCidrs": ranges(1..32) });
            spec["compute"] = json!({ "instanceType": MACHINE });
        })
        .await;
    fenced(&subject, 1..31, 1..32).await;
    let found = eventually(PATIENCE, "a word about who is not let in", async || {
        let found = resource(&subject).await;
        (word(&found, condition::DEGRADED)?.1 == "FurtherRules").then_some(found)
    })
    .await;
    let (status, _, text) = word(&found, condition::DEGRADED).unwrap();
    assert!(status == "True" && text.contains(TOO_MANY), "{text}");
    let named: Vec<String> = ranges(0..40).into_iter().filter(|range| text.contains(range)).collect();
    assert_eq!(named, ranges(31..32), "{text}");
    eventually(PATIENCE, "the move to be done", async || {
        let machines = subject.rig.instances().await;
        let is_ready = word(&resource(&subject).await, condition::READY)?.0 == "True";
        (is_ready && machines.len() == 1 && machines[0].instance_type == MACHINE).then_some(())
    })
    .await;
    fenced(&subject, 1..31, 1..32).await;
    // It takes many passes, and what is refused is not asked for at each.
    let refused = refusals(since).await;
    assert!((1..=8).contains(&refused), "{refused}");

    subject
        .wish(|spec| {
            spec["network"] = json!({ "allowedCidrs": ranges(2..32) });
            spec["compute"] = json!({ "instanceType": MACHINE });
        })
        .await;
    let served = subject.carried_out(Phase::Ready).await;
    assert_eq!(word(&served, condition::DEGRADED).unwrap().0, "False");
    fenced(&subject, 2..32, 2..32).await;
    subject.purge_with_others().await;
}

/// How often AWS refused since then to let in the last range.
async fn refusals(since: u64) -> usize {
    let path = format!("/journal?since={since}&action=AuthorizeSecurityGroupIngress");
    let answer = control("GET", &path, &Value::Null).await;
    let calls = answer["calls"].as_array().unwrap().iter();
    let last = ranges(31..32).remove(0);
    calls.filter(|call| call["result"] == TOO_MANY && call["params"].to_string().contains(&last)).count()
}
