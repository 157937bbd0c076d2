//! Steps of several calls of which only the first was done: the protection of a machine, which EC2 puts on and takes off one half
//! at a time, and settings that QuestDB reads again.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::{InstanceId, Protection};
use resources::RunState;

use super::enumerated::{comes_to, undisturbed};
use super::model::{Lost, Refusal, Renamed, World};
use super::operations::operations;
use super::oracle::check_end;
use super::runner::{Run, Trouble, pass, record, settle};
use super::{serving, wish};
use crate::Step;

/// What guards the machines, as EC2 has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protected(BTreeMap<InstanceId, Protection>);

impl Protected {
    pub(super) fn set(&mut self, instance: &InstanceId, protection: Protection) {
        self.0.insert(instance.clone(), protection);
        self.0.retain(|_, protection| *protection != Protection::OFF);
    }

    fn of(&self, instance: &InstanceId) -> Protection {
        self.0.get(instance).copied().unwrap_or(Protection::OFF)
    }

    /// Whether EC2 would refuse to end it.
    pub(super) fn contains(&self, instance: &InstanceId) -> bool {
        self.of(instance).termination
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl World {
    /// What EC2 says of an instance's protection.
    pub(crate) fn protection(&self, instance: &InstanceId) -> Protection {
        self.protected.of(instance)
    }

    /// Whether it is guarded against both, as a machine that serves has to be.
    pub(super) fn is_protected(&self, instance: &InstanceId) -> bool {
        self.protection(instance) == Protection::ON
    }

    /// Carries out the first call of a step of several; the others are lost.
    pub(super) fn half_do(&mut self, step: &Step) -> Result<Renamed, Refusal> {
        match step {
            // That it cannot be ended is the first to be on and the last to be off.
            Step::Protect { instance } => {
                self.protected.set(instance, Protection { termination: true, stop: false });
            }
            Step::Unprotect { instance } => {
                let before = self.protection(instance);
                self.protected.set(instance, Protection { stop: false, ..before });
            }
            Step::Reload(reload) => {
                let pod = Arc::make_mut(self.children.pod.as_mut().ok_or("no such pod")?);
                pod.metadata.annotations.get_or_insert_default().extend(reload.meanwhile.clone());
            }
            other => panic!("{} is one call", other.name()),
        }
        Err("lost")
    }
}

/// Names of the steps of several calls.
const SEVERAL: [&str; 3] = ["Protect", "Unprotect", "Reload"];

/// The steps of several calls among those of a run, and their names.
fn of_several(steps: &[String]) -> Vec<(usize, &'static str)> {
    let name = |step: &String| SEVERAL.into_iter().find(|name| step.contains(&format!(" {name}: ")));
    steps.iter().enumerate().filter_map(|(at, step)| Some((at, name(step)?))).collect()
}

#[test]
fn every_step_of_several_calls_may_be_half_done_once() {
    let mut met = BTreeMap::new();
    for operation in operations() {
        let (end, Run { steps, passes }) = undisturbed(operation);
        for (at, name) in of_several(&steps) {
            for crash in [false, true] {
                let trouble = Trouble { at, lost: Lost::Half, crash };
                comes_to(&end, &passes, trouble, &format!("{}, {name}, {trouble:?}", operation.name));
            }
            *met.entry(name).or_insert(0) += 1;
        }
    }
    assert_eq!(met.keys().copied().collect::<Vec<_>>(), ["Protect", "Reload", "Unprotect"], "{met:?}");
}

#[test]
fn a_wish_may_turn_round_when_half_of_the_protection_is_off() {
    for run_state in [RunState::Paused, RunState::Deleted] {
        let mut world = serving();
        wish(&mut world, 2, |spec| spec.run_state = run_state);
        let Run { steps, passes } = record(&mut world);
        let (at, _) = of_several(&steps)[0];
        let (before, begun) = passes.iter().rev().find(|(taken, _)| *taken <= at).unwrap();
        let (mut world, mut taken) = (begun.clone(), *before);
        let trouble = Trouble { at, lost: Lost::Half, crash: true };
        pass(&mut world, &mut taken, Some(trouble), false);
        let machine = world.instances[0].id.clone();
        let half = Protection { termination: true, stop: false };
        assert_eq!(world.protection(&machine), half, "{run_state:?}: {steps:?}");
        world.tick();
        wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
        settle(&mut world, None, false);
        check_end(&world, &format!("{run_state:?}, turned round"));
        let lives = world.instances.iter().any(|found| found.id == machine && !found.state.is_ending());
        assert!(lives && world.is_protected(&machine), "{run_state:?}: the machine that lives serves on");
    }
}
