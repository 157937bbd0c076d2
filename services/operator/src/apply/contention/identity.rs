//! The annotation with the identity of a database, where somebody else writes another one again and again, or takes it off: a tool, say,
//! that has another one in what it applies. It is told, and left for a while as a field is: status holds the identity, and only copies of
//! the resource are known by the annotation.

use std::iter;
use std::time::Instant;

use plan::{Action, Step, Subject};
use resources::names;

use super::{Contention, Object, WHILE, of};
use crate::apply::Pass;

/// For metrics, and by what it is told from objects of which fields are fought over.
const KIND: &str = "QuestDB";

/// Remembers a step that is done, if it put the annotation right: of a resource that lacks our finalizer, too, that is what it is for.
pub(in crate::apply) fn written(pass: &Pass<'_>, action: &Action) {
    let names_it = matches!(action.step, Step::AddFinalizer { identity: Some(_) });
    if names_it
        && plan::is_held(pass.resource)
        && pass.context.contention.named(&pass.validated.subject.uid, Instant::now())
    {
        pass.context.measures.contended(KIND);
    }
}

fn object(uid: &str) -> Object {
    (uid.to_owned(), KIND, String::new())
}

/// It holds no moving number, so that what means the same is said once.
fn told(Subject { namespace, name, database, .. }: &Subject) -> String {
    format!(
        "somebody else writes annotation {} of QuestDB {name} again and again, or takes it off; it is left as it is for a while, and the \
         database of this resource stays {database}, as its status says. Find out who it is (kubectl -n {namespace} get questdb {name} \
         -o yaml --show-managed-fields) and have them let it be",
        names::ADOPTED_ID
    )
}

impl Contention {
    /// The annotation was put right. Whether it turned out to be fought over by that.
    fn named(&self, uid: &str, now: Instant) -> bool {
        let mut all = self.recent(now);
        let repairs = of(&mut all, object(uid), "", now);
        let begins = repairs.count(iter::once(names::ADOPTED_ID.to_owned()), now);
        // Nothing of it waits for a turn.
        repairs.paced = None;
        begins
    }

    /// Whether the annotation of a database is left to the other for now.
    pub(crate) fn leaves_identity(&self, uid: &str, now: Instant) -> bool {
        let all = self.lock();
        let repairs = all.get(&object(uid)).filter(|repairs| now.duration_since(repairs.last) < WHILE);
        repairs.is_some_and(|repairs| repairs.is_fought(names::ADOPTED_ID))
    }

    /// What is to be said of it.
    pub(super) fn of_identity(&self, subject: &Subject, now: Instant) -> Option<String> {
        self.leaves_identity(&subject.uid, now).then(|| told(subject))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn subject(uid: &str) -> Subject {
        let [cluster, namespace, name, database] = ["eu", "data", "trades", "0192f3a4"].map(str::to_owned);
        Subject { cluster, namespace, name, uid: uid.to_owned(), database }
    }

    #[test]
    fn an_identity_that_is_written_over_again_and_again_is_left_for_a_while() {
        let (contention, began) = (Contention::default(), Instant::now());
        let at = |minutes| began + Duration::from_mins(minutes);
        let fights = [0, 1, 2].map(|minutes| {
            assert!(!contention.leaves_identity("uid", at(minutes)), "{minutes}");
            contention.named("uid", at(minutes))
        });
        assert_eq!(fights, [false, false, true]);
        let told = contention.of_identity(&subject("uid"), at(11)).unwrap();
        assert!(told.contains(names::ADOPTED_ID) && told.contains("stays 0192f3a4"), "{told}");
        assert_eq!(contention.of_identity(&subject("other"), at(11)), None);
        assert_eq!(contention.waits("uid", at(11)), None, "nothing is held back");
        // Then it is tried again.
        assert!(!contention.leaves_identity("uid", at(12)) && !contention.named("uid", at(12)));
    }

    #[test]
    fn an_identity_that_is_seldom_written_over_is_put_right_each_time() {
        let (contention, began) = (Contention::default(), Instant::now());
        for minutes in (0..60).step_by(10) {
            assert!(!contention.named("uid", began + Duration::from_mins(minutes)), "{minutes}");
        }
    }
}
