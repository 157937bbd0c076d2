//! What programs measure against what is written of it, for tests: each program's own compares what it registers with its table
//! in the documents, and those of this crate compare the alerts with the tables. Reads text and touches nothing else.

use std::collections::{BTreeMap, BTreeSet};

/// A metric, as far as a query depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    /// Names of its labels, but for `le`, which every histogram has.
    pub labels: BTreeSet<String>,
}

/// A metric, as a document has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'a> {
    /// What its cells say of type and labels.
    pub metric: Metric,
    /// The whole row.
    pub text: &'a str,
}

/// What a program shows in the text format `OpenMetrics`, by the names that queries use: that of a counter ends in `_total`. Labels
/// are those of the series that there are.
pub fn shown(text: &str) -> BTreeMap<String, Metric> {
    let families = text.split("# TYPE ").skip(1);
    families
        .filter_map(|family| {
            let mut lines = family.lines();
            let (name, kind) = lines.next()?.split_once(' ')?;
            let series = lines.filter(|line| !line.starts_with('#'));
            let labels = series.filter_map(|line| line.split_once('{')).flat_map(|(_, rest)| keys(rest));
            let labels = labels.filter(|label| *label != "le").map(str::to_owned).collect();
            Some((queried(name, kind), Metric { kind: kind.to_owned(), labels }))
        })
        .collect()
}

/// The metrics that the tables of a document have: rows whose first cell is a name, whose second is the type, and whose third
/// names the labels.
pub fn documented(document: &str) -> BTreeMap<&str, Row<'_>> {
    document
        .lines()
        .filter_map(|text| {
            let mut cells = text.strip_prefix("| `")?.split('|').map(str::trim);
            let name = cells.next()?.strip_suffix('`')?;
            let (kind, labels) = (cells.next()?.to_owned(), cells.next()?);
            let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            Some((name, Row { metric: Metric { kind, labels }, text }))
        })
        .collect()
}

/// What stands in a document under a heading of the second level; nothing where there is no such heading.
pub fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, rest) = document.split_once(&format!("\n## {heading}\n")).unwrap_or_default();
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

/// Asserts that the tables of `document` have what a program shows, with the same types and labels, and nothing else.
/// `registered` are the names as the program registered them: each has to be shown, with a series at least.
///
/// # Panics
///
/// Where they differ.
pub fn assert_documented(document: &str, registered: &BTreeSet<String>, text: &str) {
    for name in registered {
        let head = format!("# TYPE {name} ");
        assert!(text.contains(&head), "{name} is registered and shows nothing: have the test count one");
    }
    let (shown, documented) = (shown(text), documented(document));
    assert!(!shown.is_empty(), "nothing is shown");
    for name in shown.keys().map(String::as_str).chain(documented.keys().copied()) {
        let row = documented.get(name).map(|row| &row.metric);
        assert_eq!(row, shown.get(name), "{name}: as documented, and as shown");
    }
}

/// The name of a family in queries.
fn queried(family: &str, kind: &str) -> String {
    match kind {
        "counter" => format!("{family}_total"),
        "info" => format!("{family}_info"),
        _ => family.to_owned(),
    }
}

/// Names of the labels in `a="b",c="d"} 1`. Values may hold anything, quotes behind a backslash.
fn keys(mut rest: &str) -> Vec<&str> {
    let mut keys = Vec::new();
    while let Some((key, value)) = rest.split_once("=\"") {
        keys.push(key.trim_start_matches(','));
        let Some((_, behind)) = end(value).and_then(|end| value.split_at_checked(end + 1)) else { break };
        rest = behind;
        if rest.starts_with('}') {
            break;
        }
    }
    keys
}

/// Where the quote stands that ends a value.
fn end(value: &str) -> Option<usize> {
    let mut escaped = false;
    let ends = |letter: char| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    };
    value.find(ends)
}

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod tests;
