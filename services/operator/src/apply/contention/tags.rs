//! Tags in EC2 that somebody else takes off, or changes, again and again, as a rule of the account for tags may do. They are told like
//! rules of a firewall, and put back on like these at a bounded rate: what carries them is found by them, and all databases share what
//! the account may write. What rests on a tag waits with it.

use cloud::Tags;

use super::Repairs;
use super::paced::{self, Paced};
use crate::apply::Pass;
use crate::error::Error;

/// For metrics, and by what they are told from objects of Kubernetes.
pub(super) const KIND: &str = "Tags";

/// Has tags written by `work`; an error names those that are fought over, if they have to wait.
pub(in crate::apply) async fn unless_fought(
    pass: &Pass<'_>,
    (resource, tags): (&str, &Tags),
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    paced::unless_fought(pass, paced_of(&pass.validated.subject.uid, resource, tags), work).await
}

/// Each thing in EC2 has its own turn: one step is about one of them. Another value is another tag: the number of a disk is raised again
/// and again.
fn paced_of(uid: &str, resource: &str, tags: &Tags) -> Paced {
    let fields = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Paced { object: (uid.to_owned(), KIND, resource.to_owned()), intention: String::new(), fields }
}

/// It holds no moving number, so that what means the same is said once. Nothing where none is fought over.
pub(super) fn told(resource: &str, repairs: &Repairs) -> Option<String> {
    let fought = repairs.fields.keys().filter(|tag| repairs.is_fought(tag));
    let fought: Vec<&str> = fought.map(String::as_str).collect();
    (!fought.is_empty()).then(|| {
        format!(
            "somebody else takes tags of {resource} off again and again, or changes them: {}; they are put back once a minute at most, \
             and what rests on them waits. Find out who it is (CloudTrail tells who calls DeleteTags and CreateTags) and let only one \
             of the two write them",
            fought.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use cloud::key;

    use super::super::{Contention, WHILE};
    use super::*;

    fn tags() -> Tags {
        Tags::new().with(key::ROLE, "volume").with(key::CLUSTER, "eu-west-1")
    }

    /// Writes the tags at these seconds if they may be; when they were.
    fn write(contention: &Contention, began: Instant, seconds: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut written = Vec::new();
        for second in seconds {
            let now = began + Duration::from_secs(second);
            let paced = paced_of("uid", "vol-1", &tags());
            if paced.held(contention, now).is_none() {
                let begins = paced.put_right(contention, now);
                assert_eq!(begins, second == 20, "{second}");
                written.push(second);
            }
        }
        written
    }

    #[test]
    fn tags_that_are_taken_off_again_and_again_are_told_and_put_back_once_a_minute() {
        let (contention, began) = (Contention::default(), Instant::now());
        let written = write(&contention, began, (0..200).step_by(5));
        assert_eq!(written, [0, 5, 10, 15, 20, 80, 140]);
        let last = began + Duration::from_secs(140);
        let told = contention.of_others("uid", last);
        assert!(told.len() == 1 && told[0].contains("vol-1") && told[0].contains("=volume"), "{told:?}");
        assert_eq!(contention.of_others("other", last), Vec::<String>::new());
        let waits = |seconds| contention.waits("uid", last + Duration::from_secs(seconds));
        assert_eq!((waits(45), waits(60)), (Some(Duration::from_secs(15)), None));
        // Once nobody has undone it for a while, it is as if nothing had been.
        assert_eq!(contention.of_others("uid", last + WHILE), Vec::<String>::new());
    }

    #[test]
    fn what_ec2_shows_late_is_nobodys_doing() {
        let (contention, began) = (Contention::default(), Instant::now());
        assert_eq!(write(&contention, began, 0..20), (0..20).collect::<Vec<_>>());
        assert_eq!(contention.of_others("uid", began), Vec::<String>::new());
    }

    #[test]
    fn another_value_another_tag_and_another_thing_wait_for_nobody() {
        let (contention, began) = (Contention::default(), Instant::now());
        write(&contention, began, (0..25).step_by(10));
        let now = began + Duration::from_secs(21);
        let holds =
            |resource: &str, tags: Tags| paced_of("uid", resource, &tags).held(&contention, now).is_some();
        assert!(holds("vol-1", tags()));
        assert!(!holds("vol-2", tags()));
        assert!(!holds("vol-1", tags().with(key::GENERATION, "2")));
        assert!(!holds("vol-1", Tags::new().with(key::ROLE, "snapshot")));
    }
}
