//! Why a watch does not work, told apart by who can cure it: the API server refuses it, which only people change, or it
//! broke and is begun again until it works. Pure.
//!
//! *Invariant:* only what the API server itself says counts as a refusal: that RBAC forbids the verb, or that it does not know
//! a kind that a definition brings. A proxy's answer, a time-out and an error of any other code are something that broke.

use std::fmt::{self, Display};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::core::Status;
use kube::runtime::watcher::Error;
use resources::names;

/// What is watched: a kind, in the whole cluster or in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Watched {
    pub(super) kind: String,
    pub(super) place: Option<String>,
    /// The one object that is watched; empty where it is all of them.
    object: String,
    /// By what name rights are granted to it: `networkpolicies.networking.k8s.io`.
    resource: String,
}

impl Watched {
    /// A kind under the name that people know it by.
    pub(crate) fn new(kind: &str, (plural, group): (&str, &str), place: Option<&str>) -> Self {
        let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        Self { kind: kind.to_owned(), place: place.map(str::to_owned), object: String::new(), resource }
    }

    /// A kind of which the types are known.
    pub(crate) fn of<K: Resource<DynamicType = ()>>(place: Option<&str>) -> Self {
        Self::new(&K::kind(&()), (&K::plural(&()), &K::group(&())), place)
    }

    /// The objects of a kind by another name than its own: not all of each, or not all of them.
    pub(crate) fn named<K>(kind: &str, place: Option<&str>) -> Self
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Self { kind: kind.to_owned(), ..Self::of::<K>(place) }
    }

    /// The namespace; none for all of them, or the cluster.
    pub(crate) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// One object of them.
    pub(crate) fn one(self, object: &str) -> Self {
        Self { object: object.to_owned(), ..self }
    }

    /// Whether it is one object alone.
    pub(super) const fn is_one(&self) -> bool {
        !self.object.is_empty()
    }

    /// Whether a definition brings the kind, which may be missing; Kubernetes' own cannot.
    fn is_defined(&self) -> bool {
        let group = self.resource.split_once('.').map_or("", |(_, group)| group);
        group.contains('.') && !group.ends_with(".k8s.io")
    }

    fn is_ours(&self) -> bool {
        self.resource.split_once('.').is_some_and(|(_, group)| group == names::GROUP)
    }

    /// Where, in words that follow a list of kinds.
    fn at(&self) -> String {
        self.place.as_deref().map_or_else(String::new, |namespace| format!(" in namespace {namespace}"))
    }
}

impl Display for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.object.is_empty() { "" } else { " " };
        write!(formatter, "{}{space}{}{}", self.kind, self.object, self.at())
    }
}

/// What is wrong with a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// We have no right to it: the verb that RBAC lacks.
    Denied(&'static str),
    /// The cluster does not know the kind.
    Missing,
    /// Anything else, for people.
    Broken(String),
}

impl Trouble {
    /// What an error says of a watch.
    pub(super) fn of(watched: &Watched, error: &Error) -> Self {
        let answer = match error {
            Error::InitialListFailed(kube::Error::Api(status)) => Some(("list", status)),
            Error::WatchStartFailed(kube::Error::Api(status)) => Some(("watch", status)),
            _ => None,
        };
        match answer {
            None if is_unread(error) => Self::Broken(unread(error)),
            Some((verb, status)) if is_denial(status) => Self::Denied(verb),
            Some((_, status)) if status.code == 404 && watched.is_defined() => Self::Missing,
            _ => Self::Broken(runtime::telemetry::chain(error)),
        }
    }

    /// Whether only people cure it.
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::Missing)
    }
}

/// Whether the API server itself says that we may not: what stands before it gives no reason.
fn is_denial(status: &Status) -> bool {
    status.code == 403 && status.reason == "Forbidden"
}

/// Whether a watch told something that cannot be read. What is no event kube takes for a `Status`, of which any part may be missing: one
/// of which all are is no word of the API server.
pub(super) fn is_unread(error: &Error) -> bool {
    match error {
        Error::WatchFailed(kube::Error::SerdeError(_)) => true,
        Error::WatchFailed(kube::Error::Api(status)) => status.status.is_none() && status.code == 0,
        _ => false,
    }
}

/// The same in words. Of what kube took for a `Status` nobody knows more.
fn unread(error: &Error) -> String {
    let text = "it told of something that cannot be read, and begins again with a list";
    match error {
        Error::WatchFailed(kube::Error::SerdeError(why)) => format!("{text}: {why}"),
        _ => text.to_owned(),
    }
}

/// The kind of an error, for metrics: what is the same is told once.
pub(super) fn label(error: &Error) -> &'static str {
    if is_unread(error) {
        return "unreadable";
    }
    let code = match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            match error {
                kube::Error::Api(status) => status.code,
                kube::Error::SerdeError(_) => return "unreadable",
                _ => return "unreachable",
            }
        }
        Error::WatchError(status) => status.code,
        Error::NoResourceVersion => return "unreadable",
    };
    match code {
        401 | 403 => "forbidden",
        404 => "missing",
        410 => "expired",
        _ => "refused",
    }
}

/// Why some watches are refused, and what to do; `rights` is the command that grants what the operator needs. The same
/// each time: no error's own words.
pub(super) fn told(all: &[(&Watched, &Trouble)], rights: &str) -> String {
    let mut groups: Vec<(Group, Vec<&str>)> = Vec::new();
    for (watched, trouble) in all {
        let Some(group) = Group::of(watched, trouble) else { continue };
        let name = watched.resource.as_str();
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => groups.push((group, vec![name])),
        }
    }
    groups.sort();
    let texts: Vec<_> = groups.iter().map(|(group, names)| group.told(&names.join(", "), rights)).collect();
    texts.join("; ")
}

/// What is told in one sentence.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Denied(&'static str, String),
    Missing { ours: bool },
}

impl Group {
    fn of(watched: &Watched, trouble: &Trouble) -> Option<Self> {
        match trouble {
            Trouble::Denied(verb) => Some(Self::Denied(verb, watched.at())),
            Trouble::Missing => Some(Self::Missing { ours: watched.is_ours() }),
            Trouble::Broken(_) => None,
        }
    }

    fn told(&self, names: &str, rights: &str) -> String {
        match self {
            Self::Denied(verb, at) if at.is_empty() => {
                format!("the API server does not let this operator {verb} {names}: grant it with '{rights}'")
            }
            Self::Denied(verb, at) => format!(
                "the API server does not let this operator {verb} {names}{at}: grant it with '{rights}', or look after that \
                 namespace no more (SLIPWAY_WATCH_NAMESPACE); a namespace that is being deleted takes its rights with it"
            ),
            Self::Missing { ours: true } => format!(
                "the cluster does not know {names}: apply the definitions of this operator with 'kubectl apply -f deploy/crds/'"
            ),
            Self::Missing { ours: false } => {
                format!("the cluster does not know {names}: install the definition")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::Error as Kube;
    use serde_json::json;

    use super::*;

    const CLUSTER: (&str, &str) = ("nodes", "");

    fn status(code: u16, reason: &str) -> Kube {
        let status = json!({ "status": "Failure", "message": "forbidden", "reason": reason, "code": code });
        Kube::Api(Box::new(serde_json::from_value::<Status>(status).unwrap()))
    }

    #[test]
    fn only_what_the_api_server_refuses_itself_is_a_refusal() {
        let of_kubernetes = Watched::new("Secret", ("secrets", ""), Some("b"));
        let defined = Watched::new("QuestDBSnapshot", ("questdbsnapshots", names::GROUP), Some("b"));
        let check = |watched: &Watched, error: Error, expected: Option<Trouble>| {
            let found = Trouble::of(watched, &error);
            assert_eq!(found.is_refusal(), expected.is_some(), "{watched} {error}");
            assert!(expected.is_none_or(|expected| expected == found), "{watched} {error}: {found:?}");
        };
        for watched in [&of_kubernetes, &defined] {
            check(watched, Error::InitialListFailed(status(403, "Forbidden")), Some(Trouble::Denied("list")));
            check(watched, Error::WatchStartFailed(status(403, "Forbidden")), Some(Trouble::Denied("watch")));
            for (code, reason) in [
                (401, "Unauthorized"),
                (403, "Failed to parse error data"),
                (410, "Expired"),
                (429, "TooManyRequests"),
                (500, "InternalError"),
                (500, "Forbidden"),
                (504, "Timeout"),
            ] {
                check(watched, Error::InitialListFailed(status(code, reason)), None);
                check(watched, Error::WatchStartFailed(status(code, reason)), None);
            }
            // Only a list and the begin of a watch are asked for.
            let Kube::Api(told) = status(403, "Forbidden") else { unreachable!() };
            check(watched, Error::WatchError(told), None);
            check(watched, Error::WatchFailed(status(403, "Forbidden")), None);
            check(watched, Error::NoResourceVersion, None);
        }
        let missing = || Error::InitialListFailed(status(404, "Failed to parse error data"));
        check(&defined, missing(), Some(Trouble::Missing));
        check(&of_kubernetes, missing(), None);
        let policy = Watched::new("NetworkPolicy", ("networkpolicies", "networking.k8s.io"), None);
        check(&policy, missing(), None);
        let route = Watched::new("IngressRoute", ("ingressroutes", "traefik.io"), None);
        check(&route, missing(), Some(Trouble::Missing));
    }

    #[test]
    fn what_cannot_be_read_is_told_as_that_and_no_answer_of_the_api_server_is() {
        let nodes = Watched::new("Node", CLUSTER, None);
        let no_event = serde_json::from_str::<Status>("7").unwrap_err();
        // So kube reads an event of an object that it cannot read.
        let event = json!({ "type": "MODIFIED", "object": { "metadata": { "name": 7 } } });
        let taken_for_a_status = Kube::Api(Box::new(serde_json::from_value::<Status>(event).unwrap()));
        for error in [Kube::SerdeError(no_event), taken_for_a_status] {
            let error = Error::WatchFailed(error);
            assert!(is_unread(&error) && label(&error) == "unreadable", "{error}");
            let Trouble::Broken(text) = Trouble::of(&nodes, &error) else { unreachable!("{error}") };
            assert!(text.starts_with("it told of something that cannot be read"), "{text}");
        }
        for error in [
            Error::WatchFailed(status(410, "Expired")),
            Error::InitialListFailed(status(0, "")),
            Error::NoResourceVersion,
        ] {
            assert!(!is_unread(&error), "{error}");
        }
    }

    #[test]
    fn what_is_told_names_verb_kinds_namespace_and_what_to_do() {
        let denied = Trouble::Denied("list");
        let of = |plural: &str, place: Option<&str>| Watched::new("Kind", (plural, ""), place);
        let (secrets, pods) = (of("secrets", Some("b")), of("pods", Some("b")));
        let text = told(&[(&secrets, &denied), (&pods, &denied), (&secrets, &denied)], "grant me");
        assert_eq!(
            text,
            "the API server does not let this operator list secrets, pods in namespace b: grant it with 'grant me', or look \
             after that namespace no more (SLIPWAY_WATCH_NAMESPACE); a namespace that is being deleted takes its rights with it"
        );
        let nodes = Watched::new("Node", CLUSTER, None);
        let watch = Trouble::Denied("watch");
        let text = told(&[(&nodes, &watch)], "grant me");
        assert_eq!(text, "the API server does not let this operator watch nodes: grant it with 'grant me'");
        let ours = Watched::new("QuestDB", ("questdbs", names::GROUP), Some("b"));
        let broken = Trouble::Broken("port 4711".to_owned());
        let text = told(&[(&ours, &Trouble::Missing), (&pods, &broken)], "grant me");
        assert_eq!(
            text,
            "the cluster does not know questdbs.crd.questdb.io: apply the definitions of this operator with \
             'kubectl apply -f deploy/crds/'"
        );
    }
}
