//! Which rights there are in which scope, and that they are no wider than what is done with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser as _;
use runtime::CancellationToken;

use super::*;
use crate::caches::Caches;
use crate::played::{self, Answer};
use crate::side::Side;
use crate::strays::Strays;
use crate::watch::{Upkeep, Watches, Wiring};

/// Verbs by namespace (or none for the whole cluster) and kind, of what the operator gets.
type Granted = BTreeMap<(Option<String>, String), String>;

fn printed(arguments: &[&str]) -> Vec<Value> {
    let rights = Rights::try_parse_from([&["rbac"], arguments].concat()).unwrap();
    let text = rights.print().unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

/// What the roles grant to which the operator is bound.
fn granted(objects: &[Value], home: &str) -> Granted {
    let mut granted: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    let named =
        |object: &Value| (object["metadata"]["namespace"].clone(), object["metadata"]["name"].clone());
    for binding in objects.iter().filter(|object| object.get("roleRef").is_some()) {
        let operator = json!([{ "kind": "ServiceAccount", "name": "slipway-operator", "namespace": home }]);
        assert_eq!(binding["subjects"], operator);
        let role = objects.iter().find(|object| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && named(object).0 == named(binding).0
        });
        let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
        assert_eq!(namespace.is_none(), binding["kind"] == "ClusterRoleBinding");
        for rule in role.unwrap()["rules"].as_array().unwrap() {
            for (group, kind) in texts(&rule["apiGroups"])
                .into_iter()
                .flat_map(|group| texts(&rule["resources"]).into_iter().map(move |kind| (group, kind)))
            {
                let only = texts(&rule["resourceNames"]).concat();
                let kind = format!("{group}/{kind}{}{only}", if only.is_empty() { "" } else { "=" });
                let verbs = texts(&rule["verbs"]).into_iter().map(str::to_owned);
                granted.entry((namespace.clone(), kind)).or_default().extend(verbs);
            }
        }
    }
    let words = |verbs: BTreeSet<String>| verbs.into_iter().collect::<Vec<_>>().join(" ");
    granted.into_iter().map(|(what, verbs)| (what, words(verbs))).collect()
}

/// Verbs by kind, somewhere.
type Part<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)]);

const ALL: &str = "create delete get list patch watch";
const OF_OTHERS: &str = "delete get list patch watch";
/// Kinds of which nothing is watched before a spec names one.
const NAMED: [&str; 2] = ["/serviceaccounts", "scheduling.k8s.io/priorityclasses"];

/// What the operator does in the namespaces that it looks after.
const IN_NAMESPACES: &[(&str, &str)] = &[
    ("crd.questdb.io/questdbs", "get list patch watch"),
    ("crd.questdb.io/questdbs/status", "update"),
    ("crd.questdb.io/questdbsnapshots", ALL),
    ("crd.questdb.io/questdbsnapshots/status", "update"),
    ("crd.questdb.io/questdbsnapshotschedules", "list watch"),
    ("crd.questdb.io/questdbsnapshotschedules/status", "update"),
    ("/secrets", ALL),
    ("/configmaps", ALL),
    ("/services", ALL),
    ("/persistentvolumeclaims", ALL),
    ("apps/statefulsets", ALL),
    ("/pods", OF_OTHERS),
    (NAMED[0], "list watch"),
    ("networking.k8s.io/networkpolicies", ALL),
    ("policy/poddisruptionbudgets", ALL),
    ("monitoring.coreos.com/servicemonitors", ALL),
    ("monitoring.coreos.com/podmonitors", ALL),
    ("traefik.io/ingressroutes", ALL),
    ("traefik.io/ingressroutetcps", ALL),
    ("events.k8s.io/events", "create patch"),
];
/// What it does with what lies in no namespace.
const IN_THE_CLUSTER: &[(&str, &str)] = &[
    ("/persistentvolumes", ALL),
    ("/nodes", OF_OTHERS),
    ("storage.k8s.io/volumeattachments", "list watch"),
    (NAMED[1], "list watch"),
];
/// What it does in its own namespace.
const AT_HOME: &[(&str, &str)] = &[
    ("coordination.k8s.io/leases", "create"),
    ("coordination.k8s.io/leases=slipway-operator", "get update"),
];

fn expected(parts: &[Part<'_>]) -> Granted {
    let of = |(namespace, rights): &Part<'_>| {
        let namespace = namespace.map(str::to_owned);
        let right = move |(kind, verbs): &(&str, &str)| {
            ((namespace.clone(), (*kind).to_owned()), (*verbs).to_owned())
        };
        rights.iter().map(right).collect::<Vec<_>>()
    };
    parts.iter().flat_map(of).collect()
}

/// What people get with the roles that Kubernetes comes with.
const PEOPLE: &str = include_str!("../../../../deploy/operator/people.yaml");

#[test]
fn people_may_write_what_they_wish_for_and_no_status() {
    let roles: Vec<Value> = serde_saphyr::from_multiple(PEOPLE).unwrap();
    let verbs = |role: &str| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        let found = roles.iter().find(|found| found["metadata"]["labels"][&label] == "true").unwrap();
        let [rule] = found["rules"].as_array().unwrap().as_slice() else { panic!("{found}") };
        assert_eq!(texts(&rule["apiGroups"]), [names::GROUP]);
        assert_eq!(texts(&rule["resources"]), ["questdbs", "questdbsnapshots", "questdbsnapshotschedules"]);
        texts(&rule["verbs"]).join(" ")
    };
    assert_eq!(verbs("view"), "get list watch");
    assert_eq!(verbs("edit"), "create delete patch update");
}

#[test]
fn each_scope_has_its_rights_and_no_others() {
    let check = |arguments: &[&str], home: &str, parts: &[Part<'_>]| {
        assert_eq!(granted(&printed(arguments), home), expected(parts), "{arguments:?}");
    };
    let (everywhere, cluster, home) = (IN_NAMESPACES, IN_THE_CLUSTER, AT_HOME);
    check(&[], HOME, &[(None, everywhere), (None, cluster), (Some(HOME), home)]);
    check(&["--namespace", "a"], HOME, &[(Some("a"), everywhere), (None, cluster), (Some(HOME), home)]);
    check(
        &["--namespace", "b,a", "--namespace", "c", "--operator-namespace", "tools"],
        "tools",
        &[
            (Some("a"), everywhere),
            (Some("b"), everywhere),
            (Some("c"), everywhere),
            (None, cluster),
            (Some("tools"), home),
        ],
    );
    // One that lies among its databases.
    check(
        &["--namespace", "a", "--operator-namespace", "a"],
        "a",
        &[(Some("a"), everywhere), (Some("a"), home), (None, cluster)],
    );
}

#[test]
fn nothing_is_granted_by_a_star_and_no_secret_outside_the_scope() {
    for arguments in [&[][..], &["--namespace", "a"], &["--namespace", "a,b"]] {
        let objects = printed(arguments);
        let text = serde_json::to_string(&objects).unwrap();
        assert!(!text.contains('*'), "{arguments:?}");
        let secrets: BTreeSet<_> = granted(&objects, HOME)
            .into_keys()
            .filter(|(_, kind)| kind == "/secrets")
            .map(|(namespace, _)| namespace)
            .collect();
        let scope: BTreeSet<_> = Rights::try_parse_from([&["rbac"], arguments].concat())
            .map(|rights| Scope::of(&rights.namespace).places().into_iter().collect())
            .unwrap();
        assert_eq!(secrets, scope, "{arguments:?}");
    }
}

#[test]
fn two_operators_in_one_cluster_have_roles_of_their_own() {
    let roles = |home: &str| -> BTreeSet<String> {
        let objects = printed(&["--namespace", "a", "--operator-namespace", home]);
        let away = objects.iter().filter(|object| {
            object["kind"].as_str().unwrap().contains("Role") && object["metadata"]["namespace"] != *home
        });
        away.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(roles(HOME), BTreeSet::from(["slipway-operator".to_owned()]));
    assert_eq!(roles("tools"), BTreeSet::from(["slipway-operator.tools".to_owned()]));
}

#[test]
fn an_empty_name_is_not_everybody() {
    for arguments in [["--namespace", ""], ["--namespace", "a,"], ["--operator-namespace", ""]] {
        let refused = Rights::try_parse_from([&["rbac"][..], &arguments].concat());
        assert!(refused.is_err(), "{arguments:?}");
    }
}

#[test]
fn names_that_yaml_would_take_for_something_else_stay_names() {
    for name in ["true", "1234", "null", "0x1f", "1e3"] {
        let objects = printed(&["--namespace", name]);
        let found = objects.iter().any(|object| object["metadata"]["namespace"] == name);
        assert!(found, "{name}");
    }
}

/// What the watches of an operator of namespace a ask for: kinds by place.
async fn asked_for() -> BTreeSet<(Option<String>, String)> {
    let asked = Arc::<Mutex<BTreeSet<_>>>::default();
    let told = Arc::clone(&asked);
    let client = played::client(move |path, _| {
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let (group, rest) = match &parts[..] {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            // Everybody who may come in at all may read how kinds are defined.
            ["openapi", "v3"] => return Answer::Is(200, json!({ "paths": {} })),
            _ => panic!("{path}"),
        };
        let (place, kind) = match rest {
            ["namespaces", namespace, kind] => (Some((*namespace).to_owned()), *kind),
            [kind] => (None, *kind),
            _ => {
                let kinds = ["servicemonitors", "podmonitors", "ingressroutes", "ingressroutetcps"];
                return Answer::Is(200, served(&kinds));
            }
        };
        told.lock().unwrap().insert((place, format!("{group}/{kind}")));
        Answer::Silence
    });
    let (stop, scope) = (CancellationToken::new(), Scope::of(&["a".to_owned()]));
    let (metrics, readiness) = (runtime::Metrics::default(), runtime::health::Readiness::default());
    let watches = Watches::new(&metrics, &readiness, &scope, command(&scope, HOME));
    let upkeep = Upkeep::played(watches, scope, &stop);
    let (queue, _asked) = crate::queue::Queue::new(1);
    let _side = Side::start(&client, &upkeep);
    let _caches = Caches::start(&client, &Wiring { upkeep, queue, strays: Strays::default() });
    // All are begun at once.
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    let mut beat = tokio::time::interval(Duration::from_millis(10));
    let wanted = watched(IN_NAMESPACES).count() + watched(IN_THE_CLUSTER).count();
    while asked.lock().unwrap().len() < wanted && tokio::time::Instant::now() < until {
        beat.tick().await;
    }
    stop.cancel();
    let asked = asked.lock().unwrap();
    asked.clone()
}

fn served(kinds: &[&str]) -> Value {
    let kinds: Vec<_> = kinds
        .iter()
        .map(
            |name| json!({ "name": name, "singularName": "", "namespaced": true, "kind": name, "verbs": [] }),
        )
        .collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "g/v1", "resources": kinds })
}

/// Kinds that may be listed and watched, and are from the start.
fn watched<'a>(rights: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a str> {
    let is_watched =
        |verbs: &str| ["list", "watch"].iter().all(|verb| verbs.split(' ').any(|one| one == *verb));
    let rights = rights.iter().filter(move |(kind, verbs)| is_watched(verbs) && !NAMED.contains(kind));
    rights.map(|(kind, _)| *kind)
}

#[tokio::test]
async fn what_is_watched_is_what_may_be_watched() {
    let granted = watched(IN_NAMESPACES).map(|kind| (Some("a".to_owned()), kind.to_owned()));
    let granted: BTreeSet<_> =
        granted.chain(watched(IN_THE_CLUSTER).map(|kind| (None, kind.to_owned()))).collect();
    assert_eq!(asked_for().await, granted);
}

#[test]
fn the_command_that_is_told_grants_what_is_needed() {
    let scope = |names: &[&str]| Scope::of(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
    for (names, home, expected) in [
        (&[][..], HOME, "slipway-operator rbac | kubectl apply -f -"),
        (
            &["b", "a"][..],
            "tools",
            "slipway-operator rbac --namespace a --namespace b --operator-namespace tools | kubectl apply -f -",
        ),
    ] {
        let told = command(&scope(names), home);
        assert_eq!(told, expected);
        let words: Vec<_> = told.split(" | ").next().unwrap().split(' ').skip(1).collect();
        let rights = Rights::try_parse_from(words).unwrap();
        assert_eq!((Scope::of(&rights.namespace), rights.operator_namespace.as_str()), (scope(names), home));
    }
}
