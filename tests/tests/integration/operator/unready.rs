//! A machine that joins and whose Node does not become ready, on the real API server and EC2: it is told, nothing is given to it, and
//! another one takes its place once a live look says that it is not ready still. Time goes by what the API server says of its clock.

use axum::http::Method;
use cloud::{InstanceState, Select, key};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use resources::Phase;
use resources::names::{self, condition};
use testkit::{eventually, unique};

use super::edits::behind;
use super::rig::{PATIENCE, patiently};
use super::subject::Subject;
use crate::front::Seen;

/// What is said of the Node, once it is for this reason and has these words.
async fn told(subject: &Subject, reason: &str, words: &str) -> String {
    eventually(PATIENCE, &format!("{reason}: {words}"), async || {
        let status = subject.rig.as_admin().get(&subject.name).await.unwrap().status?;
        let mut conditions = status.conditions.into_iter();
        let found = conditions.find(|found| found.type_ == condition::NODE_HEALTHY)?;
        (found.reason == reason && found.message.contains(words)).then_some(found.message)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_node_does_not_become_ready_is_told_and_another_takes_its_place() {
    let mut subject = Subject::new(&unique("sick")).await;
    let (_operator, front) = behind(&subject.rig).await;
    subject.wish_run_state("Running").await;
    subject.join_sick(1).await;
    told(&subject, "Waiting", "to become ready").await;
    front.set_ahead(SignedDuration::from_mins(7));
    let text = told(&subject, "NotReady", "5 minutes").await;
    assert!(text.contains(&format!("kubectl describe node {}", subject.node(1))), "{text}");
    let set = subject.sets().get_opt(&subject.name).await.unwrap();
    assert!(set.is_none(), "the database is pinned to what may never be of use: {set:?}");
    let first = subject.machines().await.remove(0);
    let path = format!("/api/v1/nodes/{}", subject.node(1));
    let is_look = |seen: &Seen| seen.method == Method::GET && seen.about() == path;
    assert_eq!(front.seen(is_look).len(), 0, "nothing is to be ended yet");

    front.set_ahead(SignedDuration::from_mins(17));
    subject.join(2).await;
    assert!(!front.seen(is_look).is_empty(), "it was ended, and nobody looked whether it is ready");
    let first = Select::one(first.id);
    let ended = patiently(|| subject.rig.aws.describe_instances(&first)).await;
    assert!(ended.iter().all(|machine| machine.state.is_ending()), "{ended:?}");
    subject.started().await;
    let served = subject.carried_out(Phase::Ready).await;
    subject.exists_once(&served).await;
    let unjoined = served.metadata.annotations.unwrap().get(names::UNJOINED).cloned();
    assert_eq!(unjoined.as_deref(), Some("1"));
    let second = subject.machines().await.remove(0);
    assert_eq!((second.tags.get(key::GENERATION), second.state), (Some("2"), InstanceState::Running));
    let nodes: Api<Node> = Api::all(subject.rig.admin.clone());
    eventually(PATIENCE, "the end of the first Node", async || {
        nodes.get_opt(&subject.node(1)).await.unwrap().is_none().then_some(())
    })
    .await;
    subject.purge().await;
}
