//! Annotations of a pod that nobody may choose: for what they would loosen, or because the API server refuses every template that has
//! them. With one of those no later word of the resource could be written to the StatefulSet.

use domain::Rule;
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Map, Value};

use super::spelling::is_taint;
use crate::reach::{is_key, prefix_of};

/// By this a kubelet tells which pods it made itself, of files of its machine. Such a pod is placed already, and no template is.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How dear it is to lose the pod, beside others of its kind.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// What the pod bears of a machine, as it was said before there was a field for it. Nobody heeds it, and the API server reads it.
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
/// Fields of one of them.
const FIELDS: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];

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
    } else if key == TOLERATIONS && !are_tolerations(value) {
        let why = "must be a list of tolerations as JSON: the API server refuses any other, though nobody heeds it; \
                   /spec/pod/tolerations is for them";
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

/// Whether the API server takes a text as tolerations.
fn are_tolerations(text: &str) -> bool {
    text.is_empty() || read_tolerations(text).is_some_and(|found| found.iter().all(is_toleration))
}

/// As the API server reads them, to which the names of fields are the same in capitals.
fn read_tolerations(text: &str) -> Option<Vec<Toleration>> {
    let found: Option<Vec<Map<String, Value>>> = serde_json::from_str(text).ok()?;
    let named = |(name, value): (String, Value)| {
        let known = FIELDS.into_iter().find(|field| field.eq_ignore_ascii_case(&name));
        (known.map_or(name, str::to_owned), value)
    };
    let read = |one: Map<String, Value>| {
        let one: Map<String, Value> = one.into_iter().map(named).collect();
        serde_json::from_value::<Toleration>(Value::Object(one)).ok()
    };
    found.into_iter().flatten().map(read).collect()
}

fn is_toleration(toleration: &Toleration) -> bool {
    let Toleration { key, operator, value, effect, toleration_seconds } = toleration;
    let [key, operator, value, effect] =
        [key, operator, value, effect].map(|field| field.as_deref().unwrap_or_default());
    let is_of_taint = match operator {
        "" | "Equal" => is_taint(key, Some(value)),
        "Exists" => value.is_empty() && (key.is_empty() || is_key(key)),
        _ => false,
    };
    let is_effect = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    is_of_taint && is_effect && (toleration_seconds.is_none() || effect == "NoExecute")
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

    #[test]
    fn tolerations_are_as_the_api_server_wants_them() {
        let good = [
            "",
            "null",
            "[]",
            r#"[{"operator":"Exists"}]"#,
            r#"[{"key":"desk"},{"key":"example.com/desk","operator":"Equal","value":"a","effect":"NoSchedule"}]"#,
            r#"[{"key":"desk","operator":"Exists","effect":"NoExecute","tolerationSeconds":30,"other":1}]"#,
            r#"[{"Key":"desk","OPERATOR":"Exists","Effect":"NoExecute","TolerationSeconds":30}]"#,
        ];
        for good in good {
            assert_eq!(refused(TOLERATIONS, good), None, "{good}");
        }
        let bad = [
            "desk=trading:NoSchedule",
            "{}",
            "[null]",
            "[{}]",
            r#"["desk"]"#,
            r#"[{"key":"a b"}]"#,
            r#"[{"Key":"a b"}]"#,
            r#"[{"key":"a b","operator":"Exists"}]"#,
            r#"[{"key":"desk","value":"a b"}]"#,
            r#"[{"key":"desk","operator":"Exists","value":"a"}]"#,
            r#"[{"key":"desk","operator":"In"}]"#,
            r#"[{"key":"desk","effect":"NoPods"}]"#,
            r#"[{"key":"desk","effect":"NoSchedule","tolerationSeconds":30}]"#,
            r#"[{"key":"desk","effect":"NoExecute","tolerationSeconds":"30"}]"#,
            r#"[{"key":"desk"}] ["#,
        ];
        for bad in bad {
            assert!(refused(TOLERATIONS, bad).is_some_and(|(rule, _)| rule == Rule::Format), "{bad}");
        }
    }
}
