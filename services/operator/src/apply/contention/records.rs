//! Records of a name that somebody else changes, or takes away, again and again. They are told like rules of a firewall. Each list
//! of the zone that shows it has them put right on: these are so far apart that no other bound is needed.

use std::iter;
use std::time::Instant;

use cloud::RecordChange;
use plan::{Action, Step};

use super::{Contention, Object, Repairs, of};
use crate::apply::Pass;

/// For metrics, and by what they are told from objects of Kubernetes.
pub(super) const KIND: &str = "Records";

/// Remembers a step that is done, if it put back what somebody else had changed: a name's first records, another address and another
/// name are nobody else's doing.
pub(in crate::apply) fn changed(pass: &Pass<'_>, action: &Action) {
    let Step::ChangeRecords { changes, led } = &action.step else { return };
    // What is taken away with it is of names that are given back.
    let put_back = changes.iter().find(|change| !matches!(change, RecordChange::Delete(_)));
    let Some(put_back) = put_back.filter(|_| action.puts_right) else { return };
    let object = object(&pass.validated.subject.uid, &put_back.record().name);
    let address = led.as_ref().map_or("", |led| led.address.as_str());
    if pass.context.contention.recorded(object, address, Instant::now()) {
        pass.context.measures.contended(KIND);
    }
}

/// Each name by itself.
fn object(uid: &str, name: &str) -> Object {
    (uid.to_owned(), KIND, name.to_owned())
}

/// It holds no moving number, so that what means the same is said once. Nothing where nobody fights.
pub(super) fn told(name: &str, repairs: &Repairs) -> Option<String> {
    repairs.is_fought(name).then(|| {
        format!(
            "somebody else changes the records of {name} again and again, or takes them away; they are put right by the next list of \
             the zone. Find out who it is (CloudTrail tells who calls ChangeResourceRecordSets) and let only one of the two write them"
        )
    })
}

impl Contention {
    /// Records of a name were put right, so that it leads to this address or, where there is none, is kept. Whether they turned out
    /// to be fought over by that.
    fn recorded(&self, object: Object, address: &str, now: Instant) -> bool {
        let name = object.2.clone();
        let mut all = self.recent(now);
        let repairs = of(&mut all, object, address, now);
        let begins = repairs.count(iter::once(name), now);
        // Nothing of them waits for a turn.
        repairs.paced = None;
        begins
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::WHILE;
    use super::*;

    const NAME: &str = "trades.example.com";

    /// Which of the repairs at these minutes and of these addresses turned out to be a fight.
    fn fights(contention: &Contention, began: Instant, repairs: &[(u64, &str)]) -> Vec<bool> {
        let done = |(minute, address): &(u64, &str)| {
            contention.recorded(object("uid", NAME), address, began + Duration::from_mins(*minute))
        };
        repairs.iter().map(done).collect()
    }

    #[test]
    fn records_that_are_changed_after_each_list_of_the_zone_are_told_until_nobody_does_any_more() {
        let (contention, began) = (Contention::default(), Instant::now());
        let one = "192.0.2.1";
        let found = fights(&contention, began, &[(0, one), (5, one), (10, one), (15, one)]);
        assert_eq!(found, [false, false, true, false], "it begins once");
        let last = began + Duration::from_mins(15);
        let told = contention.of_others("uid", last);
        assert!(told.len() == 1 && told[0].contains(NAME), "{told:?}");
        assert_eq!(contention.waits("uid", last), None, "nothing is held back");
        assert_eq!(contention.of_others("other", last), Vec::<String>::new());
        assert_eq!(contention.of_others("uid", last + WHILE), Vec::<String>::new());
    }

    #[test]
    fn seldom_repairs_another_address_and_another_name_are_no_fight() {
        let (contention, began) = (Contention::default(), Instant::now());
        let (one, other) = ("192.0.2.1", "192.0.2.2");
        assert_eq!(fights(&contention, began, &[(0, one), (10, one), (20, one), (30, one)]), [false; 4]);
        assert_eq!(fights(&contention, began, &[(31, one), (32, other), (33, other), (34, "")]), [false; 4]);
        let now = began + Duration::from_mins(34);
        assert!(!contention.recorded(object("uid", "other.example.com"), other, now));
        assert_eq!(contention.of_others("uid", now), Vec::<String>::new());
    }
}
