//! Nobody is worked on before it is known what there is, and nothing is remembered of what is gone.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;
use crate::scope::Scope;
use crate::store::Writer;
use crate::watch::{Need, Watched};

fn kind<K: Kept + Resource<DynamicType = ()>>() -> (Kind<K>, Writer<K>) {
    let (store, writer) = crate::store::store();
    (Kind { store, asks: Asks::default() }, writer)
}

fn fill<K: Kept>(writer: &mut Writer<K>, objects: Vec<K>) {
    writer.take_in(&Event::Init);
    for object in objects {
        writer.take_in(&Event::InitApply(Box::new(object)));
    }
    writer.take_in(&Event::InitDone);
}

fn schedule(name: &str) -> QuestDBSnapshotSchedule {
    let spec = serde_json::from_value(json!({ "database": "trades", "schedule": "0 * * * *" })).unwrap();
    let mut schedule = QuestDBSnapshotSchedule::new(name, spec);
    schedule.metadata = ObjectMeta {
        namespace: Some("ns".to_owned()),
        uid: Some(format!("uid-{name}")),
        ..schedule.metadata
    };
    schedule
}

fn watches(namespaces: &[&str]) -> Watches {
    let names: Vec<_> = namespaces.iter().map(ToString::to_string).collect();
    let readiness = runtime::health::Readiness::default();
    Watches::new(&runtime::Metrics::default(), &readiness, &Scope::of(&names), String::new())
}

#[test]
fn of_a_namespace_nobody_is_worked_on_before_all_of_it_is_seen() {
    let watches = watches(&["a", "b"]);
    let of = |place| {
        [
            (Watched::of::<Pod>(Some(place)), Need::Databases),
            (Watched::of::<QuestDBSnapshot>(Some(place)), Need::Snapshots),
            (Watched::of::<QuestDBSnapshotSchedule>(Some(place)), Need::Snapshots),
        ]
    };
    for (watched, need) in ["a", "b"].into_iter().flat_map(of) {
        watches.begun(&watched, need);
    }
    let [pods, snapshots, schedules] = of("a").map(|(watched, _)| watched);
    let hidden = |place| {
        [
            hidden::<QuestDBSnapshot>(&watches, Some(place), false).is_some(),
            hidden::<QuestDBSnapshotSchedule>(&watches, Some(place), false).is_some(),
        ]
    };
    watches.listed(&schedules);
    assert_eq!(hidden("a"), [true, true]);
    watches.listed(&pods);
    assert_eq!(hidden("a"), [true, true], "nobody knows which snapshots there are");
    watches.listed(&snapshots);
    assert_eq!((hidden("a"), hidden("b")), ([false, false], [true, true]));
}

/// QuestDB would stay as it is held, whatever else is not seen.
#[test]
fn a_snapshot_that_owes_a_release_waits_only_for_itself_and_its_database() {
    let watches = watches(&["a"]);
    let of = |need, watched: Watched| {
        watches.begun(&watched, need);
        watched
    };
    let _pods = of(Need::Databases, Watched::of::<Pod>(Some("a")));
    let databases = of(Need::Databases, Watched::of::<QuestDB>(Some("a")));
    let snapshots = of(Need::Snapshots, Watched::of::<QuestDBSnapshot>(Some("a")));
    let is_hidden = |owes| hidden::<QuestDBSnapshot>(&watches, Some("a"), owes).is_some();
    assert!(is_hidden(true) && is_hidden(false));
    watches.listed(&databases);
    assert!(is_hidden(true), "it is not known what it owes");
    watches.listed(&snapshots);
    assert_eq!((is_hidden(true), is_hidden(false)), (false, true));
}

#[test]
fn which_snapshots_there_are_is_known_by_namespace() {
    let ((snapshots, mut of_snapshots), (schedules, _)) = (kind(), kind());
    let watches = watches(&["a", "b"]);
    let side = Side {
        snapshots,
        schedules,
        by_database: Arc::default(),
        orders: Arc::default(),
        watches: watches.clone(),
    };
    let [a, b] = ["a", "b"].map(|place| Watched::of::<QuestDBSnapshot>(Some(place)));
    for each in [&a, &b] {
        watches.begun(each, Need::Snapshots);
    }
    // One place fills the store of both.
    fill(&mut of_snapshots, Vec::new());
    watches.listed(&a);
    assert_eq!((side.unseen("a"), side.unseen("b")), (None, Some(Unseen::Yet)));
}

#[test]
fn the_snapshots_of_a_database_are_found_among_all() {
    let ((snapshots, mut writer), (schedules, _)) = (kind(), kind());
    let by_database = Arc::<Index>::default();
    let side = Side {
        snapshots,
        schedules,
        by_database: Arc::clone(&by_database),
        orders: Arc::default(),
        watches: watches(&[]),
    };
    for (namespace, name, database) in
        [("a", "1", "trades"), ("a", "2", "trades"), ("a", "3", "quotes"), ("b", "4", "trades")]
    {
        let spec = serde_json::from_value(json!({ "database": database })).unwrap();
        let mut snapshot = QuestDBSnapshot::new(name, spec);
        snapshot.metadata.namespace = Some(namespace.to_owned());
        let event = Event::Apply(Box::new(snapshot));
        writer.take_in(&event);
        by_database.take_in(&event, database_of);
    }
    let names = |namespace, database| {
        let found = side.snapshots_of(Some(namespace), database);
        found.iter().map(|snapshot| snapshot.metadata.name.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names("a", "trades"), names("b", "trades")),
        (vec!["1".into(), "2".into()], vec!["4".into()])
    );
    assert_eq!((names("a", "quotes"), names("b", "quotes")), (vec!["3".to_owned()], Vec::new()));
}

/// Turns that are told to the test.
fn told()
-> (impl Fn(Arc<QuestDBSnapshotSchedule>) -> BoxFuture<'static, Action>, mpsc::UnboundedReceiver<String>) {
    let (sender, turns) = mpsc::unbounded_channel();
    let take = move |schedule: Arc<QuestDBSnapshotSchedule>| {
        sender.send(schedule.metadata.name.clone().unwrap()).unwrap();
        std::future::ready(Action::await_change()).boxed()
    };
    (take, turns)
}

#[tokio::test]
async fn a_schedule_waits_until_it_is_known_which_snapshots_there_are() {
    let ((schedules, mut of_schedules), (snapshots, mut of_snapshots)) = (kind(), kind());
    let side = Side {
        snapshots,
        schedules,
        by_database: Arc::default(),
        orders: Arc::default(),
        watches: watches(&[]),
    };
    fill(&mut of_schedules, vec![schedule("hourly")]);
    let (stop, (take, mut turns)) = (CancellationToken::new(), told());
    let waiting = serve(&side.schedules, side.schedules_known(), &stop, take, |_| {});
    // Another kind, with everything known, for which there was time enough meanwhile.
    let (others, mut of_others) = kind();
    fill(&mut of_others, vec![schedule("other")]);
    let (take, mut other_turns) = told();
    let working = serve(&others, std::future::ready(true), &stop, take, |_| {});
    let watching = async {
        for _ in 0..5 {
            assert_eq!(other_turns.recv().await.as_deref(), Some("other"));
            others.asks.ask(vec![Key::of(&schedule("other"))]).await;
        }
        assert!(turns.try_recv().is_err(), "a turn before the snapshots are known");
        fill(&mut of_snapshots, Vec::new());
        assert_eq!(turns.recv().await.as_deref(), Some("hourly"));
        stop.cancel();
    };
    tokio::join!(waiting, working, watching);
}

#[tokio::test]
async fn what_is_gone_is_forgotten_and_what_stays_is_remembered() {
    let (schedules, mut writer) = kind();
    fill(&mut writer, ["gone", "there"].map(schedule).into());
    let memories = Memories::default();
    for uid in ["uid-gone", "uid-there"] {
        memories.spent(uid, 1);
    }
    let (stop, (take, mut turns)) = (CancellationToken::new(), told());
    let forgotten = Mutex::new(false);
    let serving = serve(&schedules, std::future::ready(true), &stop, take, |uids| {
        memories.retain(|uid| uids.contains(uid));
        *forgotten.lock().unwrap() = true;
        stop.cancel();
    });
    let deleting = async {
        for _ in 0..2 {
            turns.recv().await.unwrap();
        }
        writer.take_in(&Event::Delete(Box::new(schedule("gone"))));
        schedules.asks.ask(vec![Key::of(&schedule("gone"))]).await;
    };
    tokio::join!(serving, deleting);
    assert!(*forgotten.lock().unwrap());
    assert_eq!(memories.recall("uid-gone", 1), plan::Memory::default());
    assert_eq!(memories.recall("uid-there", 1).spent, Some(1));
}

#[test]
fn ten_thousand_that_vanish_one_by_one_have_what_is_remembered_gone_through_a_few_times() {
    const ALL: usize = 10_000;
    let (mut gone, mut gone_through) = (0, 0);
    for left in (0..ALL).rev() {
        gone += 1;
        if is_worth_it(gone, left) {
            gone_through += left;
            gone = 0;
        }
    }
    assert!(gone_through <= LEFT_FOR_EACH_GONE * ALL, "{gone_through}");
    assert_eq!(gone, 0, "something is remembered although nothing is left");
    assert!(!is_worth_it(0, 0), "nothing is gone");
}

#[tokio::test]
async fn who_does_not_lead_asks_nobody() {
    let asks = Asks::<QuestDBSnapshot>::default();
    asks.ask(vec![Key::new(Some("ns"), "a")]).await;
    let (sender, mut asked) = mpsc::channel(1);
    asks.clone().0.set(sender).unwrap();
    asks.ask(Vec::new()).await;
    asks.ask(vec![Key::new(Some("ns"), "b")]).await;
    assert_eq!(asked.recv().await.unwrap().name, "b");
}
