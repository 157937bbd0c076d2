//! A StatefulSet of which no pod is made. Who refuses one tells the StatefulSet's controller, which leaves it in an event and tries
//! again; and nothing says since when there is none, so that the report remembers it. Asks nobody.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;

use super::{World, going, held};
use crate::few::few;
use crate::{Kind, Part, Plan, State, references};

/// How long none may be made before people are told why that may be. A controller that is at work makes it at once, and the next one
/// takes over sooner from one that died.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// What is said from the first look on: the moment of that look follows, and is read again at the next.
const WAITS: &str = "waiting for the pod to be made since ";
/// What is said of a StatefulSet that is on its way out although the database is to serve.
const GOES: &str = "the StatefulSet is being removed, and is made again once it is gone";

/// The StatefulSet, if it is on its way out: its controller makes no pod of it any more.
pub(super) fn leaving<'a>(world: &World<'a>) -> Option<&'a StatefulSet> {
    let set = world.observed.children.stateful_set.as_deref();
    set.filter(|set| set.metadata.deletion_timestamp.is_some())
}

/// Says who holds a StatefulSet that should have gone by now, whether or not its pod serves.
pub(super) fn tell_if_held(world: &World<'_>, plan: &mut Plan) {
    let (at, children) = (world.observed.at, &world.observed.children);
    let held = leaving(world).and_then(|set| going::held(at, Kind::StatefulSet, &set.metadata));
    let Some(held) = held else { return };
    // One that was deleted in the foreground is held for as long as its pod is.
    let pod = children.pod.as_deref().and_then(|pod| going::held(at, Kind::Pod, &pod.metadata));
    let pod = pod.map_or_else(String::new, |pod| format!("; {pod}"));
    plan.say(Part::Pod, State::Broken(format!("{GOES}; {held}{pod}")));
}

/// What is waited for while there is no pod.
pub(super) fn text(world: &World<'_>) -> String {
    if leaving(world).is_some() {
        return GOES.to_owned();
    }
    let waits = format!("{WAITS}{:.0}", since(told(world), world.observed.at));
    if !is_late(world) {
        return waits;
    }
    let subject = &world.validated.subject;
    let standard = if world.validated.reach.host_ports {
        "the namespace's Pod Security Standard (the pod takes host ports unless spec.network.hostPorts is false), "
    } else {
        ""
    };
    let text = format!(
        "{waits}; most often {standard}a ResourceQuota or an admission webhook refuses it: kubectl describe statefulset {} -n {}",
        subject.name, subject.namespace
    );
    let missing = references::missing(world.validated, world.observed);
    if missing.is_empty() { text } else { format!("{text}; {}", few(&missing, "; ")) }
}

/// Whether a disk waits for a pod that is not there, and not the pod for its disk: it is late, or none is made of a StatefulSet that goes.
pub(super) fn is_missed(world: &World<'_>) -> bool {
    is_late(world) || world.observed.children.pod.is_none() && leaving(world).is_some()
}

/// Whether there is no pod although it was to be made long ago.
fn is_late(world: &World<'_>) -> bool {
    let (children, at) = (&world.observed.children, world.observed.at);
    let set = children.stateful_set.as_deref().filter(|_| children.pod.is_none());
    set.is_some_and(|set| is_overdue(set, since(told(world), at), at))
}

/// Whether the StatefulSet's controller has seen it as it is.
pub(super) fn is_seen(set: &StatefulSet) -> bool {
    let seen = set.status.as_ref().and_then(|status| status.observed_generation);
    seen.is_some() && seen >= set.metadata.generation
}

/// What the report says of the pod.
fn told<'a>(world: &World<'a>) -> Option<&'a str> {
    held::told_of(world, Part::Pod)?.message.as_deref()
}

/// Since when there is none, as far as it was told: since now, where it was not.
fn since(told: Option<&str>, at: Timestamp) -> Timestamp {
    let since = told.and_then(|text| text.strip_prefix(WAITS)?.split(';').next()?.parse().ok());
    since.unwrap_or(at)
}

/// Whether the controller has known for so long that it is to make one: before it has seen the StatefulSet nobody refuses it anything.
fn is_overdue(set: &StatefulSet, since: Timestamp, at: Timestamp) -> bool {
    set.metadata.deletion_timestamp.is_none() && is_seen(set) && at.duration_since(since) >= PATIENCE
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn since_when_there_is_no_pod_is_what_was_told_first() {
        let now = at("2026-01-01T00:01:00.5Z");
        let first = at("2026-01-01T00:00:00Z");
        for (told, expected) in [
            (None, now),
            (Some("waiting for QuestDB to stop"), now),
            (Some("the StatefulSet is being written"), now),
            (Some("waiting for the pod to be made"), now),
            (Some("waiting for the pod to be made since yesterday; why"), now),
            (Some("waiting for the pod to be made since 2026-01-01T00:00:00Z"), first),
            (Some("waiting for the pod to be made since 2026-01-01T00:00:00Z; most often: why"), first),
        ] {
            assert_eq!(since(told, now), expected, "{told:?}");
        }
    }

    #[test]
    fn a_pod_is_late_half_a_minute_after_its_controller_was_to_make_it() {
        let check = |metadata: Value, seen: Option<i64>, now: &str, expected: bool| {
            let what = format!("{metadata} {seen:?} {now}");
            let status = json!({ "replicas": 0, "observedGeneration": seen });
            let set = json!({ "metadata": metadata, "status": status });
            let set: StatefulSet = serde_json::from_value(set).unwrap();
            assert_eq!(is_overdue(&set, at("2026-01-01T00:00:00Z"), at(now)), expected, "{what}");
        };
        let (early, late) = ("2026-01-01T00:00:29Z", "2026-01-01T00:00:30Z");
        let ends = json!({ "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z" });
        check(json!({ "generation": 2 }), Some(2), early, false);
        check(json!({ "generation": 2 }), Some(2), late, true);
        check(json!({ "generation": 2 }), Some(2), "2025-12-31T00:00:00Z", false);
        check(json!({ "generation": 2 }), Some(1), late, false);
        check(json!({ "generation": 2 }), None, late, false);
        check(ends, Some(2), late, false);
    }
}
