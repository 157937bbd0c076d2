//! One machine that is up: its network, its Node and Lease, and the workers of its pods. A task for each; it ends when
//! the machine loses power or the agent stops, and only in the first case takes anything down.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use runtime::Backoff;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::api::chain;
use crate::context::Context;
use crate::manifest::Machine;
use crate::network::NodeNetwork;
use crate::node::Registration;
use crate::pod::index::NodePods;
use crate::pod::intent::{PodKey, has_process};
use crate::pod::record;
use crate::pod::simulate;
use crate::pod::worker::Worker;
use crate::settings::Mode;

/// Patience with an API server or a network that does not do what it should.
const PATIENCE: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
/// Simulated pods dealt with at once, per node.
const SIMULATIONS: usize = 4;
/// Longest wait for the workers of a machine that lost its power.
const DEATH: Duration = Duration::from_secs(10);

/// Whether the machine has power and a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Both.
    On,
    /// Power only.
    Isolated,
    /// Neither: everything on it has stopped.
    Off,
}

/// What belongs to the machine, for its workers.
#[derive(Debug)]
pub struct Site {
    /// The machine.
    pub machine: Machine,
    /// Where its pods answer.
    pub address: IpAddr,
    /// Its network.
    pub network: NodeNetwork,
    /// The set of volumes in use may have changed.
    pub changed: Notify,
}

/// Runs the machine until it loses power or the agent stops.
pub async fn run(
    context: Arc<Context>,
    machine: Machine,
    power: watch::Receiver<Power>,
    pods: watch::Receiver<NodePods>,
    stop: CancellationToken,
) {
    let private = private_address(&machine);
    let network = NodeNetwork::new(&context.settings, machine.instance.id.as_str(), private);
    let address = context.settings.reachable_address(private);
    let site = Arc::new(Site { machine, address, network, changed: Notify::new() });
    let registration = Registration::new(Arc::clone(&context), site.machine.clone());
    let workers = Workers::new(Arc::clone(&context), Arc::clone(&site), power.clone(), stop.clone());
    let mut host = Host { context, site, power, pods, registration, workers, stop };
    if host.boot().await {
        host.serve().await;
    }
    if *host.power.borrow() == Power::Off {
        host.fall().await;
    }
}

struct Host {
    context: Arc<Context>,
    site: Arc<Site>,
    power: watch::Receiver<Power>,
    pods: watch::Receiver<NodePods>,
    registration: Registration,
    workers: Workers,
    stop: CancellationToken,
}

impl Host {
    /// Network and Node. `false` if power went or the agent stops before both are there.
    async fn boot(&mut self) -> bool {
        let mut retry = PATIENCE.start();
        while let Err(reason) = self.try_boot().await {
            tracing::warn!(node.name = self.name(), "a machine cannot boot yet: {reason}");
            let wait = retry.next_delay();
            tokio::select! {
                () = self.stop.cancelled() => return false,
                () = tokio::time::sleep(wait) => {}
                Ok(()) = self.power.changed() => {}
            }
            if *self.power.borrow() == Power::Off {
                return false;
            }
        }
        tracing::info!(node.name = self.name(), instance.id = %self.site.machine.instance.id, address = %self.site.address, "a node joined");
        true
    }

    async fn try_boot(&mut self) -> Result<(), String> {
        if self.context.settings.mode == Mode::Process {
            self.site.network.ensure().await.map_err(|error| chain(&error))?;
            if *self.power.borrow() == Power::Isolated {
                self.site.network.set_isolated(true).await.map_err(|error| chain(&error))?;
                return Err("it is cut off".to_owned());
            }
        }
        self.registration.register().await.map_err(|error| chain(&error))
    }

    async fn serve(&mut self) {
        let mut lease = tokio::time::interval(self.context.settings.lease_renewal);
        lease.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pods = self.pods.borrow_and_update().clone();
        self.workers.adopt(&pods);
        self.tell_volumes().await;
        loop {
            let online = *self.power.borrow() == Power::On;
            tokio::select! {
                () = self.stop.cancelled() => return,
                Ok(()) = self.power.changed() => {
                    if !self.take_power().await {
                        return;
                    }
                    lease.reset_immediately();
                }
                Ok(()) = self.pods.changed() => {
                    let pods = self.pods.borrow_and_update().clone();
                    self.take_pods(&pods).await;
                }
                Some(gone) = self.workers.next() => {
                    tracing::info!(node.name = self.name(), pod.name = %gone, "a pod is gone");
                    let pods = self.pods.borrow().clone();
                    self.workers.follow(&pods);
                    self.tell_volumes().await;
                }
                () = self.site.changed.notified(), if online => self.tell_volumes().await,
                _ = lease.tick(), if online => {
                    self.renew().await;
                    let pods = self.pods.borrow().clone();
                    self.take_pods(&pods).await;
                }
            }
        }
    }

    /// Returns whether there is still power.
    async fn take_power(&mut self) -> bool {
        let power = *self.power.borrow_and_update();
        if power == Power::Off {
            return false;
        }
        let isolated = power == Power::Isolated;
        tracing::info!(node.name = self.name(), isolated, "the reach of a machine changed");
        if self.context.settings.mode == Mode::Process
            && let Err(error) = self.site.network.set_isolated(isolated).await
        {
            tracing::error!(node.name = self.name(), "{}", chain(&error));
        }
        true
    }

    async fn take_pods(&mut self, pods: &NodePods) {
        if *self.power.borrow() != Power::On {
            return;
        }
        self.workers.follow(pods);
        let mut simulated = Vec::new();
        for pod in pods.values().filter(|pod| self.workers.is_simulated(pod)) {
            simulated.push(simulate_one(Arc::clone(&self.context), Arc::clone(pod), self.site.address));
        }
        futures::stream::iter(simulated).buffer_unordered(SIMULATIONS).collect::<()>().await;
    }

    async fn renew(&mut self) {
        if let Err(error) = self.registration.renew().await {
            tracing::warn!(node.name = self.name(), "{}", chain(&error));
        }
    }

    async fn tell_volumes(&mut self) {
        let in_use = self.context.disks.of_instance(&self.site.machine.instance.id);
        let in_use: BTreeSet<_> = in_use.into_iter().collect();
        if *self.power.borrow() == Power::On
            && let Err(error) = self.registration.volumes_in_use(in_use).await
        {
            tracing::warn!(node.name = self.name(), "{}", chain(&error));
        }
    }

    /// Power is gone: processes first, then the network they were in.
    async fn fall(&mut self) {
        let deadline = Instant::now() + DEATH;
        while let Ok(Some(_)) = tokio::time::timeout_at(deadline, self.workers.next_or_none()).await {}
        for (dir, record) in record::scan(&self.context.settings.data_dir) {
            if record.is_some_and(|record| record.instance == self.site.machine.instance.id.as_str()) {
                self.context.processes.kill_session(&dir);
            }
        }
        if self.context.settings.mode == Mode::Process
            && let Err(error) = self.site.network.remove().await
        {
            tracing::warn!(node.name = self.name(), "{}", chain(&error));
        }
        tracing::info!(node.name = self.name(), "a machine lost its power");
    }

    fn name(&self) -> &str {
        &self.site.machine.intent.name
    }
}

/// The workers of one machine.
struct Workers {
    context: Arc<Context>,
    site: Arc<Site>,
    power: watch::Receiver<Power>,
    stop: CancellationToken,
    pods: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    tasks: JoinSet<PodKey>,
}

impl Workers {
    fn new(
        context: Arc<Context>,
        site: Arc<Site>,
        power: watch::Receiver<Power>,
        stop: CancellationToken,
    ) -> Self {
        Self { context, site, power, stop, pods: HashMap::new(), tasks: JoinSet::new() }
    }

    fn is_simulated(&self, pod: &Pod) -> bool {
        self.context.settings.mode == Mode::None || !has_process(pod)
    }

    /// What an earlier agent left on this machine, then what is bound to it.
    fn adopt(&mut self, pods: &NodePods) {
        for (_, record) in record::scan(&self.context.settings.data_dir) {
            let Some(record) = record else { continue };
            if record.instance == self.site.machine.instance.id.as_str() {
                self.start(&record.key(), pods.get(&record.uid).cloned());
            }
        }
        self.follow(pods);
    }

    /// One worker for each pod with a process; those whose pod vanished are told so.
    fn follow(&mut self, pods: &NodePods) {
        let simulates = self.context.settings.mode == Mode::None;
        for (uid, pod) in pods.iter().filter(|(_, pod)| !simulates && has_process(pod)) {
            let Some(sender) = self.pods.get(uid) else {
                self.start(&PodKey::of(pod), Some(Arc::clone(pod)));
                continue;
            };
            sender.send_if_modified(|current| {
                let before = current.replace(Arc::clone(pod));
                !before.is_some_and(|before| Arc::ptr_eq(&before, pod))
            });
        }
        for (_, sender) in self.pods.iter().filter(|(uid, _)| !pods.contains_key(*uid)) {
            sender.send_if_modified(|current| current.take().is_some());
        }
    }

    fn start(&mut self, key: &PodKey, pod: Option<Arc<Pod>>) {
        let (sender, receiver) = watch::channel(pod);
        self.pods.insert(key.uid.clone(), sender);
        let (context, site) = (Arc::clone(&self.context), Arc::clone(&self.site));
        let worker = Worker::new(context, site, self.power.clone(), receiver, key);
        self.tasks.spawn(worker.run(self.stop.clone()));
    }

    /// The next pod that is gone. Waits for ever while there is none.
    async fn next(&mut self) -> Option<PodKey> {
        match self.next_or_none().await {
            None => std::future::pending().await,
            some => some,
        }
    }

    /// The next pod that is gone; `None` when no worker is left.
    async fn next_or_none(&mut self) -> Option<PodKey> {
        loop {
            match self.tasks.join_next().await? {
                Ok(key) => {
                    self.pods.remove(&key.uid);
                    return Some(key);
                }
                Err(error) => tracing::error!(%error, "the worker of a pod failed"),
            }
        }
    }
}

async fn simulate_one(context: Arc<Context>, pod: Arc<Pod>, address: IpAddr) {
    if let Err(error) = simulate::act(&context, &pod, &address.to_string()).await {
        tracing::warn!(pod.name = %PodKey::of(&pod), "{}", chain(&error));
    }
}

fn private_address(machine: &Machine) -> Ipv4Addr {
    match machine.instance.private_ip {
        Some(IpAddr::V4(address)) => address,
        // The fleet boots no machine without one.
        Some(IpAddr::V6(_)) | None => Ipv4Addr::UNSPECIFIED,
    }
}
