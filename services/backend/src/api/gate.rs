//! The gate before changes: what Kafka cannot be told of must not pile up without end, nobody is to be promised what waits in vain,
//! and no record may be larger than Kafka takes.
//!
//! Looks at the outbox on a period and keeps the answer: a request costs one look at a flag. Reads pass always.
//!
//! How many wait is a bound for all. How long one waits says something of its partition alone: one that has no leader takes
//! nothing, while all others do. So it shuts the gate for the databases of that partition, of which nothing more could be told;
//! everybody else's changes are taken, and a new database gets an identity of a partition that takes records. While no broker
//! takes anything, each partition is shut as soon as something has waited in it for too long, and the bound on the number holds
//! all the time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::Method;
use domain::{ClusterId, DatabaseId, Desired, TenantId};
use runtime::CancellationToken;
use store::{Backlog, Store};

use super::failure::Failure;
use crate::metrics::Metrics;

/// How often the outbox is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Patience with one look.
const DEADLINE: Duration = Duration::from_secs(5);

/// How many identities are drawn until one is of a partition that takes records.
const DRAWS: u32 = 1_000;

/// Where desired states are minted; the other paths change nothing that is published.
const MINTING: [&str; 3] = ["/v1/databases", "/v1/operations", "/v1/snapshots"];

/// How much may wait, and how large a record may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Databases whose newest state is not published.
    pub databases: u32,
    /// How long the oldest of them may wait.
    pub age: Duration,
    /// Partitions of the topic that they wait for.
    pub partitions: i32,
    /// Bytes of the record of one desired state.
    pub record_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { databases: 10_000, age: Duration::from_mins(5), partitions: 1, record_bytes: 256 * 1024 }
    }
}

/// The gate. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    /// Whether it is shut for anybody.
    shut: AtomicBool,
    state: Mutex<State>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    scope: Scope,
    reason: String,
}

/// For whom it is shut.
#[derive(Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    Nobody,
    /// The databases of these partitions.
    Partitions(BTreeSet<i32>),
    Everybody,
}

impl Gate {
    /// An open gate.
    pub fn new(limits: Limits, metrics: Metrics) -> Self {
        Self(Arc::new(Inner { limits, shut: AtomicBool::new(false), state: Mutex::default(), metrics }))
    }

    /// Looks at the outbox until `stop`. While Postgres does not answer the gate stays as it is.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        loop {
            match runtime::deadline(DEADLINE, "the backlog", self.look(&store)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(reason = runtime::telemetry::chain(&error), "no backlog"),
                Err(late) => tracing::debug!(reason = %late, "no backlog"),
            }
            if !runtime::backoff::sleep(EVERY, &stop).await {
                return;
            }
        }
    }

    async fn look(&self, store: &Store) -> Result<(), store::Error> {
        let (backlog, limits) = (store.backlog().await?, &self.0.limits);
        let late = if backlog.oldest_seconds > limits.age.as_secs_f64() {
            // There are no more of them than may wait, or it is shut for everybody.
            store.waiting_longer(limits.age, limits.databases.saturating_add(1)).await?
        } else {
            Vec::new()
        };
        self.judge(&backlog, &late);
        Ok(())
    }

    /// Shuts or opens by what waits, and which databases wait for too long.
    fn judge(&self, backlog: &Backlog, late: &[DatabaseId]) {
        let now = judged(&self.0.limits, backlog, late);
        let mut state = self.state();
        let turned = state.scope != now.scope;
        *state = now;
        self.0.shut.store(state.scope != Scope::Nobody, Ordering::Release);
        if !turned {
            return;
        }
        let metrics = &self.0.metrics;
        metrics.gate_shut.set(i64::from(state.scope == Scope::Everybody));
        let partitions = match &state.scope {
            Scope::Nobody => 0,
            Scope::Partitions(partitions) => i64::try_from(partitions.len()).unwrap_or(i64::MAX),
            Scope::Everybody => i64::from(self.0.limits.partitions),
        };
        metrics.gate_shut_partitions.set(partitions);
        let reason = state.reason.as_str();
        match &state.scope {
            Scope::Nobody => tracing::info!("changes are taken again"),
            Scope::Partitions(partitions) => tracing::error!(
                reason,
                ?partitions,
                "changes of the databases of some partitions are refused: a change waits too long to be published there"
            ),
            Scope::Everybody => {
                tracing::error!(reason, "changes are refused: too much waits to be published");
            }
        }
    }

    /// Why a request may not pass now, whatever it is about. While any partition takes records it passes: which database it is
    /// about knows only who has parsed that and asks [`Self::takes`], for an identity is written in more than one way.
    pub(crate) fn refusal(&self, method: &Method, route: &str) -> Option<Failure> {
        if !self.is_shut() || method.is_safe() || !MINTING.iter().any(|path| route.starts_with(path)) {
            return None;
        }
        let state = self.state();
        (state.scope == Scope::Everybody).then(|| Failure::backlog(&state.reason))
    }

    /// Refuses a change of a database of which nothing can be told now.
    pub(crate) fn takes(&self, database: DatabaseId) -> Result<(), Failure> {
        if !self.is_shut() {
            return Ok(());
        }
        let state = self.state();
        match &state.scope {
            Scope::Nobody => Ok(()),
            Scope::Partitions(shut) if !shut.contains(&partition(&self.0.limits, database)) => Ok(()),
            Scope::Partitions(_) | Scope::Everybody => Err(Failure::backlog(&state.reason)),
        }
    }

    /// An identity for a new database, of a partition that takes records if there is one.
    pub(crate) fn mint(&self) -> DatabaseId {
        let mut id = DatabaseId::mint();
        for _ in 0..DRAWS {
            if self.takes(id).is_ok() {
                break;
            }
            id = DatabaseId::mint();
        }
        id
    }

    fn is_shut(&self) -> bool {
        self.0.shut.load(Ordering::Acquire)
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For whom a backlog is beyond the limits, and how; `late` are the databases that wait for too long.
fn judged(limits: &Limits, backlog: &Backlog, late: &[DatabaseId]) -> State {
    if backlog.databases > i64::from(limits.databases) {
        let reason =
            format!("{} changes wait to be published, at most {} may", backlog.databases, limits.databases);
        return State { scope: Scope::Everybody, reason };
    }
    let shut: BTreeSet<i32> = late.iter().map(|database| partition(limits, *database)).collect();
    if shut.is_empty() {
        return State::default();
    }
    let reason = format!(
        "a change waits to be published for {:.0} s, at most {} s are allowed",
        backlog.oldest_seconds,
        limits.age.as_secs()
    );
    if i64::try_from(shut.len()).is_ok_and(|count| count >= i64::from(limits.partitions)) {
        return State { scope: Scope::Everybody, reason };
    }
    let reason =
        format!("{reason}: it waits for the same partition of the topic as this one would; others are taken");
    State { scope: Scope::Partitions(shut), reason }
}

/// Where the changes of a database are published.
fn partition(limits: &Limits, database: DatabaseId) -> i32 {
    bus::partition_of(database.to_string().as_bytes(), limits.partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITIONS: i32 = 4;

    /// A database of a partition.
    fn of(partition: i32) -> DatabaseId {
        let mut all = std::iter::repeat_with(DatabaseId::mint).take(10_000);
        all.find(|id| bus::partition_of(id.to_string().as_bytes(), PARTITIONS) == partition).unwrap()
    }

    fn gate() -> Gate {
        let limits =
            Limits { databases: 3, age: Duration::from_mins(1), partitions: PARTITIONS, record_bytes: 1_000 };
        Gate::new(limits, Metrics::new(&runtime::Metrics::default()))
    }

    fn waiting(databases: i64, oldest_seconds: f64) -> Backlog {
        Backlog { databases, oldest_seconds, ..Backlog::default() }
    }

    #[test]
    fn number_and_age_have_each_their_bound() {
        let limits = gate().0.limits;
        let some = |partitions: &[i32]| Scope::Partitions(partitions.iter().copied().collect());
        let table: [(Backlog, &[i32], Scope); 7] = [
            (waiting(0, 0.0), &[], Scope::Nobody),
            (waiting(3, 60.0), &[], Scope::Nobody),
            (waiting(4, 0.0), &[], Scope::Everybody),
            (waiting(1, 60.5), &[2], some(&[2])),
            (waiting(3, 60.5), &[2, 0, 2], some(&[0, 2])),
            (waiting(4, 99.0), &[2], Scope::Everybody),
            (Backlog { set_aside: 99, newer: 99, ..waiting(1, 1.0) }, &[], Scope::Nobody),
        ];
        for (backlog, late, scope) in table {
            let late: Vec<DatabaseId> = late.iter().map(|partition| of(*partition)).collect();
            assert_eq!(judged(&limits, &backlog, &late).scope, scope, "{backlog:?}");
        }
        let all: Vec<DatabaseId> = (0..PARTITIONS).map(of).collect();
        let none = Limits { databases: 99, ..limits };
        assert_eq!(judged(&none, &waiting(4, 61.0), &all).scope, Scope::Everybody, "no partition is left");
    }

    #[test]
    fn what_waits_too_long_holds_back_its_own_partition_only() {
        let gate = gate();
        let (late, other) = (of(2), of(3));
        gate.judge(&waiting(1, 61.0), &[late]);
        for route in ["/v1/databases", "/v1/databases/{id}"] {
            assert!(gate.refusal(&Method::POST, route).is_none(), "{route}: nobody knows yet which database");
        }
        assert!(gate.takes(other).is_ok());
        let detail = gate.takes(late).unwrap_err().problem.detail;
        assert!(detail.contains("at most 60 s") && detail.contains("partition"), "{detail}");
        for _ in 0..50 {
            assert!(gate.takes(gate.mint()).is_ok(), "a new one is told of");
        }
        gate.judge(&waiting(1, 1.0), &[]);
        assert!(gate.takes(late).is_ok());
    }

    #[test]
    fn a_shut_gate_lets_reads_pass_and_opens_by_itself() {
        let gate = gate();
        let refusal = |method: &Method, route| gate.refusal(method, route);
        assert!(refusal(&Method::POST, "/v1/databases").is_none());
        gate.judge(&waiting(4, 0.0), &[]);
        let failure = refusal(&Method::POST, "/v1/databases").unwrap();
        assert_eq!((failure.problem.status, failure.problem.code.as_str()), (503, "backlog"));
        assert!(failure.problem.detail.contains("at most 3"), "{}", failure.problem.detail);
        for (method, route, refused) in [
            (Method::PATCH, "/v1/databases/{id}", true),
            (Method::DELETE, "/v1/databases/{id}", true),
            (Method::GET, "/v1/databases", false),
            (Method::GET, "/v1/operations/{id}/events", false),
            (Method::PUT, "/v1/clusters/{id}", false),
        ] {
            assert_eq!(refusal(&method, route).is_some(), refused, "{method} {route}");
        }
        gate.judge(&waiting(3, 0.0), &[]);
        assert!(refusal(&Method::POST, "/v1/databases").is_none());
    }
}
