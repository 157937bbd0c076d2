//! What stands against a rule that another operator brings, and what is judged by it.

use std::sync::Arc;

use resources::PodOverrides;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{resource, settings};
use crate::overrides::amounts_of_questdb;
use crate::{Settings, Subject, Validated, build, validate_over};

const KEY: &str = "pg.user.of.before";

/// As an older operator took it: nothing of it was its own then.
fn of_before() -> QuestDB {
    let mut of_before = resource(1);
    of_before.spec.config.insert(KEY.to_owned(), "7".to_owned());
    let pod = json!({ "env": [{ "name": "QDB_OF_BEFORE", "value": "1" }] });
    of_before.spec.pod = Some(serde_json::from_value(pod).unwrap());
    of_before
}

fn check(resource: &QuestDB, in_force: &InForce) -> Result<Validated, Vec<String>> {
    let subject = Subject::of(resource, &settings()).unwrap();
    let checked = validate_over(resource, subject, &settings(), || in_force.clone());
    checked.map_err(|wrong| wrong.0.into_iter().map(|wrong| wrong.pointer).collect())
}

/// The StatefulSet that was made of it.
fn set(resource: &QuestDB) -> Arc<StatefulSet> {
    let mut allowed = resource.clone();
    let (config, pod) = (allowed.spec.config.clone(), allowed.spec.pod.clone());
    allowed.spec.config.remove(KEY);
    allowed.spec.pod = None;
    let mut validated = check(&allowed, &InForce::default()).unwrap();
    validated.config = config;
    validated.overrides = pod.unwrap_or_default();
    let body = build::stateful_set(&validated, "node", None).body;
    Arc::new(serde_json::from_value(body).unwrap())
}

const BOTH: [&str; 2] = ["/spec/config/pg.user.of.before", "/spec/pod/env/0/name"];

#[test]
fn what_runs_stays_under_a_rule_that_came_later_and_is_told() {
    let of_before = of_before();
    assert_eq!(check(&of_before, &InForce::default()).unwrap_err(), BOTH, "as a new wish it is refused");
    let set = set(&of_before);
    let template = set.spec.as_ref().unwrap().template.metadata.clone();
    let pod = Pod { metadata: template.unwrap(), ..Pod::default() };
    for in_force in [InForce::of(Some(&set), None), InForce::of(None, Some(&pod))] {
        assert_eq!(check(&of_before, &in_force).unwrap_err(), BOTH[1..], "of a pod only digests are known");
        let mut conf = of_before.clone();
        conf.spec.pod = None;
        let validated = check(&conf, &in_force).unwrap();
        assert_eq!(validated.config.get(KEY).map(String::as_str), Some("7"));
        assert!(validated.kept.len() == 1 && validated.kept[0].starts_with(BOTH[0]));
        // Another wish beside it is carried out.
        let mut other = conf;
        other.metadata.generation = Some(9);
        other.spec.compute.instance_type = "m7i.xlarge".to_owned();
        other.spec.config.insert("cairo.other".to_owned(), "1".to_owned());
        assert!(check(&other, &in_force).is_ok());
    }
}

#[test]
fn whoever_changes_it_is_judged_anew() {
    let in_force = InForce::of(Some(&set(&of_before())), None);
    let of_before = || QuestDB { spec: QuestDBSpec { pod: None, ..of_before().spec }, ..of_before() };
    let mut value = of_before();
    value.spec.config.insert(KEY.to_owned(), "8".to_owned());
    assert_eq!(check(&value, &in_force).unwrap_err(), BOTH[..1]);
    let mut key = of_before();
    key.spec.config.insert("pg.user.other".to_owned(), "7".to_owned());
    assert_eq!(check(&key, &in_force).unwrap_err(), ["/spec/config/pg.user.other"]);
    // What is wrong in another way runs nowhere.
    let mut format = of_before();
    format.spec.config.insert("an odd".to_owned(), "7".to_owned());
    assert_eq!(check(&format, &in_force).unwrap_err(), ["/spec/config/an odd"]);
}

#[test]
fn what_nobody_heeds_is_refused_and_told_where_there_is_a_database() {
    let mut resource = resource(1);
    let in_force = InForce::of(Some(&set(&resource)), None);
    let told = |resource: &QuestDB| check(resource, &in_force).map(|validated| validated.kept);
    for (key, value) in
        [("telemetry.enabled", "true"), ("line.tcp.enabled", "true"), ("telemetry.enabled", "false")]
    {
        resource.spec.config = [(key.to_owned(), value.to_owned())].into();
        let field = field_of(key);
        let heeded = value == "false";
        let refused = check(&resource, &InForce::default()).err().unwrap_or_default();
        assert_eq!(refused.contains(&field), !heeded, "{key}={value}: {refused:?}");
        let mut paused = resource.clone();
        let disk = json!({ "volume": { "id": "vol-1", "sizeGib": 50, "state": "available" } });
        paused.status = Some(serde_json::from_value(disk).unwrap());
        let resumed = check(&paused, &InForce::default()).unwrap().kept;
        let expected = if heeded { Vec::new() } else { vec![true] };
        for told in [told(&resource).unwrap(), resumed] {
            let named: Vec<bool> = told.iter().map(|text| text.starts_with(&field)).collect();
            assert_eq!(named, expected, "{told:?}");
        }
    }
    resource.spec.config = [("metrics.enabled".to_owned(), "false".to_owned())].into();
    assert_eq!(told(&resource).unwrap_err(), ["/spec/config/metrics.enabled"]);
}

#[test]
fn what_we_write_ourselves_is_not_what_somebody_was_given() {
    let of_before = of_before();
    let in_force = InForce::of(Some(&set(&of_before)), None);
    let mut spec = of_before.spec;
    for (key, value, has) in [(KEY, "7", true), ("metrics.enabled", "true", false)] {
        spec.config.insert(key.to_owned(), value.to_owned());
        assert_eq!(in_force.has(&spec, &field_of(key)), has, "{key}");
    }
}

#[test]
fn a_spec_that_was_accepted_as_it_is_stays_so_while_nothing_runs() {
    let accepted = |(status, reason): (&str, &str), generation: i64| -> Value {
        json!({ "conditions": [{ "type": "ConfigAccepted", "status": status, "reason": reason, "message": "",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
    };
    let table = [
        (("True", "Valid"), 1, true),
        (("False", "NameTaken"), 1, true),
        (("False", "UpgradeRefused"), 1, true),
        (("False", INVALID), 1, false),
        (("True", "Valid"), 0, false),
        (("False", "NameTaken"), 0, false),
    ];
    for (status, generation, stays) in table {
        let mut resource = of_before();
        resource.status = Some(serde_json::from_value(accepted(status, generation)).unwrap());
        assert_eq!(check(&resource, &InForce::default()).is_ok(), stays, "{status:?} {generation}");
        // What the operator takes for its own word is nobody else's to say.
        let pod = json!({ "annotations": { names::RUNNING: "{}" } });
        resource.spec.pod = Some(serde_json::from_value(pod).unwrap());
        assert!(check(&resource, &InForce::default()).is_err(), "{status:?} {generation}");
    }
}

type Change = fn(&mut QuestDB);

/// A database in a zone, of a machine image and with a name that the operator's settings offer no more.
fn of_other_settings() -> QuestDB {
    let mut resource = resource(1);
    resource.spec.zone = Some("eu-west-1z".to_owned());
    resource.spec.compute.node_image = Some("ami-of-before".to_owned());
    resource.spec.network.hostname = Some("Trades.of.before.".to_owned());
    let annotations = resource.metadata.annotations.get_or_insert_default();
    annotations.insert(names::LAUNCH_ZONE.to_owned(), "eu-west-1z".to_owned());
    let status = json!({
        "conditions": [{ "type": "ConfigAccepted", "status": "True", "reason": "r", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "dns": { "name": "trades.of.before", "state": "InSync" },
        "node": { "image": "ami-of-before", "zone": "eu-west-1z", "ready": true },
    });
    resource.status = Some(serde_json::from_value(status).unwrap());
    resource
}

#[test]
fn other_settings_of_the_operator_are_for_what_is_asked_for_later() {
    let validated = check(&of_other_settings(), &InForce::default()).unwrap();
    assert_eq!(validated.hostname, "trades.of.before", "nobody is renamed");
    assert_eq!((validated.node_image.as_str(), validated.kept.len()), ("ami-of-before", 3));

    let wrong = |change: Change| {
        let mut resource = of_other_settings();
        change(&mut resource);
        check(&resource, &InForce::default()).err().unwrap_or_default()
    };
    let nothing: [&str; 0] = [];
    let route = |resource: &mut QuestDB| {
        let ingress = json!({ "host": "a.qdb-acme.apps.of.before" });
        resource.spec.network.ingress = Some(serde_json::from_value(ingress).unwrap());
    };
    assert_eq!(wrong(route), nothing, "the very spec was accepted");
    // Of another spec what the database has counts, and nothing else.
    let table: [(Change, &[&str]); 11] = [
        (|_| {}, &[]),
        (|resource| resource.metadata.annotations = None, &[]),
        (|resource| node(resource).zone = None, &[]),
        (|resource| resource.spec.zone = Some("eu-west-1y".to_owned()), &[ZONE]),
        (
            |resource| {
                resource.metadata.annotations = None;
                node(resource).zone = None;
            },
            &[ZONE],
        ),
        (|resource| node(resource).image = None, &[NODE_IMAGE]),
        (|resource| resource.spec.compute.node_image = Some("ami-other".to_owned()), &[NODE_IMAGE]),
        (|resource| resource.spec.network.hostname = Some("other.of.before".to_owned()), &[HOSTNAME]),
        (|resource| status(resource).dns = None, &[HOSTNAME]),
        (
            |resource| {
                let under_way = json!({ "name": "a.of.before", "state": "InSync",
                    "next": { "name": "trades.of.before", "address": "10.0.0.1" } });
                status(resource).dns = Some(serde_json::from_value(under_way).unwrap());
            },
            &[],
        ),
        (
            |resource| {
                let ingress = json!({ "host": "a.qdb-acme.apps.of.before" });
                resource.spec.network.ingress = Some(serde_json::from_value(ingress).unwrap());
            },
            &[INGRESS_HOST],
        ),
    ];
    for (number, (change, expected)) in table.into_iter().enumerate() {
        let mut resource = of_other_settings();
        resource.metadata.generation = Some(2);
        change(&mut resource);
        let wrong = check(&resource, &InForce::default()).err().unwrap_or_default();
        assert_eq!(wrong, expected, "{number}");
    }
}

/// The disk was put in the place of another one, elsewhere; and nobody may change the zone of a spec.
#[test]
fn a_zone_that_counts_for_nothing_takes_no_database_out_of_care() {
    let mut resource = of_other_settings();
    resource.metadata.generation = Some(2);
    resource.spec.zone = Some("eu-west-1y".to_owned());
    let wrong = check(&resource, &InForce::default()).unwrap_err();
    assert_eq!(wrong, [ZONE], "a disk is to be made there");
    let disk = json!({ "id": "vol-1", "sizeGib": 50, "state": "in-use" });
    status(&mut resource).volume = Some(serde_json::from_value(disk).unwrap());
    let kept = check(&resource, &InForce::default()).unwrap().kept;
    assert!(kept.iter().any(|kept| kept.starts_with(ZONE)), "{kept:?}");
}

#[test]
fn fewer_machines_on_offer_and_another_repository_take_no_database_out_of_care() {
    let offer = "m7i.xlarge,r8i.large:16384:2".parse().unwrap();
    let questdb_image = "mirror/questdb".parse().unwrap();
    let settings = Settings { instance_types: offer, questdb_image, ..settings() };
    let wrong = |change: Change| {
        let mut resource = of_other_settings();
        for value in [&mut resource.spec.zone, &mut resource.spec.compute.node_image] {
            *value = None;
        }
        resource.spec.network.hostname = None;
        resource.spec.image = Some("questdb/questdb:9.3.4".to_owned());
        node(&mut resource).instance_type = Some("m7i.large".to_owned());
        change(&mut resource);
        let subject = Subject::of(&resource, &settings).unwrap();
        let checked = validate_over(&resource, subject, &settings, InForce::default);
        let checked = checked.map(|found| (found.container_image(), found.instance_type.memory_mib));
        checked.map_err(|wrong| wrong.0.into_iter().map(|wrong| wrong.pointer).collect::<Vec<_>>())
    };
    let kept = |image: &str| Ok((image.to_owned(), 8_192));
    assert_eq!(wrong(|_| {}), kept("questdb/questdb:9.3.4"), "the very spec was accepted");
    let later = |resource: &mut QuestDB| resource.metadata.generation = Some(2);
    assert_eq!(wrong(later), Err(vec![IMAGE.to_owned()]));
    assert_eq!(wrong(other), kept("mirror/questdb:9.3.4"), "it has the machine");
    let table: [Change; 4] = [
        |resource| {
            other(resource);
            node(resource).instance_type = Some("m7i.xlarge".to_owned());
        },
        |resource| {
            other(resource);
            resource.spec.compute.instance_type = "m7i.2xlarge".to_owned();
        },
        // On offer once, by a setting that is gone: nobody knows what it has.
        |resource| {
            other(resource);
            gone(resource);
        },
        gone,
    ];
    for (number, change) in table.into_iter().enumerate() {
        assert_eq!(wrong(change), Err(vec![INSTANCE_TYPE.to_owned()]), "{number}");
    }
}

#[test]
fn less_room_on_a_machine_takes_no_database_out_of_care() {
    let chosen = json!({ "resources": { "cpu": "1", "memory": "6885Mi" } });
    let beside = json!({ "containers": [{ "name": "beside", "image": "example.com/beside:1",
        "resources": { "cpu": "1", "memory": "5600Mi" } }] });
    for (pointer, pod, memory) in [(RESOURCES, chosen, 6_373), (CONTAINERS, beside, 1_024)] {
        let mut resource = of_other_settings();
        resource.spec.pod = Some(serde_json::from_value(pod).unwrap());
        let validated = check(&resource, &InForce::default()).unwrap();
        assert!(validated.kept.iter().any(|kept| kept.starts_with(pointer)), "{:?}", validated.kept);
        assert_eq!(amounts_of_questdb(&validated).memory(), memory, "{pointer}");
        resource.metadata.generation = Some(2);
        assert_eq!(check(&resource, &InForce::default()).unwrap_err(), [pointer]);
    }
}

/// Another spec, which names no image.
fn other(resource: &mut QuestDB) {
    resource.metadata.generation = Some(2);
    resource.spec.image = None;
}

fn gone(resource: &mut QuestDB) {
    resource.spec.compute.instance_type = "r8i.xlarge".to_owned();
    node(resource).instance_type = Some("r8i.xlarge".to_owned());
}

#[test]
fn a_database_that_is_there_keeps_its_name() {
    let named = |name: &str, status: Value| {
        let mut resource = resource(1);
        resource.metadata.name = Some(name.to_owned());
        resource.status = Some(serde_json::from_value(status).unwrap());
        check(&resource, &InForce::default()).err().unwrap_or_default()
    };
    let disk = || json!({ "volume": { "id": "vol-1", "sizeGib": 50, "state": "in-use" } });
    let long = "a".repeat(53);
    let table: [(&str, Value, &[&str]); 5] = [
        ("9lives", json!({}), &[NAME]),
        ("9lives", disk(), &[]),
        ("a.b", json!({}), &[NAME]),
        ("a.b", disk(), &[]),
        (long.as_str(), disk(), &[NAME]),
    ];
    for (name, status, wrong) in table {
        assert_eq!(named(name, status), wrong, "{name}");
    }
    let mut unsaid = resource(1);
    unsaid.metadata.name = Some("9lives".to_owned());
    let in_force = InForce::of(Some(&set(&resource(1))), None);
    assert!(check(&unsaid, &in_force).is_ok(), "it runs, and its status was lost");
    let annotations = unsaid.metadata.annotations.get_or_insert_default();
    annotations.insert(names::GENERATION.to_owned(), "1".to_owned());
    assert!(check(&unsaid, &InForce::default()).is_ok(), "it had a machine, and its status was lost");
}

fn status(resource: &mut QuestDB) -> &mut resources::QuestDBStatus {
    resource.status.as_mut().unwrap()
}

fn node(resource: &mut QuestDB) -> &mut NodeStatus {
    status(resource).node.as_mut().unwrap()
}

#[test]
fn nothing_is_told_of_what_is_allowed() {
    let resource = resource(1);
    let validated = check(&resource, &InForce::default()).unwrap();
    assert_eq!((validated.kept, validated.overrides), (Vec::new(), PodOverrides::default()));
    assert!(names::RUNNING.starts_with(names::GROUP), "nobody else writes what is taken for what runs");
}
