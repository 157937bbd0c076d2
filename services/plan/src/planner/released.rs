//! Which machines may be taken down, as an annotation of the resource says it: generations, each written before the
//! protection of its machine is taken off.
//!
//! They are named one by one. A machine that a database was to move to, and that is given up again, is younger than the one
//! that serves on.

use std::collections::BTreeSet;

use resources::{QuestDB, names};

/// Generations that were given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Released(BTreeSet<u64>);

impl Released {
    pub(super) fn of(resource: &QuestDB) -> Self {
        let annotations = resource.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(names::RELEASED));
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
