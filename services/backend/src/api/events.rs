//! `GET /v1/operations/{id}/events`: an operation's events as they are committed.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use domain::Rule;
use futures::{StreamExt as _, stream};
use tokio_stream::wrappers::ReceiverStream;
use wire::http::{OperationEvent, Problem};

use super::auth::Caller;
use super::failure::Failure;
use super::{Api, operations, present};

/// Silence after which a comment is sent, so that nobody on the way takes the stream for dead.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long clients wait before they connect again.
const RECONNECT: Duration = Duration::from_secs(1);

const LAST_EVENT_ID: &str = "Last-Event-ID";
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Follow an operation
///
/// Server-sent events: `id` is the event's number, `event` its kind. `Last-Event-ID` resumes behind what was seen. The
/// stream closes after the event that ends the operation; asked again then, it answers 204. It closes within seconds, too, when the
/// token that it was asked for with is revoked or expires. Of an operation that ended longer ago than its history is kept (30 days
/// unless set otherwise) only that last event is left: whoever resumes behind one that is gone, or begins, gets the last one with
/// its own number, and the gap before it says that the others are gone.
#[utoipa::path(
    get,
    path = "/v1/operations/{id}/events",
    tag = "operations",
    operation_id = "follow_operation",
    params(
        ("id" = Uuid, Path, description = "Identity of the operation"),
        ("Last-Event-ID" = Option<i64>, Header, description = "Number of the last event that was seen"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 200, description = "Events", body = OperationEvent, content_type = "text/event-stream"),
        (status = 204, description = "The operation has ended and everything was seen"),
        (status = 404, description = "There is none, or it is not the caller's", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The tenant has too many streams open", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many streams are open", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn follow(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let after = last_event_id(&headers)?;
    let record = api.store().operation(caller.scope()?, operations::id(&text)?).await?;
    let record = record.ok_or_else(|| Failure::not_found("operation"))?;
    if record.operation.state.is_terminal() && after >= record.last_event {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    // Behind a number that was never given no event would ever come, not even the end.
    let after = after.min(record.last_event);
    let place = api.shares().open_stream(caller.shares_of())?;
    let token = caller.principal.token;
    let events = api.streams().follow(record.operation.id, after, token).ok_or_else(|| {
        Failure::unavailable("too many event streams are open", "the limit of streams is reached".to_owned())
    })?;
    let first = stream::once(async { Ok::<_, Infallible>(Event::default().retry(RECONNECT)) });
    let rest = ReceiverStream::new(events).map(move |event| {
        // Goes with the stream.
        let _ = &place;
        Ok(encode(&present::event(event)))
    });
    let keep_alive = KeepAlive::new().interval(HEARTBEAT).text("alive");
    let mut response = Sse::new(first.chain(rest)).keep_alive(keep_alive).into_response();
    response.headers_mut().insert(NO_BUFFERING.0, NO_BUFFERING.1);
    Ok(response)
}

fn encode(event: &OperationEvent) -> Event {
    let frame = Event::default().id(event.number.to_string()).event(&event.kind);
    // A body of ours always serialises; a comment would keep the stream alive even if it did not.
    frame.json_data(event).unwrap_or_else(|error| Event::default().comment(error.to_string()))
}

fn last_event_id(headers: &HeaderMap) -> Result<i64, Failure> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(0) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok()).filter(|number| *number >= 0);
    number.ok_or_else(|| {
        Failure::bad_header(
            "bad_last_event_id",
            LAST_EVENT_ID,
            Rule::Format,
            "send the id of an event of this stream",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resume_begins_behind_a_number() {
        let with =
            |value: &str| HeaderMap::from_iter([("last-event-id".parse().unwrap(), value.parse().unwrap())]);
        assert_eq!(last_event_id(&HeaderMap::new()).unwrap(), 0);
        assert_eq!(last_event_id(&with("7")).unwrap(), 7);
        for bad in ["", "-1", "seven", "1.5"] {
            assert_eq!(last_event_id(&with(bad)).unwrap_err().problem.status, 400, "{bad}");
        }
    }
}
