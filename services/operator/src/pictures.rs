//! Pictures of what lies in AWS, taken now and then: so it is known whether AWS answers, and a database at rest is looked at as
//! soon as anything of it is another way than it was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cloud::{ClusterView, Snapshot, ZonePicture};
use plan::Settings;
use runtime::{CancellationToken, Program, backoff};

use crate::caches::Caches;
use crate::context::Context;
use crate::metrics::Measures;
use crate::queue::Queue;
use crate::unclaimed::{Claims, Found};

/// Between two pictures of everything the cluster owns, at most.
const OF_ACCOUNT: Duration = Duration::from_secs(45);
/// Between two attempts while EC2 does not answer.
const RETRY: Duration = Duration::from_secs(2);

/// How old the picture of the account may get, where databases at rest are looked at so often.
pub(crate) fn account_age(resync: Duration) -> Duration {
    OF_ACCOUNT.min(resync)
}

/// Where looks at databases are asked for that changed in AWS.
#[derive(Clone)]
pub(crate) struct LookAgain {
    pub(crate) caches: Caches,
    pub(crate) settings: Settings,
    pub(crate) queue: Queue,
}

impl LookAgain {
    async fn at(&self, databases: &BTreeSet<String>) {
        for resource in self.caches.resources_of(databases) {
            self.queue.ask(resource.reference()).await;
        }
    }
}

/// The picture that the next one is compared with.
type Before<T> = Option<Arc<T>>;

impl LookAgain {
    async fn compare(&self, before: &mut Before<Snapshot>, picture: Arc<Snapshot>) {
        if let Some(before) = before.replace(Arc::clone(&picture)) {
            self.at(&picture.changed_since(&before)).await;
        }
    }

    async fn compare_zone(&self, before: &mut Before<ZonePicture>, picture: Arc<ZonePicture>) {
        if let Some(before) = before.replace(Arc::clone(&picture)) {
            let cluster = &self.settings.cluster;
            let texts = picture.changed_since(&before);
            let ours = texts.iter().filter_map(|text| plan::database_of_text(cluster, text));
            self.at(&ours.map(str::to_owned).collect()).await;
        }
    }
}

/// Watches what the cluster owns in EC2, also when no database asks for it.
pub(crate) fn watch_account(
    program: &Program,
    view: Arc<ClusterView>,
    (look_again, claims, measures): (LookAgain, Claims, Measures),
    period: Duration,
) {
    let (health, stop) = (program.health.readiness.component("aws"), program.stop());
    program.tasks.spawn("aws", async move {
        let (mut before, mut unclaimed) = (None, Found::default());
        loop {
            let pause = match view.at_most(period).await {
                Ok(picture) => {
                    health.set_ok();
                    measures.picture(picture.as_of());
                    claims.check(&mut unclaimed, &picture);
                    look_again.compare(&mut before, picture).await;
                    period
                }
                Err(error) => {
                    health.set_failing(runtime::telemetry::chain(&error));
                    RETRY
                }
            };
            if !backoff::sleep(pause, &stop).await {
                return;
            }
        }
    });
}

/// Watches the hosted zone until stopped. Only a leader does: it costs requests that everybody shares.
pub(crate) async fn watch_zone(context: &Context, look_again: &LookAgain, stop: &CancellationToken) {
    // Nobody waits at the end for a list that takes long.
    tokio::select! {
        () = watch_zone_on(context, look_again) => {}
        () = stop.cancelled() => {}
    }
}

async fn watch_zone_on(context: &Context, look_again: &LookAgain) {
    let (mut before, period) = (None, context.zone_period);
    loop {
        let pause = match context.zone_view.at_most(period).await {
            Ok(picture) => {
                look_again.compare_zone(&mut before, picture).await;
                period
            }
            Err(error) => {
                tracing::warn!(error = %runtime::telemetry::chain(&error), "the zone could not be listed");
                // What is asked again sooner is answered from memory.
                period / 8
            }
        };
        tokio::time::sleep(pause).await;
    }
}
