//! Databases as rows.

use jiff::Timestamp;
use wire::http::{Accepted, Database, Resent};

use super::text::{NONE, age, or_none, table};

/// Columns that are always shown.
const HEADER: [&str; 7] = ["NAME", "STATUS", "VERSION", "INSTANCE", "SIZE", "REGION", "AGE"];
/// A column that is shown where some are deleted: since when.
const DELETED: &str = "DELETED";
/// Another one there, as it may still be paid for.
const VOLUME: &str = "VOLUME";
/// Columns that are shown when more is asked for.
const MORE: [&str; 8] = ["ID", "TENANT", "CLUSTER", "NODE", "VOLUME", "HOSTNAME", "DESIRED", "CARRIED-OUT"];

/// Databases, one a line.
pub fn list(databases: &[Database], now: Timestamp, wide: bool) -> String {
    let gone = databases.iter().any(|database| database.deleted_at.is_some());
    let mut header = HEADER.to_vec();
    header.extend(gone.then_some(DELETED));
    header.extend(if wide { &MORE[..] } else { &[] });
    header.extend((gone && !wide).then_some(VOLUME));
    table(&header, databases.iter().map(|database| row(database, now, (wide, gone))).collect())
}

fn row(database: &Database, now: Timestamp, (wide, gone): (bool, bool)) -> Vec<String> {
    let observed = database.observed.as_ref();
    // What is told of a volume outlives it.
    let held = observed.filter(|seen| !is_destroyed(database, (seen.epoch, seen.seq)));
    let volume = || held.and_then(|seen| seen.volume_id.clone()).unwrap_or_else(|| NONE.to_owned());
    let mut row = vec![
        database.name.clone(),
        status(database),
        database.version.clone(),
        database.instance_type.clone(),
        format!("{}Gi", database.storage.size_gib),
        database.region.clone(),
        age(database.created_at, now),
    ];
    if gone {
        row.push(database.deleted_at.map_or_else(|| NONE.to_owned(), |at| age(at, now)));
    }
    if wide {
        row.extend([
            database.id.to_string(),
            database.tenant.clone(),
            database.cluster.clone(),
            observed
                .and_then(|seen| seen.node.as_ref())
                .map_or_else(|| NONE.to_owned(), |node| or_none(&node.name)),
            volume(),
            database.hostname.clone(),
            format!("{}/{}", database.epoch, database.seq),
            observed.map_or_else(|| NONE.to_owned(), |seen| format!("{}/{}", seen.epoch, seen.seq)),
        ]);
    } else if gone {
        row.push(volume());
    }
    row
}

/// Whether a purge is what was asked for last, and is carried out.
fn is_destroyed(database: &Database, carried_out: (i64, i64)) -> bool {
    database.run_state == "purged" && carried_out == (database.epoch, database.seq)
}

/// One word on a database: what is seen of it; where nothing is seen yet, what should be.
pub fn status(database: &Database) -> String {
    match &database.observed {
        Some(observed) if !observed.phase.is_empty() => observed.phase.clone(),
        _ => match database.run_state.as_str() {
            "deleted" | "purged" => "Deleting".to_owned(),
            _ => "Pending".to_owned(),
        },
    }
}

/// A database with the operation that was asked for.
pub fn accepted(accepted: &Accepted, wide: bool) -> String {
    let (database, operation) = (&accepted.database, &accepted.operation);
    let mut header = vec!["NAME", "ID", "STATUS", "OPERATION", "KIND", "STATE"];
    let mut row = vec![
        database.name.clone(),
        database.id.to_string(),
        status(database),
        operation.id.to_string(),
        operation.kind.clone(),
        operation.state.clone(),
    ];
    if wide {
        header.extend(["REGION", "CLUSTER", "HOSTNAME"]);
        row.extend([database.region.clone(), database.cluster.clone(), database.hostname.clone()]);
    }
    table(&header, vec![row])
}

/// A database whose state is published again, or would be.
pub fn resent(resent: &Resent, now: Timestamp) -> String {
    let database = &resent.database;
    let published = database.published_at.map(|then| format!("{} ago", age(then, now)));
    let row = vec![
        database.name.clone(),
        database.id.to_string(),
        database.cluster.clone(),
        format!("{}/{}", database.epoch, database.seq),
        published.unwrap_or_else(|| "not yet".to_owned()),
        or_none(&resent.message),
    ];
    let message = if resent.dry_run { "WOULD-BE" } else { "MESSAGE" };
    table(&["NAME", "ID", "CLUSTER", "STATE", "PUBLISHED", message], vec![row])
}

/// What other commands take for a database.
pub fn name(database: &Database) -> String {
    format!("databases/{}", database.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn pending() -> Database {
        let mut database = fixture::database();
        database.observed = None;
        database.name = "quotes".to_owned();
        database
    }

    #[test]
    fn as_a_table() {
        insta::assert_snapshot!(list(&[fixture::database(), pending()], fixture::now(), false));
    }

    #[test]
    fn as_a_wide_table() {
        insta::assert_snapshot!(list(&[fixture::database(), pending()], fixture::now(), true));
    }

    #[test]
    fn with_deleted_ones() {
        let mut kept = fixture::database();
        (kept.run_state, kept.deleted_at) = ("deleted".to_owned(), Some(fixture::at("2026-11-21T06:20:00Z")));
        kept.observed.as_mut().unwrap().seq = kept.seq;
        let mut going = Database { run_state: "purged".to_owned(), seq: kept.seq + 1, ..kept.clone() };
        let mut gone = going.clone();
        gone.observed.as_mut().unwrap().seq = gone.seq;
        "going".clone_into(&mut going.name);
        "gone".clone_into(&mut gone.name);
        let all = [kept, going, gone, pending()];
        let texts = [false, true].map(|wide| list(&all, fixture::now(), wide));
        insta::assert_snapshot!(texts.join("\n\n"));
    }

    #[test]
    fn what_was_accepted() {
        let both = Accepted { database: pending(), operation: fixture::operation("pending") };
        insta::assert_snapshot!(format!("{}\n\n{}", accepted(&both, false), accepted(&both, true)));
    }

    #[test]
    fn what_is_said_again() {
        let message = "the state at 1/2 is published again".to_owned();
        let mut one = Resent { database: pending(), message, dry_run: true };
        let planned = resent(&one, fixture::now());
        (one.dry_run, one.database.published_at) = (false, None);
        insta::assert_snapshot!([planned, resent(&one, fixture::now())].join("\n\n"));
    }

    #[test]
    fn a_status_is_never_empty() {
        let mut database = pending();
        assert_eq!(status(&database), "Pending");
        database.run_state = "deleted".to_owned();
        assert_eq!(status(&database), "Deleting");
        assert_eq!(status(&fixture::database()), "Ready");
    }
}
