//! Which keys of server.conf a QuestDB lists that runs and may not know one which is asked for.
//!
//! *Invariant:* whoever cannot be asked holds nothing up: what is asked for is carried out as if all of it were known, but for a spec of
//! which it was told that it is not.

use std::sync::Arc;
use std::time::Instant;

use plan::{Goal, Observed, Subject, Validated};
use resources::QuestDB;

use crate::context::Context;
use crate::database::{Door, address_now};
use crate::error::Error;
use crate::memory::listed::Keys;

/// What it lists, as far as that is to be known: asked once of each pod that serves.
pub(super) async fn listed(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
) -> Option<Keys> {
    let (lists, subject) = (&context.memories.lists, &validated.subject);
    let pod = observed.children.pod.as_deref().filter(|pod| plan::pod_serves(pod));
    if !plan::is_to_list_keys(resource, validated, observed) {
        // A key that is asked for in the middle of a restart finds nobody to ask: what was listed before that counts.
        if pod.is_some() || validated.goal != Goal::Serve {
            lists.forget(&subject.uid);
        }
        return None;
    }
    if let Some(pod) = pod.and_then(|pod| pod.metadata.uid.as_deref())
        && lists.is_to_ask(&subject.uid, pod, Instant::now())
    {
        let answer = Box::pin(ask(context, subject, pod)).await.unwrap_or_else(|error| {
            let error = runtime::telemetry::chain(&error);
            tracing::warn!(error, "it is not known which keys of server.conf QuestDB knows");
            None
        });
        lists.asked(&subject.uid, pod, (answer, Instant::now()));
    }
    lists.known(&subject.uid)
}

/// What the pod of this uid lists; none where nobody can be asked.
async fn ask(context: &Context, subject: &Subject, uid: &str) -> Result<Option<Keys>, Error> {
    let Some(address) = address_now(context, subject, uid).await? else { return Ok(None) };
    let Some(door) = Door::of(context, subject, address).await? else { return Ok(None) };
    let keys = context.databases.keys(&door).await;
    keys.map(|keys| Some(Arc::new(keys))).map_err(Error::database("ask QuestDB for the keys of server.conf"))
}
