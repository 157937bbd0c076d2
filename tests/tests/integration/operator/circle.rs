//! The whole circle with an operator in it: what the API accepts becomes machines and disks in AWS, and what became of it is
//! believed in Postgres. Only machines, kubelets and Kubernetes' own controllers are played.

mod deleted;
mod raced;
mod restored;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backend::doorbell::Doorbell;
use backend::metrics::Metrics;
use backend::tokens::{self, Wish};
use domain::ClusterState;
use reqwest::Method;
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use store::Role;
use testkit::{Console, Spawned, bare_cluster, eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig};
use super::rights::grant_at;
use crate::endpoint::control;
use crate::provisioner::healing::{OFTEN, World};
use crate::provisioner::rig::Running;

/// How long the way there and back may take, on two busy processors.
const ROUND: Duration = PATIENCE.saturating_mul(2);

/// The statuses of answers by which the same is to be asked again: Postgres is too busy, or with the look-up of tokens.
const BUSY: [u16; 2] = [503, 429];

/// What a test works with.
struct Circle {
    world: World,
    rig: Arc<Rig>,
    console: Console,
    region: &'static str,
    lease: String,
    way: PathBuf,
    provisioner: Running,
    _others: Others,
}

/// A database that was asked for.
struct Made {
    id: String,
    /// What people call it.
    name: String,
    /// Its resource.
    resource: String,
}

impl Circle {
    /// In the cluster without controllers.
    async fn new() -> Self {
        let facts = bare_cluster();
        let ways: [&Path; 3] = [&facts.kubeconfig, &facts.provisioner_kubeconfig, &facts.operator_kubeconfig];
        Self::within(("bare", "eu-west-1"), ways).await
    }

    /// In a cluster of this name and region, by the ways of administrator, provisioner and operator to its API server. No operator
    /// runs yet.
    async fn within((cluster, region): (&str, &'static str), ways: [&Path; 3]) -> Self {
        let world = World::new().await;
        let rig = Rig::at(ways).await.in_namespace(format!("qdb-{}", world.rig.tenant)).await;
        std::fs::copy(ways[1], world.rig.credentials.join(format!("{cluster}.kubeconfig"))).unwrap();
        let known = domain::Cluster {
            id: cluster.parse().unwrap(),
            region: region.to_owned(),
            account: "000000000000".to_owned(),
            zones: BTreeMap::new(),
            hosted_zone_id: rig.zone().to_owned(),
            dns_suffix: rig.suffix().to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: ClusterState::Active,
            credentials: format!("file:{cluster}.kubeconfig"),
        };
        let store = &world.rig.store;
        store.put_cluster(&known).await.unwrap();
        let wish = Wish { role: Role::Sre, tenant: None, name: "circle".to_owned(), days: None };
        let token = tokens::create(store, wish).await.unwrap();
        let metrics = Metrics::new(&runtime::Metrics::default());
        let base = crate::backend::serve(store.clone(), Doorbell::default(), metrics, world.stopped()).await;
        let lease = rig.lease().await;
        let way = grant_at(ways[0], &rig.admin, &[&rig.namespace], &lease).await;
        let rig = Arc::new(rig);
        Self {
            console: Console::at(&base, &token, &world.rig.tenant),
            provisioner: world.rig.start(&OFTEN),
            _others: Others::of(&rig),
            world,
            rig,
            region,
            lease,
            way,
        }
    }

    /// An operator, which competes with the others of this circle.
    fn operator(&self) -> Spawned {
        self.rig.spawn((&self.lease, &self.way), &[], &[])
    }

    /// Asks for a database whose disk is kept when it is deleted.
    async fn create(&self) -> Made {
        let name = unique("circle");
        let wish = json!({ "name": name, "region": self.region, "storage": { "deletion_policy": "retain" } });
        let accepted = self.console.post("/v1/databases", &wish).await.unwrap();
        let id = accepted["database"]["id"].as_str().unwrap().to_owned();
        let resource = domain::id::resource_name(&name.parse().unwrap(), id.parse().unwrap());
        Made { id, name, resource }
    }

    /// Asks something of a database in one word, again where Postgres was too busy; status and body of the answer.
    async fn ask(&self, of: &Made, verb: &str, body: &Value) -> (u16, Value) {
        let (path, key) = (format!("/v1/databases/{}:{verb}", of.id), unique("key"));
        eventually(ROUND, "an answer of the API", async || {
            let request = self.console.request(Method::POST, &path).header("Idempotency-Key", &key);
            let request = if body.is_null() { request } else { request.json(body) };
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            let told: Value = answer.json().await.unwrap();
            (!BUSY.contains(&status)).then_some((status, told))
        })
        .await
    }

    /// Has a database deleted; the position at which it is.
    async fn delete(&self, of: &Made) -> i64 {
        let accepted = self.console.delete(&format!("/v1/databases/{}", of.id)).await.unwrap();
        assert_eq!(accepted["database"]["run_state"], "deleted", "{accepted:#}");
        seq(&accepted)
    }

    /// Asks for the end of what a deletion kept.
    async fn purge(&self, of: &Made) -> (u16, Value) {
        self.ask(of, "purge", &json!({ "confirm": of.name, "reason": "a test" })).await
    }

    /// The resource of a database.
    async fn resource(&self, of: &Made) -> Option<QuestDB> {
        self.rig.as_admin().get_opt(&of.resource).await.ok().flatten()
    }

    /// The same, once it has carried out a position and come to rest, and Postgres believes so.
    async fn carried_out(&self, of: &Made, seq: i64, phase: Phase) -> QuestDB {
        let what = format!("{} to be {} at {seq}", of.resource, phase.as_str());
        let found = eventually(ROUND, &what, async || {
            let found = self.resource(of).await?;
            let status = found.status.as_ref()?;
            let done = status.instruction.as_ref().is_some_and(|done| done.seq == seq);
            (done && status.phase == Some(phase)).then_some(found)
        })
        .await;
        self.world.is_settled(&of.id).await;
        found
    }

    /// The living disks of a database.
    async fn disks(&self, of: &Made) -> Vec<String> {
        let mut disks = self.rig.volumes().await;
        disks.retain(|disk| disk.tags.get(cloud::key::DATABASE) == Some(&of.id) && !disk.state.is_ending());
        disks.into_iter().map(|disk| disk.id.to_string()).collect()
    }

    /// Its one disk.
    async fn disk(&self, of: &Made) -> String {
        let mut disks = self.disks(of).await;
        assert_eq!(disks.len(), 1, "{disks:?}");
        disks.remove(0)
    }

    /// The living machines of a database.
    async fn machines(&self, of: &Made) -> Vec<String> {
        let mut machines = self.rig.instances().await;
        machines.retain(|machine| machine.tags.get(cloud::key::DATABASE) == Some(&of.id));
        machines.into_iter().map(|machine| machine.id.to_string()).collect()
    }

    /// How often somebody asked for the end of a disk since then.
    async fn ends_of(&self, disk: &str, since: u64) -> usize {
        let path = format!("/journal?since={since}&action=DeleteVolume");
        let answer = control("GET", &path, &Value::Null).await;
        let calls = answer["calls"].as_array().unwrap().iter();
        calls.filter(|call| call["params"].to_string().contains(disk)).count()
    }

    async fn end(self) {
        self.provisioner.stop().await;
        self.rig.end().await;
    }
}

/// The position at which an answer of the API shows a database.
fn seq(accepted: &Value) -> i64 {
    accepted["database"]["seq"].as_i64().unwrap_or_else(|| panic!("{accepted:#}"))
}
