//! What another spec would take: said without doing it, and said to whom.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud::VolumeState;
use domain::dry_run::Line;
use resources::{PlanForStatus, QuestDB, QuestDBStatus, RunState, names};

use super::model::World;
use super::operations::change;
use super::runner::{ENOUGH, pass, settle};
use super::{serving, wish};
use crate::fixture::{resource, settings, validated};
use crate::{Observed, Subject, plan, rehearse, rehearse_refused, validate};

/// The resource with these annotations.
fn asked(world: &World, annotations: &[(&str, &str)]) -> QuestDB {
    let mut resource = world.resource.clone();
    let own = resource.metadata.annotations.get_or_insert_default();
    own.extend(annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    resource
}

/// What a pass over a database that serves says.
fn told(world: &World, annotations: &[(&str, &str)]) -> (Vec<String>, Option<PlanForStatus>) {
    let mut status = QuestDBStatus::default();
    rehearse(&asked(world, annotations), &world.look(), &settings()).tell(&mut status);
    (status.plan, status.plan_for)
}

/// The same where the spec as it stands has a version that nobody knows.
fn told_of_refused(world: &World, patch: &str) -> Vec<String> {
    let mut resource = asked(world, &[(names::DRY_RUN, patch)]);
    resource.spec.version = "0".to_owned();
    let subject = Subject::of(&resource, &settings()).unwrap();
    let violations = validate(&resource, subject, &settings()).unwrap_err();
    let mut status = QuestDBStatus::default();
    rehearse_refused(&resource, &violations, &settings(), crate::InForce::default).tell(&mut status);
    assert_eq!(status.plan_for.unwrap().generation, 1);
    status.plan
}

#[test]
fn another_spec_is_rehearsed_and_nothing_is_done() {
    let world = serving();
    let holds = |patch: &str, expected: &[&str]| {
        let (lines, _) = told(&world, &[(names::DRY_RUN, patch)]);
        assert!(
            expected.iter().all(|text| lines.iter().any(|line| line.contains(text))),
            "{patch}: {lines:?}"
        );
    };
    assert_eq!(told(&world, &[]), (Vec::new(), None));
    assert_eq!(told(&world, &[(names::DRY_RUN, "{}")]).0, ["nothing would change"]);
    holds(r#"{"storage":{"sizeGib":80}}"#, &["online /spec/storage/sizeGib", "step ModifyVolume"]);
    holds(
        r#"{"config":{"cairo.max.uncommitted.rows":null}}"#,
        &["restart /spec/config/cairo.max.uncommitted.rows", "step Apply"],
    );
    holds(
        r#"{"compute":{"instanceType":"m7i.xlarge"}}"#,
        &["move /spec/compute/instanceType", "step WriteGeneration"],
    );
    holds(r#"{"runState":"Purged"}"#, &["stop /spec/runState"]);
    holds(r#"{"version":"0"}"#, &["wrong: /spec/version"]);
    holds(r#"{"storage":null}"#, &["wrong: "]);
    holds("no json", &["wrong: "]);
}

#[test]
fn a_field_that_does_not_exist_is_wrong_and_not_nothing() {
    let world = serving();
    let lines = |patch: &str| told(&world, &[(names::DRY_RUN, patch)]).0;
    let wrong = |field: &str| vec![format!("wrong: {field} is no field of a database")];
    assert_eq!(lines(r#"{"storage":{"sizeGb":80}}"#), wrong("/spec/storage/sizeGb"));
    assert_eq!(lines(r#"{"Version":"9.3.5"}"#), wrong("/spec/Version"));
    assert_eq!(lines(r#"{"spec":{"storage":{"sizeGib":80}}}"#), wrong("/spec/spec"));
    assert_eq!(lines(r#"{"deletion_protection":false}"#), wrong("/spec/deletion_protection"));
    assert_eq!(lines(r#"{"pod":{"env":[{"nome":"TZ"}]}}"#), wrong("/spec/pod/env/0/nome"));
    for known in [
        r#"{"config":{"a.key.of.any.name":"1"}}"#,
        r#"{"pod":{"labels":{"team":"a"},"env":[{"name":"TZ","value":"UTC"}]}}"#,
        r#"{"network":{"allowedCidrs":["10.0.0.0/8"]}}"#,
    ] {
        let lines = lines(known);
        assert!(!lines.iter().any(|line| line.contains("is no field")), "{known}: {lines:?}");
    }
}

#[test]
fn a_misspelt_key_is_wrong_where_questdb_lists_the_one_that_is_meant() {
    let world = serving();
    let asked = asked(&world, &[(names::DRY_RUN, r#"{"config":{"shared.worker.coutn":"2"}}"#)]);
    let told = |listed: Option<&str>| {
        let listed_keys = listed.map(|key| Arc::new(BTreeSet::from([key.to_owned()])));
        let mut status = QuestDBStatus::default();
        rehearse(&asked, &Observed { listed_keys, ..world.look() }, &settings()).tell(&mut status);
        status.plan
    };
    let lines = told(Some("shared.worker.count"));
    assert!(
        lines.len() == 1 && lines[0].starts_with("wrong: /spec/config/shared.worker.coutn "),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("it knows shared.worker.count"), "{lines:?}");
    for lines in [told(None), told(Some("query.timeout"))] {
        assert!(lines[0].starts_with("restart /spec/config/shared.worker.coutn"), "{lines:?}");
    }
}

#[test]
fn a_key_that_is_left_out_already_keeps_nothing_else_from_being_told() {
    let mut world = serving();
    world.listed = Some(Arc::new(BTreeSet::from(["shared.worker.count".to_owned()])));
    change(&mut world, |spec| {
        spec.config.insert("shared.worker.coutn".to_owned(), "2".to_owned());
    });
    for (patch, expected) in [
        (r#"{"storage":{"sizeGib":80}}"#, "online /spec/storage/sizeGib"),
        (r#"{"config":{"shared.worker.coutn":"3"}}"#, "refused /spec/config/shared.worker.coutn"),
        (r#"{"config":{"shared.worker.cuont":"2"}}"#, "wrong: /spec/config/shared.worker.cuont"),
    ] {
        let (lines, _) = told(&world, &[(names::DRY_RUN, patch)]);
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{patch}: {lines:?}");
        let refused = lines.iter().any(|line| line.starts_with("refused /spec/config/shared.worker.coutn"));
        assert_ne!(refused, expected.starts_with("wrong"), "{patch}: {lines:?}");
    }
}

#[test]
fn an_answer_says_which_question_it_is_for() {
    let mut world = serving();
    let patch = r#"{"storage":{"sizeGib":80}}"#;
    let answer_for = |world: &World, annotations: &[(&str, &str)]| told(world, annotations).1.unwrap();
    let plain = answer_for(&world, &[(names::DRY_RUN, patch)]);
    // printf %s '{"storage":{"sizeGib":80}}' | sha256sum | cut -c-16
    let expected = PlanForStatus { patch: "a53c5f69ccffa37a".to_owned(), question: None, generation: 1 };
    assert_eq!(plain, expected);
    let other = answer_for(&world, &[(names::DRY_RUN, "{}")]);
    assert_ne!(other.patch, plain.patch);
    let wrong = answer_for(&world, &[(names::DRY_RUN, "no json")]);
    assert_ne!(wrong.patch, plain.patch, "a refusal is an answer too");

    let named = answer_for(&world, &[(names::DRY_RUN, patch), (names::DRY_RUN_QUESTION, "ada-1")]);
    assert_eq!(named, PlanForStatus { question: Some("ada-1".to_owned()), ..plain.clone() });
    let long = answer_for(&world, &[(names::DRY_RUN, patch), (names::DRY_RUN_QUESTION, &"é".repeat(99))]);
    assert_eq!(long.question, Some("é".repeat(64)));
    assert_eq!(told(&world, &[(names::DRY_RUN_QUESTION, "ada-1")]), (Vec::new(), None), "nothing is asked");

    world.resource.metadata.generation = Some(7);
    assert_eq!(answer_for(&world, &[(names::DRY_RUN, patch)]).generation, 7);
}

#[test]
fn what_was_answered_before_goes_with_its_question() {
    let world = serving();
    let mut status = QuestDBStatus::default();
    let asked = asked(&world, &[(names::DRY_RUN, "{}")]);
    rehearse(&asked, &world.look(), &settings()).tell(&mut status);
    assert!(status.plan_for.is_some());
    rehearse(&world.resource, &world.look(), &settings()).tell(&mut status);
    assert_eq!((status.plan, status.plan_for), (Vec::new(), None));
}

#[test]
fn of_a_spec_that_is_refused_it_is_said_whether_the_other_one_would_be() {
    let world = serving();
    let cured = told_of_refused(&world, r#"{"version":"9.3.4"}"#);
    assert!(cured.len() == 1 && cured[0].starts_with("this spec would be accepted"), "{cured:?}");
    assert!(cured[0].contains("/spec/version"), "{cured:?}");
    let still = told_of_refused(&world, r#"{"restartNonce":"a"}"#);
    assert!(still.len() == 1 && still[0].starts_with("wrong: /spec/version"), "{still:?}");
}

#[test]
fn a_long_answer_is_cut_and_says_so() {
    let world = serving();
    let keys = |count: usize| {
        let keys: Vec<String> =
            (0..count).map(|key| format!("\"k.{key}\":\"{}\"", "x".repeat(900))).collect();
        told(&world, &[(names::DRY_RUN, &format!("{{\"config\":{{{}}}}}", keys.join(",")))]).0
    };
    let whole = keys(60);
    let cut = keys(90);
    assert!(whole.len() <= 64 && !whole.last().unwrap().contains("left out"), "{whole:?}");
    assert_eq!(cut.len(), 64);
    assert!(cut.iter().all(|line| line.chars().count() <= 300), "{cut:?}");
    let left_out = 90 - 60 + whole.len() - 63;
    assert_eq!(cut[63], format!("{left_out} more lines are left out"));
}

#[test]
fn every_line_of_an_answer_can_be_read_again() {
    let world = serving();
    let kinds = |patch: &str| -> Vec<&'static str> {
        let (lines, _) = told(&world, &[(names::DRY_RUN, patch)]);
        let kind = |line: &String| match line.parse() {
            Ok(Line::Change { .. }) => "change",
            Ok(Line::Step { .. }) => "step",
            Ok(Line::Wrong(_)) => "wrong",
            Ok(Line::Nothing) => "nothing",
            Ok(Line::Note(_)) => "note",
        };
        let mut kinds: Vec<_> = lines.iter().map(kind).collect();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds("{}"), ["nothing"]);
    assert_eq!(kinds(r#"{"compute":{"instanceType":"m7i.xlarge"},"restartNonce":"a"}"#), ["change", "step"]);
    assert_eq!(kinds(r#"{"version":"0"}"#), ["wrong"]);
}

/// The answer in lines.
fn lines(world: &World, patch: &str) -> Vec<String> {
    told(world, &[(names::DRY_RUN, patch)]).0
}

/// The same database at rest without a machine.
fn paused() -> World {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    world
}

#[test]
fn another_wish_is_not_nothing_though_there_is_nothing_to_do_for_it() {
    let now = |field: &str| format!("{field} is asked for otherwise; nothing has to be done for it now");
    let (serving, paused) = (serving(), paused());
    let table: [(&World, &str, &[&str]); 7] = [
        (&serving, r#"{"storage":{"deletionPolicy":"Delete"}}"#, &["/spec/storage/deletionPolicy"]),
        (&serving, r#"{"deletionProtection":true}"#, &["/spec/deletionProtection"]),
        (&paused, r#"{"storage":{"sizeGib":500}}"#, &["/spec/storage/sizeGib"]),
        (&paused, r#"{"compute":{"instanceType":"m7i.xlarge"}}"#, &["/spec/compute/instanceType"]),
        (&paused, r#"{"config":{"a/b~c":"1"}}"#, &["/spec/config/a~1b~0c"]),
        (&paused, r#"{"config":null,"zone":"a"}"#, &["/spec/zone", "/spec/config"]),
        (&paused, r#"{"network":{"allowedCidrs":[]}}"#, &["/spec/network/allowedCidrs"]),
    ];
    for (world, patch, fields) in table {
        let mut told = lines(world, patch);
        told.retain(|line| !line.starts_with("not accepted"));
        assert_eq!(told, fields.iter().map(|field| now(field)).collect::<Vec<_>>(), "{patch}");
    }
    for world in [&serving, &paused] {
        for same in ["{}", r#"{"storage":{"sizeGib":50}}"#, r#"{"zone":null}"#] {
            assert_eq!(lines(world, same), ["nothing would change"], "{same}");
        }
    }
    let both = lines(&serving, r#"{"storage":{"sizeGib":80,"deletionPolicy":"Delete"}}"#);
    let other =
        "/spec/storage/deletionPolicy is asked for otherwise; what it takes, if anything, is among these";
    assert!(both.iter().any(|line| line.starts_with(other)), "{both:?}");
    assert_eq!(both.iter().filter(|line| line.contains("/spec/storage/sizeGib")).count(), 1, "{both:?}");
}

#[test]
fn what_is_not_settled_is_not_nothing() {
    let mut broken = serving();
    broken.volumes[0].state = VolumeState::Error;
    let told = lines(&broken, "{}");
    assert!(told.iter().any(|line| line.starts_with("not settled: volume: EC2 reports")), "{told:?}");

    // From nothing to a database that serves, nothing is said only at its ends.
    let mut world = World::new(resource(1));
    let mut waited = 0;
    for _ in 0..ENOUGH {
        let (seen, observed) = world.see();
        let planned = plan(&seen, &validated(&seen), &observed, &settings());
        let question = QuestDB { metadata: asked(&world, &[(names::DRY_RUN, "{}")]).metadata, ..seen };
        let mut status = QuestDBStatus::default();
        rehearse(&question, &observed, &settings()).tell(&mut status);
        let nothing = status.plan == ["nothing would change"];
        assert_eq!(nothing, planned.is_settled(), "{:?} {:?}", status.plan, planned.progress);
        waited += u32::from(planned.actions.is_empty() && !planned.is_settled());
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(waited > 0, "it never waited");
}

#[test]
fn a_disk_that_would_shrink_is_wrong() {
    let wrong = ["wrong: /spec/storage/sizeGib can only grow, and 50 GiB are asked for already"];
    assert_eq!(lines(&serving(), r#"{"storage":{"sizeGib":49}}"#), wrong);
    assert_eq!(lines(&paused(), r#"{"storage":{"sizeGib":20}}"#), wrong);
    let mut both = lines(&serving(), r#"{"storage":{"sizeGib":49},"version":"0"}"#);
    assert_eq!(both.remove(0), wrong[0]);
    assert!(both.len() == 1 && both[0].starts_with("wrong: /spec/version"), "{both:?}");
    let refused = told_of_refused(&serving(), r#"{"storage":{"sizeGib":49},"version":"9.3.4"}"#);
    assert_eq!(refused, wrong);

    // What was asked for and not done is taken back.
    let mut stuck = serving();
    stuck.too_soon = true;
    wish(&mut stuck, 2, |spec| spec.storage.size_gib = 80);
    pass(&mut stuck, &mut 0, None, false);
    assert_eq!(
        lines(&stuck, r#"{"storage":{"sizeGib":49}}"#),
        ["wrong: /spec/storage/sizeGib can be taken back to no less than the disk has, which is 50 GiB"]
    );
    let taken_back = lines(&stuck, r#"{"storage":{"sizeGib":50}}"#);
    assert_eq!(
        taken_back,
        ["/spec/storage/sizeGib is asked for otherwise; nothing has to be done for it now"]
    );
}

#[test]
fn what_a_paused_database_is_not_to_run_with_is_said() {
    let refused = "not accepted once it is to run again: /spec/version";
    let holds = |world: &World, patch: &str, expected: bool| {
        let told = lines(world, patch);
        assert_eq!(told.iter().any(|line| line.starts_with(refused)), expected, "{patch}: {told:?}");
    };
    holds(&paused(), r#"{"version":"0"}"#, true);
    holds(&paused(), r#"{"version":"9.3.5"}"#, false);
    holds(&serving(), r#"{"version":"0","runState":"Paused"}"#, true);
    holds(&serving(), r#"{"version":"0","runState":"Deleted"}"#, false);
    let mut world = paused();
    world.resource.spec.version = "0".to_owned();
    assert_ne!(lines(&world, "{}"), ["nothing would change"]);
}

#[test]
fn what_would_be_refused_is_wrong_although_the_present_spec_was_accepted() {
    let config = r#"{"config":{"pg.user":"x"}}"#;
    let env = r#"{"pod":{"env":[{"name":"QDB_PG_USER","value":"x"}]}}"#;
    let annotation = r#"{"pod":{"annotations":{"crd.questdb.io/running":"{}"}}}"#;
    for patch in [config, env, annotation] {
        let mut world = serving();
        settle(&mut world, None, false);
        let conditions = &world.resource.status.as_ref().unwrap().conditions;
        let accepted =
            conditions.iter().find(|found| found.type_ == names::condition::CONFIG_ACCEPTED).unwrap();
        assert_eq!(
            (accepted.status.as_str(), accepted.observed_generation),
            ("True", world.resource.metadata.generation)
        );
        let (lines, _) = told(&world, &[(names::DRY_RUN, patch)]);
        assert!(lines.iter().any(|line| line.starts_with("wrong: ")), "{patch}: {lines:?}");
        // Of one that is to pause it is told what would be wrong with it afterwards.
        let paused = patch.replacen('{', r#"{"runState":"Paused","#, 1);
        let (lines, _) = told(&world, &[(names::DRY_RUN, &paused)]);
        let says = |word: &str| lines.iter().any(|line| line.contains(word));
        assert!(says("wrong: ") || says("not accepted once it is to run again"), "{paused}: {lines:?}");
    }
}
