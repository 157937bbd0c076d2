//! WAL tables that QuestDB has suspended. It goes on to take rows for them and acknowledges those; none of them can be seen, and its disk
//! fills. Whoever only asks whether it answers notices nothing of that, and what is to become of such rows only people know: so it is told,
//! and nothing is done.
//!
//! *Invariant:* while QuestDB was not asked, or does not answer, what was told of its tables stays so. That ends with its pod: QuestDB does
//! not keep what it suspends, so the next one has suspended none until it fails at one itself.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use resources::names::condition;
use resources::{QuestDB, QuestDBStatus};

use crate::Goal;
use crate::report::{Outcome, TABLES_SUSPENDED};

/// How what is told of them begins, and what stands around since when: the last report is read by that.
const BEGIN: &str = "tables ";
const SINCE: &str = " are suspended, which is known since ";
const EFFECT: &str = ": QuestDB goes on";
/// What stands before it where something else is the reason for which a database needs somebody, and is told first. With a colon, which no
/// table has in its name.
const BESIDE: &str = "; in QuestDB: ";

/// Those of one QuestDB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspendedTables {
    /// The first of them by name; none where there are none.
    pub names: Vec<String>,
    /// How many there are beside those.
    pub more: u64,
}

impl SuspendedTables {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// What is told of them, and what to do. How it is with each of their rows changes all the time, and is for QuestDB to say.
    fn words(&self, since: Timestamp) -> String {
        let more = if self.more == 0 { String::new() } else { format!(" and {} more", self.more) };
        format!(
            "{BEGIN}{}{more}{SINCE}{since:.0}{EFFECT} to take rows for them, none of those can be seen, and the disk fills. SELECT * FROM \
             wal_tables() says why (errorTag, errorMessage); once that is put right, ALTER TABLE <table> RESUME WAL has QuestDB go on with \
             each",
            self.names.join(", ")
        )
    }
}

/// Whether the last report tells of such tables.
pub fn tells_of_tables(resource: &QuestDB) -> bool {
    resource.status.as_ref().is_some_and(|status| said(status).is_some())
}

/// What is to be told of the tables of a database; `status` is the one of before.
pub(crate) fn told(status: &QuestDBStatus, outcome: &Outcome<'_>, now: Timestamp) -> Option<String> {
    if outcome.validated.goal != Goal::Serve {
        return None;
    }
    let (said, observed) = (said(status), outcome.observed);
    let Some(tables) = &observed.suspended_tables else {
        let of_it = said.filter(|said| is_of(said, observed.children.pod.as_deref()));
        return of_it.map(|said| said.words);
    };
    // As it was told: whoever looks again says the same.
    let since = said.map_or(now, |said| said.since);
    (!tables.is_empty()).then(|| tables.words(since))
}

/// The same as it stands behind what else is told.
pub(crate) fn told_beside(status: &QuestDBStatus, outcome: &Outcome<'_>, now: Timestamp) -> Option<String> {
    told(status, outcome, now).map(|words| format!("{BESIDE}{words}"))
}

/// What the last report says of tables.
struct Said {
    words: String,
    since: Timestamp,
}

fn said(status: &QuestDBStatus) -> Option<Said> {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|found| found.type_ == condition::DEGRADED && found.status == "True")?;
    let of_tables = found.reason == TABLES_SUSPENDED;
    let words = if of_tables { found.message.as_str() } else { found.message.rsplit_once(BESIDE)?.1 };
    let (_, rest) = words.strip_prefix(BEGIN)?.rsplit_once(SINCE)?;
    let since = rest.split_once(EFFECT)?.0.parse().ok()?;
    Some(Said { words: words.to_owned(), since })
}

/// Whether it was said since this pod was made.
fn is_of(said: &Said, pod: Option<&Pod>) -> bool {
    let made = pod.and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    made.is_some_and(|made| made.0 <= said.since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tables_are_named_and_the_others_counted() {
        let since: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let words = |names: &[&str], more| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            SuspendedTables { names, more }.words(since)
        };
        for (names, more, begins) in [
            (&["trades"][..], 0, "tables trades are suspended, "),
            (&["quotes", "trades"][..], 0, "tables quotes, trades are suspended, "),
            (&["a", "b", "c"][..], 39, "tables a, b, c and 39 more are suspended, "),
        ] {
            let told = words(names, more);
            assert!(told.starts_with(begins) && told.contains("since 2026-01-02T03:04:05Z:"), "{told}");
            for cure in ["SELECT * FROM wal_tables()", "ALTER TABLE <table> RESUME WAL"] {
                assert!(told.contains(cure), "{told}");
            }
        }
    }
}
