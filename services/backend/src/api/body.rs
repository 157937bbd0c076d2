//! Request bodies: bounded, JSON, and every refusal names the field and the rule.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use domain::{Rule, Violation, reference_token};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::Api;
use super::failure::Failure;

/// Most bytes of a body.
pub(crate) const LIMIT: usize = 64 * 1024;

/// The longest reason.
const REASON: usize = 500;

/// A reason that a person gave, for people who look later.
pub(crate) fn reason(text: &str, needed: bool) -> Result<String, Failure> {
    let refuse = |rule, detail: &str| Err(Failure::violation(Violation::new("/reason", rule, detail)));
    let text = text.trim();
    if text.is_empty() && needed {
        return refuse(Rule::Required, "say why, for those who look later");
    }
    if text.chars().count() > REASON || text.chars().any(char::is_control) {
        return refuse(Rule::Format, "must be 1 to 500 characters on one line");
    }
    Ok(text.to_owned())
}

/// A body that is still bytes.
#[derive(Debug, Clone)]
pub(crate) struct Body(Bytes);

impl Body {
    /// SHA-256 of the bytes.
    pub(crate) fn hash(&self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
    }

    /// The body as a value whose fields are all known.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        parse(&self.0)
    }
}

impl FromRequest<Api> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &Api) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            return Err(Failure::media_type());
        }
        let bytes = axum::body::to_bytes(request.into_body(), LIMIT).await;
        bytes.map(Self).map_err(|error| {
            let cause = runtime::telemetry::chain(&error);
            if cause.contains("length limit exceeded") {
                Failure::too_large(LIMIT)
            } else {
                Failure::unreadable_body(cause)
            }
        })
    }
}

/// A merge patch (RFC 7396) is none: `null` would take something away there, and the keys of a `config` would be added to those that
/// are there, and not take their place.
fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut source = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut source).map_err(|error| {
        let path = pointer(error.path());
        refusal(path, error.inner())
    })?;
    source.end().map_err(|error| Failure::malformed(error.to_string()))?;
    Ok(value)
}

/// A JSON pointer (RFC 6901) to where deserialisation stopped.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter().fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => format!("{pointer}/{index}"),
        Segment::Map { key } => format!("{pointer}/{}", reference_token(key)),
        Segment::Enum { .. } | Segment::Unknown => pointer,
    })
}

fn refusal(path: String, error: &serde_json::Error) -> Failure {
    if !error.is_data() {
        return Failure::malformed(error.to_string());
    }
    let text = error.to_string();
    // The place is in the pointer; lines and columns of a body that a program wrote help nobody.
    let detail = text.split(" at line ").next().unwrap_or_default();
    let quoted = detail.split('`').nth(1).unwrap_or_default();
    let rule = [
        ("missing field", Rule::Required),
        ("unknown field", Rule::UnknownField),
        ("duplicate field", Rule::Conflict),
    ]
    .into_iter()
    .find_map(|(start, rule)| detail.starts_with(start).then_some(rule));
    let Some(rule) = rule else { return Failure::violation(Violation::new(path, Rule::Format, detail)) };
    // These are told of the object; an unknown field may be at the path's end already.
    let names_it = path.ends_with(&format!("/{quoted}"));
    let path = if names_it { path } else { format!("{path}/{quoted}") };
    Failure::violation(Violation::new(path, rule, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use wire::http::CreateDatabase;

    #[test]
    fn every_wrong_field_is_named_with_its_rule() {
        let table = [
            (r#"{"region":"r"}"#, "/name", "required"),
            (r#"{"name":"a","region":"r","colour":1}"#, "/colour", "unknown_field"),
            (r#"{"name":"a","region":"r","storage":{"size":1}}"#, "/storage/size", "unknown_field"),
            (r#"{"name":7,"region":"r"}"#, "/name", "format"),
            (r#"{"name":"a","region":"r","storage":{"size_gib":"big"}}"#, "/storage/size_gib", "format"),
            (r#"{"name":"a","region":"r","storage":{"size_gib":1.5}}"#, "/storage/size_gib", "format"),
            (
                r#"{"name":"a","region":"r","network":{"allowed_cidrs":["x",3]}}"#,
                "/network/allowed_cidrs/1",
                "format",
            ),
            (r#"{"name":"a","region":"r","config":{"a/b":3}}"#, "/config/a~1b", "format"),
            (r#"{"name":"a","name":"b","region":"r"}"#, "/name", "conflict"),
            ("[]", "", "format"),
        ];
        for (body, pointer, rule) in table {
            let failure = parse::<CreateDatabase>(body.as_bytes()).unwrap_err();
            assert_eq!(failure.problem.status, 422, "{body}");
            let error = &failure.problem.errors[0];
            assert_eq!(
                (error.pointer.as_str(), error.rule.as_str()),
                (pointer, rule),
                "{body}: {}",
                error.detail
            );
        }
    }

    #[test]
    fn what_is_no_json_is_malformed() {
        for body in ["", "{", "{\"name\":\"a\"", "nonsense", r#"{"name":"a","region":"r"} trailing"#, "\u{0}"]
        {
            let failure = parse::<CreateDatabase>(body.as_bytes()).unwrap_err();
            assert_eq!(
                (failure.problem.status, failure.problem.code.as_str()),
                (400, "malformed_json"),
                "{body:?}"
            );
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", r#"{"config":"#.repeat(10_000), "}".repeat(10_000));
        assert!(parse::<serde_json::Value>(deep.as_bytes()).is_err());
    }

    #[test]
    fn only_json_is_read() {
        let with = |media: &'static str| {
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media))])
        };
        for good in ["application/json", "Application/JSON; charset=utf-8"] {
            assert!(is_json(&with(good)), "{good}");
        }
        for bad in ["text/plain", "application/jsonx", "application/merge-patch+json", ""] {
            assert!(!is_json(&with(bad)), "{bad}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
