//! What was set aside as rows: which database, in which cluster, since when, why, and what to do.

use jiff::Timestamp;
use uuid::Uuid;
use wire::http::SettledLetter;
use wire::http::aside::{About, DeadLetter, Parked, Settled, Unclaimed};

use super::describe::line;
use super::text::{NONE, age, or_none, table};

/// Dead letters, one a line.
pub fn letters(letters: &[DeadLetter], now: Timestamp, wide: bool) -> String {
    let mut header = vec!["ID", "DATABASE", "CLUSTER", "SINCE", "CODE", "TO-DO"];
    if wide {
        header.extend(["DATABASE-ID", "TENANT", "LETTER", "NEWEST", "FROM", "BY", "SIZE", "MESSAGE"]);
    }
    let row = |letter: &DeadLetter| {
        let mut row = vec![
            letter.id.to_string(),
            name(letter.database.as_ref(), letter.database_id),
            text(letter.cluster.as_deref()),
            age(letter.received_at, now),
            or_none(&letter.code),
            to_do(letter, now),
        ];
        if wide {
            row.extend([
                letter.database_id.map_or_else(|| NONE.to_owned(), |id| id.to_string()),
                text(letter.database.as_ref().map(|about| about.tenant.as_str())),
                position(letter.epoch.zip(letter.seq)),
                newest(letter.database.as_ref()),
                format!("{}/{}/{}", letter.topic, letter.partition, letter.offset),
                or_none(&letter.consumer),
                letter.size.to_string(),
                or_none(&letter.message),
            ]);
        }
        row
    };
    table(&header, letters.iter().map(row).collect())
}

/// What is parked, one a line.
pub fn parked(parked: &[Parked], now: Timestamp, wide: bool) -> String {
    let mut header = vec!["DATABASE", "CLUSTER", "SINCE", "CODE", "TRIES", "TO-DO"];
    if wide {
        header.extend(["DATABASE-ID", "TENANT", "PARKED", "NEWEST", "NEXT", "MESSAGE"]);
    }
    let row = |row: &Parked| {
        let mut cells = vec![
            name(row.database.as_ref(), Some(row.database_id)),
            or_none(&row.cluster),
            age(row.parked_at, now),
            or_none(&row.code),
            row.attempts.to_string(),
            or_none(&row.advice),
        ];
        if wide {
            cells.extend([
                row.database_id.to_string(),
                text(row.database.as_ref().map(|about| about.tenant.as_str())),
                position(Some((row.epoch, row.seq))),
                newest(row.database.as_ref()),
                next(row.retry_at, now),
                or_none(&row.message),
            ]);
        }
        cells
    };
    table(&header, parked.iter().map(row).collect())
}

/// What is unclaimed, one a line.
pub fn unclaimed(unclaimed: &[Unclaimed], now: Timestamp, wide: bool) -> String {
    let mut header = vec!["DATABASE", "CLUSTER", "SINCE", "CODE", "TO-DO"];
    if wide {
        header.extend(["DATABASE-ID", "TENANT", "HOLDS", "NEWEST", "NAMESPACE", "RESOURCE", "SEEN", "LAST"]);
    }
    let row = |row: &Unclaimed| {
        let over = row.resolved_at.map(|at| format!("no longer so for {}", age(at, now)));
        let mut cells = vec![
            name(row.database.as_ref(), Some(row.database_id)),
            or_none(&row.cluster),
            age(row.first_seen, now),
            or_none(&row.code),
            over.unwrap_or_else(|| or_none(&row.advice)),
        ];
        if wide {
            cells.extend([
                row.database_id.to_string(),
                text(row.database.as_ref().map(|about| about.tenant.as_str())),
                position(Some((row.epoch, row.seq))),
                newest(row.database.as_ref()),
                or_none(&row.namespace),
                or_none(&row.resource_name),
                row.seen.to_string(),
                age(row.last_seen, now),
            ]);
        }
        cells
    };
    table(&header, unclaimed.iter().map(row).collect())
}

/// What was done about letters, or would be, one a line.
pub fn settled(settled: &[SettledLetter]) -> String {
    let outcome = if settled.iter().any(|one| one.dry_run) { "WOULD-BE" } else { "OUTCOME" };
    let row = |one: &SettledLetter| {
        let letter = &one.dead_letter;
        vec![
            letter.id.to_string(),
            name(letter.database.as_ref(), letter.database_id),
            text(letter.cluster.as_deref()),
            or_none(&letter.code),
            or_none(&one.outcome),
            or_none(&one.message),
        ]
    };
    table(&["ID", "DATABASE", "CLUSTER", "CODE", outcome, "MESSAGE"], settled.iter().map(row).collect())
}

/// Everything about a parked instruction.
pub fn describe_parked(row: &Parked, now: Timestamp) -> String {
    let mut out = String::new();
    line(&mut out, "Database", &name(row.database.as_ref(), Some(row.database_id)));
    line(&mut out, "Database id", &row.database_id.to_string());
    line(&mut out, "Tenant", row.database.as_ref().map_or("", |about| &about.tenant));
    line(&mut out, "Cluster", &row.cluster);
    line(&mut out, "Since", &format!("{} ({} ago)", row.parked_at, age(row.parked_at, now)));
    line(&mut out, "Reason", &format!("{}: {}", row.code, row.message));
    line(&mut out, "To do", &row.advice);
    line(&mut out, "Parked state", &position(Some((row.epoch, row.seq))));
    line(&mut out, "Newest state", &newest(row.database.as_ref()));
    line(&mut out, "Tried", &format!("{} times since; next {}", row.attempts, next(row.retry_at, now)));
    out
}

/// What other commands take for a dead letter.
pub fn letter_name(letter: &DeadLetter) -> String {
    format!("dead-letters/{}", letter.id)
}

/// What other commands take for what is parked.
pub fn parked_name(row: &Parked) -> String {
    format!("parked/{}", row.database_id)
}

/// What other commands take for a database that is unclaimed.
pub fn unclaimed_name(row: &Unclaimed) -> String {
    format!("databases/{}", row.database_id)
}

/// The name of a database, or its id where nobody knows more.
pub(super) fn name(about: Option<&About>, id: Option<Uuid>) -> String {
    match (about, id) {
        (Some(about), _) => or_none(&about.name),
        (None, Some(id)) => id.to_string(),
        (None, None) => NONE.to_owned(),
    }
}

/// What became of a letter, in a few words.
pub(super) fn became(settled: &Settled, now: Timestamp) -> String {
    let by = settled.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    format!("{}{by} {} ago", settled.how, age(settled.at, now))
}

/// A position, as everywhere.
pub(super) fn position(position: Option<(i64, i64)>) -> String {
    position.map_or_else(|| NONE.to_owned(), |(epoch, seq)| format!("{epoch}/{seq}"))
}

pub(super) fn newest(about: Option<&About>) -> String {
    position(about.map(|about| (about.epoch, about.seq)))
}

fn to_do(letter: &DeadLetter, now: Timestamp) -> String {
    match &letter.settled {
        Some(settled) => or_none(&became(settled, now)),
        None => or_none(&letter.advice),
    }
}

fn text(text: Option<&str>) -> String {
    or_none(text.unwrap_or_default())
}

fn next(at: Timestamp, now: Timestamp) -> String {
    if at <= now { "now".to_owned() } else { format!("in {}", age(now, at)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn all() -> [DeadLetter; 3] {
        let open = fixture::letter();
        let mut stranger = DeadLetter { id: 13, database: None, epoch: None, seq: None, ..open.clone() };
        stranger.code = "undecodable".to_owned();
        let mut done = DeadLetter { id: 14, advice: String::new(), ..open.clone() };
        done.settled = Some(fixture::settled());
        [open, stranger, done]
    }

    #[test]
    fn letters_as_tables() {
        let text = [letters(&all(), fixture::now(), false), letters(&all(), fixture::now(), true)];
        insta::assert_snapshot!(text.join("\n\n"));
    }

    #[test]
    fn what_is_done_about_letters() {
        let one = |dry_run| SettledLetter {
            dead_letter: fixture::letter(),
            outcome: "redriven".to_owned(),
            message: "the state at 1/2 is published again".to_owned(),
            dry_run,
        };
        insta::assert_snapshot!([settled(&[one(true)]), settled(&[one(false)])].join("\n\n"));
    }

    #[test]
    fn what_is_parked_as_tables_and_whole() {
        let row = fixture::parked();
        let due = Parked { retry_at: fixture::now(), database: None, ..row.clone() };
        let rows = [row.clone(), due];
        let text = [
            parked(&rows, fixture::now(), false),
            parked(&rows, fixture::now(), true),
            describe_parked(&row, fixture::now()),
        ];
        insta::assert_snapshot!(text.join("\n\n"));
    }

    #[test]
    fn what_is_unclaimed_as_tables() {
        let row = fixture::unclaimed();
        let over = Unclaimed { resolved_at: Some(fixture::at("2026-11-21T06:29:00Z")), ..row.clone() };
        let rows = [row, over];
        let text = [unclaimed(&rows, fixture::now(), false), unclaimed(&rows, fixture::now(), true)];
        insta::assert_snapshot!(text.join("\n\n"));
    }
}
