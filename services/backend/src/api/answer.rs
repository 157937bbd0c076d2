//! Good answers.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use store::Answer;
use wire::http::Accepted;

use super::failure::Failure;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The answer to an accepted change.
pub(crate) fn accepted(body: &Accepted, etag: String) -> Result<Answer, Failure> {
    Ok(Answer {
        status: StatusCode::ACCEPTED.as_u16(),
        location: Some(format!("/v1/operations/{}", body.operation.id)),
        etag: Some(etag),
        body: serde_json::to_value(body).map_err(|error| Failure::internal(error.to_string()))?,
    })
}

/// Sends an answer, and says where it was given before.
pub(crate) fn send(answer: Answer, replayed: bool) -> Response {
    let Answer { status, location, etag, body } = answer;
    let mut headers = HeaderMap::new();
    for (name, value) in [(header::LOCATION, location), (header::ETAG, etag)] {
        if let Some(value) = value.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(name, value);
        }
    }
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    (status, headers, Json(body)).into_response()
}

/// Sends a body with its entity tag.
pub(crate) fn tagged(body: &impl Serialize, etag: &str) -> Response {
    let mut response = Json(body).into_response();
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}
