//! Which keys of server.conf a QuestDB lists that runs and may not know one which is asked for.
//!
//! *Invariant:* whoever cannot be asked holds nothing up: what is asked for is carried out as if all of it were known, but for a spec of
//! which it was told that it is not.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use plan::{Observed, Subject, Validated};
use resources::{QuestDB, names};

use crate::context::Context;
use crate::database::{Door, address};
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
    if !plan::is_to_list_keys(resource, validated, observed) {
        lists.forget(&subject.uid);
        return None;
    }
    let pod = observed.children.pod.as_deref().filter(|pod| plan::pod_serves(pod));
    if let Some(pod) = pod.and_then(|pod| pod.metadata.uid.as_deref())
        && lists.is_to_ask(&subject.uid, pod, Instant::now())
    {
        let answer = ask(context, subject, pod).await.unwrap_or_else(|error| {
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
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &subject.namespace);
    // As it is now: what is kept of a pod may be of a moment ago.
    let pod = context.call("look at the pod", pods.get_opt(&names::pod(&subject.name))).await?;
    let Some(address) = pod.and_then(|pod| address_of(&pod, uid)) else { return Ok(None) };
    let Some(door) = Door::of(context, subject, address).await? else { return Ok(None) };
    let keys = context.databases.keys(&door).await;
    keys.map(|keys| Some(Arc::new(keys))).map_err(Error::database("ask QuestDB for the keys of server.conf"))
}

/// Where a pod answers, if it is the one of this uid: what another one lists that has taken its place by now is not what it lists.
fn address_of(pod: &Pod, uid: &str) -> Option<IpAddr> {
    address(pod).filter(|_| pod.metadata.uid.as_deref() == Some(uid))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_pod_that_was_seen_is_asked() {
        for (found, at, is_asked) in [
            (Some("one"), Some("10.0.0.1"), true),
            (Some("one"), None, false),
            (Some("other"), Some("10.0.0.1"), false),
            (None, Some("10.0.0.1"), false),
        ] {
            let pod = json!({ "metadata": { "uid": found }, "status": { "podIP": at } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(address_of(&pod, "one").is_some(), is_asked, "{found:?} {at:?}");
        }
    }
}
