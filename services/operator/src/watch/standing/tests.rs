//! An API server that goes on, and one that is set back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use runtime::CancellationToken;
use runtime::health::Readiness;
use serde_json::{Value, json};

use super::*;
use crate::played::{self, Answer};
use crate::scope::Scope;
use crate::store::Store;
use crate::watch::{Upkeep, Watches, keep};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn only_what_went_back_was_restored() {
    let standing = Standing::default();
    let anew = standing.anew();
    standing.note(Some("7"));
    for nonsense in [None, Some("no number"), Some("3")] {
        standing.note(nonsense);
    }
    let stands_at = |version| standing.stands_at(version, standing.newest());
    assert!(!stands_at(7) && !stands_at(9) && !stands_at(9));
    assert!(!anew.has_changed().unwrap());
    assert!(stands_at(8));
    assert!(anew.has_changed().unwrap());
    // It is said once, and what it goes back behind next time is where it stands now.
    assert!(!stands_at(8) && stands_at(4) && !stands_at(5));
    // An object says as much as a list does.
    standing.note(Some("100"));
    assert!(stands_at(99));
}

#[test]
fn what_is_seen_while_the_answer_is_on_its_way_says_nothing_against_it() {
    let standing = Standing::default();
    standing.note(Some("7"));
    let before = standing.newest();
    standing.note(Some("12"));
    assert!(!standing.stands_at(10, before));
    assert_eq!(standing.newest(), 12, "and counts the next time");
}

/// What is listed of an API server that stands at a version: one ConfigMap, named after that, and no database.
fn listed(path: &str, version: u64) -> Answer {
    let map =
        json!({ "metadata": { "name": format!("of-{version}"), "namespace": "n", "resourceVersion": "1" } });
    if path.ends_with("/configmaps") {
        return list("ConfigMapList", "v1", version, &json!([map]));
    }
    list("PartialObjectMetadataList", "meta.k8s.io/v1", version, &json!([]))
}

fn list(kind: &str, group: &str, version: u64, items: &Value) -> Answer {
    let metadata = json!({ "resourceVersion": version.to_string() });
    Answer::Is(200, json!({ "kind": kind, "apiVersion": group, "metadata": metadata, "items": items }))
}

async fn shows(store: &Store<ConfigMap>, name: &str) {
    let mut beat = tokio::time::interval(Duration::from_millis(10));
    let shown = async {
        while store.keys().iter().map(|key| key.name().to_owned()).collect::<Vec<_>>() != [name] {
            beat.tick().await;
        }
    };
    let shown = tokio::time::timeout(PATIENCE, shown).await;
    assert!(shown.is_ok(), "{name} alone is not shown: {:?}", store.keys());
}

#[tokio::test]
async fn what_is_restored_is_listed_again_although_no_watch_tells_of_it() {
    let stands = Arc::new(AtomicU64::new(50));
    let now = Arc::clone(&stands);
    let client =
        played::client(
            move |path, watches| {
                if watches { Answer::Silence } else { listed(path, now.load(Ordering::SeqCst)) }
            },
        );
    let (stop, scope, metrics) = (CancellationToken::new(), Scope::All, runtime::Metrics::default());
    let watches = Watches::new(&metrics, &Readiness::default(), &scope, String::new());
    let upkeep = Upkeep::played(watches, scope, &stop);
    let sources = namespaced::<ConfigMap>(&client, &upkeep.scope);
    let store = keep(&upkeep, sources, &watcher::Config::default(), |_| std::future::ready(()));
    shows(&store, "of-50").await;
    let anew = upkeep.watches.standing().anew();
    ask(&client, &upkeep).await;
    // It went on: its watches tell what there is to tell.
    stands.store(60, Ordering::SeqCst);
    ask(&client, &upkeep).await;
    assert!(!anew.has_changed().unwrap());
    shows(&store, "of-50").await;
    // It was set back: what is there no more goes, and what came back is there.
    stands.store(40, Ordering::SeqCst);
    ask(&client, &upkeep).await;
    assert!(anew.has_changed().unwrap());
    shows(&store, "of-40").await;
    stop.cancel();
}
