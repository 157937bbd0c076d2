//! What a provisioner's own log says of the records that it had in its hands: which, and that of one database never two at
//! once.
//!
//! A line that speaks of a record stands between the beginning and the end of its handling, and the last of them says how
//! it ended. So the order of the lines is enough: no clock is compared. The beginning is only seen in a log that also tells
//! of requests ([`LOG`]). What was carried out and could not be told is held, and then told without another request.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The directives of a log that tells of each request to an API server, and of each record that is held, however often.
const LOG: &str = "info,provisioner::work=debug,kube_client::client::builder=debug,hyper=warn,hyper_util=warn,\
    h2=warn,tower=warn,rustls=warn,sqlx::query=warn,sqlx::postgres::notice=warn,librdkafka=warn,opentelemetry=warn";

/// A record was not finished, and is handled again.
const HELD: &str = "record held";

/// The words at the end of a handling.
const ENDS: [&str; 5] =
    ["instruction applied", "instruction superseded", "instruction parked", "instruction refused", HELD];

/// Those of them that no handling can come to without a request, be it of an earlier one that was held.
const AFTER_A_REQUEST: [&str; 2] = ["instruction applied", "instruction superseded"];

/// What a provisioner says that makes another consumer of itself.
const BROKE: &str = "the consumer broke";

/// What became of a record in somebody's hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handled {
    /// The database it is about.
    pub database: String,
    /// Where it stands.
    pub place: (i64, i64),
    /// The last that was said of it: an end, unless whoever handled it died.
    pub said: String,
}

/// Everything that one program handled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handlings {
    /// In order of their ends, those without one behind them.
    pub all: Vec<Handled>,
    /// Handlings of one database that overlapped.
    pub wrong: Vec<String>,
}

impl Handlings {
    /// The arguments by which a provisioner tells what is looked for here.
    pub const ARGUMENTS: [&str; 2] = ["--log", LOG];

    /// Handlings that nobody saw to their end.
    pub fn unended(&self) -> Vec<Handled> {
        let ended = |handled: &&Handled| ENDS.iter().any(|end| handled.said.starts_with(end));
        self.all.iter().filter(|handled| !ended(handled)).cloned().collect()
    }

    /// The handlings of a database.
    pub fn of(&self, database: &str) -> Vec<&Handled> {
        self.all.iter().filter(|handled| handled.database == database).collect()
    }
}

/// Reads a log.
pub fn handlings(log: &str) -> Handlings {
    let mut found = Handlings::default();
    let mut running: BTreeMap<String, Handled> = BTreeMap::new();
    // What was held after a request.
    let mut held: BTreeSet<(String, (i64, i64))> = BTreeSet::new();
    for line in log.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let said = line["message"].as_str().unwrap_or_default();
        if said.contains(BROKE) {
            // Whoever worked for it was told to stop, and says nothing any more.
            found.all.extend(std::mem::take(&mut running).into_values());
            held.clear();
        }
        let Some(now) = handled(&line, said) else { continue };
        let (database, place) = (now.database.clone(), now.place);
        let before = running.insert(database.clone(), now.clone());
        if let Some(before) = before.as_ref().filter(|before| before.place != place) {
            found.wrong.push(format!("{database}: {place:?} began before {:?} had ended", before.place));
        }
        let end = ENDS.iter().find(|end| said.starts_with(**end));
        if let Some(end) = end {
            let was_held = held.remove(&(database.clone(), place));
            let is_asked = before.is_some() || was_held;
            if !is_asked && AFTER_A_REQUEST.contains(end) {
                found.wrong.push(format!("{database}: {place:?} ended twice, or at once with itself"));
            }
            if is_asked && *end == HELD {
                held.insert((database.clone(), place));
            }
            running.remove(&database);
            found.all.push(now);
        }
    }
    found.all.extend(running.into_values());
    found
}

/// The partitions that a provisioner has at the end of its log.
pub fn partitions(log: &str) -> BTreeSet<i32> {
    let mut ours = BTreeSet::new();
    for line in log.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let said = line["message"].as_str().unwrap_or_default();
        let named = line["partitions"].as_str().and_then(|text| serde_json::from_str::<Vec<i32>>(text).ok());
        match (said, named) {
            ("partitions assigned", Some(named)) => ours.extend(named),
            ("partitions revoked", Some(named)) => ours.retain(|one| !named.contains(one)),
            (said, _) if said.contains(BROKE) => ours.clear(),
            _ => {}
        }
    }
    ours
}

/// What a line says, if it is a provisioner's and speaks of a record that is handled.
fn handled(line: &Value, said: &str) -> Option<Handled> {
    if line["service"] != "slipway-provisioner" {
        return None;
    }
    let place = (line["kafka.partition"].as_i64()?, line["kafka.offset"].as_i64()?);
    Some(Handled { database: line["db.id"].as_str()?.to_owned(), place, said: said.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(&str, i64, &str)]) -> String {
        let line = |(database, offset, said): &(&str, i64, &str)| {
            let place = format!("\"kafka.partition\":1,\"kafka.offset\":{offset}");
            format!(
                "{{\"service\":\"slipway-provisioner\",\"message\":\"{said}\",\"db.id\":\"{database}\",{place}}}\n"
            )
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn one_after_the_other_is_right() {
        let lines = [
            ("a", 1, "requesting"),
            ("b", 2, "requesting"),
            ("a", 1, "requesting"),
            ("a", 1, "instruction applied"),
            ("a", 3, "instruction parked: unreachable"),
            ("a", 4, "requesting"),
            ("b", 2, "instruction superseded"),
        ];
        let found = handlings(&(log(&lines) + "no JSON\n{\"message\":\"started\"}\n"));
        assert_eq!(found.wrong, [""; 0]);
        let ends: Vec<(i64, &str)> =
            found.all.iter().map(|handled| (handled.place.1, handled.said.as_str())).collect();
        assert_eq!(ends[..2], [(1, "instruction applied"), (3, "instruction parked: unreachable")]);
        assert_eq!(ends[2..], [(2, "instruction superseded"), (4, "requesting")]);
        assert_eq!(found.of("b").len(), 1);
        assert_eq!(found.unended(), found.all[3..]);
    }

    #[test]
    fn partitions_come_and_go() {
        let line = |said: &str, partitions: &str| {
            format!("{{\"message\":\"{said}\",\"partitions\":\"{partitions}\"}}\n")
        };
        let (assigned, revoked) = ("partitions assigned", "partitions revoked");
        let log = line(assigned, "[0, 1, 2]") + "no JSON\n" + &line(revoked, "[1]") + &line(assigned, "[]");
        assert_eq!(partitions(&log), BTreeSet::from([0, 2]));
        assert_eq!(partitions(&(log.clone() + &line(revoked, "[0, 2]"))), BTreeSet::new());
        let anew = log + &line("the consumer broke and is made anew", "") + &line(assigned, "[3]");
        assert_eq!(partitions(&anew), BTreeSet::from([3]));
    }

    #[test]
    fn two_at_once_are_seen() {
        let other = [("a", 1, "requesting"), ("a", 2, "requesting"), ("a", 1, "instruction applied")];
        assert!(!handlings(&log(&other)).wrong.is_empty());
        let same = [
            ("a", 1, "requesting"),
            ("a", 1, "requesting"),
            ("a", 1, "instruction applied"),
            ("a", 1, "instruction applied"),
        ];
        assert_eq!(handlings(&log(&same)).wrong.len(), 1);
    }

    #[test]
    fn what_was_held_after_a_request_is_told_once_without_another() {
        let held = [("a", 1, "requesting"), ("a", 1, "record held"), ("a", 1, "record held")];
        let told = [("a", 1, "instruction applied")];
        let once = [&held[..], &told].concat();
        assert_eq!(handlings(&log(&once)).wrong, [""; 0]);
        assert_eq!(handlings(&log(&[&once[..], &told].concat())).wrong.len(), 1, "twice");
        assert_eq!(handlings(&log(&[&held[1..], &told].concat())).wrong.len(), 1, "nobody asked");
        let newer = [("a", 2, "requesting"), ("a", 2, "instruction applied")];
        assert_eq!(handlings(&log(&[&held[..], &newer].concat())).wrong, [""; 0]);
        // Whoever follows in the same process knows nothing of it.
        let anew = log(&held) + "{\"message\":\"the consumer broke and is made anew\"}\n" + &log(&told);
        assert_eq!(handlings(&anew).wrong.len(), 1);
    }

    #[test]
    fn a_consumer_that_broke_took_its_work_along() {
        let text = log(&[("a", 1, "requesting")])
            + "{\"message\":\"the consumer broke and is made anew\"}\n"
            + &log(&[("a", 2, "requesting"), ("a", 2, "instruction applied")]);
        assert_eq!(handlings(&text).wrong, [""; 0]);
    }
}
