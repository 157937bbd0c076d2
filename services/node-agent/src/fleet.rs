//! From EC2's list of instances to machines: which boot, lose power, are cut off, or are gone for good. Pure; the loop
//! that acts on it is in `agent`.
//!
//! *Invariant:* a list that failed is no list, and an instance missing from one list is not gone: it has to be missing
//! for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud::{Instance, InstanceId, InstanceState};
use jiff::Timestamp;

use crate::machine::Power;
use crate::pod::probe::later;

/// How long an instance may be missing from EC2's answers before it counts as gone.
const MISSING: Duration = Duration::from_secs(10);

/// What the agent knows of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its machine runs here, with this power.
    pub power: Power,
    /// It was missing from every answer since then.
    pub missing_since: Option<Timestamp>,
    /// Gone for good, and nothing of it is left to do.
    pub buried: bool,
}

impl Known {
    /// Of an instance whose Node is there but which does not run here.
    pub const fn off() -> Self {
        Self { power: Power::Off, missing_since: None, buried: false }
    }
}

/// What ails instances although EC2 calls them running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ailments {
    /// Cut off from the network.
    pub isolated: BTreeSet<InstanceId>,
    /// Dead hardware.
    pub impaired: BTreeSet<InstanceId>,
}

/// What to do about an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start its machine.
    Boot(InstanceId, Power),
    /// Change the power of its machine.
    Switch(InstanceId, Power),
    /// It is missing since now.
    Miss(InstanceId),
    /// It is back.
    Return(InstanceId),
    /// Gone for good: delete its Node.
    Bury(InstanceId),
}

/// Compares EC2's list with what is known.
pub fn decide(
    listed: &[Instance],
    known: &BTreeMap<InstanceId, Known>,
    ailments: &Ailments,
    now: Timestamp,
) -> Vec<Action> {
    let mut actions: Vec<Action> =
        listed.iter().flat_map(|instance| of_listed(instance, known.get(&instance.id), ailments)).collect();
    let listed: BTreeSet<&InstanceId> = listed.iter().map(|instance| &instance.id).collect();
    for (id, known) in known.iter().filter(|(id, known)| !listed.contains(id) && !known.buried) {
        match known.missing_since {
            None => actions.push(Action::Miss(id.clone())),
            Some(since) if now >= later(since, MISSING) => {
                if known.power != Power::Off {
                    actions.push(Action::Switch(id.clone(), Power::Off));
                }
                actions.push(Action::Bury(id.clone()));
            }
            Some(_) => {}
        }
    }
    actions
}

fn of_listed(instance: &Instance, known: Option<&Known>, ailments: &Ailments) -> Vec<Action> {
    let id = || instance.id.clone();
    let mut actions = Vec::new();
    if known.is_some_and(|known| known.missing_since.is_some()) {
        actions.push(Action::Return(id()));
    }
    let power = known.map_or(Power::Off, |known| known.power);
    let Some(wanted) = power_of(instance, ailments) else { return actions };
    match (power, wanted) {
        (Power::Off, Power::Off) => {}
        (Power::Off, wanted) if instance.private_ip.is_some_and(|address| address.is_ipv4()) => {
            actions.push(Action::Boot(id(), wanted));
        }
        (Power::Off, _) => {}
        (power, wanted) if power != wanted => actions.push(Action::Switch(id(), wanted)),
        _ => {}
    }
    if instance.state == InstanceState::Terminated && known.is_some_and(|known| !known.buried) {
        actions.push(Action::Bury(id()));
    }
    actions
}

/// `None` when EC2's word tells nothing.
fn power_of(instance: &Instance, ailments: &Ailments) -> Option<Power> {
    match instance.state {
        InstanceState::Running if ailments.impaired.contains(&instance.id) => Some(Power::Off),
        InstanceState::Running if ailments.isolated.contains(&instance.id) => Some(Power::Isolated),
        InstanceState::Running => Some(Power::On),
        InstanceState::Stopping
        | InstanceState::Stopped
        | InstanceState::ShuttingDown
        | InstanceState::Terminated => Some(Power::Off),
        InstanceState::Pending | InstanceState::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const ID: &str = "i-1";

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn known(power: Power) -> Known {
        Known { power, ..Known::off() }
    }

    fn decide_one(state: Option<InstanceState>, known: Option<Known>, ailments: &Ailments) -> Vec<Action> {
        let listed: Vec<_> = state.into_iter().map(|state| fixture::instance(ID, state)).collect();
        let known = known.into_iter().map(|known| (ID.into(), known)).collect();
        decide(&listed, &known, ailments, second(100))
    }

    #[test]
    fn ec2_states_switch_machines() {
        use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Terminated};
        let check = |state: InstanceState, before: Option<Known>, expected: &[Action]| {
            assert_eq!(
                decide_one(Some(state.clone()), before.clone(), &Ailments::default()),
                expected,
                "{state:?} {before:?}"
            );
        };
        let off = || Action::Switch(ID.into(), Power::Off);
        let bury = || Action::Bury(ID.into());
        check(Pending, None, &[]);
        check(Running, None, &[Action::Boot(ID.into(), Power::On)]);
        check(Running, Some(known(Power::On)), &[]);
        check(Running, Some(known(Power::Off)), &[Action::Boot(ID.into(), Power::On)]);
        check(InstanceState::Unknown("new".into()), Some(known(Power::On)), &[]);
        check(Stopping, Some(known(Power::On)), &[off()]);
        check(Stopped, Some(known(Power::Off)), &[]);
        check(Stopped, Some(known(Power::Isolated)), &[off()]);
        check(ShuttingDown, Some(known(Power::On)), &[off()]);
        check(Terminated, Some(known(Power::On)), &[off(), bury()]);
        check(Terminated, Some(known(Power::Off)), &[bury()]);
        check(Terminated, None, &[]);
        check(Terminated, Some(Known { buried: true, ..Known::off() }), &[]);
    }

    #[test]
    fn ailments_count_while_ec2_says_running() {
        let isolated = Ailments { isolated: BTreeSet::from([ID.into()]), ..Ailments::default() };
        let impaired = Ailments { impaired: BTreeSet::from([ID.into()]), ..Ailments::default() };
        let running = Some(InstanceState::Running);
        let switch = |power| vec![Action::Switch(ID.into(), power)];
        assert_eq!(decide_one(running.clone(), Some(known(Power::On)), &isolated), switch(Power::Isolated));
        assert_eq!(
            decide_one(running.clone(), Some(known(Power::Isolated)), &Ailments::default()),
            switch(Power::On)
        );
        assert_eq!(decide_one(running.clone(), Some(known(Power::Isolated)), &isolated), []);
        assert_eq!(decide_one(running.clone(), Some(known(Power::On)), &impaired), switch(Power::Off));
        assert_eq!(decide_one(running, None, &isolated), [Action::Boot(ID.into(), Power::Isolated)]);
    }

    #[test]
    fn an_instance_is_gone_only_after_a_while() {
        let missing =
            |since: Option<i64>| Some(Known { missing_since: since.map(second), ..known(Power::On) });
        let none = Ailments::default();
        assert_eq!(decide_one(None, missing(None), &none), [Action::Miss(ID.into())]);
        assert_eq!(decide_one(None, missing(Some(91)), &none), []);
        let gone = [Action::Switch(ID.into(), Power::Off), Action::Bury(ID.into())];
        assert_eq!(decide_one(None, missing(Some(90)), &none), gone);
        assert_eq!(
            decide_one(Some(InstanceState::Running), missing(Some(90)), &none),
            [Action::Return(ID.into())]
        );
    }

    #[test]
    fn a_machine_without_an_address_waits() {
        let mut instance = fixture::instance(ID, InstanceState::Running);
        instance.private_ip = None;
        assert_eq!(decide(&[instance], &BTreeMap::new(), &Ailments::default(), second(0)), []);
    }
}
