//! Which tests failed and why, in a line each, read from what test programs print. Pure.

/// Of the output of Rust's test programs: the name of each test that failed, where it gave up, and what it said there.
pub(super) fn of_libtest(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().collect();
    let failed = lines.iter().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let mut names: Vec<&str> = failed.collect();
    // What a test prints itself can stand between its name and its end.
    for list in lines.split(|line| *line == "failures:").skip(1) {
        names.extend(list.iter().map_while(|line| line.strip_prefix("    ")).map(str::trim));
    }
    names.sort_unstable();
    names.dedup();
    names.iter().map(|name| format!("{name}{}", reason(name, &lines))).chain(crash(&lines)).collect()
}

/// Finished tests that are named when a test program crashed: those that ran then come soon after them in its list.
const BEFORE: usize = 4;

/// How a test program ended that a signal ended: it names no test itself.
fn crash(lines: &[&str]) -> Option<String> {
    let signal = lines.iter().rev().find_map(|line| {
        let at = line.find("(signal: ").filter(|_| line.contains("process didn't exit successfully"))?;
        Some(line[at..].trim_matches(['(', ')']))
    })?;
    let is_end = |line: &&&str| line.starts_with("test ") && line.ends_with(" ... ok");
    let mut before: Vec<&str> = lines.iter().rev().filter(is_end).take(BEFORE).copied().collect();
    before.reverse();
    let panic = lines.iter().rfind(|line| line.starts_with("thread '") && line.contains("panicked at "));
    let panicked = panic.map_or(String::new(), |line| format!("; the last panic: {line}"));
    Some(format!("the test program crashed ({signal}) after: {}{panicked}", before.join(", ")))
}

/// The last lines of an output without what programs under test wrote into their own log, which would take all the room.
pub(super) fn shown(output: &str, count: usize) -> String {
    let mut lines: Vec<&str> =
        output.lines().rev().filter(|line| !line.starts_with("{\"timestamp\"")).take(count).collect();
    lines.reverse();
    lines.join("\n")
}

/// Of pytest's short summary.
pub(super) fn of_pytest(output: &str) -> Vec<String> {
    let failed = output
        .lines()
        .filter_map(|line| line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")));
    failed.map(str::to_owned).collect()
}

/// The first panic of the thread that is called like the test.
fn reason(name: &str, lines: &[&str]) -> String {
    let begin = format!("thread '{name}' ");
    let Some(at) = lines.iter().position(|line| line.starts_with(&begin) && line.contains("panicked at "))
    else {
        return String::new();
    };
    let place = lines[at].split_once("panicked at ").map_or("", |(_, place)| place.trim_end_matches(':'));
    let said = lines.get(at + 1).copied().unwrap_or_default();
    format!(" at {place}: {said}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test sink::late ... FAILED
test sink::early ... ok
test relay::loud ... heard
FAILED

failures:

---- sink::late stdout ----

thread 'sink::late' (77) panicked at tests/sink.rs:20:9:
waited 60s in vain for: a row
stack backtrace:
   0: begin_unwind


failures:
    relay::loud
    sink::late

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s
";

    #[test]
    fn every_failed_test_is_named_once_with_its_reason() {
        assert_eq!(
            of_libtest(OUTPUT),
            ["relay::loud", "sink::late at tests/sink.rs:20:9: waited 60s in vain for: a row"]
        );
        assert_eq!(of_libtest("test a ... ok\n\ntest result: ok. 1 passed; 0 failed\n"), [""; 0]);
    }

    #[test]
    fn a_crash_names_the_signal_and_what_ran_before() {
        let output = "\
test a::b ... ok
test a::c ... ok
thread 'a::d' (7) panicked at library/core/src/panicking.rs:233:5:
panic in a destructor during cleanup
error: test failed, to rerun pass `-p e2e --test integration`

Caused by:
  process didn't exit successfully: `/target/integration-1 --test-threads=8` (signal: 6, SIGABRT: process abort signal)
";
        assert_eq!(
            of_libtest(output),
            ["the test program crashed (signal: 6, SIGABRT: process abort signal) after: test a::b ... ok, \
              test a::c ... ok; the last panic: thread 'a::d' (7) panicked at library/core/src/panicking.rs:233:5:"]
        );
    }

    #[test]
    fn what_programs_logged_is_not_shown() {
        let output = "one\ntwo\n{\"timestamp\":\"2026\",\"level\":\"INFO\"}\nthree\n";
        assert_eq!(shown(output, 2), "two\nthree");
    }

    #[test]
    fn pytest_names_them_itself() {
        let output =
            "..F\n= short test summary info =\nFAILED tests/a.py::b - assert 1\n== 1 failed in 1s ==\n";
        assert_eq!(of_pytest(output), ["tests/a.py::b - assert 1"]);
    }
}
