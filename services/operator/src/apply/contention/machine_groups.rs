//! Security groups of a machine that somebody else replaces, or adds to, again and again, as AWS Firewall Manager or a quarantine may.
//! They are told like rules of a firewall, and put right on like these at a bounded rate: by another group somebody may come in who is
//! not allowed, and without its own nobody who is.

use cloud::{InstanceId, SecurityGroupId};

use super::Repairs;
use super::paced::{self, Paced};
use crate::apply::Pass;
use crate::error::Error;

/// So many machines are put back at once, of all databases: whoever changes those of a whole account would have every pass wait for its turn
/// at AWS otherwise.
pub(super) const AT_ONCE: usize = 4;
/// For metrics, and by what they are told from objects of Kubernetes.
pub(super) const KIND: &str = "Instance";
/// All of them are one field of a machine.
const GROUPS: &str = "security groups";

/// Has a machine put into these groups by `work`; an error tells that they are fought over, if they have to wait.
pub(in crate::apply) async fn unless_fought(
    pass: &Pass<'_>,
    (instance, groups): (&InstanceId, &[SecurityGroupId]),
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let put_back = async {
        let Ok(_place) = pass.context.contention.machines.try_acquire() else {
            return Err(Error::Stale { what: "machines of other databases are put back first".to_owned() });
        };
        work.await
    };
    paced::unless_fought(pass, paced_of(&pass.validated.subject.uid, instance, groups), put_back).await
}

/// Each machine has its own turn. Other groups are another matter: a firewall that was made anew has another id.
fn paced_of(uid: &str, instance: &InstanceId, groups: &[SecurityGroupId]) -> Paced {
    let groups = groups.iter().map(SecurityGroupId::as_str).collect::<Vec<_>>().join(", ");
    Paced {
        object: (uid.to_owned(), KIND, instance.to_string()),
        intention: groups,
        fields: vec![GROUPS.to_owned()],
    }
}

/// It holds no moving number, so that what means the same is said once. Nothing where nobody fights.
pub(super) fn told(instance: &str, repairs: &Repairs) -> Option<String> {
    repairs.is_fought(GROUPS).then(|| {
        format!(
            "somebody else changes the security groups of {instance} again and again; it is put back into {} alone, once a minute at \
             most, and until then who comes in is for the others to say. Find out who it is (CloudTrail tells who calls \
             ModifyInstanceAttribute and ModifyNetworkInterfaceAttribute; AWS Firewall Manager does) and let only one of the two write \
             them",
            repairs.intention
        )
    })
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::time::{Duration, Instant};

    use super::super::{Contention, WHILE};
    use super::*;

    fn machine(instance: &str, group: &str) -> Paced {
        paced_of("uid", &InstanceId::new(instance), &[SecurityGroupId::new(group)])
    }

    /// Puts a machine back at these seconds if it may be; when it was.
    fn put_back(contention: &Contention, began: Instant, seconds: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut done = Vec::new();
        for second in seconds {
            let now = began + Duration::from_secs(second);
            if machine("i-1", "sg-1").held(contention, now).is_none() {
                let begins = machine("i-1", "sg-1").put_right(contention, now);
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
        let told = contention.of_others("uid", last);
        assert!(
            told.len() == 1 && told[0].contains("i-1") && told[0].contains("into sg-1 alone"),
            "{told:?}"
        );
        assert_eq!(contention.of_others("other", last), Vec::<String>::new());
        let waits = |seconds| contention.waits("uid", last + Duration::from_secs(seconds));
        assert_eq!((waits(45), waits(60)), (Some(Duration::from_secs(15)), None));
        // Once nobody has changed them for a while, it is as if nothing had been.
        assert_eq!(contention.of_others("uid", last + WHILE), Vec::<String>::new());
    }

    #[test]
    fn what_ec2_shows_late_is_nobodys_doing_and_another_machine_or_firewall_waits_for_nobody() {
        let (contention, began) = (Contention::default(), Instant::now());
        assert_eq!(put_back(&contention, began, 0..20), (0..20).collect::<Vec<_>>());
        assert_eq!(contention.of_others("uid", began), Vec::<String>::new());
        let now = began + Duration::from_secs(21);
        assert_eq!(put_back(&contention, began, iter::once(20)), [20]);
        let holds = |instance: &str, group: &str| machine(instance, group).held(&contention, now).is_some();
        assert!(holds("i-1", "sg-1"));
        assert!(!holds("i-1", "sg-2") && !holds("i-2", "sg-1"));
        // Of the groups of before nothing is said any more.
        machine("i-1", "sg-2").put_right(&contention, now);
        assert_eq!(contention.of_others("uid", now), Vec::<String>::new());
    }
}
