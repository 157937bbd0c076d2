//! A look at the resource as it is now, right before something is done by its word that cannot be taken back at once. By a cache that
//! stood still it may be wished otherwise by now; and so of the pod, where that decides what becomes of the database.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use plan::PodSeen;
use resources::{QuestDB, names};

use super::Pass;
use crate::error::Error;
use crate::shown::is_same_wish;
use crate::strays::mounts;

/// An error unless what the plan was made of is still so: the wish, and of the resource what is taken out of it here. `before` ends the
/// sentence "the resource changed before …".
pub(super) async fn check<T: PartialEq>(
    pass: &Pass<'_>,
    before: &str,
    rests_on: impl Fn(&QuestDB) -> T,
) -> Result<(), Error> {
    let resources: Api<QuestDB> =
        Api::namespaced(pass.context.client.clone(), &pass.validated.subject.namespace);
    let name = &pass.validated.subject.name;
    let now = pass.context.call("read the resource anew", resources.get_opt(name)).await?;
    if now.is_some_and(|now| {
        is_same_wish(&pass.resource.metadata, &now.metadata) && rests_on(&now) == rests_on(pass.resource)
    }) {
        return Ok(());
    }
    Err(Error::Stale { what: format!("the resource changed before {before}") })
}

/// An error unless the pod is as it was seen, or still not there: what it did unseen would be lost with it.
pub(super) async fn check_pod(pass: &Pass<'_>, seen: &PodSeen) -> Result<(), Error> {
    let subject = &pass.validated.subject;
    let pods: Api<Pod> = Api::namespaced(pass.context.client.clone(), &subject.namespace);
    let name = names::pod(&subject.name);
    let now = pass.context.call("look at the pod", pods.get_opt(&name)).await?;
    // By the same rule as what was seen: another one's of that name says nothing.
    let now = now.filter(|pod| subject.holds(&pod.metadata) || mounts(pod, &names::claim(&subject.name)));
    if PodSeen::of(now.as_ref()) == *seen {
        return Ok(());
    }
    Err(Error::Stale { what: format!("pod {name} is not as it was seen, and would go with its StatefulSet") })
}
