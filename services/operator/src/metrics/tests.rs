//! What is measured is shown under the names that dashboards know.

use serde_json::{Value, json};

use jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::runtime::watcher;
use resources::QuestDB;

use super::*;
use crate::kept::Kept as _;
use crate::kept::brief::Database;
use crate::scope::Scope;
use crate::watch::{Heard, Need, Watched, Watches};

fn text(act: impl FnOnce(&Measures)) -> String {
    let metrics = Metrics::default();
    let measures = Measures::new(&metrics, 32);
    act(&measures);
    metrics.encode().unwrap()
}

fn check(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line} in {text}");
}

#[test]
fn a_pass_is_counted_by_its_result_from_zero_on() {
    let shown = text(|_| {});
    for result in RESULTS {
        let labels = format!("controller=\"questdb\",result=\"{result}\"");
        check(&shown, &format!("controller_runtime_reconcile_total{{{labels}}} 0"));
    }
    let others = text(|measures| drop(measures.of("questdbsnapshot", 30)));
    for (controller, most) in [("questdb", 32), ("questdbsnapshot", 30)] {
        let labels = format!("controller=\"{controller}\"");
        check(&others, &format!("controller_runtime_max_concurrent_reconciles{{{labels}}} {most}"));
    }
    for name in ["reconcile_errors", "terminal_reconcile_errors", "reconcile_panics"] {
        check(&shown, &format!("controller_runtime_{name}_total{{controller=\"questdb\"}} 0"));
        check(&others, &format!("controller_runtime_{name}_total{{controller=\"questdbsnapshot\"}} 0"));
    }
    let shown = text(|measures| {
        let active = measures.begun();
        measures.ended("error", Duration::from_secs(35));
        measures.failed("aws", false);
        measures.failed("foreign", true);
        measures.panicked();
        drop(active);
        let _forgotten = measures.begun();
    });
    for line in [
        "controller_runtime_reconcile_total{controller=\"questdb\",result=\"error\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"questdb\"} 2",
        "controller_runtime_terminal_reconcile_errors_total{controller=\"questdb\"} 1",
        "controller_runtime_reconcile_panics_total{controller=\"questdb\"} 1",
        "controller_runtime_active_workers{controller=\"questdb\"} 0",
        "controller_runtime_max_concurrent_reconciles{controller=\"questdb\"} 32",
        "controller_runtime_reconcile_time_seconds_bucket{le=\"30.0\",controller=\"questdb\"} 0",
        "controller_runtime_reconcile_time_seconds_bucket{le=\"40.0\",controller=\"questdb\"} 1",
        "slipway_operator_pass_failures_total{controller=\"questdb\",category=\"aws\"} 1",
    ] {
        check(&shown, line);
    }
}

#[test]
fn a_step_that_somebody_was_quicker_in_has_not_failed() {
    let refused = |code: u16| {
        let status = kube::core::Status::failure("no", "No").with_code(code).boxed();
        Error::kubernetes("apply an object")(kube::Error::Api(status))
    };
    let shown = text(|measures| {
        let ends = [Ok(()), Err(refused(409)), Err(refused(409)), Err(refused(422)), Err(Error::Lease)];
        for end in &ends {
            measures.step("Apply", end);
        }
    });
    for (result, count) in [("done", 1), ("overtaken", 2), ("failed", 2)] {
        check(&shown, &format!("slipway_operator_steps_total{{step=\"Apply\",result=\"{result}\"}} {count}"));
    }
}

/// Whatever the operator shows, each with one series.
async fn everything(metrics: &Metrics) -> String {
    let measures = Measures::new(metrics, 32);
    drop(measures.begun());
    measures.ended("error", Duration::ZERO);
    measures.failed("aws", true);
    for tell in [Measures::drift, Measures::contended] {
        tell(&measures, "Service");
    }
    measures.step("Hold", &Ok(()));
    measures.leads(true);
    measures.provisioned(Duration::ZERO);
    measures.picture(Instant::now());
    measures.aws("RunInstances", "throttled");
    measures.census.databases([database(|_| {})].iter(), Timestamp::UNIX_EPOCH);
    measures.census.schedules(["Scheduled"].into_iter());
    drop(crate::unclaimed::register(metrics));
    let work = crate::work::Work::new(metrics);
    work.begin(&ObjectMeta::default()).end(crate::turn::Next::Change);
    refuse(metrics);
    let answer = tower::service_fn(async |_| Ok::<_, ()>(http::Response::new(())));
    let mut counted = tower::Layer::layer(&crate::count::Count::new(metrics), answer);
    let request = http::Request::new(kube::client::Body::empty());
    drop(tower::Service::call(&mut counted, request).await);
    metrics.encode().unwrap()
}

/// The API server refuses a watch.
fn refuse(metrics: &Metrics) {
    let status =
        serde_json::json!({ "code": 403, "reason": "Forbidden", "message": "", "status": "Failure" });
    let status = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
    let readiness = runtime::health::Readiness::default();
    let watches = Watches::new(metrics, &readiness, &Scope::All, String::new());
    let denied = Heard::Broke(watcher::Error::InitialListFailed(status));
    watches.heard(&Watched::of::<QuestDB>(None), &denied, Need::Databases);
}

#[test]
fn the_age_of_the_picture_grows_while_there_is_no_newer_one() {
    let metrics = Metrics::default();
    let measures = Measures::new(&metrics, 32);
    let age = || {
        let shown = metrics.encode().unwrap();
        let age = shown.lines().find_map(|line| line.strip_prefix("slipway_aws_picture_age_seconds "));
        age.map(|age| age.parse::<f64>().unwrap())
    };
    assert_eq!(age(), None, "there is none");
    measures.picture(Instant::now().checked_sub(Duration::from_mins(11)).unwrap());
    let first = age().unwrap();
    assert!(first >= 660.0 && age().unwrap() > first, "{first}");
    measures.picture(Instant::now());
    assert!(age().unwrap() < first);
}

#[tokio::test]
async fn the_document_has_every_metric_and_no_other() {
    let metrics = Metrics::default();
    let shown = everything(&metrics).await;
    let document = include_str!("../../../../deploy/operator/metrics.md");
    monitoring::assert_documented(document, &metrics.names(), &shown);
}

#[test]
fn the_document_names_every_category_of_failures() {
    let document = include_str!("../../../../deploy/operator/metrics.md");
    let line = document.lines().find(|line| line.contains("`slipway_operator_pass_failures_total`")).unwrap();
    let (_, categories) = include_str!("../error.rs").split_once("pub fn category").unwrap();
    let (categories, _) = categories.split_once("/// Whether").unwrap();
    let categories: Vec<_> = categories.split('"').skip(1).step_by(2).collect();
    assert!(categories.len() > 10, "{categories:?}");
    for category in categories {
        assert!(line.contains(&format!("`{category}`")), "{category} in {line}");
    }
}

fn database(change: impl FnOnce(&mut Value)) -> Database {
    let mut object = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
        "metadata": { "name": "a", "namespace": "n", "generation": 2 },
        "spec": { "runState": "Running", "storage": { "sizeGib": 20 } },
        "status": { "phase": "Ready", "observedGeneration": 2, "conditions": [{
            "type": "Progressing", "status": "True", "reason": "Working", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] },
    });
    change(&mut object);
    let object: QuestDB = serde_json::from_value(object).unwrap();
    object.brief()
}

#[test]
fn what_is_being_taken_away_is_counted_with_its_age() {
    let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
    let known = [
        database(|_| {}),
        database(|object| {
            object["spec"]["runState"] = json!("Purged");
            object["status"]["phase"] = json!("Deleting");
        }),
        database(|object| {
            object["spec"]["runState"] = json!("Deleted");
            object["status"]["phase"] = json!("Deleted");
        }),
        database(|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:08:00Z")),
        database(|object| object["status"] = Value::Null),
    ];
    let shown = text(|measures| measures.census.databases(known.iter(), now));
    for line in [
        "slipway_databases_deleting 2",
        "slipway_databases_deleting_oldest_seconds 600",
        "slipway_databases{phase=\"Ready\"} 2",
        "slipway_databases{phase=\"Deleting\"} 1",
        "slipway_databases{phase=\"Pending\"} 1",
    ] {
        check(&shown, line);
    }
}

#[test]
fn what_does_not_heal_by_itself_is_counted_in_every_phase() {
    let told = |phase: &str, status: &str, reason: &str| {
        database(|object| {
            object["status"]["phase"] = json!(phase);
            let said = &mut object["status"]["conditions"][0];
            for (field, word) in [("type", "Degraded"), ("status", status), ("reason", reason)] {
                said[field] = json!(word);
            }
        })
    };
    let known = [
        told("Degraded", "True", "Pod"),
        told("Ready", "True", "StrangeMachine"),
        told("Pausing", "True", "PodStop"),
        told("Ready", "True", "NamespaceUnseen"),
        told("Ready", "False", "AsExpected"),
        database(|_| {}),
    ];
    let count =
        |known: &[Database]| text(|measures| measures.census.databases(known.iter(), Timestamp::UNIX_EPOCH));
    check(&count(&known), "slipway_databases_degraded 3");
    check(&count(&known), "slipway_databases{phase=\"Degraded\"} 1");
    check(&count(&known[3..]), "slipway_databases_degraded 0");
}

#[test]
fn machines_that_cannot_take_their_database_are_counted_by_what_is_said_of_them() {
    let told = |kind: &str, reason: &str| {
        database(|object| {
            object["status"]["conditions"][0]["type"] = json!(kind);
            object["status"]["conditions"][0]["reason"] = json!(reason);
        })
    };
    let known = [
        database(|_| {}),
        told("NodeHealthy", "NotJoined"),
        told("Moving", "NotReady"),
        told("NodeHealthy", "NotReady"),
        told("Moving", "NodeClosed"),
    ];
    let count =
        |known: &[Database]| text(|measures| measures.census.databases(known.iter(), Timestamp::UNIX_EPOCH));
    let (none, shown) = (count(&known[..1]), count(&known));
    check(&none, "slipway_databases_unjoined{reason=\"NotReady\"} 0");
    check(&shown, "slipway_databases_unjoined{reason=\"NotJoined\"} 1");
    check(&shown, "slipway_databases_unjoined{reason=\"NotReady\"} 2");
    check(&shown, "slipway_databases_unjoined{reason=\"NodeClosed\"} 1");
}

#[test]
fn snapshots_are_counted_by_their_ends_from_zero_on_and_schedules_by_their_state() {
    let shown = text(|measures| {
        measures.snapshot("Failed");
        measures.census.schedules(["Failed", "Scheduled"].into_iter());
        measures.census.schedules(["Scheduled", "HeldBack", "Scheduled"].into_iter());
    });
    for line in [
        "slipway_snapshots_ended_total{outcome=\"Succeeded\"} 0",
        "slipway_snapshots_ended_total{outcome=\"Failed\"} 1",
        "slipway_snapshots_ended_total{outcome=\"Missed\"} 0",
        "slipway_snapshot_schedules{state=\"Scheduled\"} 2",
        "slipway_snapshot_schedules{state=\"HeldBack\"} 1",
    ] {
        check(&shown, line);
    }
    assert!(!shown.contains("state=\"Failed\""), "{shown}");
}

#[test]
fn what_is_counted_anew_is_shown_all_the_while() {
    let metrics = Metrics::default();
    let measures = Measures::new(&metrics, 32);
    let known = [database(|_| {})];
    let count = || measures.census.databases(known.iter(), Timestamp::UNIX_EPOCH);
    count();
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| (0..20_000).for_each(|_| count()));
        while !counting.is_finished() {
            check(&metrics.encode().unwrap(), "slipway_databases{phase=\"Ready\"} 1");
        }
    });
}

#[test]
fn a_standby_says_that_it_does_not_lead() {
    let line = |leads: u8| {
        format!("leader_election_master_status{{name=\"{}\"}} {leads}", resources::names::OPERATOR)
    };
    check(&text(|_| {}), &line(0));
    check(&text(|measures| measures.leads(true)), &line(1));
}
