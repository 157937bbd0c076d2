//! The world as far as one database is concerned. Plain values; somebody else looked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloud::{
    DnsChange, DnsRecord, Instance, InstanceId, Protection, SecurityGroup, Volume, VolumeModification,
    VolumeSnapshot,
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::core::DynamicObject;
use resources::{QuestDB, QuestDBSnapshot};

use crate::references::References;
use crate::rehearsal;
use crate::secrets::Secrets;
use crate::{Agreement, Goal, Kind, Mistagged, Part, Rival, Source, SuspendedTables, Validated};

/// Everything observed.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// In Kubernetes.
    pub children: Children,
    /// Secrets that others made for it.
    pub secrets: Secrets,
    /// Secrets and `ConfigMaps` that its pod names.
    pub references: References,
    /// In EC2.
    pub account: Account,
    /// In Route 53.
    pub dns: Dns,
    /// Keys of server.conf that QuestDB lists, where it was asked ([`crate::is_to_list_keys`]).
    pub listed_keys: Option<Arc<BTreeSet<String>>>,
    /// Which WAL tables QuestDB has suspended, by the last word of the pod that there is; nothing where it has not said so yet.
    pub suspended_tables: Option<SuspendedTables>,
    /// Routes of other databases to the host of this one's.
    pub rivals: Vec<Rival>,
    /// What this process remembers of its own attempts. Losing it costs a repeated call, never a duplicate.
    pub memory: Memory,
    /// When this was looked at.
    pub at: Timestamp,
}

/// Kubernetes objects of the database, ours by label.
#[derive(Clone, Debug, Default)]
pub struct Children {
    /// Credentials.
    pub secret: Option<Arc<Secret>>,
    /// server.conf.
    pub config: Option<Arc<ConfigMap>>,
    /// The Service that clients in the cluster use.
    pub service: Option<Arc<Service>>,
    /// The Service that names the pod.
    pub headless: Option<Arc<Service>>,
    /// The StatefulSet.
    pub stateful_set: Option<Arc<StatefulSet>>,
    /// Its pod.
    pub pod: Option<Arc<Pod>>,
    /// The claim.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
    /// Volumes with our label.
    pub persistent_volumes: Vec<Arc<PersistentVolume>>,
    /// Nodes with our label.
    pub nodes: Vec<Arc<Node>>,
    /// Attachments of our volumes, to whatever node.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// Who may come in.
    pub network_policy: Option<Arc<NetworkPolicy>>,
    /// What keeps a drain from it.
    pub disruption_budget: Option<Arc<PodDisruptionBudget>>,
    /// The copy of the disk that an upgrade waits for ([`crate::copy_to_look_at`]).
    pub copy: Option<Arc<QuestDBSnapshot>>,
    /// The latest order for a last copy of the disk ([`crate::last_copy_to_look_at`]).
    pub last_copy: Option<Arc<QuestDBSnapshot>>,
    /// Why it is not known which copies there are; nothing when it is.
    pub copies_unseen: Option<Unseen>,
    /// Which of the kinds that a cluster may lack it knows, and lets us see in the namespace of the database.
    pub served: BTreeSet<Kind>,
    /// Those of the other kinds of which it is not known what there is. What is in neither, the cluster does not know.
    pub unseen: BTreeMap<Kind, Unseen>,
    /// Objects of the kinds that are served.
    pub others: Vec<(Kind, Arc<DynamicObject>)>,
}

/// Why it is not known what there is of a kind. It is never taken for "there is none".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It was not listed yet, or its watch broke a moment ago: it comes by itself.
    Yet,
    /// Its watch has been broken for long: what is so, in words that stay the same.
    Broken(String),
    /// The API server refuses to show it: what is missing and what to do.
    Refused(String),
}

/// What the database owns in EC2, by tag.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Instances, terminated ones included.
    pub instances: Vec<Instance>,
    /// Machines that something still names, and that EC2 does not know, asked by their ids: it has forgotten them.
    pub gone: Vec<InstanceId>,
    /// Volumes.
    pub volumes: Vec<Volume>,
    /// Security groups.
    pub groups: Vec<SecurityGroup>,
    /// Whether what is not among these does not exist. EC2 shows what was created only after a while and may answer from
    /// the past, so a look proves absence only when it was begun long enough after the last thing was asked for.
    pub conclusive: bool,
    /// Why the database may be in another account or region than the one that was asked, in words for people: then no look is
    /// conclusive.
    pub elsewhere: Option<String>,
    /// What has other tags than ours; above it is shown as if it had ours ([`crate::put_right`]).
    pub mistagged: Vec<Mistagged>,
    /// The latest modification of the volume, when it was asked for.
    pub modification: Option<VolumeModification>,
    /// Why EC2 did not tell of that, where it was asked and may tell when it is asked again.
    pub modification_untold: Option<String>,
    /// Last copies of the disk, when they were asked for ([`crate::copies_to_look_at`]).
    pub copies: Vec<VolumeSnapshot>,
    /// What the first disk is to be made from, when it was asked for ([`crate::source_to_look_at`]).
    pub source: Option<Source>,
    /// Protection of the instance that is to serve, when it was asked for ([`crate::machine_to_check`]).
    pub protection: Option<Protection>,
    /// Whether the picture that all share is older than what was seen of a database at rest: it is looked at again within minutes.
    pub untold: bool,
}

/// What Route 53 holds under the database's name.
#[derive(Clone, Debug, Default)]
pub struct Dns {
    /// Every record of the name in force; of all names of a database that gives them back. `None` when nobody asked,
    /// because nothing is to be decided.
    pub records: Option<Vec<DnsRecord>>,
    /// Every record of a name beside the one in force: of one that is to take its place, or that is given back.
    pub beside: Option<Vec<DnsRecord>>,
    /// The change that status says is waited for.
    pub change: Option<DnsChange>,
    /// That Route 53 says nothing of a name that it was asked for, where only people cure that.
    pub withheld: Option<Withheld>,
    /// Records of a name that nobody knows of any more and that is ours: of a database at rest, whose zone is looked through.
    pub left: Vec<DnsRecord>,
    /// Whether the picture of the zone tells nothing of a database at rest: it is looked at again within minutes.
    pub untold: bool,
}

/// Why Route 53 says nothing of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Why, and what to do.
    pub why: String,
    /// Whether there is no such zone, so that no name of it leads anywhere; else the operator has no right to it.
    pub is_gone: bool,
}

/// What was learnt by trying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// A generation whose token gives no machine any more.
    pub spent: Option<u64>,
    /// Zones that had no capacity for a machine, latest last.
    pub exhausted_zones: Vec<String>,
    /// Zones that had none for the disk, latest last.
    pub zones_without_volumes: Vec<String>,
    /// Parts whose last attempt failed, and that are not tried again for a while.
    pub resting: Vec<Part>,
    /// Parts that were refused when they were last tried under this wish, whether or not it is time to try them again.
    pub refused: Vec<Part>,
    /// What an earlier plan found to be as intended ([`crate::Plan::agreed`]).
    pub agreed: Vec<Agreement>,
    /// Whether the annotation with the identity is left to somebody who writes another one again and again. Status holds it.
    pub identity_left: bool,
}

/// Whether anything that is decided or said of a database may rest on its `ConfigMap` or its claim. While it is paused both stay as they
/// are, and need not be looked at, unless it is asked what another spec would take.
pub fn rests_on_all(resource: &QuestDB, validated: &Validated) -> bool {
    validated.goal != Goal::Pause || rehearsal::is_asked(resource)
}

#[cfg(test)]
mod tests {
    use resources::names;
    use serde_json::json;

    use super::*;
    use crate::fixture::{resource, validated, with};

    #[test]
    fn all_of_a_database_counts_unless_it_is_paused_and_asked_nothing() {
        let check = |resource: &QuestDB, expected: bool| {
            let found = rests_on_all(resource, &validated(resource));
            assert_eq!(found, expected, "{:?} {:?}", resource.spec.run_state, resource.metadata.annotations);
        };
        check(&resource(1), true);
        for ends in ["Deleted", "Purged"] {
            check(&with("/spec/runState", json!(ends)), true);
        }
        let mut paused = with("/spec/runState", json!("Paused"));
        check(&paused, false);
        let annotations = paused.metadata.annotations.get_or_insert_default();
        annotations.insert(names::DRY_RUN.to_owned(), "{}".to_owned());
        check(&paused, true);
    }
}
