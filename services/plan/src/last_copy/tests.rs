//! The proof of a last copy, each part of it taken away; and the names of orders.

use std::time::Duration;

use cloud::{InstanceId, Tags};

use super::*;
use crate::fixture::{DATABASE, instance, plain, resource, subject, volume};

const NUMBER: u64 = 3;
/// When the last machine was launched, in seconds.
const LAUNCHED: u64 = 1_000;

/// What EC2 shows of a database at its end.
#[derive(Clone)]
struct Shown {
    disk: Volume,
    machines: Vec<Instance>,
    given: Option<u64>,
    copy: VolumeSnapshot,
}

fn without(tags: &Tags, key: &str) -> Tags {
    tags.iter().filter(|(found, _)| *found != key).collect()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn machine() -> Instance {
    let machine = instance();
    Instance {
        state: InstanceState::Terminated,
        tags: machine.tags.with(key::GENERATION, NUMBER.to_string()),
        launched_at: Some(at(LAUNCHED)),
        ..machine
    }
}

fn shown() -> Shown {
    let mut disk = volume(50);
    disk.tags = disk.tags.with(key::GENERATION, NUMBER.to_string());
    let tags = Owner { generation: Some(NUMBER), ..subject().owner(Role::Snapshot) }.tags();
    let copy = VolumeSnapshot {
        id: cloud::SnapshotId::new("snap-1"),
        state: SnapshotState::Completed,
        volume: disk.id.clone(),
        size_gib: 50,
        progress: Some(100),
        message: None,
        encrypted: true,
        tags: tags
            .with(key::BASIS, basis(NUMBER))
            .with(key::CONSISTENT, "true")
            .with(key::SNAPSHOT, "identity")
            .with(key::OBJECT, "trades-33445566-last"),
        started_at: Some(at(LAUNCHED + 1)),
    };
    Shown { disk, machines: vec![machine()], given: Some(NUMBER), copy }
}

fn judge(shown: &Shown) -> Result<(), String> {
    let Shown { disk, machines, given, copy } = shown;
    Evidence { subject: &subject(), disk, machines, given: *given, copy }.judge()
}

/// What is wrong, what is said of it, and how it comes about.
type Row = (&'static str, &'static str, fn(&mut Shown));

const OF_THE_DISK: &[Row] = &[
    ("it was given to a machine since", "generation 4 of the disk", |shown| {
        shown.disk.tags = shown.disk.tags.clone().with(key::GENERATION, "4");
    }),
    ("it is an earlier number", "carries the number 2, and 3 was given out", |shown| {
        shown.disk.tags = shown.disk.tags.clone().with(key::GENERATION, "2");
    }),
    ("a machine came since, by the word of the resource", "carries the number 3, and 4", |shown| {
        shown.given = Some(NUMBER + 1);
    }),
    ("a machine came since, by the word of EC2", "carries the number 3, and 4", |shown| {
        let tags = shown.machines[0].tags.clone().with(key::GENERATION, "4");
        shown.machines[0].tags = tags;
    }),
    ("it has no number", "does not say by its tags", |shown| {
        shown.disk.tags = without(&shown.disk.tags, key::GENERATION);
    }),
    ("its number is none", "does not say by its tags", |shown| {
        shown.disk.tags = shown.disk.tags.clone().with(key::GENERATION, "03");
    }),
    ("it is another database's", "does not say by its tags", |shown| {
        shown.disk.tags = shown.disk.tags.clone().with(key::DATABASE, "other");
    }),
    ("it is another cluster's", "does not say by its tags", |shown| {
        shown.disk.tags = shown.disk.tags.clone().with(key::CLUSTER, "other");
    }),
    ("it is another disk", "is a copy of vol-1 and not of vol-2", |shown| {
        shown.disk.id = VolumeId::new("vol-2");
    }),
];

const OF_THE_COPY: &[Row] = &[
    ("it is of another disk", "is a copy of vol-9 and not of vol-1", |shown| {
        shown.copy.volume = VolumeId::new("vol-9");
    }),
    ("it is under way", "EC2 calls snap-1 pending", |shown| shown.copy.state = SnapshotState::Pending),
    ("it failed", "EC2 calls snap-1 error", |shown| shown.copy.state = SnapshotState::Error),
    ("it lies in the recycle bin", "EC2 calls snap-1 recoverable", |shown| {
        shown.copy.state = SnapshotState::Recoverable;
    }),
    ("it is on its way out of there", "EC2 calls snap-1 recovering", |shown| {
        shown.copy.state = SnapshotState::Recovering;
    }),
    ("nobody knows the word", "EC2 calls snap-1", |shown| {
        shown.copy.state = SnapshotState::Unknown("odd".to_owned());
    }),
    ("it was begun before the last machine", "not begun after i-1", |shown| {
        shown.copy.started_at = Some(at(LAUNCHED - 1));
    }),
    ("it was begun with the last machine", "not begun after i-1", |shown| {
        shown.copy.started_at = Some(at(LAUNCHED));
    }),
    ("nobody knows when it was begun", "not begun after i-1", |shown| shown.copy.started_at = None),
    ("nobody confirmed it", "never confirmed", |shown| {
        shown.copy.tags = without(&shown.copy.tags, key::CONSISTENT);
    }),
    ("a usual one of a stopped database", "not tagged as the last copy", |shown| {
        shown.copy.tags = shown.copy.tags.clone().with(key::BASIS, "stopped:uid-1:3");
    }),
    ("one under a checkpoint", "not tagged as the last copy", |shown| {
        shown.copy.tags = shown.copy.tags.clone().with(key::BASIS, "checkpoint:7");
    }),
    ("it does not say what held the database still", "not tagged as the last copy", |shown| {
        shown.copy.tags = without(&shown.copy.tags, key::BASIS);
    }),
    ("its two numbers differ", "not tagged as the last copy", |shown| {
        shown.copy.tags = shown.copy.tags.clone().with(key::GENERATION, "2");
    }),
    ("it has no number", "not tagged as the last copy", |shown| {
        shown.copy.tags = without(&shown.copy.tags, key::GENERATION);
    }),
    ("another database's", "not tagged as the last copy", |shown| {
        shown.copy.tags = shown.copy.tags.clone().with(key::DATABASE, "other");
    }),
    ("another cluster's", "not tagged as the last copy", |shown| {
        shown.copy.tags = shown.copy.tags.clone().with(key::CLUSTER, "other");
    }),
    ("something else's", "not tagged as the last copy", |shown| {
        shown.copy.tags = shown.copy.tags.clone().with(key::ROLE, "volume");
    }),
    ("nobody's", "not tagged as the last copy", |shown| shown.copy.tags = Tags::new()),
];

#[test]
fn a_copy_with_everything_is_proof() {
    let mut shown = shown();
    assert_eq!(judge(&shown), Ok(()));
    // EC2 forgets a machine an hour after its end; then the numbers prove it alone.
    shown.machines.clear();
    assert_eq!(judge(&shown), Ok(()));
    // What Kubernetes forgot, or restored, takes no proof away.
    for given in [None, Some(NUMBER - 1)] {
        shown.given = given;
        assert_eq!(judge(&shown), Ok(()));
    }
}

#[test]
fn a_copy_that_lacks_anything_is_none() {
    for (why, said, change) in OF_THE_DISK.iter().chain(OF_THE_COPY) {
        let mut shown = shown();
        change(&mut shown);
        let judged = judge(&shown).expect_err(why);
        assert!(judged.contains(said), "{why}: {judged}");
    }
}

#[test]
fn no_machine_may_be_left() {
    let states = [
        InstanceState::Pending,
        InstanceState::Running,
        InstanceState::ShuttingDown,
        InstanceState::Stopping,
        InstanceState::Stopped,
        InstanceState::Unknown("odd".to_owned()),
    ];
    for state in states {
        let mut shown = shown();
        let id = InstanceId::new("i-2");
        shown.machines.push(Instance { id, state: state.clone(), launched_at: None, ..machine() });
        assert_eq!(judge(&shown), Err(format!("i-2 is {state}")));
    }
}

#[test]
fn only_what_is_written_as_a_number_is_one() {
    let number = |text: Option<&str>| {
        let mut order = order("a");
        order.metadata.annotations = text.map(|text| [(LAST_COPY.to_owned(), text.to_owned())].into());
        number_of_order(&order)
    };
    assert_eq!(number(Some("7")), Some(7));
    for text in [None, Some(""), Some("-1"), Some("seven")] {
        assert_eq!(number(text), None, "{text:?}");
    }
}

#[test]
fn orders_of_one_database_follow_each_other_and_are_nobody_elses() {
    let names: Vec<String> = attempts(&subject()).take(3).collect();
    assert_eq!(names, ["trades-33445566-last", "trades-33445566-last-2", "trades-33445566-last-3"]);
    assert_eq!(attempts(&subject()).count(), 100);
    // Of two databases that had one name after each other, each has its own.
    let other = Subject { database: DATABASE.replace("5566", "7788"), ..subject() };
    assert_ne!(attempts(&other).next(), attempts(&subject()).next());
    let known_of = |names: Vec<String>| {
        let of_stem = |stem: &str| {
            names
                .iter()
                .filter(|name| stem_of_order(name) == Some(stem))
                .map(|name| Arc::new(order(name)))
                .collect()
        };
        last_copy_to_look_at(&subject(), of_stem).and_then(|found| found.metadata.name.clone())
    };
    let known = |count: usize| known_of(attempts(&subject()).take(count).collect());
    // Somebody deleted the first.
    assert_eq!(known_of(names[1..].to_vec()).as_deref(), Some("trades-33445566-last-3"));
    assert_eq!(known(0), None);
    assert_eq!(known(2).as_deref(), Some("trades-33445566-last-2"));
    assert_eq!(known(10).as_deref(), Some("trades-33445566-last-10"), "not by their letters");
    assert_eq!(known(100).as_deref(), Some("trades-33445566-last-100"));
    for stranger in
        ["trades-33445566", "trades-33445566-last-101", "trades-33445566-last-02", "trades-33445566-last-1"]
    {
        assert_eq!(stem_of_order(stranger), None, "{stranger}");
        assert_eq!(known_of(vec![stranger.to_owned()]), None, "{stranger}");
    }
}

fn order(name: &str) -> QuestDBSnapshot {
    let spec = serde_json::from_value(serde_json::json!({ "database": "trades-33445566" })).unwrap();
    QuestDBSnapshot::new(name, spec)
}

#[test]
fn who_cannot_order_a_copy_any_more_is_told_the_commands_that_end_it() {
    let (keep, destroy) =
        (r#"'{"spec":{"storage":{"deletionPolicy":"Retain"}}}'"#, r#""deletionPolicy":"Delete""#);
    let check = |resource: &QuestDB, expected: [bool; 3]| {
        let text = without_last_copy(resource, &subject());
        let found = [keep, destroy, "by hand"].map(|word| text.contains(word));
        assert_eq!(found, expected, "{text}");
    };
    let mut wish = plain();
    check(&wish, [true, true, false]);
    wish.spec.run_state = RunState::Purged;
    check(&wish, [false, true, true]);
    check(&resource(1), [false, false, true]);
    let command = format!("kubectl --namespace {} patch qdb {} ", subject().namespace, subject().name);
    assert!(without_last_copy(&plain(), &subject()).contains(&command));
}
