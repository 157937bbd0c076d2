//! The firewall around the machine.
//!
//! *Invariant:* who came in before is kept out by no wish that AWS refuses: rules that may be more than AWS takes are asked for before
//! any other is taken away.

use cloud::{IngressRule, PeerRange, Protocol, SecurityGroup};
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
    let Difference { missing, surplus, may_be_refused } = Difference::of(world, group);
    if missing.is_empty() && surplus.is_empty() {
        plan.say(Part::SecurityGroup, State::Done);
        return Some(group);
    }
    if may_be_refused {
        // Each of these waits for the one before.
        let (surplus, strange): (Vec<_>, Vec<_>) = surplus.into_iter().partition(may_be_ours);
        let (later, first) = in_exchange(missing, &surplus);
        revoke(plan, group, strange);
        authorize(plan, group, first);
        revoke(plan, group, surplus);
        authorize(plan, group, later);
    } else {
        revoke(plan, group, surplus);
        authorize(plan, group, missing);
    }
    plan.wait(Part::SecurityGroup, format!("the rules of {} are being changed", group.id));
    Some(group)
}

/// Whether AWS may refuse the rules that are missing, and those of before are in force until it has taken them.
pub(super) fn may_be_refused(world: &World<'_>) -> bool {
    found(world).is_some_and(|group| Difference::of(world, group).may_be_refused)
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
    let name = build::security_group_name(&world.validated.subject);
    let account = &world.observed.account;
    let named: Vec<&SecurityGroup> = account.groups.iter().filter(|group| group.name == name).collect();
    let of_use = named.iter().find(|group| group.vpc == world.settings.vpc);
    of_use.or_else(|| named.iter().find(|group| has_machine(account, &group.vpc))).copied()
}

/// Whether a machine lives in a VPC, as far as EC2 says where it is.
fn has_machine(account: &Account, vpc: &str) -> bool {
    let mut living = account.instances.iter().filter(|instance| !instance.state.is_ending());
    living.any(|instance| instance.vpc.as_deref().is_none_or(|found| found == vpc))
}

/// What the rules of a group are not as they should be.
struct Difference {
    missing: Vec<IngressRule>,
    surplus: Vec<IngressRule>,
    /// There are to be more than there are of ours, and more than AWS takes of everybody.
    may_be_refused: bool,
}

impl Difference {
    fn of(world: &World<'_>, group: &SecurityGroup) -> Self {
        let wanted = build::security_group_rules(world.validated, world.settings);
        let without = |rules: &[IngressRule], others: &[IngressRule]| -> Vec<IngressRule> {
            rules.iter().filter(|rule| !others.contains(rule)).cloned().collect()
        };
        let count =
            |rules: &[IngressRule], family| rules.iter().filter(|rule| is_ipv6(rule) == family).count();
        let held: Vec<IngressRule> = group.ingress.iter().filter(|rule| may_be_ours(rule)).cloned().collect();
        let may_be_refused = [false, true].into_iter().any(|family| {
            let wanted = count(&wanted, family);
            wanted > SURE && wanted > count(&held, family)
        });
        Self {
            missing: without(&wanted, &group.ingress),
            surplus: without(&group.ingress, &wanted),
            may_be_refused,
        }
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

/// Those that take the places of others, which have to be taken away before, and those by which there are more.
fn in_exchange(missing: Vec<IngressRule>, surplus: &[IngressRule]) -> (Vec<IngressRule>, Vec<IngressRule>) {
    let mut places =
        [false, true].map(|family| surplus.iter().filter(|rule| is_ipv6(rule) == family).count());
    missing.into_iter().partition(|rule| {
        let left = &mut places[usize::from(is_ipv6(rule))];
        let is_free = *left > 0;
        *left -= usize::from(is_free);
        is_free
    })
}

fn revoke(plan: &mut Plan, group: &SecurityGroup, rules: Vec<IngressRule>) {
    if !rules.is_empty() {
        let step = Step::RevokeIngress { group: group.id.clone(), rules };
        plan.act(Part::SecurityGroup, step, "somebody could come in who is not allowed");
    }
}

fn authorize(plan: &mut Plan, group: &SecurityGroup, rules: Vec<IngressRule>) {
    if !rules.is_empty() {
        let step = Step::AuthorizeIngress { group: group.id.clone(), rules };
        plan.act(Part::SecurityGroup, step, "somebody who is allowed could not come in");
    }
}

#[cfg(test)]
mod tests {
    use cloud::SecurityGroupId;

    use super::*;

    fn rules(ranges: &[&str]) -> Vec<IngressRule> {
        ranges.iter().map(|range| IngressRule::tcp(port::HTTP, *range)).collect()
    }

    #[test]
    fn only_what_takes_the_place_of_one_of_its_family_waits_for_that() {
        let wanted = ["10.1.0.0/16", "10.2.0.0/16", "2001:db8:1::/48", "10.3.0.0/16"];
        for (surplus, later, first) in [
            (rules(&[]), rules(&[]), rules(&wanted)),
            (rules(&["10.9.0.0/16"]), rules(&wanted[..1]), rules(&wanted[1..])),
            (rules(&["2001:db8:9::/48", "2001:db8:8::/48"]), rules(&wanted[2..3]), {
                rules(&[wanted[0], wanted[1], wanted[3]])
            }),
            (
                rules(&["10.9.0.0/16", "10.8.0.0/16", "10.7.0.0/16", "2001:db8:9::/48"]),
                rules(&wanted),
                rules(&[]),
            ),
        ] {
            assert_eq!(in_exchange(rules(&wanted), &surplus), (later, first), "{surplus:?}");
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
