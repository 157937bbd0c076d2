//! Migrations, readiness, and errors by what can be done about them.

use ::store::{Conflict, Error, Schema, Settings, Store};

use super::{Try, database, patient};

#[tokio::test]
async fn many_programs_may_migrate_at_once() {
    let url = testkit::fresh_database().await.unwrap();
    let stores: Vec<Store> = (0..4).map(|_| Store::connect(&url, &patient()).unwrap()).collect();
    for store in &stores {
        assert!(matches!(store.ping().await, Err(Error::Outdated)));
    }
    let migrations = stores.iter().map(Store::migrate);
    for result in futures::future::join_all(migrations).await {
        result.unwrap();
    }
    stores[0].ping().await.unwrap();
    stores[0].migrate().await.unwrap();
}

/// Such an index waits until nobody looks at what was there before it; nobody who waits for it may do so.
#[tokio::test]
async fn an_index_that_is_built_concurrently_waits_for_nobody_who_waits_for_it() {
    let url = testkit::fresh_database().await.unwrap();
    let stores: Vec<Store> = (0..4).map(|_| Store::connect(&url, &patient()).unwrap()).collect();
    let index = "-- no-transaction\ncreate index concurrently later_idx on databases (created_at)";
    let later = Schema::shipped().and(900, "later", index);
    let migrations = stores.iter().map(|store| store.migrate_to(&later));
    for result in futures::future::join_all(migrations).await {
        result.unwrap();
    }
    let valid = "select indisvalid from pg_index where indexrelid = 'later_idx'::regclass";
    assert_eq!(testkit::query(&url, valid).await.unwrap(), "t");
}

#[tokio::test]
async fn a_schema_that_lacks_migrations_is_told_apart_from_a_mistake() {
    let url = testkit::fresh_database().await.unwrap();
    let store = Store::connect(&url, &patient()).unwrap();
    let error = store.clusters().await.unwrap_err();
    assert!(matches!(error, Error::Outdated), "{error:?}");
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_soon() {
    let settings = Settings { acquire: std::time::Duration::from_millis(300), ..Settings::default() };
    let store = Store::connect("postgres://nobody@127.0.0.1:1/none", &settings).unwrap();
    let started = std::time::Instant::now();
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, Error::Reach(_)), "{error:?}");
    // By itself the library waits for half a minute.
    assert!(started.elapsed() < std::time::Duration::from_secs(20));
}

#[tokio::test]
async fn whoever_waits_too_long_for_a_lock_is_told_so() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let settings = Settings { lock: std::time::Duration::from_millis(200), ..patient() };
    let impatient = Store::connect(&scene.url, &settings).unwrap();
    let mut holder = scene.store.begin().await.unwrap();
    holder.lock_database(None, created.id).await.unwrap().unwrap();
    let mut waiter = impatient.begin().await.unwrap();
    let error = waiter.lock_database(None, created.id).await.unwrap_err();
    assert!(matches!(error, Error::Busy(_)), "{error:?}");
}

#[tokio::test]
async fn named_constraints_become_conflicts() {
    let scene = Try::new().await;
    scene.create("trades").await;
    let taken = scene.try_create("trades").await.unwrap_err();
    assert!(matches!(taken, Error::Conflict(Conflict::NameTaken)), "{taken:?}");
    let nobody = Try { tenant: "nobody".parse().unwrap(), ..scene };
    let unknown = nobody.try_create("trades").await.unwrap_err();
    assert!(matches!(unknown, Error::Conflict(Conflict::UnknownTenant)), "{unknown:?}");
}

#[tokio::test]
async fn clusters_are_registered_once_and_change_only_when_they_change() {
    let (store, _) = database().await;
    let mut cluster = super::cluster("eu-west-1");
    assert!(store.put_cluster(&cluster).await.unwrap());
    let first = store.cluster(&cluster.id).await.unwrap().unwrap();
    assert!(!store.put_cluster(&cluster).await.unwrap());
    let same = store.cluster(&cluster.id).await.unwrap().unwrap();
    assert_eq!(first, same, "a repetition moves nothing");
    cluster.credentials = "file:other".to_owned();
    assert!(!store.put_cluster(&cluster).await.unwrap());
    let changed = store.cluster(&cluster.id).await.unwrap().unwrap();
    assert_eq!(changed.cluster, cluster);
    assert!(changed.updated_at > first.updated_at);
    cluster.namespace_template = "{tenant}-databases".to_owned();
    assert!(!store.put_cluster(&cluster).await.unwrap());
    assert_eq!(store.clusters().await.unwrap().clusters, [changed], "databases stay where they are found");
}

#[tokio::test]
async fn a_registration_that_cannot_be_read_hides_no_other() {
    let scene = Try::new().await;
    // As a newer program may write it.
    scene.ask("update clusters set zones = '{\"a\": {\"subnet\": \"s\"}}' where id = 'us-east-1'").await;
    let found = scene.store.clusters().await.unwrap();
    let names: Vec<&str> = found.clusters.iter().map(|one| one.cluster.id.as_str()).collect();
    assert_eq!(names, ["eu-west-1"]);
    let [broken] = found.unreadable.as_slice() else { panic!("{found:?}") };
    assert_eq!((broken.id.as_str(), broken.region.as_str()), ("us-east-1", "us-east-1"));
    let told = broken.error.to_string();
    assert!(told.contains("us-east-1") && told.contains("zones"), "{told}");
    let found = scene.store.begin().await.unwrap().clusters().await.unwrap();
    let names: Vec<&str> = found.clusters.iter().map(|one| one.cluster.id.as_str()).collect();
    assert_eq!((names.as_slice(), found.unreadable.len()), (["eu-west-1"].as_slice(), 1));
    let error = scene.store.cluster(&"us-east-1".parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { table: "clusters", .. }), "{error:?}");
}
