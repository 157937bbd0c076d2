//! An object of ours in Kubernetes: applied where our fields, as observed, are not what we intend, and left alone otherwise.
//!
//! What we once wrote and no longer intend (an older operator had more fields) only an apply takes away, and no comparison
//! shows it as ours. So each object carries a hash of what was applied last: another intention is another hash.

use k8s_openapi::api::core::v1::Pod;
use resources::names;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::World;
use crate::exclusive::leaves_no_place;
use crate::matches::covers;
use crate::{Manifest, Part, Plan, Step, build};

/// Plans an apply where our fields are not as intended; whether they are.
pub(super) fn ensure(plan: &mut Plan, part: Part, intended: Manifest, observed: Option<&Value>) -> bool {
    ensure_with(plan, part, (intended, |_| {}), observed)
}

/// The same with what follows from other objects and is no intention of ours: it is written where it is otherwise, and is no part
/// of what says that another operator had another intention.
pub(super) fn ensure_with(
    plan: &mut Plan,
    part: Part,
    (mut intended, follows): (Manifest, impl FnOnce(&mut Value)),
    observed: Option<&Value>,
) -> bool {
    intended.body["metadata"]["annotations"][names::APPLIED] = json!(fingerprint(&intended.body));
    follows(&mut intended.body);
    let Some(observed) = observed else {
        let reason = format!("{} {} is not there", intended.kind.as_str(), intended.name);
        plan.act(part, Step::Apply(intended), reason);
        return false;
    };
    if is_as_intended(observed, &intended) {
        return true;
    }
    intended.uid = observed.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
    let reason = format!("{} {} differs from what is intended", intended.kind.as_str(), intended.name);
    let writes_over = leaves_no_place(observed, &intended.body);
    let applied = |body: &Value| body["metadata"]["annotations"][names::APPLIED].clone();
    if applied(observed) == applied(&intended.body) {
        plan.put_right(part, Step::Apply(intended), reason);
    } else {
        plan.act(part, Step::Apply(intended), reason);
    }
    if let Some(action) = plan.actions.last_mut() {
        action.writes_over = writes_over;
    }
    false
}

fn is_as_intended(observed: &Value, intended: &Manifest) -> bool {
    let whole = |field: &&str| {
        // Both ways round: nobody's addition is left.
        let (found, wanted) = (observed.pointer(field), intended.body.pointer(field));
        covers(wanted.unwrap_or(&Value::Null), found.unwrap_or(&Value::Null))
    };
    covers(observed, &intended.body) && intended.kind.whole_fields().iter().all(whole)
}

fn fingerprint(body: &Value) -> String {
    hex::encode(&Sha256::digest(body.to_string())[..8])
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
