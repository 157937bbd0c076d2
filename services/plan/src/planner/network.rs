//! The firewall around the machine.
//!
//! *Invariant:* who came in before is kept out by no wish of which it is not known whether AWS takes it: rules that may be more than it
//! takes are asked for before any other is taken away. *Invariant:* who is not to come in any more is kept out once AWS has answered,
//! whatever it answered. *Invariant:* no machine waits for rules that AWS may refuse where others stand, so that a database is healed by
//! those; for its first ones it waits, because nobody could come in without.

use cloud::{IngressRule, Instance, PeerRange, Protocol, SecurityGroup, SecurityGroupId};
use resources::names::port;

use super::{World, held};
use crate::{Account, Part, Plan, State, Step, build};

/// How many rules for addresses of a family AWS takes of every account in one group. Of some it takes more, and does not say how many.
const SURE: usize = 60;

/// The group, once it lets in whom it should.
pub(super) fn security_group<'a>(world: &World<'a>, plan: &mut Plan) -> Option<&'a SecurityGroup> {
    let Some(group) = found(world) else {
        plan.act(
            Part::SecurityGroup,
            Step::CreateSecurityGroup(build::security_group(&world.validated.subject, world.settings)),
            "the machine needs a firewall of its own",
        );
        plan.wait(Part::SecurityGroup, "the security group is being created");
        return None;
    };
    let steps = Difference::of(world, group).steps(&group.id);
    let state = |part| {
        let is_changed = steps.iter().any(|(of, _)| *of == part);
        is_changed.then(|| State::Running(format!("the rules of {} are being changed", group.id)))
    };
    plan.say(Part::SecurityGroup, state(Part::SecurityGroup).unwrap_or(State::Done));
    for part in [Part::Rules, Part::FurtherRules] {
        if let Some(state) = state(part) {
            plan.say(part, state);
        }
    }
    for (part, step) in steps {
        let reason = if matches!(step, Step::RevokeIngress { .. }) {
            "somebody could come in who is not allowed"
        } else {
            "somebody who is allowed could not come in"
        };
        plan.act(part, step, reason);
    }
    Some(group)
}

/// Whether rules of before are in force because AWS has not answered yet whether it takes more.
pub(super) fn awaits_answer(world: &World<'_>) -> bool {
    let Some(group) = found(world) else { return false };
    let Difference { surplus, missing, .. } = Difference::of(world, group);
    let is_refused = world.observed.memory.refused.contains(&Part::FurtherRules);
    !surplus.is_empty() && !missing.further.is_empty() && !is_refused
}

/// How it is with a group that is being removed. EC2 keeps one that others still use, and says no more than that.
pub(super) fn going(world: &World<'_>, group: &SecurityGroup) -> State {
    let id = &group.id;
    let text = format!("{id} is being removed");
    let since = held::begun(world, Part::SecurityGroupRemoval).filter(|since| held::is_late(world, *since));
    let Some(since) = since else { return State::Running(text) };
    State::Broken(format!(
        "{text} since {since:.0}; most often EC2 keeps it for a network interface of others, or for a rule of another group that names it: \
         aws ec2 describe-network-interfaces --filters Name=group-id,Values={id}; \
         aws ec2 describe-security-groups --filters Name=ip-permission.group-id,Values={id}"
    ))
}

/// The group in the operator's VPC. One in another is of no use to a machine that is still to be launched, and stays that of one that lives
/// there. Where none is, the one in the operator's VPC is there and lost its tags, or is still to be made.
fn found<'a>(world: &World<'a>) -> Option<&'a SecurityGroup> {
    let all = all_named(world);
    let of_use = all.iter().find(|group| group.vpc == world.settings.vpc);
    of_use.or_else(|| all.iter().find(|group| has_machine(&world.observed.account, &group.vpc))).copied()
}

/// The group that a machine is to be behind, which is in its VPC. EC2 may not say where the machine is: then it is the one in use.
pub(super) fn of_machine<'a>(world: &World<'a>, instance: &Instance) -> Option<&'a SecurityGroup> {
    let Some(vpc) = &instance.vpc else { return found(world) };
    all_named(world).into_iter().find(|group| group.vpc == *vpc)
}

/// The groups of the database, in whatever VPC.
fn all_named<'a>(world: &World<'a>) -> Vec<&'a SecurityGroup> {
    let name = build::security_group_name(&world.validated.subject);
    world.observed.account.groups.iter().filter(|group| group.name == name).collect()
}

/// Whether a machine lives in a VPC, as far as EC2 says where it is.
fn has_machine(account: &Account, vpc: &str) -> bool {
    let mut living = account.instances.iter().filter(|instance| !instance.state.is_ending());
    living.any(|instance| instance.vpc.as_deref().is_none_or(|found| found == vpc))
}

/// In what the rules of a group are not as they should be.
struct Difference {
    /// By these nobody was ever let in on purpose.
    strange: Vec<IngressRule>,
    /// These may be of a wish of before.
    surplus: Vec<IngressRule>,
    missing: Missing,
    /// Whether anybody comes in who is to.
    lets_in: bool,
}

impl Difference {
    fn of(world: &World<'_>, group: &SecurityGroup) -> Self {
        let wanted = build::rules_by_weight(world.validated, world.settings);
        let (kept, others): (Vec<_>, Vec<_>) =
            group.ingress.iter().cloned().partition(|rule| wanted.contains(rule));
        let (surplus, strange): (Vec<_>, Vec<_>) = others.into_iter().partition(may_be_ours);
        let missing = wanted.into_iter().filter(|rule| !kept.contains(rule));
        Self { missing: Missing::of(missing, &kept, &surplus), lets_in: !kept.is_empty(), strange, surplus }
    }

    /// What is done about it, in order, and for which part.
    fn steps(self, group: &SecurityGroupId) -> Vec<(Part, Step)> {
        let Self { strange, surplus, missing: Missing { now, further, later }, lets_in } = self;
        let revoke = |rules: Vec<IngressRule>| {
            (!rules.is_empty())
                .then(|| (Part::SecurityGroup, Step::RevokeIngress { group: group.clone(), rules }))
        };
        let authorize = |part, rules: Vec<IngressRule>| {
            (!rules.is_empty()).then(|| (part, Step::AuthorizeIngress { group: group.clone(), rules }))
        };
        let part = if lets_in { Part::Rules } else { Part::SecurityGroup };
        let steps = if further.is_empty() {
            vec![revoke([strange, surplus].concat()), authorize(part, [now, later].concat())]
        } else {
            vec![
                revoke(strange),
                authorize(part, now),
                authorize(Part::FurtherRules, further),
                revoke(surplus),
                authorize(part, later),
            ]
        };
        steps.into_iter().flatten().collect()
    }
}

/// Rules that are missing, by what has to be before AWS takes them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Missing {
    /// Nothing: with those that there are they are no more than it takes of everybody.
    now: Vec<IngressRule>,
    /// With these there are as many as are asked for in all, which may be more than it takes.
    further: Vec<IngressRule>,
    /// Those that are too many have to be gone, whose places they take.
    later: Vec<IngressRule>,
}

impl Missing {
    /// Of rules that are missing beside those that stay, and those that are too many.
    fn of(missing: impl Iterator<Item = IngressRule>, kept: &[IngressRule], surplus: &[IngressRule]) -> Self {
        let count =
            |rules: &[IngressRule], family| rules.iter().filter(|rule| is_ipv6(rule) == family).count();
        let mut places = [false, true].map(|family| {
            let later = count(surplus, family);
            (SURE.saturating_sub(count(kept, family) + later), later)
        });
        let mut found = Self::default();
        for rule in missing {
            let (now, later) = &mut places[usize::from(is_ipv6(&rule))];
            if *now > 0 {
                *now -= 1;
                found.now.push(rule);
            } else if *later > 0 {
                *later -= 1;
                found.later.push(rule);
            } else {
                found.further.push(rule);
            }
        }
        found
    }
}

/// AWS counts the two families apart.
const fn is_ipv6(rule: &IngressRule) -> bool {
    matches!(rule.peer, PeerRange::Ipv6(_))
}

/// Whether a rule may be one of a wish of before: by any other nobody was ever let in on purpose.
fn may_be_ours(rule: &IngressRule) -> bool {
    let ports = [port::HTTP, port::PG, port::ILP, port::MIN, port::KUBELET];
    rule.protocol == Protocol::Tcp
        && rule.from_port == rule.to_port
        && ports.contains(&rule.from_port)
        && matches!(rule.peer, PeerRange::Ipv4(_) | PeerRange::Ipv6(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes now, further and later, by the numbers of rules.
    type Shares = [&'static [usize]; 3];

    fn rules(ranges: &[&str]) -> Vec<IngressRule> {
        ranges.iter().map(|range| IngressRule::tcp(port::HTTP, *range)).collect()
    }

    /// So many others of one family.
    fn others(count: usize) -> Vec<IngressRule> {
        (0..count).map(|number| IngressRule::tcp(port::PG, format!("192.168.{number}.0/24"))).collect()
    }

    #[test]
    fn what_aws_may_refuse_is_asked_for_apart_from_what_it_takes_and_from_what_takes_the_places_of_others() {
        let wanted = ["10.1.0.0/16", "2001:db8:1::/48", "10.2.0.0/16", "10.3.0.0/16"];
        let by = |numbers: &[usize]| -> Vec<IngressRule> {
            numbers.iter().map(|number| IngressRule::tcp(port::HTTP, wanted[*number])).collect()
        };
        let rows: [(usize, &[&str], Shares); 9] = [
            (0, &[], [&[0, 1, 2, 3], &[], &[]]),
            (57, &[], [&[0, 1, 2, 3], &[], &[]]),
            (58, &[], [&[0, 1, 2], &[3], &[]]),
            (60, &[], [&[1], &[0, 2, 3], &[]]),
            // Where there are more, AWS takes as many.
            (70, &[], [&[1], &[0, 2, 3], &[]]),
            (70, &["10.9.0.0/16"], [&[1], &[2, 3], &[0]]),
            (57, &["10.9.0.0/16"], [&[0, 1, 2], &[], &[3]]),
            (58, &["10.9.0.0/16"], [&[0, 1], &[3], &[2]]),
            // Families are counted apart.
            (60, &["2001:db8:9::/48"], [&[1], &[0, 2, 3], &[]]),
        ];
        for (kept, surplus, [now, further, later]) in rows {
            let found = Missing::of(by(&[0, 1, 2, 3]).into_iter(), &others(kept), &rules(surplus));
            let expected = Missing { now: by(now), further: by(further), later: by(later) };
            assert_eq!(found, expected, "{kept} {surplus:?}");
        }
    }

    #[test]
    fn what_aws_may_refuse_is_asked_for_before_anything_goes_that_may_be_of_a_wish_of_before() {
        let [strange, surplus, now, further, later] =
            ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16", "10.5.0.0/16"]
                .map(|range| rules(&[range]));
        let group = SecurityGroupId::new("sg-1");
        let revoke = |rules: &[&[IngressRule]]| {
            (Part::SecurityGroup, Step::RevokeIngress { group: group.clone(), rules: rules.concat() })
        };
        let authorize = |part, rules: &[&[IngressRule]]| {
            (part, Step::AuthorizeIngress { group: group.clone(), rules: rules.concat() })
        };
        for lets_in in [false, true] {
            let steps = |further: &[IngressRule]| {
                let missing = Missing { now: now.clone(), further: further.to_vec(), later: later.clone() };
                let (strange, surplus) = (strange.clone(), surplus.clone());
                Difference { strange, surplus, missing, lets_in }.steps(&group)
            };
            let part = if lets_in { Part::Rules } else { Part::SecurityGroup };
            assert_eq!(steps(&[]), [revoke(&[&strange, &surplus]), authorize(part, &[&now, &later])]);
            // Each of these waits for the one before.
            let expected = [
                revoke(&[&strange]),
                authorize(part, &[&now]),
                authorize(Part::FurtherRules, &[&further]),
                revoke(&[&surplus]),
                authorize(part, &[&later]),
            ];
            assert_eq!(steps(&further), expected);
            let missing = Missing { further: further.clone(), ..Missing::default() };
            let alone = Difference { strange: Vec::new(), surplus: Vec::new(), missing, lets_in };
            assert_eq!(alone.steps(&group), [authorize(Part::FurtherRules, &[&further])]);
        }
    }

    #[test]
    fn a_rule_of_no_port_of_ours_was_let_in_by_somebody_else() {
        let ours = IngressRule::tcp(port::PG, "10.0.0.0/8");
        let other = |change: fn(&mut IngressRule)| {
            let mut rule = ours.clone();
            change(&mut rule);
            rule
        };
        assert!(may_be_ours(&ours) && may_be_ours(&IngressRule::tcp(port::KUBELET, "2001:db8::/32")));
        for strange in [
            IngressRule::tcp(22, "10.0.0.0/8"),
            other(|rule| rule.to_port += 1),
            other(|rule| rule.protocol = Protocol::All),
            other(|rule| rule.peer = PeerRange::Group(SecurityGroupId::new("sg-2"))),
            other(|rule| rule.peer = PeerRange::PrefixList("pl-1".to_owned())),
        ] {
            assert!(!may_be_ours(&strange), "{strange:?}");
        }
    }
}
