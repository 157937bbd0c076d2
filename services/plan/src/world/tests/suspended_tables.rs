//! Tables that QuestDB has suspended are told of a database that serves, in the same words until QuestDB says otherwise or its pod goes,
//! and nothing is done for them.

use std::sync::Arc;

use cloud::{Instance, InstanceId};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use resources::names::condition;
use resources::{Phase, QuestDBStatus, RunState};

use super::model::World;
use super::operations::change;
use super::serving;
use crate::fixture::{settings, validated};
use crate::report::documented;
use crate::{Applied, Failure, Observed, Part, SuspendedTables, plan, status, tells_of_tables};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn tables(names: &[&str]) -> SuspendedTables {
    SuspendedTables { names: names.iter().map(|name| (*name).to_owned()).collect(), more: 0 }
}

/// What is told after a pass in which QuestDB was known to have suspended these; none is that it was not asked.
fn told(world: &World, tables: Option<&SuspendedTables>, applied: &Applied) -> QuestDBStatus {
    let observed = Observed { suspended_tables: tables.cloned(), ..world.look() };
    let validated = validated(&world.resource);
    let planned = plan(&world.resource, &validated, &observed, &settings());
    let without = plan(&world.resource, &validated, &world.look(), &settings());
    assert_eq!(planned, without, "nothing is done for it");
    let told = status(&world.resource, &validated, &observed, (&planned, applied), world.now);
    documented::check(&told);
    told
}

fn degraded(status: &QuestDBStatus) -> &Condition {
    status.conditions.iter().find(|found| found.type_ == condition::DEGRADED).unwrap()
}

/// A database of which it was told an hour ago that these are suspended, and what was told.
fn suspended(names: &[&str]) -> (World, QuestDBStatus) {
    let mut world = serving();
    world.now += HOUR;
    let said = told(&world, Some(&tables(names)), &Applied::default());
    world.resource.status = Some(said.clone());
    world.now += HOUR;
    (world, said)
}

#[test]
fn suspended_tables_are_told_in_the_same_words_until_questdb_says_otherwise() {
    let applied = Applied::default();
    let healthy = serving();
    for known in [None, Some(&tables(&[]))] {
        assert_eq!(Some(told(&healthy, known, &applied)), healthy.resource.status, "{known:?}");
    }
    let (world, said) = suspended(&["trades"]);
    let found = degraded(&said);
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("True", "TablesSuspended"));
    assert!(found.message.contains("tables trades are suspended"), "{}", found.message);
    assert!(found.message.contains("since 1970-01-01T01:00:00Z:"), "{}", found.message);
    assert!(tells_of_tables(&world.resource) && !tells_of_tables(&healthy.resource));
    let ready = said.conditions.iter().find(|found| found.type_ == condition::READY).unwrap();
    assert_eq!((ready.status.as_str(), said.phase), ("True", Some(Phase::Ready)), "it serves");
    // Whoever begins to look after it has not asked yet.
    for known in [None, Some(&tables(&["trades"]))] {
        assert_eq!(told(&world, known, &applied), said, "{known:?}");
    }
    let more = told(&world, Some(&tables(&["quotes", "trades"])), &applied);
    assert!(degraded(&more).message.contains("tables quotes, trades are suspended"));
    assert!(degraded(&more).message.contains("since 1970-01-01T01:00:00Z:"), "it goes on");
    let over = told(&world, Some(&tables(&[])), &applied);
    assert_eq!((degraded(&over).status.as_str(), degraded(&over).reason.as_str()), ("False", "AsExpected"));
}

#[test]
fn what_was_told_of_the_tables_of_one_questdb_is_not_told_of_the_next_one_or_of_none() {
    let applied = Applied::default();
    let (mut world, _) = suspended(&["trades"]);
    let is_told = |world: &World| degraded(&told(world, None, &applied)).status == "True";
    assert!(is_told(&world));
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.creation_timestamp = Some(Time(world.now));
    assert!(!is_told(&world), "another QuestDB begins with none");
    let (mut world, _) = suspended(&["trades"]);
    change(&mut world, |spec| spec.run_state = RunState::Paused);
    for known in [None, Some(&tables(&["trades"]))] {
        assert_eq!(degraded(&told(&world, known, &applied)).status, "False", "{known:?}");
    }
}

/// A pass in which server.conf was refused.
fn failed() -> Applied {
    let failure = Failure {
        part: Part::Config,
        message: "refused".to_owned(),
        lasting: true,
        outdated: None,
        overtaken: false,
    };
    Applied { failures: vec![failure], ..Applied::default() }
}

#[test]
fn what_does_not_heal_by_itself_is_told_before_tables_and_hides_none() {
    let failed = failed();
    let (mut world, said) = suspended(&["trades"]);
    let known = tables(&["trades"]);
    let other = told(&world, Some(&known), &failed);
    assert_eq!(degraded(&other).reason, "Config");
    // What people are to do about them stands behind it, and stays until QuestDB says otherwise or its pod goes.
    let behind = format!("config: refused; in QuestDB: {}", degraded(&said).message);
    assert_eq!(degraded(&other).message, behind);
    world.resource.status = Some(other.clone());
    assert!(tells_of_tables(&world.resource));
    world.now += HOUR;
    for tables in [None, Some(&known)] {
        assert_eq!(told(&world, tables, &failed), other, "{tables:?}");
    }
    let more = told(&world, Some(&tables(&["quotes", "trades"])), &failed);
    let text = &degraded(&more).message;
    assert!(text.starts_with("config: refused; in QuestDB: tables quotes, trades are suspended, "), "{text}");
    assert!(text.contains("since 1970-01-01T01:00:00Z:"), "{text}");
    let bare = "config: refused";
    assert_eq!(degraded(&told(&world, Some(&tables(&[])), &failed)).message, bare);
    let mut replaced = world.clone();
    let pod = Arc::make_mut(replaced.children.pod.as_mut().unwrap());
    pod.metadata.creation_timestamp = Some(Time(replaced.now));
    assert_eq!(degraded(&told(&replaced, None, &failed)).message, bare);
    for tables in [None, Some(&known)] {
        let again = told(&world, tables, &Applied::default());
        assert_eq!(degraded(&again).reason, "TablesSuspended");
        assert_ne!(degraded(&again).last_transition_time, degraded(&said).last_transition_time);
        assert_eq!(degraded(&again).message, degraded(&said).message, "they are since then");
    }
}

/// QuestDB takes blanks and semicolons in a name, and neither colons nor commas.
#[test]
fn whatever_tables_are_called_the_same_is_told_of_them_each_time() {
    let known = tables(&["; tables a", "are suspended", "which is known since then; in QuestDB"]);
    for applied in [Applied::default(), failed()] {
        let mut world = serving();
        let said = told(&world, Some(&known), &applied);
        for tables in [None, Some(&known), None] {
            world.resource.status = Some(said.clone());
            world.now += HOUR;
            assert_eq!(told(&world, tables, &applied), said, "{tables:?}");
        }
    }
}

#[test]
fn a_machine_that_somebody_else_launched_is_told_before_tables_and_hides_none() {
    let (mut world, said) = suspended(&["trades"]);
    let copied = Instance {
        id: InstanceId::new("i-copy"),
        private_ip: None,
        client_token: Some("of-the-console".to_owned()),
        ..world.instances[0].clone()
    };
    world.instances.push(copied);
    let known = tables(&["trades"]);
    let applied = Applied::default();
    let both = told(&world, Some(&known), &applied);
    let (reason, message) = (&degraded(&both).reason, &degraded(&both).message);
    assert!(reason == "StrangeMachine" && message.starts_with("i-copy "), "{reason}: {message}");
    assert!(message.ends_with(&format!("; in QuestDB: {}", degraded(&said).message)), "{message}");
    world.resource.status = Some(both.clone());
    for tables in [None, Some(&known)] {
        assert_eq!(told(&world, tables, &applied), both, "{tables:?}");
    }
    world.instances.pop();
    assert_eq!(degraded(&told(&world, None, &applied)).message, degraded(&said).message);
}
