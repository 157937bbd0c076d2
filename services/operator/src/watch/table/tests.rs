//! Of which namespaces everything is seen, by what is known of each watch; and what is told of it.

use proptest::prelude::*;
use resources::names;

use super::*;

const RIGHTS: &str = "grant me";

fn watched(kind: &str, place: Option<&str>) -> Watched {
    Watched::new(kind, (&kind.to_lowercase(), ""), place)
}

fn later(begun: Instant, seconds: u64) -> Instant {
    begun + Duration::from_secs(seconds)
}

fn broke(trouble: Trouble) -> News {
    News { trouble, label: "broke", quiet: false, had_begun: false }
}

fn denied() -> News {
    broke(Trouble::Denied("list"))
}

fn time_out() -> News {
    broke(Trouble::Broken("time-out".to_owned()))
}

struct Stand {
    table: Table,
    begun: Instant,
}

impl Stand {
    /// Two kinds in namespaces a and b, one of the cluster.
    fn new() -> Self {
        let (mut table, begun) = (Table::default(), Instant::now());
        for kind in ["Secret", "Pod"] {
            for place in ["a", "b"] {
                table.begun(&watched(kind, Some(place)), Need::Databases, begun);
            }
        }
        table.begun(&watched("Node", None), Need::Databases, begun);
        Self { table, begun }
    }

    /// All is listed but these.
    fn listed_but(but: &[(&str, Option<&str>)]) -> Self {
        let mut stand = Self::new();
        for (kind, place) in ALL {
            if !but.contains(&(kind, place)) {
                assert!(stand.table.listed(&watched(kind, place)));
            }
        }
        stand
    }

    fn broke(&mut self, kind: &str, place: Option<&str>, news: News, at: u64) -> bool {
        self.table.broke(&watched(kind, place), Need::Databases, news, later(self.begun, at))
    }

    fn unseen(&self, namespace: &str, at: u64) -> Option<Unseen> {
        self.table.unseen(namespace, RIGHTS, later(self.begun, at))
    }

    fn ready(&self, at: u64) -> Ready {
        let places = ["a", "b"].map(|place| Some(place.to_owned()));
        self.table.ready(&places, RIGHTS, later(self.begun, at))
    }
}

const ALL: [(&str, Option<&str>); 5] =
    [("Secret", Some("a")), ("Pod", Some("a")), ("Secret", Some("b")), ("Pod", Some("b")), ("Node", None)];

const STALE_S: u64 = STALE.as_secs();

#[test]
fn a_namespace_is_seen_once_all_its_kinds_and_those_of_the_cluster_were_listed() {
    for missing in ALL {
        let mut stand = Stand::listed_but(&[missing]);
        for namespace in ["a", "b"] {
            let concerns = missing.1.is_none_or(|place| place == namespace);
            assert_eq!(
                stand.unseen(namespace, 0),
                concerns.then_some(Unseen::Yet),
                "{missing:?} {namespace}"
            );
        }
        assert_eq!(stand.table.is_cluster_listed(), missing.1.is_some(), "{missing:?}");
        assert!(stand.table.listed(&watched(missing.0, missing.1)), "for the first time");
        assert!(!stand.table.listed(&watched(missing.0, missing.1)), "a list of later");
        assert_eq!((stand.unseen("a", 0), stand.unseen("b", 0)), (None, None), "{missing:?}");
    }
}

#[test]
fn a_namespace_that_is_refused_is_told_and_holds_no_other_up() {
    let mut stand = Stand::listed_but(&[("Secret", Some("b")), ("Pod", Some("b"))]);
    stand.broke("Secret", Some("b"), denied(), 1);
    stand.broke("Pod", Some("b"), time_out(), 1);
    assert_eq!(stand.unseen("a", 1), None);
    let Some(Unseen::Refused(text)) = stand.unseen("b", 1) else { panic!("{:?}", stand.unseen("b", 1)) };
    assert!(text.contains("list secret in namespace b") && text.contains(RIGHTS), "{text}");
    assert!(!text.contains("time-out"), "words that may change are no status: {text}");
    let ready = stand.ready(1);
    assert_eq!((ready.required, &ready.namespaces["a"]), (Ok(()), &Ok(())));
    let told = ready.namespaces["b"].clone().unwrap_err();
    assert!(told.contains("list secret in namespace b") && told.contains("time-out"), "{told}");
    assert!(!told.contains("namespace a"), "{told}");
    // It comes in by itself.
    for kind in ["Secret", "Pod"] {
        assert!(stand.table.works(&watched(kind, Some("b"))));
        stand.table.listed(&watched(kind, Some("b")));
    }
    assert_eq!((stand.unseen("b", 2), stand.ready(2).namespaces["b"].clone()), (None, Ok(())));
}

#[test]
fn without_the_cluster_or_any_namespace_the_process_is_not_ready() {
    let check = |but: &[(&str, Option<&str>)], ready: bool| {
        let found = Stand::listed_but(but).ready(0).required;
        assert_eq!(found.is_ok(), ready, "{but:?}: {found:?}");
    };
    check(&[], true);
    check(&[("Node", None)], false);
    check(&[("Secret", Some("a"))], true);
    check(&[("Secret", Some("b")), ("Pod", Some("b"))], true);
    check(&[("Secret", Some("a")), ("Pod", Some("b"))], false);
    let found = Stand::new().table.ready(&[None], RIGHTS, Instant::now()).required;
    assert!(found.unwrap_err().contains("watch of Node: not listed yet"));
}

/// What a watch had shown before it was refused, or broke, counts for a while.
#[test]
fn what_was_seen_counts_no_more_once_its_watch_has_not_worked_for_long() {
    for (news, refused) in [(denied as fn() -> News, true), (time_out, false)] {
        let mut stand = Stand::listed_but(&[]);
        for at in [10, 40, 100] {
            stand.broke("Secret", Some("b"), news(), at);
        }
        assert_eq!(stand.unseen("b", 10 + STALE_S - 1), None);
        assert_eq!(stand.ready(10 + STALE_S - 1).namespaces["b"], Ok(()), "it does not flap");
        let found = stand.unseen("b", 10 + STALE_S).unwrap();
        assert_eq!(matches!(found, Unseen::Refused(_)), refused, "{found:?}");
        assert_eq!(matches!(found, Unseen::Broken(_)), !refused, "{found:?}");
        assert!(stand.ready(10 + STALE_S).namespaces["b"].is_err());
        assert_eq!((stand.unseen("a", 500), stand.ready(500).required), (None, Ok(())));
        assert!(stand.table.works(&watched("Secret", Some("b"))));
        assert_eq!(stand.unseen("b", 500), None);
    }
    // Of the cluster's kinds it concerns everybody.
    let mut stand = Stand::listed_but(&[]);
    stand.broke("Node", None, denied(), 0);
    assert_eq!((stand.unseen("a", 1), stand.ready(1).required), (None, Ok(())));
    assert!(stand.unseen("a", STALE_S).is_some() && stand.unseen("b", STALE_S).is_some());
    assert!(stand.ready(STALE_S).required.is_err());
}

#[test]
fn a_watch_that_breaks_again_and_again_and_works_between_is_never_stale() {
    let mut stand = Stand::listed_but(&[]);
    for minute in 0..20 {
        let cut = News { quiet: true, had_begun: true, ..time_out() };
        stand.broke("Pod", Some("a"), cut, 30 * minute);
        assert_eq!(stand.unseen("a", 30 * minute + 29), None);
    }
}

/// A watch that broke is listed anew: until that list ends, silence is no answer, and neither is half of it.
#[test]
fn a_list_that_never_ends_does_not_make_what_was_seen_younger() {
    for lists_anew in [false, true] {
        let mut stand = Stand::listed_but(&[]);
        let pod = watched("Pod", Some("a"));
        stand.broke("Pod", Some("a"), News { quiet: true, ..time_out() }, 0);
        if lists_anew {
            stand.table.lists(&pod);
        }
        assert_eq!(stand.table.heals(&pod), !lists_anew, "a watch that was begun again is silent");
        assert_eq!(stand.unseen("a", STALE_S).is_some(), lists_anew);
    }
}

#[test]
fn what_does_not_come_is_told_although_nothing_refuses_it() {
    let mut stand = Stand::listed_but(&[("Secret", Some("b"))]);
    assert_eq!(stand.unseen("b", STALE_S - 1), Some(Unseen::Yet));
    let text = "secret in namespace b not listed yet";
    assert_eq!(stand.unseen("b", STALE_S), Some(Unseen::Broken(text.to_owned())));
    stand.broke("Secret", Some("b"), time_out(), STALE_S);
    // Each kind of error is told once.
    assert!(!stand.broke("Secret", Some("b"), time_out(), STALE_S + 1));
    assert!(stand.broke("Secret", Some("b"), News { label: "other", ..denied() }, STALE_S + 2));
}

#[test]
fn what_snapshots_need_holds_no_database_up() {
    let mut stand = Stand::listed_but(&[]);
    let kind = ("questdbsnapshots", names::GROUP);
    let snapshots = |place| Watched::new("QuestDBSnapshot", kind, Some(place));
    let of = |stand: &Stand, place: &str, at| {
        stand.table.unseen_of("QuestDBSnapshot", place, RIGHTS, later(stand.begun, at))
    };
    assert_eq!(of(&stand, "a", 0), Some(Unseen::Yet), "nobody watches it: that is not that there is none");
    for place in ["a", "b"] {
        stand.table.begun(&snapshots(place), Need::Snapshots, stand.begun);
    }
    stand.table.listed(&snapshots("a"));
    stand.table.broke(&snapshots("b"), Need::Snapshots, broke(Trouble::Missing), stand.begun);
    assert_eq!((of(&stand, "a", 0), stand.unseen("b", 500)), (None, None));
    let Some(Unseen::Refused(text)) = of(&stand, "b", 0) else { panic!("{:?}", of(&stand, "b", 0)) };
    assert!(text.contains("kubectl apply -f deploy/crds/"), "{text}");
    let ready = stand.ready(0);
    assert_eq!((ready.required, &ready.namespaces["b"]), (Ok(()), &Ok(())));
    assert!(ready.snapshots.unwrap_err().contains("questdbsnapshots"));
    assert_eq!(stand.table.refused().count(), 1);
    assert!(stand.table.ended("QuestDBSnapshot") && !stand.table.ended("QuestDBSnapshot"));
    assert_eq!((of(&stand, "a", 0), stand.table.refused().count()), (Some(Unseen::Yet), 0));
}

#[test]
fn an_operator_of_all_namespaces_sees_each_through_the_one_watch() {
    let (mut table, begun) = (Table::default(), Instant::now());
    for kind in ["Secret", "Node"] {
        table.begun(&watched(kind, None), Need::Databases, begun);
    }
    table.listed(&watched("Node", None));
    assert_eq!(table.unseen("any", RIGHTS, begun), Some(Unseen::Yet));
    table.broke(&watched("Secret", None), Need::Databases, denied(), begun);
    let ready = table.ready(&[None], RIGHTS, begun);
    assert!(ready.namespaces.is_empty() && ready.required.unwrap_err().contains("list secret: grant"));
    table.works(&watched("Secret", None));
    table.listed(&watched("Secret", None));
    assert_eq!((table.unseen("any", RIGHTS, begun), table.is_cluster_listed()), (None, true));
}

/// What happens to a watch.
#[derive(Clone, Debug)]
enum Fate {
    Listed,
    Works,
    Heals,
    Denied,
    Broke,
    Cut,
}

fn fate() -> impl Strategy<Value = (usize, Fate, u64)> {
    let fate = prop_oneof![
        Just(Fate::Listed),
        Just(Fate::Works),
        Just(Fate::Heals),
        Just(Fate::Denied),
        Just(Fate::Broke),
        Just(Fate::Cut),
    ];
    (0..ALL.len(), fate, 0..90_u64)
}

proptest! {
    /// Whatever happens in whatever order: a namespace is seen if and only if each of its kinds and of the cluster's was listed,
    /// and has worked within the bound.
    #[test]
    fn nothing_is_decided_on_what_nobody_listed(fates in prop::collection::vec(fate(), 0..60)) {
        let mut stand = Stand::new();
        let (mut now, mut listed, mut worked) = (0, [false; ALL.len()], [None; ALL.len()]);
        for (number, fate, pause) in fates {
            now += pause;
            let (kind, place) = ALL[number];
            let row = watched(kind, place);
            match fate {
                Fate::Listed => {
                    stand.table.works(&row);
                    stand.table.listed(&row);
                    (listed[number], worked[number]) = (true, None);
                }
                Fate::Works => {
                    stand.table.works(&row);
                    worked[number] = None;
                }
                // It said nothing for long; only what says nothing when it works counts then.
                Fate::Heals => drop(stand.table.heals(&row)),
                Fate::Denied => {
                    stand.broke(kind, place, denied(), now);
                    worked[number].get_or_insert(now);
                }
                Fate::Broke => {
                    stand.broke(kind, place, time_out(), now);
                    worked[number].get_or_insert(now);
                }
                Fate::Cut => {
                    stand.broke(kind, place, News { had_begun: true, ..time_out() }, now);
                    worked[number] = Some(now);
                }
            }
            let good = |number: usize| {
                listed[number] && worked[number].is_none_or(|since| now - since < STALE_S)
            };
            let at = |place: Option<&str>| (0..ALL.len()).filter(|number| ALL[*number].1 == place).all(good);
            let (cluster, ready) = (at(None), stand.ready(now));
            for namespace in ["a", "b"] {
                prop_assert_eq!(stand.unseen(namespace, now).is_none(), cluster && at(Some(namespace)));
                prop_assert_eq!(ready.namespaces[namespace].is_ok(), at(Some(namespace)));
            }
            prop_assert_eq!(ready.required.is_ok(), cluster && (at(Some("a")) || at(Some("b"))));
        }
    }
}
