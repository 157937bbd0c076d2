//! Who lost the lease acts no more, from that very moment; and should two act at once all the same, no harm is done: what
//! must not be done twice is refused by the API server and by AWS.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use resources::{Phase, names};
use serde_json::Value;
use testkit::{Failpoint, Spawned, eventually, unique};

use super::crash::apart;
use super::rig::{PATIENCE, Rig};
use super::subject::Subject;
use crate::endpoint::{control, serial};
use crate::front::{Act, Front, Seen};

/// How long a lease lasts that nobody renews.
const LASTS: SignedDuration = SignedDuration::from_secs(15);
/// How long after the last renewal somebody else leads, at most: a look that finds it, a lease from there on, and a look after that.
const TAKEN_WITHIN: SignedDuration = SignedDuration::from_secs(20);
/// Between two looks of who does not lead, with what one of them takes.
const BEAT: Duration = Duration::from_millis(2_200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_slept_until_somebody_else_led_changes_nothing_when_it_wakes() {
    let mut subject = Subject::new(&unique("slept")).await;
    let (lease, folder) = (subject.rig.lease().await, testkit::scratch());
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    // It has looked, there is no machine, and the next thing that it does is to launch one.
    let place = Failpoint::hold("operator.launch", &subject.database, &folder);
    let mut sleeper = subject.rig.spawn((&lease, &front.kubeconfig(&folder)), &[&place], &[]);
    let led = holder(&subject.rig, &lease, "").await;
    subject.wish_run_state("Running").await;
    place.fired().await;
    let beside = Front::before(&subject.rig.rights(&lease).await).await;
    let heir = subject.rig.spawn((&lease, &beside.kubeconfig(&folder)), &[], &[]);
    heir.ready().await;
    // It made the lease, and renews it two seconds later at the earliest.
    eventually(PATIENCE, "a renewal", async || {
        let renews = |seen: &Seen| seen.is_of_lease() && seen.method == Method::PUT;
        (!front.seen(renews).is_empty()).then_some(())
    })
    .await;
    sleeper.halt().await.unwrap();
    holder(&subject.rig, &lease, &led).await;
    was_taken_in_time(&subject.rig, &lease, (&front, &beside)).await;
    let served = subject.served().await;
    subject.exists_once(&served).await;

    let (before, woken) = (serial().await, Instant::now());
    place.release().unwrap();
    sleeper.resume().await.unwrap();
    let (well, log) = sleeper.end(PATIENCE).await.unwrap();
    assert!(!well && log.contains("leadership was lost"), "{log}");
    let written = front.seen(|seen: &Seen| seen.at >= woken && seen.is_write());
    assert!(written.is_empty(), "{written:?}");
    assert_eq!(changes(&subject.rig, before).await, Vec::<String>::new());
    subject.exists_once(&served).await;
    eventually(PATIENCE, "the heir to lead and work", async || working(&heir).await.then_some(())).await;
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_leaders_at_once_make_and_take_away_everything_once() {
    let mut subject = Subject::new(&unique("two")).await;
    let one = subject.rig.lease().await;
    let (front, other) = apart(&subject.rig, &one).await;
    let ways = [subject.rig.rights(&one).await, front.kubeconfig(&testkit::scratch())];
    let leaders = ways.map(|way| subject.rig.spawn((&one, &way), &[], &[]));
    let leases = [one, other];
    // One of them alone would be quick enough to make everything before the other leads.
    for lease in &leases {
        holder(&subject.rig, lease, "").await;
    }
    let served = subject.serving().await;
    subject.exists_once(&served).await;
    subject.wish(|spec| spec["network"] = serde_json::json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    let served = subject.carried_out(Phase::Ready).await;
    subject.exists_once(&served).await;
    for leader in &leaders {
        eventually(PATIENCE, "both to lead and work", async || working(leader).await.then_some(())).await;
    }
    let machine = subject.rig.instances().await.remove(0);
    assert_eq!(machine.tags.get(cloud::key::GENERATION), Some("1"), "no launch was given up");
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_asked_to_end_gives_the_lease_back_and_each_change_is_counted() {
    let rig = Rig::new().await;
    let lease = rig.lease().await;
    let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), &lease);
    let record = async || leases.get(names::OPERATOR).await.unwrap().spec.unwrap();
    let way = rig.rights(&lease).await;
    let mut leader = rig.spawn((&lease, &way), &[], &[("HOSTNAME", "operator-a")]);
    let mut led = holder(&rig, &lease, "").await;
    assert!(led.starts_with("operator-a_"), "a person is told which pod leads: {led}");
    // There are two seconds to give it back. Where the API server is too busy for that it runs out, and the next one is asked.
    for _ in 0..3 {
        let before = record().await;
        assert_eq!(before.lease_duration_seconds, Some(15));
        let heir = rig.spawn((&lease, &way), &[], &[]);
        heir.ready().await;
        leader.terminate(PATIENCE).await.unwrap();
        let is_given_back = record().await.holder_identity.as_deref() != Some(led.as_str());
        let next = holder(&rig, &lease, &led).await;
        let after = record().await;
        assert_eq!(after.lease_transitions, before.lease_transitions.map(|times| times + 1));
        assert!(after.acquire_time > before.acquire_time, "{before:?}, then {after:?}");
        if is_given_back {
            rig.end().await;
            return;
        }
        (leader, led) = (heir, next);
    }
    panic!("each of them left the next one to wait for the lease's end");
}

/// One that got no answer is carried out between the look of the next one and its write, which is refused then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_carried_out_late_costs_no_leadership() {
    let rig = Rig::new().await;
    let lease = rig.lease().await;
    let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), &lease);
    let record = async || leases.get(names::OPERATOR).await.unwrap().spec.unwrap();
    let front = Front::before(&rig.rights(&lease).await).await;
    let operator = rig.spawn((&lease, &front.kubeconfig(&testkit::scratch())), &[], &[]);
    let led = holder(&rig, &lease, "").await;
    let before = record().await;
    let is_renewal = |seen: &Seen| seen.is_of_lease() && seen.method == Method::PUT;
    let once = AtomicBool::new(true);
    front.set(move |seen| {
        let strikes = is_renewal(seen) && once.swap(false, Ordering::Relaxed);
        if strikes { Act::Twice } else { Act::Pass }
    });
    front.fired(1).await;
    let struck = Instant::now();
    eventually(PATIENCE, "further renewals", async || {
        let renewed = front.seen(|seen: &Seen| seen.at >= struck && is_renewal(seen)).len();
        (renewed > 3).then_some(())
    })
    .await;
    let after = record().await;
    assert_eq!(after.holder_identity.as_ref(), Some(&led));
    assert_eq!(
        (after.acquire_time, after.lease_transitions),
        (before.acquire_time, before.lease_transitions)
    );
    assert!(after.renew_time > before.renew_time, "it was renewed");
    drop(operator);
    rig.end().await;
}

/// By its record the lease was taken when it had ended, and soon then. Time in which the last renewal was on its way, the heir's looks
/// came late, or its write after the last of them, does not count: the processors are busy with other tests.
async fn was_taken_in_time(rig: &Rig, lease: &str, (before, heir): (&Front, &Front)) {
    let of_lease = |seen: &Seen| seen.is_of_lease() && seen.about().contains(lease);
    let renewal = before.seen(|seen| of_lease(seen) && seen.method == Method::PUT).pop().expect("a renewal");
    let renewed: Lease = serde_json::from_str(&renewal.body).unwrap();
    let renewed = renewed.spec.unwrap().renew_time.unwrap();
    let came = Timestamp::now() - SignedDuration::try_from(renewal.at.elapsed()).unwrap();
    let on_its_way = came.duration_since(renewed.0).max(SignedDuration::ZERO);
    let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), lease);
    let taken = leases.get(names::OPERATOR).await.unwrap().spec.unwrap().acquire_time.unwrap();
    let asked = heir.seen(|seen| of_lease(seen) && seen.at > renewal.at);
    // One that got no answer in time, and was not carried out, took nothing.
    let is_it = |seen: &Seen| acquire_time(seen).is_some_and(|time| time == taken);
    let write = asked.iter().position(is_it).expect("it took the lease");
    let mut last = renewal.at;
    let mut gaps = Vec::new();
    for look in &asked[..write] {
        gaps.push(look.at.duration_since(last));
        last = look.at;
    }
    let late: Duration = gaps.iter().map(|gap| gap.saturating_sub(BEAT)).sum();
    let late = late + asked[write].at.duration_since(last);
    let took = taken.0.duration_since(renewed.0);
    assert!(took >= LASTS, "led {took:?} after the last renewal");
    let late = on_its_way + SignedDuration::try_from(late).unwrap();
    let most = TAKEN_WITHIN + late;
    assert!(took <= most, "led only {took:?} after the last renewal, {late:?} of it late: {gaps:?}");
    gaps.sort_unstable();
    assert!(gaps[gaps.len() / 2] < 2 * BEAT, "it looks too seldom: {gaps:?}");
}

/// When the term begins of which a write of a Lease tells.
fn acquire_time(write: &Seen) -> Option<MicroTime> {
    let written = (write.method == Method::PUT).then(|| serde_json::from_str::<Lease>(&write.body));
    written?.ok()?.spec?.acquire_time
}

/// Who holds a lease, once it is another than this.
async fn holder(rig: &Rig, lease: &str, than: &str) -> String {
    let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), lease);
    eventually(PATIENCE, "a leader", async || {
        let found = leases.get_opt(names::OPERATOR).await.unwrap()?;
        found.spec?.holder_identity.filter(|holder| !holder.is_empty() && holder != than)
    })
    .await
}

/// Whether an operator leads and has worked.
pub(super) async fn working(operator: &Spawned) -> bool {
    let leads = operator.metric("leader_election_master_status", "").await;
    let passes = operator.metric("controller_runtime_reconcile_time_seconds_count", "").await;
    leads > 0.0 && passes > 0.0
}

/// Calls that changed something of the rig's cluster in AWS since then.
async fn changes(rig: &Rig, since: u64) -> Vec<String> {
    let answer = control("GET", &format!("/journal?since={since}"), &Value::Null).await;
    let calls = answer["calls"].as_array().unwrap().iter();
    let of_rig = calls.filter(|call| call["params"].to_string().contains(&rig.cluster));
    let actions = of_rig.filter_map(|call| call["action"].as_str());
    actions.filter(|action| !action.starts_with("Describe")).map(ToOwned::to_owned).collect()
}
