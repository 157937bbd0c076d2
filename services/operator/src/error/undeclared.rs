//! What server-side apply refuses because the definition in the cluster lacks a field of it, out of the words of the API server. Pure.
//!
//! Such an answer has code 500 and no reason, so that its message alone tells it from a server that is sick. That is a mistake of
//! Kubernetes (issue 139253), whose cure makes it a 400 with the same message: the code is not looked at.

use std::collections::BTreeSet;

use resources::names;

/// How an API server begins when it cannot make sense of an object.
const UNTYPED: &str = "failed to create typed ";
/// What it says of each field that it does not know.
const UNDECLARED: &str = ": field not declared in schema";
/// How many fields are told by name.
const MOST: usize = 5;

/// What lacks which fields, and what to do about it; nothing when the message is about something else.
pub(super) fn told(message: &str) -> Option<String> {
    let (subject, rest) = message.strip_prefix(UNTYPED)?.split_once(": ")?;
    // Several stand in lines of their own, in another order each time. Of those beside each other one is named, whichever is met first.
    let fields: BTreeSet<&str> = rest.lines().filter_map(field).collect();
    if fields.is_empty() {
        return None;
    }
    let more = if fields.len() > MOST { " and others" } else { "" };
    let fields: Vec<&str> = fields.into_iter().take(MOST).collect();
    let fields = format!("{}{more}", fields.join(", "));
    let Some(object) = Object::named(subject) else {
        return Some(format!("a definition in this cluster does not know {fields}: {OTHERWISE}"));
    };
    let Object { place, version, kind } = &object;
    let cure = object.cure();
    Some(format!(
        "the definition of {kind} ({version}) in this cluster does not know {fields} of {kind} {place}: {cure}"
    ))
}

/// The path of a field that is not known.
fn field(line: &str) -> Option<&str> {
    let path = line.trim().strip_suffix(UNDECLARED)?;
    Some(path.strip_prefix('.').unwrap_or(path))
}

/// What to do about a field of which no more is known.
const OTHERWISE: &str =
    "bring that definition up to date, or take what asks for the field out of the spec of the database";

/// An object, as an API server names it in such a message.
struct Object<'a> {
    /// Namespace and name.
    place: &'a str,
    /// Group and version.
    version: &'a str,
    kind: &'a str,
}

impl<'a> Object<'a> {
    /// From `patch object (namespace/name; group/version, Kind=Kind)`, where namespace and group may be empty. Old servers name none.
    fn named(subject: &'a str) -> Option<Self> {
        let (_, named) = subject.split_once(" (")?;
        let (place, named) = named.strip_suffix(')')?.split_once("; ")?;
        let (version, kind) = named.split_once(", Kind=")?;
        let bare = |text: &'a str| text.strip_prefix('/').unwrap_or(text);
        Some(Self { place: bare(place), version: bare(version), kind })
    }

    /// What to do, by who defines the kind.
    fn cure(&self) -> String {
        let (group, _) = self.version.split_once('/').unwrap_or_default();
        let newer = |whose: &str, field: &str| {
            format!(
                "apply the definitions of a newer release of {whose}, or take {field} out of the spec of the database"
            )
        };
        match group {
            names::GROUP => "apply the definitions (deploy/crds) that belong to this operator".to_owned(),
            "monitoring.coreos.com" => newer("the Prometheus Operator", "network.monitor"),
            "traefik.io" => newer("Traefik", "network.ingress"),
            _ => "Kubernetes is too old for it: upgrade the cluster, or take what asks for the field out of the spec of the database"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::error::Error;

    fn answer(code: u16, reason: &str, message: &str) -> Error {
        let status = json!({ "status": "Failure", "code": code, "reason": reason, "message": message });
        let source = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
        Error::kubernetes("apply an object")(source)
    }

    /// A message of an API server, and what is told of it.
    fn check(message: &str, expected: &[&str]) {
        // As it is answered now, and as it is to be.
        for (code, reason) in [(500, ""), (400, "BadRequest")] {
            let error = answer(code, reason, message);
            assert!(matches!(error, Error::Undeclared { .. }), "{error:?}");
            let told = error.stable();
            assert!(told.starts_with("apply an object: "), "{told}");
            assert!(expected.iter().all(|words| told.contains(words)), "{expected:?} in {told}");
            assert!(error.is_lasting() && !error.is_conflict() && error.is_trouble(), "{told}");
            assert_eq!(error.category(), "old_definition");
        }
    }

    #[test]
    fn a_field_that_the_definition_lacks_is_told_with_its_object_and_what_to_do() {
        check(
            "failed to create typed patch object (acme/trades; traefik.io/v1alpha1, Kind=IngressRoute): \
             .spec.routes[0].observability: field not declared in schema",
            &[
                "of IngressRoute (traefik.io/v1alpha1) in this cluster does not know spec.routes[0].observability of",
                "of IngressRoute acme/trades: apply the definitions of a newer release of Traefik, or take network.ingress out",
            ],
        );
        check(
            "failed to create typed patch object (acme/trades; monitoring.coreos.com/v1, Kind=ServiceMonitor): errors:\n  \
             .spec.endpoints[0].scheme: field not declared in schema\n  .spec.attachMetadata.colour: field not declared in schema",
            &[
                "does not know spec.attachMetadata.colour, spec.endpoints[0].scheme of ServiceMonitor acme/trades: ",
                "of the Prometheus Operator, or take network.monitor out",
            ],
        );
    }

    #[test]
    fn a_field_of_our_own_kinds_or_of_kubernetes_is_told_with_what_to_upgrade() {
        check(
            "failed to create typed patch object (acme/trades-last-1; crd.questdb.io/v1, Kind=QuestDBSnapshot): \
             .spec.volumeId: field not declared in schema",
            &[
                "does not know spec.volumeId of QuestDBSnapshot acme/trades-last-1: ",
                "(deploy/crds) that belong",
            ],
        );
        check(
            "failed to create typed patch object (d8-log-shipper/agent; apps/v1, Kind=DaemonSet): \
             .spec.template.spec.containers[name=\"vector\"].resources.cpu: field not declared in schema",
            &[
                "spec.template.spec.containers[name=\"vector\"].resources.cpu of DaemonSet d8-log-shipper/agent: ",
                "upgrade the cluster",
            ],
        );
        check(
            "failed to create typed patch object (general/admin-api; /v1, Kind=Service): \
             .spec.topologyKeys: field not declared in schema",
            &["of Service (v1) in", "spec.topologyKeys of Service general/admin-api: Kubernetes is too old"],
        );
        check(
            "failed to create typed patch object (/mypv; /v1, Kind=PersistentVolume): .spec.readOnly: field not declared in schema",
            &["spec.readOnly of PersistentVolume mypv: "],
        );
        check(
            "failed to create typed live object (acme/trades; traefik.io/v1alpha1, Kind=IngressRouteTCP): \
             .spec.x: field not declared in schema",
            &["spec.x of IngressRouteTCP acme/trades: "],
        );
        // From before objects were named.
        check(
            "failed to create typed patch object: .spec.x: field not declared in schema",
            &["a definition in this cluster does not know spec.x: bring that definition up to date"],
        );
    }

    #[test]
    fn fields_are_told_in_one_order_and_only_the_first_of_many() {
        let told = |fields: &[&str]| {
            let lines: Vec<String> = fields
                .iter()
                .map(|field| format!("\n  .spec.{field}.x: field not declared in schema"))
                .collect();
            let lines = lines.concat();
            let object = "(a/b; traefik.io/v1alpha1, Kind=IngressRoute)";
            answer(500, "", &format!("failed to create typed patch object {object}: errors:{lines}")).stable()
        };
        assert_eq!(told(&["b", "a"]), told(&["a", "b"]));
        assert!(told(&["a", "b", "c", "d", "e"]).contains("spec.d.x, spec.e.x of IngressRoute a/b"));
        assert!(
            told(&["f", "e", "d", "c", "b", "a"])
                .contains("spec.d.x, spec.e.x and others of IngressRoute a/b")
        );
    }

    #[test]
    fn what_is_about_something_else_keeps_its_own_words() {
        for (code, reason, message) in [
            (
                500,
                "",
                "failed to create typed patch object (a/b; apps/v1, Kind=StatefulSet): .spec.replicas: expected numeric",
            ),
            (
                500,
                "",
                "failed to create typed patch object (a/b; apps/v1, Kind=Deployment): errors:\n  \
                 .spec.template.spec.containers[name=\"c\"].env: duplicate entries for key [name=\"A\"]\n  \
                 .spec.template.spec.containers[name=\"c\"].env: duplicate entries for key [name=\"B\"]",
            ),
            (500, "InternalError", "etcdserver: request timed out"),
            // Others may repeat such words.
            (
                403,
                "Forbidden",
                "admission webhook \"w\" denied the request: .spec.x: field not declared in schema",
            ),
            (500, "InternalError", "failed calling webhook \"w\": .spec.x: field not declared in schema"),
        ] {
            let error = answer(code, reason, message);
            assert!(matches!(error, Error::Kubernetes { .. }), "{error:?}");
        }
    }
}
