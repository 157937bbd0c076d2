//! The house rules that no compiler checks, each with its reason.
//!
//! Reads the files of the checkout and reports; it never changes one. A rule that is not here (or in the lint set) is
//! not a rule. *Invariant:* every rule has a snippet in its tests that breaks it, so that no rule can fall asleep.

mod clocks;
mod proofs;
mod rooms;
mod source;
mod text;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

pub use source::{Kind, Source};

/// One place where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the file, relative to the checkout.
    pub path: String,
    /// Line, counted from one.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// Why the rule exists: what would go wrong without it.
    pub reason: &'static str,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}: {} ({})", self.path, self.line, self.what, self.reason)
    }
}

/// The lines of a file that break a rule, with what is wrong there.
type Check = fn(&Source) -> Vec<(usize, String)>;

/// A rule over one file at a time.
pub(crate) struct Rule {
    /// Why the rule exists.
    reason: &'static str,
    /// Finds the lines that break it.
    check: Check,
}

/// Checks and prints; the code is 1 when a rule is broken.
pub(crate) fn run(root: &Path) -> anyhow::Result<ExitCode> {
    let findings = check(root)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    eprintln!("{} findings", findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks every file of the checkout; the findings come sorted.
pub fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let sources =
        source::read_all(root).with_context(|| format!("reading the files of {}", root.display()))?;
    let mut findings: Vec<Finding> = sources.iter().flat_map(check_one).collect();
    findings.extend(proofs::check(&sources));
    findings.sort();
    Ok(findings)
}

fn check_one(source: &Source) -> Vec<Finding> {
    let rules = text::RULES.iter().chain(rooms::RULES).chain(clocks::RULES);
    rules
        .flat_map(|rule| {
            (rule.check)(source).into_iter().map(|(line, what)| Finding {
                path: source.path.clone(),
                line,
                what,
                reason: rule.reason,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_tidy() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two levels deep");
        let findings = check(root).expect("the checkout is readable");
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "\n{}\n", lines.join("\n"));
    }
}
