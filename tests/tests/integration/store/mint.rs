//! Desired state is minted in order, whole, or not at all.

use domain::{Cluster, ClusterState, OperationKind, OperationState, Position, RunState, TenantId};
use futures::future::join_all;

use super::{Try, at, cluster, mint};

#[tokio::test]
async fn a_mint_writes_state_operation_history_and_event_together() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let view = scene.store.database(Some(&scene.tenant), created.id).await.unwrap().unwrap();
    assert_eq!(view.database.desired, created.desired);
    assert_eq!((view.database.position, view.region.as_str()), (Position::FIRST, "eu-west-1"));
    assert_eq!(view.operation, Some(created.first.operation));
    assert!(view.observed.is_none() && view.database.published.is_none());
    let operation = scene.store.operation(None, created.first.operation).await.unwrap().unwrap();
    assert_eq!(
        (operation.operation.state, operation.operation.kind),
        (OperationState::Pending, OperationKind::Create)
    );
    assert_eq!(operation.database_name, "trades");
    let events = scene.store.events_after(&[(created.first.operation, 0)], 10).await.unwrap().events;
    assert_eq!(
        events.iter().map(|event| (event.number, event.state)).collect::<Vec<_>>(),
        [(1, OperationState::Pending)]
    );
    assert_eq!(scene.ask("select count(*) from instructions").await, "1");
}

#[tokio::test]
async fn a_mint_that_is_not_committed_leaves_nothing() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let mut transaction = scene.store.begin().await.unwrap();
    let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
    transaction.change(&locked, mint(OperationKind::Update, &created.desired)).await.unwrap();
    drop(transaction);
    let counts = "select (select count(*) from operations), (select count(*) from instructions), \
                  (select count(*) from operation_events), (select max(seq) from databases)";
    assert_eq!(scene.ask(counts).await, "1|1|1|1");
}

#[tokio::test]
async fn a_mint_is_one_statement() {
    let scene = Try::new().await;
    // Every row knows the transaction and, within it, the statement that wrote it.
    let written = "select seq, count(*), count(distinct xmin::text || '/' || cmin::text) from \
                   (select seq, xmin, cmin from databases union all select seq, xmin, cmin from operations \
                   union all select seq, xmin, cmin from instructions \
                   union all select o.seq, e.xmin, e.cmin from operation_events e \
                   join operations o on o.id = e.operation_id) as written group by seq order by seq";
    let created = scene.create("trades").await;
    assert_eq!(scene.ask(written).await, "1|4|1");
    scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    assert_eq!(scene.ask(written).await, "1|3|1\n2|4|1", "the database has its newest state only");
}

#[tokio::test]
async fn changes_at_once_get_positions_without_gap_or_repetition() {
    let scene = Try::crowded().await;
    let created = scene.create("trades").await;
    let changes = (0..24).map(|number: u32| {
        scene.change(created.id, move |desired| {
            desired.config.insert(format!("key.{number}"), "x".to_owned());
        })
    });
    let mut positions: Vec<Position> =
        join_all(changes).await.into_iter().map(|minted| minted.position).collect();
    positions.sort_unstable();
    assert_eq!(positions, (2..=25).map(at).collect::<Vec<_>>());
    let last = scene.store.database(None, created.id).await.unwrap().unwrap().database;
    assert_eq!(last.desired.config.len(), 24, "each change stands on the one before");
    let history = "select count(*), count(distinct seq), max(seq) from instructions";
    assert_eq!(scene.ask(history).await, "25|25|25");
}

#[tokio::test]
async fn a_name_is_free_again_when_its_database_is_deleted() {
    let scene = Try::new().await;
    let first = scene.create("trades").await;
    scene.change(first.id, |desired| desired.run_state = RunState::Deleted).await;
    let second = scene.create("trades").await;
    assert_ne!(first.id, second.id);
    let page = ::store::Page { after: None, limit: 10 };
    let living = scene.store.databases(None, Some("trades"), false, page).await.unwrap();
    assert_eq!(living.iter().map(|row| row.as_ref().unwrap().database.id).collect::<Vec<_>>(), [second.id]);
    let all = scene.store.databases(None, Some("trades"), true, page).await.unwrap();
    assert_eq!(
        all.iter().map(|row| row.as_ref().unwrap().database.id).collect::<Vec<_>>(),
        [second.id, first.id]
    );
}

#[tokio::test]
async fn an_event_that_cannot_be_read_ends_what_is_told_of_its_operation_and_of_no_other() {
    let scene = Try::new().await;
    let (broken, good) = (scene.create("trades").await, scene.create("quotes").await);
    let operation = broken.first.operation;
    scene.ask(&format!("update operation_events set body = '{{}}' where operation_id = '{operation}'")).await;
    let asked = [(operation, 0), (good.first.operation, 0)];
    let found = scene.store.events_after(&asked, 10).await.unwrap();
    let told: Vec<_> = found.events.iter().map(|event| (event.operation, event.number)).collect();
    assert_eq!(told, [(good.first.operation, 1)]);
    let [unreadable] = found.unreadable.as_slice() else { panic!("{found:?}") };
    assert_eq!((unreadable.operation, unreadable.number), (operation, 1));
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let other = "umbrella".parse().unwrap();
    let page = ::store::Page { after: None, limit: 10 };
    assert!(scene.store.database(Some(&other), created.id).await.unwrap().is_none());
    assert!(scene.store.operation(Some(&other), created.first.operation).await.unwrap().is_none());
    assert!(scene.store.databases(Some(&other), None, true, page).await.unwrap().is_empty());
    let all = ::store::OperationFilter::default();
    assert!(scene.store.operations(Some(&other), all, page).await.unwrap().is_empty());
    let mut transaction = scene.store.begin().await.unwrap();
    assert!(transaction.lock_database(Some(&other), created.id).await.unwrap().is_none());
}

#[tokio::test]
async fn the_living_databases_of_a_cluster_are_counted() {
    let scene = Try::new().await;
    let counted = async || {
        let counts = scene.store.begin().await.unwrap().database_counts().await.unwrap();
        assert_eq!(scene.store.database_counts().await.unwrap(), counts, "outside of a transaction, too");
        counts.into_iter().map(|(cluster, count)| format!("{cluster} {count}")).collect::<Vec<_>>()
    };
    assert_eq!(counted().await, [""; 0], "clusters without databases are not named");
    let gone = scene.create("trades").await;
    scene.create("quotes").await;
    assert_eq!(counted().await, ["eu-west-1 2"]);
    scene.change(gone.id, |desired| desired.run_state = RunState::Deleted).await;
    assert_eq!(counted().await, ["eu-west-1 1"], "the living ones count");
}

#[tokio::test]
async fn a_tenant_is_known_from_its_first_placement_on() {
    let scene = Try::new().await;
    let place = async |tenant: &TenantId| {
        let mut transaction = scene.store.begin().await.unwrap();
        let open = transaction.hold_open(&"eu-west-1".parse().unwrap(), tenant).await.unwrap();
        transaction.commit().await.unwrap();
        open
    };
    let known = "select string_agg(id, ' ' order by id) from tenants";
    let first: TenantId = "umbrella".parse().unwrap();
    for time in ["the first", "the second"] {
        assert!(place(&first).await);
        assert_eq!(scene.ask(known).await, "acme umbrella", "after {time} time");
    }
    let closed = Cluster { state: ClusterState::Draining, ..cluster("eu-west-1") };
    scene.store.put_cluster(&closed).await.unwrap();
    assert!(!place(&"later".parse().unwrap()).await);
    assert_eq!(scene.ask(known).await, "acme umbrella", "nothing was placed");
    scene.store.put_cluster(&cluster("eu-west-1")).await.unwrap();
    Try { tenant: first, ..scene }.create("trades").await;
}
