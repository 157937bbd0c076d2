//! What need not be said at once: how far a new database is, text by text. Every status is a write, and whoever watches is told
//! of each.

use resources::names::condition;
use resources::{Phase, QuestDBStatus, StepState, VolumeStatus};

/// What is so of every database that is being made.
const BEGINNING: [(&str, &str); 6] = [
    (condition::CONFIG_ACCEPTED, "True"),
    (condition::READY, "False"),
    (condition::PROGRESSING, "True"),
    (condition::DEGRADED, "False"),
    (condition::PAUSED, "False"),
    (condition::DNS_READY, "False"),
];

/// Whether a status may be kept back for a moment and be said together with what comes next: a database that is still being
/// made has come further, and nothing failed. What this leaves out is also not there when a process dies before it says it. The
/// disk is told at once: by its id it is found without its tags. That its `PersistentVolume` has the id as well does not do instead.
/// What is said of a database that is suspended, refused or not seen repeats the last report for as long as that lasts, and by that
/// alone it is judged whether a suspended one must be held, and which of several disks with its tags may be destroyed.
pub fn can_wait(before: &QuestDBStatus, after: &QuestDBStatus) -> bool {
    let is_being_made = |status: &QuestDBStatus| status.phase == Some(Phase::Provisioning);
    is_being_made(before) && is_being_made(after) && news(before) == news(after)
}

/// Whether a first status says no more than that a database is being made, so that it may be kept back for a moment and be said together
/// with its disk. Nothing in it is judged by but its identity: whoever keeps it back keeps that in mind.
pub fn only_begins(first: &QuestDBStatus) -> bool {
    let mut told = news(first);
    if told.phase.take() != Some(Phase::Provisioning) {
        return false;
    }
    (told.database_id, told.observed_generation) = (None, None);
    told.conditions.retain(|found| !BEGINNING.contains(&(found.type_.as_str(), found.status.as_str())));
    told == QuestDBStatus::default()
}

/// Whether a status says what one of before said, in other words: nothing is otherwise.
pub fn is_reworded(before: &QuestDBStatus, after: &QuestDBStatus) -> bool {
    without_words(before) == without_words(after)
}

fn without_words(status: &QuestDBStatus) -> QuestDBStatus {
    let mut bare = status.clone();
    bare.conditions.iter_mut().for_each(|found| found.message.clear());
    bare.steps.iter_mut().for_each(|step| step.message = None);
    // Another wish is told since another moment.
    bare.pending.iter_mut().for_each(|change| change.why.clear());
    bare
}

/// A status without what only says how far the database is.
fn news(status: &QuestDBStatus) -> QuestDBStatus {
    let volume = status.volume.as_ref().map(|volume| VolumeStatus { state: String::new(), ..volume.clone() });
    let mut news = QuestDBStatus { node: None, volume, credentials_secret: None, ..status.clone() };
    news.steps.retain(|step| step.state == StepState::Failed);
    news.conditions.retain(|found| !(found.type_ == condition::NODE_HEALTHY && found.status != "Unknown"));
    for found in &mut news.conditions {
        // What the name waits for is as well. A name that somebody has, or that cannot be looked at, is told by the phase.
        if [condition::READY, condition::PROGRESSING, condition::DNS_READY].contains(&found.type_.as_str()) {
            found.message.clear();
            found.reason.clear();
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use resources::{ChangeMeans, DnsState, DnsStatus, NodeStatus, PendingStatus, StepStatus};

    use super::*;

    fn condition(kind: &str, status: &str, message: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: "Reason".to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            observed_generation: Some(1),
        }
    }

    fn step(state: StepState, message: &str) -> StepStatus {
        StepStatus {
            name: "instance".to_owned(),
            state,
            started_at: None,
            ended_at: None,
            message: Some(message.to_owned()),
        }
    }

    fn refused(why: &str) -> PendingStatus {
        PendingStatus {
            field: "/spec/credentials".to_owned(),
            means: ChangeMeans::Refused,
            why: why.to_owned(),
            since: Time(Timestamp::UNIX_EPOCH),
        }
    }

    fn dns() -> DnsStatus {
        DnsStatus {
            name: "trades.example.com".to_owned(),
            state: DnsState::Pending,
            change_id: None,
            address: None,
            next: None,
            former: None,
        }
    }

    fn volume(id: &str, state: &str) -> VolumeStatus {
        VolumeStatus { id: id.to_owned(), size_gib: 20, state: state.to_owned() }
    }

    fn status() -> QuestDBStatus {
        QuestDBStatus {
            phase: Some(Phase::Provisioning),
            observed_generation: Some(1),
            volume: Some(volume("vol-1", "creating")),
            conditions: vec![
                condition(condition::READY, "False", "instance: launching"),
                condition(condition::PROGRESSING, "True", "instance: launching"),
                condition(condition::NODE_HEALTHY, "False", "something before it is not done"),
                condition(condition::DEGRADED, "False", "nothing is wrong"),
                condition(condition::DNS_READY, "False", "something before it is not done"),
            ],
            steps: vec![step(StepState::Running, "launching")],
            ..QuestDBStatus::default()
        }
    }

    #[test]
    fn progress_waits_and_news_do_not() {
        let check = |what: &str, waits: bool, change: fn(&mut QuestDBStatus)| {
            let mut after = status();
            change(&mut after);
            assert_ne!(after, status(), "{what}");
            assert_eq!(can_wait(&status(), &after), waits, "{what}");
        };
        check("a step", true, |status| status.steps = vec![step(StepState::Succeeded, "")]);
        check("what is waited for", true, |status| {
            for found in &mut status.conditions[..2] {
                "volume: waiting".clone_into(&mut found.message);
                "Volume".clone_into(&mut found.reason);
            }
        });
        check("the Node", true, |status| status.conditions[2] = condition("NodeHealthy", "True", "ready"));
        check("the machine", true, |status| {
            status.node = Some(NodeStatus { instance_id: Some("i-1".to_owned()), ..NodeStatus::default() });
        });
        check("how the disk is", true, |status| status.volume = Some(volume("vol-1", "available")));
        check("another disk", false, |status| status.volume = Some(volume("vol-2", "creating")));
        check("no disk", false, |status| status.volume = None);
        check("a failure", false, |status| status.steps = vec![step(StepState::Failed, "no room")]);
        check("the end", false, |status| status.phase = Some(Phase::Ready));
        check("readiness", false, |status| "True".clone_into(&mut status.conditions[0].status));
        check("what is wrong", false, |status| "a zone".clone_into(&mut status.conditions[3].message));
        check("what the name waits for", true, |status| {
            "waiting for the change".clone_into(&mut status.conditions[4].message);
            "Waiting".clone_into(&mut status.conditions[4].reason);
        });
        check("that the name answers", false, |status| "True".clone_into(&mut status.conditions[4].status));
        check("another condition", false, |status| {
            status.conditions.push(condition("Moving", "False", "no"));
        });
        check("another wish", false, |status| status.observed_generation = Some(2));
        check("the name", false, |status| status.dns = Some(dns()));
        check("a rehearsal", false, |status| status.plan = vec!["nothing would change".to_owned()]);
        check("what runs", false, |status| status.version = Some("9.3.4".to_owned()));
    }

    #[test]
    fn a_first_status_waits_for_as_long_as_nothing_but_the_beginning_is_to_be_told() {
        let check = |what: &str, waits: bool, change: fn(&mut QuestDBStatus)| {
            let mut first = QuestDBStatus { volume: None, ..status() };
            first.conditions.push(condition(condition::CONFIG_ACCEPTED, "True", "it can be carried out"));
            first.conditions.push(condition(condition::PAUSED, "False", "it is to serve"));
            change(&mut first);
            assert_eq!(only_begins(&first), waits, "{what}");
        };
        check("the beginning", true, |_| {});
        check("which database it is", true, |status| status.database_id = Some("0b3c".to_owned()));
        check("the machine", true, |status| {
            status.node = Some(NodeStatus { instance_id: Some("i-1".to_owned()), ..NodeStatus::default() });
        });
        check("its Node", true, |status| status.conditions[2] = condition("NodeHealthy", "True", "ready"));
        check("that nobody knows how its Node is", false, |status| {
            status.conditions[2] = condition("NodeHealthy", "Unknown", "not told");
        });
        check("the disk", false, |status| status.volume = Some(volume("vol-1", "creating")));
        check("a failure", false, |status| status.steps = vec![step(StepState::Failed, "no room")]);
        check("another phase", false, |status| status.phase = Some(Phase::Pending));
        check("the end", false, |status| status.phase = Some(Phase::Ready));
        check("what is wrong", false, |status| "True".clone_into(&mut status.conditions[3].status));
        check("what is refused", false, |status| "False".clone_into(&mut status.conditions[5].status));
        check("another condition", false, |status| {
            status.conditions.push(condition("Conflict", "True", "a Service of somebody else's"));
        });
        check("the name", false, |status| status.dns = Some(dns()));
        check("a rehearsal", false, |status| status.plan = vec!["nothing would change".to_owned()]);
        check("what runs", false, |status| status.version = Some("9.3.4".to_owned()));
    }

    #[test]
    fn only_words_are_words() {
        let check = |what: &str, reworded: bool, change: fn(&mut QuestDBStatus)| {
            let (steps, pending) = (vec![step(StepState::Failed, "port 1")], vec![refused("port 1")]);
            let before = QuestDBStatus { steps, pending, ..status() };
            let mut after = before.clone();
            change(&mut after);
            assert_eq!(is_reworded(&before, &after), reworded, "{what}");
        };
        check("a step", true, |status| status.steps = vec![step(StepState::Failed, "port 2")]);
        check("a condition", true, |status| "port 2".clone_into(&mut status.conditions[3].message));
        check("a change", true, |status| status.pending = vec![refused("port 2")]);
        check("no change", false, |status| status.pending.clear());
        check("a reason", false, |status| "Other".clone_into(&mut status.conditions[3].reason));
        check("that it goes on", false, |status| status.steps = vec![step(StepState::Running, "port 1")]);
        check("another step", false, |status| status.steps.clear());
        check("the phase", false, |status| status.phase = Some(Phase::Degraded));
        check("another wish", false, |status| status.observed_generation = Some(2));
    }

    #[test]
    fn what_is_not_being_made_is_told_at_once() {
        for phase in
            [None, Some(Phase::Pending), Some(Phase::Updating), Some(Phase::Ready), Some(Phase::Deleting)]
        {
            let before = QuestDBStatus { phase, ..status() };
            let mut after = before.clone();
            after.steps = vec![step(StepState::Succeeded, "")];
            assert!(!can_wait(&before, &after), "{phase:?}");
            assert!(!can_wait(&before, &status()), "{phase:?}");
        }
        let failed = QuestDBStatus { steps: vec![step(StepState::Failed, "no room")], ..status() };
        assert!(!can_wait(&failed, &status()), "that it goes on after a failure");
    }
}
