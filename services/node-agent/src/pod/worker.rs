//! Looks after one pod with a process: looks, decides (`decide`), acts, reports; again and again until the pod is gone.
//! Everything it must remember over a restart of the agent is in the pod's record.

mod acts;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::runtime::events::EventType;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::container::ContainerIntent;
use super::decide::{self, Action, BackOff, Ground, Observed, Process, Wish};
use super::intent::{self, PodIntent, PodKey, RestartPolicy, Unsupported};
use super::probe::{Probes, later};
use super::record::{self, End, Record, Runs, Stage};
use crate::context::Context;
use crate::machine::{Power, Site};
use crate::process::State;

/// Time between two looks at a process that runs.
const LOOK: Duration = Duration::from_millis(500);
/// Time between two looks for changed `ConfigMaps` and Secrets.
const REFRESH: Duration = Duration::from_secs(2);
/// Time after which a report that the API server does not show is sent again.
const RESEND: Duration = Duration::from_secs(5);

/// Longest time for a shell to write down what it has to.
const SETTLING: Duration = Duration::from_secs(10);

/// Pause after a report that was not taken.
const SILENCE: Duration = Duration::from_secs(2);

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Look again after this long, or when something changes.
    Again(Duration),
    /// The pod is gone, with all that belonged to it.
    Gone,
}

/// Looks after one pod.
pub struct Worker {
    context: Arc<Context>,
    site: Arc<Site>,
    power: watch::Receiver<Power>,
    pods: watch::Receiver<Option<Arc<Pod>>>,
    pod: Option<Arc<Pod>>,
    intent: Option<Result<PodIntent, Unsupported>>,
    record: Record,
    run_dir: PathBuf,
    probes: Option<Probes>,
    /// Since when a shell has had something to write down.
    settling: Option<Instant>,
    /// Since when the process has been asked to end, until when, and why.
    ending: Option<(Timestamp, &'static str)>,
    waiting: (String, String),
    resting: bool,
    refresh_at: Timestamp,
    told: Option<(PodStatus, Timestamp)>,
    silent_until: Timestamp,
}

impl Worker {
    /// For a pod the API server shows, or for what an earlier agent left of one.
    pub fn new(
        context: Arc<Context>,
        site: Arc<Site>,
        power: watch::Receiver<Power>,
        pods: watch::Receiver<Option<Arc<Pod>>>,
        key: &PodKey,
    ) -> Self {
        let now = Timestamp::now();
        let run_dir = record::run_dir(&context.settings.data_dir, key);
        let record = Record::load(&run_dir).unwrap_or_else(|| {
            let (cluster, address) = (&context.settings.cluster, site.address.to_string());
            let init = vec![Runs::default(); pods.borrow().as_deref().map_or(0, intent::init_count)];
            Record { init, ..Record::new(key, cluster, &site.machine, &address, now) }
        });
        let mut worker = Self {
            context,
            site,
            power,
            pods,
            pod: None,
            intent: None,
            record,
            run_dir,
            probes: None,
            settling: None,
            ending: None,
            waiting: ("ContainerCreating".to_owned(), String::new()),
            resting: false,
            refresh_at: now,
            told: None,
            silent_until: now,
        };
        worker.take_pod();
        worker.adopt();
        worker
    }

    /// Until the pod is gone or the agent stops; a process that runs is left alone then.
    pub async fn run(mut self, stop: CancellationToken) -> PodKey {
        loop {
            let wait = match self.step().await {
                Outcome::Gone => return self.record.key(),
                Outcome::Again(wait) => wait,
            };
            tokio::select! {
                () = stop.cancelled() => return self.record.key(),
                () = tokio::time::sleep(wait) => {}
                Ok(()) = self.pods.changed() => {}
                Ok(()) = self.power.changed() => {}
            }
        }
    }

    /// One look and what follows from it.
    pub async fn step(&mut self) -> Outcome {
        let power = *self.power.borrow_and_update();
        match power {
            Power::Off => return self.die(),
            // Cut off: the process lives on, but nothing is heard of it and nothing reaches it.
            Power::Isolated => return Outcome::Again(LOOK),
            Power::On => {}
        }
        self.take_pod();
        if self.note_end() {
            return Outcome::Again(Duration::from_millis(20));
        }
        let observed = self.observe().await;
        let action = decide::decide(&observed, self.back_off());
        let outcome = self.act(action).await;
        if outcome != Outcome::Gone {
            self.report().await;
        }
        outcome
    }

    fn back_off(&self) -> BackOff {
        let (first, longest) = self.context.settings.crash_back_off;
        BackOff { first, longest }
    }

    fn take_pod(&mut self) {
        let current = self.pods.borrow_and_update().clone();
        if let Some(pod) = &current
            && self.intent.is_none()
        {
            self.intent = Some(intent::parse(pod));
        }
        // A pod that vanished is still needed to know what it asked for.
        self.pod = current.or_else(|| self.pod.take());
    }

    fn wish(&self) -> Wish {
        let deleted = self.pods.borrow().as_ref().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        if deleted { Wish::Stop } else { Wish::Run }
    }

    /// Takes up a process that an earlier agent started.
    fn adopt(&mut self) {
        let State::Running(_) = self.context.processes.state(&self.run_dir) else { return };
        for volume in self.record.volumes.values() {
            let volume = volume.as_str().into();
            if let Err(holder) =
                self.context.disks.claim(&volume, &self.record.uid, &self.site.machine.instance.id)
            {
                tracing::error!(pod.name = %self.record.key(), %volume, %holder, "two processes use one volume");
            }
        }
        let was_ready = self.pod.as_ref().is_some_and(|pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions
                .filter(|condition| condition.type_ == "Ready")
                .any(|condition| condition.status == "True")
        });
        self.probes = self.new_probes();
        if let Some(probes) = self.probes.as_mut().filter(|_| was_ready) {
            probes.assume_good();
        }
        tracing::info!(pod.name = %self.record.key(), "adopted a running process");
    }

    fn new_probes(&self) -> Option<Probes> {
        // Only the container that stays is probed.
        let container = self.container().filter(|_| self.record.stage() == Stage::Main)?;
        let started = self.record.main.started_at.unwrap_or_else(Timestamp::now);
        let container = container.clone();
        Some(Probes::new(container.startup, container.readiness, container.liveness, started))
    }

    /// The container whose turn it is.
    fn container(&self) -> Option<&ContainerIntent> {
        self.intent.as_ref()?.as_ref().ok()?.at(self.record.stage())
    }

    fn container_name(&self) -> String {
        self.container().map_or_else(|| intent::QUESTDB.to_owned(), |container| container.name.clone())
    }

    /// A shell has yet to write something down; one that never does is ended, with all that it began.
    fn settle(&mut self) {
        if self.settling.get_or_insert_with(Instant::now).elapsed() >= SETTLING {
            self.context.processes.kill_session(&self.run_dir);
        }
    }

    /// Writes down that a run is over. Returns whether to come back in a moment because the shell is not done.
    fn note_end(&mut self) -> bool {
        let state = self.context.processes.state(&self.run_dir);
        if state == State::Settling {
            self.settle();
            return true;
        }
        if self.settling.take().is_some() && self.probes.is_none() {
            // It was begun by an agent that ended before it knew which process it is.
            self.adopt();
        }
        let State::Ended { code } = state else { return false };
        if let Some(started_at) = self.record.runs_mut().started_at.take() {
            let code = code.unwrap_or(137);
            let name = self.container_name();
            self.context.counts.ends.inc();
            let reason = match (self.ending, code) {
                (Some((_, reason)), _) => reason,
                (None, 0) => "Completed",
                (None, _) => "Error",
            };
            let end = End { code, reason: reason.to_owned(), started_at, finished_at: Timestamp::now() };
            tracing::info!(pod.name = %self.record.key(), container.name = name, exit.code = code, reason, "a process ended");
            let as_it_should = code == 0 && self.record.stage() != Stage::Main;
            if self.ending.is_none() && !as_it_should {
                let note = format!("container {name} ended with code {code}");
                self.tell(EventType::Warning, "BackOff", &note);
            }
            let back_off = self.back_off();
            let runs = self.record.runs_mut();
            runs.failures = back_off.count(runs.failures, &end);
            runs.last_end = Some(end);
            if let Err(error) = self.record.save(&self.run_dir) {
                tracing::warn!(%error, "cannot write the record of a pod");
                return true;
            }
        }
        self.context.processes.forget(&self.run_dir);
        self.context.disks.release(&self.record.uid);
        self.probes = None;
        self.ending = None;
        false
    }

    async fn observe(&mut self) -> Observed {
        let now = Timestamp::now();
        let runs = self.record.runs();
        let process = Process::of(self.context.processes.state(&self.run_dir), runs.last_end.as_ref());
        let mut observed = Observed {
            now,
            wish: self.wish(),
            ground: Ground::Ready,
            condemned: self.probes.as_ref().and_then(Probes::condemned),
            kill_at: self.ending.map(|(deadline, _)| deadline),
            failures: runs.failures,
            restart: match &self.intent {
                Some(Ok(intent)) => intent.restart,
                _ => RestartPolicy::Always,
            },
            process,
        };
        if observed.process == Process::Running {
            if let Some(message) = self.context.disks.lost(&self.record.uid) {
                observed.ground = Ground::Lost { message };
            }
        } else if decide::decide(&observed, self.back_off()) == Action::Start {
            // Only now is it worth asking Kubernetes and EC2.
            observed.ground = self.ground().await;
        }
        observed
    }

    async fn act(&mut self, action: Action) -> Outcome {
        self.resting = action == Action::Rest;
        match action {
            Action::Start => self.start().await,
            Action::Terminate { reason } => {
                let grace = self.grace(reason);
                self.ending = Some((later(Timestamp::now(), grace), reason));
                let note = format!("stopping container {}: {reason}", self.container_name());
                self.tell(EventType::Normal, "Killing", &note);
                self.context.processes.terminate(&self.run_dir);
                Outcome::Again(Duration::from_millis(50))
            }
            Action::Kill { reason } => {
                if self.ending.is_none() {
                    let note = format!("killing container {}: {reason}", self.container_name());
                    self.tell(EventType::Warning, "Killing", &note);
                }
                // Overdue is no reason of its own: what began the ending is.
                let why = self
                    .ending
                    .map_or(reason, |(_, before)| if reason == "Killed" { before } else { reason });
                self.ending = Some((Timestamp::now(), why));
                self.context.processes.kill(&self.run_dir);
                Outcome::Again(Duration::from_millis(50))
            }
            Action::Wait { reason, message, until } => {
                self.shorten_grace();
                self.waiting = (reason.to_owned(), message);
                let left = until.map(|until| until.duration_since(Timestamp::now()));
                let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(LOOK);
                let look = if self.ending.is_some() { Duration::from_millis(100) } else { LOOK };
                Outcome::Again(left.clamp(Duration::from_millis(10), look))
            }
            Action::Watch => self.watch().await,
            Action::Rest => Outcome::Again(Duration::from_secs(5)),
            Action::Finish => self.finish().await,
        }
    }

    fn tell(&self, type_: EventType, reason: &str, note: &str) {
        if let Some(pod) = &self.pod {
            self.context.tell(pod, type_, reason, note);
        }
    }
}
