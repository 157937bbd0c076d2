//! Each rule by one change of a valid resource.

use std::cell::Cell;

use serde_json::{Value, json};

use crate::fixture::{resource, settings, subject, with};
use crate::{Goal, InForce, Settings, validate, validate_over};

fn refusals(resource: &resources::QuestDB) -> Vec<(String, &'static str)> {
    match validate(resource, subject(), &settings()) {
        Ok(_) => Vec::new(),
        Err(violations) => {
            violations.0.into_iter().map(|violation| (violation.pointer, violation.rule.code())).collect()
        }
    }
}

#[test]
fn a_good_wish_passes() {
    let validated = validate(&resource(1), subject(), &settings()).unwrap();
    assert_eq!(validated.image, "questdb/questdb:9.3.4");
    assert_eq!(validated.node_image, "ami-1");
    assert_eq!(validated.hostname, "trades-33445566.eu.example.com");
    assert_eq!(validated.goal, Goal::Serve);
}

#[test]
fn what_is_in_force_is_looked_for_only_where_something_is_wrong() {
    for (version, looks) in [("9.3.4", 0), ("1.0.0", 1)] {
        let looked = Cell::new(0);
        let in_force = || {
            looked.set(looked.get() + 1);
            InForce::default()
        };
        let wish = with("/spec/version", json!(version));
        let checked = validate_over(&wish, subject(), &settings(), in_force);
        assert_eq!((checked.is_err(), looked.get()), (looks == 1, looks), "{version}");
    }
}

/// What is wrong with a spec: where it is put, what, where it is noticed, and the rule's code.
type Wrong = (&'static str, Value, &'static str, &'static str);

/// A field of the spec's own that breaks its rule.
fn wrong_fields() -> Vec<Wrong> {
    vec![
        ("/metadata/name", json!("a".repeat(53)), "/metadata/name", "range"),
        ("/metadata/name", json!("9lives"), "/metadata/name", "format"),
        ("/metadata/name", json!("a.b"), "/metadata/name", "format"),
        ("/spec/version", json!("1.0.0"), "/spec/version", "unknown"),
        ("/spec/image", json!("evil/questdb:9.3.4"), "/spec/image", "unknown"),
        ("/spec/compute/instanceType", json!("t2.nano"), "/spec/compute/instanceType", "unknown"),
        ("/spec/compute/nodeImage", json!("ami-other"), "/spec/compute/nodeImage", "unknown"),
        ("/spec/storage/iops", json!(25_001), "/spec/storage/iops", "range"),
        ("/spec/storage/iops", json!(2_999), "/spec/storage/iops", "range"),
        ("/spec/storage/throughput", json!(751), "/spec/storage/throughput", "range"),
        ("/spec/storage/throughput", json!(124), "/spec/storage/throughput", "range"),
        ("/spec/zone", json!("us-east-1a"), "/spec/zone", "unknown"),
        ("/spec/config", json!({ "Bad Key": "1" }), "/spec/config/Bad Key", "format"),
        ("/spec/config", json!({ "": "1" }), "/spec/config/", "format"),
        ("/spec/config", json!({ "a/b~c": "1" }), "/spec/config/a~1b~0c", "format"),
        ("/spec/config", json!({ "a.b": "1\nhttp.user=x" }), "/spec/config/a.b", "format"),
        ("/spec/config", json!({ "a.b": "1\rhttp.user=x" }), "/spec/config/a.b", "format"),
        ("/spec/config", json!({ "a.b": "1\0" }), "/spec/config/a.b", "format"),
        ("/spec/config", json!({ "pg.password": "x" }), "/spec/config/pg.password", "conflict"),
        (
            "/spec/config",
            json!({ "telemetry.enabled": "true" }),
            "/spec/config/telemetry.enabled",
            "conflict",
        ),
        ("/spec/config", json!({ "line.tcp.enabled": "true" }), "/spec/config/line.tcp.enabled", "conflict"),
        (
            "/spec/config",
            json!({ "http.static.public.directory": "/etc" }),
            "/spec/config/http.static.public.directory",
            "conflict",
        ),
        (
            "/spec/config",
            json!({ "cairo.sql.copy.root": "/etc" }),
            "/spec/config/cairo.sql.copy.root",
            "conflict",
        ),
    ]
}

/// Credentials from a Secret that is Slipway's own.
fn wrong_credentials() -> Vec<Wrong> {
    vec![
        (
            "/spec/credentials",
            json!({ "psql": { "secretName": "trades-33445566-credentials" } }),
            "/spec/credentials/psql/secretName",
            "conflict",
        ),
        (
            "/spec/credentials",
            json!({ "psqlReadonly": { "secretName": "trades-33445566-credentials" } }),
            "/spec/credentials/psqlReadonly/secretName",
            "conflict",
        ),
        (
            "/spec/credentials",
            json!({ "http": { "secretName": "trades-33445566.ilp.a" } }),
            "/spec/credentials/http/secretName",
            "conflict",
        ),
        (
            "/spec/credentials",
            json!({ "ilp": { "secretName": "trades-33445566.ilp.a" } }),
            "/spec/credentials/ilp/secretName",
            "conflict",
        ),
    ]
}

/// A name or an address that nobody could be reached by.
fn wrong_names() -> Vec<Wrong> {
    let host = "/spec/network/hostname";
    let long = "a".repeat(64);
    let labels = ["", "a.b", "a_b", "a b", "-a", "a-", long.as_str()];
    let labels = labels.map(|label| json!(format!("{label}.eu.example.com")));
    let names = labels.into_iter().chain([json!("trades.example.org"), json!("eu.example.com")]);
    let ranges =
        ["10.0.0.0/33", "::/129", "10.0.0.0", "10.0.0/8", "10.0.0.0/", "/8", "10.0.0.0/+8", "all", ""];
    let field = "/spec/network/allowedCidrs";
    let second = (field, json!(["10.0.0.0/8", "all"]), "/spec/network/allowedCidrs/1", "format");
    names
        .map(|name| (host, name, host, "format"))
        .chain(ranges.map(|range| (field, json!([range]), "/spec/network/allowedCidrs/0", "format")))
        .chain([second])
        .collect()
}

/// What is wrong with how a database is reached.
fn wrong_reach() -> Vec<Wrong> {
    vec![
        ("/spec/network/egress", json!({ "cidrs": ["::/129"] }), "/spec/network/egress/cidrs/0", "format"),
        ("/spec/network", json!({ "exposure": "Public" }), "/spec/network/allowedCidrs", "required"),
        ("/spec/network/ingress", json!({ "host": "a.example.com" }), "/spec/network/ingress/host", "format"),
        (
            "/spec/network/ingress",
            json!({ "host": "a-.qdb-acme.apps.example.com" }),
            "/spec/network/ingress/host",
            "format",
        ),
        (
            "/spec/network/ingress",
            json!({ "host": "x.other.apps.example.com" }),
            "/spec/network/ingress/host",
            "format",
        ),
        (
            "/spec/network/ingress",
            json!({ "host": "a`) || Host(`b.qdb-acme.apps.example.com" }),
            "/spec/network/ingress/host",
            "format",
        ),
        (
            "/spec/network/service",
            json!({ "annotations": { "crd.questdb.io/applied": "x" } }),
            "/spec/network/service/annotations/crd.questdb.io~1applied",
            "conflict",
        ),
        (
            "/spec/network/service",
            json!({ "headlessAnnotations": { "a b": "x" } }),
            "/spec/network/service/headlessAnnotations/a b",
            "format",
        ),
        (
            "/spec/network/monitor",
            json!({ "labels": { "app.kubernetes.io/managed-by": "me" } }),
            "/spec/network/monitor/labels/app.kubernetes.io~1managed-by",
            "conflict",
        ),
    ]
}

#[test]
fn each_rule_names_its_field() {
    let all = [wrong_fields(), wrong_credentials(), wrong_names(), wrong_reach()];
    for (pointer, value, expected, rule) in all.into_iter().flatten() {
        let mut subject = subject();
        let changed = with(pointer, value.clone());
        subject.name.clone_from(changed.metadata.name.as_ref().unwrap());
        let violations = validate(&changed, subject, &settings()).unwrap_err().0;
        let found: Vec<_> =
            violations.iter().map(|found| (found.pointer.as_str(), found.rule.code())).collect();
        assert_eq!(found, [(expected, rule)], "{pointer} = {value}");
    }
}

#[test]
fn annotations_with_which_the_api_server_refuses_a_service_are_refused() {
    let ranges = json!({ "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8" });
    let (former, present) =
        ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode");
    let topology = |hints: &str, mode: &str| json!({ former: hints, present: mode });
    let table = [
        (
            json!({ "annotations": ranges }),
            Some("annotations/service.beta.kubernetes.io~1load-balancer-source-ranges"),
        ),
        (json!({ "type": "LoadBalancer", "annotations": ranges }), None),
        (
            json!({ "type": "LoadBalancer", "headlessAnnotations": ranges }),
            Some("headlessAnnotations/service.beta.kubernetes.io~1load-balancer-source-ranges"),
        ),
        (
            json!({ "annotations": topology("Auto", "Disabled") }),
            Some("annotations/service.kubernetes.io~1topology-mode"),
        ),
        (json!({ "annotations": topology("Auto", "Auto") }), None),
        (json!({ "headlessAnnotations": { present: "Auto" } }), None),
    ];
    for (service, refused) in table {
        let expected: Vec<_> = refused
            .map(|pointer| (format!("/spec/network/service/{pointer}"), "conflict"))
            .into_iter()
            .collect();
        assert_eq!(refusals(&with("/spec/network/service", service.clone())), expected, "{service}");
    }
}

#[test]
fn a_database_whose_service_the_api_server_refuses_already_stays_in_care() {
    let ranges = "service.beta.kubernetes.io/load-balancer-source-ranges";
    for (annotation, generation, kept) in
        [(ranges, 1, Some(1)), (ranges, 2, None), ("crd.questdb.io/applied", 1, None)]
    {
        let mut resource =
            with("/spec/network/service", json!({ "annotations": { annotation: "10.0.0.0/8" } }));
        let accepted = json!({ "conditions": [{
            "type": "ConfigAccepted", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] });
        resource.status = Some(serde_json::from_value(accepted).unwrap());
        resource.metadata.generation = Some(generation);
        let validated = validate_over(&resource, subject(), &settings(), InForce::default);
        let found = validated.ok().map(|validated| validated.kept.len());
        assert_eq!(found, kept, "{annotation} {generation}");
    }
}

#[test]
fn every_key_that_belongs_to_slipway_is_refused() {
    for prefix in domain::catalogue::RESERVED_CONFIG_PREFIXES {
        let key = format!("{prefix}x");
        let changed = with("/spec/config", json!({ key.as_str(): "1" }));
        assert_eq!(refusals(&changed), [(format!("/spec/config/{key}"), "conflict")]);
    }
}

/// As `SHOW PARAMETERS` of QuestDB has them.
#[test]
fn a_key_of_questdb_may_have_capitals() {
    for key in ["shared.worker.haltOnError", "http.busy.retry.initialWaitQueueSize", "http.keep-alive.max"] {
        assert_eq!(refusals(&with("/spec/config", json!({ key: "1" }))), [], "{key}");
    }
}

#[test]
fn a_route_has_no_other_host_than_one_of_its_namespace() {
    let suffix = "qdb-acme.apps.example.com";
    let labels = ["", "a..b", "a_b", ".a", &"a".repeat(64)].map(|label| format!("{label}.{suffix}"));
    for host in labels.into_iter().chain([suffix.to_owned(), format!("a{suffix}")]) {
        let changed = with("/spec/network/ingress", json!({ "host": host }));
        assert_eq!(refusals(&changed), [("/spec/network/ingress/host".to_owned(), "format")], "{host}");
    }
}

#[test]
fn a_key_of_a_label_is_as_kubernetes_wants_it() {
    let long = "a".repeat(64);
    let bad = ["-a", "a-", "a b", &long, "/a", "a/", "Example.com/a", "a_b.com/a", "a.com/b/c"];
    let ours = ["crd.questdb.io/x", "app.kubernetes.io/managed-by"];
    let rows = bad.map(|key| (key, "format")).into_iter().chain(ours.map(|key| (key, "conflict")));
    for (key, rule) in rows {
        let changed = with("/spec/network/monitor", json!({ "labels": { key: "x" } }));
        let pointer = format!("/spec/network/monitor/labels/{}", key.replace('/', "~1"));
        assert_eq!(refusals(&changed), [(pointer, rule)], "{key}");
    }
    for key in ["a", "A_b.c-1", "example.com/a"] {
        let changed = with("/spec/network/monitor", json!({ "labels": { key: "x" } }));
        assert_eq!(refusals(&changed), [], "{key}");
    }
}

#[test]
fn routes_have_a_host_of_their_namespace() {
    let host = |wish: serde_json::Value| {
        let changed = with("/spec/network/ingress", wish);
        validate(&changed, subject(), &settings()).unwrap().reach.ingress.unwrap().0
    };
    assert_eq!(host(json!({})), "trades-33445566.qdb-acme.apps.example.com");
    assert_eq!(host(json!({ "host": "a.b.qdb-acme.apps.example.com" })), "a.b.qdb-acme.apps.example.com");
}

#[test]
fn an_image_comes_from_the_repository_of_the_cluster() {
    let mirrored = Settings { questdb_image: "mirror:5000/questdb".parse().unwrap(), ..settings() };
    for (named, settings, expected) in [
        (None, settings(), Ok("questdb/questdb:9.3.4")),
        (None, mirrored.clone(), Ok("mirror:5000/questdb:9.3.4")),
        (Some("mirror:5000/questdb:9.3.4"), mirrored.clone(), Ok("mirror:5000/questdb:9.3.4")),
        (Some("questdb/questdb:9.3.4"), mirrored, Err("must be one of: mirror:5000/questdb:9.3.4")),
        (Some("mirror:5000/questdb:9.3.4"), settings(), Err("must be one of: questdb/questdb:9.3.4")),
    ] {
        let found = validate(&with("/spec/image", json!(named)), subject(), &settings);
        let found = found.map(|found| (found.container_image(), found.image));
        let found = found.map_err(|wrong| wrong.0[0].detail.clone());
        let expected = expected.map(|image| (image.to_owned(), "questdb/questdb:9.3.4".to_owned()));
        assert_eq!(found, expected.map_err(str::to_owned), "{named:?}");
    }
}

#[test]
fn a_machine_is_one_of_those_on_offer_and_has_what_is_said_of_it() {
    let offer = "m7i.xlarge,r8i.large:16384:2".parse().unwrap();
    let settings = Settings { instance_types: offer, ..settings() };
    for (name, memory) in [("m7i.xlarge", Some(16_384)), ("r8i.large", Some(16_384)), ("m7i.large", None)] {
        let found = validate(&with("/spec/compute/instanceType", json!(name)), subject(), &settings);
        let found = found.map(|found| found.instance_type.memory_mib);
        let found = found.map_err(|wrong| wrong.0[0].detail.clone());
        let told = "must be one of: m7i.xlarge, r8i.large; SLIPWAY_INSTANCE_TYPES of this cluster's operator";
        match (&found, memory) {
            (Err(detail), None) => assert!(detail.starts_with(told), "{detail}"),
            _ => assert_eq!(found.as_ref().ok().copied(), memory, "{name}"),
        }
    }
    let mut greedy = with("/spec/compute/instanceType", json!("r8i.large"));
    let pod = json!({ "resources": { "cpu": "1", "memory": "15Gi" } });
    greedy.spec.pod = Some(serde_json::from_value(pod).unwrap());
    let wrong = validate(&greedy, subject(), &settings).unwrap_err();
    assert_eq!(wrong.0[0].detail, "r8i.large has 1500m and 13343Mi for all containers together");
}

#[test]
fn a_version_is_one_of_those_on_offer_and_it_is_told_who_says_which() {
    let settings = Settings { versions: "9.3.5,9.4.0".parse().unwrap(), ..settings() };
    for (version, good) in [("9.3.5", true), ("9.4.0", true), ("9.3.4", false)] {
        let found = validate(&with("/spec/version", json!(version)), subject(), &settings);
        assert_eq!(found.is_ok(), good, "{version}");
        let Err(wrong) = found else { continue };
        assert_eq!(wrong.0[0].pointer, "/spec/version");
        let told = "must be one of: 9.3.5, 9.4.0; SLIPWAY_QUESTDB_VERSIONS of this cluster's operator says which, and that of";
        assert!(wrong.0[0].detail.starts_with(told), "{wrong}");
    }
}

#[test]
fn everything_wrong_is_told_at_once() {
    let mut changed = with("/spec/version", json!("0"));
    changed.spec.zone = Some("moon".to_owned());
    assert_eq!(refusals(&changed).len(), 2);
}

#[test]
fn a_bad_field_keeps_nobody_from_deleting() {
    for state in ["Paused", "Deleted", "Purged"] {
        let mut changed = with("/spec/runState", json!(state));
        changed.spec.version = "0".to_owned();
        changed.spec.compute.instance_type = "gone".to_owned();
        assert_eq!(refusals(&changed), [], "{state}");
    }
}

#[test]
fn only_an_explicit_word_destroys_a_disk() {
    let goal = |state: &str, policy: &str, managed: bool, removing: bool| {
        let mut resource = with("/spec/runState", json!(state));
        resource.spec.storage.deletion_policy = serde_json::from_value(json!(policy)).unwrap();
        if !managed {
            resource.spec.instruction = None;
        }
        if removing {
            resource.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        Goal::of(&resource)
    };
    assert_eq!(goal("Running", "Delete", true, false), Goal::Serve);
    assert_eq!(goal("Paused", "Delete", true, false), Goal::Pause);
    assert_eq!(goal("Deleted", "Delete", true, false), Goal::Retire);
    assert_eq!(goal("Purged", "Retain", true, false), Goal::Purge);
    assert_eq!(goal("Running", "Delete", true, true), Goal::Retire);
    assert_eq!(goal("Running", "Retain", false, true), Goal::Retire);
    assert_eq!(goal("Running", "Delete", false, true), Goal::Purge);
}
