//! What is told of a program for tokens that a kubeconfig names and that does not give one.

use kube::client::{AuthError, RustlsTlsError};
use tower::BoxError;
use tower::util::MapErrLayer;

/// No token, because of the program that gives them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the program that the kubeconfig names for tokens {what}; what it said is not repeated, because it may be a token: run it by hand \
     where this program runs, as its user"
)]
pub struct NoToken {
    /// How it ended.
    what: String,
}

impl NoToken {
    /// `what` became of the program; nothing of what it printed or was called with.
    pub(crate) fn because(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// What is told instead of the error of making a client, for which tokens are asked for at once; `None` for one that repeats
    /// nothing.
    pub fn of(error: &kube::Error) -> Option<Self> {
        let kube::Error::Auth(error) = error else { return None };
        told(error)
    }
}

/// A client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// The program for tokens gives none.
    #[error(transparent)]
    Token(NoToken),
    /// The client's certificate or key is no PEM. The library repeats the line.
    #[error("the client certificate or its key is not in PEM")]
    Identity,
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Other(kube::Error),
}

impl From<kube::Error> for NoClient {
    fn from(error: kube::Error) -> Self {
        if matches!(error, kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_))) {
            return Self::Identity;
        }
        NoToken::of(&error).map_or(Self::Other(error), Self::Token)
    }
}

/// To be put around everything that the library does in a client, as its last layer: tokens are asked for as a part of calls, too.
pub fn hidden() -> MapErrLayer<fn(BoxError) -> BoxError> {
    MapErrLayer::new(without_output)
}

/// The error of a call without what a program for tokens said.
fn without_output(error: BoxError) -> BoxError {
    match error.downcast_ref::<AuthError>().and_then(told) {
        Some(told) => told.into(),
        None => error,
    }
}

/// What is told instead of an error that repeats what the program said; `None` for one that does not.
fn told(error: &AuthError) -> Option<NoToken> {
    let what = match error {
        AuthError::AuthExecRun { out, .. } => format!("failed ({})", out.status),
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            "gave something else than a credential".to_owned()
        }
        AuthError::MalformedTokenExpirationDate(_) => "gave a credential whose end is no time".to_owned(),
        _ => return None,
    };
    Some(NoToken::because(what))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{ExitStatus, Output};

    use super::*;

    fn failed() -> AuthError {
        let bytes = || b"swordfish".to_vec();
        let out = Output { status: ExitStatus::from_raw(3 << 8), stdout: bytes(), stderr: bytes() };
        AuthError::AuthExecRun { cmd: "TOKEN=swordfish get".to_owned(), out: Box::new(out) }
    }

    /// It breaks while its tokens are needed: as a part of a call, or before the first one.
    #[test]
    fn how_a_program_for_tokens_ended_is_told_and_nothing_of_what_it_said() {
        let called = without_output(failed().into());
        let made = NoToken::of(&kube::Error::Auth(failed())).unwrap();
        for (told, shown) in
            [(called.to_string(), format!("{called:?}")), (made.to_string(), format!("{made:?}"))]
        {
            assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
            assert!(told.contains("exit status: 3") && told.contains("by hand"), "{told}");
        }
        assert!(called.is::<NoToken>(), "callers tell it from a server that does not answer");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let other = without_output(AuthError::MissingCommand.into());
        assert!(other.is::<AuthError>(), "{other}");
        assert_eq!(without_output("refused".into()).to_string(), "refused");
        assert_eq!(NoToken::of(&kube::Error::Auth(AuthError::MissingCommand)), None);
    }
}
