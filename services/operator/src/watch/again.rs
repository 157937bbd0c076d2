//! Looks at databases of which everything is seen again: what changed while nothing was decided on them is told by nothing else.

use std::collections::BTreeSet;

use resources::QuestDB;

use super::Wiring;
use crate::store::{Key, Store};

/// Asks for a look at the databases of each place that is seen again, until stopped.
pub(crate) fn look_again(wiring: &Wiring, resources: &Store<QuestDB>) {
    let Wiring { upkeep, queue, .. } = wiring.clone();
    let resources = resources.clone();
    upkeep.tasks.clone().spawn("look again", async move {
        loop {
            let places = tokio::select! {
                places = upkeep.watches.back() => places,
                () = upkeep.stop.cancelled() => return,
            };
            for resource in of(&places, &resources) {
                queue.ask(resource.reference()).await;
            }
        }
    });
}

fn of(places: &BTreeSet<Option<String>>, resources: &Store<QuestDB>) -> Vec<Key> {
    let all = places.contains(&None);
    let places: BTreeSet<_> = places.iter().map(Option::as_deref).collect();
    resources.keys_of(|key, _| all || places.contains(&key.namespace()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::runtime::reflector::ObjectRef;
    use kube::runtime::watcher::{self, Event};
    use runtime::CancellationToken;
    use runtime::health::Readiness;
    use serde_json::json;

    use super::*;
    use crate::scope::Scope;
    use crate::store;
    use crate::strays::Strays;
    use crate::watch::{Heard, Need, Upkeep, Watched, Watches};

    fn database(namespace: &str) -> Box<QuestDB> {
        let spec = json!({ "version": "9.0.0", "storage": { "sizeGib": 20 } });
        let mut database = Box::new(QuestDB::new("trades", serde_json::from_value(spec).unwrap()));
        database.metadata.namespace = Some(namespace.to_owned());
        database
    }

    #[tokio::test]
    async fn databases_of_a_namespace_that_is_seen_again_are_looked_at_and_no_others() {
        let (resources, mut writer) = store::store();
        for event in
            [Event::Init, Event::InitApply(database("a")), Event::InitApply(database("b")), Event::InitDone]
        {
            writer.take_in(&event);
        }
        let (stop, scope) = (CancellationToken::new(), Scope::of(&["a", "b"].map(str::to_owned)));
        let watches =
            Watches::new(&runtime::Metrics::default(), &Readiness::default(), &scope, String::new());
        let (queue, mut asked) = crate::queue::Queue::new(10);
        queue.open();
        let upkeep = Upkeep::played(watches.clone(), scope, &stop);
        look_again(&Wiring { upkeep, queue, strays: Strays::default() }, &resources);
        let pods = Watched::new("Pod", ("pods", ""), Some("b"));
        watches.begun(&pods, Need::Databases);
        for heard in [Heard::Broke(watcher::Error::NoResourceVersion), Heard::Works] {
            watches.heard(&pods, &heard, Need::Databases);
        }
        let first = tokio::time::timeout(Duration::from_secs(30), asked.recv()).await.unwrap();
        assert_eq!(first, Some(ObjectRef::new("trades").within("b")));
        assert!(asked.try_recv().is_err());
        stop.cancel();
    }
}
