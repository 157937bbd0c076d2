//! Secrets that others made for databases, by their metadata alone: those that name a database by annotation, seen by one
//! watch (by which also those are seen in which keys were handed out), and those that a spec names, each by a watch of its own; and
//! in the same way whatever else its pod is made with: `ConfigMaps`, its service account, its priority class.
//!
//! *Invariant:* no value comes over a watch, and of a Secret that concerns no database nothing is kept. Values are read live,
//! of one Secret at a time, when metadata say that it is another than was taken over.

mod annotated;
mod named;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _};
use plan::references::{Reference, References, references};
use plan::secrets::{Claim, Secrets};
use plan::{Goal, Observed, Validated};
use resources::{QuestDB, names};

use self::annotated::Annotated;
use self::named::Named;
use crate::context::Context;
use crate::error::Error;
use crate::kept::Kept as _;
use crate::queue::Queue;
use crate::watch::{Source, Watched, Wiring, hear, namespaced};

/// What is seen of such Secrets.
#[derive(Clone)]
pub(crate) struct Given {
    /// One for each place that is watched.
    annotated: Vec<Arc<Annotated>>,
    named: Named,
}

impl Given {
    /// Starts the watches of those with an annotation, no further than the scope reaches.
    pub(crate) fn start(client: &Client, wiring: &Wiring) -> Self {
        let places = namespaced(client, &wiring.upkeep.scope).into_iter();
        let annotated = places.map(|source: Source<PartialObjectMeta<Secret>>| {
            let annotated = Arc::<Annotated>::default();
            let (table, queue) = (Arc::clone(&annotated), wiring.queue.clone());
            let watched = Watched::named::<Secret>("Secret metadata", source.place());
            hear(&wiring.upkeep, watched, source, watcher::Config::default(), move |event| {
                let owners = table.take_in(&event);
                ask(queue.clone(), owners)
            });
            annotated
        });
        Self { annotated: annotated.collect(), named: Named::new(client, wiring) }
    }

    /// What is known of one database's; those that its spec names are watched from now on.
    fn seen(&self, of: &ObjectRef<QuestDB>, validated: &Validated) -> (Secrets, References) {
        let credentials = plan::secrets::named(validated);
        let by_pod = references(validated);
        let all = credentials.iter().map(|name| Reference::secret(name)).chain(by_pod.iter().cloned());
        let mut known = self.named.watch(of, all.collect());
        let origin = |name: String| Some((name.clone(), known.get(&Reference::secret(&name))?.clone()));
        let named = credentials.into_iter().filter_map(origin).collect();
        known.retain(|what, _| by_pod.contains(what));
        (Secrets { named, ..Secrets::told(self.claims(of), &validated.subject) }, known)
    }

    fn claims(&self, of: &ObjectRef<QuestDB>) -> Vec<Claim> {
        self.annotated.iter().flat_map(|annotated| annotated.of(of)).collect()
    }

    /// A resource is gone.
    pub(crate) fn forget(&self, of: &ObjectRef<QuestDB>) {
        self.named.watch(of, BTreeSet::new());
    }
}

async fn ask(queue: Queue, owners: Vec<ObjectRef<QuestDB>>) {
    for owner in owners {
        queue.ask(owner).await;
    }
}

/// Completes what was observed by the Secrets of a database that is to serve. Of one whose credentials are in force nothing is
/// read.
pub(crate) async fn look(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &mut Observed,
) -> Result<(), Error> {
    let (given, reference) = (&context.caches.given, ObjectRef::from_obj(resource));
    if validated.goal != Goal::Serve {
        given.forget(&reference);
        // Whatever else it is given is of no use to it; what was handed out goes with it.
        let told = Secrets::told(given.claims(&reference), &validated.subject);
        observed.secrets.handed_out = told.handed_out;
        return Ok(());
    }
    (observed.secrets, observed.references) = given.seen(&reference, validated);
    Box::pin(read(context, validated, observed)).await
}

/// Reads what has to be read of the Secrets of a database that is to serve.
async fn read(context: &Context, validated: &Validated, observed: &mut Observed) -> Result<(), Error> {
    let subject = &validated.subject;
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &subject.namespace);
    let own = names::credentials(&subject.name);
    if observed.children.secret.is_none() && observed.children.stateful_set.is_some() {
        // Before others are drawn: perhaps only its labels are gone, by which it is found.
        let found = context.call("look for the Secret with the credentials", api.get_opt(&own)).await?;
        observed.children.secret = found.filter(|found| subject.holds(found.meta())).map(kept);
    }
    for name in plan::secrets::to_read(validated, observed) {
        let found = match context.call("read a Secret with credentials", api.get_opt(&name)).await {
            Ok(found) => found,
            Err(error) if name == own => return Err(error),
            Err(error) => {
                // Nothing but this credential waits for it.
                tracing::warn!(error = %error.stable(), secret = %name, "a Secret could not be read");
                observed.secrets.unreadable.insert(name, why(&error));
                continue;
            }
        };
        if name == own {
            // What is decided now is decided by this very version of it.
            let found = found.as_ref().filter(|found| subject.holds(found.meta()));
            observed.children.secret = found.cloned().map(kept).or_else(|| observed.children.secret.take());
        }
        observed.secrets.put(validated, name, found);
    }
    Ok(())
}

/// What is remembered of a Secret.
fn kept(mut secret: Secret) -> Arc<Secret> {
    secret.strip();
    Arc::new(secret)
}

/// Why a Secret could not be read, in words that are the same each time.
fn why(error: &Error) -> String {
    match error {
        Error::Kubernetes { source, .. } => match &**source {
            kube::Error::Api(status) => format!("the API server answers {} {}", status.code, status.reason),
            _ => "the API server does not answer".to_owned(),
        },
        Error::Denied { .. } => error.stable(),
        _ => "the API server does not answer in time".to_owned(),
    }
}
