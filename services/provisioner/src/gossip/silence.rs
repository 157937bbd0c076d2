//! Which partitions of the topic took nothing lately, as while they have no leader: a send there ends only after its time, and
//! whoever has something to tell need not wait for that again and again. Pure: time is a parameter.
//!
//! *Invariant:* a partition that took nothing is tried by one at a time, and again as long as there is anything to tell; the first
//! word that it takes ends that, whoever sent it. What nobody tries any more is forgotten: another process may have what there is to
//! tell, and of that nobody hears here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long it is not tried after a send that failed.
const PAUSE: Duration = Duration::from_secs(10);
/// How long a try is waited for: longer than a send takes. One that was cut off is never heard of.
const TRY: Duration = Duration::from_secs(30);
/// How long nobody may have tried it, although somebody might, until it is forgotten: longer than anything to tell rests.
const FORGOTTEN: Duration = Duration::from_mins(5);

/// The partitions, with what they refuse.
#[derive(Debug, Default)]
pub(super) struct Silences(BTreeMap<i32, Silence>);

#[derive(Debug)]
struct Silence {
    reason: String,
    /// When somebody may try it.
    next: Instant,
}

impl Silences {
    /// Why nothing is to be sent to a partition now. `None`: it may be, and where it took nothing before, nobody else tries meanwhile.
    pub(super) fn refuses(&mut self, partition: i32, now: Instant) -> Option<String> {
        let silence = self.0.get_mut(&partition)?;
        if now < silence.next {
            return Some(silence.reason.clone());
        }
        silence.next = now + TRY;
        None
    }

    /// It took what was sent, or did not for this reason. Says whether it was otherwise before.
    pub(super) fn heard(&mut self, partition: i32, refusal: Option<String>, now: Instant) -> bool {
        match refusal {
            None => self.0.remove(&partition).is_some(),
            Some(reason) => self.0.insert(partition, Silence { reason, next: now + PAUSE }).is_none(),
        }
    }

    /// Forgets those that nobody tries any more. Says whether there were any.
    pub(super) fn forget(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|_, silence| now < silence.next + FORGOTTEN);
        self.0.len() < before
    }

    /// What somebody should know of that.
    pub(super) fn complaint(&self, topic: &str) -> Option<String> {
        let (first, silence) = self.0.first_key_value()?;
        let count = self.0.len();
        let partitions: Vec<String> = self.0.keys().map(ToString::to_string).collect();
        Some(format!(
            "{count} partitions of {topic} took nothing when they were sent something last ({}); of {first}: {}. What became of \
             instructions of their databases is told when they do, and others go on: see which have no leader \
             (kafka-topics.sh --describe --unavailable-partitions)",
            partitions.join(", "),
            silence.reason
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_took_nothing_is_tried_by_one_at_a_time_until_it_takes_something() {
        let (mut silences, start) = (Silences::default(), Instant::now());
        let refusal = || Some("no leader".to_owned());
        let second = Duration::from_secs(1);
        assert_eq!(silences.refuses(3, start), None, "nothing is known of it");
        assert!(silences.heard(3, refusal(), start));
        assert!(!silences.heard(3, refusal(), start), "that is known");
        assert_eq!(silences.refuses(3, (start + PAUSE).checked_sub(second).unwrap()), refusal());
        assert_eq!(silences.refuses(4, start), None, "another");
        let tried = start + PAUSE;
        assert_eq!(silences.refuses(3, tried), None);
        assert_eq!(
            silences.refuses(3, (tried + TRY).checked_sub(second).unwrap()),
            refusal(),
            "somebody tries it"
        );
        assert_eq!(silences.refuses(3, tried + TRY), None, "who tried was cut off");
        silences.heard(3, refusal(), tried + TRY);
        assert_eq!(silences.refuses(3, tried + TRY + second), refusal());
        assert!(silences.heard(3, None, tried + TRY + second));
        assert_eq!(silences.refuses(3, tried + TRY + second), None, "at once");
        assert!(!silences.heard(3, None, tried + TRY + second));
    }

    #[test]
    fn what_nobody_tries_any_more_is_forgotten_and_nothing_else() {
        let (mut silences, start) = (Silences::default(), Instant::now());
        let refusal = || Some("no leader".to_owned());
        for partition in [3, 4] {
            silences.heard(partition, refusal(), start);
        }
        assert!(!silences.forget(start + PAUSE), "it may be tried from now on");
        let tried = start + PAUSE + FORGOTTEN / 2;
        assert_eq!(silences.refuses(4, tried), None);
        assert!(silences.forget(start + PAUSE + FORGOTTEN));
        assert!(!silences.forget(start + PAUSE + FORGOTTEN), "once");
        assert_eq!(silences.refuses(4, tried), refusal(), "somebody tried it");
        assert!(silences.heard(3, refusal(), tried), "nothing is known of it");
    }

    #[test]
    fn it_is_told_which_ones_they_are_and_what_to_look_at() {
        let mut silences = Silences::default();
        assert_eq!(silences.complaint("gossip"), None);
        for partition in [7, 3] {
            silences.heard(partition, Some("no leader".to_owned()), Instant::now());
        }
        let text = silences.complaint("gossip").unwrap();
        assert!(text.contains("(3, 7)") && text.contains("of 3: no leader"), "{text}");
        assert!(text.contains("--unavailable-partitions"), "{text}");
    }
}
