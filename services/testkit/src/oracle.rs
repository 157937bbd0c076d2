//! What must hold after any fault: nothing accepted is lost, nothing went back, nothing is left over, nothing is open.
//!
//! The oracles compare what the API promised (the ledger) with every place that must agree: Postgres, the topics, the
//! custom resources and their history. They change nothing.

mod kept;
mod open;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::{Api, ListParams};
use resources::QuestDB;

use crate::load::Ledger;
use crate::{Stopwatch, Watched, eventually, query};

/// How long nothing may change once all has settled.
const QUIET: Duration = Duration::from_secs(2);
/// How long the witness may take to hear of what all others have heard of.
const WITNESS: Duration = Duration::from_mins(1);

/// Where to look.
#[derive(Clone, Copy)]
pub struct Oracle<'a> {
    /// The control plane's database, past every proxy.
    pub database: &'a str,
    /// The brokers.
    pub connection: &'a bus::Connection,
    /// Topic of instructions.
    pub instructions: &'a str,
    /// Topic of gossip.
    pub gossip: &'a str,
    /// Partitions of each.
    pub partitions: i32,
    /// Consumer group of the provisioners.
    pub group: &'a str,
    /// The API server, past every proxy.
    pub client: &'a kube::Client,
    /// Where the resources are.
    pub namespace: &'a str,
    /// Their witness.
    pub watched: &'a Watched,
}

impl std::fmt::Debug for Oracle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oracle").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Oracle<'_> {
    /// Waits until nothing is open any more: everything published, applied, reported, ended, drained and committed. Says how
    /// long that took.
    ///
    /// # Panics
    /// When something is open still after `limit`: the message says what.
    pub async fn settled(&self, limit: Duration) -> Duration {
        let begun = Stopwatch::start();
        loop {
            let open = self.open().await.unwrap_or_else(|error| vec![format!("{error:#}")]);
            if open.is_empty() {
                return begun.elapsed();
            }
            let late = begun.elapsed() >= limit;
            let details = if late { self.details().await } else { String::new() };
            assert!(!late, "after {limit:?} there is still open: {open:#?}\n{details}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Checks everything that must hold once it has settled. `letters` are the codes of the dead letters that there should
    /// be, in order of the alphabet.
    ///
    /// # Errors
    /// With everything that does not hold.
    pub async fn check(&self, ledger: &Ledger, letters: &[&str]) -> anyhow::Result<()> {
        ensure!(ledger.changes() > 0, "nothing was accepted: there is nothing to prove");
        let before = self.versions().await?;
        self.witnessed(&before).await;
        let mut wrong = self.kept(ledger).await?;
        wrong.extend(crate::audit::wrong(self.database).await?);
        wrong.extend(self.watched.wrong());
        wrong.extend(self.events().await?);
        wrong.extend(self.strangers().await?);
        let found = query(self.database, "select code from dead_letters order by code").await?;
        let found: Vec<&str> = found.lines().collect();
        if found != letters {
            wrong.push(format!("dead letters are {found:?} instead of {letters:?}"));
        }
        // In all of the above, and for a while more, nobody has a reason to write.
        tokio::time::sleep(QUIET).await;
        if self.versions().await? != before {
            wrong.push("resources change although nothing is open".to_owned());
        }
        ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    /// Waits until the witness has seen these versions, and so says of all of them what went wrong: whoever carries an
    /// event to Postgres may be quicker.
    async fn witnessed(&self, versions: &BTreeMap<String, String>) {
        eventually(WITNESS, "the witness to have seen what there is", async || {
            versions.iter().all(|(name, version)| self.watched.has_seen(name, version)).then_some(())
        })
        .await;
    }

    /// The version of each resource, as the API server has it: the witness may hear late of what was written before.
    async fn versions(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let api: Api<QuestDB> = Api::namespaced(self.client.clone(), self.namespace);
        let there = api.list_metadata(&ListParams::default()).await.context("listing resources")?;
        let versions = there.items.into_iter().map(|one| one.metadata);
        Ok(versions.filter_map(|found| Some((found.name?, found.resource_version?))).collect())
    }

    /// Waits until everything that the ledger knows of a region is in its resources.
    pub async fn applied(&self, ledger: &Ledger, region: &str, limit: Duration) {
        let what = format!("everything of {region} applied");
        eventually(limit, &what, async || {
            let mut ours = ledger.databases.iter().filter(|(_, entry)| entry.region == region);
            ours.all(|(id, entry)| self.watched.reached(id, entry.position).is_some()).then_some(())
        })
        .await;
    }

    /// Operations whose events are not numbered from 1 without gaps.
    async fn events(&self) -> anyhow::Result<Vec<String>> {
        let rows = query(
            self.database,
            "select o.id from operations o left join operation_events e on e.operation_id = o.id group by o.id \
             having count(e.number) <> o.last_event or coalesce(max(e.number), 0) <> o.last_event",
        )
        .await
        .context("events of operations")?;
        Ok(rows.lines().map(|id| format!("the events of operation {id} have gaps")).collect())
    }

    /// What clusters say that Postgres cannot agree with.
    async fn strangers(&self) -> anyhow::Result<Vec<String>> {
        let rows = query(
            self.database,
            "select code || ' ' || database_id from unclaimed where code in ('ahead', 'content')",
        )
        .await
        .context("unclaimed databases")?;
        Ok(rows.lines().map(|row| format!("a cluster and Postgres disagree: {row}")).collect())
    }
}
