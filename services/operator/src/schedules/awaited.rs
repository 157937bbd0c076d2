//! What a database is still to begin with is not removed: by what the watch shows, and by what the API server has now, as a watch that
//! stands still does not tell of a database that was just asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{ListParams, ObjectList};
use kube::{Api, Resource as _};
use plan::schedule::{self, Due};
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, Seen};
use tokio::sync::Mutex;

use super::Schedules;
use crate::context::Context;
use crate::error::Error;

/// What is asked.
const CALL: &str = "look for databases that are to begin with a copy";
/// Databases in a page: a list of ten thousand takes no more room at once than one of these.
const PAGE: u32 = 500;
/// How old a list may be: thousands of schedules, at one time or all through the day, do not each ask for one. A watch that stands still
/// hides what was asked for in minutes.
const AGE: Duration = Duration::from_secs(30);

/// What was told last, for all schedules.
#[derive(Default)]
pub(super) struct Awaited(Mutex<Option<List>>);

struct List {
    asked: Instant,
    /// None where the API server did not tell.
    told: Option<Arc<Told>>,
}

/// What a list of all namespaces that are looked after tells.
#[derive(Debug, Default)]
struct Told {
    /// Those that wait for a copy.
    waiting: Vec<QuestDB>,
    /// What may not be done in which namespace. Nothing is begun there meanwhile, and the others do not wait for it.
    denied: BTreeMap<String, String>,
}

impl Schedules {
    /// Keeps what a database is still to begin with. Where it is not known which databases there are, that may be any.
    pub(super) fn keep_awaited(
        &self,
        resource: &QuestDBSnapshotSchedule,
        own: &[Arc<QuestDBSnapshot>],
        due: &mut Due,
    ) {
        if due.remove.is_empty() {
            return;
        }
        let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
        if self.context.watches.unseen_of(&QuestDB::kind(&()), namespace).is_some() {
            due.remove.clear();
            return;
        }
        let databases = &self.context.caches.resources;
        let waiting = databases.keys_of(|_, database| database.wants.copy);
        let waiting: Vec<Arc<QuestDB>> = waiting.iter().filter_map(|key| databases.get(key)).collect();
        let waiting: Vec<&QuestDB> = waiting.iter().map(AsRef::as_ref).collect();
        keep_for(&waiting, own, due);
    }

    /// The same by what the API server has now, where one is about to be removed: of a database that was just asked for a watch may not have
    /// told. Where that is not known nothing is tried.
    pub(super) async fn keep_asked_for(
        &self,
        resource: &QuestDBSnapshotSchedule,
        own: &[Arc<QuestDBSnapshot>],
        (due, tried): (&mut Due, &mut Vec<String>),
    ) -> Result<(), Error> {
        if tried.is_empty() {
            return Ok(());
        }
        let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
        let told = self.awaited.told(&self.context, namespace).await.inspect_err(|_| tried.clear())?;
        keep_for(&told.waiting.iter().collect::<Vec<_>>(), own, due);
        tried.retain(|name| due.remove.contains(name));
        Ok(())
    }
}

impl Awaited {
    /// Who waits for a copy, for a schedule of a namespace.
    async fn told(&self, context: &Context, namespace: &str) -> Result<Arc<Told>, Error> {
        let told = self.shared(Instant::now(), list(context)).await?;
        told.is_for(namespace)?;
        Ok(told)
    }

    /// What was told a moment ago, or is told now. Who finds that the API server did not tell a moment ago comes again.
    async fn shared(
        &self,
        now: Instant,
        list: impl Future<Output = Result<Told, Error>>,
    ) -> Result<Arc<Told>, Error> {
        let mut kept = self.0.lock().await;
        if let Some(last) = kept.as_ref().filter(|last| now.saturating_duration_since(last.asked) < AGE) {
            let untold =
                || Error::Stale { what: "the databases could not be listed a moment ago".to_owned() };
            return last.told.clone().ok_or_else(untold);
        }
        let asked = Instant::now();
        let told = list.await.map(Arc::new);
        *kept = Some(List { asked, told: told.as_ref().ok().cloned() });
        told
    }
}

impl Told {
    /// An error where it is not known which databases there are in the namespace itself.
    fn is_for(&self, namespace: &str) -> Result<(), Error> {
        let denied = self.denied.get(namespace);
        denied.map_or(Ok(()), |what| Err(Error::Denied { call: CALL, what: what.clone() }))
    }
}

/// Keeps what one of these databases is still to begin with. Pure.
fn keep_for(waiting: &[&QuestDB], own: &[Arc<QuestDBSnapshot>], due: &mut Due) {
    let is_awaited = |name: &String| {
        let one = own.iter().find(|one| one.metadata.name.as_ref() == Some(name));
        one.is_some_and(|one| waiting.iter().any(|database| schedule::is_awaited(one, database)))
    };
    due.remove.retain(|name| !is_awaited(name));
}

async fn list(context: &Context) -> Result<Told, Error> {
    let mut told = Told::default();
    for place in context.scope.places() {
        let client = context.client.clone();
        let api: Api<Seen<QuestDB>> = match &place {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let api = &api;
        let page = |token: Option<String>| async move {
            let parameters = ListParams { continue_token: token, ..ListParams::default().limit(PAGE) };
            context.call(CALL, api.list(&parameters)).await
        };
        match (place, waiting(page).await) {
            (_, Ok(found)) => told.waiting.extend(found),
            (Some(namespace), Err(Error::Denied { what, .. })) => {
                told.denied.insert(namespace, what);
            }
            (_, Err(error)) => return Err(error),
        }
    }
    Ok(told)
}

/// Those on all pages that wait for a copy; a page is asked for by the token of the one before it.
async fn waiting<A>(mut page: impl FnMut(Option<String>) -> A) -> Result<Vec<QuestDB>, Error>
where
    A: Future<Output = Result<ObjectList<Seen<QuestDB>>, Error>>,
{
    let (mut waiting, mut token) = (Vec::new(), None);
    loop {
        let listed = page(token).await?;
        let found = listed.items.into_iter().map(|seen| *seen.marked());
        waiting.extend(found.filter(schedule::awaits_copy));
        token = listed.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use serde_json::{Value, json};

    use super::*;

    fn database(name: &str, source: &Value) -> Value {
        json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": name, "namespace": "ns" },
            "spec": { "storage": { "sizeGib": 20, "source": source } },
        })
    }

    fn page(items: &[Value], next: &str) -> ObjectList<Seen<QuestDB>> {
        let list = json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBList",
            "metadata": { "resourceVersion": "1", "continue": next }, "items": items,
        });
        serde_json::from_value(list).unwrap()
    }

    #[tokio::test]
    async fn who_waits_is_found_on_every_page() {
        let copy = |name: &str| json!({ "snapshot": name });
        let first = page(&[database("a", &Value::Null), database("b", &copy("one"))], "b");
        let second = page(&[database("c", &json!({ "volumeId": "vol-1" }))], "c");
        let third = page(&[database("d", &copy("two"))], "");
        let (mut pages, mut tokens) = ([first, second, third].into_iter(), Vec::new());
        let found = waiting(|token| {
            tokens.push(token);
            ready(Ok(pages.next().expect("no page after the last")))
        });
        let found = found.await.unwrap();
        let names: Vec<_> = found.iter().filter_map(|database| database.metadata.name.as_deref()).collect();
        assert_eq!(names, ["b", "d"]);
        assert_eq!(tokens, [None, Some("b".to_owned()), Some("c".to_owned())]);
    }

    #[tokio::test]
    async fn a_list_that_breaks_off_tells_nothing() {
        let mut pages = [Ok(page(&[], "more")), Err(Error::Lease)].into_iter();
        let found = waiting(|_| ready(pages.next().unwrap())).await;
        assert!(matches!(found, Err(Error::Lease)), "{found:?}");
    }

    #[tokio::test]
    async fn a_list_serves_all_that_ask_within_a_moment() {
        let awaited = Awaited::default();
        let now = Instant::now();
        let first = awaited.shared(now, ready(Ok(Told::default()))).await.unwrap();
        let same = awaited.shared(now, pending()).await.unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        let later = Instant::now() + AGE;
        let other = awaited.shared(later, ready(Ok(Told::default()))).await.unwrap();
        assert!(!Arc::ptr_eq(&first, &other), "it is too old");
        let failed = awaited.shared(Instant::now() + AGE, ready(Err(Error::Lease))).await;
        assert!(matches!(failed, Err(Error::Lease)), "{failed:?}");
        let after = awaited.shared(now, pending()).await;
        assert!(after.is_err_and(|error| error.is_conflict()), "what was told before counts no more");
    }

    #[test]
    fn a_namespace_that_may_not_be_listed_holds_up_only_its_own_schedules() {
        let denied = BTreeMap::from([("a".to_owned(), "list questdbs.crd.questdb.io".to_owned())]);
        let told = Told { denied, ..Told::default() };
        assert!(told.is_for("a").is_err_and(|error| error.is_right_refused()));
        assert!(told.is_for("b").is_ok());
    }
}
