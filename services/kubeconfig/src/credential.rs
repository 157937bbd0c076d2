//! What a program for tokens gave: an `ExecCredential`, as Kubernetes defines it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use kube::config::Kubeconfig;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::NoToken;

/// The forms in which it is given; they say the same.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// How long before its end another one is asked for at the most: it is given while the old one is still taken, also if the program hangs
/// once or fails.
const BEFORE: SignedDuration = SignedDuration::from_secs(60);

/// What a program for tokens gave. It is shown nowhere.
pub struct Credential {
    /// The name of the kubeconfig's user that it is for.
    user: String,
    token: Option<SecretString>,
    identity: Option<Identity>,
    until: Option<Timestamp>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("until", &self.until).finish_non_exhaustive()
    }
}

/// A client certificate and its key, in PEM.
struct Identity {
    certificate: String,
    key: SecretString,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    expiration_timestamp: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Credential {
    /// Reads what a program printed for this user: JSON, or YAML as some print it.
    pub(crate) fn parse(user: &str, printed: &[u8]) -> Result<Self, NoToken> {
        let other = || NoToken::because("gave something else than a credential");
        let Said { api_version, status } = serde_saphyr::from_slice(printed).map_err(|_| other())?;
        let status = status.filter(|_| VERSIONS.contains(&api_version.as_str())).ok_or_else(other)?;
        let token = filled(status.token);
        if token.as_deref().is_some_and(|token| token.bytes().any(|byte| byte.is_ascii_control())) {
            // The library panics where it is put into a header.
            return Err(NoToken::because("gave a token that no request can carry"));
        }
        let token = token.map(SecretString::from);
        let identity = match (filled(status.client_certificate_data), filled(status.client_key_data)) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key: key.into() }),
            (None, None) if token.is_some() => None,
            (None, None) => return Err(other()),
            _ => return Err(NoToken::because("gave one of a certificate and its key without the other")),
        };
        let until = filled(status.expiration_timestamp).map(|end| end.parse::<Timestamp>()).transpose();
        let until = until.map_err(|_| NoToken::because("gave a credential whose end is no time"))?;
        Ok(Self { user: user.to_owned(), token, identity, until })
    }

    /// Until when it holds, where the program said so.
    pub const fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// Whether one that was given then may still be used for a while, by what the program said: its end is a minute away at least, or,
    /// of one that holds for less than two, half of its time.
    pub fn lasts(&self, given: Timestamp, now: Timestamp) -> bool {
        self.until.is_none_or(|until| {
            let before = BEFORE.min(until.duration_since(given) / 2);
            until.duration_since(now) > before
        })
    }

    /// Everything that clients are made of: other bytes are another credential.
    pub fn content(&self) -> Vec<u8> {
        let identity = self.identity.iter().flat_map(|it| [it.certificate.as_str(), it.key.expose_secret()]);
        let parts: Vec<&str> = self.token.iter().map(ExposeSecret::expose_secret).chain(identity).collect();
        parts.join("\0").into_bytes()
    }

    /// Puts it in the place of the program: clients that are made of the kubeconfig then run none.
    pub fn put_into(&self, kubeconfig: &mut Kubeconfig) {
        let named = kubeconfig.auth_infos.iter_mut().find(|named| named.name == self.user);
        let Some(auth) = named.and_then(|named| named.auth_info.as_mut()) else { return };
        auth.exec = None;
        auth.token.clone_from(&self.token);
        if let Some(identity) = &self.identity {
            auth.client_certificate_data = Some(STANDARD.encode(&identity.certificate));
            auth.client_key_data = Some(STANDARD.encode(identity.key.expose_secret()).into());
        }
    }
}

/// A text that says something, without the blanks around it.
fn filled(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(printed: &str) -> Result<Credential, NoToken> {
        Credential::parse("a", printed.as_bytes())
    }

    #[test]
    fn a_credential_is_read_in_both_versions_and_in_yaml() {
        for printed in [
            r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                "status": {"token": "one\n", "expirationTimestamp": "2030-01-01T00:00:00Z"}}"#,
            r#"{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "spec": {"interactive": false},
                "status": {"token": "one", "expirationTimestamp": "2030-01-01T01:00:00+01:00", "clientKeyData": null}}"#,
            "apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\n\
             status:\n  token: one\n  expirationTimestamp: \"2030-01-01T00:00:00Z\"\n",
        ] {
            let credential = parse(printed).unwrap();
            assert_eq!(credential.content(), b"one", "{printed}");
            assert_eq!(credential.until(), Some("2030-01-01T00:00:00Z".parse().unwrap()), "{printed}");
        }
    }

    #[test]
    fn what_is_no_credential_is_told_without_what_was_printed() {
        let version = r#""apiVersion": "client.authentication.k8s.io/v1""#;
        for (printed, expected) in [
            ("swordfish".to_owned(), "something else"),
            (String::new(), "something else"),
            (r#"{"status": {"token": "swordfish"}}"#.to_owned(), "something else"),
            (
                r#"{"apiVersion": "swordfish/v1", "status": {"token": "swordfish"}}"#.to_owned(),
                "something else",
            ),
            (format!("{{{version}}}"), "something else"),
            (format!(r#"{{{version}, "status": {{"token": " "}}}}"#), "something else"),
            (format!(r#"{{{version}, "status": {{"token": ["swordfish"]}}}}"#), "something else"),
            (format!(r#"{{{version}, "status": {{"token": "a\nswordfish"}}}}"#), "no request can carry"),
            (format!(r#"{{{version}, "status": {{"clientKeyData": "swordfish"}}}}"#), "without the other"),
            (
                format!(r#"{{{version}, "status": {{"token": "a", "expirationTimestamp": "swordfish"}}}}"#),
                "end is no time",
            ),
        ] {
            let error = parse(&printed).unwrap_err();
            let (told, shown) = (error.to_string(), format!("{error:?}"));
            assert!(
                !told.contains("swordfish") && !shown.contains("swordfish"),
                "{printed}\n{told}\n{shown}"
            );
            assert!(told.contains(expected), "{printed}\n{told}");
        }
    }

    #[test]
    fn another_one_is_asked_for_a_minute_before_the_end_or_after_half_the_time() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        for (age, end, lasts) in [
            (600, r#", "expirationTimestamp": "2030-01-01T00:01:01Z""#, true),
            (600, r#", "expirationTimestamp": "2030-01-01T00:01:00Z""#, false),
            (0, r#", "expirationTimestamp": "2030-01-01T00:00:20Z""#, true),
            (19, r#", "expirationTimestamp": "2030-01-01T00:00:20Z""#, true),
            (20, r#", "expirationTimestamp": "2030-01-01T00:00:20Z""#, false),
            (0, r#", "expirationTimestamp": "2029-01-01T00:00:00Z""#, false),
            (600, "", true),
        ] {
            let given = now - SignedDuration::from_secs(age);
            let printed = format!(
                r#"{{"apiVersion": "client.authentication.k8s.io/v1", "status": {{"token": "a"{end}}}}}"#
            );
            assert_eq!(parse(&printed).unwrap().lasts(given, now), lasts, "{age} {end}");
        }
    }

    #[test]
    fn a_certificate_with_its_key_stands_where_the_program_was_named() {
        let text = "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], \
                    users: [{name: b, user: {exec: {command: other}}}, {name: a, user: {exec: {command: get}}}]}";
        let mut kubeconfig = Kubeconfig::from_yaml(text).unwrap();
        let printed = r#"{"apiVersion": "client.authentication.k8s.io/v1",
            "status": {"clientCertificateData": "one", "clientKeyData": "two"}}"#;
        let credential = parse(printed).unwrap();
        credential.put_into(&mut kubeconfig);
        let auth = |number: usize| kubeconfig.auth_infos[number].auth_info.as_ref().unwrap();
        assert!(auth(0).exec.is_some(), "of somebody else");
        assert!(auth(1).exec.is_none() && auth(1).token.is_none());
        // In base64, as a kubeconfig has it.
        assert_eq!(auth(1).client_certificate_data.as_deref(), Some("b25l"));
        assert_eq!(auth(1).client_key_data.as_ref().unwrap().expose_secret(), "dHdv");
        assert!(!format!("{credential:?}").contains("two"));
    }
}
