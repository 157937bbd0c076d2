//! The rights in `deploy/rbac` are those that this program uses, and no others. Whoever begins to ask for something else
//! says so here.

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource as _;
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule};

const RIGHTS: &str = include_str!("../../../deploy/rbac/operator.yaml");

/// What is made, kept and taken away: server-side apply needs `create` and `patch`.
const KEPT: &str = "create delete get list patch watch";
/// What others make.
const FOUND: &str = "delete get list patch watch";

/// The words in quotes of a line such as `verbs: ["get"]`.
fn words<'a>(line: &'a str, key: &str) -> Option<Vec<&'a str>> {
    let list = line.trim().trim_start_matches("- ").strip_prefix(key)?.trim().strip_prefix('[')?;
    Some(list.split('"').skip(1).step_by(2).collect())
}

/// Verbs by resource, of the role for the whole cluster.
fn granted() -> BTreeMap<String, BTreeSet<&'static str>> {
    let role = RIGHTS.split("---\n").find(|part| part.contains("kind: ClusterRole\n")).unwrap();
    let mut granted: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let (mut groups, mut kinds) = (Vec::new(), Vec::new());
    for line in role.lines() {
        groups = words(line, "apiGroups:").unwrap_or(groups);
        kinds = words(line, "resources:").unwrap_or(kinds);
        for verb in words(line, "verbs:").unwrap_or_default() {
            for kind in &kinds {
                granted.entry(format!("{}/{kind}", groups[0])).or_default().insert(verb);
            }
        }
        assert!(groups.len() <= 1, "a rule of several groups is not read here: {line}");
    }
    granted
}

#[test]
fn rights_are_no_wider_than_what_is_done() {
    let own = |kind: &str, verbs: &'static str| (format!("{}/{kind}", resources::names::GROUP), verbs);
    let (databases, snapshots) = (QuestDB::plural(&()), QuestDBSnapshot::plural(&()));
    let schedules = QuestDBSnapshotSchedule::plural(&());
    let mut used: BTreeMap<String, &str> = [
        own(&databases, "list patch watch"),
        own(&snapshots, "create delete get list patch watch"),
        own(&schedules, "list watch"),
        ("/pods".to_owned(), FOUND),
        ("/nodes".to_owned(), FOUND),
        ("storage.k8s.io/volumeattachments".to_owned(), "list watch"),
        ("events.k8s.io/events".to_owned(), "create patch"),
    ]
    .into();
    // A status is replaced as a whole, over what the watch showed.
    used.extend([&databases, &snapshots, &schedules].map(|kind| own(&format!("{kind}/status"), "update")));
    let kept = [
        "/secrets",
        "/configmaps",
        "/services",
        "/persistentvolumeclaims",
        "/persistentvolumes",
        "apps/statefulsets",
        "networking.k8s.io/networkpolicies",
        "policy/poddisruptionbudgets",
        "monitoring.coreos.com/servicemonitors",
        "monitoring.coreos.com/podmonitors",
        "traefik.io/ingressroutes",
        "traefik.io/ingressroutetcps",
    ];
    used.extend(kept.map(|kind| (kind.to_owned(), KEPT)));
    let granted: BTreeMap<String, String> = granted()
        .into_iter()
        .map(|(kind, verbs)| (kind, verbs.into_iter().collect::<Vec<_>>().join(" ")))
        .collect();
    let used: BTreeMap<String, String> =
        used.into_iter().map(|(kind, verbs)| (kind, verbs.to_owned())).collect();
    assert_eq!(granted, used);
}
