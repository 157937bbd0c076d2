//! Which database a resource stands for. A managed one says so in its spec. One that people write has an identity minted
//! for it, and everything in AWS is found by that: losing it would lose a machine and a disk.
//!
//! *Invariant:* an identity is minted only when nothing anywhere knows one, and nothing is made before status holds it,
//! because a resource may be replaced as a whole (which takes every annotation with it) and its status may not. *Invariant:* it is
//! believed only once status holds it; before that, nothing may speak against it. Of two whose status holds the same one, the disk
//! tells which is a copy.

mod doubt;
mod original;

use std::collections::BTreeSet;

use cloud::{Instance, Owner, Tags, Volume};
use kube::core::ObjectMeta;
use resources::{QuestDB, names};

use crate::Settings;

pub(crate) use doubt::not_allowed;
use doubt::whose;
pub use doubt::{Holder, Standing, doubt, is_for, offered_to};
pub use original::{MadeFor, Named, copy_of, is_named_by_us, made_for_others};

/// Something that names a resource's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Identity of the database.
    pub database: String,
    /// What names it, for people.
    pub what: String,
}

/// What is to be done about the identity of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// This is it; the text says who knows.
    Found(Trace),
    /// Nobody knows one.
    Mint,
    /// Nobody knows one, and the resource is being deleted: nothing was ever made for it.
    Unneeded,
    /// People have to say which; the text says why and how.
    Unclear(String),
}

/// The identity that cannot be lost any more: of the instruction, else of the status.
pub fn settled_identity(resource: &QuestDB) -> Option<&str> {
    let noted = || resource.status.as_ref()?.database_id.as_deref();
    resource.spec.instruction.as_ref().map(|instruction| instruction.database_id.as_str()).or_else(noted)
}

/// Whether the identity is one that status holds, which only we write. What else names one, anybody may have written who may
/// write in the namespace.
pub fn is_believed(resource: &QuestDB) -> bool {
    let noted = resource.status.as_ref().and_then(|status| status.database_id.as_deref());
    noted.is_some() && noted == settled_identity(resource)
}

/// The identity in the annotation of a resource without an instruction.
pub fn annotated(resource: &QuestDB) -> Option<&str> {
    resource.metadata.annotations.as_ref()?.get(names::ADOPTED_ID).map(String::as_str)
}

/// What a Kubernetes object knows: one that goes with the resource, or carries its name in our labels and goes with none.
pub fn trace_of(resource: &QuestDB, kind: &str, object: &ObjectMeta) -> Option<Trace> {
    let labels = object.labels.as_ref()?;
    let named = |key: &str, value: &Option<String>| labels.get(key) == value.as_ref();
    let of_resource = named(names::LABEL_NAME, &resource.metadata.name)
        && named(names::LABEL_NAMESPACE, &resource.metadata.namespace);
    let goes = resource.metadata.uid.as_deref().is_some_and(|uid| goes_with(object, uid));
    let alone = mark(object).is_none() && object.owner_references.as_ref().is_none_or(Vec::is_empty);
    // Of what goes with another resource of this name the end is near, or was missed.
    let knows = goes || (of_resource && alone && object.deletion_timestamp.is_none());
    let database = labels.get(names::LABEL_DATABASE).filter(|_| knows)?;
    let what = format!("{kind} {}", object.name.as_deref().unwrap_or_default());
    Some(Trace { database: database.clone(), what })
}

/// What is tagged in EC2 with the name of a resource, or as given to it, and lives.
pub fn traces_in_aws<'a>(
    resource: &QuestDB,
    settings: &Settings,
    instances: impl Iterator<Item = &'a Instance>,
    volumes: impl Iterator<Item = &'a Volume>,
) -> Vec<Trace> {
    let [namespace, name] = [&resource.metadata.namespace, &resource.metadata.name].map(Option::as_deref);
    let display = display(&settings.cluster, namespace.unwrap_or_default(), name.unwrap_or_default());
    let trace = |tags: &Tags, what: &str| {
        let owner = Owner::parse(tags).ok()??;
        let ours = owner.cluster == settings.cluster && whose(tags) == Some(display.as_str());
        ours.then(|| Trace { database: owner.database, what: what.to_owned() })
    };
    let volumes = volumes.filter(|volume| !volume.state.is_ending());
    let volumes = volumes.filter_map(|volume| trace(&volume.tags, volume.id.as_str()));
    let instances = instances.filter(|instance| !instance.state.is_ending());
    volumes.chain(instances.filter_map(|instance| trace(&instance.tags, instance.id.as_str()))).collect()
}

/// What the AWS console shows of a resource.
pub(crate) fn display(cluster: &str, namespace: &str, name: &str) -> String {
    format!("{cluster}/{namespace}/{name}")
}

/// Whether an object says, by uid, that it goes with a resource: by our mark or, as older operators wrote, by its controller.
pub(crate) fn goes_with(object: &ObjectMeta, uid: &str) -> bool {
    let mut owners = object.owner_references.iter().flatten();
    mark(object) == Some(uid) || owners.any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// Uid of the resource that an object says it goes with.
pub(crate) fn mark(object: &ObjectMeta) -> Option<&str> {
    object.annotations.as_ref()?.get(names::RESOURCE).map(String::as_str)
}

/// Decides. `traces` were looked for everywhere, unless the annotation names one. Whether what was found may be acted upon is for
/// [`doubt()`] to say.
pub fn identify(resource: &QuestDB, traces: &[Trace]) -> Identity {
    let Some(found) = traces.first() else {
        let removing = resource.metadata.deletion_timestamp.is_some();
        return if removing { Identity::Unneeded } else { Identity::Mint };
    };
    if traces.iter().any(|other| other.database != found.database) {
        let known: BTreeSet<String> =
            traces.iter().map(|trace| format!("{} ({})", trace.database, trace.what)).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let key = names::ADOPTED_ID;
        return Identity::Unclear(format!(
            "more than one database answers to this resource: {known}; say which by the annotation {key}"
        ));
    }
    let Trace { database, what } = found;
    if !is_uuid(database) {
        return Identity::Unclear(format!("{what} names {database:?}, which is no identity of a database"));
    }
    Identity::Found(found.clone())
}

/// As we write identities: lower case, hyphenated.
pub(crate) fn is_uuid(text: &str) -> bool {
    let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.into_iter().all(hex)
}

#[cfg(test)]
mod tests {
    use cloud::{VolumeState, key};
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{DATABASE, plain};

    const OTHER: &str = "0192f3a4-0000-7d8e-9f00-112233445566";

    fn trace(database: &str, what: &str) -> Trace {
        Trace { database: database.to_owned(), what: what.to_owned() }
    }

    #[test]
    fn the_instruction_then_the_status_then_nothing_is_settled() {
        assert_eq!(settled_identity(&crate::fixture::resource(1)), Some(DATABASE));
        let mut resource = plain();
        assert_eq!(settled_identity(&resource), Some(DATABASE), "what a replacement cannot take");
        resource.status = None;
        assert_eq!(settled_identity(&resource), None, "an annotation alone is a trace");
        assert_eq!(annotated(&resource), Some(DATABASE));
    }

    #[test]
    fn what_status_holds_is_believed_and_nothing_else() {
        let noted = |mut resource: QuestDB, id: Option<&str>| {
            let status = resource.status.get_or_insert_default();
            status.database_id = id.map(str::to_owned);
            is_believed(&resource)
        };
        let managed = || crate::fixture::resource(1);
        assert!(!is_believed(&managed()), "an instruction alone");
        assert!(!noted(managed(), None) && !noted(managed(), Some(OTHER)));
        assert!(noted(managed(), Some(DATABASE)));
        assert!(!noted(plain(), None), "an annotation alone");
        assert!(noted(plain(), Some(OTHER)), "no annotation speaks against it");
    }

    #[test]
    fn one_is_minted_only_when_nobody_knows_one() {
        let mut resource = plain();
        resource.status = None;
        let check = |resource: &QuestDB, traces: &[Trace], expected: &Identity| {
            assert_eq!(&identify(resource, traces), expected, "{traces:?}");
        };
        let (volume, claim) = (trace(DATABASE, "vol-1"), trace(DATABASE, "claim"));
        check(&resource, &[], &Identity::Mint);
        check(&resource, std::slice::from_ref(&volume), &Identity::Found(volume.clone()));
        check(&resource, &[claim.clone(), volume.clone()], &Identity::Found(claim));
        resource.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        check(&resource, &[], &Identity::Unneeded);
        check(&resource, std::slice::from_ref(&volume), &Identity::Found(volume.clone()));
    }

    #[test]
    fn what_lives_in_ec2_under_the_name_of_a_resource_knows_its_database() {
        let check = |change: fn(&mut Volume), expected: bool| {
            let mut volume = crate::fixture::volume(50);
            volume.tags = volume.tags.named("eu-west-1/qdb-acme/trades-33445566");
            change(&mut volume);
            let settings = crate::fixture::settings();
            let found = traces_in_aws(&plain(), &settings, std::iter::empty(), std::iter::once(&volume));
            assert_eq!(found == [trace(DATABASE, "vol-1")], expected, "{volume:?}");
        };
        check(|_| {}, true);
        check(|volume| volume.state = VolumeState::Deleting, false);
        check(|volume| volume.tags = volume.tags.clone().named("eu-west-1/qdb-acme/other"), false);
        check(|volume| volume.tags = volume.tags.clone().with(key::CLUSTER, "us-east-1"), false);
        check(|volume| volume.tags = volume.tags.clone().with(key::FOR, "eu-west-1/qdb-other/heir"), false);
        let given = |volume: &mut Volume| {
            let name = volume.tags.get(key::NAME).unwrap().to_owned();
            volume.tags = volume.tags.clone().named("eu-west-1/qdb-other/former").with(key::FOR, name);
        };
        check(given, true);
        check(|volume| volume.tags = Tags::new().named("eu-west-1/qdb-acme/trades-33445566"), false);
    }

    #[test]
    fn what_is_unclear_is_for_people() {
        let told = |traces: &[Trace]| {
            let Identity::Unclear(text) = identify(&plain(), traces) else { panic!("{traces:?}") };
            text
        };
        let two = told(&[trace(DATABASE, "vol-1"), trace(OTHER, "vol-2")]);
        assert!(two.contains("vol-1") && two.contains("vol-2") && two.contains(names::ADOPTED_ID), "{two}");
        for wrong in ["", "x", "0192F3A4-5b6c-7d8e-9f00-112233445566", "0192f3a45b6c7d8e9f00112233445566"] {
            assert!(told(&[trace(wrong, "the annotation")]).contains("no identity"), "{wrong}");
        }
    }

    #[test]
    fn an_object_knows_the_database_only_of_its_own_resource() {
        let resource = plain();
        let check = |change: fn(&mut Value), expected: bool| {
            let mut object = json!({ "name": "a", "labels": crate::fixture::subject().labels() });
            change(&mut object);
            let found = trace_of(&resource, "Secret", &serde_json::from_value(object.clone()).unwrap());
            assert_eq!(found.map(|found| found.database).as_deref() == Some(DATABASE), expected, "{object}");
        };
        let owner = |uid: &str| json!([{ "apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": true }]);
        assert!(goes_with(
            &serde_json::from_value(json!({ "ownerReferences": owner("uid-1") })).unwrap(),
            "uid-1"
        ));
        check(|_| {}, true);
        check(|object| object["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"), false);
        check(|object| object["labels"][names::LABEL_NAME] = json!("b"), false);
        check(|object| object["labels"][names::LABEL_NAMESPACE] = json!("b"), false);
        check(|object| object["labels"] = json!({ names::LABEL_DATABASE: DATABASE }), false);
        let marked = |uid: &str| json!({ "annotations": { names::RESOURCE: uid } });
        let controlled = |uid: &str| json!({ "ownerReferences": owner(uid) });
        let knows = |mut object: Value, labels: &Value| {
            object["name"] = json!("a");
            object["labels"] = labels.clone();
            trace_of(&resource, "Secret", &serde_json::from_value(object).unwrap()).is_some()
        };
        let labels = json!(crate::fixture::subject().labels());
        let ways: [&dyn Fn(&str) -> Value; 2] = [&marked, &controlled];
        for of in ways {
            assert!(knows(of("uid-1"), &json!({ names::LABEL_DATABASE: DATABASE })));
            assert!(knows(of("uid-1"), &labels) && !knows(of("uid-2"), &labels), "of its namesake before");
        }
    }
}
