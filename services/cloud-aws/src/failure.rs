//! A failed call of the SDK, in our words. What the SDK knows is first put into a plain value ([`Seen`]), which the
//! pure part turns into an error, so that the decisions are tested without a network.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::RequestId;
use cloud::{Call, Error};

use crate::classify::{Class, classify};
use crate::request::Request;

/// What came of a call that failed.
#[derive(Debug)]
pub(crate) enum Seen {
    /// It could not even be built, or signed: nothing was sent.
    Unsent { credentials: bool },
    /// A deadline of ours passed.
    TimedOut,
    /// The connection failed; the request may have arrived.
    Broken,
    /// An answer came that cannot be read.
    Unreadable { request_id: Option<String> },
    /// AWS refused.
    Refused(Refusal),
}

/// A refusal as AWS worded it.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) status: u16,
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

/// An error of the SDK, of whichever operation.
pub(crate) trait Failure {
    /// What is known of it.
    fn describe(&self) -> Seen;
    /// Itself, to be kept below ours.
    fn cause(self) -> Option<Arc<dyn StdError + Send + Sync>>;
}

impl<E> Failure for SdkError<E, HttpResponse>
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    fn describe(&self) -> Seen {
        match self {
            Self::ConstructionFailure(_) => Seen::Unsent { credentials: is_about_credentials(self) },
            Self::TimeoutError(_) => Seen::TimedOut,
            Self::DispatchFailure(failure) if failure.is_timeout() => Seen::TimedOut,
            // The SDK fetches credentials before it connects, and words their lack as a failure to dispatch.
            Self::DispatchFailure(failure) if failure.is_user() || is_about_credentials(self) => {
                Seen::Unsent { credentials: is_about_credentials(self) }
            }
            Self::ResponseError(_) => Seen::Unreadable { request_id: self.request_id().map(str::to_owned) },
            // A success that cannot be read is worded by the SDK as a refusal without a code.
            Self::ServiceError(service) if service.raw().status().as_u16() < 400 => {
                Seen::Unreadable { request_id: self.request_id().map(str::to_owned) }
            }
            Self::ServiceError(service) => Seen::Refused(Refusal {
                code: service.err().code().unwrap_or_default().to_owned(),
                message: service.err().message().unwrap_or("no message").to_owned(),
                status: service.raw().status().as_u16(),
                request_id: self.request_id().map(str::to_owned),
                retry_after: retry_after(service.raw()),
            }),
            // A broken connection; and, the enum being open, what it may yet grow: the outcome is not known.
            _ => Seen::Broken,
        }
    }

    fn cause(self) -> Option<Arc<dyn StdError + Send + Sync>> {
        // A refusal is told in full by code, message and request id; anything else has a chain worth keeping.
        match self {
            Self::ServiceError(service) if service.raw().status().as_u16() >= 400 => None,
            other => Some(Arc::new(other)),
        }
    }
}

/// The SDK has no variant for it: the chain is the only place where it can be seen.
fn is_about_credentials(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<aws_credential_types::provider::error::CredentialsError>().is_some() {
            return true;
        }
        next = error.source();
    }
    false
}

fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let seconds: u64 = response.headers().get("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Our error for what was seen, with the SDK's own below it.
pub(crate) fn error(request: Request, seen: &Seen, cause: Option<Arc<dyn StdError + Send + Sync>>) -> Error {
    let call = |message: &str| Call { cause, ..Call::new(request.operation, message) };
    match seen {
        Seen::Unsent { credentials: true } => {
            Error::Denied { call: call("no credentials, nothing was sent").into() }
        }
        Seen::Unsent { credentials: false } => Error::Invalid { call: call("nothing was sent").into() },
        Seen::TimedOut => Error::Timeout { call: call("no answer in time").into() },
        Seen::Broken => Error::Unavailable { call: call("no answer").into() },
        Seen::Unreadable { request_id } => {
            let call = Call { request_id: request_id.clone(), ..call("the answer cannot be read") };
            Error::Unreadable { call: call.into() }
        }
        Seen::Refused(refusal) => refused(request, refusal),
    }
}

fn refused(request: Request, refusal: &Refusal) -> Error {
    let Refusal { code, message, status, request_id, retry_after } = refusal;
    let call = Box::new(Call {
        code: (!code.is_empty()).then(|| code.clone()),
        request_id: request_id.clone(),
        ..Call::new(request.operation, message)
    });
    match classify(code, message, *status, request.subject) {
        Class::NotFound(kind) => Error::NotFound { kind, call },
        Class::AlreadyExists => Error::AlreadyExists { call },
        Class::InUse => Error::InUse { call },
        Class::Throttled => Error::Throttled { retry_after: *retry_after, call },
        Class::Capacity => Error::Capacity { call },
        Class::Quota => Error::Quota { call },
        Class::ParameterMismatch => Error::ParameterMismatch { call },
        Class::IncorrectState => Error::IncorrectState { call },
        Class::TooSoon => Error::TooSoon { call },
        Class::NotPermitted => Error::NotPermitted { call },
        Class::Denied => Error::Denied { call },
        Class::WrongTime => Error::WrongTime { call },
        Class::Invalid => Error::Invalid { call },
        Class::Unavailable => Error::Unavailable { call },
        Class::Unrecognised => Error::Unrecognised { call },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RUN_INSTANCES;

    #[test]
    fn only_what_may_have_arrived_is_unknown() {
        let check = |seen: Seen, category: &str, unknown: bool| {
            let error = error(RUN_INSTANCES, &seen, None);
            assert_eq!((error.category(), error.outcome_unknown()), (category, unknown), "{seen:?}");
        };
        check(Seen::Unsent { credentials: true }, "denied", false);
        check(Seen::Unsent { credentials: false }, "invalid", false);
        check(Seen::TimedOut, "timeout", true);
        check(Seen::Broken, "unavailable", true);
        check(Seen::Unreadable { request_id: None }, "unreadable", true);
        check(Seen::Refused(Refusal { status: 503, ..Refusal::default() }), "unavailable", true);
        check(Seen::Refused(Refusal { status: 400, ..Refusal::default() }), "unrecognised", false);
    }

    #[test]
    fn a_refusal_keeps_code_words_and_request_id() {
        let seen = Seen::Refused(Refusal {
            code: "InsufficientInstanceCapacity".into(),
            message: "no m6i.large here".into(),
            status: 500,
            request_id: Some("r-1".into()),
            retry_after: None,
        });
        let error = error(RUN_INSTANCES, &seen, None);
        assert_eq!(error.category(), "capacity");
        assert_eq!(error.to_string(), "no capacity of that kind there");
        let source = StdError::source(&error).map(ToString::to_string);
        let expect = "RunInstances answered InsufficientInstanceCapacity: no m6i.large here (request r-1)";
        assert_eq!(source.as_deref(), Some(expect));
    }

    #[test]
    fn the_wait_that_aws_asks_for_is_passed_on() {
        let seen = Seen::Refused(Refusal {
            code: "RequestLimitExceeded".into(),
            status: 503,
            retry_after: Some(Duration::from_secs(7)),
            ..Refusal::default()
        });
        let error = error(RUN_INSTANCES, &seen, None);
        assert!(matches!(error, Error::Throttled { retry_after: Some(after), .. } if after.as_secs() == 7));
    }
}
