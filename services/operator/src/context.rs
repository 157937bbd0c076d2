//! What every pass has at hand.

use std::sync::Arc;
use std::time::Duration;

use cloud::{Cloud, ClusterView, HostedZoneId, Lookup, ZoneView, ZoneWriter};
use kube::Client;
use plan::Settings;
use tokio::sync::mpsc::Sender;

use crate::apply::contention::Contention;
use crate::caches::Caches;
use crate::clock::Clock;
use crate::database::Databases;
use crate::error::Error;
use crate::events::Events;
use crate::lease::Leadership;
use crate::memory::Memories;
use crate::metrics::Measures;
use crate::questions::Question;
use crate::scope::Scope;
use crate::side::Side;
use crate::strays::Strays;
use crate::watch::Watches;
use crate::work::Work;

/// How long one call to the API server may take.
const CALL: Duration = Duration::from_secs(15);
/// What must be left of the lease after a call that cannot be undone.
const MARGIN: Duration = Duration::from_secs(2);

/// Everything shared by passes.
pub(crate) struct Context {
    pub(crate) client: Client,
    /// Snapshots and schedules.
    pub(crate) side: Side,
    pub(crate) caches: Caches,
    /// How the watches are: of which namespaces everything is seen.
    pub(crate) watches: Watches,
    /// Namespaces that are looked after.
    pub(crate) scope: Scope,
    /// QuestDB, asked by itself.
    pub(crate) databases: Databases,
    /// What it is to be asked without anybody waiting for it.
    pub(crate) questions: Sender<Question>,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) zone_view: ZoneView,
    /// Adds and replaces records; what takes away goes by itself.
    pub(crate) zone_writer: ZoneWriter,
    pub(crate) lookup: Lookup,
    pub(crate) settings: Settings,
    /// How long EC2 may take to show what was created.
    pub(crate) ec2_lag: Duration,
    /// How long a request to QuestDB may be under way after it was given up.
    pub(crate) questdb_lag: Duration,
    /// Between two looks at a database that is as it should be, without jitter.
    pub(crate) resync: Duration,
    /// How old the picture of the hosted zone may get.
    pub(crate) zone_period: Duration,
    pub(crate) work: Work,
    /// By which ages are told.
    pub(crate) clock: Clock,
    pub(crate) strays: Strays,
    pub(crate) memories: Memories,
    pub(crate) contention: Contention,
    pub(crate) events: Events,
    pub(crate) measures: Measures,
    pub(crate) leadership: Leadership,
}

impl Context {
    /// The hosted zone of all names.
    pub(crate) fn zone(&self) -> HostedZoneId {
        HostedZoneId::new(&self.settings.hosted_zone)
    }

    /// A call to the API server with a deadline.
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        runtime::failpoint::hit("operator.call", what).await;
        let answer = tokio::time::timeout(CALL, call).await;
        answer.map_err(|_| Error::Deadline { call: what, limit: CALL })?.map_err(Error::kubernetes(what))
    }

    /// Runs something that cannot be undone, within what is left of the lease.
    pub(crate) async fn within_lease<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let left = self.leadership.remaining().checked_sub(MARGIN).ok_or(Error::Lease)?;
        tokio::time::timeout(left, work).await.map_err(|_| Error::Lease)?
    }
}
