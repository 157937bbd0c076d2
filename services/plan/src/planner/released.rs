//! Which machines may be taken down, as an annotation of the resource says it: generations, each written before the
//! protection of its machine is taken off.
//!
//! They are named one by one. A machine that a database was to move to, and that is given up again, is younger than the one
//! that serves on.

use std::collections::BTreeSet;

use cloud::Instance;
use resources::{QuestDB, names};

use super::left::{self, Left, Proof};
use super::machine::generation_of;
use super::{World, home, joined};
use crate::{Goal, Part, Plan, State, Step};

/// Generations that were given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Released(BTreeSet<u64>);

impl Released {
    pub(super) fn of(resource: &QuestDB) -> Self {
        Self::noted(resource, names::RELEASED)
    }

    /// Those of them that were given up because they did not join the cluster, their Nodes did not become ready, or those were closed.
    pub(super) fn unjoined(resource: &QuestDB) -> Self {
        Self::noted(resource, names::UNJOINED)
    }

    fn noted(resource: &QuestDB, key: &str) -> Self {
        let annotations = resource.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(key));
        Self(text.into_iter().flat_map(|text| text.split(',')).filter_map(|one| one.parse().ok()).collect())
    }

    pub(super) fn contains(&self, generation: u64) -> bool {
        self.0.contains(&generation)
    }

    pub(super) fn highest(&self) -> Option<u64> {
        self.0.last().copied()
    }

    /// The text that has this one too; of the others only those that still mean something.
    pub(super) fn with(&self, generation: u64, counts: impl Fn(u64) -> bool) -> String {
        let others = self.0.iter().copied().filter(|one| counts(*one));
        let all: BTreeSet<u64> = others.chain([generation]).collect();
        all.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Ends one machine: written down first, then unprotected, then terminated, once it is proved that the database has left it.
/// *Invariant:* none that EC2 would destroy a disk with.
pub(super) fn end(
    world: &World<'_>,
    plan: &mut Plan,
    instance: &Instance,
    left: Left,
    (part, why): (Part, &str),
) {
    if let Some(text) = left::doomed(world, instance) {
        plan.say(part, State::Broken(text));
        return;
    }
    let generation = generation_of(instance).unwrap_or_default();
    let known = Released::of(world.resource);
    let is_of_row = matches!(left.proof, Proof::Unjoined | Proof::Unready | Proof::Closed);
    let unjoined = is_of_row.then(|| joined::noted(world, generation));
    let is_told = unjoined.is_none() || Released::unjoined(world.resource).contains(generation);
    let is_written = known.contains(generation) && is_told;
    // One that is written down while the database serves is lost to it: not even that is done by an older look.
    if is_written || world.validated.goal == Goal::Serve {
        plan.act(part, Step::ProveLeft(left), why);
    }
    if !is_written {
        // One write to the resource in a pass: the next would be refused.
        if !plan.actions.iter().any(|action| matches!(action.step, Step::WriteReleased { .. })) {
            let lives = |one| home::lives(world.resource, world.observed, one);
            let counts = |one| lives(one) || home::written(world.resource) == Some(one);
            let released = known.with(generation, counts);
            let reason = "a leader that wakes late must find that the machine is no longer its own";
            plan.act(part, Step::WriteReleased { released, unjoined }, reason);
        }
        return;
    }
    plan.act(part, Step::Unprotect { instance: instance.id.clone() }, why);
    plan.act(part, Step::TerminateInstance { instance: instance.id.clone() }, why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::resource;

    #[test]
    fn generations_are_named_one_by_one() {
        let released = |text: &str| {
            let mut resource = resource(1);
            let annotations = resource.metadata.annotations.get_or_insert_default();
            annotations.insert(names::RELEASED.to_owned(), text.to_owned());
            Released::of(&resource)
        };
        assert_eq!(Released::of(&resource(1)), Released::default());
        assert_eq!(released("nonsense"), Released::default());
        let some = released("9,11");
        assert!(some.contains(9) && some.contains(11) && !some.contains(10) && !some.contains(1));
        assert_eq!(some.with(10, |_| true), "9,10,11");
        assert_eq!(some.with(9, |one| one > 9), "9,11");
        assert_eq!(Released::default().with(7, |_| true), "7");
    }
}
