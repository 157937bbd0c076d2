//! The header `Idempotency-Key`, and what its claim means for the request.

use axum::http::HeaderMap;
use domain::{Rule, TenantId};
use sha2::{Digest as _, Sha256};
use store::{Answer, Claim, Key, Transaction};

use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;

const HEADER: &str = "Idempotency-Key";

/// Longest key.
const LENGTH: usize = 255;

/// The key of a request in its scope.
pub(crate) fn key(
    headers: &HeaderMap,
    caller: &Caller,
    tenant: &TenantId,
    route: &str,
    body: &Body,
) -> Result<Key, Failure> {
    Ok(Key { body_hash: body.hash(), ..key_about(headers, caller, tenant, (route, ""))? })
}

/// The key of a request without a body, about one thing: the same key about another thing is another request.
pub(crate) fn key_about(
    headers: &HeaderMap,
    caller: &Caller,
    tenant: &TenantId,
    (route, subject): (&str, &str),
) -> Result<Key, Failure> {
    Ok(Key {
        tenant: tenant.clone(),
        principal: caller.principal.token.to_string(),
        route: route.to_owned(),
        key: text(headers)?,
        body_hash: Sha256::digest(subject.as_bytes()).into(),
    })
}

/// The key of a request with a body about one thing.
pub(crate) fn key_of(
    headers: &HeaderMap,
    caller: &Caller,
    tenant: &TenantId,
    (route, subject): (&str, &str),
    body: &Body,
) -> Result<Key, Failure> {
    let about = Sha256::new_with_prefix(subject).chain_update([0]).chain_update(body.hash());
    Ok(Key { body_hash: about.finalize().into(), ..key_about(headers, caller, tenant, (route, subject))? })
}

/// Stands for a tenant in the keys of those who run the fleet, whose requests are about no tenant. A tenant of this name
/// takes nobody's keys: they are each principal's own.
const FLEET: &str = "fleet";

/// The key of a request with a body about one thing, by those who run the fleet.
pub(crate) fn key_of_the_fleet(
    headers: &HeaderMap,
    caller: &Caller,
    about: (&str, &str),
    body: &Body,
) -> Result<Key, Failure> {
    let fleet = FLEET.parse().map_err(|error: domain::id::Error| Failure::internal(error.to_string()))?;
    key_of(headers, caller, &fleet, about, body)
}

/// Claims a key. An answer means that the request was carried out before.
pub(crate) async fn claim(transaction: &mut Transaction, key: &Key) -> Result<Option<Answer>, Failure> {
    match transaction.claim(key).await? {
        Claim::Fresh => Ok(None),
        Claim::Answered(answer) => Ok(Some(answer)),
        Claim::OtherBody => Err(Failure::other_body()),
        Claim::InFlight => Err(Failure::in_flight()),
    }
}

fn text(headers: &HeaderMap) -> Result<String, Failure> {
    let refuse = |rule, detail| Failure::bad_header("idempotency_key_required", HEADER, rule, detail);
    let Some(value) = headers.get(HEADER) else {
        return Err(refuse(Rule::Required, "send a value of your own, new for each thing you ask for"));
    };
    match value.to_str() {
        Ok(key) if (1..=LENGTH).contains(&key.len()) => Ok(key.to_owned()),
        Ok(_) | Err(_) => Err(refuse(Rule::Format, "a key has 1 to 255 visible ASCII characters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn with(value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(
            HEADER.to_lowercase().parse().unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        )])
    }

    #[test]
    fn keys_are_visible_and_bounded() {
        assert_eq!(text(&with(b"a-1")).unwrap(), "a-1");
        assert_eq!(text(&HeaderMap::new()).unwrap_err().problem.errors[0].rule, "required");
        for bad in [&b""[..], &[0xff], "x".repeat(256).as_bytes()] {
            assert_eq!(text(&with(bad)).unwrap_err().problem.errors[0].rule, "format");
        }
    }
}
