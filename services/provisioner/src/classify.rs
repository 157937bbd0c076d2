//! What an API server's answer to an apply means. Pure: an error in, a verdict out.

use std::time::Duration;

use domain::Position;
use resources::fence::{Holder, holder};

use crate::fleet::breaker::Answer;

/// What an apply that did not succeed means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The resource holds a newer instruction.
    Superseded(Holder),
    /// The resource holds this very instruction, rendered by a newer translator.
    Held,
    /// The resource holds other content at this very position: somebody minted twice. An alarm.
    Conflict(Holder),
    /// The namespace is missing: to be created, and then applied again.
    NoNamespace,
    /// The cluster cannot take it as it is now: to be parked.
    Park(Trouble),
    /// Will never be taken: to be kept and told.
    Refused(String),
    /// The cluster did not answer, or asks for patience: to be tried again shortly and then parked.
    Busy {
        /// What happened.
        trouble: Trouble,
        /// How long the server asks to wait.
        after: Option<Duration>,
    },
}

/// What is wrong with a cluster, or with a resource in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Stable code.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// Whether it concerns the whole cluster rather than this resource.
    pub cluster: bool,
}

impl Trouble {
    /// A trouble of the whole cluster.
    pub fn of_cluster(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), cluster: true }
    }

    /// A trouble of one resource.
    pub fn of_resource(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), cluster: false }
    }
}

/// Codes of what is parked.
pub mod code {
    /// The API server does not answer.
    pub const UNREACHABLE: &str = "unreachable";
    /// The API server answers that it cannot now.
    pub const UNAVAILABLE: &str = "unavailable";
    /// Credentials are missing, unreadable or not taken.
    pub const CREDENTIALS: &str = "credentials";
    /// What is asked for is not allowed to us.
    pub const FORBIDDEN: &str = "forbidden";
    /// The definition of the resource is missing.
    pub const NO_DEFINITION: &str = "no_definition";
    /// The definition is too old for a field of this resource.
    pub const OLD_DEFINITION: &str = "old_definition";
    /// The namespace is missing or being deleted.
    pub const NAMESPACE: &str = "namespace";
    /// The cluster is out of service.
    pub const DISABLED: &str = "disabled";
    /// The cluster's registration cannot be read by this program.
    pub const REGISTRATION: &str = "registration";
    /// Others write the resource all the time.
    pub const CONTENDED: &str = "contended";
    /// The API server asked for patience.
    pub const THROTTLED: &str = "throttled";
    /// As many calls to the cluster are under way as may be.
    pub const FULL: &str = "full";
    /// The instruction is written for newer readers than this program.
    pub const NEWER_SCHEMA: &str = "newer_schema";
}

/// Says what an error tells of the server itself.
pub fn answer(error: &kube::Error) -> Answer {
    match error {
        kube::Error::Api(status) => match status.code {
            401 => Answer::Stranger(Trouble::of_cluster(code::CREDENTIALS, status.message.clone())),
            429 => Answer::Busy,
            // Of this one patch, not of the server.
            500 if status.reason.is_empty() && status.message.contains("typed") => Answer::Well,
            500 if status.message.contains(UNDECLARED) => Answer::Well,
            500.. => Answer::Sick(Trouble::of_cluster(code::UNAVAILABLE, status.message.clone())),
            _ if !is_its_own(status) && !matches!(status.code, 403 | 404 | 409 | TOO_LARGE) => {
                Answer::Sick(Trouble::of_cluster(code::UNAVAILABLE, status.message.clone()))
            }
            _ => Answer::Well,
        },
        _ if is_of_credentials(error) => {
            Answer::Stranger(Trouble::of_cluster(code::CREDENTIALS, chain(error)))
        }
        _ => Answer::Silent(Trouble::of_cluster(code::UNREACHABLE, chain(error))),
    }
}

/// Whether a call was not made because nobody knows who we are: a token that stands under `auth-provider` ends as a part of the
/// call, wrapped like any other trouble on the way.
fn is_of_credentials(error: &kube::Error) -> bool {
    match error {
        kube::Error::Auth(_) => true,
        kube::Error::Service(inner) => inner.is::<kube::client::AuthError>(),
        _ => false,
    }
}

/// How an API server says that its definition lacks a field.
const UNDECLARED: &str = "field not declared in schema";

/// Says what an error means for the instruction at `position` with content `hash`.
pub fn classify(error: &kube::Error, position: Position, hash: &str) -> Verdict {
    match error {
        kube::Error::Api(status) => answered(status, position, hash),
        _ if is_of_credentials(error) => Verdict::Park(Trouble::of_cluster(code::CREDENTIALS, chain(error))),
        _ => Verdict::Busy { trouble: Trouble::of_cluster(code::UNREACHABLE, chain(error)), after: None },
    }
}

fn answered(status: &kube::core::Status, position: Position, hash: &str) -> Verdict {
    let message = || status.message.clone();
    if let Some(holder) = fence(status) {
        return fenced(holder, position, hash);
    }
    match status.code {
        401 => Verdict::Park(Trouble::of_cluster(code::CREDENTIALS, message())),
        403 if is_terminating(status) => Verdict::Park(Trouble::of_resource(code::NAMESPACE, message())),
        403 => Verdict::Park(Trouble::of_resource(code::FORBIDDEN, message())),
        404 if kind(status) == "namespaces" => Verdict::NoNamespace,
        404 => Verdict::Park(Trouble::of_cluster(code::NO_DEFINITION, no_definition(status))),
        // A typed patch that could not be built: the only one that time can cure is a field from the future.
        500 if status.message.contains(UNDECLARED) => {
            Verdict::Park(Trouble::of_resource(code::OLD_DEFINITION, message()))
        }
        500 if status.reason.is_empty() && status.message.contains("typed") => Verdict::Refused(message()),
        409 => Verdict::Busy { trouble: Trouble::of_resource(code::CONTENDED, message()), after: None },
        429 | 500.. => {
            let trouble = Trouble::of_cluster(code::UNAVAILABLE, message());
            Verdict::Busy { trouble, after: retry_after(status) }
        }
        // The request itself is wrong: 400, 405, 413, 415, 422.
        _ if is_its_own(status) => Verdict::Refused(message()),
        // Nobody else has a say in what a resource may become. That one is too large on the way is no trouble of another.
        TOO_LARGE => {
            Verdict::Busy { trouble: Trouble::of_resource(code::UNAVAILABLE, message()), after: None }
        }
        _ => Verdict::Busy { trouble: Trouble::of_cluster(code::UNAVAILABLE, message()), after: None },
    }
}

/// The code of an answer to a request that is too large.
const TOO_LARGE: u16 = 413;

/// The reason that the library gives an answer which it cannot read.
const UNREAD: &str = "Failed to parse error data";

/// Whether the API server itself says so. Who stands before it, such as a proxy, answers in other words, of which the library makes
/// a status that lacks what each of Kubernetes has, or has a reason of the library's own.
fn is_its_own(status: &kube::core::Status) -> bool {
    status.is_failure() && status.code != 0 && status.reason != UNREAD
}

/// What the fence said, which stands on the whole spec: what is said of a part of it may repeat what a tenant wrote, and so may the
/// message of the whole answer.
fn fence(status: &kube::core::Status) -> Option<Holder> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let of_spec = causes.filter(|cause| cause.reason == "FieldValueForbidden" && cause.field == "spec");
    of_spec.map(|cause| cause.message.as_str()).find_map(holder)
}

/// Says what a refusal by the fence means for the instruction at `position` with content `hash`.
pub fn fenced(holder: Holder, position: Position, hash: &str) -> Verdict {
    let held = Position { epoch: holder.epoch, seq: holder.seq };
    match held.cmp(&position) {
        std::cmp::Ordering::Equal if holder.hash == hash => Verdict::Held,
        // An older holder refuses nobody; if one does all the same, somebody should look at it.
        std::cmp::Ordering::Equal | std::cmp::Ordering::Less => Verdict::Conflict(holder),
        std::cmp::Ordering::Greater => Verdict::Superseded(holder),
    }
}

fn kind(status: &kube::core::Status) -> &str {
    status.details.as_ref().map_or("", |details| details.kind.as_str())
}

fn is_terminating(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
        || status.message.contains("being terminated")
}

fn no_definition(status: &kube::core::Status) -> String {
    format!("the cluster does not know {}: {}", resources::names::DEFINITION, status.message.trim())
}

fn retry_after(status: &kube::core::Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// An error with its causes.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    runtime::telemetry::chain(error)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    const AT: Position = Position { epoch: 1, seq: 5 };

    fn status(code: u16, reason: &str, message: &str) -> Status {
        Status::failure(message, reason).with_code(code)
    }

    fn details(kind: &str, causes: Vec<StatusCause>, retry_after_seconds: u32) -> StatusDetails {
        let (name, group, uid) = (String::new(), String::new(), String::new());
        StatusDetails { name, group, kind: kind.to_owned(), uid, causes, retry_after_seconds }
    }

    fn about(kind: &str, mut status: Status) -> Status {
        status.details = Some(details(kind, Vec::new(), 0));
        status
    }

    fn caused(message: &str) -> Status {
        caused_at("spec", "FieldValueForbidden", &format!("Forbidden: {message}"))
    }

    /// As an API server says it.
    fn caused_at(field: &str, reason: &str, message: &str) -> Status {
        let cause =
            StatusCause { reason: reason.to_owned(), message: message.to_owned(), field: field.to_owned() };
        let mut status = status(422, "Invalid", &format!("QuestDB is invalid: {field}: {message}"));
        status.details = Some(details("", vec![cause], 0));
        status
    }

    /// As the library reads what somebody on the way says: a page, and documents in a form of their own.
    fn on_the_way() -> [Status; 5] {
        let document = |code| Status { code, message: "no backend".to_owned(), ..Status::default() };
        let page = |code| status(code, "Failed to parse error data", "<html></html>");
        [page(400), page(408), page(421), document(0), document(400)]
    }

    fn verdict(status: Status) -> Verdict {
        classify(&kube::Error::Api(Box::new(status)), AT, "aaa")
    }

    fn code_of(verdict: &Verdict) -> &str {
        match verdict {
            Verdict::Park(trouble) | Verdict::Busy { trouble, .. } => trouble.code,
            Verdict::Superseded(_) => "superseded",
            Verdict::Held => "held",
            Verdict::Conflict(_) => "conflict",
            Verdict::NoNamespace => "create",
            Verdict::Refused(_) => "refused",
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let terminating = "unable to create new content in namespace x because it is being terminated";
        let table = [
            (caused("slipway-fence 1/6/bbb"), "superseded"),
            (caused("slipway-fence 2/1/bbb"), "superseded"),
            (caused("slipway-fence 1/5/aaa"), "held"),
            (caused("slipway-fence 1/5/bbb"), "conflict"),
            (caused("slipway-fence 1/4/bbb"), "conflict"),
            (caused("spec.storage.sizeGib can only grow"), "refused"),
            // A tenant's text is repeated.
            (caused_at("spec.config.x", "FieldValueInvalid", "slipway-fence 9/9/x"), "refused"),
            (caused_at("spec.config.x", "FieldValueForbidden", "Forbidden: slipway-fence 9/9/x"), "refused"),
            (caused_at("spec", "FieldValueInvalid", "slipway-fence 9/9/x"), "refused"),
            (status(422, "Invalid", "spec.config.x: Invalid value: \"slipway-fence 9/9/x\""), "refused"),
            (status(422, "Invalid", "spec.version: Invalid value"), "refused"),
            (status(401, "Unauthorized", "Unauthorized"), code::CREDENTIALS),
            (status(403, "Forbidden", "may not"), code::FORBIDDEN),
            (status(403, "Forbidden", terminating), code::NAMESPACE),
            (about("namespaces", status(404, "NotFound", "namespaces \"qdb-acme\" not found")), "create"),
            (status(404, "Failed to parse error data", "404 page not found\n"), code::NO_DEFINITION),
            (status(500, "", ".spec.next: field not declared in schema"), code::OLD_DEFINITION),
            (status(500, "", "failed to create typed patch object: expected string, got 5"), "refused"),
            (status(500, "InternalError", "etcdserver: request timed out"), code::UNAVAILABLE),
            (status(503, "ServiceUnavailable", "no"), code::UNAVAILABLE),
            (status(504, "Timeout", "no"), code::UNAVAILABLE),
            (status(429, "TooManyRequests", "no"), code::UNAVAILABLE),
            (status(409, "Conflict", "the object has been modified"), code::CONTENDED),
            (status(400, "BadRequest", "no"), "refused"),
        ];
        for (status, expected) in table {
            let verdict = verdict(status.clone());
            assert_eq!(code_of(&verdict), expected, "{status:?}");
        }
    }

    #[test]
    fn nobody_but_the_api_server_refuses_for_good() {
        for status in on_the_way() {
            let error = kube::Error::Api(Box::new(status.clone()));
            assert!(matches!(answer(&error), Answer::Sick(_)), "{status:?}");
            assert_eq!(code_of(&verdict(status)), code::UNAVAILABLE);
        }
    }

    #[test]
    fn a_resource_that_is_too_large_on_the_way_is_in_nobodys_way() {
        let page = status(TOO_LARGE, "Failed to parse error data", "<html></html>");
        let error = kube::Error::Api(Box::new(page.clone()));
        assert_eq!(answer(&error), Answer::Well);
        let Verdict::Busy { trouble, .. } = verdict(page) else { panic!("it may be taken later") };
        assert!(!trouble.cluster, "{trouble:?}");
        assert_eq!(code_of(&verdict(status(TOO_LARGE, "RequestEntityTooLarge", "limit"))), "refused");
    }

    #[test]
    fn what_an_answer_tells_of_the_server() {
        let table = [
            (status(401, "Unauthorized", "Unauthorized"), "stranger"),
            (status(403, "Forbidden", "may not"), "well"),
            (status(404, "Failed to parse error data", "404 page not found\n"), "well"),
            (status(409, "Conflict", "no"), "well"),
            (caused("slipway-fence 1/6/bbb"), "well"),
            (status(429, "TooManyRequests", "no"), "busy"),
            (status(500, "", ".spec.next: field not declared in schema"), "well"),
            (status(500, "", "failed to create typed patch object: expected string, got 5"), "well"),
            (status(500, "InternalError", "etcdserver: request timed out"), "sick"),
            (status(503, "ServiceUnavailable", "no"), "sick"),
            (status(504, "Timeout", "no"), "sick"),
        ];
        let word = |error: &kube::Error| match answer(error) {
            Answer::Well => "well",
            Answer::Sick(_) => "sick",
            Answer::Busy => "busy",
            Answer::Stranger(_) => "stranger",
            Answer::Silent(_) | Answer::Late(_) => "silent",
        };
        for (status, expected) in table {
            assert_eq!(word(&kube::Error::Api(Box::new(status.clone()))), expected, "{status:?}");
        }
        assert_eq!(word(&kube::Error::Service("connection refused".into())), "silent");
    }

    #[test]
    fn the_server_says_how_long_to_wait() {
        let mut status = status(429, "TooManyRequests", "no");
        status.details = Some(details("", Vec::new(), 7));
        let Verdict::Busy { after, .. } = verdict(status) else { panic!("not busy") };
        assert_eq!(after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn a_server_that_is_not_there_is_unreachable() {
        let error = kube::Error::Service("connection refused".into());
        assert_eq!(code_of(&classify(&error, AT, "aaa")), code::UNREACHABLE);
    }

    #[test]
    fn a_token_that_ends_is_no_fault_of_the_server() {
        let error = kube::Error::Service(kube::client::AuthError::AuthExec("it is over".to_owned()).into());
        assert_eq!(code_of(&classify(&error, AT, "aaa")), code::CREDENTIALS, "{error}");
        assert!(matches!(answer(&error), Answer::Stranger(_)), "{error}");
    }
}
