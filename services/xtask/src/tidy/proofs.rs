//! Tables of faults name the tests that prove them: each of those is there.

use super::{Finding, Source};

const REASON: &str = "a promise whose test was renamed or taken away is a promise without proof";

/// The document whose tests are named by file and function.
const BY_FILE: &str = "docs/faults.md";
/// The document whose tests are functions of this folder, in the third column of a table.
const BY_FOLDER: (&str, &str) = ("README.md", "tests/tests/faults/");

/// Tests that are named and are not there.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let by_file = rows(sources, BY_FILE).filter_map(|(line, cell)| {
        let Ok([file, test]) = <[&str; 2]>::try_from(spans(cell)) else {
            return Some(missing(BY_FILE, line, cell));
        };
        let holds = |source: &Source| source.path == file || source.path == format!("tests/tests/{file}");
        (!sources.iter().any(|source| holds(source) && has(source, test)))
            .then(|| missing(BY_FILE, line, test))
    });
    let (document, folder) = BY_FOLDER;
    let by_folder = rows(sources, document).filter_map(|(line, cell)| {
        let [test] = spans(cell).try_into().ok()?;
        let found = sources.iter().any(|source| source.path.starts_with(folder) && has(source, test));
        (!found).then(|| missing(document, line, test))
    });
    by_file.chain(by_folder).collect()
}

/// The third cells of a document's tables that have four columns at least, or three, without what heads them.
fn rows<'a>(sources: &'a [Source], document: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let lines = sources.iter().filter(move |source| source.path == document).flat_map(Source::lines);
    lines.filter_map(|(line, text)| {
        let cell = text.strip_prefix('|')?.split('|').nth(2)?.trim();
        cell.ends_with('`').then_some((line, cell))
    })
}

fn spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn has(source: &Source, test: &str) -> bool {
    source.text.contains(&format!("fn {test}("))
}

fn missing(document: &str, line: usize, test: &str) -> Finding {
    let what = format!("there is no test {test} where this line says");
    Finding { path: document.to_owned(), line, what, reason: REASON }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_named_and_not_there_is_found() {
        let sources = |readme: &str, faults: &str| {
            vec![
                Source::new(
                    "README.md",
                    format!("| fault | promise | test (`x`) |\n|---|---|---|\n{readme}\n"),
                ),
                Source::new("docs/faults.md", format!("text\n{faults}\n")),
                Source::new("tests/tests/faults/broker.rs", "async fn a_fault() {}"),
                Source::new("tests/tests/integration/bus.rs", "fn another() {}"),
                Source::new("services/plan/src/a.rs", "fn pure() {}"),
            ]
        };
        let found = |readme: &str, faults: &str| {
            let found = check(&sources(readme, faults));
            found.into_iter().map(|found| (found.path, found.line)).collect::<Vec<_>>()
        };
        let good = found("| a | b | `a_fault` | 1 s |", "| a | b | `integration/bus.rs` `another` |");
        assert_eq!(good, []);
        assert_eq!(found("", "| a | b | `services/plan/src/a.rs` `pure` |"), []);
        assert_eq!(found("| a | b | `another` | 1 s |", ""), [("README.md".to_owned(), 3)]);
        let renamed = found("", "| a | b | `integration/bus.rs` `renamed` |");
        assert_eq!(renamed, [("docs/faults.md".to_owned(), 2)]);
        assert_eq!(found("", "| a | b | `integration/gone.rs` `another` |").len(), 1);
    }
}
