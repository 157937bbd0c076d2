//! The gate before changes: what Kafka cannot be told of must not pile up without end, and no record may be larger than
//! Kafka takes.
//!
//! Looks at the outbox on a period and keeps the answer: a request costs one look at a flag. Reads pass always.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::Method;
use domain::{ClusterId, Desired, TenantId};
use runtime::CancellationToken;
use store::{Backlog, Store};

use super::failure::Failure;
use crate::metrics::Metrics;

/// How often the outbox is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Patience with one look.
const DEADLINE: Duration = Duration::from_secs(5);

/// Where desired states are minted; the other paths change nothing that is published.
const MINTING: [&str; 3] = ["/v1/databases", "/v1/operations", "/v1/snapshots"];

/// How much may wait, and how large a record may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Databases whose newest state is not published.
    pub databases: u32,
    /// How long the oldest of them may wait.
    pub age: Duration,
    /// Bytes of the record of one desired state.
    pub record_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { databases: 10_000, age: Duration::from_mins(5), record_bytes: 256 * 1024 }
    }
}

/// The gate. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    shut: AtomicBool,
    reason: Mutex<String>,
    metrics: Metrics,
}

impl Gate {
    /// An open gate.
    pub fn new(limits: Limits, metrics: Metrics) -> Self {
        Self(Arc::new(Inner { limits, shut: AtomicBool::new(false), reason: Mutex::default(), metrics }))
    }

    /// Looks at the outbox until `stop`. While Postgres does not answer the gate stays as it is.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        loop {
            match runtime::deadline(DEADLINE, "the backlog", store.backlog()).await {
                Ok(Ok(backlog)) => self.judge(&backlog),
                Ok(Err(error)) => tracing::debug!(reason = runtime::telemetry::chain(&error), "no backlog"),
                Err(late) => tracing::debug!(reason = %late, "no backlog"),
            }
            if !runtime::backoff::sleep(EVERY, &stop).await {
                return;
            }
        }
    }

    /// Shuts or opens by what waits.
    fn judge(&self, backlog: &Backlog) {
        let excess = excess(&self.0.limits, backlog);
        let shut = excess.is_some();
        if let Some(reason) = &excess {
            self.reason().clone_from(reason);
        }
        if self.0.shut.swap(shut, Ordering::AcqRel) != shut {
            self.0.metrics.gate_shut.set(i64::from(shut));
            if let Some(reason) = excess {
                tracing::error!(reason, "changes are refused: too much waits to be published");
            } else {
                tracing::info!("changes are taken again");
            }
        }
    }

    /// Why a request may not pass now.
    pub(crate) fn refusal(&self, method: &Method, route: &str) -> Option<Failure> {
        if !self.0.shut.load(Ordering::Acquire) || method.is_safe() {
            return None;
        }
        let mints = MINTING.iter().any(|path| route.starts_with(path));
        mints.then(|| Failure::backlog(self.reason().as_str()))
    }

    /// Refuses a desired state whose record would be too large.
    pub(crate) fn fits(
        &self,
        (tenant, cluster): (&TenantId, &ClusterId),
        desired: &Desired,
        actor: &str,
    ) -> Result<(), Failure> {
        let (bytes, limit) =
            (crate::relay::size(tenant, cluster, desired, actor), self.0.limits.record_bytes);
        if bytes > limit { Err(Failure::state_too_large(bytes, limit)) } else { Ok(()) }
    }

    fn reason(&self) -> MutexGuard<'_, String> {
        self.0.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of a backlog is beyond the limits, in words.
fn excess(limits: &Limits, backlog: &Backlog) -> Option<String> {
    if backlog.databases > i64::from(limits.databases) {
        return Some(format!(
            "{} changes wait to be published, at most {} may",
            backlog.databases, limits.databases
        ));
    }
    let age = limits.age.as_secs();
    (backlog.oldest_seconds > limits.age.as_secs_f64()).then(|| {
        format!(
            "a change waits to be published for {:.0} s, at most {age} s are allowed",
            backlog.oldest_seconds
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        let limits = Limits { databases: 3, age: Duration::from_mins(1), record_bytes: 1_000 };
        Gate::new(limits, Metrics::new(&runtime::Metrics::default()))
    }

    fn waiting(databases: i64, oldest_seconds: f64) -> Backlog {
        Backlog { databases, oldest_seconds, ..Backlog::default() }
    }

    #[test]
    fn number_and_age_have_each_their_bound() {
        let limits = gate().0.limits;
        for (databases, seconds, over) in
            [(0, 0.0, false), (3, 60.0, false), (4, 0.0, true), (1, 60.5, true), (4, 99.0, true)]
        {
            let backlog = waiting(databases, seconds);
            assert_eq!(excess(&limits, &backlog).is_some(), over, "{backlog:?}");
        }
        let others = Backlog { set_aside: 99, newer: 99, ..waiting(1, 1.0) };
        assert_eq!(excess(&limits, &others), None, "what this relay cannot send shuts nothing");
    }

    #[test]
    fn a_shut_gate_lets_reads_pass_and_opens_by_itself() {
        let gate = gate();
        assert!(gate.refusal(&Method::POST, "/v1/databases").is_none());
        gate.judge(&waiting(4, 0.0));
        let failure = gate.refusal(&Method::POST, "/v1/databases").unwrap();
        assert_eq!((failure.problem.status, failure.problem.code.as_str()), (503, "backlog"));
        assert!(failure.problem.detail.contains("at most 3"), "{}", failure.problem.detail);
        for (method, route, refused) in [
            (Method::PATCH, "/v1/databases/{id}", true),
            (Method::DELETE, "/v1/databases/{id}", true),
            (Method::GET, "/v1/databases", false),
            (Method::GET, "/v1/operations/{id}/events", false),
            (Method::PUT, "/v1/clusters/{id}", false),
        ] {
            assert_eq!(gate.refusal(&method, route).is_some(), refused, "{method} {route}");
        }
        gate.judge(&waiting(3, 0.0));
        assert!(gate.refusal(&Method::POST, "/v1/databases").is_none());
    }
}
