//! What a status may say against the document in which people search for a word of it: each phase, condition, reason and step has a
//! row there, and each row is of something that there is. For tests alone.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use resources::QuestDBStatus;

use super::conditions::reason;
use crate::{Part, snapshot};

const DOCUMENT: &str = include_str!("../../../../deploy/operator/conditions.md");
/// Its parts.
const CONDITIONS: &str = "Conditions of a QuestDB";
const OF_SNAPSHOTS: &str = "Conditions of a QuestDBSnapshot";
/// How a row says that any step may be the reason.
const ANY_STEP: &str = "a step";

const NAMES: &str = include_str!("../../../resources/src/names.rs");
const STATUS: &str = include_str!("../../../resources/src/status.rs");
/// Where the words of a database's conditions are written.
const SPEAKERS: [&str; 10] = [
    include_str!("conditions.rs"),
    include_str!("last_copy.rs"),
    include_str!("mod.rs"),
    include_str!("moving.rs"),
    include_str!("name.rs"),
    include_str!("reach.rs"),
    include_str!("references.rs"),
    include_str!("resizing.rs"),
    include_str!("untouched.rs"),
    include_str!("upgrade.rs"),
];
/// The same of a snapshot's.
const SPEAKERS_OF_SNAPSHOTS: [&str; 3] = [
    include_str!("../snapshot/decide.rs"),
    include_str!("../snapshot/lost.rs"),
    include_str!("../snapshot/report.rs"),
];
/// Where the tests of a file begin.
const TESTS: &str = "\n#[cfg(test)]\nmod tests {";
/// Words that are no reasons: what a condition may be, and a kind of address.
const NO_REASONS: [&str; 4] = ["True", "False", "Unknown", "InternalIP"];

/// What the document has rows of, as a condition, how it is, and the reason.
static SAID: LazyLock<BTreeSet<String>> = LazyLock::new(|| documented(CONDITIONS));

/// Every condition of a report has a row, and every step.
pub(crate) fn check(told: &QuestDBStatus) {
    for found in &told.conditions {
        let said = format!("{} {} {}", found.type_, found.status, found.reason);
        assert!(SAID.contains(&said), "no row has {said}: {}", found.message);
    }
}

/// The rows of a part of the document, cell by cell.
fn rows(title: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let (_, rest) = DOCUMENT.split_once(&format!("\n## {title}\n")).unwrap();
    let part = rest.split_once("\n## ").map_or(rest, |(part, _)| part);
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

/// What stands in quotes, of whatever kind.
fn quoted(text: &'static str, quote: char) -> impl Iterator<Item = &'static str> {
    text.split(quote).skip(1).step_by(2)
}

/// The first word of each row.
fn heads(title: &str) -> BTreeSet<&'static str> {
    rows(title).filter_map(|row| quoted(row[0], '`').next()).collect()
}

fn documented(title: &str) -> BTreeSet<String> {
    let mut said = BTreeSet::new();
    for row in rows(title) {
        let kind = quoted(row[0], '`').next().unwrap();
        let reasons: Vec<String> = match row[2] {
            ANY_STEP => Part::ALL.iter().map(|part| reason(*part)).collect(),
            reasons => quoted(reasons, '`').map(str::to_owned).collect(),
        };
        assert!(!reasons.is_empty(), "{row:?}");
        said.extend(reasons.iter().map(|reason| format!("{kind} {} {reason}", row[1])));
    }
    said
}

/// The reasons that a part of the document names one by one.
fn reasons(title: &str) -> BTreeSet<&'static str> {
    rows(title).flat_map(|row| quoted(row[2], '`')).collect()
}

/// Words in quotes that may be reasons, as far as the program goes in a file.
fn spoken(sources: &[&'static str]) -> BTreeSet<&'static str> {
    let programs =
        sources.iter().map(|source| source.split_once(TESTS).map_or(*source, |(program, _)| program));
    let is_word = |text: &&str| {
        text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    programs.flat_map(|program| quoted(program, '"')).filter(is_word).collect()
}

#[test]
fn every_phase_and_every_condition_has_rows_and_no_other() {
    let block = |source: &'static str, begins: &str| {
        let (_, rest) = source.split_once(begins).unwrap();
        let (block, _) = rest.split_once("\n}").unwrap();
        quoted(block, '"').collect::<BTreeSet<_>>()
    };
    assert_eq!(heads("Phases"), block(STATUS, "\nimpl Phase {"));
    let conditions: BTreeSet<&str> = heads(CONDITIONS).into_iter().chain(heads(OF_SNAPSHOTS)).collect();
    assert_eq!(conditions, block(NAMES, "\npub mod condition {"));
}

#[test]
fn every_step_has_a_row_and_no_other() {
    let steps: BTreeSet<&str> = Part::ALL.iter().map(|part| part.as_str()).collect();
    assert_eq!(heads("Steps"), steps);
}

#[test]
fn every_reason_has_a_row_and_no_other() {
    let mut spoken_of = spoken(&SPEAKERS);
    spoken_of.retain(|word| !NO_REASONS.contains(word));
    // Those that others look for have names.
    spoken_of.extend(resources::names::reason::OF_MACHINES);
    spoken_of.extend([resources::names::reason::OLD_DEFINITION, resources::names::reason::NAMESPACE_UNSEEN]);
    assert_eq!(reasons(CONDITIONS), spoken_of);
    let mut of_snapshots = spoken(&SPEAKERS_OF_SNAPSHOTS);
    of_snapshots.extend([snapshot::WHOLE.0, snapshot::COPY_GONE, snapshot::COPY_OF_BEFORE]);
    assert_eq!(reasons(OF_SNAPSHOTS), of_snapshots);
}
