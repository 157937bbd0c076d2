//! `ETag` and `If-Match`: nobody overwrites what they have not read.

use axum::http::{HeaderMap, header};
use domain::Position;

use super::failure::Failure;

/// The entity tag of a desired state.
pub(crate) fn etag(position: Position) -> String {
    format!("\"{}-{}\"", position.epoch, position.seq)
}

/// Checks `If-Match` where it must be there.
pub(crate) fn require_match(headers: &HeaderMap, current: Position) -> Result<(), Failure> {
    match if_match(headers) {
        Some(given) => check(&given, current),
        None => Err(Failure::precondition_required()),
    }
}

/// Checks `If-Match` where it is there.
pub(crate) fn allow_match(headers: &HeaderMap, current: Position) -> Result<(), Failure> {
    if_match(headers).map_or(Ok(()), |given| check(&given, current))
}

fn if_match(headers: &HeaderMap) -> Option<String> {
    let values: Vec<&str> =
        headers.get_all(header::IF_MATCH).iter().map(|value| value.to_str().unwrap_or_default()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Weak tags never match here, as RFC 9110 has it.
fn check(given: &str, current: Position) -> Result<(), Failure> {
    let current = etag(current);
    let matches = given.split(',').map(str::trim).any(|tag| tag == "*" || tag == current);
    if matches { Ok(()) } else { Err(Failure::precondition_failed(&current)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const NOW: Position = Position { epoch: 1, seq: 3 };

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::IF_MATCH, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn tags_are_compared_strongly() {
        for good in [&["\"1-3\""][..], &["*"], &["\"1-2\", \"1-3\""], &["\"1-2\"", "\"1-3\""]] {
            assert!(require_match(&headers(good), NOW).is_ok(), "{good:?}");
        }
        for stale in [&["\"1-2\""][..], &["W/\"1-3\""], &["1-3"], &[""], &["\"2-3\""]] {
            assert_eq!(require_match(&headers(stale), NOW).unwrap_err().problem.status, 412, "{stale:?}");
        }
    }

    #[test]
    fn silence_is_refused_only_where_it_must_be() {
        assert_eq!(require_match(&headers(&[]), NOW).unwrap_err().problem.status, 428);
        assert!(allow_match(&headers(&[]), NOW).is_ok());
        assert_eq!(allow_match(&headers(&["\"1-1\""]), NOW).unwrap_err().problem.status, 412);
    }
}
