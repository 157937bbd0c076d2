//! Who asks, and for whom. A token is a random secret; only its SHA-256 is compared, inside Postgres.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use domain::{Rule, TenantId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use store::{Audit, Principal, Role};

use super::Api;
use super::failure::Failure;
use super::middleware::RequestId;
use super::shares::Place;

/// The header by which the console, or an SRE, says for which tenant it asks.
pub(crate) const TENANT_HEADER: &str = "Slipway-Tenant";

/// Whoever asks, already known, and for whom.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    tenant: Option<TenantId>,
    /// The request, as the logs know it.
    pub(crate) request_id: String,
    /// Among the requests of its tenant, until the request is answered.
    _place: Option<Arc<Place>>,
}

impl Caller {
    /// What may be seen: one tenant's things, or (for an SRE that names no tenant) everything.
    pub(crate) fn scope(&self) -> Result<Option<&TenantId>, Failure> {
        match self.principal.role {
            Role::Tenant | Role::Console => self.tenant().map(Some),
            Role::Sre => Ok(self.tenant.as_ref()),
        }
    }

    /// The tenant that the request is for.
    pub(crate) fn tenant(&self) -> Result<&TenantId, Failure> {
        self.tenant.as_ref().ok_or_else(|| {
            Failure::bad_header(
                "tenant_required",
                TENANT_HEADER,
                Rule::Required,
                "this token acts for many tenants: name one in the header",
            )
        })
    }

    /// The tenant whose share the request counts for; none for those who run the fleet.
    pub(crate) fn shares_of(&self) -> Option<&TenantId> {
        self.tenant.as_ref().filter(|_| has_share(self.principal.role))
    }

    /// Only those who run the fleet go on.
    pub(crate) fn require_sre(&self) -> Result<(), Failure> {
        match self.principal.role {
            Role::Sre => Ok(()),
            Role::Tenant | Role::Console => Err(Failure::forbidden("only tokens of role sre may do this")),
        }
    }

    /// What this caller did to what, as it is kept for people; for no tenant and without an operation.
    pub(crate) fn entry(&self, action: &str, subject: String, detail: Value) -> Audit {
        Audit {
            tenant: None,
            principal: self.principal.name.clone(),
            role: self.principal.role.as_str().to_owned(),
            action: action.to_owned(),
            subject,
            operation: None,
            request_id: Some(self.request_id.clone()),
            detail,
        }
    }

    /// Whoever asks, as history and operations name it.
    pub(crate) fn actor(&self) -> String {
        format!("{}:{}", self.principal.role.as_str(), self.principal.name)
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Failure> {
        let token = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
        let hash = token.map(hash).ok_or_else(Failure::unauthenticated)?;
        let named = parts.headers.get(TENANT_HEADER).map(|value| value.to_str().unwrap_or_default());
        api.shares().look(&hash, named)?;
        let principal = authenticate(api, hash).await?.ok_or_else(Failure::unauthenticated)?;
        let tenant = acting_for(&principal, named)?;
        let place = match &tenant {
            Some(tenant) if has_share(principal.role) => {
                api.shares().learn(hash, principal.tenant.as_ref());
                api.shares().enter(tenant).await?.map(Arc::new)
            }
            Some(_) | None => None,
        };
        let request_id = parts.extensions.get::<RequestId>().map_or_else(String::new, |id| id.0.clone());
        Ok(Self { principal, tenant, request_id, _place: place })
    }
}

/// Whose token it is, if it is valid.
async fn authenticate(api: &Api, hash: [u8; 32]) -> Result<Option<Principal>, Failure> {
    let place = api.strangers().admit(&hash).await;
    let place = place.inspect_err(|failure| {
        if failure.problem.status == StatusCode::TOO_MANY_REQUESTS {
            api.metrics().beyond_share("strangers");
        }
    })?;
    let principal = api.store().authenticate(&hash).await?;
    drop(place);
    api.strangers().note(hash, principal.is_some());
    Ok(principal)
}

/// Whether what it asks for counts for its tenant's share.
const fn has_share(role: Role) -> bool {
    match role {
        Role::Tenant | Role::Console => true,
        Role::Sre => false,
    }
}

/// SHA-256 of a token's secret.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The secret in a header `Authorization: Bearer <secret>`; the scheme is case-insensitive.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, secret) = header.split_once(' ')?;
    let secret = secret.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty()).then_some(secret)
}

/// The tenant a request is for: a tenant's own token knows no other.
fn acting_for(principal: &Principal, named: Option<&str>) -> Result<Option<TenantId>, Failure> {
    let parse = |text: &str| {
        let parsed = text.parse::<TenantId>();
        parsed.map_err(|error| {
            Failure::bad_header("bad_tenant", TENANT_HEADER, Rule::Format, &error.to_string())
        })
    };
    let named = named.map(parse).transpose()?;
    match (&principal.tenant, named) {
        (Some(own), Some(named)) if *own != named => Err(Failure::forbidden(
            "this token acts for its own tenant only; leave the header Slipway-Tenant out",
        )),
        (Some(own), _) => Ok(Some(own.clone())),
        (None, named) => Ok(named),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use runtime::ops::Pages;
    use uuid::Uuid;

    use super::*;
    use crate::api::{Share, Shares, Streams};
    use crate::doorbell::Doorbell;
    use crate::metrics::Metrics;

    /// An API with bounds whose Postgres nobody reaches.
    fn cut_off(shares: Shares, metrics: Metrics) -> Api {
        let settings =
            store::Settings { acquire: std::time::Duration::from_millis(50), ..store::Settings::default() };
        let store = store::Store::connect("postgres://nobody@127.0.0.1:1/nothing", &settings).unwrap();
        let pages = Pages { health: runtime::Health::new(), metrics: runtime::Metrics::default() };
        let streams = Streams::new(metrics.clone());
        Api::new(store, Doorbell::default(), streams, metrics, pages).with_shares(shares)
    }

    #[tokio::test]
    async fn who_has_used_up_its_share_is_refused_before_anybody_looks_for_its_token() {
        let metrics = Metrics::new(&runtime::Metrics::default());
        // Nothing flows in, however long this takes.
        let share = Share { requests: 0, burst: 1, at_once: 1, waiting: 1, streams: 1 };
        let (shares, acme) = (Shares::of(share, metrics.clone()), "acme".parse().unwrap());
        shares.learn(hash("known"), Some(&acme));
        drop(shares.enter(&acme).await.unwrap());
        let api = cut_off(shares, metrics);
        for (secret, status) in [("known", 429), ("stranger", 503)] {
            assert_eq!(refused(&api, secret).await, status, "{secret}");
        }
    }

    #[tokio::test]
    async fn strangers_take_no_connections_from_those_who_are_known() {
        let api = cut_off(Shares::unbounded(), Metrics::new(&runtime::Metrics::default()));
        api.strangers().note(hash("known"), true);
        let mut places = Vec::new();
        for number in 0..4 {
            places.push(api.strangers().admit(&hash(&format!("stranger {number}"))).await.unwrap());
        }
        assert_eq!(refused(&api, "known").await, 503, "it was looked for");
        let answered = async {
            tokio::task::yield_now().await;
            api.strangers().note(hash("known"), true);
        };
        let (stranger, ()) = tokio::join!(refused(&api, "stranger"), answered);
        assert_eq!(stranger, 429, "it waits while others are answered");
        assert_eq!(refused(&api, "stranger").await, 503, "nobody is: Postgres is away");
        drop(places);
        assert_eq!(refused(&api, "stranger").await, 503);
    }

    /// How a request with a token is refused.
    async fn refused(api: &Api, secret: &str) -> u16 {
        let asked = Request::builder().header(AUTHORIZATION, format!("Bearer {secret}")).body(()).unwrap();
        let refused = Caller::from_request_parts(&mut asked.into_parts().0, api).await.unwrap_err();
        refused.problem.status
    }

    fn principal(role: Role, tenant: Option<&str>) -> Principal {
        let tenant = tenant.map(|id| id.parse().unwrap());
        Principal { token: Uuid::nil(), name: "test".to_owned(), role, tenant }
    }

    fn caller(role: Role, own: Option<&str>, named: Option<&str>) -> Result<Caller, Failure> {
        let principal = principal(role, own);
        let tenant = acting_for(&principal, named)?;
        Ok(Caller { principal, tenant, request_id: String::new(), _place: None })
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bEARER  abc "), Some("abc"));
        for bad in ["", "abc", "Basic abc", "Bearer", "Bearer  "] {
            assert_eq!(bearer(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_tenant_sees_only_itself() {
        let own = caller(Role::Tenant, Some("acme"), None).unwrap();
        assert_eq!(own.scope().unwrap().unwrap().as_str(), "acme");
        let same = caller(Role::Tenant, Some("acme"), Some("acme")).unwrap();
        assert_eq!(same.tenant().unwrap().as_str(), "acme");
        let other = caller(Role::Tenant, Some("acme"), Some("umbrella")).unwrap_err();
        assert_eq!(other.problem.status, 403);
    }

    #[test]
    fn the_console_names_its_tenant() {
        let named = caller(Role::Console, None, Some("acme")).unwrap();
        assert_eq!(named.scope().unwrap().unwrap().as_str(), "acme");
        let unnamed = caller(Role::Console, None, None).unwrap();
        assert_eq!(unnamed.scope().unwrap_err().problem.code, "tenant_required");
        assert_eq!(caller(Role::Console, None, Some("Not A Label")).unwrap_err().problem.code, "bad_tenant");
    }

    #[test]
    fn only_an_sre_sees_everything_and_runs_the_fleet() {
        let sre = caller(Role::Sre, None, None).unwrap();
        assert!(sre.scope().unwrap().is_none());
        assert!(sre.require_sre().is_ok());
        assert_eq!(sre.tenant().unwrap_err().problem.status, 400);
        for (role, own) in [(Role::Tenant, Some("acme")), (Role::Console, None)] {
            assert_eq!(caller(role, own, None).unwrap().require_sre().unwrap_err().problem.status, 403);
        }
    }
}
