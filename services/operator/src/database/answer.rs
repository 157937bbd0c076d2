//! What QuestDB's answers say. Pure. An answer that is not understood is an error, never "not held".

use std::collections::BTreeSet;

use jiff::Timestamp;
use plan::snapshot::Held;
use plan::{Setting, SuspendedTables};
use serde_json::Value;

use super::Error;

/// Most letters of a table's name that are told.
const LONGEST_NAME: usize = 127;

/// The answer to a statement that returns no rows.
pub(super) fn done(status: u16, body: &[u8]) -> Result<(), Error> {
    let answer = read(status, body)?;
    match answer.get("ddl").and_then(Value::as_str) {
        Some("OK") => Ok(()),
        _ => Err(Error::Unreadable { status }),
    }
}

/// The answer to the question whether a checkpoint is in progress, since when, and what time it is.
pub(super) fn checkpoint(status: u16, body: &[u8]) -> Result<Option<Held>, Error> {
    let answer = read(status, body)?;
    let held = answer.pointer("/dataset/0/0").and_then(Value::as_bool);
    let time = |column: &str| answer.pointer(column)?.as_str()?.parse::<Timestamp>().ok();
    match (held, time("/dataset/0/1").zip(time("/dataset/0/2"))) {
        (Some(false), _) => Ok(None),
        (Some(true), Some((since, now))) => Ok(Some(Held { since, age: now.duration_since(since) })),
        _ => Err(Error::Unreadable { status }),
    }
}

/// The answer to the order to read the settings again.
pub(super) fn told(status: u16, body: &[u8]) -> Result<(), Error> {
    let answer = read(status, body)?;
    let told = answer.pointer("/dataset/0/0").and_then(Value::as_bool);
    told.map(drop).ok_or(Error::Unreadable { status })
}

/// The keys that do not have the value that they are to have, by the answer to the question for their values and where these
/// come from.
pub(super) fn missing(status: u16, body: &[u8], settings: &[Setting]) -> Result<Vec<String>, Error> {
    let answer = read(status, body)?;
    let rows = answer.get("dataset").and_then(Value::as_array).ok_or(Error::Unreadable { status })?;
    let is_so = |setting: &Setting| {
        let row = rows.iter().find(|row| row[0].as_str() == Some(&setting.key));
        row.is_some_and(|row| match &setting.value {
            Some(value) => row[2].as_str() == Some("conf") && row[1].as_str() == Some(value),
            None => row[2].as_str() == Some("default"),
        })
    };
    Ok(settings.iter().filter(|setting| !is_so(setting)).map(|setting| setting.key.clone()).collect())
}

/// The first column of every row.
pub(super) fn keys(status: u16, body: &[u8]) -> Result<BTreeSet<String>, Error> {
    let answer = read(status, body)?;
    let rows = answer.get("dataset").and_then(Value::as_array).ok_or(Error::Unreadable { status })?;
    let key = |row: &Value| row[0].as_str().map(ToOwned::to_owned).ok_or(Error::Unreadable { status });
    rows.iter().map(key).collect()
}

/// Names of tables that are suspended, and in each row how many there are.
pub(super) fn suspended(status: u16, body: &[u8]) -> Result<SuspendedTables, Error> {
    let answer = read(status, body)?;
    let unreadable = || Error::Unreadable { status };
    let rows = answer.get("dataset").and_then(Value::as_array).ok_or_else(unreadable)?;
    let name = |row: &Value| row[0].as_str().map(shortened).ok_or_else(unreadable);
    let names: Vec<String> = rows.iter().map(name).collect::<Result<_, Error>>()?;
    let all = rows.first().map_or(Some(0), |row| row[1].as_u64()).ok_or_else(unreadable)?;
    let more = all.saturating_sub(u64::try_from(names.len()).unwrap_or(u64::MAX));
    Ok(SuspendedTables { names, more })
}

/// A name as far as somebody reads it: QuestDB may be told to take longer ones.
fn shortened(name: &str) -> String {
    let end = name.char_indices().nth(LONGEST_NAME).map(|(end, _)| end);
    end.map_or_else(|| name.to_owned(), |end| format!("{}…", &name[..end]))
}

/// Whether an answer is a refusal that says why.
pub(super) fn has_words(body: &[u8]) -> bool {
    matches!(read(200, body), Err(Error::Refused { .. }))
}

fn read(status: u16, body: &[u8]) -> Result<Value, Error> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| Error::Unreadable { status })?;
    match answer.get("error").and_then(Value::as_str) {
        Some(message) => Err(Error::Refused { message: settled(message) }),
        None if status == 200 => Ok(answer),
        None => Err(Error::Unreadable { status }),
    }
}

/// The words of a refusal without the numbers that are others each time: a status that means the same is the same.
fn settled(message: &str) -> String {
    let Some((words, fields)) = message.strip_suffix(']').and_then(|text| text.rsplit_once(" [")) else {
        return message.to_owned();
    };
    let stays = |field: &&str| !field.starts_with("fd=") && !field.starts_with("runtime=");
    let fields: Vec<&str> = fields.split(", ").filter(stays).collect();
    if fields.is_empty() { words.to_owned() } else { format!("{words} [{}]", fields.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As QuestDB 9.3.4 says it.
    const HELD: &str = r#"{"columns":[{"name":"in_progress","type":"BOOLEAN"},{"name":"started_at","type":"TIMESTAMP"},
        {"name":"now","type":"TIMESTAMP"}],"timestamp":-1,
        "dataset":[[true,"2026-11-22T02:18:04.443279Z","2026-11-22T02:19:04.443280Z"]],"count":1}"#;
    const FREE: &str =
        r#"{"columns":[],"timestamp":-1,"dataset":[[false,null,"2026-11-22T02:19:04.443280Z"]],"count":1}"#;
    const TWICE: &str =
        r#"{"query":"CHECKPOINT CREATE","error":"Waiting for CHECKPOINT RELEASE to be called","position":0}"#;

    #[test]
    fn a_checkpoint_is_told_by_when_it_began() {
        let held = checkpoint(200, HELD.as_bytes()).unwrap().unwrap();
        assert_eq!(held.since.to_string(), "2026-11-22T02:18:04.443279Z");
        assert_eq!(held.age, jiff::SignedDuration::from_micros(60_000_001));
        assert_eq!(checkpoint(200, FREE.as_bytes()).unwrap(), None);
    }

    #[test]
    fn what_is_not_understood_is_never_freedom() {
        for body in [
            "",
            "{}",
            r#"{"dataset":[]}"#,
            r#"{"dataset":[[true,null,"2026-11-22T02:19:04Z"]]}"#,
            r#"{"dataset":[[true,"x","2026-11-22T02:19:04Z"]]}"#,
            r#"{"dataset":[[true,"2026-11-22T02:18:04Z"]]}"#,
        ] {
            assert!(matches!(checkpoint(200, body.as_bytes()), Err(Error::Unreadable { .. })), "{body}");
        }
        assert!(matches!(checkpoint(500, FREE.as_bytes()), Err(Error::Unreadable { status: 500 })));
        assert!(matches!(done(200, b"{}"), Err(Error::Unreadable { .. })));
    }

    #[test]
    fn what_was_not_taken_over_is_named() {
        let answer = r#"{"columns":[],"dataset":[["http.send.buffer.size","1M","conf"],
            ["http.net.connection.limit","64","default"],["pg.net.connection.limit","70","env"]],"count":3}"#;
        let check = |settings: &[(&str, Option<&str>)], expected: &[&str]| {
            let settings: Vec<Setting> = settings
                .iter()
                .map(|(key, value)| Setting { key: (*key).to_owned(), value: value.map(ToOwned::to_owned) })
                .collect();
            assert_eq!(missing(200, answer.as_bytes(), &settings).unwrap(), expected, "{settings:?}");
        };
        check(&[("http.send.buffer.size", Some("1M")), ("http.net.connection.limit", None)], &[]);
        check(&[("http.send.buffer.size", Some("2M"))], &["http.send.buffer.size"]);
        check(&[("http.send.buffer.size", None)], &["http.send.buffer.size"]);
        check(&[("http.net.connection.limit", Some("64"))], &["http.net.connection.limit"]);
        check(&[("pg.net.connection.limit", Some("70"))], &["pg.net.connection.limit"]);
        check(&[("no.such.key", None)], &["no.such.key"]);
        told(200, br#"{"dataset":[[false]]}"#).unwrap();
        told(200, br#"{"ddl":"OK"}"#).unwrap_err();
        missing(200, b"{}", &[]).unwrap_err();
    }

    #[test]
    fn what_is_listed_is_read_in_whole_or_not_at_all() {
        let listed = keys(200, br#"{"columns":[],"dataset":[["pg.user"],["http.user"]],"count":2}"#).unwrap();
        assert_eq!(listed, BTreeSet::from(["http.user", "pg.user"].map(str::to_owned)));
        for body in ["{}", r#"{"dataset":[["pg.user"],[1]]}"#, r#"{"dataset":["pg.user"]}"#] {
            assert!(matches!(keys(200, body.as_bytes()), Err(Error::Unreadable { .. })), "{body}");
        }
    }

    /// As QuestDB 9.3.2 and 9.3.4 say it.
    #[test]
    fn of_tables_that_are_suspended_the_first_are_named_and_the_others_counted() {
        let columns =
            r#""columns":[{"name":"name","type":"STRING"},{"name":"total","type":"LONG"}],"timestamp":-1"#;
        let read = |rows: &str| suspended(200, format!("{{{columns},\"dataset\":{rows}}}").as_bytes());
        let told = |names: &[&str], more| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            SuspendedTables { names, more }
        };
        assert_eq!(read("[]").unwrap(), told(&[], 0));
        assert_eq!(read(r#"[["a",1]]"#).unwrap(), told(&["a"], 0));
        assert_eq!(read(r#"[["a",5],["b",5],["c",5]]"#).unwrap(), told(&["a", "b", "c"], 2));
        // One was resumed between the two counts.
        assert_eq!(read(r#"[["a",1],["b",1]]"#).unwrap(), told(&["a", "b"], 0));
        let long = "ä".repeat(LONGEST_NAME);
        assert_eq!(read(&format!(r#"[["{long}",1]]"#)).unwrap(), told(&[&long], 0));
        assert_eq!(read(&format!(r#"[["{long}b",1]]"#)).unwrap(), told(&[&format!("{long}…")], 0));
        for rows in ["{}", "[[1,1]]", r#"[["a"]]"#, r#"["a"]"#, r#"[["a","1"]]"#] {
            assert!(matches!(read(rows), Err(Error::Unreadable { .. })), "{rows}");
        }
        let denied = br#"{"query":"SELECT","error":"Access denied","position":0}"#;
        assert!(matches!(suspended(403, denied), Err(Error::Refused { .. })), "it is not known");
    }

    #[test]
    fn a_refusal_keeps_its_words() {
        let refused = done(400, TWICE.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "QuestDB refused: Waiting for CHECKPOINT RELEASE to be called");
        done(200, br#"{"ddl":"OK"}"#).unwrap();
    }

    #[test]
    fn a_refusal_that_means_the_same_has_the_same_words() {
        let gave_up = |fd: u64, took: u64| {
            let message = format!("timeout, query aborted [fd={fd}, runtime={took}ms, timeout=60000ms]");
            let body = serde_json::json!({ "query": "CHECKPOINT CREATE", "error": message, "position": 0 });
            done(400, body.to_string().as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(gave_up(7, 60_003), "QuestDB refused: timeout, query aborted [timeout=60000ms]");
        assert_eq!(gave_up(7, 60_003), gave_up(8, 60_001));
        for (message, expected) in [
            ("cancelled by user [fd=7]", "cancelled by user"),
            ("table busy [reason=writer]", "table busy [reason=writer]"),
            ("no such table", "no such table"),
            ("", ""),
        ] {
            assert_eq!(settled(message), expected);
        }
    }

    #[test]
    fn only_a_refusal_in_words_says_why() {
        let words = r#"{"query":"CHECKPOINT CREATE","error":"Write permission denied","position":0}"#;
        for (body, expected) in
            [(words, true), (TWICE, true), ("Forbidden\r\n", false), ("", false), (r#"{"ddl":"OK"}"#, false)]
        {
            assert_eq!(has_words(body.as_bytes()), expected, "{body}");
        }
        let refused = done(403, words.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "QuestDB refused: Write permission denied");
    }
}
