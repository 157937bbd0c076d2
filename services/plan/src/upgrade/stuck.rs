//! What has to start before anything else can be done, and does not: the version that served last, or that the disk names.
//!
//! *Invariant:* no other version is started in its place: what it has written, only it or a person can judge.

use k8s_openapi::api::core::v1::Pod;
use resources::UpgradeResult;

use super::{Decision, disk, forward, start, version_of};
use crate::Observed;
use crate::change::image_of_pod;
use crate::planner::living;
use crate::pod::{QUESTDB, is_through, look_at_former, preparing};

/// What people can do about data on which no version starts that may be started.
const AS_IT_LIES: &str = "pause the database, take a QuestDBSnapshot of it, and make another database of that, of another version of the \
                          same major one";
/// The same where there are none.
const ANOTHER: &str = "ask for another version of the same major one: QuestDB has never begun on the disk, so that it is started on it \
                       without a copy";
/// That no version but the one in force is.
const STAYS: &str = "no other is started on its data by itself: ";

/// What is said of another version that waits for the one in force, by version.
pub(super) fn copied_once_it_serves(version: &str) -> String {
    format!("QuestDB {version} has to serve before its disk can be copied; if it cannot, {AS_IT_LIES}")
}

/// Why the version in force does not start, and what a person can do; nothing while it may still do so, as long as any version
/// that is upgraded to ([`start::failure`]).
pub(crate) fn stuck(observed: &Observed, decision: &Decision, pod: &Pod) -> Option<String> {
    let is_in_force = image_of_pod(pod).as_ref() == Some(&decision.image);
    let is_told = decision.record.as_ref().is_some_and(|record| record.result == UpgradeResult::Running);
    if !is_in_force || is_told || start::served(pod) {
        return None;
    }
    let made = pod.metadata.creation_timestamp.as_ref()?;
    if !start::may_be_judged(pod, &observed.children.nodes, made.0) {
        return None;
    }
    let reason = start::failure(pod, observed.at)?;
    let version = version_of(&decision.image);
    let disks = living(&observed.account.volumes);
    let mut named = disks.filter(|found| disk::version_of_disk(found) == Some(version));
    let named = named.next().map(|found| format!(" (which {} names by its tag)", found.id));
    let prepares = preparing(pod).find(|container| !is_through(container));
    let container = prepares.map_or(QUESTDB, |container| container.name.as_str());
    let copied = decision.record.as_ref().filter(|_| decision.rests_on(pod));
    let (stays, way_out) = match copied {
        Some(record) => (STAYS, forward::told(record)),
        None if decision.starts_first => ("", ANOTHER.to_owned()),
        None => (STAYS, AS_IT_LIES.to_owned()),
    };
    Some(format!(
        "QuestDB {version}{} does not start: {reason}; {stays}see that its image can be had, and what it logs ({}): if it does not take \
         a key or a value of spec.config, that is named there; or {way_out}",
        named.unwrap_or_default(),
        look_at_former(pod, container)
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cloud::key;
    use domain::catalogue;
    use jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::volume;
    use crate::{Account, Children};

    /// A pod of 10.0.0 whose container is so, since the epoch.
    fn pod(container: &Value, ready: &str) -> Pod {
        let mut status =
            json!({ "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 0 });
        status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let at = "1970-01-01T00:00:00Z";
        let condition =
            |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": at });
        serde_json::from_value(json!({
            "metadata": { "name": "trades-0", "namespace": "data", "creationTimestamp": at },
            "spec": { "nodeName": "n", "containers": [
                { "name": "questdb", "image": catalogue::image_of("10.0.0") },
            ] },
            "status": { "containerStatuses": [status],
                "conditions": [condition("PodScheduled", "True"), condition("Ready", ready)] },
        }))
        .unwrap()
    }

    fn observed(minutes: i64, node: &str) -> Observed {
        let node = json!({ "metadata": { "name": "n" },
            "status": { "conditions": [{ "type": "Ready", "status": node }] } });
        let nodes = vec![Arc::new(serde_json::from_value(node).unwrap())];
        let mut disk = volume(50);
        disk.tags = disk.tags.with(key::QUESTDB, "10.0.0");
        Observed {
            children: Children { nodes, ..Children::default() },
            account: Account { volumes: vec![disk], ..Account::default() },
            at: Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes),
            ..Observed::default()
        }
    }

    fn decision(version: &str, last: Option<(&str, bool)>) -> Decision {
        let record = last.map(|(result, complete)| {
            let from = catalogue::image_of(version);
            let text = json!({ "from": from, "to": "b", "result": result, "complete": complete,
                "startedAt": "1970-01-01T00:00:00Z" });
            serde_json::from_value(text).unwrap()
        });
        Decision::of(&catalogue::image_of(version), record)
    }

    fn ended() -> Value {
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let ended = json!({ "terminated": { "exitCode": 55 } });
        json!({ "restartCount": 3, "state": waiting, "lastState": ended })
    }

    #[test]
    fn what_does_not_start_is_told_as_late_as_of_an_upgrade() {
        let waits = json!({ "state": { "waiting": { "reason": "ErrImagePull" } } });
        for (container, minutes, expected) in [
            (&waits, 9, None),
            (&waits, 10, Some("its image cannot be had: ErrImagePull")),
            (&ended(), 0, Some("it ended again and again, last with exit code 55")),
            (&json!({ "state": { "running": {} } }), 600, None),
        ] {
            let pod = pod(container, "False");
            let found = stuck(&observed(minutes, "True"), &decision("10.0.0", None), &pod);
            assert_eq!(found.is_some(), expected.is_some(), "{container} {minutes}: {found:?}");
            if let (Some(found), Some(expected)) = (found, expected) {
                let wanted = format!(
                    "QuestDB 10.0.0 (which vol-1 names by its tag) does not start: {expected}; no other"
                );
                assert!(found.starts_with(&wanted), "{found}");
                // Only QuestDB knows its keys, and it ends at one that it does not take.
                assert!(found.contains("does not take a key or a value of spec.config"), "{found}");
            }
        }
    }

    #[test]
    fn what_can_be_done_follows_from_whether_anything_is_on_the_disk() {
        for (starts_first, found, other) in [(false, AS_IT_LIES, ANOTHER), (true, ANOTHER, AS_IT_LIES)] {
            let decision = Decision { starts_first, ..decision("10.0.0", None) };
            let text = stuck(&observed(0, "True"), &decision, &pod(&ended(), "False")).unwrap();
            assert!(text.ends_with(found) && !text.contains(other), "{text}");
            assert_eq!(text.contains("no other is started on its data"), !starts_first, "{text}");
        }
        assert!(copied_once_it_serves("10.0.0").ends_with(AS_IT_LIES));
        for (complete, forward) in [(true, true), (false, false)] {
            let decision = decision("10.0.0", Some(("RolledBack", complete)));
            let text = stuck(&observed(0, "True"), &decision, &pod(&ended(), "False")).unwrap();
            assert_eq!(text.contains("as long as there is the copy of before"), forward, "{text}");
            assert_eq!(text.ends_with(AS_IT_LIES), !forward, "{text}");
            // It was taken while there were clients, who wrote on.
            assert!(!text.contains("all that was served"), "{text}");
        }
        let mut of_another = decision("10.0.0", Some(("RolledBack", true)));
        "a".clone_into(&mut of_another.record.as_mut().unwrap().from);
        let text = stuck(&observed(0, "True"), &of_another, &pod(&ended(), "False")).unwrap();
        assert!(text.ends_with(AS_IT_LIES), "the copy is not of before this one: {text}");
    }

    #[test]
    fn what_is_to_be_looked_at_is_what_ended() {
        let world = observed(0, "True");
        let check = |prepares: Value, expected: &str| {
            let mut pod = pod(&ended(), "False");
            let mut status = json!({ "name": "restore", "image": "", "imageID": "", "ready": false });
            status.as_object_mut().unwrap().extend(prepares.as_object().unwrap().clone());
            pod.status.as_mut().unwrap().init_container_statuses =
                Some(vec![serde_json::from_value(status).unwrap()]);
            let found = stuck(&world, &decision("10.0.0", None), &pod).unwrap();
            let told = format!("(kubectl -n data logs --previous trades-0 --container {expected})");
            assert!(found.contains(&told), "{found}");
        };
        check(json!({ "restartCount": 0, "state": { "terminated": { "exitCode": 0 } } }), "questdb");
        check(ended(), "restore");
    }

    #[test]
    fn only_what_is_in_force_and_has_not_served_is_told_of_and_only_where_nothing_else_does() {
        let check = |last: Option<(&str, bool)>, expected: bool| {
            let found = stuck(&observed(0, "True"), &decision("10.0.0", last), &pod(&ended(), "False"));
            assert_eq!(found.is_some(), expected, "{last:?}: {found:?}");
        };
        check(None, true);
        check(Some(("Succeeded", false)), true);
        check(Some(("Running", false)), false);
        check(Some(("RolledBack", true)), true);
        check(Some(("RolledBack", false)), true);
        let (ours, other) = (decision("10.0.0", None), decision("10.0.1", None));
        assert_eq!(stuck(&observed(0, "True"), &other, &pod(&ended(), "False")), None, "it is restarted");
        assert_eq!(
            stuck(&observed(0, "Unknown"), &ours, &pod(&ended(), "False")),
            None,
            "nobody tells of it"
        );
        assert_eq!(stuck(&observed(0, "True"), &ours, &pod(&ended(), "True")), None, "it serves");
    }
}
