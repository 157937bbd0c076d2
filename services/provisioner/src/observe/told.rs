//! What an API server tells of a cluster's custom resources: all there are, then every change, and now and then up to which version
//! that was all. The library's own watcher keeps the last to itself, without which a watch that has nothing to tell cannot be told
//! from one that is dead.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::watcher::Error;
use resources::Seen;

use super::translate::number;

/// The most resources of one answer.
const PAGE: u32 = 500;
/// How long one answer may take. API servers give a request up themselves after a minute.
const ANSWER: Duration = Duration::from_secs(75);
/// How much longer than it was to last a watch may stay silent.
const SLACK: Duration = Duration::from_secs(5);
/// A watch that ends sooner is an error: who ends each one at once is not asked again as fast as that goes. The shortest that can be
/// asked for lasts a second.
const TOO_SOON: Duration = Duration::from_millis(500);
/// The status that says of a version that the server does not remember what came after it.
const FORGOTTEN: u16 = 410;

/// What is told.
#[derive(Debug)]
pub(super) enum Told {
    /// A list begins. It was asked for at this moment, and has all that was there then.
    Begun(Instant),
    /// It has this.
    Listed(Seen),
    /// It has nothing else, and is of this version.
    Complete(u64),
    /// This was made or changed.
    Changed(Seen),
    /// This is gone.
    Gone(Seen),
    /// Nothing else changed up to this version. API servers say so about once a minute.
    UpTo(u64),
}

/// Lists and watches. After an error the next that is told comes from another request: after a list that broke off, a new list;
/// after a watch that did, one from where that was.
///
/// A watch lasts for so many seconds and is then begun anew.
pub(super) fn listen(api: Api<Seen>, lasts: u32) -> impl Stream<Item = Result<Told, Error>> + Send {
    let source = Source { api, lasts };
    stream::unfold((source, State::Nothing), |(source, mut state)| async move {
        loop {
            let (told, next) = source.step(state).await;
            state = next;
            if let Some(told) = told {
                return Some((told, (source, state)));
            }
        }
    })
}

struct Source {
    api: Api<Seen>,
    lasts: u32,
}

/// What an open watch says.
struct Events {
    since: Instant,
    stream: BoxStream<'static, Result<WatchEvent<Seen>, kube::Error>>,
}

enum State {
    /// Everything is to be listed.
    Nothing,
    /// What is left of an answer to a list, and where the next one begins.
    Page {
        objects: VecDeque<Seen>,
        next: Option<String>,
        version: String,
    },
    /// To be watched from this version on.
    At(String),
    Watching {
        version: String,
        events: Events,
    },
}

/// What is told, if anything, and how it goes on.
type Step = (Option<Result<Told, Error>>, State);

impl Source {
    async fn step(&self, state: State) -> Step {
        match state {
            State::Nothing => self.page(None, Some(Instant::now())).await,
            State::Page { mut objects, next, version } => match (objects.pop_front(), next) {
                (Some(seen), next) => (Some(Ok(Told::Listed(seen))), State::Page { objects, next, version }),
                (None, Some(next)) => self.page(Some(next), None).await,
                (None, None) => (Some(Ok(Told::Complete(number(&version)))), State::At(version)),
            },
            State::At(version) => self.begin(version).await,
            State::Watching { version, mut events } => {
                let limit = Duration::from_secs(u64::from(self.lasts)) + SLACK;
                match runtime::deadline(limit, "a watch", events.stream.next()).await {
                    Ok(Some(Ok(event))) => heard(event, version, events),
                    Ok(Some(Err(error))) => {
                        let next = after(&error, version);
                        (Some(Err(Error::WatchFailed(error))), next)
                    }
                    Ok(None) => ended(events.since.elapsed(), version),
                    // It should have ended long ago.
                    Err(_) => (None, State::At(version)),
                }
            }
        }
    }

    /// Begins a watch from this version on.
    async fn begin(&self, version: String) -> Step {
        let params = WatchParams::default().timeout(self.lasts);
        let answer = runtime::deadline(ANSWER, "a watch", self.api.watch(&params, &version)).await;
        match answer.unwrap_or_else(|late| Err(kube::Error::Service(late.into()))) {
            Ok(stream) => {
                let events = Events { since: Instant::now(), stream: stream.boxed() };
                (None, State::Watching { version, events })
            }
            Err(error) => {
                let next = after(&error, version);
                (Some(Err(Error::WatchStartFailed(error))), next)
            }
        }
    }

    /// One answer to a list, the first one where it was asked for at `begun`.
    async fn page(&self, next: Option<String>, begun: Option<Instant>) -> Step {
        let params = ListParams { limit: Some(PAGE), continue_token: next, ..ListParams::default() };
        let answer = runtime::deadline(ANSWER, "a list", self.api.list(&params)).await;
        let list = match answer.unwrap_or_else(|late| Err(kube::Error::Service(late.into()))) {
            Ok(list) => list,
            Err(error) => return (Some(Err(Error::InitialListFailed(error))), State::Nothing),
        };
        let is_some = |text: &String| !text.is_empty();
        let Some(version) = list.metadata.resource_version.filter(is_some) else {
            return (Some(Err(Error::NoResourceVersion)), State::Nothing);
        };
        let next = list.metadata.continue_.filter(is_some);
        let page = State::Page { objects: VecDeque::from(list.items), next, version };
        (begun.map(|at| Ok(Told::Begun(at))), page)
    }
}

/// How it goes on after a watch from `version` failed.
fn after(error: &kube::Error, version: String) -> State {
    let is_forgotten = matches!(error, kube::Error::Api(status) if status.code == FORGOTTEN);
    if is_forgotten { State::Nothing } else { State::At(version) }
}

/// How it goes on after a watch that is at `version` ended, which lasted so long.
fn ended(lasted: Duration, version: String) -> Step {
    let at_once = (lasted < TOO_SOON).then(|| io::Error::other("the watch ended at once"));
    (at_once.map(|why| Err(Error::WatchFailed(kube::Error::ReadEvents(why)))), State::At(version))
}

/// What an event of a watch that is at `version` tells.
fn heard(event: WatchEvent<Seen>, version: String, events: Events) -> Step {
    let (seen, is_there) = match event {
        WatchEvent::Added(seen) | WatchEvent::Modified(seen) => (seen, true),
        WatchEvent::Deleted(seen) => (seen, false),
        WatchEvent::Bookmark(mark) => {
            let version = mark.metadata.resource_version;
            return (Some(Ok(Told::UpTo(number(&version)))), State::Watching { version, events });
        }
        WatchEvent::Error(status) => {
            let is_forgotten = status.code == FORGOTTEN;
            let next = if is_forgotten { State::Nothing } else { State::Watching { version, events } };
            return (Some(Err(Error::WatchError(status))), next);
        }
    };
    let Some(version) = seen.object.metadata.resource_version.clone() else {
        return (Some(Err(Error::NoResourceVersion)), State::Nothing);
    };
    let told = if is_there { Told::Changed(seen) } else { Told::Gone(seen) };
    (Some(Ok(told)), State::Watching { version, events })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::observe::translate::tests::object;

    fn hear(kind: &str, object: &Value) -> Step {
        let event = serde_json::from_value(json!({"type": kind, "object": object})).unwrap();
        let events = Events { since: Instant::now(), stream: stream::pending().boxed() };
        heard(event, "7".to_owned(), events)
    }

    #[test]
    fn a_watch_goes_on_from_what_it_was_told_last() {
        let seen = json!(object());
        let mark = json!({"apiVersion": "crd.questdb.io/v1", "kind": "QuestDB", "metadata": {"resourceVersion": "1300"}});
        for (kind, object, at) in [
            ("ADDED", &seen, "1234"),
            ("MODIFIED", &seen, "1234"),
            ("DELETED", &seen, "1234"),
            ("BOOKMARK", &mark, "1300"),
        ] {
            let (told, next) = hear(kind, object);
            match told.unwrap().unwrap() {
                Told::Changed(_) => assert!(["ADDED", "MODIFIED"].contains(&kind), "{kind}"),
                Told::Gone(_) => assert_eq!(kind, "DELETED"),
                Told::UpTo(version) => assert_eq!((kind, version), ("BOOKMARK", 1300)),
                other => panic!("{kind}: {other:?}"),
            }
            assert!(matches!(next, State::Watching { version, .. } if version == at), "{kind}");
        }
    }

    #[test]
    fn what_the_server_does_not_remember_is_listed_anew() {
        for (code, is_listed) in [(410, true), (500, false)] {
            let status = json!({"status": "Failure", "code": code, "message": "m"});
            let (told, next) = hear("ERROR", &status);
            assert!(matches!(told, Some(Err(Error::WatchError(_)))), "{code}");
            assert_eq!(matches!(next, State::Nothing), is_listed, "{code}");
            // The same as the answer to who begins a watch.
            let error = kube::Error::Api(serde_json::from_value(status).unwrap());
            let next = after(&error, "7".to_owned());
            assert_eq!(matches!(next, State::Nothing), is_listed, "{code}");
            assert_eq!(matches!(next, State::At(version) if version == "7"), !is_listed, "{code}");
        }
    }

    #[test]
    fn a_watch_that_ends_at_once_is_an_error() {
        for (lasted, is_error) in [(Duration::ZERO, true), (TOO_SOON, false)] {
            let (told, next) = ended(lasted, "7".to_owned());
            assert_eq!(matches!(told, Some(Err(Error::WatchFailed(_)))), is_error, "{lasted:?}");
            assert_eq!(told.is_some(), is_error, "{lasted:?}");
            assert!(matches!(next, State::At(version) if version == "7"), "{lasted:?}");
        }
    }
}
