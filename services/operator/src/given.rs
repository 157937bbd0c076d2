//! Secrets that others made for databases, by their metadata alone: those that name a database by annotation, seen by one
//! watch, and those that a spec names, each by a watch of its own.
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
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _};
use plan::secrets::{Content, Secrets};
use plan::{Goal, Observed, Validated};
use resources::{QuestDB, names};
use tokio::sync::watch;

use self::annotated::Annotated;
use self::named::Named;
use crate::context::Context;
use crate::error::Error;
use crate::kept::Kept as _;
use crate::watch::{Pauses, Queue, Wiring, hear};

/// What is seen of such Secrets.
#[derive(Clone)]
pub(crate) struct Given {
    annotated: Arc<Annotated>,
    named: Named,
    listed: watch::Receiver<bool>,
}

impl Given {
    /// Starts the watch of those with an annotation; of one namespace only, if one is named.
    pub(crate) fn start(client: &Client, wiring: &Wiring, namespace: Option<&str>) -> Self {
        let api: Api<PartialObjectMeta<Secret>> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let annotated = Arc::<Annotated>::default();
        let (teller, listed) = watch::channel(false);
        let (table, queue) = (Arc::clone(&annotated), wiring.queue.clone());
        let stream = watcher(api, watcher::Config::default()).backoff(Pauses::default());
        hear(&wiring.upkeep, "Secret metadata".to_owned(), stream, move |event| {
            let owners = table.take_in(&event);
            if matches!(event, Event::InitDone) {
                teller.send_replace(true);
            }
            ask(queue.clone(), owners)
        });
        Self { annotated, named: Named::new(client, wiring), listed }
    }

    /// Waits until all were listed once.
    pub(crate) async fn ready(&self) -> bool {
        self.listed.clone().wait_for(|listed| *listed).await.is_ok()
    }

    /// What is known of one database's; those that its spec names are watched from now on.
    fn seen(&self, of: &ObjectRef<QuestDB>, named: BTreeSet<String>) -> Secrets {
        Secrets { claims: self.annotated.of(of), named: self.named.watch(of, named), ..Secrets::default() }
    }

    /// A resource is gone.
    pub(crate) fn forget(&self, of: &ObjectRef<QuestDB>) {
        self.named.watch(of, BTreeSet::new());
    }
}

async fn ask(queue: Queue, owners: Vec<ObjectRef<QuestDB>>) {
    for owner in owners {
        // Closed only when the program ends.
        let _ = queue.send(owner).await;
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
        return Ok(());
    }
    let named = plan::secrets::named(validated);
    observed.secrets = given.seen(&reference, named.clone());
    let subject = &validated.subject;
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &subject.namespace);
    let own = names::credentials(&subject.name);
    for name in plan::secrets::to_read(validated, observed) {
        let found = context.call("read a Secret with credentials", api.get_opt(&name)).await?;
        // What the operator writes itself is known by its owner, what is given by its name.
        let mut claims = observed.secrets.claims.iter();
        let given = named.contains(&name) || claims.any(|claim| claim.origin.name == name);
        let found = found.filter(|found| given && name != own || subject.holds(found.meta()));
        if name == own
            && let Some(found) = &found
        {
            // What is decided now is decided by this very version of it.
            let mut kept = found.clone();
            kept.strip();
            observed.children.secret = Some(Arc::new(kept));
        }
        observed.secrets.read.insert(name, found.map(Content::of));
    }
    Ok(())
}
