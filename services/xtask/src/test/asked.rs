//! Which tests a step runs: those that it names, of these the ones that whoever runs it asks for.

use super::plan::Tests;

/// Options of a test program that are followed by a value.
const WITH_VALUE: [&str; 7] =
    ["--color", "--format", "--logfile", "--shuffle-seed", "--skip", "--test-threads", "-Z"];

/// What a step's test programs are told; nothing when of the tests that it names none is asked for.
pub(super) fn words(tests: &Tests, further: &[String]) -> Option<Vec<String>> {
    let (asked, options) = parted(further);
    let is_asked_for = |name: &&str| asked.is_empty() || asked.iter().any(|part| name.contains(part));
    let names: Vec<&str> = match tests.only {
        [] => asked,
        only => only.iter().copied().filter(is_asked_for).collect(),
    };
    if names.is_empty() && !tests.only.is_empty() {
        return None;
    }
    let without = tests.without.iter().flat_map(|part| ["--skip", *part]);
    Some(without.chain(names).chain(options).map(str::to_owned).collect())
}

/// Parts of names, and options with their values.
fn parted(further: &[String]) -> (Vec<&str>, Vec<&str>) {
    let (mut names, mut options) = (Vec::new(), Vec::new());
    let mut words = further.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            names.push(word);
            continue;
        }
        options.push(word);
        options.extend(words.by_ref().take(usize::from(WITH_VALUE.contains(&word))));
    }
    (names, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::plan::AtOnce;

    const SOME: Tests = Tests {
        words: &["test"],
        without: &["slow::"],
        only: &["relay::dies", "relay::sleeps", "sink::dies"],
        at_once: AtOnce::Computing,
        told: &[],
    };

    fn check(tests: &Tests, further: &str, expect: Option<&str>) {
        let further: Vec<String> = further.split_whitespace().map(str::to_owned).collect();
        assert_eq!(words(tests, &further).map(|words| words.join(" ")).as_deref(), expect, "{further:?}");
    }

    #[test]
    fn of_the_named_ones_those_are_run_that_are_asked_for() {
        check(&SOME, "", Some("--skip slow:: relay::dies relay::sleeps sink::dies"));
        check(&SOME, "dies", Some("--skip slow:: relay::dies sink::dies"));
        check(&SOME, "--test-threads 1 sleeps", Some("--skip slow:: relay::sleeps --test-threads 1"));
        check(&SOME, "a_storm", None);
    }

    #[test]
    fn where_none_is_named_what_is_asked_for_is_run() {
        let all = Tests { only: &[], ..SOME };
        check(&all, "", Some("--skip slow::"));
        check(&all, "a_storm --nocapture", Some("--skip slow:: a_storm --nocapture"));
        check(&all, "--skip wet --skip=cold dry", Some("--skip slow:: dry --skip wet --skip=cold"));
        check(&Tests { without: &[], ..all }, "", Some(""));
    }
}
