//! The ground a bench stands on: a cluster of its own in the registry, without an operator, and a tenant of its own.
//!
//! Behind it is the stack's bare API server: what the provisioner writes there stays as it is written, and no machine
//! follows. *Invariant:* what is swept away belongs to the tenant of the benches.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use reqwest::Method;
use resources::QuestDB;
use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, stack};

use crate::pace::until;
use crate::watch::Watch;

/// The tenant of all that benches make.
pub(crate) const TENANT: &str = "bench";
/// The cluster in the registry.
const CLUSTER: &str = "bench";
/// Its region; nobody else's, so that placement has no choice.
pub(crate) const REGION: &str = "bench-1";
/// Namespace of the tenant by the usual template.
const NAMESPACE: &str = "qdb-bench";

/// How long everything asked for may take to come back as seen: thousands of resources after a throughput slice.
const DRAIN: Duration = Duration::from_mins(8);
/// How long the provisioner may take to hear of the cluster.
const KNOWN: Duration = Duration::from_mins(1);
/// How long the server may refuse to list.
const LIST: Duration = Duration::from_secs(30);
/// Resources taken away at once.
const SWEEPERS: usize = 16;

/// Rows of the tenant whose newest state was not seen in the cluster yet, but for those that never will be.
const UNSEEN: &str = "select count(*) from databases d left join observations o on o.database_id = d.id \
    and (o.epoch, o.seq) = (d.epoch, d.seq) where d.tenant_id = 'bench' and o.database_id is null \
    and not exists (select from operations p where p.database_id = d.id and p.state = 'failed')";
/// What went wrong, if anything did.
const FAILED: &str = "select failure_code || ': ' || failure_message from operations \
    where tenant_id = 'bench' and state = 'failed' limit 1";
/// Whether the provisioner speaks for the cluster: then it knows it.
const OBSERVED: &str = "select count(*) from cluster_observers where cluster_id = 'bench'";
/// Rows of the tenant whose resource is still there.
const PRESENT: &str = "select count(*) from databases d join observations o on o.database_id = d.id \
    where d.tenant_id = 'bench' and o.present";
/// Takes every row of the tenant away, those that refer to others first.
const FORGET: &str = "delete from operation_events where operation_id in (select id from operations where tenant_id = 'bench'); \
    delete from instructions where database_id in (select id from databases where tenant_id = 'bench'); \
    delete from observations where database_id in (select id from databases where tenant_id = 'bench'); \
    delete from operations where tenant_id = 'bench'; \
    delete from databases where tenant_id = 'bench'; \
    delete from parked_instructions where cluster_id = 'bench'; \
    delete from unclaimed where cluster_id = 'bench'; \
    delete from idempotency_keys where tenant_id = 'bench'; \
    delete from audit where tenant_id = 'bench'";
/// Gives the room of deleted rows back, so that every slice begins with small tables.
const VACUUM: &str = "vacuum (analyze) databases, operations, operation_events, instructions, observations, \
    idempotency_keys, audit";

/// A database that was asked for.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Its identity.
    pub(crate) id: String,
    /// Just before the request was sent.
    pub(crate) sent: Instant,
    /// When its acceptance was received.
    pub(crate) at: Instant,
}

/// Where benches work.
#[derive(Clone)]
pub(crate) struct Ground {
    /// Administrator of the bare API server.
    pub(crate) admin: kube::Client,
    /// The bare API server.
    pub(crate) cluster: &'static ClusterFacts,
    console: Console,
}

impl Ground {
    /// Makes the cluster known and takes away what an earlier slice may have left.
    pub(crate) async fn prepare() -> anyhow::Result<Self> {
        let cluster = testkit::bare_cluster();
        let admin = testkit::client(&cluster.kubeconfig).await?;
        let ground = Self { admin, cluster, console: Console::of(TENANT) };
        ground.register().await?;
        ground.sweep().await?;
        Ok(ground)
    }

    async fn register(&self) -> anyhow::Result<()> {
        let file = self.cluster.kubeconfig.file_name().and_then(|name| name.to_str());
        let body = json!({
            "region": REGION,
            "account": "123456789012",
            "zones": {"bench-1a": "subnet-bench"},
            "hosted_zone_id": "ZBENCH",
            "dns_suffix": "bench-1.db.slipway.test",
            // The stack keeps the provisioner's credentials for each of its clusters under the name of the cluster.
            "credentials": format!("file:{}", file.context("a kubeconfig has a name")?),
        });
        let request = self.console.request(Method::PUT, &format!("/v1/clusters/{CLUSTER}")).json(&body);
        let answer = request.send().await.context("registering the cluster")?;
        let status = answer.status();
        ensure!(status.is_success(), "the cluster was not registered: {status}: {}", answer.text().await?);
        let url = &stack().database_url;
        until(KNOWN, "the provisioner to know the cluster", async || {
            Ok((testkit::query(url, OBSERVED).await? == "1").then_some(()))
        })
        .await
    }

    /// Asks for a database of this name.
    pub(crate) async fn create(&self, name: &str) -> anyhow::Result<Accepted> {
        let request = self
            .console
            .request(Method::POST, "/v1/databases")
            .header("Idempotency-Key", uuid::Uuid::now_v7().to_string())
            .json(&json!({"name": name, "region": REGION}));
        let sent = Instant::now();
        let answer = request.send().await?;
        let at = Instant::now();
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.as_u16() == 202, "a database was not accepted: {status}: {text}");
        let body: Value = serde_json::from_str(&text)?;
        let id = body["database"]["id"].as_str().context("an accepted database has an id")?.to_owned();
        Ok(Accepted { id, sent, at })
    }

    /// Watches the tenant's resources.
    pub(crate) async fn watch(&self) -> anyhow::Result<Watch> {
        Watch::start(&self.admin, NAMESPACE).await
    }

    /// The tenant's resources.
    pub(crate) fn resources(&self) -> Api<QuestDB> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// Waits until the cluster's word of everything asked for is in Postgres; an error when something was refused.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        none_of(UNSEEN, "word of every database of the bench").await?;
        let failure = testkit::query(&stack().database_url, FAILED).await?;
        ensure!(failure.is_empty(), "a database of the bench failed: {failure}");
        Ok(())
    }

    /// Takes everything away that was asked for: once it has arrived, or it would come afterwards.
    pub(crate) async fn sweep(&self) -> anyhow::Result<()> {
        none_of(UNSEEN, "word of every database to be swept").await?;
        self.clear(&self.resources()).await?;
        none_of(PRESENT, "word that every resource is gone").await?;
        let url = &stack().database_url;
        testkit::query(url, FORGET).await?;
        testkit::query(url, VACUUM).await?;
        Ok(())
    }

    /// Removes all resources of a namespace.
    pub(crate) async fn clear(&self, api: &Api<QuestDB>) -> anyhow::Result<()> {
        let all = names(api).await?;
        futures::stream::iter(all)
            .map(|name| remove(api, name))
            .buffer_unordered(SWEEPERS)
            .try_collect()
            .await
    }
}

/// Names of all resources; a server that has just learned their kind needs a moment.
async fn names(api: &Api<QuestDB>) -> anyhow::Result<Vec<String>> {
    let list =
        until(LIST, "a list of resources", async || match api.list_metadata(&ListParams::default()).await {
            Ok(list) => Ok(Some(list)),
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(None),
            Err(error) => Err(error).context("listing resources"),
        });
    Ok(list.await?.items.into_iter().filter_map(|object| object.metadata.name).collect())
}

/// Removes a resource as somebody would whose operator said that the database is gone: nothing else may be removed.
async fn remove(api: &Api<QuestDB>, name: String) -> anyhow::Result<()> {
    let gone = json!({"status": {"phase": "Deleted"}});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&gone))
        .await
        .context("marking as deleted")?;
    api.delete(&name, &DeleteParams::default()).await.context("removing")?;
    Ok(())
}

/// Waits until a count is zero.
async fn none_of(count: &str, what: &str) -> anyhow::Result<()> {
    until(
        DRAIN,
        what,
        async || Ok((testkit::query(&stack().database_url, count).await? == "0").then_some(())),
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_speak_of_the_bench_alone() {
        for statement in FORGET.split(';') {
            let mine = statement.contains(&format!("tenant_id = '{TENANT}'"))
                || statement.contains(&format!("cluster_id = '{CLUSTER}'"));
            assert!(mine, "{statement}");
        }
        for statement in [UNSEEN, PRESENT] {
            assert!(statement.contains(&format!("d.tenant_id = '{TENANT}'")), "{statement}");
        }
        assert_eq!(NAMESPACE, format!("qdb-{TENANT}"));
    }
}
