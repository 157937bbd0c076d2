//! Of which namespaces everything is seen, by what is known of each watch; and what is told of it.

use proptest::prelude::*;
use resources::names;

use super::words::BROKEN;
use super::*;
use crate::watch::answer::ANSWER;
use crate::watch::pauses::{Failure, Pauses};

const RIGHTS: &str = "grant me";

fn watched(kind: &str, place: Option<&str>) -> Watched {
    Watched::new(kind, (&kind.to_lowercase(), ""), place)
}

fn later(begun: Instant, seconds: u64) -> Instant {
    begun + Duration::from_secs(seconds)
}

fn broke(trouble: Trouble) -> News {
    News { trouble, label: "broke" }
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

    fn works(&mut self, kind: &str, place: Option<&str>, at: u64) -> Works {
        self.table.works(&watched(kind, place), later(self.begun, at))
    }

    fn answered(&mut self, kind: &str, place: Option<&str>, at: u64) -> Works {
        self.table.answered(&watched(kind, place), later(self.begun, at))
    }

    fn silent(&mut self, kind: &str, place: Option<&str>, at: u64) -> Works {
        self.table.silent(&watched(kind, place), later(self.begun, at))
    }

    fn told(&self, namespace: &str, at: u64) -> Option<Unseen> {
        self.table.told(namespace, self.unseen(namespace, at)?, later(self.begun, at))
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
const LIVED_S: u64 = LIVED.as_secs();

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
        assert_eq!(stand.works(kind, Some("b"), 2), Works::Anew);
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
        assert_eq!(stand.works("Secret", Some("b"), 500), Works::Anew);
        assert_eq!(stand.works("Secret", Some("b"), 500), Works::Still);
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
    for round in 0..20 {
        stand.broke("Pod", Some("a"), time_out(), (LIVED_S + 1) * round);
        stand.answered("Pod", Some("a"), (LIVED_S + 1) * round + 1);
        assert_eq!(stand.unseen("a", (LIVED_S + 1) * round + LIVED_S), None);
    }
}

/// As behind a load balancer that ends every connection on which nothing was said for twenty seconds.
#[test]
fn a_watch_that_ends_well_again_and_again_works() {
    let mut stand = Stand::listed_but(&[]);
    stand.broke("Pod", Some("a"), time_out(), 0);
    for second in (1..2 * STALE_S).step_by(20) {
        stand.answered("Pod", Some("a"), second);
        assert_eq!(stand.unseen("a", second), None, "{second}");
    }
}

/// There it is never silent for long: what hears that it works is an answer, or what it shows.
#[test]
fn a_watch_that_ends_well_again_and_again_tells_once_that_it_works() {
    for (broken, works) in [(1, Works::Again), (STALE_S, Works::Anew)] {
        let stand = || {
            let mut stand = Stand::listed_but(&[]);
            stand.broke("Pod", Some("a"), time_out(), 0);
            let mut answered = |at| stand.answered("Pod", Some("a"), broken + at);
            assert_eq!((answered(0), answered(LIVED_S - 10)), (Works::Still, Works::Still));
            stand
        };
        let (mut first, mut second) = (stand(), stand());
        let mut answered = |at| first.answered("Pod", Some("a"), broken + at);
        assert_eq!((answered(LIVED_S + 10), answered(LIVED_S + 30)), (works, Works::Still));
        assert_eq!(second.works("Pod", Some("a"), broken + 2 * STALE_S), works, "it was seen long before");
    }
}

/// Neither silence nor an answer that is cut off at once is a watch that works.
#[test]
fn what_was_seen_grows_old_while_the_watch_is_not_served() {
    let mut silent = Stand::listed_but(&[]);
    silent.broke("Pod", Some("a"), time_out(), 0);
    let mut cut = Stand::listed_but(&[]);
    for second in (0..STALE_S + LIVED_S).step_by(5) {
        assert_eq!(silent.silent("Pod", Some("a"), second), Works::Still, "its request hangs");
        cut.broke("Pod", Some("a"), time_out(), second);
        cut.answered("Pod", Some("a"), second + 1);
        assert_eq!(cut.silent("Pod", Some("a"), second + 4), Works::Still);
        for stand in [&silent, &cut] {
            assert_eq!(stand.unseen("a", second).is_some(), second >= STALE_S, "{second}");
        }
    }
    // Served for long enough, each counts again.
    let last = STALE_S + LIVED_S;
    cut.broke("Pod", Some("a"), time_out(), last);
    for stand in [&mut silent, &mut cut] {
        stand.answered("Pod", Some("a"), last);
        assert!(stand.unseen("a", last + LIVED_S - 1).is_some());
        assert_eq!(stand.unseen("a", last + LIVED_S), None);
        assert_eq!(stand.silent("Pod", Some("a"), last + LIVED_S), Works::Anew);
    }
}

/// An API server that is away for a while, as every watch lives through it that asks again at its worst: neither a watch that is
/// resumed without a word nor one that has to be listed anew hides what was seen before.
#[test]
fn an_api_server_that_is_restarted_hides_nothing() {
    for (away, share, forgets) in [1, 40, 100, 240]
        .into_iter()
        .flat_map(|away| [0.0, 0.5, 1.0].map(|share| (away, share)))
        .flat_map(|(away, share)| [false, true].map(|forgets| (away, share, forgets)))
    {
        let case = format!("away for {away} s, share {share}, forgets {forgets}");
        let (mut stand, mut pauses, mut now) = (Stand::listed_but(&[]), Pauses::default(), Duration::ZERO);
        let begun = Instant::now();
        let mut pause = |now: Duration, failure| pauses.after(failure, begun + now, share);
        let at = |now: Duration| now.as_secs() + 1;
        while now < Duration::from_secs(away) {
            stand.broke("Node", None, time_out(), at(now));
            now += pause(now, Failure::Broke);
            assert_eq!(stand.unseen("a", at(now)), None, "{case}, {now:?}");
        }
        stand.answered("Node", None, at(now));
        if forgets {
            stand.broke("Node", None, time_out(), at(now));
            now += pause(now, Failure::Expired);
            // The list is answered at the last moment.
            now += ANSWER;
            assert_eq!(stand.unseen("a", at(now)), None, "{case}");
            assert_eq!(stand.works("Node", None, at(now)), Works::Again, "{case}");
        } else {
            assert_eq!(stand.unseen("a", at(now) + LIVED_S), None, "{case}");
            assert_eq!(stand.silent("Node", None, at(now) + LIVED_S), Works::Again, "{case}");
        }
        assert_eq!(stand.unseen("a", 10 * STALE_S), None, "{case}");
    }
}

/// What resources are to say, and what only readiness and metrics do.
#[test]
fn what_is_broken_everywhere_is_not_said_of_each_database() {
    let all_broken = |stand: &mut Stand| {
        for (kind, place) in ALL {
            stand.broke(kind, place, time_out(), 0);
        }
    };
    let mut stand = Stand::listed_but(&[]);
    all_broken(&mut stand);
    assert!(matches!(stand.unseen("a", STALE_S), Some(Unseen::Broken(_))));
    assert_eq!((stand.told("a", STALE_S), stand.told("b", STALE_S)), (None, None));
    // In one namespace alone it is that namespace's.
    for kind in ["Secret", "Pod"] {
        let mut stand = Stand::listed_but(&[]);
        stand.broke(kind, Some("b"), time_out(), 0);
        let told = stand.told("b", STALE_S);
        assert_eq!(told, Some(Unseen::Broken(BROKEN.to_owned())), "the same whichever kind it is: {kind}");
        assert_eq!((stand.told("a", STALE_S), stand.told("b", STALE_S - 1)), (None, None));
    }
    // What is refused only people cure, wherever it is: each refusal is named from the first on.
    let mut stand = Stand::listed_but(&[]);
    all_broken(&mut stand);
    stand.broke("Node", None, denied(), 1);
    stand.broke("Pod", Some("b"), denied(), 100);
    let Some(Unseen::Refused(text)) = stand.told("b", STALE_S) else {
        panic!("{:?}", stand.told("b", STALE_S))
    };
    assert!(text.contains("list node:") && text.contains("list pod in namespace b"), "{text}");
    let Some(Unseen::Refused(text)) = stand.told("a", STALE_S) else {
        panic!("{:?}", stand.told("a", STALE_S))
    };
    assert!(text.contains("list node:") && !text.contains("namespace b"), "{text}");
}

#[test]
fn while_a_resource_is_not_seen_nothing_is_said_of_it() {
    let mut stand = Stand::listed_but(&[("Secret", Some("b"))]);
    let databases = watched("QuestDB", Some("b"));
    stand.table.begun(&databases, Need::Databases, stand.begun);
    stand.broke("Secret", Some("b"), denied(), 0);
    stand.table.listed(&databases);
    assert!(matches!(stand.told("b", 0), Some(Unseen::Refused(_))));
    stand.broke("QuestDB", Some("b"), denied(), 0);
    assert!(stand.told("b", STALE_S - 1).is_some());
    assert_eq!(stand.told("b", STALE_S), None);
    assert!(matches!(stand.unseen("b", STALE_S), Some(Unseen::Refused(_))));
}

/// Of which kinds an old picture may still be decided on. None may, before it was listed.
#[test]
fn an_old_picture_holds_up_only_what_it_could_destroy() {
    for (kind, harmless) in [
        ("ConfigMap", true),
        ("NetworkPolicy", true),
        ("PodDisruptionBudget", true),
        ("Secret metadata", true),
        ("Service", true),
        ("Node", false),
        ("PersistentVolume", false),
        ("PersistentVolumeClaim", false),
        ("Pod", false),
        ("QuestDB", false),
        ("Secret", false),
        ("StatefulSet", false),
        ("VolumeAttachment", false),
    ] {
        let (mut stand, row) = (Stand::listed_but(&[]), watched(kind, Some("a")));
        stand.table.begun(&row, Need::Databases, stand.begun);
        assert_eq!(stand.unseen("a", 0), Some(Unseen::Yet), "{kind}");
        stand.table.listed(&row);
        stand.broke(kind, Some("a"), denied(), 0);
        assert_eq!(stand.unseen("a", STALE_S).is_none(), harmless, "{kind}");
        let whole = |namespace, at| stand.table.unseen_whole(namespace, RIGHTS, later(stand.begun, at));
        assert!(whole("a", STALE_S).is_some(), "who leaves waits for {kind}");
        assert_eq!((whole("a", STALE_S - 1), whole("b", STALE_S)), (None, None));
        assert!(stand.ready(STALE_S).namespaces["a"].is_err(), "{kind} is told all the same");
    }
}

#[test]
fn what_was_listed_once_is_known_however_old_it_is() {
    let mut stand = Stand::listed_but(&[("Pod", Some("b"))]);
    stand.broke("Pod", Some("a"), denied(), 0);
    let listed = |kind: &str, place: &str| stand.table.was_listed(kind, place);
    assert_eq!((listed("Pod", "a"), listed("Pod", "b"), listed("QuestDB", "a")), (true, false, false));
}

#[test]
fn what_does_not_come_is_told_although_nothing_refuses_it() {
    let mut stand = Stand::listed_but(&[("Secret", Some("b"))]);
    assert_eq!(stand.unseen("b", STALE_S - 1), Some(Unseen::Yet));
    assert_eq!(stand.unseen("b", STALE_S), Some(Unseen::Broken(BROKEN.to_owned())));
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
    table.works(&watched("Secret", None), begun);
    table.listed(&watched("Secret", None));
    assert_eq!((table.unseen("any", RIGHTS, begun), table.is_cluster_listed()), (None, true));
}

/// What happens to a watch.
#[derive(Clone, Debug)]
enum Fate {
    Listed,
    Works,
    Silent,
    Denied,
    Broke,
    Answered,
}

fn fate() -> impl Strategy<Value = (usize, Fate, u64)> {
    let fate = prop_oneof![
        Just(Fate::Listed),
        Just(Fate::Works),
        Just(Fate::Silent),
        Just(Fate::Denied),
        Just(Fate::Broke),
        Just(Fate::Answered),
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
        // Since when one that broke is served again.
        let mut served = [None; ALL.len()];
        for (number, fate, pause) in fates {
            now += pause;
            let (kind, place) = ALL[number];
            let row = watched(kind, place);
            let lives = served[number].is_some_and(|since| now - since >= LIVED_S);
            match fate {
                Fate::Listed => {
                    stand.works(kind, place, now);
                    stand.table.listed(&row);
                    (listed[number], worked[number], served[number]) = (true, None, None);
                }
                Fate::Works => {
                    stand.works(kind, place, now);
                    (worked[number], served[number]) = (None, None);
                }
                // It said nothing for long; only what was served all the time counts then.
                Fate::Silent => drop(stand.silent(kind, place, now)),
                Fate::Denied | Fate::Broke => {
                    stand.broke(kind, place, if matches!(fate, Fate::Denied) { denied() } else { time_out() }, now);
                    worked[number] = worked[number].filter(|_| !lives).or(Some(now));
                    served[number] = None;
                }
                Fate::Answered => {
                    stand.answered(kind, place, now);
                    served[number] = served[number].or_else(|| worked[number].map(|_| now));
                }
            }
            let good = |number: usize| {
                let lives = served[number].is_some_and(|since| now - since >= LIVED_S);
                listed[number] && (lives || worked[number].is_none_or(|since| now - since < STALE_S))
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
