//! Objects that somebody else deletes again and again, or takes the labels off by which they are found. They are told like records of a
//! name and made again each time, because the database needs them: who makes one keeps a distance of seconds by himself.

use std::collections::btree_map::Entry;
use std::iter;
use std::time::Instant;

use plan::{Kind, Manifest, Target};
use resources::{Phase, names};

use super::{Contention, Object, Repairs};
use crate::apply::Pass;

/// By what they are told from objects of which fields are fought over.
pub(super) const KIND: &str = "Returns";

/// Remembers an object that was made, or found without our labels.
pub(in crate::apply) fn came_back(pass: &Pass<'_>, manifest: &Manifest) {
    let phase = pass.resource.status.as_ref().and_then(|status| status.phase);
    let object = object(&pass.validated.subject.uid, manifest.kind, &manifest.name);
    if pass.context.contention.returned(object, phase, Instant::now()) {
        pass.context.measures.contended(manifest.kind.as_str());
    }
}

/// What we delete ourselves nobody else takes away.
pub(in crate::apply) fn deleted(pass: &Pass<'_>, target: &Target) {
    pass.context.contention.deleted(&object(&pass.validated.subject.uid, target.kind, &target.name));
}

fn object(uid: &str, kind: Kind, name: &str) -> Object {
    (uid.to_owned(), KIND, format!("{} {name}", kind.as_str()))
}

/// It holds no moving number, so that what means the same is said once. Nothing where nobody fights.
pub(super) fn told(object: &str, repairs: &Repairs) -> Option<String> {
    repairs.is_fought(object).then(|| {
        format!(
            "somebody else deletes {object} again and again, or takes off labels by which it is found, such as {}; it is put back each \
             time. Find out who it is (the audit log of the API server tells who deletes and patches it) and have them let it be",
            names::LABEL_DATABASE
        )
    })
}

impl Contention {
    /// An object is there again. Whether it turned out to be fought over by that: the first return of a while may have been ours, and
    /// in this phase of its database it may never have been there.
    fn returned(&self, object: Object, phase: Option<Phase>, now: Instant) -> bool {
        if matches!(phase, None | Some(Phase::Pending | Phase::Provisioning)) {
            return false;
        }
        let name = object.2.clone();
        // Nobody else may ask for those of others for long: what counts no more is forgotten here, too.
        let mut all = self.recent(now);
        let repairs = match all.entry(object) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(first) => {
                first.insert(Repairs::new("", now));
                return false;
            }
        };
        repairs.last = now;
        let begins = repairs.count(iter::once(name), now);
        // Nothing of it waits for a turn.
        repairs.paced = None;
        begins
    }

    /// An object was deleted by us: how often it came back before says nothing of the next time.
    fn deleted(&self, object: &Object) {
        self.lock().remove(object);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::WHILE;
    use super::*;

    const SERVES: Option<Phase> = Some(Phase::Ready);

    fn service() -> Object {
        object("uid", Kind::Service, "trades")
    }

    /// Which of the returns at these minutes turned out to be a fight.
    fn fights<const N: usize>(contention: &Contention, began: Instant, minutes: [u64; N]) -> [bool; N] {
        minutes.map(|minute| contention.returned(service(), SERVES, began + Duration::from_mins(minute)))
    }

    #[test]
    fn what_is_deleted_again_and_again_is_told_until_nobody_does_any_more() {
        let (contention, began) = (Contention::default(), Instant::now());
        assert_eq!(fights(&contention, began, [0, 1, 2, 3, 4]), [false, false, false, true, false]);
        let last = began + Duration::from_mins(4);
        let told = contention.of_others("uid", last);
        assert!(told.len() == 1 && told[0].contains("deletes Service trades again"), "{told:?}");
        assert_eq!(contention.waits("uid", last), None, "nothing is held back");
        assert_eq!(contention.of_others("other", last), Vec::<String>::new());
        assert_eq!(contention.of_others("uid", last + WHILE), Vec::<String>::new());
        contention.returned(object("other", Kind::Service, "quotes"), SERVES, last + WHILE);
        assert_eq!(contention.lock().len(), 1, "what counts no more is kept");
    }

    #[test]
    fn seldom_returns_and_those_of_other_objects_are_no_fight() {
        let (contention, began) = (Contention::default(), Instant::now());
        assert_eq!(fights(&contention, began, [0, 10, 20, 30, 40, 50]), [false; 6]);
        let now = began + Duration::from_mins(51);
        for kind in [Kind::ConfigMap, Kind::StatefulSet, Kind::NetworkPolicy, Kind::Secret] {
            assert!(!contention.returned(object("uid", kind, "trades"), SERVES, now), "{kind:?}");
        }
        assert_eq!(contention.of_others("uid", now), Vec::<String>::new());
    }

    #[test]
    fn what_is_made_of_a_new_database_or_was_deleted_by_us_is_nobody_elses_doing() {
        let (contention, now) = (Contention::default(), Instant::now());
        for phase in [None, Some(Phase::Pending), Some(Phase::Provisioning)] {
            assert!((0..9).all(|_| !contention.returned(service(), phase, now)), "{phase:?}");
        }
        for _ in 0..9 {
            assert!(!contention.returned(service(), SERVES, now));
            contention.deleted(&service());
        }
        assert_eq!(contention.of_others("uid", now), Vec::<String>::new());
    }
}
