//! What another spec would take: said without doing it, and said to whom.

use domain::dry_run::Line;
use resources::{PlanForStatus, QuestDB, QuestDBStatus, names};

use super::model::World;
use super::serving;
use crate::fixture::settings;
use crate::{InForce, Subject, rehearse, rehearse_refused, validate};

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
    rehearse_refused(&resource, &violations, &settings(), &InForce::default()).tell(&mut status);
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
