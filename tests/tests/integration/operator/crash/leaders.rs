//! The operators that lead in a life: one of them at a time, or two at once, each by a Lease of its own.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use resources::names;
use testkit::{Failpoint, Spawned, eventually};

use super::super::rig::Rig;
use crate::front::Front;

/// How long one may take until it leads, when many are led at once.
const LONG: Duration = Duration::from_mins(6);
/// How many passes over databases have ended.
const PASSES: &str = "controller_runtime_reconcile_time_seconds_count";
/// How many passes there are now.
const WORKERS: &str = "controller_runtime_active_workers";
/// How many steps were carried out.
const STEPS: &str = "slipway_operator_steps_total";

/// Those that lead now.
pub(super) struct Leaders {
    all: Vec<Spawned>,
    /// The namespace in which all of them believe to be.
    namespace: String,
    /// For each that leads at a time: the way to the API server, and where the Lease is for which nobody else competes.
    access: Vec<(PathBuf, String)>,
    /// Before those that have their Lease elsewhere: they end with it.
    _fronts: Vec<Front>,
}

impl Leaders {
    /// None yet; so many at a time.
    pub(super) async fn new(rig: &Rig, count: usize) -> Self {
        let namespace = rig.lease().await;
        let mut access = vec![(rig.rights(&namespace).await, namespace.clone())];
        let mut fronts = Vec::new();
        for _ in 1..count {
            let (front, lease) = apart(rig, &namespace).await;
            access.push((front.kubeconfig(&testkit::scratch()), lease));
            fronts.push(front);
        }
        Self { all: Vec::new(), namespace, access, _fronts: fronts }
    }

    /// Others. They need not wait for the end of the Leases of those before them: there are none any more.
    pub(super) async fn start(&mut self, rig: &Rig, places: &[&Failpoint], more: &[(&'static str, &str)]) {
        for (kubeconfig, lease) in &self.access {
            let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), lease);
            if leases.get_opt(names::OPERATOR).await.unwrap().is_some() {
                leases.delete(names::OPERATOR, &DeleteParams::default()).await.unwrap();
            }
            self.all.push(rig.spawn((&self.namespace, kubeconfig), places, more));
        }
        if self.all.len() > 1 {
            // One of them alone would be quick enough to do all of it before the other leads.
            join_all(self.all.iter().map(leads)).await;
        }
    }

    /// How many passes each has ended.
    pub(super) async fn passes(&self) -> Vec<f64> {
        join_all(self.all.iter().map(|operator| operator.metric(PASSES, ""))).await
    }

    /// Whether of each a pass ended after that, and it lives on. Of what is gone there is none any more: that one has ended which let
    /// it go.
    pub(super) async fn live_on(&self, before: &[f64], is_gone: bool) -> bool {
        let lives = self.all.iter().zip(before).map(async |(operator, before)| {
            let metrics = operator.metrics().await;
            let sum = |name: &str| testkit::spawned::sum(&metrics, name, "");
            // One that does not answer may be dying.
            if is_gone { !metrics.is_empty() && sum(WORKERS) < 1.0 } else { sum(PASSES) > *before }
        });
        join_all(lives).await.into_iter().all(|lives| lives)
    }

    /// None of those that lead at once has only looked on.
    pub(super) async fn worked(&self, whose: &str) {
        if self.all.len() < 2 {
            return;
        }
        let steps = self.all.iter().map(|operator| operator.metric(STEPS, r#"result="done""#));
        let steps = join_all(steps).await;
        println!("{whose}: steps of each leader {steps:?}");
        assert!(steps.iter().all(|steps| *steps > 0.0), "{whose}: {steps:?}");
    }

    /// They lead no more, and are the caller's to end.
    pub(super) fn take(&mut self) -> Vec<Spawned> {
        std::mem::take(&mut self.all)
    }
}

/// A way to the API server by which an operator that competes for the Lease of a namespace has one of its own, and where that is. All
/// else is as for those that compete for the other one: what they make says in which namespace the operator is.
pub(in super::super) async fn apart(rig: &Rig, namespace: &str) -> (Front, String) {
    let lease = rig.lease().await;
    let front = Front::before(&rig.rights(&lease).await).await;
    front.lease_elsewhere(namespace, &lease);
    (front, lease)
}

/// Waits until an operator leads.
async fn leads(operator: &Spawned) {
    eventually(LONG, "an operator to lead", async || {
        (operator.metric("leader_election_master_status", "").await > 0.0).then_some(())
    })
    .await;
}
