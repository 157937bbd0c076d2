//! The verbs of a database, which come behind its identity: `POST /v1/databases/{id}:verb`. The router knows whole segments
//! only, so what is to be done is taken from the path here.

use axum::extract::{FromRequest as _, Path, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::super::Api;
use super::super::aside::act;
use super::super::auth::Caller;
use super::super::body::Body;
use super::super::failure::Failure;
use super::states::{self, Wish};
use super::{purge, resend, to_change};

/// Does what the path says.
pub(crate) async fn act(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Failure> {
    let Some((text, verb)) = text.split_once(':') else { return Err(Failure::method()) };
    let wish = Wish { api: &api, caller: &caller, headers: &headers };
    match verb {
        "pause" => states::pause(wish, to_change(&api, text)?).await,
        "resume" => states::resume(wish, to_change(&api, text)?).await,
        "restart" => states::restart(wish, to_change(&api, text)?).await,
        "undelete" => states::undelete(wish, to_change(&api, text)?).await,
        "purge" => {
            let body = Body::from_request(request, &api).await?;
            purge::purge(wish, to_change(&api, text)?, &body).await
        }
        "resend" => {
            let body = Body::from_request(request, &api).await?;
            let wish = act::Wish { caller: &caller, headers: &headers, body: &body };
            resend::resend(&api, wish, to_change(&api, text)?).await
        }
        _ => Err(Failure::no_route()),
    }
}
