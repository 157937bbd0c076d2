//! A disk that the database has served from, and that holds nothing any more: somebody deleted what was on it, or formatted it.
//! QuestDB would begin on it as on a new one, and answer. So its pod is told of the disk, refuses to begin on it while it is empty,
//! and waits for a person to say that it may.
//!
//! *Invariant:* a database that has not served yet is refused no disk: a pod is told of one only once the report says that QuestDB has
//! answered, and has that disk, or that people have put it in the place of that one. It is told with whatever else is written to the
//! StatefulSet, never by a write of its own, and nobody is restarted for it.

use cloud::Volume;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use resources::{QuestDBStatus, names};
use serde_json::Value;

use super::World;
use super::child::ensure_with;
use super::existing::{UNRESTORED, living, only};
use crate::change::annotation_of_template;
use crate::{Manifest, Part, Plan, State, Step, Subject, build, pod};

/// Has the StatefulSet be as intended; whether it is, whatever it tells its pods of the disk.
pub(super) fn ensure(
    world: &World<'_>,
    plan: &mut Plan,
    intended: Manifest,
    observed: Option<&StatefulSet>,
) -> bool {
    let known = &world.observed.memory.agreed;
    let told = annotation_of_template(world, names::SERVED_FROM);
    let as_told = |body: &mut Value| {
        tell(body, told.as_deref());
        told.clone()
    };
    if ensure_with(known, plan, Part::Pod, (intended, as_told), observed) {
        return true;
    }
    // It is written anyway, so it tells what is due.
    if let Some(Step::Apply(written)) = plan.actions.last_mut().map(|action| &mut action.step) {
        tell(&mut written.body, due(world, told.as_deref()).as_deref());
    }
    false
}

/// Whether a pod does not begin because it has found its disk empty, which is told.
pub(super) fn holds_up(world: &World<'_>, plan: &mut Plan, pod: &Pod) -> bool {
    let Some(disk) = disk(world) else { return false };
    let subject = &world.validated.subject;
    match judge(pod, disk.id.as_str(), world.annotation(names::MAY_BE_EMPTY)) {
        Verdict::Begins => return false,
        Verdict::Refuses { word } => {
            let text = refused(subject, disk.id.as_str(), &word);
            plan.say(Part::Pod, State::Broken(text));
        }
        Verdict::Allowed => {
            let mut noted = build::pod_labels(subject, pod.metadata.uid.as_deref());
            noted.body["metadata"]["annotations"][names::SERVED_FROM] = "".into();
            let reason = format!("{} may be empty, as annotation {} says", disk.id, names::MAY_BE_EMPTY);
            plan.act(Part::Pod, Step::Apply(noted), reason);
            plan.wait(Part::Pod, begins(disk));
        }
        Verdict::Told => plan.wait(Part::Pod, begins(disk)),
    }
    true
}

/// How it is with a pod and the disk of its database.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It has not found it empty.
    Begins,
    /// It has, and this has to be said to have it begin.
    Refuses { word: String },
    /// That was said, and it is not told yet.
    Allowed,
    /// It begins with its next attempt.
    Told,
}

fn judge(pod: &Pod, disk: &str, said: Option<&str>) -> Verdict {
    if !pod::preparing(pod).any(pod::refuses) {
        return Verdict::Begins;
    }
    let annotations = pod.metadata.annotations.as_ref();
    let served_from = annotations.and_then(|annotations| annotations.get(names::SERVED_FROM));
    if served_from.is_none_or(String::is_empty) {
        return Verdict::Told;
    }
    // Said of this pod alone: whoever finds the disk empty after it asks again.
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let word = format!("{disk}/{}", uid.get(..8).unwrap_or(uid));
    if said == Some(word.as_str()) { Verdict::Allowed } else { Verdict::Refuses { word } }
}

/// What the next pods are told: the disk, if the report says that QuestDB has answered from it, or if they are told already, as a
/// report may be lost.
fn due(world: &World<'_>, told: Option<&str>) -> Option<String> {
    let Some(disk) = disk(world).map(|disk| disk.id.as_str()) else { return told.map(str::to_owned) };
    let has_served = told == Some(disk) || has_served(disk, world.resource.status.as_ref());
    has_served.then(|| disk.to_owned())
}

fn has_served(disk: &str, status: Option<&QuestDBStatus>) -> bool {
    // The version is noted when it first answers.
    status.is_some_and(|status| {
        status.version.is_some() && status.volume.as_ref().is_some_and(|volume| volume.id == disk)
    })
}

fn tell(body: &mut Value, disk: Option<&str>) {
    let annotations = &mut body["spec"]["template"]["metadata"]["annotations"];
    if let Some(disk) = disk {
        annotations[names::SERVED_FROM] = disk.into();
    } else if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(names::SERVED_FROM);
    }
}

fn disk<'a>(world: &World<'a>) -> Option<&'a Volume> {
    only(living(&world.observed.account.volumes))
}

fn begins(disk: &Volume) -> String {
    format!("QuestDB begins on {}, which may be empty, with its next attempt, within five minutes", disk.id)
}

fn refused(subject: &Subject, disk: &str, word: &str) -> String {
    let Subject { namespace, name, .. } = subject;
    format!(
        "the database has served before, and its disk {disk} holds no data of QuestDB any more: somebody deleted it or formatted the \
         disk, and QuestDB is not started on an empty one. Make another database of a snapshot (spec.storage.source; {UNRESTORED}), or \
         put a disk that holds the data in its place; if the data may be lost, say so, for this start alone: \
         kubectl -n {namespace} annotate --overwrite questdb {name} {}={word}",
        names::MAY_BE_EMPTY
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(container: &Value, served_from: Option<&str>) -> Pod {
        let mut status =
            json!({ "name": "link-config", "image": "", "imageID": "", "ready": false, "restartCount": 1 });
        status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let annotations = served_from.map(|served_from| json!({ names::SERVED_FROM: served_from }));
        serde_json::from_value(json!({
            "metadata": { "uid": "0192f3a4-5b6c", "annotations": annotations },
            "status": { "initContainerStatuses": [status] },
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_that_found_its_disk_empty_begins_only_by_a_word_about_itself() {
        let ended = |code: i32| json!({ "terminated": { "exitCode": code } });
        let waits = |code: i32| json!({ "state": { "waiting": {} }, "lastState": ended(code) });
        let word = "vol-1/0192f3a4";
        let refuses = || Verdict::Refuses { word: word.to_owned() };
        let (served, other) = (Some("vol-1"), Some("vol-0"));
        for (container, served_from, said, expected) in [
            (json!({}), served, None, Verdict::Begins),
            (json!({ "state": { "running": {} } }), served, None, Verdict::Begins),
            (json!({ "state": ended(1) }), served, None, Verdict::Begins),
            (json!({ "state": ended(0), "lastState": ended(66) }), served, None, Verdict::Begins),
            (json!({ "state": ended(66) }), served, None, refuses()),
            (json!({ "state": { "running": {} }, "lastState": ended(66) }), served, None, refuses()),
            (waits(66), served, None, refuses()),
            // Put in the place of another: what it was told of is not what it has.
            (waits(66), other, None, refuses()),
            (waits(66), served, Some(""), refuses()),
            (waits(66), served, Some("vol-1"), refuses()),
            (waits(66), served, Some("vol-1/ffffffff"), refuses()),
            (waits(66), served, Some("vol-0/0192f3a4"), refuses()),
            (waits(66), served, Some(word), Verdict::Allowed),
            (waits(66), Some(""), Some(word), Verdict::Told),
            (waits(66), Some(""), None, Verdict::Told),
            // Its labels were put back since, and with them goes what else was written to it.
            (waits(66), None, None, Verdict::Told),
            (waits(1), served, Some(word), Verdict::Begins),
        ] {
            let found = judge(&pod(&container, served_from), "vol-1", said);
            assert_eq!(found, expected, "{container} {served_from:?} {said:?}");
        }
    }

    #[test]
    fn a_disk_has_served_once_the_report_has_a_version_and_names_it() {
        let volume = |id: &str| json!({ "id": id, "sizeGib": 50, "state": "in-use" });
        for (status, expected) in [
            (json!({}), false),
            (json!({ "version": "9.3.4" }), false),
            (json!({ "volume": volume("vol-1") }), false),
            (json!({ "version": "9.3.4", "volume": volume("vol-0") }), false),
            (json!({ "version": "9.3.4", "volume": volume("vol-1") }), true),
        ] {
            let read: QuestDBStatus = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(has_served("vol-1", Some(&read)), expected, "{status}");
        }
        assert!(!has_served("vol-1", None));
    }
}
