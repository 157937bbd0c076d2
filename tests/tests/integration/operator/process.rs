//! What stands in for QuestDB behind the pods of many databases, which have none: it says what a real one would to the operator,
//! which asks for no more than it is answered here. That a real one says so is tested with a real one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use resources::names::{self, port};
use serde_json::{Value, json};
use testkit::eventually;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::rig::{PATIENCE, Rig};

/// Between two looks at the pods.
const PAUSE: Duration = Duration::from_millis(150);

/// A process for each database, at the address of its pod, until dropped.
pub(super) struct Processes {
    all: BTreeMap<String, Arc<Process>>,
    tasks: Vec<AbortHandle>,
}

impl Processes {
    /// Of the databases of these names.
    pub(super) async fn of(rig: &Arc<Rig>, names: impl Iterator<Item = &str>) -> Self {
        let configs: Api<ConfigMap> = Api::namespaced(rig.admin.clone(), &rig.namespace);
        let (mut all, mut tasks) = (BTreeMap::new(), Vec::new());
        for name in names {
            let process = Process::new(configs.clone(), name);
            let listener = TcpListener::bind((process.address, port::HTTP)).await.unwrap();
            let router = Router::new().route("/exec", get(exec)).with_state(Arc::clone(&process));
            tasks.push(tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle());
            all.insert(name.to_owned(), process);
        }
        let (pods, processes) = (Api::namespaced(rig.admin.clone(), &rig.namespace), all.clone());
        let starts = tokio::spawn(async move {
            loop {
                // What did not work is tried again.
                let _ = start(&pods, &processes).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        tasks.push(starts.abort_handle());
        Self { all, tasks }
    }

    /// Whether a checkpoint holds this database.
    pub(super) fn is_held(&self, name: &str) -> bool {
        self.all[name].known.lock().unwrap().held_since.is_some()
    }

    /// Waits until every pod of the databases has its process.
    pub(super) async fn started(&self, rig: &Rig) {
        let pods: Api<Pod> = Api::namespaced(rig.admin.clone(), &rig.namespace);
        let is_of_one =
            |pod: &&Pod| pod.labels().get(names::LABEL_NAME).is_some_and(|name| self.all.contains_key(name));
        eventually(PATIENCE, "an address for every pod", async || {
            let found = pods.list(&ListParams::default()).await.ok()?.items;
            found.iter().filter(is_of_one).all(has_address).then_some(())
        })
        .await;
    }

    /// Where the process of a database is.
    pub(super) fn address(&self, name: &str) -> IpAddr {
        self.all[name].address
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Every new pod has a process of its own, at the address that all pods of its database have.
async fn start(pods: &Api<Pod>, processes: &BTreeMap<String, Arc<Process>>) -> kube::Result<()> {
    for pod in pods.list(&ListParams::default()).await?.items {
        let process = pod.labels().get(names::LABEL_NAME).and_then(|name| processes.get(name));
        let Some(process) = process.filter(|_| !has_address(&pod)) else { continue };
        let keys = process.shown().await?;
        *process.known.lock().unwrap() = Known { held_since: None, keys };
        let address = process.address;
        // Another pod of its name, which may be there by now, has a process of its own, with what it keeps.
        let same = json!({ "uid": pod.metadata.uid });
        let status =
            json!({ "metadata": same, "status": { "podIP": address, "podIPs": [{ "ip": address }] } });
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&status)).await?;
    }
    Ok(())
}

fn has_address(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())
}

struct Process {
    configs: Api<ConfigMap>,
    config: String,
    address: IpAddr,
    known: Mutex<Known>,
}

/// What a process keeps in its memory.
#[derive(Default)]
struct Known {
    /// When the checkpoint began that holds it.
    held_since: Option<Timestamp>,
    /// The keys of server.conf as it read them.
    keys: BTreeMap<String, String>,
}

impl Process {
    fn new(configs: Api<ConfigMap>, name: &str) -> Arc<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let place = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = u8::try_from(std::process::id() % 250 + 1).unwrap();
        let address = IpAddr::V4(Ipv4Addr::new(127, 79, process, place));
        Arc::new(Self { configs, config: names::config(name), address, known: Mutex::default() })
    }

    /// The keys of server.conf that the pod is shown.
    async fn shown(&self) -> kube::Result<BTreeMap<String, String>> {
        let data = self.configs.get(&self.config).await?.data.unwrap_or_default();
        let lines = data.get("server.conf").map_or("", String::as_str).lines();
        let keys = lines.filter_map(|line| line.split_once('='));
        Ok(keys.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    async fn answer(&self, statement: &str) -> Result<Value, String> {
        let rows = |rows: Value| Ok(json!({ "columns": [], "dataset": rows }));
        let done = json!({ "ddl": "OK" });
        if statement == "SELECT reload_config()" {
            let keys = self.shown().await.map_err(|error| error.to_string())?;
            let mut known = self.known.lock().unwrap();
            let is_other = known.keys != keys;
            known.keys = keys;
            return rows(json!([[is_other]]));
        }
        let mut known = self.known.lock().unwrap();
        match statement {
            "CHECKPOINT CREATE" if known.held_since.is_some() => {
                Err("Waiting for CHECKPOINT RELEASE to be called".to_owned())
            }
            "CHECKPOINT CREATE" => {
                known.held_since = Some(Timestamp::now());
                Ok(done)
            }
            "CHECKPOINT RELEASE" => {
                known.held_since = None;
                Ok(done)
            }
            _ if statement.contains("checkpoint_status()") => {
                let since = known.held_since.map(|since| since.to_string());
                rows(json!([[since.is_some(), since, Timestamp::now().to_string()]]))
            }
            _ if statement.contains("wal_tables()") => rows(json!([])),
            _ if statement.contains("(SHOW PARAMETERS)") => {
                // Nothing but the keys is in quotes.
                let keys = statement.split('\'').skip(1).step_by(2);
                let row = |key: &str| match known.keys.get(key) {
                    Some(value) => json!([key, value, "conf"]),
                    None => json!([key, "", "default"]),
                };
                rows(keys.map(row).collect())
            }
            _ => Err(format!("nobody told what to say to {statement}")),
        }
    }
}

async fn exec(
    State(process): State<Arc<Process>>,
    Query(asked): Query<BTreeMap<String, String>>,
) -> (StatusCode, Json<Value>) {
    let statement = asked.get("query").map_or("", String::as_str);
    match process.answer(statement).await {
        Ok(answer) => (StatusCode::OK, Json(answer)),
        Err(error) => (StatusCode::BAD_REQUEST, Json(json!({ "query": statement, "error": error }))),
    }
}
