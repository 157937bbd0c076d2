//! Everything about one database, for reading: what should be, what is, and how it came about, events last.

use std::fmt::Write;

use jiff::Timestamp;
use wire::http::database::{Condition, Observed};
use wire::http::{Database, Operation, OperationEvent};

use super::databases::status;
use super::operations;
use super::text::{NONE, age, clean, indent, or_none, table, took};

/// Width of the column of names.
const WIDTH: usize = 18;

/// Everything about one database.
pub fn describe(
    database: &Database,
    operation: Option<&Operation>,
    events: &[OperationEvent],
    now: Timestamp,
) -> String {
    let mut text = String::new();
    head(&mut text, database, now);
    desired(&mut text, database);
    match &database.observed {
        Some(seen) => observed(&mut text, seen, now),
        None => section(&mut text, "Observed", "  nothing yet: its cluster has not spoken\n"),
    }
    if let Some(operation) = operation {
        newest(&mut text, operation, now);
    }
    section(&mut text, "Events", &indent(&operations::events(events, now), 2));
    text
}

pub(super) fn line(text: &mut String, name: &str, value: &str) {
    let name = format!("{name}:");
    let _ = writeln!(text, "{name:WIDTH$}{}", or_none(value));
}

pub(super) fn inner(text: &mut String, name: &str, value: &str) {
    let width = WIDTH - 2;
    let name = format!("{name}:");
    let _ = writeln!(text, "  {name:width$}{}", or_none(value));
}

fn section(text: &mut String, name: &str, content: &str) {
    if content.is_empty() {
        let name = format!("{name}:");
        let _ = writeln!(text, "{name:WIDTH$}{NONE}");
    } else {
        let _ = write!(text, "{name}:\n{content}");
    }
}

fn head(text: &mut String, database: &Database, now: Timestamp) {
    line(text, "Name", &database.name);
    line(text, "Id", &database.id.to_string());
    line(text, "Tenant", &database.tenant);
    line(text, "Status", &status(database));
    line(text, "Region", &database.region);
    line(text, "Cluster", &database.cluster);
    line(text, "Created", &format!("{} ({} ago)", database.created_at, age(database.created_at, now)));
    line(text, "Changed", &format!("{} ({} ago)", database.updated_at, age(database.updated_at, now)));
    let asked = database.resent_at.filter(|asked| *asked > database.updated_at);
    let asked = asked.map(|then| format!(", asked for again {} ago", age(then, now))).unwrap_or_default();
    let published = match database.published_at {
        Some(then) => format!("{then} ({} ago{asked})", age(then, now)),
        None => format!("not yet: it waits for Kafka{asked}"),
    };
    line(text, "Published", &published);
    if let Some(kind) = &database.diverged {
        let since = database.diverged_since.map(|then| format!(", known for {}", age(then, now)));
        line(text, "Diverged", &format!("{}{}", clean(kind), since.unwrap_or_default()));
    }
    if let Some(then) = database.purged_at {
        line(text, "Purged", &format!("{then} ({} ago)", age(then, now)));
    }
}

fn desired(text: &mut String, database: &Database) {
    let of = &database.storage;
    let _ = writeln!(text, "Desired (epoch {}, seq {}):", database.epoch, database.seq);
    inner(text, "Run state", &database.run_state);
    inner(text, "Version", &database.version);
    inner(text, "Instance", &database.instance_type);
    let storage =
        format!("{} GiB {}, {} IOPS, {} MiB/s", of.size_gib, of.volume_type, of.iops, of.throughput);
    inner(text, "Storage", &storage);
    let fate = match of.deletion_policy.as_str() {
        "snapshot" => "keep a last copy, and destroy the volume".to_owned(),
        other => format!("{other} the volume"),
    };
    inner(text, "On delete", &fate);
    inner(text, "Protected", if database.deletion_protection { "from deletion" } else { "" });
    inner(text, "Hostname", &database.hostname);
    inner(text, "Exposure", &database.exposure);
    inner(text, "Allowed CIDRs", &database.allowed_cidrs.join(", "));
    let keys = database.config.len();
    inner(text, "Config", &if keys == 0 { String::new() } else { format!("{keys} set") });
    for (key, value) in &database.config {
        let _ = writeln!(text, "    {} = {}", clean(key), clean(value));
    }
}

fn observed(text: &mut String, seen: &Observed, now: Timestamp) {
    let as_of = seen.as_of.map(|then| format!("as of {} ago, ", age(then, now))).unwrap_or_default();
    let _ = writeln!(text, "Observed ({as_of}carried out epoch {}, seq {}):", seen.epoch, seen.seq);
    inner(text, "Phase", &seen.phase);
    let node = seen.node.as_ref().map(|node| {
        let ready = if node.ready { "ready" } else { "not ready" };
        format!("{} {} {} ({ready})", node.name, node.instance_id, node.address)
    });
    inner(text, "Node", &node.unwrap_or_default());
    inner(text, "Volume", seen.volume_id.as_deref().unwrap_or_default());
    inner(text, "DNS", seen.dns_state.as_deref().unwrap_or_default());
    inner(text, "Resource", &format!("{}/{}", seen.namespace, seen.resource_name));
    inner(text, "Secret", &seen.credentials_secret);
    let _ = writeln!(text, "Endpoints:");
    let endpoints = seen.endpoints.clone().unwrap_or_default();
    inner(text, "HTTP", &endpoints.http);
    inner(text, "PostgreSQL", &endpoints.postgres);
    inner(text, "ILP", &endpoints.ilp);
    inner(text, "Health", &endpoints.health);
    section(text, "Conditions", &indent(&conditions(&seen.conditions, now), 2));
    section(text, "Steps", &indent(&operations::steps(&seen.steps), 2));
}

fn conditions(conditions: &[Condition], now: Timestamp) -> String {
    let rows = conditions.iter().map(|condition| {
        let age = condition.changed_at.map_or_else(|| NONE.to_owned(), |then| age(then, now));
        let words = [&condition.kind, &condition.status, &condition.reason].map(|word| or_none(word));
        let [kind, status, reason] = words;
        vec![kind, status, age, reason, or_none(&condition.message)]
    });
    table(&["TYPE", "STATUS", "AGE", "REASON", "MESSAGE"], rows.collect())
}

fn newest(text: &mut String, operation: &Operation, now: Timestamp) {
    let _ = writeln!(text, "Newest operation:");
    inner(text, "Id", &operation.id.to_string());
    inner(text, "Kind", &operation.kind);
    inner(text, "State", &operation.state);
    if let Some(error) = &operation.error {
        inner(text, "Error", &format!("{} ({})", error.message, error.code));
    }
    if let Some(since) = operation.overdue_since {
        inner(text, "Overdue", &format!("for {}, and goes on", age(since, now)));
    }
    inner(
        text,
        "Asked for",
        &format!("{} ago by {}", age(operation.created_at, now), or_none(&operation.created_by)),
    );
    let length = operation.ended_at.and_then(|end| end.duration_since(operation.created_at).try_into().ok());
    inner(text, "Took", &length.map(took).unwrap_or_default());
    inner(text, "Trace", &operation.trace_id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_running_database() {
        let operation = fixture::operation("running");
        let text = describe(&fixture::database(), Some(&operation), &fixture::events(), fixture::now());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_database_that_nobody_has_seen() {
        let mut database = fixture::database();
        database.observed = None;
        database.config.clear();
        database.allowed_cidrs.clear();
        let operation = fixture::operation("failed");
        insta::assert_snapshot!(describe(&database, Some(&operation), &[], fixture::now()));
    }

    #[test]
    fn an_operation_that_is_late_says_since_when() {
        let since = fixture::now() - jiff::SignedDuration::from_mins(15);
        let operation = Operation { overdue_since: Some(since), ..fixture::operation("running") };
        let text = describe(&fixture::database(), Some(&operation), &[], fixture::now());
        assert!(text.contains("Overdue:        for 15m, and goes on"), "{text}");
        let listed = operations::list(&[operation], fixture::now(), true);
        assert!(listed.contains("OVERDUE") && listed.contains("15m"), "{listed}");
    }

    #[test]
    fn a_database_whose_cluster_shows_something_else_says_so() {
        let mut database = fixture::database();
        assert!(!describe(&database, None, &[], fixture::now()).contains("Diverged"));
        database.diverged = Some("lagging".to_owned());
        database.diverged_since = Some(fixture::now() - jiff::SignedDuration::from_mins(5));
        let text = describe(&database, None, &[], fixture::now());
        assert!(text.contains("Diverged:         lagging, known for 5m"), "{text}");
    }

    #[test]
    fn no_text_of_others_reaches_the_terminal_as_a_command() {
        let mut database = fixture::database();
        database.config.insert("evil".to_owned(), "\x1b]0;title\x07".to_owned());
        database.observed.as_mut().unwrap().conditions[0].message = "\x1b[2J".to_owned();
        let text = describe(&database, None, &[], fixture::now());
        assert!(!text.contains('\x1b') && !text.contains('\x07'));
    }
}
