//! What can go wrong with AWS, told apart by what a caller does about it.

use std::fmt;
use std::time::Duration;

use crate::Call;

/// What was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// An instance.
    Instance,
    /// A volume.
    Volume,
    /// An attachment of a volume.
    Attachment,
    /// A security group.
    SecurityGroup,
    /// A rule of a security group.
    Rule,
    /// A snapshot.
    Snapshot,
    /// A machine image.
    Image,
    /// A subnet.
    Subnet,
    /// A VPC.
    Vpc,
    /// A hosted zone.
    HostedZone,
    /// A DNS record.
    Record,
    /// A DNS change.
    Change,
    /// Anything else.
    Other,
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instance => "instance",
            Self::Volume => "volume",
            Self::Attachment => "attachment",
            Self::SecurityGroup => "security group",
            Self::Rule => "security group rule",
            Self::Snapshot => "snapshot",
            Self::Image => "machine image",
            Self::Subnet => "subnet",
            Self::Vpc => "VPC",
            Self::HostedZone => "hosted zone",
            Self::Record => "DNS record",
            Self::Change => "DNS change",
            Self::Other => "resource",
        })
    }
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Look again soon, with back-off: time alone may cure it.
    Retry,
    /// Look again on the slow period, or when something changed: the world has to move first.
    Wait,
    /// Nothing but a person or a new desired state cures it: say so, and keep looking only on the slow period.
    Park,
}

/// A call that did not do what was asked, or of which we do not know whether it did.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// It is not there, or not there *yet*: EC2 may deny a resource for minutes after it was created.
    #[error("the {kind} was not found")]
    NotFound {
        /// What was not found.
        kind: ResourceKind,
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// It is there already. Look whose it is.
    #[error("it exists already")]
    AlreadyExists {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// Something else holds it.
    #[error("it is in use")]
    InUse {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// Too many requests; by AWS (a code is there), or held back by our own limiter (none is), when nothing was sent.
    #[error("too many requests")]
    Throttled {
        /// When to come back, where known.
        retry_after: Option<Duration>,
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// AWS has no such machine free there now. Another zone may have one.
    #[error("no capacity of that kind there")]
    Capacity {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// A limit of the account. Another zone does not help; a person raises it.
    #[error("a limit of the account is reached")]
    Quota {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// The client token was used with other parameters: it is burnt. Describe by tags, then a new generation.
    #[error("the client token was used with other parameters")]
    ParameterMismatch {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// The resource is in a state in which this cannot be done; a fresh look tells more.
    #[error("the resource is in a state that does not allow it")]
    IncorrectState {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// A volume was changed too often, or its last change still goes on.
    #[error("the volume was changed too recently")]
    TooSoon {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// Refused by a protection on the resource: the fence at work.
    #[error("a protection on the resource forbids it")]
    NotPermitted {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// Refused for lack of rights, or of valid credentials.
    #[error("AWS denied it to these credentials")]
    Denied {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// Refused for the time that it was signed with. Nothing was done; AWS says in its answer what time it is, and the next request
    /// is signed by that.
    #[error("AWS refused the request for its time: the clock of this machine is wrong")]
    WrongTime {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// The request itself is wrong, and always will be.
    #[error("the request is invalid")]
    Invalid {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// AWS did not answer, or answered that it failed inside. **Whether it was done is unknown.**
    #[error("AWS is unavailable, and whether it was done is unknown")]
    Unavailable {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// The deadline passed. **Whether it was done is unknown.**
    #[error("the deadline passed, and whether it was done is unknown")]
    Timeout {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// An answer that cannot be read, or that lacks what it must have. **Whether it was done is unknown.**
    #[error("the answer could not be read, and whether it was done is unknown")]
    Unreadable {
        /// The request.
        #[source]
        call: Box<Call>,
    },
    /// A refusal with a code that is not in our table. Nothing was done; what to do about it is for people.
    #[error("AWS refused it for a reason unknown to us")]
    Unrecognised {
        /// The request.
        #[source]
        call: Box<Call>,
    },
}

impl Error {
    /// The request behind it.
    pub fn call(&self) -> &Call {
        match self {
            Self::NotFound { call, .. }
            | Self::AlreadyExists { call }
            | Self::InUse { call }
            | Self::Throttled { call, .. }
            | Self::Capacity { call }
            | Self::Quota { call }
            | Self::ParameterMismatch { call }
            | Self::IncorrectState { call }
            | Self::TooSoon { call }
            | Self::NotPermitted { call }
            | Self::Denied { call }
            | Self::WrongTime { call }
            | Self::Invalid { call }
            | Self::Unavailable { call }
            | Self::Timeout { call }
            | Self::Unreadable { call }
            | Self::Unrecognised { call } => call,
        }
    }

    /// What to do about it.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::InUse { .. }
            | Self::Throttled { .. }
            | Self::IncorrectState { .. }
            | Self::WrongTime { .. }
            | Self::Unavailable { .. }
            | Self::Timeout { .. }
            | Self::Unreadable { .. } => Disposition::Retry,
            // A new generation needs a decision on fresh facts, which the next pass makes.
            Self::Capacity { .. }
            | Self::TooSoon { .. }
            | Self::NotPermitted { .. }
            | Self::ParameterMismatch { .. }
            // Rights and credentials are ours, not the request's: no user's request fails for good by them.
            | Self::Denied { .. } => Disposition::Wait,
            Self::Quota { .. } | Self::Invalid { .. } | Self::Unrecognised { .. } => Disposition::Park,
        }
    }

    /// A word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::AlreadyExists { .. } => "already_exists",
            Self::InUse { .. } => "in_use",
            Self::Throttled { .. } => "throttled",
            Self::Capacity { .. } => "capacity",
            Self::Quota { .. } => "quota",
            Self::ParameterMismatch { .. } => "parameter_mismatch",
            Self::IncorrectState { .. } => "incorrect_state",
            Self::TooSoon { .. } => "too_soon",
            Self::NotPermitted { .. } => "not_permitted",
            Self::Denied { .. } => "denied",
            Self::WrongTime { .. } => "wrong_time",
            Self::Invalid { .. } => "invalid",
            Self::Unavailable { .. } => "unavailable",
            Self::Timeout { .. } => "timeout",
            Self::Unreadable { .. } => "unreadable",
            Self::Unrecognised { .. } => "unrecognised",
        }
    }

    /// Whether the request may have been carried out although this error came back. Everything else is a clear no.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Timeout { .. } | Self::Unreadable { .. } => true,
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::InUse { .. }
            | Self::Throttled { .. }
            | Self::Capacity { .. }
            | Self::Quota { .. }
            | Self::ParameterMismatch { .. }
            | Self::IncorrectState { .. }
            | Self::TooSoon { .. }
            | Self::NotPermitted { .. }
            | Self::Denied { .. }
            | Self::WrongTime { .. }
            | Self::Invalid { .. }
            | Self::Unrecognised { .. } => false,
        }
    }

    /// Whether this says that a resource of this kind is not there. Only this, of all errors, may be read so.
    pub fn is_not_found(&self, wanted: ResourceKind) -> bool {
        matches!(self, Self::NotFound { kind, .. } if *kind == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<Error> {
        let call = || Box::new(Call::new("RunInstances", "words").with_code("Code"));
        vec![
            Error::NotFound { kind: ResourceKind::Volume, call: call() },
            Error::AlreadyExists { call: call() },
            Error::InUse { call: call() },
            Error::Throttled { retry_after: None, call: call() },
            Error::Capacity { call: call() },
            Error::Quota { call: call() },
            Error::ParameterMismatch { call: call() },
            Error::IncorrectState { call: call() },
            Error::TooSoon { call: call() },
            Error::NotPermitted { call: call() },
            Error::Denied { call: call() },
            Error::WrongTime { call: call() },
            Error::Invalid { call: call() },
            Error::Unavailable { call: call() },
            Error::Timeout { call: call() },
            Error::Unreadable { call: call() },
            Error::Unrecognised { call: call() },
        ]
    }

    #[test]
    fn categories_are_labels_and_all_different() {
        let categories: std::collections::BTreeSet<_> = every().iter().map(Error::category).collect();
        assert_eq!(categories.len(), every().len());
        let plain = |text: &str| text.chars().all(|one| one.is_ascii_lowercase() || one == '_');
        assert!(categories.iter().all(|category| plain(category)), "{categories:?}");
    }

    #[test]
    fn an_unknown_outcome_is_always_looked_at_again_soon() {
        for error in every().into_iter().filter(Error::outcome_unknown) {
            assert_eq!(error.disposition(), Disposition::Retry, "{error:?}");
        }
    }

    #[test]
    fn only_not_found_of_the_wanted_kind_is_absence() {
        let absent: Vec<_> =
            every().into_iter().filter(|error| error.is_not_found(ResourceKind::Volume)).collect();
        assert_eq!(absent.iter().map(Error::category).collect::<Vec<_>>(), ["not_found"]);
        assert!(!absent[0].is_not_found(ResourceKind::Instance));
    }

    #[test]
    fn no_error_repeats_what_lies_below_it() {
        for error in every() {
            assert!(!error.to_string().contains("words"), "{error}");
            assert_eq!(error.call().to_string(), "RunInstances answered Code: words");
        }
    }
}
