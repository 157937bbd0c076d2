//! What the API server refuses, told apart by who can cure it. Pure.
//!
//! Most of it comes with 403. Quotas, admission policies and webhooks answer with 403 as well: their own words say best what to do.

use kube::core::Status;

use super::undeclared;

/// A refusal that is told as what it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// RBAC lacks a rule: which verb, on what.
    Denied(String),
    /// The namespace is being deleted.
    Ending,
    /// The definition in the cluster lacks fields: which, of what, and what to do.
    Undeclared(String),
}

/// What kind of refusal an error is, if it is such.
pub(super) fn of(error: &kube::Error) -> Option<Refusal> {
    let kube::Error::Api(status) = error else { return None };
    if let Some(what) = undeclared::told(&status.message) {
        return Some(Refusal::Undeclared(what));
    }
    if status.code != 403 || status.reason != "Forbidden" {
        return None;
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    if causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating") {
        return Some(Refusal::Ending);
    }
    denied(status).map(Refusal::Denied)
}

/// Verb, kind, name and namespace of what RBAC forbids: `… cannot patch resource "services" in API group "" in the
/// namespace "b"`.
fn denied(status: &Status) -> Option<String> {
    let (_, rest) = status.message.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (kind, rest) = rest.split_once('"')?;
    let group = quoted(rest, "in API group \"").filter(|group| !group.is_empty());
    let kind = group.map_or_else(|| kind.to_owned(), |group| format!("{kind}.{group}"));
    let name = status.details.as_ref().map(|details| details.name.as_str()).filter(|name| !name.is_empty());
    let name = name.map_or_else(String::new, |name| format!(" {name}"));
    let place = quoted(rest, "in the namespace \"");
    let place = place.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
    Some(format!("{verb} {kind}{name}{place}"))
}

/// What stands between these words and the next quotation mark.
fn quoted<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(code: u16, reason: &str, message: &str, details: &Value) -> kube::Error {
        let status = json!({
            "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
        });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn what_rbac_forbids_is_named_by_verb_kind_name_and_namespace() {
        let who = "User \"system:serviceaccount:slipway-system:slipway-operator\"";
        let check = |message: &str, name: &str, expected: &str| {
            let error = answer(403, "Forbidden", message, &json!({ "name": name }));
            assert_eq!(of(&error), Some(Refusal::Denied(expected.to_owned())), "{message}");
        };
        check(
            &format!(
                "services \"x\" is forbidden: {who} cannot patch resource \"services\" in API group \"\" in the namespace \"b\""
            ),
            "x",
            "patch services x in namespace b",
        );
        check(
            &format!(
                "nodes is forbidden: {who} cannot list resource \"nodes\" in API group \"\" at the cluster scope"
            ),
            "",
            "list nodes",
        );
        check(
            &format!(
                "x is forbidden: {who} cannot create resource \"statefulsets\" in API group \"apps\" in the namespace \"b\": no"
            ),
            "x",
            "create statefulsets.apps x in namespace b",
        );
    }

    #[test]
    fn a_namespace_on_its_way_out_is_told_apart() {
        let cause = json!({ "causes": [{ "reason": "NamespaceTerminating", "message": "namespace b is being terminated",
            "field": "metadata.namespace" }] });
        let message = "services \"x\" is forbidden: unable to create new content in namespace b because it is being terminated";
        assert_eq!(of(&answer(403, "Forbidden", message, &cause)), Some(Refusal::Ending));
    }

    #[test]
    fn any_other_answer_keeps_its_own_words() {
        let rbac = "x is forbidden: User \"u\" cannot patch resource \"services\" in API group \"\"";
        for (code, reason, message) in [
            (403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: small"),
            (403, "Forbidden", "admission webhook \"w\" denied the request: cannot"),
            (403, "Failed to parse error data", rbac),
            (401, "Unauthorized", rbac),
            (500, "InternalError", rbac),
        ] {
            assert_eq!(of(&answer(code, reason, message, &Value::Null)), None, "{code} {message}");
        }
    }
}
