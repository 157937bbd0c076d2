//! One operator leads: a Lease in the cluster, renewed by compare-and-set on its `resourceVersion`.
//!
//! A lease is a courtesy and never the fence: what must not be done twice is refused by the API server (preconditions) and
//! by AWS (client tokens, protections). *Invariant:* expiry is judged by how long *we* have seen the record unchanged,
//! never by another machine's clock. *Invariant:* the time in which this machine was suspended counts.

#[cfg(test)]
pub(crate) mod tests;

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use cloud::{Call, Within};
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use resources::names;
use runtime::CancellationToken;
use tokio::sync::watch;

use crate::args::Args;
use crate::moment::Moment;
use crate::watch::Watches;

/// How long a lease lasts without renewal.
const DURATION: Duration = Duration::from_secs(15);
/// How long the leader tries to renew before it gives up.
const RENEW: Duration = Duration::from_secs(10);
/// Between two attempts.
const RETRY: Duration = Duration::from_secs(2);

/// Lost.
#[derive(Debug, thiserror::Error)]
#[error("leadership was lost: another operator leads, or the API server could not be reached for {RENEW:?}")]
pub(crate) struct Lost;

/// Whether this process leads, and for how much longer at least.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// The end of the lease unless it is renewed; none while somebody else leads.
    until: watch::Receiver<Option<Moment>>,
    /// The clock by which it ends.
    now: fn() -> Moment,
}

impl Leadership {
    /// What is left of the lease.
    pub(crate) fn remaining(&self) -> Duration {
        let until = *self.until.borrow();
        until.map_or(Duration::ZERO, |until| until.since((self.now)()))
    }

    /// Waits until this process leads; `false` when it never will.
    pub(crate) async fn gained(&mut self) -> bool {
        self.until.wait_for(Option::is_some).await.is_ok()
    }

    /// Does work for as long as this process leads, and nothing of it afterwards; `None` when that was not long enough.
    ///
    /// The clock is asked before every single step of the work: a process that was halted while somebody else took over
    /// goes no further when it wakes, although no task of it had time yet to notice the loss. Nor does one whose whole machine was
    /// suspended, although no timer tells.
    pub(crate) async fn while_leading<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut ended) = (pin!(work), pin!(self.clone().ended()));
        std::future::poll_fn(|context| {
            if self.remaining().is_zero() || ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// The same for the requests of a zone's writer, which are nobody's turn.
    pub(crate) fn within(&self) -> Within {
        let leadership = self.clone();
        Box::new(move |request| {
            let leadership = leadership.clone();
            let lost = || cloud::Error::Unavailable {
                call: Box::new(Call::new("ChangeResourceRecordSets", "this process leads no more")),
            };
            async move { leadership.while_leading(request).await.unwrap_or_else(|| Err(lost())) }.boxed()
        })
    }

    /// Waits until this process does not lead, by its own clock or because it was told so.
    async fn ended(mut self) {
        loop {
            let Some(until) = *self.until.borrow_and_update() else { return };
            let left = until.since((self.now)());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                // It comes too late where the machine was suspended: whoever waits for this asks the clock himself.
                () = tokio::time::sleep(left) => {}
                changed = self.until.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// What came of one attempt to take or renew the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// It is ours.
    Ours,
    /// It is somebody else's, or is not to be had.
    Theirs,
    /// It was ours, and was written between our look and our renewal.
    Overtaken,
}

/// One candidate.
pub(crate) struct Candidate {
    api: Api<Lease>,
    identity: String,
    until: watch::Sender<Option<Moment>>,
    /// The record last seen, and since when it has been so.
    seen: Option<(Option<String>, Moment)>,
    /// When its term began, once it has led.
    term: Option<MicroTime>,
    /// Whether it has led.
    led: bool,
    /// Told where the lease is: nothing else of the store is written and read so often.
    watches: Watches,
}

impl Candidate {
    /// A candidate with an identity of its own.
    pub(crate) fn new(client: Client, args: &Args, watches: Watches) -> (Self, Leadership) {
        let (until, receiver) = watch::channel(None);
        let candidate = Self {
            api: Api::namespaced(client, &args.lease_namespace),
            identity: identity(args.pod_name.as_deref()),
            until,
            seen: None,
            term: None,
            led: false,
            watches,
        };
        (candidate, Leadership { until: receiver, now: Moment::now })
    }

    /// Becomes leader when it can and stays it; an error means that it was and is no more. At the end, when `done`, the
    /// lease is given back, so that the next one need not wait.
    pub(crate) async fn run(mut self, stop: CancellationToken, done: CancellationToken) -> Result<(), Lost> {
        let mut renewed: Option<Moment> = None;
        while !stop.is_cancelled() {
            let began = Moment::now();
            match tokio::time::timeout(RETRY * 2, self.attempt()).await {
                Ok(Ok(true)) => {
                    renewed = Some(began);
                    self.set(Some(began.after(DURATION)));
                }
                Ok(Ok(false)) if renewed.is_some() => return self.lose(),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "could not renew the leader's lease"),
                Err(_) => tracing::warn!("renewing the leader's lease takes too long"),
            }
            if renewed.is_some_and(|renewed| renewed.elapsed() > RENEW) {
                return self.lose();
            }
            runtime::backoff::sleep(RETRY, &stop).await;
        }
        if renewed.is_some() {
            done.cancelled().await;
            self.release().await;
        }
        Ok(())
    }

    fn lose(&self) -> Result<(), Lost> {
        self.set(None);
        Err(Lost)
    }

    fn set(&self, until: Option<Moment>) {
        let before = self.until.send_replace(until);
        match (before, until) {
            (None, Some(_)) => tracing::info!(leader.identity = %self.identity, "this operator leads"),
            (Some(_), None) => {
                tracing::warn!(leader.identity = %self.identity, "this operator leads no more");
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Takes or renews the lease; whether it is ours now.
    ///
    /// A renewal that got no answer may be carried out after the look of the next one, which is refused then: whose the lease is, another
    /// look tells.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let mut tried = self.once(false).await?;
        while tried == Tried::Overtaken {
            tried = self.once(true).await?;
        }
        self.led |= tried == Tried::Ours;
        Ok(tried == Tried::Ours)
    }

    /// Looks and writes. Who was `overtaken` goes on only in its own term.
    async fn once(&mut self, overtaken: bool) -> kube::Result<Tried> {
        let found = self.api.get_opt(names::OPERATOR).await?;
        let doubted = self.watches.standing().reads(found.as_ref());
        let holder = found.as_ref().and_then(|found| found.spec.as_ref()?.holder_identity.as_deref());
        let holder = holder.unwrap_or_default();
        let ours = holder == self.identity;
        // Who has led does not lead once more after somebody else, who may have given it back: what is remembered here is of before.
        let is_another_term = self.led && found.is_some() && !ours;
        if is_another_term || overtaken && (!ours || doubted) {
            return Ok(Tried::Theirs);
        }
        if let Some(found) = &found {
            let version = found.metadata.resource_version.clone();
            let since = match &self.seen {
                Some((seen, since)) if *seen == version => *since,
                _ => Moment::now(),
            };
            self.seen = Some((version, since));
            if !ours && !holder.is_empty() && since.elapsed() <= DURATION {
                return Ok(Tried::Theirs);
            }
        }
        // Who finds it fallen says so to those that read it too late for that.
        if !ours || doubted {
            self.term = Some(MicroTime(Timestamp::now()));
        }
        let record = self.record(found.as_ref());
        let params = PostParams::default();
        let answer = match found {
            Some(_) => self.api.replace(names::OPERATOR, &params, &record).await,
            None => self.api.create(&params, &record).await,
        };
        self.written(answer, ours)
    }

    /// What the API server answered to a write; a refused precondition means that somebody was quicker, which may have been we.
    fn written(&self, answer: kube::Result<Lease>, ours: bool) -> kube::Result<Tried> {
        match answer {
            Ok(lease) => {
                self.watches.standing().wrote(&lease);
                Ok(Tried::Ours)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Ok(if ours { Tried::Overtaken } else { Tried::Theirs })
            }
            Err(error) => Err(error),
        }
    }

    fn record(&self, before: Option<&Lease>) -> Lease {
        let spec = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = spec.holder_identity.as_ref() == Some(&self.identity);
        Lease {
            metadata: ObjectMeta {
                name: Some(names::OPERATOR.to_owned()),
                resource_version: before.and_then(|lease| lease.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: self.term.clone(),
                renew_time: Some(MicroTime(Timestamp::now())),
                lease_transitions: Some(spec.lease_transitions.unwrap_or(0) + i32::from(!ours)),
                ..LeaseSpec::default()
            }),
        }
    }

    async fn release(&self) {
        self.set(None);
        let release = async {
            let Some(mut lease) = self.api.get_opt(names::OPERATOR).await? else { return Ok(()) };
            // One that fell is left to run out: whoever takes it at once would raise it before a standby has read it.
            if self.watches.standing().reads(Some(&lease)) {
                return Ok(());
            }
            if let Some(spec) = &mut lease.spec
                && spec.holder_identity.as_ref() == Some(&self.identity)
            {
                spec.holder_identity = Some(String::new());
                self.api.replace(names::OPERATOR, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(RETRY, release).await {
            tracing::warn!(%error, "could not give the leader's lease back; it will run out");
        }
    }
}

/// Whom a Lease names: the pod, for people, and what no other process has. The pod's name alone would not do, nor would a process
/// id: both come again, the one whenever the container is started anew.
fn identity(pod: Option<&str>) -> String {
    let name = pod.filter(|pod| !pod.is_empty()).unwrap_or(names::OPERATOR);
    format!("{name}_{}", uuid::Uuid::now_v7())
}
