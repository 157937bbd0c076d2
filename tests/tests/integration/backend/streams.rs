//! Server-sent events: what is committed, in order, to the end, and on from where a reader stopped.

use std::time::Duration;

use ::store::{Advance, Batch, Observation, Outcome, OutcomeKind};
use domain::Position;
use serde_json::{Value, json};
use testkit::eventually;

use super::{App, PATIENCE, text};

/// Longer than any test reads a stream.
const LONG: Duration = Duration::from_mins(30);

/// A stream as its reader sees it.
pub(super) struct Stream {
    response: reqwest::Response,
    buffer: String,
}

/// An event as it came over the line.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) id: i64,
    pub(super) kind: String,
    pub(super) data: Value,
}

impl Stream {
    pub(super) async fn open(app: &App, operation: &str, last: Option<i64>) -> Self {
        Self::open_at(app, &app.base, operation, last).await
    }

    /// The same at another replica, which may be late with the connection that it needs for that.
    pub(super) async fn open_at(app: &App, base: &str, operation: &str, last: Option<i64>) -> Self {
        let url = format!("{base}/v1/operations/{operation}/events");
        let response = eventually(PATIENCE, "an answer", async || {
            let request = app.client.get(&url).bearer_auth(&app.acme).timeout(LONG);
            let request =
                last.into_iter().fold(request, |request, last| request.header("Last-Event-ID", last));
            let response = request.send().await.unwrap();
            (response.status() != 503).then_some(response)
        })
        .await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, buffer: String::new() }
    }

    /// The next event, or `None` when the stream closed.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let chunk =
                tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("an event in time");
            self.buffer.push_str(std::str::from_utf8(&chunk.unwrap()?).unwrap());
        }
    }

    fn take(&mut self) -> Option<Frame> {
        while let Some(end) = self.buffer.find("\n\n") {
            let frame: String = self.buffer.drain(..end + 2).collect();
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if let (Some(id), Some(kind), Some(data)) = (field("id:"), field("event:"), field("data:")) {
                let data = serde_json::from_str(data).unwrap();
                return Some(Frame { id: id.parse().unwrap(), kind: kind.to_owned(), data });
            }
        }
        None
    }

    pub(super) async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

pub(super) fn outcome(made: &Value) -> Outcome {
    Outcome {
        database: text(&made["database"]["id"]).parse().unwrap(),
        cluster: "eu".parse().unwrap(),
        position: Position::FIRST,
        operation: text(&made["operation"]["id"]).parse().unwrap(),
        kind: OutcomeKind::Applied,
        code: String::new(),
        message: String::new(),
        said_at: jiff::Timestamp::now(),
    }
}

pub(super) fn done(made: &Value) -> Observation {
    Observation {
        database: text(&made["database"]["id"]).parse().unwrap(),
        cluster: "eu".parse().unwrap(),
        position: Position::FIRST,
        term: 1,
        resource_version: 1,
        present: true,
        content_hash: String::new(),
        phase: "Ready".to_owned(),
        carried_out: Some(Position::FIRST),
        volume: true,
        steps: Vec::new(),
        body: json!({}).into(),
        body_schema: 1,
        said_at: jiff::Timestamp::now(),
    }
}

/// What a partition says that nobody read before.
pub(super) fn batch(partition: i32, outcomes: Vec<Outcome>, observations: Vec<Observation>) -> Batch {
    Batch {
        consumer: "test".to_owned(),
        topic: "gossip".to_owned(),
        advance: Advance { partition, from: None, to: 1 },
        observations,
        outcomes,
        ..Batch::default()
    }
}

pub(super) async fn absorb(
    app: &App,
    partition: i32,
    outcomes: Vec<Outcome>,
    observations: Vec<Observation>,
) {
    app.store.absorb(&batch(partition, outcomes, observations)).await.unwrap();
}

#[tokio::test]
async fn a_reader_sees_each_event_as_it_is_committed_and_then_the_end() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let operation = text(&made["operation"]["id"]);
    let mut stream = Stream::open(&app, operation, None).await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.id, first.kind.as_str(), text(&first.data["state"])), (1, "state", "pending"));
    absorb(&app, 0, vec![outcome(&made)], Vec::new()).await;
    let second = stream.next().await.unwrap();
    assert_eq!((second.id, text(&second.data["state"])), (2, "running"));
    let step = stream.next().await.unwrap();
    assert_eq!((step.id, step.kind.as_str(), text(&step.data["step"]["name"])), (3, "step", "apply"));
    absorb(&app, 1, Vec::new(), vec![done(&made)]).await;
    let last = stream.rest().await;
    assert_eq!(last.len(), 1, "the stream closes after the end: {last:?}");
    assert_eq!((last[0].id, text(&last[0].data["state"])), (4, "succeeded"));
}

#[tokio::test]
async fn a_reader_goes_on_behind_what_it_saw() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let operation = text(&made["operation"]["id"]);
    absorb(&app, 0, vec![outcome(&made)], vec![done(&made)]).await;
    let all: Vec<i64> =
        Stream::open(&app, operation, None).await.rest().await.iter().map(|frame| frame.id).collect();
    assert_eq!(all, [1, 2, 3]);
    let rest: Vec<i64> =
        Stream::open(&app, operation, Some(1)).await.rest().await.iter().map(|frame| frame.id).collect();
    assert_eq!(rest, [2, 3]);
    let request = app.request(&app.acme, reqwest::Method::GET, &format!("/v1/operations/{operation}/events"));
    let over = app.send(request.header("Last-Event-ID", 3)).await;
    assert_eq!(over.status, 204, "a browser stops asking then");
    let request = app.request(&app.acme, reqwest::Method::GET, &format!("/v1/operations/{operation}/events"));
    assert_eq!(app.send(request.header("Last-Event-ID", "x")).await.status, 400);
}

#[tokio::test]
async fn a_reader_that_names_an_event_which_never_was_sees_the_end_too() {
    const NEVER: i64 = 1_000_000_000;
    let app = App::new().await;
    let made = app.created("trades").await;
    let operation = text(&made["operation"]["id"]);
    let running = Stream::open(&app, operation, Some(NEVER)).await;
    absorb(&app, 0, vec![outcome(&made)], vec![done(&made)]).await;
    let rest: Vec<i64> = running.rest().await.iter().map(|frame| frame.id).collect();
    assert_eq!(rest, [2, 3], "what comes from now on, to the end");
    let request = app.request(&app.acme, reqwest::Method::GET, &format!("/v1/operations/{operation}/events"));
    assert_eq!(app.send(request.header("Last-Event-ID", NEVER)).await.status, 204);
}

/// As after a standby that lagged became the primary: of the operation less is there than was shown, and its end has a number that
/// was seen.
#[tokio::test]
async fn a_reader_that_saw_what_was_lost_is_sent_to_ask_again() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let operation = text(&made["operation"]["id"]);
    absorb(&app, 0, vec![outcome(&made)], Vec::new()).await;
    let mut stream = Stream::open(&app, operation, None).await;
    for number in 1..=3 {
        assert_eq!(stream.next().await.unwrap().id, number);
    }
    app.ask(&format!(
        "with lost as (delete from operation_events where operation_id = '{operation}' and number > 1) \
         update operations set state = 'pending', last_event = 1, steps = '[]' where id = '{operation}'"
    ))
    .await;
    absorb(&app, 1, vec![outcome(&made)], vec![done(&made)]).await;
    assert!(stream.next().await.is_none(), "nothing more would ever come");
    let request = app.request(&app.acme, reqwest::Method::GET, &format!("/v1/operations/{operation}/events"));
    assert_eq!(app.send(request.header("Last-Event-ID", 3)).await.status, 204);
}

#[tokio::test]
async fn many_readers_of_many_operations_get_their_own() {
    let app = App::new().await;
    let mut made = Vec::new();
    for number in 0..3 {
        made.push(app.created(&format!("db-{number}")).await);
    }
    let readers = made.iter().flat_map(|made| [made, made]).map(async |made| {
        let id = text(&made["operation"]["id"]).to_owned();
        Stream::open(&app, &id, None).await.rest().await
    });
    let (seen, ()) = tokio::join!(futures::future::join_all(readers), async {
        absorb(&app, 0, made.iter().map(outcome).collect(), made.iter().map(done).collect()).await;
    });
    for frames in seen {
        assert_eq!(frames.iter().map(|frame| frame.id).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(text(&frames[2].data["state"]), "succeeded");
    }
}

#[tokio::test]
async fn a_reader_whose_token_is_valid_no_more_is_shown_nothing_more() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let operation = text(&made["operation"]["id"]);
    for ending in ["revoked_at = now()", "revoked_at = null, expires_at = now()"] {
        app.ask("update tokens set revoked_at = null, expires_at = null where tenant_id = 'acme'").await;
        let mut stream = Stream::open(&app, operation, None).await;
        assert_eq!(stream.next().await.unwrap().id, 1);
        app.ask(&format!("update tokens set {ending} where tenant_id = 'acme'")).await;
        assert!(stream.next().await.is_none(), "{ending}");
    }
}

#[tokio::test]
async fn a_stop_ends_the_streams() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let mut stream = Stream::open(&app, text(&made["operation"]["id"]), None).await;
    assert_eq!(stream.next().await.unwrap().id, 1);
    app.stop.cancel();
    assert!(stream.next().await.is_none());
}
