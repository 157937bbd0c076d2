//! What is told where a kubeconfig leads to no token, or to no client.

use kube::client::{AuthError, RustlsTlsError};

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
}

/// A client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// The client's certificate or key is no PEM. The library repeats the line.
    #[error("the client certificate or its key is not in PEM")]
    Identity,
    /// The end of the token of an `auth-provider` is no time. The library repeats it.
    #[error("the token under auth-provider has an end that is no time")]
    End,
    /// Certificates, keys or tokens cannot be used.
    #[error(transparent)]
    Other(kube::Error),
}

impl From<kube::Error> for NoClient {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_)) => Self::Identity,
            kube::Error::Auth(AuthError::MalformedTokenExpirationDate(_)) => Self::End,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_what_the_library_repeats_is_told() {
        let end = "swordfish".parse::<jiff::Timestamp>().unwrap_err();
        let error = NoClient::from(kube::Error::Auth(AuthError::MalformedTokenExpirationDate(end)));
        let (told, shown) = (error.to_string(), format!("{error:?}"));
        assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
        assert!(told.contains("auth-provider"), "{told}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let other = NoClient::from(kube::Error::Auth(AuthError::MissingCommand));
        assert!(matches!(other, NoClient::Other(kube::Error::Auth(AuthError::MissingCommand))), "{other}");
    }
}
