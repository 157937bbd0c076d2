//! What is set of a machine that somebody else changes again and again: its security groups, as AWS Firewall Manager or a quarantine may,
//! and who may ask its metadata service. It is told like rules of a firewall, and put right on like these at a bounded rate: by another
//! group somebody may come in who is not allowed, without its own nobody who is, and whoever may ask for metadata has its credentials.

use cloud::{InstanceId, SecurityGroupId};

use super::Repairs;
use super::paced::{self, Paced};
use crate::apply::Pass;
use crate::error::Error;

/// So many machines are put right at once, of all databases: whoever changes those of a whole account would have every pass wait for its
/// turn at AWS otherwise.
pub(super) const AT_ONCE: usize = 4;
/// For metrics, and by what groups of machines are told from objects of Kubernetes.
pub(super) const GROUPS: &str = "Instance";
/// The same of who may ask for metadata.
pub(super) const METADATA: &str = "Metadata";
/// Each is one field of a machine.
const WHOLE: &str = "whole";

/// What is set of a machine.
#[derive(Clone, Copy)]
pub(in crate::apply) enum Setting<'a> {
    /// It is in these security groups and no others.
    Groups(&'a [SecurityGroupId]),
    /// Its metadata service answers itself alone.
    Metadata,
}

/// Has something of a machine set by `work`; an error tells that it is fought over, if it has to wait.
pub(in crate::apply) async fn unless_fought(
    pass: &Pass<'_>,
    (instance, setting): (&InstanceId, Setting<'_>),
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let put_right = async {
        let Ok(_place) = pass.context.contention.machines.try_acquire() else {
            return Err(Error::Stale { what: "machines of other databases are put right first".to_owned() });
        };
        work.await
    };
    paced::unless_fought(pass, paced_of(&pass.validated.subject.uid, instance, setting), put_right).await
}

/// Each machine has its own turn. Other groups are another matter: a firewall that was made anew has another id.
fn paced_of(uid: &str, instance: &InstanceId, setting: Setting<'_>) -> Paced {
    let (kind, intention) = match setting {
        Setting::Groups(groups) => {
            (GROUPS, groups.iter().map(SecurityGroupId::as_str).collect::<Vec<_>>().join(", "))
        }
        Setting::Metadata => (METADATA, String::new()),
    };
    Paced { object: (uid.to_owned(), kind, instance.to_string()), intention, fields: vec![WHOLE.to_owned()] }
}

/// It holds no moving number, so that what means the same is said once. Nothing where nobody fights.
pub(super) fn told_of_groups(instance: &str, repairs: &Repairs) -> Option<String> {
    repairs.is_fought(WHOLE).then(|| {
        format!(
            "somebody else changes the security groups of {instance} again and again; it is put back into {} alone, once a minute at \
             most, and until then who comes in is for the others to say. Find out who it is (CloudTrail tells who calls \
             ModifyInstanceAttribute and ModifyNetworkInterfaceAttribute; AWS Firewall Manager does) and let only one of the two write \
             them",
            repairs.intention
        )
    })
}

/// The same of who may ask for metadata.
pub(super) fn told_of_metadata(instance: &str, repairs: &Repairs) -> Option<String> {
    repairs.is_fought(WHOLE).then(|| {
        format!(
            "somebody else opens the metadata service of {instance} again and again; it is shut to others once a minute at most, and until \
             then pods may have the credentials of the machine's role from it. Find out who it is (CloudTrail tells who calls \
             ModifyInstanceMetadataOptions) and let only one of the two write it"
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
        paced_of("uid", &InstanceId::new(instance), Setting::Groups(&[SecurityGroupId::new(group)]))
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

    #[test]
    fn who_opens_the_metadata_service_again_and_again_is_told_and_its_groups_wait_for_nobody() {
        let (contention, began) = (Contention::default(), Instant::now());
        let metadata = || paced_of("uid", &InstanceId::new("i-1"), Setting::Metadata);
        let begins = |second| metadata().put_right(&contention, began + Duration::from_secs(second));
        assert_eq!([0, 15, 30].map(begins), [false, false, true]);
        let now = began + Duration::from_secs(31);
        assert!(
            metadata().held(&contention, now).is_some_and(|text| text.contains("metadata service of i-1"))
        );
        assert_eq!(machine("i-1", "sg-1").held(&contention, now), None);
        assert_eq!(contention.of_others("uid", now).len(), 1);
        assert_eq!(metadata().held(&contention, began + Duration::from_secs(90)), None, "its turn has come");
    }
}
