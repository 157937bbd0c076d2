//! The firewall around the machine.

use cloud::{IngressRule, SecurityGroup};

use super::World;
use crate::{Part, Plan, State, Step, build};

/// The group, once it lets in whom it should.
pub(super) fn security_group<'a>(world: &World<'a>, plan: &mut Plan) -> Option<&'a SecurityGroup> {
    let subject = &world.validated.subject;
    let intended = build::security_group(subject, world.settings);
    let found = world.observed.account.groups.iter().find(|group| group.name == intended.name);
    let Some(group) = found else {
        plan.act(
            Part::SecurityGroup,
            Step::CreateSecurityGroup(intended),
            "the machine needs a firewall of its own",
        );
        plan.wait(Part::SecurityGroup, "the security group is being created");
        return None;
    };
    let wanted = build::security_group_rules(world.validated, world.settings);
    let missing: Vec<IngressRule> =
        wanted.iter().filter(|rule| !group.ingress.contains(rule)).cloned().collect();
    let surplus: Vec<IngressRule> =
        group.ingress.iter().filter(|rule| !wanted.contains(rule)).cloned().collect();
    if missing.is_empty() && surplus.is_empty() {
        plan.say(Part::SecurityGroup, State::Done);
        return Some(group);
    }
    if !surplus.is_empty() {
        let step = Step::RevokeIngress { group: group.id.clone(), rules: surplus };
        plan.act(Part::SecurityGroup, step, "somebody could come in who is not allowed");
    }
    if !missing.is_empty() {
        let step = Step::AuthorizeIngress { group: group.id.clone(), rules: missing };
        plan.act(Part::SecurityGroup, step, "somebody who is allowed could not come in");
    }
    plan.wait(Part::SecurityGroup, format!("the rules of {} are being changed", group.id));
    Some(group)
}
