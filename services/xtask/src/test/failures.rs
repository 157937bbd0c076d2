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
    names.iter().map(|name| format!("{name}{}", reason(name, &lines))).collect()
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
    fn pytest_names_them_itself() {
        let output =
            "..F\n= short test summary info =\nFAILED tests/a.py::b - assert 1\n== 1 failed in 1s ==\n";
        assert_eq!(of_pytest(output), ["tests/a.py::b - assert 1"]);
    }
}
