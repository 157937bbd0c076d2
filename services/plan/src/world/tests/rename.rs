//! Another name for a living database: the one in force always leads to it, and in the end it has one.

use std::net::IpAddr;

use cloud::{DnsRecord, RecordKind};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{ChangeMeans, DnsState, DnsStatus, FormerNameStatus, Phase, QuestDBSpec, RunState};

use super::model::World;
use super::operations::other_name;
use super::oracle::check_end;
use super::{check_serving, pass, phase, serving, settle, wish};
use crate::{DnsQuestion, Led, Part, Renamed, State, Step, dns_question};

const NAME: &str = "trades-33445566.eu.example.com";
const OTHER: &str = "other.eu.example.com";
const THIRD: &str = "third.eu.example.com";

fn named(name: &'static str) -> impl Fn(&mut QuestDBSpec) {
    move |spec| spec.network.hostname = Some(name.to_owned())
}

fn dns(world: &World) -> &DnsStatus {
    world.resource.status.as_ref().unwrap().dns.as_ref().unwrap()
}

/// Where a name leads.
fn answer(world: &World, name: &str) -> Option<String> {
    let mut records = world.records.iter().filter(|found| found.name == name);
    records.find(|found| found.kind == RecordKind::A).map(|found| found.values.join(","))
}

fn names(world: &World) -> Vec<&str> {
    let mut names: Vec<&str> = world.records.iter().map(|found| found.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn condition<'a>(world: &'a World, kind: &str) -> (&'a str, &'a str) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind).unwrap();
    (&found.status, &found.reason)
}

/// The passes from the wish for another name to its end, each as it was before the pass.
fn way() -> Vec<World> {
    let mut world = serving();
    wish(&mut world, 2, other_name);
    let mut worlds = Vec::new();
    for _ in 0..40 {
        worlds.push(world.clone());
        pass(&mut world, &mut 0, None, false);
        if phase(&world) == Some(Phase::Ready) && dns(&world).name == OTHER {
            return worlds;
        }
        world.tick();
    }
    panic!("it came to no end: {:?}", dns(&world));
}

#[test]
fn the_new_name_is_added_then_takes_over_then_the_former_goes() {
    let mut world = serving();
    let address = dns(&world).address.clone().unwrap();
    wish(&mut world, 2, other_name);
    let (mut renamed, mut changes) = (Vec::new(), 0);
    for _ in 0..40 {
        let planned = pass(&mut world, &mut 0, None, false);
        let in_force = dns(&world).name.clone();
        assert_eq!(answer(&world, &in_force), Some(address.clone()), "the name in force leads nowhere");
        assert_eq!(condition(&world, "Ready"), ("True", "Serving"));
        changes += planned.actions.len();
        assert!(planned.actions.iter().all(|action| matches!(action.step, Step::ChangeRecords { .. })));
        renamed.extend(planned.renamed.clone());
        if !renamed.iter().any(|seen| matches!(seen, Renamed::Taken(_))) {
            let pending = &world.resource.status.as_ref().unwrap().pending;
            let told = pending.iter().map(|found| (found.field.as_str(), found.means)).collect::<Vec<_>>();
            assert_eq!(told, [("/spec/network/hostname", ChangeMeans::Online)]);
            assert_eq!(in_force, NAME);
        }
        if planned.is_settled() {
            break;
        }
        world.tick();
    }
    let (begun, other) = (Led { name: OTHER.to_owned(), address: address.clone() }, OTHER.to_owned());
    let way = [Renamed::Begun(begun), Renamed::Taken(other), Renamed::GivenBack(NAME.to_owned())];
    assert_eq!(renamed, way);
    assert_eq!(changes, 2, "one change adds, one takes away");
    assert_eq!((names(&world), answer(&world, OTHER)), (vec![OTHER], Some(address)));
    let DnsStatus { next, former, change_id, .. } = dns(&world);
    assert_eq!((next, former, change_id), (&None, &None, &None));
    let endpoints = world.resource.status.as_ref().unwrap().endpoints.as_ref().unwrap();
    assert_eq!(endpoints.http, format!("http://{OTHER}:9000"));
    check_end(&world, "under another name");
}

#[test]
fn the_former_name_stays_until_all_name_servers_know_the_new_one() {
    let mut world = serving();
    wish(&mut world, 2, other_name);
    while dns(&world).next.as_ref().is_none_or(|next| next.change_id.is_none()) {
        pass(&mut world, &mut 0, None, false);
    }
    for _ in 0..5 {
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(planned.actions.is_empty(), "{:?}", planned.actions);
        assert_eq!((names(&world), dns(&world).name.as_str()), (vec![OTHER, NAME], NAME));
    }
}

#[test]
fn a_name_that_is_taken_is_refused_and_the_one_in_force_stays() {
    let mut world = serving();
    let theirs = DnsRecord::cname(OTHER, 300, "elsewhere.example.org");
    world.records.push(theirs.clone());
    let before = world.records.clone();
    wish(&mut world, 2, other_name);
    for _ in 0..3 {
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(matches!(planned.state(Part::Rename), Some(State::Refused(_))), "{:?}", planned.progress);
        world.tick();
    }
    assert_eq!(world.records, before);
    assert_eq!(condition(&world, "Ready"), ("True", "Serving"));
    assert_eq!(condition(&world, "ConfigAccepted"), ("False", "NameTaken"));
    // Who waits for the edit to be carried out is told that it is not.
    assert_eq!(condition(&world, "Progressing"), ("False", "NameChange"));
    assert_eq!(condition(&world, "Degraded"), ("True", "NameChange"));
    let status = world.resource.status.as_ref().unwrap();
    assert_eq!(status.instruction.as_ref().unwrap().seq, 1, "the wish was not carried out");
    assert_eq!(status.pending[0].means, ChangeMeans::Refused);
    world.records.retain(|record| *record != theirs);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(names(&world), [OTHER]);
}

#[test]
fn a_wish_may_turn_to_any_name_or_state_at_every_pass() {
    for (at, world) in way().into_iter().enumerate() {
        let all = [NAME, OTHER, THIRD];
        for (name, wiped) in all.into_iter().flat_map(|name| [(name, false), (name, true)]) {
            let mut world = world.clone();
            wish(&mut world, 3, named(name));
            world.resource.status.take_if(|_| wiped);
            settle(&mut world, None, false);
            check_end(&world, name);
            assert_eq!(names(&world), [name], "turned at pass {at}, wiped: {wiped}");
        }
        for (state, kept) in [(RunState::Paused, 1), (RunState::Deleted, 0), (RunState::Purged, 0)] {
            let mut world = world.clone();
            wish(&mut world, 3, |spec| spec.run_state = state);
            settle(&mut world, None, false);
            assert!(names(&world).len() <= kept, "{state:?} at pass {at}: {:?}", world.records);
            let addresses = world.records.iter().filter(|found| found.kind == RecordKind::A);
            assert_eq!(addresses.count(), 0, "{state:?} at pass {at}");
        }
    }
}

#[test]
fn a_name_that_nobody_knows_of_is_given_back_at_rest() {
    for state in [RunState::Running, RunState::Paused, RunState::Deleted] {
        let mut world = serving();
        wish(&mut world, 2, |spec| spec.run_state = state);
        settle(&mut world, None, false);
        let before = world.records.clone();
        let subject = crate::fixture::subject();
        let text = crate::owner_text(&subject);
        assert_eq!(crate::database_of_text(&subject.cluster, &text), Some(subject.database.as_str()));
        assert_eq!(crate::database_of_text("other", &text), None);
        let theirs = DnsRecord::txt(THIRD, 30, "heritage=slipway,cluster=eu-west-1,database=other");
        world.records.extend([
            DnsRecord::txt(OTHER, 30, &text),
            DnsRecord::a(OTHER, 30, std::net::Ipv4Addr::new(192, 0, 2, 9)),
            theirs.clone(),
        ]);
        settle(&mut world, None, false);
        world.records.retain(|record| *record != theirs);
        assert_eq!(world.records, before, "{state:?}");
    }
}

/// One that was made to lead to it under another name too, and the report of that got lost.
pub(super) fn between_names(mut world: World) -> World {
    super::operations::change(&mut world, other_name);
    while world.records.iter().all(|record| record.name != OTHER) {
        pass(&mut world, &mut 0, None, false);
    }
    let dns = world.resource.status.as_mut().unwrap().dns.as_mut().unwrap();
    dns.next.as_mut().unwrap().change_id = None;
    world
}

/// A world in which the other name stands beside the one in force, all name servers know it, and nobody told so yet.
fn beside() -> World {
    let mut world = serving();
    wish(&mut world, 2, other_name);
    while dns(&world).next.as_ref().is_none_or(|next| next.change_id.is_none()) {
        pass(&mut world, &mut 0, None, false);
    }
    world.tick();
    world
}

#[test]
fn a_name_takes_over_only_if_it_leads_to_the_database_now() {
    // Somebody takes the records of the new name away after all name servers knew them.
    let mut world = beside();
    let address = dns(&world).address.clone();
    world.records.retain(|record| record.name != OTHER);
    let planned = pass(&mut world, &mut 0, None, false);
    assert_eq!(planned.renamed, None);
    for _ in 0..40 {
        world.tick();
        let planned = pass(&mut world, &mut 0, None, false);
        assert_eq!(answer(&world, &dns(&world).name), address, "the name in force leads nowhere");
        if planned.is_settled() {
            break;
        }
    }
    assert_eq!((names(&world), dns(&world).name.as_str()), (vec![OTHER], OTHER));
}

#[test]
fn no_name_is_given_back_while_the_one_in_force_leads_nowhere() {
    let mut world = beside();
    while dns(&world).former.is_none() {
        pass(&mut world, &mut 0, None, false);
    }
    world.tick();
    world.records.retain(|record| record.name != OTHER);
    let planned = pass(&mut world, &mut 0, None, false);
    let mends = |step: &Step| matches!(step, Step::ChangeRecords { led: Some(led), .. } if led.name == OTHER);
    assert!(planned.actions.iter().all(|action| mends(&action.step)), "{:?}", planned.actions);
    assert!(names(&world).contains(&NAME), "the last name that led to the database is gone");
    settle(&mut world, None, false);
    assert_eq!(names(&world), [OTHER]);
    check_end(&world, "mended");
}

#[test]
fn the_former_name_leads_to_the_database_until_others_could_read_of_the_new_one() {
    let mut world = beside();
    while dns(&world).former.is_none() {
        pass(&mut world, &mut 0, None, false);
    }
    let endpoints = world.resource.status.as_ref().unwrap().endpoints.clone().unwrap();
    assert_eq!(endpoints.http, format!("http://{OTHER}:9000"), "it is told before the former is given back");
    let since = dns(&world).former.as_ref().unwrap().since.0;
    world.now = since + SignedDuration::from_millis(29_999);
    assert!(pass(&mut world, &mut 0, None, false).actions.is_empty());
    world.now = since + SignedDuration::from_secs(30);
    assert_eq!(pass(&mut world, &mut 0, None, false).actions.len(), 1);
    assert_eq!(names(&world), [OTHER]);
}

#[test]
fn every_name_that_may_have_been_made_stands_in_status_before() {
    let mut world = serving();
    wish(&mut world, 2, other_name);
    for _ in 0..40 {
        let before = world.resource.status.clone().unwrap().dns.unwrap();
        let planned = pass(&mut world, &mut 0, None, false);
        for action in &planned.actions {
            let Step::ChangeRecords { changes, led: Some(_) } = &action.step else { continue };
            for change in changes {
                let name = &change.record().name;
                let known = before.next.as_ref().map(|next| &next.name);
                assert!(*name == before.name || Some(name) == known, "{name} was made before it was told");
            }
        }
        if planned.is_settled() {
            return;
        }
        world.tick();
    }
    panic!("not settled");
}

#[test]
fn a_database_that_stops_says_so_of_its_name_before_nobody_answers_to_it() {
    for state in [RunState::Paused, RunState::Deleted] {
        let mut world = serving();
        wish(&mut world, 2, |spec| spec.run_state = state);
        while answer(&world, NAME).is_some() {
            let before = dns(&world).state;
            let planned = pass(&mut world, &mut 0, None, false);
            let acts = planned.actions.iter().any(|action| matches!(action.step, Step::ChangeRecords { .. }));
            assert!(!acts || before == DnsState::Releasing, "{state:?}: its report may get lost");
        }
    }
}

#[test]
fn a_name_with_a_record_beside_it_is_left_for_another_and_given_back() {
    let mut world = serving();
    wish(&mut world, 2, other_name);
    let theirs = DnsRecord::cname(NAME, 300, "elsewhere.example.org");
    world.records.push(theirs.clone());
    // A look at the name in force, as after a move.
    world.resource.status.as_mut().unwrap().dns.as_mut().unwrap().state = DnsState::Pending;
    settle(&mut world, None, false);
    assert_eq!(dns(&world).name, OTHER);
    assert_eq!(world.records.iter().filter(|record| record.name == NAME).collect::<Vec<_>>(), [&theirs]);
}

#[test]
fn another_suffix_of_the_operator_renames_nobody() {
    let mut world = serving();
    world.resource.spec.network.hostname = None;
    let mut settings = crate::fixture::settings();
    settings.dns_suffix = "elsewhere.example.org".to_owned();
    let of = |resource| crate::validate(resource, crate::fixture::subject(), &settings).unwrap().hostname;
    assert_eq!(of(&world.resource), NAME);
    let mut fresh = world.resource.clone();
    fresh.status = None;
    assert!(of(&fresh).ends_with(".elsewhere.example.org"));
}

#[test]
fn all_names_go_at_once_when_a_database_stops() {
    for (state, told) in
        [RunState::Paused, RunState::Deleted].into_iter().flat_map(|state| [(state, true), (state, false)])
    {
        let mut world = between_names(serving());
        if !told {
            world.resource.status.as_mut().unwrap().dns.as_mut().unwrap().next = None;
        }
        wish(&mut world, 3, |spec| {
            spec.run_state = state;
            // What status tells of goes whatever the wish says by now, and what the wish says whatever status tells of.
            spec.network.hostname = Some(if told { THIRD } else { OTHER }.to_owned());
        });
        let released = |step: &Step| matches!(step, Step::ChangeRecords { .. });
        while !pass(&mut world, &mut 0, None, false).actions.iter().any(|action| released(&action.step)) {}
        let left: Vec<&RecordKind> = world.records.iter().map(|found| &found.kind).collect();
        let kept: &[&RecordKind] = if state == RunState::Paused { &[&RecordKind::Txt] } else { &[] };
        assert_eq!(
            (left.as_slice(), names(&world).iter().all(|name| *name == NAME)),
            (kept, true),
            "{state:?}"
        );
    }
}

#[test]
fn what_status_says_twice_is_one_name() {
    let mut world = between_names(serving());
    let dns = world.resource.status.as_mut().unwrap().dns.as_mut().unwrap();
    dns.former = Some(FormerNameStatus { name: NAME.to_owned(), since: Time(Timestamp::UNIX_EPOCH) });
    let resource = &world.resource;
    let validated = crate::fixture::validated(resource);
    assert_eq!(crate::names_to_release(resource, &validated), [NAME, OTHER]);
    // The name in force is none that is given back, whatever else is said of it.
    let address = dns_address(&world);
    let question = dns_question(resource, &validated, (Some(address), world.now));
    assert_eq!(question, DnsQuestion::Next { name: OTHER.to_owned(), change: None });
}

fn dns_address(world: &World) -> IpAddr {
    dns(world).address.as_deref().unwrap().parse().unwrap()
}

#[test]
fn a_change_to_another_address_is_not_waited_for() {
    let mut world = beside();
    let (here, there) = (dns_address(&world), IpAddr::from([192, 0, 2, 9]));
    let validated = crate::fixture::validated(&world.resource);
    let change = dns(&world).next.as_ref().unwrap().change_id.as_ref().map(cloud::ChangeId::new);
    let next = |change| DnsQuestion::Next { name: OTHER.to_owned(), change };
    let ask = |world: &World, at| dns_question(&world.resource, &validated, (Some(at), world.now));
    assert_eq!(ask(&world, here), next(change));
    // After a move the name in force leads there, and the other one does not yet.
    world.resource.status.as_mut().unwrap().dns.as_mut().unwrap().address = Some(there.to_string());
    assert_eq!(ask(&world, there), next(None));
}
