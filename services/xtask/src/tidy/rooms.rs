//! Who may import whom: the walls between the crates, and between pure modules and the world.
//!
//! Reads manifests and `use` lines only. The table below is the plan of the house; a crate that is not in it is a finding.

use super::{Kind, Rule, Source};

/// One crate and those of ours it may depend on.
struct Room {
    name: &'static str,
    may_import: &'static [&'static str],
}

const ROOMS: &[Room] = &[
    Room { name: "domain", may_import: &[] },
    Room { name: "wire", may_import: &["domain"] },
    Room { name: "resources", may_import: &["domain"] },
    Room { name: "store", may_import: &["domain"] },
    Room { name: "bus", may_import: &["wire", "runtime"] },
    Room { name: "runtime", may_import: &[] },
    Room { name: "kubeconfig", may_import: &[] },
    Room { name: "cloud", may_import: &[] },
    Room { name: "cloud-aws", may_import: &["cloud"] },
    Room { name: "plan", may_import: &["domain", "resources", "cloud"] },
    Room { name: "backend", may_import: &["domain", "wire", "store", "bus", "runtime"] },
    Room {
        name: "provisioner",
        may_import: &["domain", "wire", "resources", "store", "bus", "runtime", "kubeconfig"],
    },
    Room {
        name: "operator",
        may_import: &["domain", "resources", "plan", "cloud", "cloud-aws", "runtime", "kubeconfig"],
    },
    Room { name: "node-agent", may_import: &["runtime", "cloud", "cloud-aws"] },
    Room { name: "slipway", may_import: &["domain", "wire", "runtime"] },
    Room { name: "sandbox", may_import: &[] },
    Room { name: "xtask", may_import: &["sandbox"] },
    Room {
        name: "testkit",
        may_import: &["domain", "wire", "store", "bus", "resources", "sandbox", "cloud", "cloud-aws"],
    },
    Room { name: "bench", may_import: &["domain", "wire", "store", "bus", "resources", "testkit"] },
    Room { name: "monitoring", may_import: &[] },
    Room { name: "model", may_import: &["domain", "resources", "store", "bus", "backend", "provisioner"] },
    Room { name: "e2e", may_import: EVERYTHING },
];

const EVERYTHING: &[&str] = &[
    "domain",
    "wire",
    "resources",
    "store",
    "bus",
    "runtime",
    "kubeconfig",
    "cloud",
    "cloud-aws",
    "plan",
    "backend",
    "provisioner",
    "operator",
    "node-agent",
    "slipway",
    "sandbox",
    "testkit",
];

/// What the tests of any crate may use, and nothing that ships.
const FOR_TESTS: &[&str] = &["testkit", "monitoring"];

/// Dependencies that live in few rooms, by the beginning of their name.
const EXCLUSIVE: &[(&str, &[&str])] = &[
    ("sqlx", &["store"]),
    ("jiff-sqlx", &["store"]),
    ("rdkafka", &["bus"]),
    ("aws-config", &["cloud-aws"]),
    ("aws-credential-types", &["cloud-aws"]),
    ("aws-sdk-", &["cloud-aws"]),
    ("aws-smithy-", &["cloud-aws"]),
    ("aws-types", &["cloud-aws"]),
    ("axum", &["backend", "runtime", "e2e"]),
    ("hyper", &["runtime"]),
    ("utoipa-axum", &["backend"]),
    ("reqwest", &["slipway", "operator", "node-agent", "testkit", "bench", "e2e"]),
    (
        "kube",
        &[
            "resources",
            "kubeconfig",
            "plan",
            "provisioner",
            "operator",
            "node-agent",
            "testkit",
            "bench",
            "e2e",
        ],
    ),
    ("protox", &["wire"]),
    ("prost-build", &["wire"]),
    ("stateright", &["model"]),
    ("promql-parser", &["monitoring"]),
];

/// Crates that must compile in seconds, and all they may use for that.
const LIGHT: &[&str] = &["sandbox", "xtask"];
const LIGHT_DEPENDENCIES: &[&str] =
    &["sandbox", "clap", "serde", "serde_json", "nix", "signal-hook", "thiserror", "anyhow"];

/// Crates that never wait: no asynchronous runtime in their manifest.
const WITHOUT_RUNTIME: &[&str] = &["domain", "wire", "resources", "plan"];

/// Crates and modules that decide without touching the world.
const PURE_CRATES: &[&str] = &["domain", "plan"];
const PURE_MODULES: &[&str] = &["decide", "render", "validate", "fold", "update", "view"];

/// What a pure module may not name.
const IMPURE: &[&str] = &[
    "tokio::",
    "sqlx::",
    "rdkafka::",
    "kube::Client",
    "kube::Api",
    "kube::runtime",
    "kube_runtime",
    "std::env",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "reqwest::",
];

pub(super) const RULES: &[Rule] = &[
    Rule { reason: "an edge in Cargo.toml is the architecture: each room keeps something out", check: ours },
    Rule {
        reason: "a dependency in one room can be replaced, audited and compiled there alone",
        check: theirs,
    },
    Rule { reason: "'cargo xtask' is the first thing anyone runs and must compile in seconds", check: light },
    Rule {
        reason: "what decides takes no client, no clock and no async, so that tests of it are cheap and many",
        check: pure,
    },
];

fn ours(source: &Source) -> Vec<(usize, String)> {
    let Some((name, dependencies)) = manifest(source) else { return Vec::new() };
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        return vec![(1, format!("crate '{name}' is not in the table of rooms: say what it may import"))];
    };
    let known = |dependency: &Dependency| ROOMS.iter().any(|room| room.name == dependency.name);
    let refused = |dependency: &Dependency| {
        let for_tests = dependency.dev && FOR_TESTS.contains(&dependency.name);
        known(dependency) && !for_tests && !room.may_import.contains(&dependency.name)
    };
    dependencies
        .into_iter()
        .filter(refused)
        .map(|dependency| (dependency.line, format!("{name} may not import {}", dependency.name)))
        .collect()
}

fn theirs(source: &Source) -> Vec<(usize, String)> {
    let Some((name, dependencies)) = manifest(source) else { return Vec::new() };
    let mut found = Vec::new();
    for dependency in dependencies {
        let room = EXCLUSIVE.iter().find(|(prefix, _)| matches_prefix(dependency.name, prefix));
        if let Some((_, rooms)) = room
            && !rooms.contains(&name)
        {
            found.push((dependency.line, format!("{} lives only in {}", dependency.name, rooms.join(", "))));
        }
        let waits = dependency.name.starts_with("tokio") || dependency.name == "futures";
        if waits && !dependency.dev && WITHOUT_RUNTIME.contains(&name) {
            found.push((dependency.line, format!("{name} never waits: no {}", dependency.name)));
        }
    }
    found
}

fn light(source: &Source) -> Vec<(usize, String)> {
    let Some((name, dependencies)) = manifest(source) else { return Vec::new() };
    if !LIGHT.contains(&name) {
        return Vec::new();
    }
    dependencies
        .into_iter()
        .filter(|dependency| !LIGHT_DEPENDENCIES.contains(&dependency.name))
        .map(|dependency| (dependency.line, format!("{name} uses only {}", LIGHT_DEPENDENCIES.join(", "))))
        .collect()
}

fn pure(source: &Source) -> Vec<(usize, String)> {
    if source.kind != Kind::Rust || !is_pure(source) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.code() {
        if let Some(name) = IMPURE.iter().find(|name| line.contains(*name)) {
            found.push((number, format!("'{name}' in a pure module: take the value as a parameter")));
        }
    }
    found
}

fn is_pure(source: &Source) -> bool {
    let in_pure_crate = source.crate_name().is_some_and(|name| PURE_CRATES.contains(&name));
    // Only the crates that decide have pure modules by name; a `view` of the command line may print.
    let decides = matches!(source.crate_name(), Some("provisioner" | "operator" | "backend" | "bus"));
    let in_pure_module = source
        .path
        .split('/')
        .map(|part| part.strip_suffix(".rs").unwrap_or(part))
        .any(|part| PURE_MODULES.contains(&part));
    (in_pure_crate && source.path.contains("/src/")) || (decides && in_pure_module)
}

/// A line of a manifest that names a dependency.
struct Dependency<'a> {
    line: usize,
    name: &'a str,
    dev: bool,
}

/// The crate a manifest is of, with its dependencies; nothing for other files and the workspace's own manifest.
fn manifest(source: &Source) -> Option<(&str, Vec<Dependency<'_>>)> {
    if source.kind != Kind::Manifest || !source.text.contains("[package]") {
        return None;
    }
    let name = source.lines().find_map(|(_, line)| line.strip_prefix("name = "))?.trim_matches('"');
    let mut section = "";
    let mut dependencies = Vec::new();
    for (number, line) in source.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
        } else if section.ends_with("dependencies")
            && let Some(dependency) = line.split(['.', '=', ' ']).next()
            && !dependency.is_empty()
            && !line.starts_with('#')
        {
            dependencies.push(Dependency {
                line: number,
                name: dependency,
                dev: section.starts_with("dev-"),
            });
        }
    }
    Some((name, dependencies))
}

/// A prefix ending in a dash stands for a family; any other must be the whole name or be followed by a dash.
fn matches_prefix(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| prefix.ends_with('-') || rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::super::Check;
    use super::*;

    fn manifest_of(name: &str, section: &str, dependency: &str) -> Source {
        let text = format!("[package]\nname = \"{name}\"\n\n[{section}]\n{dependency}.workspace = true\n");
        Source::new(format!("services/{name}/Cargo.toml"), text)
    }

    #[test]
    fn edges_that_break_the_plan_are_found() {
        let cases: [(Check, &str, &str, &str); 13] = [
            (ours, "domain", "dependencies", "wire"),
            (ours, "operator", "dependencies", "store"),
            (ours, "backend", "dev-dependencies", "provisioner"),
            (ours, "store", "dependencies", "testkit"),
            (ours, "runtime", "dependencies", "monitoring"),
            (ours, "unheard-of", "dependencies", "serde"),
            (theirs, "backend", "dependencies", "sqlx"),
            (theirs, "provisioner", "dependencies", "rdkafka"),
            (theirs, "operator", "dependencies", "aws-sdk-ec2"),
            (theirs, "backend", "dependencies", "kube"),
            (theirs, "provisioner", "dependencies", "axum"),
            (theirs, "plan", "dependencies", "tokio"),
            (light, "sandbox", "dependencies", "tokio"),
        ];
        for (rule, name, section, dependency) in cases {
            let found = rule(&manifest_of(name, section, dependency));
            assert_eq!(found.len(), 1, "{name} → {dependency}: {found:?}");
        }
    }

    #[test]
    fn edges_of_the_plan_pass() {
        for (name, section, dependency) in [
            ("wire", "dependencies", "domain"),
            ("store", "dependencies", "sqlx"),
            ("store", "dev-dependencies", "testkit"),
            ("runtime", "dev-dependencies", "monitoring"),
            ("cloud-aws", "dependencies", "aws-sdk-ec2"),
            ("operator", "dependencies", "kube-lease-manager"),
            ("xtask", "dependencies", "sandbox"),
            ("e2e", "dependencies", "operator"),
        ] {
            let source = manifest_of(name, section, dependency);
            for rule in RULES {
                assert_eq!((rule.check)(&source), [], "{name} → {dependency}");
            }
        }
    }

    #[test]
    fn pure_modules_may_not_touch_the_world() {
        for line in
            ["use tokio::sync::mpsc;", "let now = jiff::Timestamp::now();", "let client: kube::Client;"]
        {
            for path in [
                "services/domain/src/a.rs",
                "services/provisioner/src/decide.rs",
                "services/operator/src/plan/fold.rs",
            ] {
                assert_eq!(pure(&Source::new(path, format!("{line}\n"))).len(), 1, "{path}: {line}");
            }
            for path in ["services/provisioner/src/apply.rs", "services/slipway/src/view.rs"] {
                assert_eq!(pure(&Source::new(path, format!("{line}\n"))), [], "{path}: {line}");
            }
        }
    }

    #[test]
    fn a_family_is_matched_by_its_prefix() {
        for (name, prefix, expect) in [
            ("aws-sdk-ec2", "aws-", true),
            ("kube", "kube", true),
            ("kube-lease-manager", "kube", true),
            ("kubelet", "kube", false),
            ("axum", "axum", true),
        ] {
            assert_eq!(matches_prefix(name, prefix), expect, "{name} {prefix}");
        }
    }
}
