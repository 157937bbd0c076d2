//! Everything that a request can end in but success, as a problem document. The one table from errors to statuses.
//!
//! A failure leaves the handlers as an extension of the response; the middleware adds the request's identity and writes
//! the body, so that no handler has to know it.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::placement::Refusal;
use domain::{Rule, Violation, Violations};
use store::Conflict;
use wire::http::{Problem, UnreadableCluster};

/// Seconds after which a client may come again when something of ours is down.
const RETRY_AFTER: u32 = 2;
/// The same where a backlog has to go down first.
const BACKLOG_RETRY_AFTER: u32 = 10;

/// Why a request did not succeed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) problem: Box<Problem>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// What only the log should say.
    pub(crate) cause: Option<String>,
}

impl Failure {
    fn new(status: StatusCode, code: &str, title: &str) -> Self {
        Self {
            problem: Box::new(Problem::new(status.as_u16(), code, title)),
            headers: Vec::new(),
            cause: None,
        }
    }

    fn detail(mut self, detail: impl Into<String>) -> Self {
        self.problem.detail = detail.into();
        self
    }

    fn header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same failure, naming where the input breaks which rule.
    fn at(mut self, pointer: &str, rule: Rule, detail: &str) -> Self {
        self.problem.errors =
            Problem::invalid(&Violations(vec![Violation::new(pointer, rule, detail)])).errors;
        if self.problem.detail.is_empty() {
            detail.clone_into(&mut self.problem.detail);
        }
        self
    }

    /// The input breaks rules of the domain.
    pub(crate) fn invalid(violations: &Violations) -> Self {
        Self { problem: Box::new(Problem::invalid(violations)), headers: Vec::new(), cause: None }
    }

    /// The input breaks one rule.
    pub(crate) fn violation(violation: Violation) -> Self {
        Self::invalid(&Violations(vec![violation]))
    }

    /// The body is no JSON.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed_json", "The body is not JSON").detail(detail)
    }

    /// The body is too long.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large").at(
            "",
            Rule::Range,
            &format!("a body has at most {limit} bytes"),
        )
    }

    /// The body is of a type that nobody reads here.
    pub(crate) fn media_type() -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", "The body's type is not supported").at(
            "header:Content-Type",
            Rule::Unknown,
            "send application/json",
        )
    }

    /// The body did not arrive.
    pub(crate) fn unreadable_body(cause: String) -> Self {
        let failure = Self::new(StatusCode::BAD_REQUEST, "unreadable_body", "The body did not arrive whole");
        Self { cause: Some(cause), ..failure }
    }

    /// A header is missing or wrong.
    pub(crate) fn bad_header(code: &str, name: &str, rule: Rule, detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, "A header is missing or wrong").at(
            &format!("header:{name}"),
            rule,
            detail,
        )
    }

    /// A parameter of the query is wrong.
    pub(crate) fn bad_query(name: &str, rule: Rule, detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_query", "A query parameter is wrong").at(
            &format!("query:{name}"),
            rule,
            detail,
        )
    }

    /// Nobody known asks.
    pub(crate) fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", "A valid token is needed")
            .detail("send `Authorization: Bearer <token>` with a token that is neither revoked nor expired")
            .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    /// The token may not do this.
    pub(crate) fn forbidden(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "The token may not do this").detail(detail)
    }

    /// Nothing here, or nothing that the token may see: both answer alike.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "There is no such thing")
            .detail(format!("no such {what}"))
    }

    /// Something names a database that nobody knows.
    pub(crate) fn unknown_database(detail: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_database", "Nothing was sent").detail(detail)
    }

    /// No such path.
    pub(crate) fn no_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no_such_path", "There is no such path").detail("see /openapi.json")
    }

    /// The path knows other methods.
    pub(crate) fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "The path has no such method")
            .detail("see /openapi.json")
    }

    /// The request clashes with what is there.
    pub(crate) fn conflict(code: &str, title: &str, detail: &str) -> Self {
        Self::new(StatusCode::CONFLICT, code, title).detail(detail)
    }

    /// No cluster takes the new database.
    pub(crate) fn no_place(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NoRegion(violation) => Self::violation(violation.clone()),
            Refusal::Closed { .. } => Self::region_closed(&refusal.detail()),
        }
    }

    /// The cluster that would have taken the new database was closed at this moment.
    pub(crate) fn place_closing(region: &str) -> Self {
        let detail = format!("a cluster of region {region} was just closed for new databases: try again");
        Self::region_closed(&detail).header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// There may be a place for the new database, in a cluster that cannot be read.
    pub(crate) fn place_unread(cluster: &UnreadableCluster) -> Self {
        let detail = format!("what is kept of region {} cannot be read at present", cluster.region);
        Self::unavailable(&detail, cluster.detail.clone())
    }

    fn region_closed(detail: &str) -> Self {
        let failure = Self::conflict("region_closed", "The region takes no new databases", detail);
        failure.at("/region", Rule::Conflict, detail)
    }

    /// The operation cannot be cancelled.
    pub(crate) fn uncancellable(code: &str, detail: &str) -> Self {
        Self::conflict(code, "The operation cannot be cancelled", detail)
    }

    /// The idempotency key was used for something else.
    pub(crate) fn other_body() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "The key was used for another request",
        )
        .at(
            "header:Idempotency-Key",
            Rule::Conflict,
            "this key came with another body before; use a new key",
        )
    }

    /// A request with the same idempotency key is under way.
    pub(crate) fn in_flight() -> Self {
        Self::conflict(
            "idempotency_key_in_flight",
            "The same request is under way",
            "a request with this Idempotency-Key is being answered; send it again in a moment",
        )
        .header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// No precondition was given where one is needed.
    pub(crate) fn precondition_required() -> Self {
        Self::new(StatusCode::PRECONDITION_REQUIRED, "precondition_required", "If-Match is needed").at(
            "header:If-Match",
            Rule::Required,
            "read the database and send its ETag as If-Match, so that no other change is overwritten",
        )
    }

    /// The thing changed since the client read it.
    pub(crate) fn precondition_failed(current: &str) -> Self {
        let detail =
            format!("the database changed meanwhile (it is {current} now): read it again, then decide");
        let failure = Self::new(
            StatusCode::PRECONDITION_FAILED,
            "precondition_failed",
            "The database changed meanwhile",
        );
        let failure = failure.at("header:If-Match", Rule::Conflict, &detail);
        match HeaderValue::from_str(current) {
            Ok(etag) => failure.header(header::ETAG, etag),
            Err(_) => failure,
        }
    }

    /// Something of ours cannot be reached or is too busy.
    pub(crate) fn unavailable(detail: &str, cause: String) -> Self {
        let failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Try again in a moment")
            .detail(detail)
            .header(header::RETRY_AFTER, RETRY_AFTER);
        Self { cause: Some(cause), ..failure }
    }

    /// The tenant asks for more than its share, or too many ask of whom nothing is known.
    pub(crate) fn too_many(detail: &str, after: Duration) -> Self {
        // Never at once, and in whole seconds, as the header has them.
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", "Too many requests")
            .detail(detail)
            .header(header::RETRY_AFTER, seconds.max(1))
    }

    /// Too much waits to be published.
    pub(crate) fn backlog(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "backlog", "Too many changes wait")
            .detail(detail)
            .header(header::RETRY_AFTER, BACKLOG_RETRY_AFTER)
    }

    /// The desired state is larger than what can be sent to a cluster.
    pub(crate) fn state_too_large(bytes: usize, limit: usize) -> Self {
        let detail = format!(
            "the database's whole desired state may take at most {limit} bytes, and would take {bytes}: shorten it"
        );
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "state_too_large", "The desired state is too large").at(
            "",
            Rule::Range,
            &detail,
        )
    }

    /// What is asked for is there and cannot be read; `what` names it.
    pub(crate) fn unreadable(table: &str, what: &str, cause: String) -> Self {
        let detail = format!(
            "{what}. Nothing of it was changed, and all others can be used. While the control plane is being upgraded, a newer \
             program may have written it: ask again once that is done. Else its row in the table {table} is damaged: ask \
             those who run the control plane to mend it"
        );
        let failure =
            Self::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", "What is kept of it cannot be read");
        Self { cause: Some(cause), ..failure.detail(detail) }
    }

    /// A mistake of ours.
    pub(crate) fn internal(cause: String) -> Self {
        let failure = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something is broken here")
            .detail("this is our mistake; the request_id helps to find it");
        Self { cause: Some(cause), ..failure }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        let cause = runtime::telemetry::chain(&error);
        match error {
            store::Error::Reach(_) => {
                Self::unavailable("the database of the control plane cannot be reached", cause)
            }
            store::Error::Busy(_) | store::Error::OffsetsMoved => {
                Self::unavailable("the control plane is busy with the same thing", cause)
            }
            store::Error::Outdated | store::Error::Outgrown { .. } | store::Error::Held { .. } => {
                Self::unavailable("the control plane is being upgraded", cause)
            }
            store::Error::Conflict(conflict) => Self::from(conflict),
            store::Error::Exhausted => Self::conflict(
                "exhausted",
                "The database cannot change any more",
                "all positions of this database are used up",
            ),
            // These are read for those alone who may see all of them.
            store::Error::Corrupt { table: table @ ("clusters" | "databases" | "operations"), what } => {
                Self::unreadable(table, &what, cause)
            }
            store::Error::ParseUrl(_)
            | store::Error::Corrupt { .. }
            | store::Error::Migrate(_)
            | store::Error::Statement(_) => Self::internal(cause),
        }
    }
}

impl From<Conflict> for Failure {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::NameTaken => Self::conflict("name_taken", "The name is taken", "").at(
                "/name",
                Rule::Conflict,
                "a living database of this tenant has this name; choose another one or delete that database",
            ),
            Conflict::PositionTaken => Self::conflict(
                "position_taken",
                "Somebody else changed it",
                "read the database again, then decide",
            ),
            Conflict::KeyUsed => Self::in_flight(),
            Conflict::OperationEnded => {
                Self::uncancellable("operation_ended", "it reached its end: look at it again")
            }
            Conflict::UnknownTenant => Self::not_found("tenant"),
            Conflict::UnknownCluster => Self::not_found("cluster"),
            Conflict::UnknownDatabase => Self::not_found("database"),
            Conflict::TokenExists => Self::conflict("token_exists", "The token exists", "make another one"),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        for (name, value) in &self.headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_conflict_has_its_status_and_code() {
        let table = [
            (Conflict::NameTaken, 409, "name_taken"),
            (Conflict::PositionTaken, 409, "position_taken"),
            (Conflict::KeyUsed, 409, "idempotency_key_in_flight"),
            (Conflict::OperationEnded, 409, "operation_ended"),
            (Conflict::UnknownTenant, 404, "not_found"),
            (Conflict::UnknownCluster, 404, "not_found"),
            (Conflict::UnknownDatabase, 404, "not_found"),
            (Conflict::TokenExists, 409, "token_exists"),
        ];
        for (conflict, status, code) in table {
            let failure = Failure::from(store::Error::Conflict(conflict));
            assert_eq!((failure.problem.status, failure.problem.code.as_str()), (status, code));
        }
    }

    #[test]
    fn what_may_work_later_says_so() {
        let failure = Failure::from(store::Error::Outdated);
        assert_eq!(failure.problem.status, 503);
        let response = failure.into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    }

    #[test]
    fn who_asks_too_much_is_told_when_to_come_again_in_whole_seconds() {
        for (milliseconds, seconds) in [(0, "1"), (20, "1"), (1_000, "1"), (1_001, "2")] {
            let response = Failure::too_many("", Duration::from_millis(milliseconds)).into_response();
            assert_eq!(
                (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
                (429, &seconds.parse().unwrap())
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_to_do() {
        let what = "0192f3a4-5b6c-7d8e-9f00-112233445566: run_state: unknown word \"asleep\"";
        let failure = Failure::from(store::Error::Corrupt { table: "databases", what: what.to_owned() });
        assert_eq!((failure.problem.status, failure.problem.code.as_str()), (500, "unreadable"));
        let detail = failure.problem.detail;
        assert!(
            detail.starts_with(what) && detail.contains("ask again") && detail.contains("mend"),
            "{detail}"
        );
    }

    #[test]
    fn inner_causes_stay_inside() {
        let corrupt = store::Error::Corrupt { table: "tokens", what: "secret detail".to_owned() };
        let failure = Failure::from(corrupt);
        assert_eq!(failure.problem.status, 500);
        assert!(!serde_json::to_string(&failure.problem).unwrap().contains("secret detail"));
        assert!(failure.cause.unwrap().contains("secret detail"));
    }

    #[test]
    fn a_taken_name_points_to_the_field() {
        let failure = Failure::from(Conflict::NameTaken);
        let error = &failure.problem.errors[0];
        assert_eq!((error.pointer.as_str(), error.rule.as_str()), ("/name", "conflict"));
    }
}
