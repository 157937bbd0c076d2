//! Wires everything together: the watches, the attacher, the look at EC2, and a task per machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::{Cloud, Instance, InstanceId, Select};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use runtime::health::Component;
use runtime::{Program, backoff};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::chain;
use crate::attach::Attacher;
use crate::context::{Caches, Clients, Context};
use crate::fleet::{self, Action, Ailments, Known};
use crate::machine::{self, Power};
use crate::manifest::Machine;
use crate::metrics::Counts;
use crate::pod::index::PodIndex;
use crate::settings::{Mode, Settings};
use crate::user_data::{self, NodeIntent};
use crate::{control, leftovers, node};

/// Tag of an instance with the name of its node, for those without user data.
const NODE_NAME: &str = "questdb.io/node-name";
/// Longest wait for a list of instances before the program counts as stuck.
const STUCK: Duration = Duration::from_mins(2);
/// Pause after something needed at the start failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts all tasks of the agent below a program.
pub fn spawn(
    program: &Program,
    settings: Settings,
    client: Client,
    cloud: Arc<dyn Cloud>,
) -> Result<(), reqwest::Error> {
    // Probes go to addresses of this machine, never through a proxy, and each opens a connection of its own.
    let http = reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let index = PodIndex::default();
    let changed = Arc::new(Notify::new());
    let caches = caches(program, &settings, &client, &changed);
    follow_pods(program, &client, &index);
    let clients = Clients { client, cloud, http };
    let counts = Counts::register(&program.metrics);
    let context = Arc::new(Context::new(settings, clients, caches, counts));
    let attacher = Attacher::new(Arc::clone(&context));
    program.tasks.spawn("attacher", attacher.run(changed, program.stop()));
    let ec2 = program.health.readiness.component("ec2");
    let kubernetes = program.health.readiness.component("kubernetes");
    ec2.set_failing("not asked yet");
    kubernetes.set_failing("not asked yet");
    let heartbeat = program.health.liveness.heartbeat("instances", STUCK);
    let fleet =
        Fleet { context, index, machines: BTreeMap::new(), strangers: BTreeMap::new(), stop: program.stop() };
    program.tasks.spawn("instances", fleet.run(ec2, kubernetes, move || heartbeat.beat()));
    Ok(())
}

fn caches(program: &Program, settings: &Settings, client: &Client, changed: &Arc<Notify>) -> Caches {
    let changed = Arc::clone(changed);
    let attachments =
        cache::<VolumeAttachment>(program, Api::all(client.clone()), move || changed.notify_one());
    // Without processes nobody reads them.
    let needed = settings.mode == Mode::Process;
    Caches {
        config_maps: if needed {
            cache(program, Api::<ConfigMap>::all(client.clone()), || ())
        } else {
            reflector::store().0
        },
        secrets: if needed {
            cache(program, Api::<Secret>::all(client.clone()), || ())
        } else {
            reflector::store().0
        },
        attachments,
    }
}

fn cache<K>(program: &Program, api: Api<K>, changed: impl Fn() + Send + 'static) -> Store<K>
where
    K: Resource<DynamicType = ()>
        + Lookup<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let stream = slim(watcher(api, watcher::Config::default())).reflect(writer);
    let stop = program.stop();
    let kind = <K as Resource>::kind(&()).into_owned();
    program.tasks.spawn(format!("watch {kind}"), async move {
        let mut stream = std::pin::pin!(stream);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = stream.next() => event,
            };
            match event {
                Some(Ok(_)) => changed(),
                Some(Err(error)) => tracing::warn!(kind, "a watch failed: {}", chain(&error)),
                None => return,
            }
        }
    });
    store
}

fn follow_pods(program: &Program, client: &Client, index: &PodIndex) {
    let (index, stop) = (index.clone(), program.stop());
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let pods = slim(watcher(Api::<Pod>::all(client.clone()), config));
    program.tasks.spawn("watch Pod", async move {
        let pods = pods.inspect_err(|error| tracing::warn!(kind = "Pod", "a watch failed: {}", chain(error)));
        // The watch goes on after an error by itself.
        let events = pods.filter_map(|event| std::future::ready(event.ok().map(Ok)));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = index.follow(events) => {}
        }
    });
}

/// Without the fields nobody here reads, and with pauses after errors.
fn slim<K: Resource + Send>(
    stream: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send {
    stream.modify(|object| object.managed_fields_mut().clear()).default_backoff()
}

/// A machine and its task.
struct Running {
    node: String,
    known: Known,
    power: Option<watch::Sender<Power>>,
    task: Option<JoinHandle<()>>,
}

struct Fleet {
    context: Arc<Context>,
    index: PodIndex,
    machines: BTreeMap<InstanceId, Running>,
    /// Instances that describe no node, and why.
    strangers: BTreeMap<InstanceId, String>,
    stop: CancellationToken,
}

impl Fleet {
    async fn run(mut self, ec2: Component, kubernetes: Component, beat: impl Fn() + Send + Sync + 'static) {
        if !self.prepare(&kubernetes, &beat).await {
            return;
        }
        let mut swept = false;
        loop {
            match self.look().await {
                Ok(instances) => {
                    ec2.set_ok();
                    let first = !std::mem::replace(&mut swept, true);
                    self.act(&instances, first).await;
                }
                Err(error) => {
                    tracing::warn!("cannot look at the instances: {}", chain(&error));
                    ec2.set_failing(chain(&error));
                }
            }
            if let Err(error) = self.context.disks.look(self.context.cloud.as_ref()).await {
                tracing::warn!("cannot look at the volumes: {}", chain(&error));
            }
            beat();
            if !backoff::sleep(self.context.settings.poll, &self.stop).await {
                return self.end().await;
            }
        }
    }

    /// What has to be known before the first decision: Nodes registered before, and every pod. `false` at a stop.
    async fn prepare(&mut self, kubernetes: &Component, beat: &(impl Fn() + Sync)) -> bool {
        let registered = loop {
            let prepared = match node::ensure_driver(&self.context).await {
                Ok(()) => node::registered(&self.context).await,
                Err(error) => Err(error),
            };
            match prepared {
                Ok(registered) => break registered,
                Err(error) => {
                    tracing::warn!("cannot begin: {}", chain(&error));
                    kubernetes.set_failing(chain(&error));
                }
            }
            beat();
            if !backoff::sleep(PAUSE, &self.stop).await {
                return false;
            }
        };
        for (node, instance) in registered {
            let running = Running { node, known: Known::off(), power: None, task: None };
            self.machines.insert(InstanceId::from(instance), running);
        }
        let mut complete = self.index.complete();
        tokio::select! {
            () = self.stop.cancelled() => return false,
            waited = complete.wait_for(|complete| *complete) => if waited.is_err() { return false },
        }
        kubernetes.set_ok();
        true
    }

    async fn look(&self) -> Result<Vec<Instance>, cloud::Error> {
        let all = Select::cluster(&self.context.settings.cluster);
        self.context.cloud.describe_instances(&all).await
    }

    async fn act(&mut self, instances: &[Instance], first: bool) {
        if first {
            leftovers::sweep(&self.context, instances).await;
        }
        let ailments = self.ailments().await;
        let known = self.machines.iter().map(|(id, running)| (id.clone(), running.known.clone())).collect();
        let on = self.machines.values().filter(|running| running.known.power != Power::Off).count();
        self.context.counts.machines.set(i64::try_from(on).unwrap_or(i64::MAX));
        for action in fleet::decide(instances, &known, &ailments, Timestamp::now()) {
            match action {
                Action::Boot(id, power) => self.boot(instances, &id, power).await,
                Action::Switch(id, power) => self.switch(&id, power),
                Action::Miss(id) => self.with(&id, |known| known.missing_since = Some(Timestamp::now())),
                Action::Return(id) => self.with(&id, |known| known.missing_since = None),
                Action::Bury(id) => self.bury(&id).await,
            }
        }
    }

    async fn ailments(&self) -> Ailments {
        let Some(url) = &self.context.settings.control_url else { return Ailments::default() };
        match control::ailments(&self.context.http, url, &self.context.settings.region).await {
            Ok(ailments) => ailments,
            Err(error) => {
                tracing::warn!("{}", chain(&error));
                // As it was: an answer that does not come cuts nobody off and brings nobody back.
                let with = |power: Power| {
                    let there = self.machines.iter().filter(move |(_, running)| running.known.power == power);
                    there.map(|(id, _)| id.clone()).collect()
                };
                Ailments { isolated: with(Power::Isolated), impaired: with(Power::Off) }
            }
        }
    }

    async fn boot(&mut self, instances: &[Instance], id: &InstanceId, power: Power) {
        let Some(instance) = instances.iter().find(|instance| instance.id == *id) else { return };
        if self.strangers.contains_key(id) {
            return;
        }
        let intent = match self.intent(instance).await {
            Ok(intent) => intent,
            Err(Some(reason)) => {
                tracing::warn!(instance.id = %id, "an instance is no node: {reason}");
                self.strangers.insert(id.clone(), reason);
                return;
            }
            Err(None) => return,
        };
        let (sender, receiver) = watch::channel(power);
        let machine = Machine { instance: instance.clone(), intent };
        let node = machine.intent.name.clone();
        let pods = self.index.subscribe(&node);
        tracing::info!(instance.id = %id, node.name = node, "a machine boots");
        let before = self.machines.get_mut(id).and_then(|running| running.task.take());
        let run = machine::run(Arc::clone(&self.context), machine, receiver, pods, self.stop.clone());
        let task = tokio::spawn(async move {
            // A machine that comes back must find nothing of the one that went.
            if let Some(before) = before {
                let _ = before.await;
            }
            run.await;
        });
        let known = Known { power, missing_since: None, buried: false };
        self.machines.insert(id.clone(), Running { node, known, power: Some(sender), task: Some(task) });
    }

    /// `Err(None)` if that could not be found out now.
    async fn intent(&self, instance: &Instance) -> Result<NodeIntent, Option<String>> {
        let told = match self.context.cloud.describe_user_data(&instance.id).await {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(instance.id = %instance.id, "cannot read user data: {}", chain(&error));
                return Err(None);
            }
        };
        let text = told.as_ref().map_or("", |told| told.expose());
        let parsed = user_data::parse(text, &self.context.settings.cluster);
        let tagged = || instance.tags.get(NODE_NAME).and_then(user_data::named);
        match parsed {
            Ok(Some(intent)) => Ok(intent),
            Ok(None) => tagged().ok_or_else(|| Some("neither user data nor tag names a node".to_owned())),
            Err(error) => tagged().ok_or_else(|| Some(error.to_string())),
        }
    }

    fn switch(&mut self, id: &InstanceId, power: Power) {
        let Some(running) = self.machines.get_mut(id) else { return };
        running.known.power = power;
        if let Some(sender) = &running.power {
            sender.send_replace(power);
        }
    }

    async fn bury(&mut self, id: &InstanceId) {
        let Some(running) = self.machines.get_mut(id) else { return };
        // Its task may be about to say something of the Node.
        if running.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        match node::bury(&self.context, &running.node, id.as_str()).await {
            Ok(buried) => {
                if buried {
                    tracing::info!(instance.id = %id, node.name = running.node, "a machine is gone for good");
                }
                running.known.buried = buried;
            }
            Err(error) => tracing::warn!(node.name = running.node, "{}", chain(&error)),
        }
    }

    fn with(&mut self, id: &InstanceId, change: impl FnOnce(&mut Known)) {
        if let Some(running) = self.machines.get_mut(id) {
            change(&mut running.known);
        }
    }

    async fn end(self) {
        for running in self.machines.into_values() {
            if let Some(task) = running.task {
                let _ = task.await;
            }
        }
    }
}
