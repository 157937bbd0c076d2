//! Objects by which databases are reached within their cluster, as the operator sees them without asking.

mod others;

use std::sync::Arc;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::core::DynamicObject;
use plan::{Children, Kind, Subject};
use resources::{QuestDB, names};

use self::others::Others;
pub(crate) use self::others::{KINDS, api_resource};
use crate::caches::children;
use crate::kept::Kept;
use crate::store::{Key, Store};
use crate::watch::Wiring;

impl Kept for NetworkPolicy {
    type Brief = ();
}

impl Kept for PodDisruptionBudget {
    type Brief = ();

    /// Its controller counts pods in it.
    fn strip(&mut self) {
        self.status = None;
    }
}

/// Stores of everything watched.
#[derive(Clone)]
pub(crate) struct Reach {
    policies: Store<NetworkPolicy>,
    budgets: Store<PodDisruptionBudget>,
    others: Others,
}

impl Reach {
    /// Starts all watches.
    pub(crate) fn start(client: &Client, wiring: &Wiring, resources: &Store<QuestDB>) -> Self {
        Self {
            policies: children(client, wiring),
            budgets: children(client, wiring),
            others: Others::start(client, wiring, resources),
        }
    }

    /// Waits until it is known which kinds there are.
    pub(crate) async fn ready(&self) -> bool {
        self.others.ready().await
    }

    /// An object of a kind that a cluster may lack, whichever database's it is.
    pub(crate) fn route(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        self.others.one(kind, &Key::new(Some(namespace), name))
    }

    /// Adds the objects of one database to the others that were seen.
    pub(crate) fn fill(&self, children: &mut Children, subject: &Subject) {
        children.network_policy = get(&self.policies, subject);
        children.disruption_budget = get(&self.budgets, subject);
        self.others.fill(children, subject);
    }
}

fn get<K: Kept>(store: &Store<K>, subject: &Subject) -> Option<Arc<K>> {
    let found = store.get(&Key::new(Some(&subject.namespace), &names::guard(&subject.name)))?;
    subject.holds(found.meta()).then_some(found)
}
