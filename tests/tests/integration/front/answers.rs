//! What the server answered to the requests that were passed on, and which writes it refused although who wrote could know better.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::Value;

use super::Seen;

/// A request that is passed on.
pub(super) struct Asked {
    /// What it is about, without the query.
    about: String,
    /// The version of an object that it writes over, where it names one.
    over: Option<String>,
    came: Instant,
}

struct Answer {
    to: Asked,
    status: StatusCode,
    at: Instant,
}

/// All answers so far.
#[derive(Default)]
pub(super) struct Answers(Mutex<Vec<Answer>>);

impl Asked {
    pub(super) fn of(seen: &Seen) -> Self {
        // What is only asked for, or begins a watch, says nothing.
        let said: Value = serde_json::from_str(&seen.body).unwrap_or_default();
        let over = said["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        Self { about: seen.about().to_owned(), over, came: seen.at }
    }

    /// The object, of which it may be only the status.
    fn object(&self) -> &str {
        self.about.trim_end_matches("/status")
    }

    /// Whether it is about an object of a kind, by its name in paths.
    fn is_of(&self, kind: &str) -> bool {
        self.object().rsplit('/').nth(1) == Some(kind)
    }

    /// Whether both write over the same.
    fn competes(&self, other: &Self) -> bool {
        self.over.is_some() && self.over == other.over && self.object() == other.object()
    }
}

impl Answers {
    /// The server has answered; to be called before whoever asked hears of it.
    pub(super) fn note(&self, to: Asked, status: StatusCode) {
        self.0.lock().unwrap().push(Answer { to, status, at: Instant::now() });
    }

    /// How many there were to what was asked about this.
    pub(super) fn about(&self, about: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|answer| answer.to.about == about).count()
    }

    /// Writes of objects of a kind that were refused, and came less than so long after another one over the same version was answered.
    pub(super) fn repeated(&self, kind: &str, within: Duration) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let refused = all.iter().filter(|answer| answer.status == StatusCode::CONFLICT);
        let of_kind = refused.filter(|refused| refused.to.is_of(kind));
        let repeated = of_kind.filter(|refused| {
            let mut done =
                all.iter().filter(|done| done.status.is_success() && done.to.competes(&refused.to));
            done.any(|done| refused.to.came.saturating_duration_since(done.at) < within)
        });
        repeated.map(|refused| format!("{} over {:?}", refused.to.about, refused.to.over)).collect()
    }
}

#[test]
fn only_what_is_refused_soon_after_a_write_over_the_same_is_repeated() {
    let (answers, begun) = (Answers::default(), Instant::now());
    let [soon, long] = [Duration::from_mins(1), Duration::from_hours(1)];
    let note = |name: &str, over: &str, after: Duration, status: StatusCode| {
        let about = format!("/apis/crd.questdb.io/v1/namespaces/a/questdbs/{name}");
        let to = Asked { about, over: Some(over.to_owned()), came: begun + after };
        answers.0.lock().unwrap().push(Answer { to, status, at: begun + after });
    };
    note("b", "1", Duration::ZERO, StatusCode::OK);
    note("b/status", "2", Duration::ZERO, StatusCode::SERVICE_UNAVAILABLE);
    for (name, over, after) in
        [("b", "1", long), ("b", "2", soon), ("c", "1", soon), ("b/status", "1", soon), ("b", "3", soon)]
    {
        note(name, over, after, StatusCode::CONFLICT);
    }
    let repeated = answers.repeated("questdbs", soon * 2);
    assert_eq!(repeated, ["/apis/crd.questdb.io/v1/namespaces/a/questdbs/b/status over Some(\"1\")"]);
    assert_eq!(answers.repeated("configmaps", soon * 2), Vec::<String>::new());
}
