//! Failures to exit codes, in this one place. Pure: it ends nothing itself.

use crate::error::Error;

/// Done.
pub const OK: u8 = 0;
/// The operation failed, or something did that has no code of its own; or, of `databases diff`, something would change.
pub const FAILED: u8 = 1;
/// Wrong usage or input.
pub const USAGE: u8 = 2;
/// What was named is not there.
pub const NOT_FOUND: u8 = 3;
/// Not known, or not allowed.
pub const AUTH: u8 = 4;
/// The present state does not allow it, or was changed meanwhile.
pub const CONFLICT: u8 = 5;
/// A question that is answered by 0 or 1 could not be.
pub const UNDECIDED: u8 = 6;
/// Out of time.
pub const TIMEOUT: u8 = 124;
/// Interrupted.
pub const INTERRUPTED: u8 = 130;
/// Nobody read on: that of a program which a signal tells so.
pub const UNREAD: u8 = 141;

/// The exit code of a failure.
pub const fn code(error: &Error) -> u8 {
    match error {
        Error::Usage { .. }
        | Error::Ambiguous { .. }
        | Error::OpenToOthers { .. }
        | Error::Malformed { .. } => USAGE,
        Error::NotFound { .. } => NOT_FOUND,
        Error::Refused { problem, .. } => status(problem.status),
        Error::Forbidden { .. } => AUTH,
        Error::Conflict { .. } => CONFLICT,
        Error::Undecided(_) => UNDECIDED,
        Error::TimedOut { .. } => TIMEOUT,
        Error::Interrupted { .. } => INTERRUPTED,
        Error::Unread => UNREAD,
        Error::Ended { .. }
        | Error::Unreachable { .. }
        | Error::Answer { .. }
        | Error::Render(_)
        | Error::File { .. }
        | Error::Kubectl { .. }
        | Error::NotReady { .. }
        | Error::Start(_)
        | Error::WouldChange
        | Error::Declined => FAILED,
    }
}

/// The exit code of an HTTP status that is no success.
pub const fn status(status: u16) -> u8 {
    match status {
        400 | 405 | 406 | 411 | 413..=417 | 422 | 431 => USAGE,
        401 | 403 => AUTH,
        404 | 410 => NOT_FOUND,
        409 | 412 | 423 | 428 => CONFLICT,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::http::Problem;

    #[test]
    fn every_status_has_its_code() {
        let table = [
            (400, 2),
            (401, 4),
            (403, 4),
            (404, 3),
            (405, 2),
            (409, 5),
            (410, 3),
            (412, 5),
            (413, 2),
            (415, 2),
            (422, 2),
            (423, 5),
            (428, 5),
            (429, 1),
            (500, 1),
            (502, 1),
            (503, 1),
            (504, 1),
            (302, 1),
        ];
        for (status, expected) in table {
            let problem = Box::new(Problem::new(status, "code", "title"));
            assert_eq!(code(&Error::Refused { request: String::new(), problem }), expected, "{status}");
        }
    }

    #[test]
    fn every_failure_has_its_code() {
        let text = String::new;
        let io = || std::io::Error::other("no");
        let table = [
            (Error::Usage { message: text(), hint: text() }, 2),
            (Error::Ambiguous { name: text(), databases: Vec::new() }, 2),
            (Error::OpenToOthers { path: "f".into(), mode: 0o644 }, 2),
            (Error::Malformed { path: "f".into(), reason: text() }, 2),
            (Error::NotFound { what: text(), hint: text() }, 3),
            (Error::TimedOut { doing: text(), hint: text() }, 124),
            (Error::interrupted(), 130),
            (Error::Unread, 141),
            (Error::Ended { operation: Box::new(crate::render::fixture::operation("failed")) }, 1),
            (Error::Answer { request: text(), source: Box::new(io()) }, 1),
            (Error::Render(Box::new(io())), 1),
            (Error::File { action: "read", path: "f".into(), source: io() }, 1),
            (Error::Kubectl { reason: text() }, 1),
            (Error::NotReady { name: text(), status: text() }, 1),
            (Error::Start(io()), 1),
            (Error::WouldChange, 1),
            (Error::Forbidden { reason: text() }, 4),
            (Error::Conflict { message: text(), hint: text() }, 5),
            (Error::Undecided(Box::new(Error::Kubectl { reason: text() })), 6),
            (Error::Declined, 1),
        ];
        for (error, expected) in table {
            assert_eq!(code(&error), expected, "{error:?}");
        }
    }
}
