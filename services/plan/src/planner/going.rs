//! Objects of ours that are told to go and stay: after a while people are told who holds them. A finalizer that somebody else has put
//! on one is never taken off.

use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;

use crate::{Kind, State};

/// How long an object may take to go before people are told who holds it.
const GOES_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How it is with objects that are waited for, in these words, until they are gone.
pub(super) fn state(at: Timestamp, objects: &[(Kind, &ObjectMeta)], text: impl Into<String>) -> State {
    let held = objects.iter().filter_map(|(kind, object)| held(at, *kind, object));
    let held: Vec<String> = held.collect();
    let text = text.into();
    if held.is_empty() { State::Running(text) } else { State::Broken(format!("{text}; {}", held.join("; "))) }
}

/// Who holds an object that should have gone by now; one that nobody holds goes by itself.
pub(super) fn held(at: Timestamp, kind: Kind, object: &ObjectMeta) -> Option<String> {
    let since = object.deletion_timestamp.as_ref()?.0;
    let finalizers = object.finalizers.as_deref().filter(|all| !all.is_empty())?;
    (at.duration_since(since) >= GOES_WITHIN).then(|| {
        let name = object.name.as_deref().unwrap_or_default();
        format!(
            "{} {name} is being deleted since {since:.0} and held by {}: find out why whoever put that on does not take it off",
            kind.as_str(),
            finalizers.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn who_holds_what_is_to_go_is_told_after_a_while() {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let object = |goes: bool, finalizers: &[&str]| ObjectMeta {
            name: Some("one".to_owned()),
            deletion_timestamp: goes.then_some(Time(since)),
            finalizers: Some(finalizers.iter().copied().map(str::to_owned).collect()),
            ..ObjectMeta::default()
        };
        for (goes, finalizers, minutes, is_told) in [
            (true, &["a.example/b", "c.example/d"][..], 10, true),
            (true, &["a.example/b"], 9, false),
            (true, &[], 10, false),
            (false, &["a.example/b"], 10, false),
        ] {
            let (object, at) = (object(goes, finalizers), since + SignedDuration::from_mins(minutes));
            let all = [(Kind::Secret, &object)];
            match state(at, &all, "it is being removed") {
                State::Broken(text) if is_told => {
                    let held = format!("2026-01-01T00:00:00Z and held by {}:", finalizers.join(", "));
                    assert!(text.starts_with("it is being removed; Secret one "), "{text}");
                    assert!(text.contains(&held), "{text}");
                }
                State::Running(text) if !is_told => assert_eq!(text, "it is being removed"),
                other => panic!("{finalizers:?} {minutes}: {other:?}"),
            }
        }
    }
}
