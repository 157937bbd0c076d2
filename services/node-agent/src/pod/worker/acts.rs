//! What a worker does: starts, probes, refreshes, lets go. Each leaves the decision when to `worker`.

use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::events::EventType;

use super::{LOOK, Outcome, REFRESH, Worker};
use crate::api::chain;
use crate::pod::decide::{Ground, Wish};
use crate::pod::intent;
use crate::pod::probe::{Verdict, later};
use crate::pod::record::Stage;
use crate::pod::{prober, record, simulate, start, volumes};

impl Worker {
    /// Whether everything a start needs is there; takes the disks.
    pub(super) async fn ground(&mut self) -> Ground {
        let waiting = |reason: &'static str, message: String| Ground::Waiting { reason, message };
        let intent = match &self.intent {
            Some(Ok(intent)) => intent.clone(),
            Some(Err(unsupported)) => return waiting("CreateContainerConfigError", unsupported.to_string()),
            None => return waiting("ContainerCreating", "the pod is not known yet".to_owned()),
        };
        let (node, instance) = (&self.site.machine.intent.name, &self.site.machine.instance.id);
        match volumes::claim_disks(&self.context, &intent, node, instance).await {
            Ok(disks) => {
                self.record.volumes = disks.into_iter().map(|(name, id)| (name, id.into_string())).collect();
                self.site.changed.notify_one();
                Ground::Ready
            }
            Err(error) => {
                self.context.disks.release(&self.record.uid);
                waiting("ContainerCreating", chain(&error))
            }
        }
    }

    pub(super) fn grace(&self, reason: &str) -> Duration {
        let pod = self.pod.as_deref();
        let grace = pod.map_or(Duration::from_secs(30), intent::grace);
        // A probe's verdict does not wait longer than half a minute for the process to agree.
        if reason == "Unhealthy" { grace.min(Duration::from_secs(30)) } else { grace }
    }

    /// A second deletion may ask for more haste than the first.
    pub(super) fn shorten_grace(&mut self) {
        let grace = self.grace("Deleted");
        let wish = self.wish();
        if let Some((deadline, _)) = self.ending.as_mut().filter(|_| wish == Wish::Stop) {
            *deadline = (*deadline).min(later(Timestamp::now(), grace));
        }
    }

    pub(super) async fn start(&mut self) -> Outcome {
        let (Some(Ok(intent)), Some(pod)) = (self.intent.clone(), self.pod.clone()) else {
            return Outcome::Again(LOOK);
        };
        let Some(container) = intent.at(self.record.stage()) else { return Outcome::Again(LOOK) };
        let before = self.record.runs().clone();
        let runs = self.record.runs_mut();
        if runs.last_end.is_some() {
            runs.restarts = runs.restarts.saturating_add(1);
        }
        runs.started_at = Some(Timestamp::now());
        let request = start::Request {
            context: &self.context,
            site: &self.site,
            intent: &intent,
            container,
            pod: &pod,
            record: &self.record,
            run_dir: &self.run_dir,
        };
        match start::start(&request).await {
            Ok(()) => {
                self.probes = self.new_probes();
                let note = format!("started container {} ({})", container.name, container.image);
                self.tell(EventType::Normal, "Started", &note);
                Outcome::Again(Duration::from_millis(50))
            }
            Err(error) => {
                *self.record.runs_mut() = before;
                self.context.disks.release(&self.record.uid);
                let (reason, message) = (error.reason(), chain(&error));
                if self.waiting != (reason.to_owned(), message.clone()) {
                    self.tell(EventType::Warning, "Failed", &message);
                    tracing::warn!(pod.name = %self.record.key(), reason, "cannot start a pod: {message}");
                }
                self.waiting = (reason.to_owned(), message);
                Outcome::Again(Duration::from_secs(2))
            }
        }
    }

    pub(super) async fn watch(&mut self) -> Outcome {
        self.refresh();
        let Some(probes) = self.probes.as_mut() else {
            // A container that prepares is soon done, and others wait for it.
            let short = self.record.stage() != Stage::Main;
            return Outcome::Again(if short { LOOK / 5 } else { LOOK });
        };
        let now = Timestamp::now();
        let mut due: Vec<_> = probes.active().into_iter().filter(|series| series.due() <= now).collect();
        let address = self.record.address.as_str();
        let http = &self.context.http;
        let questions = due.iter().map(|series| {
            let probe = series.probe();
            prober::ask(http, address, &probe.question, probe.timeout)
        });
        let answers = futures::future::join_all(questions).await;
        let answered = Timestamp::now();
        for (series, good) in due.iter_mut().zip(answers) {
            let before = series.verdict();
            series.answer(good, answered);
            if series.verdict() == Verdict::Bad && before != Verdict::Bad {
                tracing::info!(pod.name = %self.record.name, "a probe failed: {:?}", series.probe().question);
            }
        }
        Outcome::Again(LOOK)
    }

    /// Keeps files made of `ConfigMaps` and Secrets up to date.
    pub(super) fn refresh(&mut self) {
        let now = Timestamp::now();
        let (Some(Ok(intent)), Some(pod)) = (&self.intent, &self.pod) else { return };
        if now < self.refresh_at {
            return;
        }
        self.refresh_at = later(now, REFRESH);
        match volumes::write_content(&self.context, intent, pod, &self.run_dir) {
            Ok(true) => tracing::info!(pod.name = %self.record.key(), "files of a running pod changed"),
            Ok(false) => {}
            // As with kubelet: what a running process has, it keeps.
            Err(error) => {
                tracing::debug!(pod.name = %self.record.key(), "cannot refresh files: {}", chain(&error));
            }
        }
    }

    pub(super) async fn finish(&mut self) -> Outcome {
        self.context.disks.release(&self.record.uid);
        self.site.changed.notify_one();
        if self.pods.borrow().is_some()
            && let Err(error) = simulate::delete(&self.context, &self.record.key()).await
        {
            tracing::warn!(pod.name = %self.record.key(), "{}", chain(&error));
            return Outcome::Again(Duration::from_secs(1));
        }
        self.discard()
    }

    /// The machine is gone, and with it everything that ran: nothing is asked to end, and nobody is told.
    pub(super) fn die(&self) -> Outcome {
        self.context.processes.kill_session(&self.run_dir);
        self.context.disks.release(&self.record.uid);
        self.discard()
    }

    pub(super) fn discard(&self) -> Outcome {
        match record::discard(&self.context.processes, &self.run_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %self.run_dir.display(), "cannot remove the directory of a pod");
                Outcome::Again(Duration::from_secs(1))
            }
            _ => Outcome::Gone,
        }
    }
}
