//! Security groups of a machine that somebody else replaces, or adds to, again and again, as AWS Firewall Manager or a quarantine may.
//! They are told like rules of a firewall, and put right on like these at a bounded rate: by another group somebody may come in who is
//! not allowed, and without its own nobody who is.

use std::iter;
use std::time::Instant;

use cloud::{InstanceId, SecurityGroupId};
use tokio::sync::Semaphore;

use super::{Contention, Object, WHILE, of_database};
use crate::apply::Pass;
use crate::error::Error;

/// So many machines are put back at once, of all databases: whoever changes those of a whole account would have every pass wait for its turn
/// at AWS otherwise.
static PLACES: Semaphore = Semaphore::const_new(4);
/// For metrics, and by what they are told from objects of Kubernetes.
const KIND: &str = "Instance";

/// Has a machine put into these groups by `work`; an error tells that they are fought over, if they have to wait.
pub(in crate::apply) async fn unless_fought(
    pass: &Pass<'_>,
    (instance, groups): (&InstanceId, &[SecurityGroupId]),
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let contention = &pass.context.contention;
    let (object, groups) = (object(&pass.validated.subject.uid, instance), named(groups));
    if let Some(what) = contention.hold_machine(&object, &groups, Instant::now()) {
        return Err(Error::Contended { what });
    }
    let Ok(_place) = PLACES.try_acquire() else {
        return Err(Error::Stale { what: "machines of other databases are put back first".to_owned() });
    };
    work.await?;
    if contention.put_back(object, groups, Instant::now()) {
        pass.context.measures.contended(KIND);
    }
    Ok(())
}

/// Each machine has its own turn.
fn object(uid: &str, instance: &InstanceId) -> Object {
    (uid.to_owned(), KIND, instance.to_string())
}

/// Other groups are another matter: a firewall that was made anew has another id.
fn named(groups: &[SecurityGroupId]) -> String {
    groups.iter().map(SecurityGroupId::as_str).collect::<Vec<_>>().join(", ")
}

/// It holds no moving number, so that what means the same is said once.
fn told(instance: &str, groups: &str) -> String {
    format!(
        "somebody else changes the security groups of {instance} again and again; it is put back into {groups} alone, once a minute at \
         most, and until then who comes in is for the others to say. Find out who it is (CloudTrail tells who calls \
         ModifyInstanceAttribute and ModifyNetworkInterfaceAttribute; AWS Firewall Manager does) and let only one of the two write them"
    )
}

impl Contention {
    /// Why a machine is not put back now: its groups are fought over, and their turn has not come.
    fn hold_machine(&self, object: &Object, groups: &str, now: Instant) -> Option<String> {
        let all = self.lock();
        let repairs = all.get(object).filter(|repairs| repairs.turn(now).is_some())?;
        let is_fought = repairs.is_fought(groups);
        is_fought.then(|| told(&object.2, groups))
    }

    /// A machine was put back. Whether its groups turned out to be fought over by that.
    fn put_back(&self, object: Object, groups: String, now: Instant) -> bool {
        self.put_right_in_ec2(object, iter::once(groups), now)
    }

    /// What is to be said of the groups of a database's machines, also while all are as they should be: the other was there a moment ago.
    pub(super) fn of_machines(&self, uid: &str, now: Instant) -> Vec<String> {
        let all = self.lock();
        let counts = of_database(&all, uid)
            .filter(|((_, kind, _), repairs)| *kind == KIND && now.duration_since(repairs.last) < WHILE);
        let told = counts.flat_map(|((.., instance), repairs)| {
            let fought = repairs.fields.keys().filter(move |groups| repairs.is_fought(groups));
            fought.map(move |groups| told(instance, groups))
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GROUPS: &str = "sg-1";

    fn machine(id: &str) -> Object {
        object("uid", &InstanceId::new(id))
    }

    /// Puts a machine back at these seconds if it may be; when it was.
    fn put_back(contention: &Contention, began: Instant, seconds: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut done = Vec::new();
        for second in seconds {
            let now = began + Duration::from_secs(second);
            if contention.hold_machine(&machine("i-1"), GROUPS, now).is_none() {
                let begins = contention.put_back(machine("i-1"), GROUPS.to_owned(), now);
                assert_eq!(begins, second == 20, "{second}");
                done.push(second);
            }
        }
        done
    }

    #[test]
    fn groups_that_are_changed_again_and_again_are_told_and_put_right_once_a_minute() {
        let (contention, began) = (Contention::default(), Instant::now());
        assert_eq!(put_back(&contention, began, (0..200).step_by(5)), [0, 5, 10, 15, 20, 80, 140]);
        let last = began + Duration::from_secs(140);
        let told = contention.of_machines("uid", last);
        assert!(
            told.len() == 1 && told[0].contains("i-1") && told[0].contains("into sg-1 alone"),
            "{told:?}"
        );
        assert_eq!(contention.of_machines("other", last), Vec::<String>::new());
        assert_eq!(contention.of_tags("uid", last), Vec::<String>::new());
        let waits = |seconds| contention.waits("uid", last + Duration::from_secs(seconds));
        assert_eq!((waits(45), waits(60)), (Some(Duration::from_secs(15)), None));
        // Once nobody has changed them for a while, it is as if nothing had been.
        assert_eq!(contention.of_machines("uid", last + WHILE), Vec::<String>::new());
    }

    #[test]
    fn what_ec2_shows_late_is_nobodys_doing_and_another_machine_or_firewall_waits_for_nobody() {
        let (contention, began) = (Contention::default(), Instant::now());
        assert_eq!(put_back(&contention, began, 0..20), (0..20).collect::<Vec<_>>());
        assert_eq!(contention.of_machines("uid", began), Vec::<String>::new());
        let now = began + Duration::from_secs(21);
        assert_eq!(put_back(&contention, began, iter::once(20)), [20]);
        let holds =
            |instance: &str, groups: &str| contention.hold_machine(&machine(instance), groups, now).is_some();
        assert!(holds("i-1", GROUPS));
        assert!(!holds("i-1", "sg-2") && !holds("i-2", GROUPS));
    }
}
