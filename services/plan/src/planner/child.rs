//! An object of ours in Kubernetes: applied where our fields, as observed, are not what we intend, and left alone otherwise. What
//! was found to be so a moment ago, and has not changed since, is not compared again.
//!
//! What we once wrote and no longer intend (an older operator had more fields) only an apply takes away, and no comparison
//! shows it as ours. So each object carries a hash of what was applied last: another intention is another hash.

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use resources::names;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::World;
use crate::contest::leaves_no_place;
use crate::matches::covers;
use crate::{Action, Agreement, Manifest, Part, Plan, Step, build};

/// Plans an apply where our fields are not as intended; whether they are. `known` is what was found so before.
pub(super) fn ensure<K: Resource + Serialize>(
    known: &[Agreement],
    plan: &mut Plan,
    part: Part,
    intended: Manifest,
    observed: Option<&K>,
) -> bool {
    ensure_with(known, plan, part, (intended, |_: &mut Value| None), observed)
}

/// The same with what follows from other objects and is no intention of ours: it is written where it is otherwise, and is no part
/// of what says that another operator had another intention. `follows` writes it, and says all of what it wrote.
pub(super) fn ensure_with<K: Resource + Serialize>(
    known: &[Agreement],
    plan: &mut Plan,
    part: Part,
    (mut intended, follows): (Manifest, impl FnOnce(&mut Value) -> Option<String>),
    observed: Option<&K>,
) -> bool {
    let digest: [u8; 32] = Sha256::digest(intended.body.to_string()).into();
    intended.body["metadata"]["annotations"][names::APPLIED] = json!(hex::encode(&digest[..8]));
    let followed = follows(&mut intended.body);
    let Some(observed) = observed else {
        let reason = format!("{} {} is not there", intended.kind.as_str(), intended.name);
        plan.act(part, Step::Apply(intended), reason);
        return false;
    };
    let agreement = Agreement::of(observed.meta(), (&digest, followed.as_deref()));
    if !agreement.is_some_and(|agreement| known.contains(&agreement)) {
        let found = serde_json::to_value(observed).unwrap_or_default();
        if !is_as_intended(&found, &intended) {
            intended.uid.clone_from(&observed.meta().uid);
            apply(plan, part, intended, &found);
            return false;
        }
    }
    plan.agreed.extend(agreement);
    true
}

/// Plans an apply to what differs.
fn apply(plan: &mut Plan, part: Part, intended: Manifest, found: &Value) {
    let reason = format!("{} {} differs from what is intended", intended.kind.as_str(), intended.name);
    let writes_over = leaves_no_place(found, &intended);
    let applied = |body: &Value| body["metadata"]["annotations"][names::APPLIED].clone();
    let puts_right = applied(found) == applied(&intended.body);
    plan.actions.push(Action { step: Step::Apply(intended), part, reason, puts_right, writes_over });
}

fn is_as_intended(observed: &Value, intended: &Manifest) -> bool {
    let whole = |field: &&str| {
        // Both ways round: nobody's addition is left.
        let (found, wanted) = (observed.pointer(field), intended.body.pointer(field));
        covers(wanted.unwrap_or(&Value::Null), found.unwrap_or(&Value::Null))
    };
    covers(observed, &intended.body) && intended.kind.whole_fields().iter().all(whole)
}

/// Whether somebody took off the labels by which a pod is found; then they are put back.
pub(super) fn lost_labels(world: &World<'_>, plan: &mut Plan, pod: &Pod) -> bool {
    let labels = build::pod_labels(&world.validated.subject, pod.metadata.uid.as_deref());
    let found = serde_json::to_value(&pod.metadata.labels).unwrap_or_default();
    // Not only ours: clients come in by those that the Service selects, and without them its StatefulSet disowns it.
    let has_all = covers(&found, &labels.body["metadata"]["labels"]);
    let lost = pod.metadata.deletion_timestamp.is_none() && !has_all;
    if lost {
        let reason = "the pod is found by its labels, which somebody took off";
        plan.put_right(Part::Pod, Step::Apply(labels), reason);
        plan.wait(Part::Pod, "the pod is being labelled again");
    }
    lost
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::fixture::{resource, validated, with};

    fn intended() -> Manifest {
        build::config_map(&validated(&resource(1)))
    }

    /// What was written for an intention, as it is at a version, edited by hand.
    fn written([uid, version]: [Value; 2], edit: Option<&str>) -> ConfigMap {
        let mut plan = Plan::default();
        assert!(!ensure(&[], &mut plan, Part::Config, intended(), None::<&ConfigMap>));
        let Some(Step::Apply(Manifest { mut body, .. })) = plan.actions.pop().map(|action| action.step)
        else {
            panic!("what is not there is not made");
        };
        (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (uid, version);
        if let Some(edit) = edit {
            body["data"]["server.conf"] = json!(edit);
        }
        serde_json::from_value(body).unwrap()
    }

    /// Whether an object counts as it is intended, with something that follows from another one; and what is known then.
    fn judged(
        known: &[Agreement],
        (intended, follows): (Manifest, Option<&str>),
        observed: &ConfigMap,
    ) -> (bool, Vec<Agreement>) {
        let mut plan = Plan::default();
        let follows = |body: &mut Value| {
            let follows = follows?.to_owned();
            body["data"]["follows"] = json!(follows);
            Some(follows)
        };
        let is_so = ensure_with(known, &mut plan, Part::Config, (intended, follows), Some(observed));
        assert_eq!(is_so, plan.actions.is_empty(), "{:?}", plan.actions);
        (is_so, plan.agreed)
    }

    #[test]
    fn what_was_found_as_intended_is_compared_again_once_it_or_the_intention_is_another() {
        let [one, two] = [("u", "1"), ("u", "2")].map(|(uid, version)| [json!(uid), json!(version)]);
        let (is_so, known) = judged(&[], (intended(), None), &written(one.clone(), None));
        assert!(is_so && known.len() == 1, "{known:?}");
        let check = |object: &[Value; 2], edit: Option<&str>, expected: bool| {
            let (is_so, agreed) = judged(&known, (intended(), None), &written(object.clone(), edit));
            assert_eq!((is_so, agreed.is_empty()), (expected, !expected), "{object:?} {edit:?}");
            agreed
        };
        assert_eq!(check(&one, None, true), known);
        assert_eq!(check(&one, Some("x"), true), known, "nobody looks into it");
        assert_ne!(check(&two, None, true), known);
        check(&two, Some("x"), false);
        check(&[json!("v"), json!("1")], Some("x"), false);
        let other =
            build::config_map(&validated(&with("/spec/config/cairo.max.uncommitted.rows", json!("2000"))));
        assert_eq!(judged(&known, (other, None), &written(one.clone(), None)), (false, Vec::new()));
        assert_eq!(judged(&known, (intended(), Some("y")), &written(one, None)), (false, Vec::new()));
    }

    #[test]
    fn of_what_has_no_version_nothing_is_known() {
        for object in [[json!("u"), Value::Null], [Value::Null, json!("1")]] {
            assert_eq!(judged(&[], (intended(), None), &written(object, None)), (true, Vec::new()));
        }
    }

    #[test]
    fn what_follows_is_part_of_what_is_known() {
        let mut object = written([json!("u"), json!("1")], None);
        object.data.get_or_insert_default().insert("follows".to_owned(), "y".to_owned());
        let (is_so, known) = judged(&[], (intended(), Some("y")), &object);
        assert!(is_so && known.len() == 1, "{known:?}");
        assert_eq!(judged(&known, (intended(), Some("y")), &object), (true, known.clone()));
        assert_eq!(judged(&known, (intended(), Some("z")), &object), (false, Vec::new()));
    }
}
