//! All routes on one page.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi as _;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::problem::MEDIA_TYPE;

use super::databases::{act, create, delete, purge, read, resend, states, update};
use super::failure::Failure;
use super::{Api, aside, cancel, clusters, events, middleware, operations, pages};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Slipway",
        description = "Databases in Kubernetes clusters of many regions. Every change answers 202 with an operation to \
                       follow. Failures are problem documents (RFC 9457). Each tenant has a share of the API: what goes beyond is \
                       answered 429 with Retry-After.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "databases", description = "QuestDB databases"),
        (name = "operations", description = "What was asked for, and how far it came"),
        (name = "clusters", description = "The registry of Kubernetes clusters (role sre)"),
        (name = "fleet", description = "What was set aside and waits for people (role sre)"),
    ),
    // Their paths hold a verb, which the router cannot tell from the identity: they are routed by hand below.
    paths(cancel::cancel, states::pause, states::resume, states::restart, states::undelete, purge::purge,
        resend::resend, aside::letter::redrive, aside::letter::discard),
    security(("token" = [])),
    modifiers(&Token)
)]
struct Document;

struct Token;

impl utoipa::Modify for Token {
    fn modify(&self, openapi: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(create::create, read::list))
        .routes(routes!(read::get, update::update, delete::delete))
        .routes(routes!(operations::list))
        .routes(routes!(operations::get))
        .routes(routes!(events::follow))
        .routes(routes!(clusters::list))
        .routes(routes!(clusters::get, clusters::register, clusters::update))
        .routes(routes!(aside::unclaimed))
        .routes(routes!(aside::parked))
        .routes(routes!(aside::dead_letters))
        .routes(routes!(aside::letter::get))
}

/// The description of the API.
pub fn openapi() -> OpenApi {
    with_failures(routes().into_openapi())
}

/// The same with what every operation can be answered with, and none lists for itself.
fn with_failures(mut document: OpenApi) -> OpenApi {
    let failure = ResponseBuilder::new()
        .description(
            "Any other failure: no valid token (401), or one that may not do this (403), a body of another type (415), more than \
             the tenant's share (429), something of ours that is away (503)",
        )
        .content(MEDIA_TYPE, Content::new(Some(Ref::from_schema_name("Problem"))))
        .build();
    for path in document.paths.paths.values_mut() {
        let operations = [&mut path.get, &mut path.put, &mut path.post, &mut path.patch, &mut path.delete];
        for operation in operations.into_iter().flatten() {
            operation.responses.responses.insert("default".to_owned(), RefOr::T(failure.clone()));
        }
    }
    document
}

/// The whole API.
pub fn router(api: Api) -> Router {
    let (routes, document) = routes().split_for_parts();
    let document = Json(with_failures(document));
    routes
        .route("/v1/operations/{id}", post(cancel::act))
        .route("/v1/databases/{id}", post(act::act))
        .route("/v1/dead-letters/{id}", post(aside::letter::act))
        .route("/openapi.json", get(move || async move { document }))
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz))
        .route("/metrics", get(pages::metrics))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(CatchPanicLayer::custom(middleware::panicked))
        .layer(axum::middleware::from_fn_with_state(api.clone(), middleware::around))
        .with_state(api)
}

async fn no_route(_: State<Api>) -> Response {
    Failure::no_route().into_response()
}

async fn no_method(_: State<Api>) -> Response {
    Failure::method().into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is committed is what clients are made from: `slipway-backend openapi > deploy/openapi.json` renews it.
    #[test]
    fn the_committed_description_is_the_one_that_is_served() {
        let committed = include_str!("../../../../deploy/openapi.json");
        let served = openapi().to_pretty_json().unwrap();
        assert!(committed.trim_end() == served, "deploy/openapi.json is not what this code serves");
    }

    #[test]
    fn every_operation_needs_a_token_and_tells_of_its_refusals() {
        let document = serde_json::to_value(openapi()).unwrap();
        assert_eq!(document["security"][0]["token"], serde_json::json!([]));
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                assert!(
                    operation["operationId"].is_string() && operation["summary"].is_string(),
                    "{method} {path}"
                );
                let failure = &operation["responses"]["default"]["content"][MEDIA_TYPE]["schema"]["$ref"];
                assert_eq!(failure, "#/components/schemas/Problem", "{method} {path}");
            }
        }
    }
}
