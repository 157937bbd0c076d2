//! What EC2 takes and then gives up by itself, as it does where an account may have no further disk or not use a key.

use cloud::{InstanceState, Select, key};
use resources::Phase;
use serde_json::{Value, json};
use testkit::unique;

use super::rig::patiently;
use super::stale::launches;
use super::subject::Subject;
use crate::endpoint::{control, fault, serial};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_ends_before_it_runs_is_followed_by_another() {
    const REASON: &str = "Client.VolumeLimitExceeded";
    let mut subject = Subject::new(&unique("given-up")).await;
    let spoilt = json!({ "kind": "spoil", "transition": "instance-pending", "contains": subject.database,
        "code": REASON, "times": 1 });
    let spoilt = fault(&spoilt).await;
    let since = serial().await;
    let _operator = subject.rig.start().await;
    subject.wish_run_state("Running").await;
    subject.join(2).await;
    // Asked at once: EC2 forgets ended machines after a while.
    let all = Select::cluster(&subject.rig.cluster);
    let all = patiently(|| subject.rig.aws.describe_instances(&all)).await;
    let first = all.iter().find(|machine| machine.tags.get(key::GENERATION) == Some("1"));
    let first = first.unwrap_or_else(|| panic!("no first machine: {all:?}"));
    assert_eq!((&first.state, first.state_reason.as_deref()), (&InstanceState::Terminated, Some(REASON)));
    let ended = control("DELETE", &format!("/faults/{spoilt}"), &Value::Null).await;
    assert_eq!(ended["fired"], 1, "{ended}");
    subject.started().await;
    let served = subject.carried_out(Phase::Ready).await;
    subject.exists_once(&served).await;

    let launches = launches(&subject.rig, since).await;
    let machines = launches.iter().filter(|launch| *launch == "RunInstances").count();
    assert_eq!(machines, 2, "{launches:?}");
    subject.purge().await;
}
