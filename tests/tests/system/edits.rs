//! A database that somebody wrote down as a resource goes through the guide's table of edits by kubectl alone, while it is written to
//! and read from by its name: each line comes to be, the guide's waits say when, and no row is lost.

#![cfg(test)]

use cloud::{Cloud as _, DnsRecord, HostedZoneId};
use resources::names;
use serde_json::Value;
use testkit::{eventually, unique};

use crate::change::{Client, claim_has, machine};
use crate::main_job::{Ready, aws, volumes};
use crate::restore::snapshot;
use crate::support::{ROAD, kubectl, whole};
use crate::upgrade::{NEWER, Used, get};

/// Where the table is.
pub(crate) const GUIDE: &str = include_str!("../../../deploy/operator/README.md");
/// How a machine is taken out of use.
const DRAIN: &str = r#"kubectl drain "$(kubectl -n data get qdb trades -o jsonpath='{.status.node.name}')" --ignore-daemonsets"#;

impl Used {
    /// Carries out a line of the table, as people do.
    pub(crate) async fn edit(&self, line: &str) {
        self.edit_as(line, line).await;
    }

    /// The same of a line that leaves something to be filled in.
    pub(crate) async fn edit_as(&self, shown: &str, line: &str) {
        assert!(GUIDE.contains(&format!("| `{shown}` |")), "the guide shows no such edit: {shown}");
        self.carry_out(line).await;
    }

    /// Writes these fields of the spec, and waits until nothing is left to do.
    pub(crate) async fn carry_out(&self, line: &str) {
        self.patch(&serde_saphyr::from_str(&format!("{{{line}}}")).unwrap()).await;
        let generation = self.read().await["metadata"]["generation"].to_string();
        let seen = format!("jsonpath={{.status.observedGeneration}}={generation}");
        // In the order of the guide. What fails for a moment is tried again by the operator, and waited for once more.
        eventually(ROAD, &format!("all that {line} takes"), async || {
            self.wait(&seen, "50s").await?;
            self.wait("condition=Progressing=False", "50s").await?;
            self.wait("condition=Degraded=False", "1s").await
        })
        .await;
    }

    /// What kubectl prints once this is so of the resource.
    async fn wait(&self, until: &str, timeout: &str) -> Option<String> {
        let resource = format!("qdb/{}", self.database.resource);
        let (until, timeout) = (format!("--for={until}"), format!("--timeout={timeout}"));
        let words = ["wait", &resource, "--namespace", &self.database.namespace, &until, &timeout];
        kubectl(self.home, &words).await.ok()
    }

    pub(crate) async fn read(&self) -> Value {
        let Ready { namespace, resource, .. } = &self.database;
        eventually(ROAD, "the resource", async || get(self.home, "questdb", namespace, resource).await).await
    }

    /// The uid of its pod.
    pub(crate) async fn pod(&self) -> String {
        let name = names::pod(&self.database.resource);
        eventually(ROAD, "the pod", async || {
            let found = get(self.home, "pod", &self.database.namespace, &name).await?;
            Some(found["metadata"]["uid"].as_str()?.to_owned())
        })
        .await
    }

    /// Somebody drains its Node as the guide has it, for as long as the pod is there, and waits until nothing is left to do.
    async fn is_drained(&self) {
        assert!(GUIDE.contains(DRAIN), "the guide drains otherwise");
        let found = self.read().await;
        let node = found["status"]["node"]["name"].as_str().unwrap();
        let drain = ["drain", node, "--ignore-daemonsets", "--timeout=20s"];
        let left = ["get", "node", node, "--ignore-not-found", "--output", "name"];
        eventually(ROAD, &format!("the drain of {node}"), async || {
            let drained = kubectl(self.home, &drain).await.map_err(|error| error.to_string());
            // The Node is cordoned by then, so that the database leaves it all the same.
            let beyond = drained.as_ref().err().filter(|why| why.contains("cannot delete"));
            assert_eq!(beyond, None, "it takes more than the guide says");
            // The machine ends, and its Node with it, maybe before that is heard of.
            let is_gone = kubectl(self.home, &left).await.is_ok_and(|found| found.is_empty());
            (drained.is_ok() || is_gone).then_some(())
        })
        .await;
        eventually(ROAD, "the end of its move", async || {
            self.wait("condition=Progressing=False", "50s").await
        })
        .await;
    }

    /// What QuestDB answers to whoever knows its name.
    async fn asked(&self, statement: &str) -> Value {
        let mut client = Client::of(self.home, &self.database, &self.host).await;
        eventually(ROAD, statement, async || client.ask(statement).await).await
    }

    /// What Route 53 has under a name.
    pub(crate) async fn records(&self, name: &str) -> Vec<DnsRecord> {
        let zone = HostedZoneId::new(&self.home.hosted_zone_id);
        let aws = aws(self.home).await;
        // Route 53 limits the calls of all together, and who waits for the name asks for it all the while.
        eventually(ROAD, "its records", async || aws.list_records(&zone, name).await.ok()).await
    }

    /// It came to this phase: nobody answers to its name, and its disk is there and on no machine.
    pub(crate) async fn is_away(&self, phase: &str) {
        let found = self.read().await;
        assert_eq!(found["status"]["phase"], phase, "{found:#}");
        let mut client = Client::of(self.home, &self.database, &self.host).await;
        assert!(client.ask("select 1").await.is_none(), "{phase}: it answers");
        let kept = volumes(self.home, &self.database.volume).await;
        assert!(kept.len() == 1 && kept[0].attachments.is_empty(), "{phase}: {kept:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_goes_through_the_edits_of_the_guide_without_losing_a_row() {
    let _whole = whole().await;
    let used = Used::begin(NEWER).await;
    let (home, database) = (used.home, &used.database);

    used.edit(r#"config: {cairo.max.uncommitted.rows: "1000"}"#).await;
    let shown = "(show parameters) where property_path = 'cairo.max.uncommitted.rows'";
    let shown = used.asked(shown).await;
    assert_eq!(shown["dataset"][0][2], "1000", "{shown:#}");

    let before = used.pod().await;
    used.edit("restartNonce: monday").await;
    assert_ne!(used.pod().await, before, "it was not restarted");
    used.seen.wrote(20, "after a restart").await;

    used.edit("storage: {sizeGib: 100, iops: 6000, throughput: 500}").await;
    let disk = volumes(home, &database.volume).await.remove(0);
    assert_eq!((disk.size_gib, disk.iops, disk.throughput), (100, Some(6000), Some(500)));
    claim_has(home, database, "100Gi").await;
    used.seen.wrote(20, "after more room").await;

    let before = machine(home, database).await;
    used.edit("compute: {instanceType: r7i.2xlarge}").await;
    assert_ne!(machine(home, database).await, before, "it was not moved");
    used.seen.wrote(20, "after a move").await;

    let before = machine(home, database).await;
    used.is_drained().await;
    used.seen.wrote(20, "after a drain").await;
    assert_ne!(machine(home, database).await, before, "it was not moved");

    let copy = unique("copy");
    let taken = snapshot(home, database, &copy).await;
    assert_eq!(taken["status"]["volumeId"], database.volume.as_str(), "{taken:#}");

    used.edit("runState: Paused").await;
    used.is_away("Paused").await;
    assert!(!used.records(&used.host).await.is_empty(), "somebody else may take its name");
    used.edit("runState: Running").await;
    used.seen.wrote(20, "after a pause").await;

    used.edit("runState: Deleted").await;
    used.is_away("Deleted").await;
    let records = used.records(&used.host).await;
    assert!(records.is_empty(), "it keeps its name: {records:?}");
    used.edit("runState: Running").await;
    used.seen.wrote(20, "after it was deleted and brought back").await;
    used.end(&[copy]).await;
}
