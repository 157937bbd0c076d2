//! Saying how it is: the status, written only when it says something else than before, and only over what was read.
//!
//! What is decided may rest on what the status says. So a definition that is older than this program, and drops what it
//! does not know, is an error and not a status that never comes.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use resources::names::condition;
use resources::{Phase, QuestDB, QuestDBStatus};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::error::Error;
use crate::write;

/// The place right after a write to the API server, about a [`Position`].
pub(crate) const WRITTEN: &str = "operator.write";

/// The place right after a step or a status, about a [`Kind`].
pub(crate) const KIND: &str = "operator.kind";

/// A resource by name at a generation of its spec: whom tests mean at a place.
#[derive(Clone, Copy)]
pub(crate) struct Position<'a>(pub(crate) &'a str, pub(crate) i64);

impl<'a> Position<'a> {
    /// That of a resource as it was seen.
    pub(crate) fn of(resource: &'a QuestDB) -> Self {
        let metadata = &resource.metadata;
        Self(metadata.name.as_deref().unwrap_or_default(), metadata.generation.unwrap_or_default())
    }
}

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

/// What was done about it, in a word and the kind of object that it was done to: for tests that mean the first of each kind.
pub(crate) struct Kind<'a>(pub(crate) Position<'a>, pub(crate) &'static str, pub(crate) &'static str);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(position, word, object) = self;
        write!(f, "{position}:{word}{object}")
    }
}

/// Writes a status. `resource_version` is that of our own last write in this pass, where there was one.
pub(crate) async fn write(
    context: &Context,
    resource: &QuestDB,
    status: QuestDBStatus,
    resource_version: Option<&str>,
) -> Result<(), Error> {
    let uid = resource.metadata.uid.as_deref().unwrap_or_default();
    let status = with_identity(status, || context.memories.unsaid(uid));
    if resource.status.as_ref() == Some(&status) {
        return Ok(());
    }
    // It takes kilobytes, which are not to be carried around by every pass that has nothing to say.
    Box::pin(say(context, resource, status, resource_version)).await
}

/// A status with the identity that was kept back with the first one: what is said in the place of that (that nothing is done meanwhile,
/// say, or that another wish is refused) may be all that is said for long, and by it is judged whether something was made.
fn with_identity(mut status: QuestDBStatus, unsaid: impl FnOnce() -> Option<String>) -> QuestDBStatus {
    status.database_id = status.database_id.or_else(unsaid);
    status
}

async fn say(
    context: &Context,
    resource: &QuestDB,
    status: QuestDBStatus,
    resource_version: Option<&str>,
) -> Result<(), Error> {
    let before = resource.status.as_ref().and_then(|status| status.phase);
    let after = status.phase;
    let mut report = resource.clone();
    report.status = Some(status);
    if let Some(version) = resource_version {
        report.metadata.resource_version = Some(version.to_owned());
    }
    let stored = write::status(context, &report).await?;
    context.memories.reported(resource.metadata.uid.as_deref().unwrap_or_default());
    for seen in [resource, &report] {
        context.memories.overtook(&seen.metadata, stored.metadata.resource_version.as_deref());
    }
    let position = Position::of(resource);
    runtime::failpoint::hit(WRITTEN, position).await;
    runtime::failpoint::hit(KIND, Kind(position, "Status", "")).await;
    if before != after {
        announce(context, resource, before, report.status.as_ref()).await;
    }
    let lost = lost(report.status.as_ref(), &stored.status.unwrap_or_default());
    if lost.is_empty() { Ok(()) } else { Err(Error::Pruned { fields: lost.join(", ") }) }
}

/// Which question an answer is for: a definition from before there was that loses it, and whoever asked is told so.
const ONLY_TOLD: &str = "planFor";

/// Fields of a status that was written which the stored one does not have, in objects within it too.
fn lost(written: Option<&QuestDBStatus>, stored: &Map<String, Value>) -> Vec<String> {
    let Some(Ok(Value::Object(written))) = written.map(serde_json::to_value) else { return Vec::new() };
    let mut lost = Vec::new();
    add_lost("", &written, stored, &mut lost);
    lost.retain(|field| field != ONLY_TOLD);
    lost
}

fn add_lost(path: &str, written: &Map<String, Value>, stored: &Map<String, Value>, lost: &mut Vec<String>) {
    for (field, value) in written.iter().filter(|(_, value)| !value.is_null()) {
        match (value, stored.get(field)) {
            (_, None) => lost.push(format!("{path}{field}")),
            (Value::Object(value), Some(Value::Object(kept))) => {
                add_lost(&format!("{path}{field}."), value, kept, lost);
            }
            _ => {}
        }
    }
}

/// Says that the phase turned. That a new database is being made is no news: whoever made the resource knows.
async fn announce(
    context: &Context,
    resource: &QuestDB,
    before: Option<Phase>,
    status: Option<&QuestDBStatus>,
) {
    let Some((after, status)) = status.and_then(|status| Some((status.phase?, status))) else { return };
    tracing::info!(
        db.phase.before = before.map(Phase::as_str),
        db.phase = after.as_str(),
        "the database is {}",
        after.as_str().to_lowercase()
    );
    let mut note = format!("the database is {}", after.as_str());
    if before == Some(Phase::Provisioning) && after == Phase::Ready {
        let made = resource.metadata.creation_timestamp.as_ref();
        let took = made.map(|made| context.clock.now().duration_since(to_serve_since(made.0, status)));
        if let Some(took) = took.and_then(|took| std::time::Duration::try_from(took).ok()) {
            context.measures.provisioned(took);
        }
        note += &made_of(status);
    }
    if after == Phase::Provisioning && matches!(before, None | Some(Phase::Pending)) {
        return;
    }
    if after == Phase::Degraded {
        context.events.wrong(resource, after.as_str(), note).await;
    } else {
        context.events.done(resource, after.as_str(), note).await;
    }
}

/// Since when a database is to serve that comes to it for the first time: since its resource was made or, where it was paused before,
/// since it was to be that no more.
fn to_serve_since(made: Timestamp, status: &QuestDBStatus) -> Timestamp {
    let since = |found: &Condition| found.last_transition_time.0;
    let paused = status.conditions.iter().find(|found| found.type_ == condition::PAUSED).map(since);
    // It is told from the first report on: later than something else of that it is only where it has turned.
    let has_turned = |paused: &Timestamp| status.conditions.iter().any(|found| since(found) < *paused);
    paused.filter(has_turned).unwrap_or(made)
}

/// Machine, disk and name of a database, for the one event of its creation.
fn made_of(status: &QuestDBStatus) -> String {
    let machine = status.node.as_ref().and_then(|node| node.instance_id.as_deref());
    let disk = status.volume.as_ref().map(|volume| volume.id.as_str());
    let name = status.dns.as_ref().map(|dns| dns.name.as_str());
    let parts: Vec<&str> = [machine, disk, name].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_said_first_says_whose_a_database_is_that_was_begun() {
        let check = |told: Option<&str>, unsaid: Option<&str>, expected: Option<&str>| {
            let status = QuestDBStatus { database_id: told.map(str::to_owned), ..QuestDBStatus::default() };
            let found = with_identity(status, || unsaid.map(str::to_owned));
            assert_eq!(found.database_id.as_deref(), expected, "{told:?} {unsaid:?}");
        };
        check(None, Some("d"), Some("d"));
        check(Some("d"), None, Some("d"));
        check(None, None, None);
    }

    #[test]
    fn the_time_in_which_a_new_database_was_paused_is_none_of_its_making() {
        let at = |minute: i8| -> Timestamp { format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap() };
        for (conditions, since) in [
            // Made to serve: all are of its first report but what has turned on the way.
            (vec![("ConfigAccepted", 1), ("Paused", 1), ("DNSReady", 4), ("Ready", 5)], 0),
            (vec![("ConfigAccepted", 1), ("Paused", 3), ("DNSReady", 4), ("Ready", 5)], 3),
            (vec![("ConfigAccepted", 1)], 0),
            (vec![], 0),
        ] {
            let told = |(kind, minute): &(&str, i8)| {
                serde_json::json!({
                    "type": kind, "status": "False", "reason": "Reason", "message": "",
                    "lastTransitionTime": at(*minute).to_string(),
                })
            };
            let all: Vec<Value> = conditions.iter().map(told).collect();
            let status = serde_json::from_value(serde_json::json!({ "conditions": all })).unwrap();
            assert_eq!(to_serve_since(at(0), &status), at(since), "{conditions:?}");
        }
    }

    #[test]
    fn what_an_older_definition_drops_is_named() {
        let status = |text: &str| -> QuestDBStatus { serde_json::from_str(text).unwrap() };
        let pending = r#"[{"field": "/spec/config", "means": "restart", "why": "a key", "since": "2026-01-01T00:00:00Z"}]"#;
        let check = |written: &str, stored: &str, expected: &[&str]| {
            let stored = serde_json::from_str(stored).unwrap();
            assert_eq!(lost(Some(&status(written)), &stored), expected, "{written} {stored:?}");
        };
        let whole = format!(r#"{{"phase": "Ready", "databaseId": "d", "pending": {pending}}}"#);
        let phase = r#"{"phase": "Ready"}"#;
        check(&whole, &whole, &[]);
        check(&whole, phase, &["databaseId", "pending"]);
        // More is no loss.
        check(phase, &whole, &[]);
        check(phase, "{}", &["phase"]);
        // What is left may be no status at all.
        let named = r#"{"dns": {"name": "a", "state": "Pending", "changeId": "C"}}"#;
        check(named, r#"{"dns": {"state": "Pending"}}"#, &["dns.changeId", "dns.name"]);
        // An answer is no loss to the database.
        check(r#"{"phase": "Ready", "planFor": {"patch": "a", "generation": 1}}"#, phase, &[]);
    }
}
