//! What is told of a program for tokens that a kubeconfig names and that does not give one.
//!
//! *Invariant:* nothing that it said, and nothing it was called with: either may be the token, and what is told here becomes a
//! reason in rows, logs, gossip and answers. The library repeats all of it in its errors, so that they end here.

use kube::client::AuthError;
use tower::BoxError;

/// No token, because of the program that gives them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the program that the kubeconfig names for tokens {what}; what it said is not repeated, because it may be a token: run it by hand \
     where this provisioner runs, as its user"
)]
pub struct NoToken {
    /// How it ended.
    what: String,
}

impl NoToken {
    /// What is told instead of an error that repeats what the program said; `None` for one that does not.
    pub fn of(error: &AuthError) -> Option<Self> {
        let what = match error {
            AuthError::AuthExecRun { out, .. } => format!("failed ({})", out.status),
            AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
                "gave something else than a credential".to_owned()
            }
            AuthError::MalformedTokenExpirationDate(_) => "gave a credential whose end is no time".to_owned(),
            _ => return None,
        };
        Some(Self { what })
    }
}

/// The error of a call without what a program for tokens said.
pub fn without_output(error: BoxError) -> BoxError {
    match error.downcast_ref::<AuthError>().and_then(NoToken::of) {
        Some(told) => told.into(),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{ExitStatus, Output};

    use super::*;
    use crate::classify::{answer, chain, code};
    use crate::fleet::breaker::Answer;

    fn failed() -> AuthError {
        let bytes = || b"swordfish".to_vec();
        let out = Output { status: ExitStatus::from_raw(3 << 8), stdout: bytes(), stderr: bytes() };
        AuthError::AuthExecRun { cmd: "TOKEN=swordfish get".to_owned(), out: Box::new(out) }
    }

    /// It breaks while its tokens are needed: as a part of a call.
    #[test]
    fn a_call_says_how_a_program_for_tokens_ended_and_nothing_of_what_it_said() {
        let error = kube::Error::Service(without_output(failed().into()));
        let (told, shown) = (chain(&error), format!("{error:?}"));
        assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
        assert!(told.contains("exit status: 3") && told.contains("by hand"), "{told}");
        let Answer::Stranger(trouble) = answer(&error) else { panic!("the server is to blame") };
        assert_eq!(trouble.code, code::CREDENTIALS);
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let other = without_output(AuthError::MissingCommand.into());
        assert!(other.is::<AuthError>(), "{other}");
        assert_eq!(without_output("refused".into()).to_string(), "refused");
    }
}
