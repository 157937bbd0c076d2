//! What QuestDB's answers say. Pure. An answer that is not understood is an error, never "not held".

use jiff::Timestamp;
use serde_json::Value;

use super::Error;

/// The answer to a statement that returns no rows.
pub(super) fn done(status: u16, body: &[u8]) -> Result<(), Error> {
    let answer = read(status, body)?;
    match answer.get("ddl").and_then(Value::as_str) {
        Some("OK") => Ok(()),
        _ => Err(Error::Unreadable { status }),
    }
}

/// The answer to the question whether a checkpoint is in progress, and since when.
pub(super) fn checkpoint(status: u16, body: &[u8]) -> Result<Option<Timestamp>, Error> {
    let answer = read(status, body)?;
    let held = answer.pointer("/dataset/0/0").and_then(Value::as_bool);
    let since = answer.pointer("/dataset/0/1").and_then(Value::as_str).map(str::parse::<Timestamp>);
    match (held, since) {
        (Some(false), _) => Ok(None),
        (Some(true), Some(Ok(since))) => Ok(Some(since)),
        _ => Err(Error::Unreadable { status }),
    }
}

fn read(status: u16, body: &[u8]) -> Result<Value, Error> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| Error::Unreadable { status })?;
    match answer.get("error").and_then(Value::as_str) {
        Some(message) => Err(Error::Refused { message: message.to_owned() }),
        None if status == 200 => Ok(answer),
        None => Err(Error::Unreadable { status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As QuestDB 9.3.4 says it.
    const HELD: &str = r#"{"columns":[{"name":"in_progress","type":"BOOLEAN"},{"name":"started_at","type":"TIMESTAMP"}],
        "timestamp":-1,"dataset":[[true,"2026-11-22T02:18:04.443279Z"]],"count":1}"#;
    const FREE: &str = r#"{"columns":[],"timestamp":-1,"dataset":[[false,null]],"count":1}"#;
    const TWICE: &str =
        r#"{"query":"CHECKPOINT CREATE","error":"Waiting for CHECKPOINT RELEASE to be called","position":0}"#;

    #[test]
    fn a_checkpoint_is_told_by_when_it_began() {
        let since = checkpoint(200, HELD.as_bytes()).unwrap().unwrap();
        assert_eq!(since.to_string(), "2026-11-22T02:18:04.443279Z");
        assert_eq!(checkpoint(200, FREE.as_bytes()).unwrap(), None);
    }

    #[test]
    fn what_is_not_understood_is_never_freedom() {
        for body in
            ["", "{}", r#"{"dataset":[]}"#, r#"{"dataset":[[true,null]]}"#, r#"{"dataset":[[true,"x"]]}"#]
        {
            assert!(matches!(checkpoint(200, body.as_bytes()), Err(Error::Unreadable { .. })), "{body}");
        }
        assert!(matches!(checkpoint(500, FREE.as_bytes()), Err(Error::Unreadable { status: 500 })));
        assert!(matches!(done(200, b"{}"), Err(Error::Unreadable { .. })));
    }

    #[test]
    fn a_refusal_keeps_its_words() {
        let refused = done(400, TWICE.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "QuestDB refused: Waiting for CHECKPOINT RELEASE to be called");
        done(200, br#"{"ddl":"OK"}"#).unwrap();
    }
}
