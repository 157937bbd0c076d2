//! More rules of the firewall than AWS takes: who is taken out of a wish goes once AWS has answered, whatever its answer is, and until
//! then whoever came in before does so on.

use std::ops::Range;

use cloud::{IngressRule, PeerRange};
use jiff::SignedDuration;
use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use resources::Phase;
use resources::names::port;
use serde_json::json;

use super::clinging::hold;
use super::model::{Lost, Refusal, World};
use super::operations::{Operation, change, end_machine, operation};
use super::reach::condition as word;
use super::runner::{ENOUGH, settle};
use super::{Trouble, check_serving, pass, phase, serving, troubles};
use crate::{Applied, Failure, Part, State, Step, pod_serves};

/// What EC2 answers where there would be more rules in a group than it takes.
pub(super) const TOO_MANY: Refusal = "there would be too many rules";

/// Each of these ranges takes two rules.
pub(super) const MANY: &[Operation] = &[
    operation("let many others in", serving_many, |world| let_in(world, 50..90)),
    operation("let many others in by both families", serving_many, |world| {
        change(world, |spec| {
            let others = (0..32).flat_map(|number| [ipv4(number), format!("2001:db8:{number}::/48")]);
            spec.network.allowed_cidrs = others.collect();
        });
    }),
];

/// Whether EC2 would not take so many in a group.
pub(super) fn are_too_many(rules: &[IngressRule], most: Option<usize>) -> bool {
    let ipv6 = rules.iter().filter(|rule| matches!(rule.peer, PeerRange::Ipv6(_))).count();
    most.is_some_and(|most| ipv6.max(rules.len() - ipv6) > most)
}

fn ipv4(number: u32) -> String {
    format!("10.{number}.0.0/16")
}

fn let_in(world: &mut World, numbers: Range<u32>) {
    change(world, |spec| spec.network.allowed_cidrs = numbers.map(ipv4).collect());
}

/// As many come in as AWS takes of every account.
fn serving_many() -> World {
    let mut world = serving();
    world.full.rules = Some(60);
    let_in(&mut world, 0..30);
    settle(&mut world, None, false);
    assert_eq!(world.groups[0].ingress.len(), 60);
    world.full.rules = None;
    world
}

/// The rules by which these ranges come in.
fn rules_of(numbers: Range<u32>) -> Vec<IngressRule> {
    let ports = [port::HTTP, port::PG];
    let mut rules: Vec<IngressRule> =
        numbers.flat_map(|number| ports.map(|port| IngressRule::tcp(port, ipv4(number)))).collect();
    rules.sort();
    rules
}

/// Which rules come in, and what the policy says.
fn fences(world: &World) -> (Vec<IngressRule>, Option<NetworkPolicySpec>) {
    let policy = world.children.network_policy.as_ref().unwrap();
    let mut rules = world.groups[0].ingress.clone();
    rules.sort();
    (rules, policy.spec.clone())
}

/// AWS takes sixty rules, and others are to come in than before, who need more. Somebody has let others in by hand, by ports that nobody
/// is ever let in by.
fn wishing_for_more(numbers: Range<u32>) -> World {
    let mut world = serving_many();
    world.full.rules = Some(60);
    let_in(&mut world, numbers);
    let strange = [22, 23, 24].map(|port| IngressRule::tcp(port, "0.0.0.0/0"));
    world.groups[0].ingress.extend(strange);
    world
}

/// Both fences let in those of a wish that AWS takes, and no one else.
fn check_fences(world: &World, numbers: &Range<u32>) {
    let (rules, policy) = fences(world);
    // As many as before; whoever came in then and is still to, is among them.
    assert_eq!(rules, rules_of(numbers.start..numbers.start + 30), "{numbers:?}");
    let policy = json!(policy).to_string();
    for number in 0..99 {
        let is_in = policy.contains(&format!("\"{}\"", ipv4(number)));
        assert_eq!(is_in, numbers.contains(&number), "{numbers:?}: {number} in {policy}");
    }
}

fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
    }
}

/// What is done about the rules in a pass, and how many of them it is about.
fn steps(world: &World) -> Vec<(&'static str, usize)> {
    let planned = pass(&mut world.clone(), &mut 0, None, false);
    let steps = planned.actions.iter().map(|action| &action.step);
    steps
        .filter_map(|step| match step {
            Step::AuthorizeIngress { rules, .. } => Some(("in", rules.len())),
            Step::RevokeIngress { rules, .. } => Some(("out", rules.len())),
            _ => None,
        })
        .collect()
}

#[test]
fn who_is_taken_out_goes_while_aws_refuses_more_and_others_come_in_their_places() {
    for numbers in [50..81, 29..60, 0..31] {
        let mut world = wishing_for_more(numbers.clone());
        passes(&mut world, 1);
        assert_eq!(
            fences(&world).0,
            rules_of(numbers.start..numbers.start + 30),
            "{numbers:?}, after one pass"
        );
        passes(&mut world, 5);
        check_fences(&world, &numbers);
        // Nothing but the rules that are refused is asked for again, and those are told.
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(planned.actions.iter().all(|action| action.part == Part::FurtherRules), "{planned:#?}");
        assert_eq!(steps(&world), [("in", 2)], "{numbers:?}");
        assert_eq!(planned.state(Part::SecurityGroup), Some(&State::Done), "{numbers:?}");
        assert_eq!(word(&world, "Ready").unwrap().0, "True", "{numbers:?}");
        let expected = format!("{}: {TOO_MANY}", Part::FurtherRules);
        assert_eq!(word(&world, "Degraded"), Some(("True", expected.as_str())), "{numbers:?}");
        assert_eq!(phase(&world), Some(Phase::Degraded), "{numbers:?}");

        // Somebody changes rules by hand meanwhile: that is put right, by whatever port it is.
        let by_hand = [port::PG, 22].map(|port| IngressRule::tcp(port, "0.0.0.0/0"));
        let rules = &mut world.groups[0].ingress;
        rules.drain(..by_hand.len());
        rules.extend(by_hand);
        passes(&mut world, 1);
        check_fences(&world, &numbers);

        // The account takes more by now, or the wish is for less.
        let mut raised = world.clone();
        raised.full.rules = Some(62);
        settle(&mut raised, None, false);
        check_serving(&raised, None);
        assert_eq!(fences(&raised).0, rules_of(numbers.clone()), "{numbers:?}");
        let_in(&mut world, numbers.start..numbers.end - 1);
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(fences(&world).0, rules_of(numbers.start..numbers.end - 1), "{numbers:?}");
    }
}

#[test]
fn a_database_is_healed_by_the_rules_that_stand_while_aws_refuses_more() {
    let numbers = 29..60;
    let mut refused = wishing_for_more(numbers.clone());
    passes(&mut refused, 6);
    let stopped = |world: &mut World| {
        (world.children.stateful_set, world.children.pod) = (None, None);
        world.let_go();
    };
    let harms: [fn(&mut World); 2] = [stopped, |world| end_machine(world, 0)];
    for harm in harms {
        let mut world = refused.clone();
        harm(&mut world);
        passes(&mut world, ENOUGH);
        assert!(world.children.pod.as_deref().is_some_and(pod_serves));
        assert_eq!(word(&world, "Ready").unwrap().0, "True");
        check_fences(&world, &numbers);
    }
    // None is taken any more, for another reason than their number.
    let mut world = wishing_for_more(numbers.clone());
    world.full.rules = Some(0);
    end_machine(&mut world, 0);
    passes(&mut world, ENOUGH);
    assert_eq!((fences(&world).0, world.instances.len()), (rules_of(29..30), 2));
    assert_eq!(word(&world, "Ready").unwrap().0, "True");
    let mut world = serving();
    world.full.rules = Some(2);
    change(&mut world, |spec| spec.network.allowed_cidrs.push("10.9.0.0/16".to_owned()));
    end_machine(&mut world, 0);
    passes(&mut world, ENOUGH);
    assert_eq!((world.groups[0].ingress.len(), world.instances.len()), (2, 2));
    assert_eq!(word(&world, "Ready").unwrap().0, "True");
}

#[test]
fn what_is_refused_hides_nothing_that_the_database_lacks() {
    let mut world = wishing_for_more(29..60);
    passes(&mut world, 6);
    world.now += SignedDuration::from_hours(1);
    // Of a StatefulSet that somebody holds no pod would be made.
    hold(world.children.stateful_set.as_mut().unwrap());
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(planned.actions.iter().any(|action| action.part == Part::FurtherRules), "{planned:#?}");
    for (kind, expected) in [("Degraded", "True"), ("Progressing", "False")] {
        let (status, text) = word(&world, kind).unwrap();
        assert!(status == expected && text.starts_with("pod: the StatefulSet is being removed"), "{text}");
    }
}

#[test]
fn no_machine_is_launched_before_anybody_can_come_in() {
    let fresh = || World::new(crate::fixture::resource(1));
    let mut world = fresh();
    world.full.rules = Some(0);
    passes(&mut world, ENOUGH);
    assert_eq!((world.groups.len(), world.instances.len()), (1, 0));
    let (degraded, text) = word(&world, "Degraded").unwrap();
    assert!(degraded == "True" && text.contains(TOO_MANY), "{text}");
    world.full.rules = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
    // Most come in, and those of whom AWS takes no more are told.
    let mut world = fresh();
    world.full.rules = Some(60);
    let_in(&mut world, 0..31);
    passes(&mut world, ENOUGH);
    assert_eq!((world.groups[0].ingress.len(), word(&world, "Ready").unwrap().0), (60, "True"));
    assert_eq!(phase(&world), Some(Phase::Degraded));
}

#[test]
fn who_came_in_before_does_so_on_until_aws_has_answered_whether_it_takes_more() {
    for numbers in [50..81, 29..60] {
        let mut world = wishing_for_more(numbers.clone());
        let before = (rules_of(0..30), fences(&world).1);
        for _ in 0..6 {
            let planned = pass(&mut world.clone(), &mut 0, None, false);
            let at = planned.actions.iter().position(|action| action.part == Part::FurtherRules).unwrap();
            let trouble = Trouble { at, lost: Lost::Request, crash: false };
            let planned = pass(&mut world, &mut 0, Some(trouble), false);
            let waits = planned.state(Part::Isolation);
            assert!(matches!(waits, Some(State::Running(text)) if text.contains("AWS")), "{waits:?}");
            world.tick();
            assert_eq!(fences(&world), before, "{numbers:?}");
        }
        passes(&mut world, 6);
        check_fences(&world, &numbers);
    }
}

#[test]
fn whatever_fails_on_the_way_the_same_come_in_while_aws_refuses_more() {
    for numbers in [50..81, 29..60, 0..31] {
        for trouble in troubles(10) {
            let (mut world, mut taken) = (wishing_for_more(numbers.clone()), 0);
            for _ in 0..12 {
                pass(&mut world, &mut taken, Some(trouble), false);
                world.tick();
            }
            assert!(taken > trouble.at, "{numbers:?}, {trouble:?}: it did not happen");
            check_fences(&world, &numbers);
        }
    }
}

#[test]
fn rules_that_are_refused_hold_nothing_back_and_those_without_an_answer_what_is_to_give_way_to_them() {
    const ALL: [Part; 5] =
        [Part::SecurityGroup, Part::Rules, Part::FurtherRules, Part::Instance, Part::Candidate];
    let held = |part: Part, lasting: bool| -> Vec<Part> {
        let failure = Failure { part, message: String::new(), lasting, outdated: None, overtaken: false };
        let applied = Applied { failures: vec![failure], ..Applied::default() };
        let others = [Part::Isolation, Part::Pod, Part::Volume, Part::Former, Part::Dns];
        ALL.into_iter().chain(others).filter(|part| applied.holds_back(*part)).collect()
    };
    for part in [Part::Rules, Part::FurtherRules] {
        assert_eq!(held(part, true), [part]);
        assert_eq!(held(part, false), ALL, "{part}");
    }
    for lasting in [false, true] {
        assert_eq!(held(Part::SecurityGroup, lasting), ALL, "{lasting}");
    }
}

#[test]
fn who_is_not_allowed_any_more_goes_at_once_where_the_others_are_sure_to_come_in() {
    for (numbers, expected) in [
        (50..80, vec![("out", 60), ("in", 60)]),
        (1..31, vec![("out", 2), ("in", 2)]),
        (0..29, vec![("out", 2)]),
        (50..81, vec![("in", 2), ("out", 60), ("in", 60)]),
        (1..40, vec![("in", 18), ("out", 2), ("in", 2)]),
        (0..40, vec![("in", 20)]),
    ] {
        let mut world = serving_many();
        let_in(&mut world, numbers.clone());
        assert_eq!(steps(&world), expected, "{numbers:?}");
        world.full.rules = Some(numbers.len() * 2);
        passes(&mut world, 1);
        assert_eq!(world.groups[0].ingress.len(), numbers.len() * 2, "{numbers:?}, after one pass");
        settle(&mut world, None, false);
        check_serving(&world, None);
    }
}

/// The operator was given another VPC before the first machine came to be, say.
#[test]
fn a_firewall_in_another_vpc_is_of_no_use_to_a_machine_that_is_still_to_come() {
    let makes_one = |world: &World| {
        let planned = pass(&mut world.clone(), &mut 0, None, false);
        planned.actions.iter().any(|action| matches!(action.step, Step::CreateSecurityGroup(_)))
    };
    let mut world = World::new(crate::fixture::resource(1));
    let has_one = |world: &mut World| {
        passes(world, 1);
        !world.groups.is_empty()
    };
    assert!((0..ENOUGH).any(|_| has_one(&mut world)));
    assert!(world.instances.is_empty() && !makes_one(&world));
    "vpc-of-before".clone_into(&mut world.groups[0].vpc);
    assert!(makes_one(&world));

    let mut world = serving();
    "vpc-of-before".clone_into(&mut world.groups[0].vpc);
    assert!(!makes_one(&world), "its machine is behind it");
    // A machine is in one VPC with its firewall: this one is behind another, which lost its tags and gets them back as it is made.
    for (vpc, expected) in [("vpc-of-before", false), ("vpc-1", true)] {
        world.instances[0].vpc = Some(vpc.to_owned());
        assert_eq!(makes_one(&world), expected, "{vpc}");
    }
}
