//! An operator with many databases at rest, all paused: of each there are the resource with a status of the operator's own
//! making, its Secret, `ConfigMap`, claim and `PersistentVolume`, and its disk in EC2. The API server is a [`Keeper`], AWS an
//! [`Account`].

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use resources::names;
use serde_json::{Value, json};
use testkit::unique;

use crate::account::{self, Account};
use crate::keeper::{Keeper, Place};
use crate::pace::until;
use crate::populate::identity;
use crate::process::Process;

/// Kind of the resources.
pub(crate) const DATABASES: &str = "crd.questdb.io/v1/questdbs";
/// Kinds of everything that there is of a database.
pub(crate) const KINDS: [&str; 5] =
    [DATABASES, "v1/secrets", "v1/configmaps", "v1/persistentvolumeclaims", "v1/persistentvolumes"];
/// Namespace of all of them.
pub(crate) const NAMESPACE: &str = "qdb-bench";
/// A namespace in which there is nothing.
pub(crate) const EMPTY: &str = "empty";
/// How long the operator may take to see that every database is as it should be.
const SETTLED: Duration = Duration::from_mins(5);
/// `{"values":{"pg-password":…,"pg-user":…}}`: the values of a Secret once more, as the operator keeps them there.
const COPY: &str = "eyJ2YWx1ZXMiOnsicGctcGFzc3dvcmQiOiJjMlZqY21WMExXOW1MV0V0WW1WdVkyZ3RjMlZqY21WMExXOW1MV0U9IiwicGct\
                    dXNlciI6IllXUnRhVzQ9In19";

/// The servers with their databases.
pub(crate) struct Herd {
    pub(crate) keeper: Keeper,
    account: Account,
    databases: usize,
    kubeconfig: PathBuf,
}

impl Herd {
    /// So many databases, of which no operator has reported yet.
    pub(crate) async fn new(databases: usize) -> anyhow::Result<Self> {
        let (keeper, account) = (Keeper::start().await?, Account::start(databases).await?);
        for number in 0..databases {
            for (place, object) in objects(number) {
                keeper.put(&place, object);
            }
        }
        let kubeconfig = std::env::temp_dir().join(unique("bench-kubeconfig"));
        std::fs::write(&kubeconfig, keeper.kubeconfig())
            .with_context(|| format!("writing {}", kubeconfig.display()))?;
        Ok(Self { keeper, account, databases, kubeconfig })
    }

    /// Starts an operator for one namespace, or for all.
    pub(crate) async fn operator(&self, namespace: Option<&str>) -> anyhow::Result<Process> {
        self.keeper.forget_leader(EMPTY, names::OPERATOR);
        let mut environment = vec![
            ("KUBECONFIG", self.kubeconfig.display().to_string()),
            ("AWS_ENDPOINT_URL", self.account.url()),
            ("AWS_ACCESS_KEY_ID", "bench".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "bench".to_owned()),
            ("AWS_REGION", "bench-1".to_owned()),
            ("SLIPWAY_CLUSTER", account::CLUSTER.to_owned()),
            ("SLIPWAY_HOSTED_ZONE_ID", "ZBENCH".to_owned()),
            ("SLIPWAY_DNS_SUFFIX", "bench.example.com".to_owned()),
            ("SLIPWAY_VPC_ID", "vpc-bench".to_owned()),
            ("SLIPWAY_ZONES", format!("{}=subnet-bench", account::ZONE)),
            ("SLIPWAY_NODE_IMAGE", "ami-bench".to_owned()),
            ("SLIPWAY_LEASE_NAMESPACE", EMPTY.to_owned()),
            ("SLIPWAY_EC2_LAG", "0s".to_owned()),
        ];
        environment.extend(namespace.map(|namespace| ("SLIPWAY_WATCH_NAMESPACE", namespace.to_owned())));
        Process::start("slipway-operator", &[], &environment).await
    }

    /// A client of the API server.
    pub(crate) async fn client(&self) -> anyhow::Result<kube::Client> {
        testkit::client(&self.kubeconfig).await
    }

    /// An operator that has found every database at rest.
    pub(crate) async fn at_rest(&self) -> anyhow::Result<Process> {
        let operator = self.operator(None).await?;
        until(SETTLED, "all databases at rest", async || {
            let reported = self.keeper.count(DATABASES, "\"conditions\":[");
            Ok((reported == self.databases).then_some(()))
        })
        .await?;
        Ok(operator)
    }

    /// An operator that began afresh and has found every database at rest: it holds nothing of what the first reports took.
    pub(crate) async fn afresh(&self) -> anyhow::Result<Process> {
        self.at_rest().await?.kill().await?;
        let operator = self.operator(None).await?;
        crate::cold::all_found(&operator, self.databases).await?;
        Ok(operator)
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        // What lies in the folder of temporary files is nobody's loss.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Where the resource of a database is.
pub(crate) fn place(number: usize) -> Place {
    Place::new(DATABASES, Some(NAMESPACE), &name(number))
}

/// How often an operator found a database as it should be.
pub(crate) async fn found_at_rest(operator: &Process) -> anyhow::Result<f64> {
    operator.metric("controller_runtime_reconcile_total", "result=\"success\"").await
}

/// Name of a database.
pub(crate) fn name(number: usize) -> String {
    format!("db-{number}")
}

fn objects(number: usize) -> Vec<(Place, Value)> {
    let (name, database) = (name(number), identity(number));
    let volume = names::persistent_volume(&account::volume(number));
    let labels = json!({
        names::LABEL_NAME: name, names::LABEL_NAMESPACE: NAMESPACE, names::LABEL_DATABASE: database,
        names::LABEL_MANAGED_BY: names::OPERATOR,
    });
    let child = |kind: &str, path: &str, name: &str, mut rest: Value| {
        rest["apiVersion"] = json!("v1");
        rest["kind"] = json!(kind);
        rest["metadata"] = json!({ "name": name, "namespace": NAMESPACE, "labels": labels });
        (Place::new(path, Some(NAMESPACE), name), rest)
    };
    let mut data =
        json!({ "pg-user": "YWRtaW4=", "pg-password": "c2VjcmV0LW9mLWEtYmVuY2gtc2VjcmV0LW9mLWE=" });
    data[names::secret::WRITTEN] = json!(COPY);
    let disk = json!({ "capacity": { "storage": "20Gi" }, "accessModes": ["ReadWriteOncePod"],
        "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
        "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": account::volume(number) },
        "claimRef": { "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": names::claim(&name) } });
    let (_, mut disk) = child("PersistentVolume", "v1/persistentvolumes", &volume, json!({ "spec": disk }));
    if let Some(metadata) = disk["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let claim = json!({ "accessModes": ["ReadWriteOncePod"], "storageClassName": "", "volumeName": volume,
        "resources": { "requests": { "storage": "20Gi" } } });
    vec![
        (place(number), resource(number)),
        child("Secret", "v1/secrets", &names::credentials(&name), json!({ "data": data })),
        child(
            "ConfigMap",
            "v1/configmaps",
            &names::config(&name),
            json!({ "data": { "server.conf": "a.key=a value\n".repeat(40) } }),
        ),
        child(
            "PersistentVolumeClaim",
            "v1/persistentvolumeclaims",
            &names::claim(&name),
            json!({ "spec": claim }),
        ),
        (Place::new("v1/persistentvolumes", None, &volume), disk),
    ]
}

fn resource(number: usize) -> Value {
    json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
        "metadata": {
            "name": name(number), "namespace": NAMESPACE, "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names::FINALIZER],
            "annotations": { names::GENERATION: "1", names::RELEASED: "1", names::LAUNCH_ZONE: account::ZONE },
        },
        "spec": {
            "instruction": { "id": format!("i-{number}"), "databaseId": identity(number), "epoch": 1, "seq": 2,
                "render": names::RENDER, "hash": "0123456789abcdef" },
            "runState": "Paused",
            "storage": { "sizeGib": 20, "provisioned": true },
        },
        // At rest from the first look on: Route 53, asked for each of them, would take a quarter of an hour.
        "status": { "phase": "Paused", "observedGeneration": 1 },
    })
}
