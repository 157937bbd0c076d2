//! Tags in EC2 that somebody else takes off, or changes, again and again, as a rule of the account for tags may do. They are told like
//! rules of a firewall, and put back on like these at a bounded rate: what carries them is found by them, and all databases share what
//! the account may write. What rests on a tag waits with it.

use std::time::Instant;

use cloud::Tags;

use super::{Contention, Object, Repairs, WHILE, of_database};
use crate::apply::Pass;
use crate::error::Error;

/// For metrics, and by what they are told from objects of Kubernetes.
const KIND: &str = "Tags";

/// Has tags written by `work`; an error names those that are fought over, if they have to wait.
pub(in crate::apply) async fn unless_fought(
    pass: &Pass<'_>,
    (resource, tags): (&str, &Tags),
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let contention = &pass.context.contention;
    let object = object(&pass.validated.subject.uid, resource);
    if let Some(what) = contention.hold_tags(&object, tags, Instant::now()) {
        return Err(Error::Contended { what });
    }
    work.await?;
    if contention.tagged(object, tags, Instant::now()) {
        pass.context.measures.contended(KIND);
    }
    Ok(())
}

/// Each thing in EC2 has its own turn: one step is about one of them.
fn object(uid: &str, resource: &str) -> Object {
    (uid.to_owned(), KIND, resource.to_owned())
}

/// Another value is another tag: the number of a disk is raised again and again.
fn named((key, value): (&str, &str)) -> String {
    format!("{key}={value}")
}

/// It holds no moving number, so that what means the same is said once. Nothing where none is fought over.
fn told(resource: &str, repairs: &Repairs) -> Option<String> {
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

impl Contention {
    /// Why tags are not written now: all of them are fought over, and their turn has not come.
    fn hold_tags(&self, object: &Object, tags: &Tags, now: Instant) -> Option<String> {
        let all = self.lock();
        let repairs = all.get(object).filter(|repairs| repairs.turn(now).is_some())?;
        let are_fought = tags.iter().all(|tag| repairs.is_fought(&named(tag)));
        if are_fought { told(&object.2, repairs) } else { None }
    }

    /// Tags were written. Whether one of them turned out to be fought over by that.
    fn tagged(&self, object: Object, tags: &Tags, now: Instant) -> bool {
        self.put_right_in_ec2(object, tags.iter().map(named), now)
    }

    /// What is to be said of the tags of what a database has in EC2, also while all are as they should be: the other was there a
    /// moment ago.
    pub(super) fn of_tags(&self, uid: &str, now: Instant) -> Vec<String> {
        let all = self.lock();
        let told = of_database(&all, uid).filter_map(|((_, kind, resource), repairs)| {
            let counts = *kind == KIND && now.duration_since(repairs.last) < WHILE;
            if counts { told(resource, repairs) } else { None }
        });
        let mut told: Vec<String> = told.collect();
        told.sort_unstable();
        told
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cloud::key;

    use super::*;

    fn tags() -> Tags {
        Tags::new().with(key::ROLE, "volume").with(key::CLUSTER, "eu-west-1")
    }

    /// Writes the tags at these seconds if they may be; when they were.
    fn write(contention: &Contention, began: Instant, seconds: impl Iterator<Item = u64>) -> Vec<u64> {
        let object = object("uid", "vol-1");
        let mut written = Vec::new();
        for second in seconds {
            let now = began + Duration::from_secs(second);
            if contention.hold_tags(&object, &tags(), now).is_none() {
                let begins = contention.tagged(object.clone(), &tags(), now);
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
        let told = contention.of_tags("uid", last);
        assert!(told.len() == 1 && told[0].contains("vol-1") && told[0].contains("=volume"), "{told:?}");
        assert_eq!(contention.of_tags("other", last), Vec::<String>::new());
        let waits = |seconds| contention.waits("uid", last + Duration::from_secs(seconds));
        assert_eq!((waits(45), waits(60)), (Some(Duration::from_secs(15)), None));
        // Once nobody has undone it for a while, it is as if nothing had been.
        assert_eq!(contention.of_tags("uid", last + WHILE), Vec::<String>::new());
    }

    #[test]
    fn what_ec2_shows_late_is_nobodys_doing() {
        let (contention, began) = (Contention::default(), Instant::now());
        assert_eq!(write(&contention, began, 0..20), (0..20).collect::<Vec<_>>());
        assert_eq!(contention.of_tags("uid", began), Vec::<String>::new());
    }

    #[test]
    fn another_value_another_tag_and_another_thing_wait_for_nobody() {
        let (contention, began) = (Contention::default(), Instant::now());
        write(&contention, began, (0..25).step_by(10));
        let now = began + Duration::from_secs(21);
        let holds =
            |resource: &str, tags: Tags| contention.hold_tags(&object("uid", resource), &tags, now).is_some();
        assert!(holds("vol-1", tags()));
        assert!(!holds("vol-2", tags()));
        assert!(!holds("vol-1", tags().with(key::GENERATION, "2")));
        assert!(!holds("vol-1", Tags::new().with(key::ROLE, "snapshot")));
    }
}
