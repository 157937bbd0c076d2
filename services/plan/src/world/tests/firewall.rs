//! More rules of the firewall than AWS takes: whoever came in before does so on, and who is taken out of a wish that can be carried out
//! does not.

use cloud::{IngressRule, PeerRange};
use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use resources::Phase;

use super::model::World;
use super::operations::{Operation, change, operation};
use super::reach::condition as word;
use super::runner::{ENOUGH, settle};
use super::{check_serving, pass, phase, serving};
use crate::{Part, State, Step, pod_serves};

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

fn let_in(world: &mut World, numbers: std::ops::Range<u32>) {
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

/// Which rules come in, and what the policy says.
fn fences(world: &World) -> (Vec<IngressRule>, Option<NetworkPolicySpec>) {
    let policy = world.children.network_policy.as_ref().unwrap();
    (world.groups[0].ingress.clone(), policy.spec.clone())
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
fn who_came_in_before_does_so_on_while_aws_refuses_more() {
    for numbers in [50..81, 29..60, 0..31] {
        let mut world = serving_many();
        world.full.rules = Some(60);
        let before = fences(&world);
        let_in(&mut world, numbers.clone());
        // By these nobody was let in by an earlier wish.
        let strange = [22, 23, 24].map(|port| IngressRule::tcp(port, "0.0.0.0/0"));
        world.groups[0].ingress.extend(strange);
        passes(&mut world, 6);
        assert_eq!(fences(&world), before, "{numbers:?}");
        assert_eq!(word(&world, "Ready").unwrap().0, "True", "{numbers:?}");
        let planned = pass(&mut world, &mut 0, None, false);
        let waits = planned.state(Part::Isolation);
        assert!(matches!(waits, Some(State::Running(text)) if text.contains("security group")), "{waits:?}");
        assert_ne!(phase(&world), Some(Phase::Ready), "{numbers:?}");

        // Somebody takes its StatefulSet away: under the rules of before it is started again.
        let mut stopped = world.clone();
        (stopped.children.stateful_set, stopped.children.pod) = (None, None);
        stopped.let_go();
        passes(&mut stopped, 10);
        assert!(stopped.children.pod.as_deref().is_some_and(pod_serves), "{numbers:?}");
        assert_eq!(fences(&stopped), before, "{numbers:?}");

        // The account takes more by now, or the wish is for less.
        let mut raised = world.clone();
        raised.full.rules = Some(62);
        settle(&mut raised, None, false);
        check_serving(&raised, None);
        assert_eq!(raised.groups[0].ingress.len(), 62, "{numbers:?}");
        let_in(&mut world, numbers.start..numbers.end - 1);
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(world.groups[0].ingress.len(), 60, "{numbers:?}");
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
