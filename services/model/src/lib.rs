//! The delivery protocol as a model, and a checker that walks through everything that can happen within small bounds.
//!
//! - [`state`]: everything that is somewhere; [`step`]: what can happen next, faults and zombies among it.
//! - [`guards`]: what stands between a fault and a broken promise; the product's own pure functions where it has them.
//! - [`invariants`]: what is promised; [`bounds`]: how much may happen.
//!
//! The tests show that no promise is broken in any state that is reached (within one of the bounds to a depth only), that the world
//! comes to rest by itself, and that each guard is needed: without it the checker finds a history that breaks a promise.
//!
//! For tests only: nothing that ships uses it. `docs/protocol.md` says in words what is modelled here, this crate's README in
//! tables.

pub mod bounds;
pub mod guards;
pub mod invariants;
mod product;
pub mod state;
pub mod step;

use stateright::{Model, Property};

use crate::bounds::Bounds;
use crate::guards::Guards;
use crate::invariants::Promise;
use crate::state::State;
use crate::step::Step;

/// That the bounds are wide enough for every change to be carried out.
const REACHED: &str = "the last change is reached";

/// The protocol within its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// How much may happen.
    pub bounds: Bounds,
    /// Which guards hold.
    pub guards: Guards,
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let Bounds { databases, provisioners, resends, faults, .. } = self.bounds;
        vec![State::new(databases, provisioners, resends, faults)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        if state.broken.is_none() {
            actions.extend(step::progress(self, state));
            actions.extend(step::chance(self, state));
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut after = before.clone();
        step::apply(self, &mut after, &step);
        if after == *before {
            return None;
        }
        after.broken = invariants::broken(before, &step, &after).or_else(|| {
            let rests = step::progress(self, &after).is_empty();
            if rests { invariants::unkept(&after, self.bounds.gossip) } else { None }
        });
        Some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::sometimes(REACHED, |model: &Self, state| {
            state.asked == model.bounds.mints && step::progress(model, state).is_empty()
        })];
        properties.extend(Promise::ALL.map(Promise::property));
        properties
    }
}

impl Promise {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.property().name
    }

    /// That no state breaks it.
    fn property(self) -> Property<Protocol> {
        macro_rules! kept {
            ($($promise:ident)*) => {
                match self {
                    $(Self::$promise => Property::always(stringify!($promise), |_, state: &State| {
                        state.broken != Some(Self::$promise)
                    }),)*
                }
            };
        }
        kept!(
            NothingAcceptedIsLost NothingOlderWins ParkedNeverOvertakes NothingDeletedReturns OnePositionOneContent
            StatusNeverGoesBack EndsAreFinal TheNewestIsBelieved OnlyTheOwnClusterIsBelieved GossipIsTakenInOnce
        )
    }
}

#[cfg(test)]
mod tests;
