//! Following an operation by its event stream to its end: a stream that is cut is taken up again after the last event
//! seen, with growing and jittered waits, until the deadline. It shows nothing itself.

use std::time::Duration;

use eventsource_stream::Eventsource;
use futures::{Stream, StreamExt};
use tokio::time::Instant;
use uuid::Uuid;
use wire::http::{Operation, OperationEvent};

use crate::client::Client;
use crate::client::retry::BACKOFF;
use crate::error::{BoxError, Error};

/// The least time between two looks at a stream that ends at once.
const BREATH: Duration = Duration::from_millis(200);
/// The longest wait that a server may ask for between two connections.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one stream is believed in. Then it is taken up anew, and the operation itself is looked at: a server whose
/// stream stays alive but brings nothing any more must not keep anybody waiting for an end that has come.
const RENEWAL: Duration = Duration::from_secs(20);

/// What is done with each event.
pub type Watcher<'a> = dyn FnMut(&OperationEvent) -> Result<(), Error> + 'a;

/// Follows an operation to its end and answers with it.
pub async fn follow(client: &Client, id: Uuid, watcher: &mut Watcher<'_>) -> Result<Operation, Error> {
    let mut reader = Reader::default();
    match tokio::time::timeout_at(client.deadline(), to_the_end(client, id, &mut reader, watcher)).await {
        Ok(Err(Error::TimedOut { .. })) | Err(_) => Err(Error::TimedOut {
            doing: format!("operation {id} has not ended; it goes on without being watched"),
            hint: format!("slipway operations watch {id}"),
        }),
        Ok(result) => result,
    }
}

/// The same for somebody at a terminal: an interrupt ends the watching, and not the operation, which is said.
pub async fn attend(client: &Client, id: Uuid, watcher: &mut Watcher<'_>) -> Result<Operation, Error> {
    let interrupt = async {
        // Where none can be heard, whoever began the command says so.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    unless(interrupt, id, follow(client, id, watcher)).await
}

async fn unless(
    interrupt: impl Future<Output = ()>,
    id: Uuid,
    followed: impl Future<Output = Result<Operation, Error>>,
) -> Result<Operation, Error> {
    tokio::select! {
        biased;
        () = interrupt => Err(Error::Interrupted {
            hint: format!("operation {id} goes on without being watched: slipway operations watch {id}"),
        }),
        followed = followed => followed,
    }
}

async fn to_the_end(
    client: &Client,
    id: Uuid,
    reader: &mut Reader,
    watcher: &mut Watcher<'_>,
) -> Result<Operation, Error> {
    let mut retry = BACKOFF.start();
    loop {
        let before = reader.last;
        let mut is_over = false;
        match client.events(id, reader.last).await {
            Ok(response) => {
                let read = reader.drain(response.bytes_stream(), watcher);
                // An event that was half read when the time came is read again: it was not counted.
                is_over = tokio::time::timeout(RENEWAL, read).await.unwrap_or(Ok(false))?;
            }
            // A server that is away for a while is no reason to leave: the deadline is.
            Err(error) if is_away(&error) => {}
            Err(error) => return Err(error),
        }
        if reader.last > before {
            retry.reset();
        }
        // A stream that brings nothing may have nothing left to bring.
        if (is_over || reader.last == before)
            && let Some(operation) = ended(client, id).await?
        {
            return Ok(operation);
        }
        let wait = retry.next_delay().max(reader.retry).max(BREATH);
        client
            .output()
            .trace(&format!("the stream was cut after event {}; again in {wait:.1?}", reader.last));
        tokio::time::sleep(wait).await;
    }
}

/// The operation, if it has ended.
async fn ended(client: &Client, id: Uuid) -> Result<Option<Operation>, Error> {
    match client.operation(id).await {
        Ok(operation) => Ok(is_terminal(&operation.state).then_some(operation)),
        Err(error) if is_away(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the API may be there again later: nobody answered, or a load balancer that found none behind it.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Refused { problem, .. } => matches!(problem.status, 502 | 504),
        _ => false,
    }
}

/// The events that an operation has had so far: all of them where it has ended, else those that come within the time.
pub async fn history(client: &Client, id: Uuid, time: Duration) -> Result<Vec<OperationEvent>, Error> {
    let until = (Instant::now() + time).min(client.deadline());
    let mut events = Vec::new();
    let mut collect = |event: &OperationEvent| {
        events.push(event.clone());
        Ok(())
    };
    let read = async {
        let response = client.events(id, 0).await?;
        Reader::default().drain(response.bytes_stream(), &mut collect).await.map(drop)
    };
    // Out of time is how the history of a running operation ends.
    match tokio::time::timeout_at(until, read).await {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(_) => Ok(events),
    }
}

/// Whether nothing moves an operation any more. A state that this build does not know is taken for a moving one.
pub fn is_terminal(state: &str) -> bool {
    domain::OperationState::parse(state).is_some_and(domain::OperationState::is_terminal)
}

/// How far a stream was read.
#[derive(Debug, Default)]
struct Reader {
    /// Number of the last event.
    last: i64,
    /// What the server wants between two connections.
    retry: Duration,
}

impl Reader {
    /// Reads a stream until it ends or is cut. Answers whether the operation has ended.
    async fn drain<S, B, E>(&mut self, stream: S, watcher: &mut Watcher<'_>) -> Result<bool, Error>
    where
        S: Stream<Item = Result<B, E>>,
        B: AsRef<[u8]>,
    {
        let mut stream = std::pin::pin!(stream.eventsource());
        // An error is a cut like any other: what was missed comes again.
        while let Some(Ok(message)) = stream.next().await {
            if let Some(retry) = message.retry {
                self.retry = retry.min(PATIENCE);
            }
            // Other kinds of events may come one day.
            if !matches!(message.event.as_str(), "state" | "step") {
                continue;
            }
            let event: OperationEvent =
                serde_json::from_str(&message.data).map_err(|error| not_understood(Box::new(error)))?;
            if event.number <= self.last {
                continue;
            }
            self.last = event.number;
            watcher(&event)?;
            if is_terminal(&event.state) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn not_understood(source: BoxError) -> Error {
    Error::Answer { request: "the stream of events".to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn message(number: i64, kind: &str, state: &str) -> String {
        let data =
            format!(r#"{{"number":{number},"kind":"{kind}","state":"{state}","at":"2026-11-21T06:00:00Z"}}"#);
        format!("id: {number}\nevent: {kind}\ndata: {data}\n\n")
    }

    async fn feed(reader: &mut Reader, text: &str, chunk: usize) -> (Result<bool, Error>, Vec<i64>) {
        let chunks: Vec<Result<Vec<u8>, Infallible>> =
            text.as_bytes().chunks(chunk).map(|chunk| Ok(chunk.to_vec())).collect();
        let mut numbers = Vec::new();
        let mut watch = |event: &OperationEvent| {
            numbers.push(event.number);
            Ok(())
        };
        let result = reader.drain(futures::stream::iter(chunks), &mut watch).await;
        (result, numbers)
    }

    #[tokio::test]
    async fn an_interrupt_ends_the_watching_and_says_that_the_operation_goes_on() {
        let id = Uuid::now_v7();
        let error = unless(std::future::ready(()), id, std::future::pending()).await.unwrap_err();
        assert_eq!(crate::exit::code(&error), crate::exit::INTERRUPTED);
        let told = error.explain();
        assert!(told.ends_with(&format!("slipway operations watch {id}")), "{told}");
    }

    #[tokio::test]
    async fn events_arrive_however_the_bytes_are_cut() {
        let text = [
            "retry: 700\n\n: heartbeat\n\n",
            &message(1, "state", "pending"),
            &message(2, "step", "running"),
            "event: weather\ndata: rain\n\n",
            &message(3, "state", "succeeded"),
            &message(4, "state", "succeeded"),
        ]
        .concat();
        for chunk in [1, 2, 7, text.len()] {
            let mut reader = Reader::default();
            let (ended, numbers) = feed(&mut reader, &text, chunk).await;
            assert!(ended.unwrap(), "chunks of {chunk}");
            assert_eq!(numbers, [1, 2, 3], "nothing is read after the end, chunks of {chunk}");
        }
    }

    #[tokio::test]
    async fn a_cut_stream_is_taken_up_without_repetition() {
        let mut reader = Reader::default();
        let first = message(1, "state", "pending") + "id: 2\nevent: step\ndata: {\"numb";
        let (ended, numbers) = feed(&mut reader, &first, 5).await;
        assert!(!ended.unwrap());
        assert_eq!((numbers, reader.last), (vec![1], 1));
        let again =
            message(1, "state", "pending") + &message(2, "step", "running") + &message(3, "state", "failed");
        let (ended, numbers) = feed(&mut reader, &again, 5).await;
        assert!(ended.unwrap());
        assert_eq!(numbers, [2, 3]);
    }

    #[tokio::test]
    async fn an_error_of_the_connection_is_a_cut() {
        let mut reader = Reader::default();
        let stream =
            futures::stream::iter([Ok(message(1, "state", "running")), Err(std::io::Error::other("reset"))]);
        let ended = reader.drain(stream, &mut |_| Ok(())).await;
        assert!(!ended.unwrap());
        assert_eq!(reader.last, 1);
    }

    #[tokio::test]
    async fn servers_ask_for_patience_within_reason() {
        let mut reader = Reader::default();
        let text = "retry: 99999999\n".to_owned() + &message(1, "state", "running");
        feed(&mut reader, &text, 3).await.0.unwrap();
        assert_eq!(reader.retry, PATIENCE);
    }

    #[tokio::test]
    async fn nonsense_is_not_passed_over() {
        let (ended, numbers) =
            feed(&mut Reader::default(), "event: state\ndata: {\"number\":\"one\"}\n\n", 4).await;
        assert!(matches!(ended, Err(Error::Answer { .. })));
        assert!(numbers.is_empty());
    }

    #[test]
    fn ends() {
        for (state, end) in [
            ("pending", false),
            ("running", false),
            ("succeeded", true),
            ("failed", true),
            ("superseded", true),
            ("new", false),
        ] {
            assert_eq!(is_terminal(state), end, "{state}");
        }
    }
}
