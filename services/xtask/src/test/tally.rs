//! Counts of tests, read from what test programs print.

use std::ops::AddAssign;

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Tally {
    /// A check that is one thing.
    pub(super) fn one(passed: bool) -> Self {
        Self { passed: u64::from(passed), failed: u64::from(!passed), skipped: 0 }
    }

    /// Of the result lines that Rust's test programs print.
    pub(super) fn of_libtest(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            sum += Self {
                passed: number_before(line, "passed"),
                failed: number_before(line, "failed"),
                skipped: number_before(line, "ignored"),
            };
        }
        sum
    }

    /// Of pytest's last line: `== 3 passed, 1 failed, 2 skipped in 1.2s ==`.
    pub(super) fn of_pytest(output: &str) -> Self {
        let is_summary = |line: &&str| {
            line.contains(" in ")
                && (line.contains("passed") || line.contains("failed") || line.contains("error"))
        };
        let line = output.lines().rfind(is_summary).unwrap_or_default();
        Self {
            passed: number_before(line, "passed"),
            failed: number_before(line, "failed") + number_before(line, "error"),
            skipped: number_before(line, "skipped"),
        }
    }

    /// A run that ended badly has at least one failure, even if it did not come as far as saying so.
    pub(super) fn with_exit(self, success: bool) -> Self {
        if success || self.failed > 0 { self } else { Self { failed: 1, ..self } }
    }
}

/// The number in front of a word: `2` of `2 failed`; `error` also finds `errors`.
fn number_before(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split_whitespace().collect();
    let matches = |found: &str| {
        let found = found.trim_matches(|letter: char| !letter.is_ascii_alphabetic());
        found == word || found.strip_suffix('s') == Some(word)
    };
    let pairs = words.windows(2).find(|pair| matches(pair[1]));
    pairs.and_then(|pair| pair[0].trim_start_matches("ok.").parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_add_up() {
        let output = "running 2 tests\n\
            test result: ok. 10 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s\n\
            noise: 99 passed\n\
            test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.02s\n";
        assert_eq!(Tally::of_libtest(output), Tally { passed: 13, failed: 2, skipped: 1 });
        assert_eq!(Tally::of_libtest(output).to_string(), "13 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn pytest_says_it_in_many_ways() {
        for (line, expect) in [
            ("===== 12 passed in 3.21s =====", (12, 0, 0)),
            ("== 1 failed, 2 passed, 3 skipped in 0.5s ==", (2, 1, 3)),
            ("== 2 passed, 1 error in 0.5s ==", (2, 1, 0)),
            ("2 passed, 2 errors in 0.50s", (2, 2, 0)),
            ("no tests ran in 0.01s", (0, 0, 0)),
        ] {
            let (passed, failed, skipped) = expect;
            assert_eq!(Tally::of_pytest(line), Tally { passed, failed, skipped }, "{line}");
        }
    }

    #[test]
    fn a_crash_is_a_failure() {
        assert_eq!(Tally::default().with_exit(false).failed, 1);
        assert_eq!(Tally { failed: 3, ..Tally::default() }.with_exit(false).failed, 3);
        assert_eq!(Tally::one(true).with_exit(true), Tally { passed: 1, failed: 0, skipped: 0 });
    }
}
