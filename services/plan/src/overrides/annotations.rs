//! Annotations of a pod that nobody may choose: for what they would loosen, or because the API server refuses every template that has
//! them. With one of those no later word of the resource could be written to the StatefulSet.

use domain::Rule;

use crate::reach::prefix_of;

/// By this a kubelet tells which pods it made itself, of files of its machine. Such a pod is placed already, and no template is.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How dear it is to lose the pod, beside others of its kind.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Whether keys with this prefix are for Kubernetes to give meaning to.
pub(super) fn is_of_kubernetes(prefix: &str) -> bool {
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|domain| prefix == *domain || prefix.ends_with(&format!(".{domain}")))
}

/// Which rule an annotation breaks, and why it is one; nothing where it may be chosen.
pub(super) fn refused(key: &str, value: &str) -> Option<(Rule, &'static str)> {
    let prefix = prefix_of(key);
    if is_of_kubernetes(prefix) && prefix.contains(".security.") {
        Some((Rule::Conflict, "an annotation that would loosen what a container is held by"))
    } else if key == MIRROR {
        let why = "an annotation that kubelets give to pods of their own: the API server refuses a StatefulSet whose pods have it";
        Some((Rule::Conflict, why))
    } else if key == DELETION_COST && !is_cost(value) {
        let why = "must be a whole number of 32 bits, without a plus sign or zeros before it: the API server refuses any other";
        Some((Rule::Format, why))
    } else {
        None
    }
}

/// Whether the API server takes a text as the cost of a deletion.
fn is_cost(text: &str) -> bool {
    let is_plain = text == "0" || !text.starts_with(['+', '0']);
    is_plain && text.parse::<i32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_as_the_api_server_wants_it() {
        for good in ["0", "7", "-5", "2147483647", "-2147483648"] {
            assert_eq!(refused(DELETION_COST, good), None, "{good}");
        }
        for bad in ["", "+7", "007", "00", "-", "7.5", "2147483648", "dear"] {
            assert!(refused(DELETION_COST, bad).is_some(), "{bad}");
        }
    }
}
