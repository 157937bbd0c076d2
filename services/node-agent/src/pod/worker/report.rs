//! How a worker tells the API server what it sees, once.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{RESEND, SILENCE, Worker};
use crate::api::chain;
use crate::pod::probe::{Probes, later};
use crate::pod::simulate;
use crate::pod::status::{self, Phase, View};
use crate::process::State;

impl Worker {
    pub(super) async fn report(&mut self) {
        let Some(pod) = self.pods.borrow().clone() else { return };
        let now = Timestamp::now();
        let wanted = status::build(&View {
            pod: &pod,
            address: &self.record.address,
            accepted_at: self.record.accepted_at,
            phase: self.phase(),
            init: &self.record.init,
            main: &self.record.main,
            now,
        });
        let told_lately = self.told.as_ref().is_some_and(|(told, at)| {
            let as_told = Pod { status: Some(told.clone()), ..Pod::default() };
            status::is_reported(&wanted, &as_told) && now < later(*at, RESEND)
        });
        if now < self.silent_until || told_lately || status::is_reported(&wanted, &pod) {
            return;
        }
        match simulate::report(&self.context, &self.record.key(), &wanted).await {
            Ok(()) => self.told = Some((wanted, now)),
            Err(error) => {
                tracing::warn!(pod.name = %self.record.key(), "{}", chain(&error));
                self.silent_until = later(now, SILENCE);
            }
        }
    }

    pub(super) fn phase(&self) -> Phase {
        let running = matches!(self.context.processes.state(&self.run_dir), State::Running(_));
        if !running && self.resting {
            return Phase::Terminated;
        }
        match (running, self.record.runs().started_at) {
            (true, Some(since)) => Phase::Running {
                since,
                started: self.probes.as_ref().is_none_or(Probes::started),
                ready: self.ending.is_none() && self.probes.as_ref().is_none_or(Probes::ready),
            },
            _ => Phase::Waiting { reason: self.waiting.0.clone(), message: self.waiting.1.clone() },
        }
    }
}
