//! The edits of the guide's table that are about who reaches a database, and how, and about its end: by kubectl alone, one after the
//! other, of one database that is written to and read from. Each shows in QuestDB, in Kubernetes or in AWS, and every acknowledged row
//! is there until the disk is destroyed.

#![cfg(test)]

use std::fs;
use std::mem;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::{Cloud as _, IngressRule, RecordKind, Select};
use resources::names::{self, condition, port};
use serde_json::{Value, json};
use testkit::{eventually, stack, unique};
use tokio::net::TcpStream;

use crate::edits::GUIDE;
use crate::keys::{Key, send_without_a_key};
use crate::main_job::{Ready, aws, volumes};
use crate::restore::rows;
use crate::support::{ROAD, kubectl, objects, whole};
use crate::upgrade::{NEWER, Used, get};

/// These addresses and the pods of this namespace, as a policy names them.
fn peers(cidr: &str, namespace: &str) -> Value {
    let labels = json!({ names::LABEL_NAMESPACE_NAME: namespace });
    json!([{ "ipBlock": { "cidr": cidr } }, { "namespaceSelector": { "matchLabels": labels } }])
}

impl Used {
    /// A key is drawn and handed out once. With it lines come in over TCP, and without it none do.
    async fn draws_a_key(&self) {
        let Ready { namespace, resource, .. } = &self.database;
        let host = self.database.host();
        assert!(TcpStream::connect((host, port::ILP)).await.is_err(), "it listens without a key");
        self.edit("credentials: {ilp: {drawn: [laptop]}}").await;

        assert!(GUIDE.contains(r"jsonpath='{.data.auth\.json}' | base64 -d"), "it fetches keys otherwise");
        let handed_out = names::drawn_key(resource, "laptop");
        let path = r"jsonpath={.data.auth\.json}";
        let fetch = ["get", "secret", &handed_out, "--namespace", namespace, "--output", path];
        let fetched = eventually(ROAD, "the key", async || kubectl(self.home, &fetch).await.ok()).await;
        let key = Key::read(&STANDARD.decode(fetched).unwrap());
        let delete = ["delete", "secret", &handed_out, "--namespace", namespace];
        kubectl(self.home, &delete).await.unwrap();

        self.takes(&key, "lines").await;
        let _ = send_without_a_key(host, "bare price=2.5").await;
        // Another key of that id.
        let _ = Key::draw("laptop").send(host, "forged price=2.5").await;
        self.takes(&key, "after").await;
        for table in ["bare", "forged"] {
            assert_eq!(self.counted(table).await, None, "a {table} line arrived");
        }
        self.seen.wrote(20, "after a key was drawn").await;
    }

    /// A line that is sent with this key is counted.
    async fn takes(&self, key: &Key, table: &str) {
        let (host, line) = (self.database.host(), format!("{table} price=1.5"));
        eventually(ROAD, &format!("a line in {table}"), async || {
            key.send(host, &line).await.ok()?;
            self.counted(table).await.filter(|count| *count > 0)
        })
        .await;
    }

    async fn counted(&self, table: &str) -> Option<i64> {
        let answer = self.database.ask(&format!("select count() from {table}")).await.ok()?;
        answer["dataset"][0][0].as_i64()
    }

    /// Firewall and policy let in who is named, and the policy lets out to whom; nothing is restarted for it.
    async fn knows_its_neighbours(&self) {
        let pod = self.pod().await;
        let before = self.policy().await;
        assert!(before["spec"]["egress"].as_array().is_none_or(Vec::is_empty), "{before:#}");
        let (shown, line) = (
            "network: {allowedCidrs: […], allowedNamespaces: […]}",
            r#"network: {allowedCidrs: ["10.9.0.0/16"], allowedNamespaces: [research]}"#,
        );
        self.edit_as(shown, line).await;
        let (aws, its) = (aws(self.home).await, Select::database(&self.home.name, &self.database.id));
        let wanted = [port::HTTP, port::PG, port::ILP].map(|number| IngressRule::tcp(number, "10.9.0.0/16"));
        eventually(ROAD, "a firewall that lets them in", async || {
            let groups = aws.describe_security_groups(&its).await.ok()?;
            let lets_in = |rule: &IngressRule| groups.iter().any(|group| group.ingress.contains(rule));
            wanted.iter().all(lets_in).then_some(())
        })
        .await;
        let policy = self.policy().await;
        let who = peers("10.9.0.0/16", "research");
        let mut rules = policy["spec"]["ingress"].as_array().unwrap().iter();
        assert!(rules.any(|rule| rule["from"] == who), "{policy:#}");

        let (shown, line) = (
            "network: {egress: {cidrs: […], namespaces: […]}}",
            r#"network: {egress: {cidrs: ["10.20.0.0/16"], namespaces: [logging]}}"#,
        );
        self.edit_as(shown, line).await;
        let policy = self.policy().await;
        let whom = peers("10.20.0.0/16", "logging");
        let mut rules = policy["spec"]["egress"].as_array().unwrap().iter();
        assert!(rules.any(|rule| rule["to"] == whom), "{policy:#}");
        assert_eq!(self.pod().await, pod, "it was restarted");
    }

    /// The policy about its pod.
    async fn policy(&self) -> Value {
        let Ready { namespace, resource, .. } = &self.database;
        let name = names::guard(resource);
        let policy = async || get(self.home, "networkpolicy", namespace, &name).await;
        eventually(ROAD, "its policy", policy).await
    }

    /// QuestDB is started anew, with a variable that people gave it.
    async fn runs_with_a_variable(&self) {
        let before = self.pod().await;
        self.edit("pod: {env: [{name: TZ, value: UTC}]}").await;
        let after = self.pod().await;
        assert_ne!(after, before, "it was not restarted");
        assert!(self.variables(&after).await.iter().any(|variable| variable == "TZ=UTC"), "it is not told");
        self.seen.wrote(20, "after another variable").await;
    }

    /// The variables of the process of QuestDB in this pod.
    async fn variables(&self, pod: &str) -> Vec<String> {
        let Ready { namespace, resource, .. } = &self.database;
        let pods = stack().layout().nodes(&self.home.name).join("pods");
        let folder = pods.join(format!("{namespace}_{}", names::pod(resource))).join(pod);
        eventually(ROAD, "its process", async || {
            let process = fs::read_to_string(folder.join("pid")).ok()?;
            let bytes = fs::read(format!("/proc/{}/environ", process.split(' ').next()?)).ok()?;
            let text = String::from_utf8_lossy(&bytes);
            Some(text.split('\0').map(str::to_owned).collect::<Vec<_>>())
        })
        .await
    }

    /// Another name takes the place of the one in force, which is given back; nothing is restarted for it.
    async fn gets_another_name(&mut self) {
        let pod = self.pod().await;
        let other = format!("{}.{}", unique("other"), self.home.dns_suffix);
        let shown = "network: {hostname: t.eu.example.com}";
        self.edit_as(shown, &shown.replace("t.eu.example.com", &other)).await;
        let former = mem::replace(&mut self.host, other);
        assert_eq!(self.records(&former).await, [], "the former name is not given back");
        let records = self.records(&self.host).await;
        let leads = records.iter().find(|record| record.kind == RecordKind::A);
        let leads = leads.map(|record| record.values.clone());
        assert_eq!(leads, Some(vec![self.database.host().to_string()]), "{records:?}");
        let found = self.read().await;
        let told = format!("http://{}:{}", self.host, port::HTTP);
        assert_eq!(found["status"]["endpoints"]["http"], told, "{found:#}");
        assert_eq!(self.pod().await, pod, "it was restarted");
    }

    /// Its pod takes no ports of the machine and no name leads there, while a Service leads to the pod.
    async fn gives_up_its_ports(&self) {
        let Ready { namespace, resource, .. } = &self.database;
        let before = self.pod().await;
        assert_eq!(self.ports_taken().await, [port::PG, port::HTTP, port::ILP].map(u64::from));
        self.edit("network: {hostPorts: false}").await;
        assert_ne!(self.pod().await, before, "it was not restarted");
        let taken = self.ports_taken().await;
        assert!(taken.is_empty(), "it takes {taken:?}");
        assert_eq!(self.records(&self.host).await, [], "it keeps its name");

        let found = self.read().await;
        let status = &found["status"];
        let told = format!("http://{resource}.{namespace}.svc:{}", port::HTTP);
        assert_eq!(status["endpoints"]["http"], told, "{found:#}");
        assert!(status["dns"].is_null(), "{found:#}");
        let mut conditions = status["conditions"].as_array().unwrap().iter();
        let nameless = |word: &Value| word["type"] == condition::DNS_READY && word["reason"] == "NoHostPorts";
        assert!(conditions.any(nameless), "{found:#}");
        let (label, path) = (
            format!("--selector=kubernetes.io/service-name={resource}"),
            "jsonpath={.items[*].endpoints[*].addresses[*]}",
        );
        let words = ["get", "endpointslices", &label, "--namespace", namespace, "--output", path];
        let host = self.database.host().to_string();
        eventually(ROAD, "a Service that leads to it", async || {
            (kubectl(self.home, &words).await.ok()? == host).then_some(())
        })
        .await;
        self.has_every_row("without a name").await;
    }

    /// The ports of its machine that its pod takes.
    async fn ports_taken(&self) -> Vec<u64> {
        let Ready { namespace, resource, .. } = &self.database;
        let name = names::pod(resource);
        let pod = async || get(self.home, "pod", namespace, &name).await;
        let pod = eventually(ROAD, "its pod", pod).await;
        let containers = pod["spec"]["containers"].as_array().unwrap().iter();
        let ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
        let mut taken: Vec<u64> = ports.filter_map(|found| found["hostPort"].as_u64()).collect();
        taken.sort_unstable();
        taken
    }

    /// Every acknowledged row is there, once, of a database that nobody writes to by its name.
    async fn has_every_row(&self, when: &str) {
        let acknowledged = self.seen.acknowledged.load(Ordering::SeqCst);
        eventually(ROAD, &format!("every acknowledged row {when}"), async || {
            let (count, last) = rows(&self.database).await?;
            assert_eq!(count, last, "a gap among the rows, or one twice");
            (last >= acknowledged).then_some(())
        })
        .await;
    }

    /// While it is protected it cannot be deleted in any way, and says what to do first.
    async fn is_protected(&self) {
        let Ready { namespace, resource, .. } = &self.database;
        self.edit("deletionProtection: true").await;
        for state in ["Deleted", "Purged"] {
            let refused = self.try_patch(&json!({ "runState": state })).await.unwrap_err().to_string();
            assert!(refused.contains("set spec.deletionProtection to false first"), "{state}: {refused}");
        }
        let delete = ["delete", "questdb", resource, "--namespace", namespace, "--wait=false"];
        let refused = kubectl(self.home, &delete).await.unwrap_err().to_string();
        assert!(refused.contains("set it to false first"), "{refused}");
        self.has_every_row("while it is protected").await;
        self.carry_out("deletionProtection: false").await;
    }

    /// A deletion keeps the disk, and a purge destroys it, whatever the policy of the disk says. The resource stays, as it is.
    async fn is_destroyed(&self) {
        let Ready { id, volume, .. } = &self.database;
        self.patch(&json!({ "storage": { "deletionPolicy": "Retain" } })).await;
        self.edit("runState: Deleted").await;
        self.is_away("Deleted").await;

        let shown = "| first `runState: Deleted`, then `runState: Purged` |";
        assert!(GUIDE.contains(shown), "the guide destroys a disk otherwise");
        self.carry_out("runState: Purged").await;
        eventually(ROAD, "no volume left at EC2", async || {
            volumes(self.home, volume).await.is_empty().then_some(())
        })
        .await;
        let found = self.read().await;
        let status = &found["status"];
        assert_eq!((&status["phase"], &status["volume"]["state"]), (&json!("Deleted"), &json!("deleted")));
        assert_eq!(status["volume"]["id"], volume.as_str(), "{found:#}");
        for kind in ["statefulset,service,configmap,secret,pvc,pod,networkpolicy", "pv", "node"] {
            eventually(ROAD, &format!("no {kind} left"), async || {
                objects(self.home, kind, id).await.ok()?.is_empty().then_some(())
            })
            .await;
        }
        let refused = self.try_patch(&json!({ "runState": "Running" })).await.unwrap_err().to_string();
        assert!(refused.contains("runState Purged is final"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_goes_through_the_further_edits_of_the_guide_and_loses_no_row_before_the_last() {
    let _whole = whole().await;
    let mut used = Used::begin(NEWER).await;
    used.draws_a_key().await;
    used.knows_its_neighbours().await;
    used.runs_with_a_variable().await;
    used.gets_another_name().await;
    used.comes_to_rest().await;
    used.gives_up_its_ports().await;
    used.is_protected().await;
    used.is_destroyed().await;
    used.goes(&[]).await;
}
