//! The name of a database at rest: what somebody changed by hand comes back, and a paused database keeps it.

use std::net::Ipv4Addr;

use cloud::{DnsRecord, RecordKind};
use jiff::Timestamp;
use resources::{DnsState, Phase, RunState};

use super::enumerated::undisturbed;
use super::model::World;
use super::operations::operations;
use super::runner::Run;
use super::{check_serving, pass, phase, serving, settle, wish};
use crate::fixture::validated;
use crate::{Action, Part, Plan, State, Step, are_as_noted, name_at_rest};

const NAME: &str = "trades-33445566.eu.example.com";

fn is_noticed(world: &World) -> bool {
    let noted = name_at_rest(&world.resource, Timestamp::UNIX_EPOCH);
    assert_eq!(noted, Some(NAME));
    !are_as_noted(&world.resource, &validated(&world.resource), &world.records)
}

fn address(last: u8) -> DnsRecord {
    DnsRecord::a(NAME, 30, Ipv4Addr::new(192, 0, 2, last))
}

#[test]
fn what_somebody_changed_is_noticed_and_comes_back_by_one_change() {
    type Edit = fn(&mut Vec<DnsRecord>);
    let edits: [(&str, Edit); 6] = [
        ("nothing left", Vec::clear),
        ("no address", |records| records.retain(|record| record.kind != RecordKind::A)),
        ("no text", |records| records.retain(|record| record.kind != RecordKind::Txt)),
        ("another address", |records| {
            records.retain(|record| record.kind != RecordKind::A);
            records.push(address(9));
        }),
        ("a longer life", |records| {
            records
                .iter_mut()
                .filter(|record| record.kind == RecordKind::A)
                .for_each(|record| record.ttl = 86_400);
        }),
        ("more addresses", |records| {
            let more = records.iter_mut().find(|record| record.kind == RecordKind::A).unwrap();
            more.values.push("192.0.2.9".to_owned());
        }),
    ];
    for (what, edit) in edits {
        let mut world = serving();
        let before = world.records.clone();
        assert!(!is_noticed(&world), "{what}");
        edit(&mut world.records);
        assert!(is_noticed(&world), "{what}");
        let planned = pass(&mut world, &mut 0, None, false);
        let steps: Vec<&Step> = planned.actions.iter().map(|action| &action.step).collect();
        assert!(matches!(steps.as_slice(), [Step::ChangeRecords { .. }]), "{what}: {steps:?}");
        assert!(planned.actions[0].puts_right, "{what}: it is counted");
        world.tick();
        settle(&mut world, None, false);
        check_serving(&world, None);
        let sorted = |mut records: Vec<DnsRecord>| {
            records.sort_by_key(|record| record.kind.to_string());
            records
        };
        assert_eq!(sorted(world.records.clone()), sorted(before), "{what}");
    }
}

fn changes_of_records(planned: &Plan) -> impl Iterator<Item = &Action> {
    planned.actions.iter().filter(|action| matches!(action.step, Step::ChangeRecords { .. }))
}

#[test]
fn what_a_database_does_of_its_own_is_never_taken_for_an_answer_to_somebody() {
    let mut changes = 0;
    for operation in operations() {
        let (_, Run { passes, .. }) = undisturbed(operation);
        for (_, mut world) in passes {
            let planned = pass(&mut world, &mut 0, None, false);
            for action in changes_of_records(&planned) {
                assert!(!action.puts_right, "{}: {action:?}", operation.name);
                changes += 1;
            }
        }
    }
    assert!(changes > 0);
}

#[test]
fn a_name_that_somebody_else_took_at_rest_is_told_and_left() {
    for theirs in [address(9), DnsRecord::txt(NAME, 30, "heritage=slipway,cluster=eu-west-1,database=other")]
    {
        let mut world = serving();
        world.records = vec![theirs.clone()];
        assert!(is_noticed(&world));
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(matches!(planned.state(Part::Dns), Some(State::Conflict(_))), "{:?}", planned.progress);
        assert_eq!(world.records, [theirs]);
    }
}

#[test]
fn what_was_changed_a_moment_ago_is_not_looked_at() {
    let mut world = serving();
    let steps = &mut world.resource.status.as_mut().unwrap().steps;
    let ended = steps.iter_mut().find(|step| step.name == "dns").unwrap().ended_at.as_mut().unwrap();
    ended.0 = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1);
    assert_eq!(name_at_rest(&world.resource, Timestamp::UNIX_EPOCH), None);
    assert_eq!(
        name_at_rest(&world.resource, Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1)),
        Some(NAME)
    );
}

fn paused() -> World {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    assert_eq!(phase(&world), Some(Phase::Paused));
    world
}

fn noted(world: &World) -> Option<(String, DnsState)> {
    let dns = world.resource.status.as_ref().unwrap().dns.as_ref()?;
    assert_eq!((&dns.address, &dns.change_id), (&None, &None));
    Some((dns.name.clone(), dns.state))
}

#[test]
fn a_pause_takes_the_address_and_keeps_the_name() {
    let mut world = paused();
    assert_eq!(world.records.iter().map(|record| record.kind.clone()).collect::<Vec<_>>(), [RecordKind::Txt]);
    assert_eq!(noted(&world), Some((NAME.to_owned(), DnsState::InSync)));
    assert!(!is_noticed(&world));
    world.records.clear();
    assert!(is_noticed(&world), "somebody took the text away");
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(changes_of_records(&planned).any(|action| action.puts_right), "{:?}", planned.actions);
    world.tick();
    settle(&mut world, None, false);
    assert_eq!(world.records.len(), 1);
    wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn a_paused_database_that_is_deleted_gives_its_name_back() {
    for to in [RunState::Deleted, RunState::Purged] {
        let mut world = paused();
        wish(&mut world, 3, |spec| spec.run_state = to);
        settle(&mut world, None, false);
        assert!(world.records.is_empty() && world.resource.status.as_ref().unwrap().dns.is_none(), "{to:?}");
    }
}

#[test]
fn a_name_is_given_back_although_somebody_put_something_beside_it() {
    for (to, kept) in [(RunState::Paused, 1), (RunState::Deleted, 0), (RunState::Purged, 0)] {
        let mut world = serving();
        let theirs = DnsRecord::cname(NAME, 300, "elsewhere.example.org");
        world.records.push(theirs.clone());
        wish(&mut world, 2, |spec| spec.run_state = to);
        settle(&mut world, None, false);
        let (left, ours): (Vec<_>, Vec<_>) = world.records.iter().partition(|record| **record == theirs);
        assert_eq!(left.len(), 1, "{to:?}: what is not ours was touched");
        assert_eq!(ours.len(), kept, "{to:?}: nobody is sent to a machine that is gone: {ours:?}");
        assert!(ours.iter().all(|record| record.kind == RecordKind::Txt), "{to:?}: {ours:?}");
    }
}

#[test]
fn a_pause_without_a_status_knows_its_name_from_the_records() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Paused);
    world.resource.status = None;
    settle(&mut world, None, false);
    assert_eq!(noted(&world), Some((NAME.to_owned(), DnsState::InSync)));
}

#[test]
fn a_paused_database_keeps_its_name_and_gets_another_once_it_serves() {
    let mut world = paused();
    wish(&mut world, 3, |spec| spec.network.hostname = Some("other.eu.example.com".to_owned()));
    settle(&mut world, None, false);
    assert!(world.records.iter().all(|record| record.name == NAME), "{:?}", world.records);
    assert_eq!(noted(&world), Some((NAME.to_owned(), DnsState::InSync)));
    wish(&mut world, 4, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(world.records.iter().all(|record| record.name == "other.eu.example.com"), "{:?}", world.records);
}
