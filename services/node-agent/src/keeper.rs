//! Keeps the machines as EC2 has them: looks, decides (`fleet`), boots, switches and buries, a task per machine. Never
//! stops a machine because an answer did not come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::{Instance, InstanceId, Select};
use jiff::Timestamp;
use runtime::health::Component;
use runtime::{Backoff, backoff};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::chain;
use crate::context::Context;
use crate::fleet::{self, Action, Ailments, Known};
use crate::machine::{self, Power};
use crate::manifest::Machine;
use crate::pod::index::PodIndex;
use crate::user_data::{self, NodeIntent};
use crate::{api, control, leftovers, node};

/// Tag of an instance with the name of its node, for those without user data.
const NODE_NAME: &str = "questdb.io/node-name";
/// Patience with what is needed at the start.
const PATIENCE: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// A machine and its task.
struct Running {
    node: String,
    known: Known,
    power: Option<watch::Sender<Power>>,
    task: Option<JoinHandle<()>>,
}

/// All machines of the cluster.
pub struct Keeper {
    context: Arc<Context>,
    index: PodIndex,
    machines: BTreeMap<InstanceId, Running>,
    /// Instances that describe no node, and why.
    strangers: BTreeMap<InstanceId, String>,
    stop: CancellationToken,
}

impl Keeper {
    /// Without machines; `run` finds them.
    pub fn new(context: Arc<Context>, index: PodIndex, stop: CancellationToken) -> Self {
        Self { context, index, machines: BTreeMap::new(), strangers: BTreeMap::new(), stop }
    }

    /// Until told to stop; calls `beat` at every look.
    pub async fn run(mut self, ec2: Component, beat: impl Fn() + Send + Sync + 'static) {
        if !self.prepare(&beat).await {
            return;
        }
        let mut first = true;
        loop {
            // The component tells when this changes, so nothing is logged at every look.
            match self.pass(&mut first).await {
                Ok(()) => ec2.set_ok(),
                Err(error) => ec2.set_failing(chain(&error)),
            }
            beat();
            if !backoff::sleep(self.context.settings.poll, &self.stop).await {
                return self.end().await;
            }
        }
    }

    async fn pass(&mut self, first: &mut bool) -> Result<(), cloud::Error> {
        let all = Select::cluster(&self.context.settings.cluster);
        let instances = self.context.cloud.describe_instances(&all).await?;
        if std::mem::take(first) {
            leftovers::sweep(&self.context, &instances).await;
        }
        self.act(&instances).await;
        self.context.disks.look(self.context.cloud.as_ref()).await
    }

    /// What has to be known before the first decision: Nodes registered before, and every pod. `false` at a stop.
    async fn prepare(&mut self, beat: &(impl Fn() + Sync)) -> bool {
        let mut retry = PATIENCE.start();
        loop {
            beat();
            match self.find_registered().await {
                Ok(()) if *self.index.complete().borrow() => return true,
                Ok(()) => tracing::debug!("waiting for the first list of pods"),
                Err(error) => tracing::warn!("cannot begin: {}", chain(&error)),
            }
            if !retry.wait(&self.stop).await {
                return false;
            }
        }
    }

    async fn find_registered(&mut self) -> Result<(), api::Error> {
        node::ensure_driver(&self.context).await?;
        for (node, instance) in node::registered(&self.context).await? {
            let running = Running { node, known: Known::off(), power: None, task: None };
            self.machines.insert(InstanceId::from(instance), running);
        }
        Ok(())
    }

    async fn act(&mut self, instances: &[Instance]) {
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
