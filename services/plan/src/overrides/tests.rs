//! What may be chosen of a pod, each refusal by one change of a choice that is good, and what comes of it.

use resources::{QuestDB, names};
use serde_json::{Value, json};

use crate::build;
use crate::fixture::{settings, subject, validated, with};
use crate::validate;

/// Everything at once, all of it allowed.
pub(crate) fn everything() -> Value {
    json!({
        "labels": { "team": "trading", "app.kubernetes.io/part-of": "desk" },
        "annotations": { "example.com/owner": "desk" },
        "resources": { "cpu": "1", "memory": "4Gi" },
        "probes": { "startup": { "periodSeconds": 5, "failureThreshold": 720 },
            "liveness": { "periodSeconds": 2, "failureThreshold": 30 } },
        "env": [{ "name": "TZ", "value": "UTC" }, { "name": "QDB_LOG_W_STDOUT_LEVEL", "value": "ERROR" },
            { "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "a" } } }],
        "volumes": [{ "name": "scratch", "emptyDir": { "sizeLimit": "1Gi" } }, { "name": "ca", "configMap": { "name": "ca" } },
            { "name": "keys", "secret": { "secretName": "keys" } }],
        "volumeMounts": [{ "name": "ca", "mountPath": "/etc/ca", "readOnly": true }],
        "containers": [{
            "name": "shipper", "image": "example.com/shipper:1", "args": ["--to", "desk"],
            "env": [{ "name": "TO", "valueFrom": { "configMapKeyRef": { "name": "to", "key": "to" } } }],
            "ports": [{ "name": "ship", "containerPort": 8080 }],
            "resources": { "cpu": "250m", "memory": "256Mi" },
            "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
        }],
        "tolerations": [{ "key": "desk", "value": "trading", "effect": "NoSchedule" }],
        "imagePullSecrets": [{ "name": "registry" }],
        "serviceAccountName": "desk",
        "priorityClassName": "databases",
        "terminationGracePeriodSeconds": 300,
    })
}

fn chosen(pod: &Value) -> QuestDB {
    with("/spec/pod", pod.clone())
}

fn refusals(pod: &Value) -> Vec<(String, &'static str)> {
    let violations = validate(&chosen(pod), subject(), &settings()).err().map(|found| found.0);
    violations.into_iter().flatten().map(|found| (found.pointer, found.rule.code())).collect()
}

#[test]
fn what_is_allowed_passes_and_comes_back_as_it_was_written() {
    assert_eq!(refusals(&everything()), []);
    assert_eq!(refusals(&json!({})), []);
    let read = chosen(&everything()).spec.pod;
    assert_eq!(serde_json::to_value(read).unwrap(), everything());
}

/// One change of what is good, and the one refusal of it.
fn check(pointer: &str, value: Value, expected: &str, rule: &str) {
    let (mut pod, told) = (everything(), format!("{pointer} = {value}"));
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match pod.pointer_mut(parent).unwrap() {
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        other => other[key] = value,
    }
    let expected = format!("/spec/pod{expected}");
    let found = refusals(&pod);
    let found: Vec<_> = found.iter().map(|(pointer, rule)| (pointer.as_str(), *rule)).collect();
    assert_eq!(found, [(expected.as_str(), rule)], "{told}");
}

#[test]
fn keys_of_others_are_refused_by_name() {
    let ours = [
        "crd.questdb.io/database",
        "app.kubernetes.io/name",
        "app.kubernetes.io/managed-by",
        "statefulset.kubernetes.io/pod-name",
        "kubernetes.io/hostname",
        "k8s.io/a",
        "node.k8s.io/a",
    ];
    for key in ours {
        let expected = format!("/labels/{}", key.replace('/', "~1"));
        check("/labels", json!({ key: "x" }), &expected, "conflict");
    }
    check("/labels", json!({ "a b": "x" }), "/labels/a b", "format");
    let loose = "container.apparmor.security.beta.kubernetes.io/questdb";
    let expected = format!("/annotations/{}", loose.replace('/', "~1"));
    check("/annotations", json!({ loose: "unconfined" }), &expected, "conflict");
    let mirror = "kubernetes.io/config.mirror";
    let expected = format!("/annotations/{}", mirror.replace('/', "~1"));
    check("/annotations", json!({ mirror: "x" }), &expected, "conflict");
    let read = [
        ("controller.kubernetes.io/pod-deletion-cost", "dear"),
        ("scheduler.alpha.kubernetes.io/tolerations", "desk=trading:NoSchedule"),
    ];
    for (key, value) in read {
        let expected = format!("/annotations/{}", key.replace('/', "~1"));
        check("/annotations", json!({ key: value }), &expected, "format");
    }
    check(
        "/annotations",
        json!({ "crd.questdb.io/checksum": "x" }),
        "/annotations/crd.questdb.io~1checksum",
        "conflict",
    );
}

#[test]
fn amounts_and_patience_have_bounds() {
    check("/resources", json!({ "cpu": "499m", "memory": "4Gi" }), "/resources", "range");
    check("/resources", json!({ "cpu": "1", "memory": "512Mi" }), "/resources", "range");
    // m7i.large has 1500m, and 250m of it is the other container's.
    check("/resources", json!({ "cpu": "1251m", "memory": "4Gi" }), "/resources", "range");
    check("/resources", json!({ "cpu": "1", "memory": "7Gi" }), "/resources", "range");
    let probe = |period: u32, failures: u32| json!({ "periodSeconds": period, "failureThreshold": failures });
    check("/probes/startup", probe(2, 29), "/probes/startup", "range");
    for probe in ["startup", "readiness", "liveness"] {
        check(
            &format!("/probes/{probe}"),
            json!({ "periodSeconds": 2, "timeoutSeconds": 3, "failureThreshold": 60 }),
            &format!("/probes/{probe}/timeoutSeconds"),
            "range",
        );
    }
}

#[test]
fn settings_of_questdb_are_no_environment() {
    let settings = ["QDB_PG_PASSWORD", "QDB_CAIRO_ROOT", "QUESTDB_DATA_DIR", "DO_CHOWN", "RUN_AS_ROOT"];
    let files = ["QDB_LOG_W_ALERT_LOCATION", "QDB_LOG_W_FILE_CLASS", "QDB_LOG_WRITERS"];
    let loaders = ["LD_PRELOAD", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JVM_PREPEND", "BASH_ENV", "PATH"];
    let shell = ["ENV", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_exec", "PS4", "IFS", "CLASSPATH", "GCONV_PATH"];
    let library = ["LOCPATH", "_JAVA_OPTIONS", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"];
    let script = ["IGNORE_FIND_OWNER_ERROR", "DEFAULT_LOCALE", "PROFILER_ARGS"];
    let all = settings.into_iter().chain(files).chain(loaders).chain(shell).chain(library).chain(script);
    let all: Vec<&str> = all.collect();
    for prefix in super::SETTINGS.iter().chain(&super::LOADERS) {
        assert!(all.iter().any(|name| name.starts_with(prefix)), "nothing begins with {prefix}");
    }
    for name in super::LOADER_NAMES {
        assert!(all.contains(&name), "{name} is not tried");
    }
    for name in all {
        check("/env/-", json!({ "name": name, "value": "x" }), "/env/3/name", "conflict");
    }
    let others = ["ENVIRONMENT", "PATH_TO_KEYS", "PS41"].map(|name| json!({ "name": name, "value": "x" }));
    assert_eq!(refusals(&json!({ "env": others })), []);
    check("/env/-", json!({ "name": "TZ", "value": "x" }), "/env/3/name", "conflict");
    check("/env/-", json!({ "name": "A" }), "/env/3", "required");
    check("/env/-", json!({ "name": "A", "value": "x", "valueFrom": {} }), "/env/3", "required");
    let key = json!({ "name": "a", "key": "a" });
    let both = json!({ "secretKeyRef": key, "configMapKeyRef": key });
    check("/env/-", json!({ "name": "A", "valueFrom": both }), "/env/3", "required");
}

#[test]
fn every_secret_of_the_operator_is_known_by_its_name() {
    for resource in ["trades-33445566", "somebody-elses"] {
        let (own, drawn) = (names::credentials(resource), names::drawn_key(resource, "laptop"));
        assert_eq!((own.ends_with(super::OF_OPERATOR.0), drawn.contains(super::OF_OPERATOR.1)), (true, true));
    }
}

#[test]
fn volumes_reach_nothing_of_ours() {
    for name in ["data", "config", "secrets", "ca"] {
        check(
            "/volumes/-",
            json!({ "name": name, "configMap": { "name": "x" } }),
            "/volumes/3/name",
            "conflict",
        );
    }
    check("/volumes/-", json!({ "name": "a" }), "/volumes/3", "required");
    let two = json!({ "name": "a", "configMap": { "name": "x" }, "emptyDir": { "sizeLimit": "1Gi" } });
    check("/volumes/-", two, "/volumes/3", "required");

    let of_others = ["somebody-elses-credentials", "somebody-elses.ilp.laptop"];
    for name in ["trades-33445566-credentials", "trades-33445566.ilp.laptop"].into_iter().chain(of_others) {
        let volume = json!({ "name": "a", "secret": { "secretName": name } });
        check("/volumes/-", volume, "/volumes/3/secret/secretName", "conflict");
        let variable = json!({ "name": "A", "valueFrom": { "secretKeyRef": { "name": name, "key": "a" } } });
        check("/env/-", variable.clone(), "/env/3/valueFrom/secretKeyRef/name", "conflict");
        let expected = "/containers/0/env/1/valueFrom/secretKeyRef/name";
        check("/containers/0/env/-", variable, expected, "conflict");
    }
}

#[test]
fn mounts_reach_nothing_of_ours_either() {
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    check("/volumeMounts/-", mount("data", "/a"), "/volumeMounts/1/name", "unknown");
    for path in ["/", "/a/../var", "/a/./b", "/a//b", "/a/"] {
        check("/volumeMounts/-", mount("keys", path), "/volumeMounts/1/mountPath", "format");
    }
    for path in super::OUR_FOLDERS.into_iter().chain(super::SYSTEM) {
        check("/volumeMounts/-", mount("keys", path), "/volumeMounts/1/mountPath", "conflict");
    }
    let taken = [
        "/var/lib/questdb",
        "/var/lib/questdb/conf",
        "/var",
        "/etc/questdb/secrets",
        "/etc",
        "/app",
        "/usr/lib",
        "/root",
        "/x/home/.questdb",
        "/proc/x",
    ];
    for path in taken.into_iter().chain(["/etc/ca", "/etc/ca/b"]) {
        check("/volumeMounts/-", mount("keys", path), "/volumeMounts/1/mountPath", "conflict");
    }
    check(
        "/containers/0/volumeMounts/-",
        mount("data", "/a"),
        "/containers/0/volumeMounts/1/name",
        "unknown",
    );
    check(
        "/containers/0/volumeMounts/-",
        mount("keys", "/sys/fs"),
        "/containers/0/volumeMounts/1/mountPath",
        "conflict",
    );
    for (path, rule) in [("/scratch/a", "conflict"), ("/a/../b", "format")] {
        let expected = "/containers/0/volumeMounts/1/mountPath";
        check("/containers/0/volumeMounts/-", mount("keys", path), expected, rule);
    }
    check(
        "/containers/0/env/-",
        json!({ "name": "TO", "value": "x" }),
        "/containers/0/env/1/name",
        "conflict",
    );
    check("/containers/0/env/-", json!({ "name": "A" }), "/containers/0/env/1", "required");
}

#[test]
fn containers_and_accounts_take_nothing_of_ours() {
    for name in ["questdb", "restore", "link-config"] {
        check("/containers/0/name", json!(name), "/containers/0/name", "conflict");
    }
    for number in [9_000, 8_812, 9_009, 9_003, 8_080] {
        let port = json!({ "name": "other", "containerPort": number });
        check("/containers/0/ports/-", port, "/containers/0/ports/1/containerPort", "conflict");
    }
    for name in ["http", "pg", "min", "ilp", "ship"] {
        let port = json!({ "name": name, "containerPort": 8_081 });
        check("/containers/0/ports/-", port, "/containers/0/ports/1/name", "conflict");
    }
    let twin = json!({ "name": "shipper", "image": "a", "resources": { "cpu": "1m", "memory": "1Mi" } });
    check("/containers/-", twin, "/containers/1/name", "conflict");

    for key in ["questdb.io/dedicated", "node.kubernetes.io/out-of-service"] {
        check("/tolerations/-", json!({ "key": key }), "/tolerations/1/key", "conflict");
    }
    for account in [names::OPERATOR, names::PROVISIONER] {
        check("/serviceAccountName", json!(account), "/serviceAccountName", "conflict");
    }
    check("/priorityClassName", json!("system-node-critical"), "/priorityClassName", "conflict");
}

#[test]
fn what_the_api_server_would_refuse_of_the_pod_is_refused_before() {
    check("/containers/0/image", json!("example.com/shipper:1 "), "/containers/0/image", "format");
    let port = json!({ "name": "80", "containerPort": 8_081 });
    check("/containers/0/ports/-", port, "/containers/0/ports/1/name", "format");
    for kind in ["secretKeyRef", "configMapKeyRef"] {
        let variable = json!({ "name": "A", "valueFrom": { kind: { "name": "a", "key": "a b" } } });
        check("/env/-", variable, &format!("/env/3/valueFrom/{kind}/key"), "format");
    }
    for toleration in [json!({ "key": "a b" }), json!({ "key": "a", "value": "a b" })] {
        check("/tolerations/-", toleration, "/tolerations/1", "format");
    }
    // The definition lets a dot stand anywhere within.
    for field in ["/serviceAccountName", "/priorityClassName"] {
        for name in ["a..b", "a.-b", "a-.b"] {
            check(field, json!(name), field, "format");
        }
    }
}

#[test]
fn what_others_need_is_not_questdbs() {
    let pod = |overrides: Value| {
        build::stateful_set(&validated(&chosen(&overrides)), "n", None).body["spec"]["template"]["spec"]
            .clone()
    };
    let amounts = |pod: &Value, index: usize| {
        let resources = &pod["containers"][index]["resources"];
        assert_eq!(resources["requests"], resources["limits"]);
        (resources["limits"]["cpu"].clone(), resources["limits"]["memory"].clone())
    };
    assert_eq!(amounts(&pod(json!({})), 0), (json!("1500m"), json!("6373Mi")));
    let mut beside = everything();
    beside.as_object_mut().unwrap().remove("resources");
    let beside = pod(beside);
    assert_eq!(amounts(&beside, 0), (json!("1250m"), json!("6117Mi")));
    assert_eq!(amounts(&beside, 1), (json!("250m"), json!("256Mi")));
    assert_eq!(amounts(&pod(everything()), 0), (json!("1"), json!("4Gi")));
    let large = json!({ "containers": [{ "name": "a", "image": "a", "resources": { "cpu": "1001m", "memory": "1Gi" } }] });
    assert_eq!(refusals(&large), [("/spec/pod/containers".to_owned(), "range")]);
}

/// Kubelets of EKS's images keep 255 MiB, 11 for each pod that there may be, and 100 below which they evict; the system keeps about a
/// twentieth, and the driver's node part asks for 120.
#[test]
fn the_smallest_machines_have_room_for_the_pod_beside_what_runs_on_each() {
    for (name, pods) in [("c7i.large", 29), ("c7i.xlarge", 58), ("m7i.large", 29), ("r7i.large", 29)] {
        let kind = domain::catalogue::instance_type(name).unwrap();
        let left = kind.memory_mib - kind.memory_mib / 20 - 255 - 11 * pods - 100 - 120;
        let asked = super::Amounts::of_machine(kind).memory();
        assert!(asked <= left, "{name}: {asked} MiB of {left}");
    }
}

#[test]
fn a_machine_that_is_smaller_than_was_asked_for_still_carries_the_pod() {
    let mut wish = validated(&chosen(&json!({})));
    wish.overrides.resources =
        Some(resources::AmountsSpec { cpu: "3".to_owned(), memory: "12Gi".to_owned() });
    let pod = build::stateful_set(&wish, "n", None).body;
    let limits = &pod["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({ "cpu": "1500m", "memory": "6373Mi" }));
}

#[test]
fn the_pod_is_as_recorded() {
    let wish = validated(&chosen(&everything()));
    insta::assert_yaml_snapshot!("overridden", build::stateful_set(&wish, "qdb-33445566-g1", None).body);
}

#[test]
fn a_restore_is_not_ended_by_the_patience_of_a_start() {
    let wish = validated(&chosen(&everything()));
    let mut volume = crate::fixture::volume(50);
    volume.snapshot = Some("snap-1".to_owned());
    let copied = build::Copied::of(&volume);
    let body = build::stateful_set(&wish, "n", copied.as_ref()).body;
    let probe = &body["spec"]["template"]["spec"]["containers"][0]["startupProbe"];
    assert_eq!((&probe["periodSeconds"], &probe["failureThreshold"]), (&json!(2), &json!(21_600)));
}

#[test]
fn who_chooses_nothing_is_not_restarted() {
    let nothing = build::checksum(&validated(&with("/spec/zone", Value::Null)), "n");
    assert_eq!(build::checksum(&validated(&chosen(&json!({}))), "n"), nothing);
    assert_ne!(build::checksum(&validated(&chosen(&everything())), "n"), nothing);
}

#[test]
fn sizes_are_spelt_as_kubernetes_spells_them() {
    let size = |text: &str| {
        let pod = json!({ "volumes": [{ "name": "a", "emptyDir": { "sizeLimit": text } }] });
        let body = build::stateful_set(&validated(&chosen(&pod)), "n", None).body;
        body["spec"]["template"]["spec"]["volumes"][3]["emptyDir"]["sizeLimit"].clone()
    };
    for (written, expected) in [("1024Mi", "1Gi"), ("1500Mi", "1500Mi"), ("2048Gi", "2Ti"), ("3Gi", "3Gi")] {
        assert_eq!(size(written), expected);
    }
}
