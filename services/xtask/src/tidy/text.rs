//! Rules over the text of one file: its length, its first line, and words that have no place in it.
//!
//! Works on lines, not on syntax trees: the rules are simple enough for that, and it costs no dependency.

use super::{Kind, Rule, Source};

/// No file of Rust may be longer, tests and comments included.
const MOST_LINES: usize = 500;
/// Lines of code that ship (no tests, comments, blank lines) in one file.
const MOST_CODE: usize = 300;

/// How many lines above a pause the loop that polls may begin.
const POLL: usize = 8;

/// Paths and marks that have no place in the repository; written in two halves, or this file would break its own rule.
const STRAY: [(&str, &str); 7] = [
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/tm", "p/"), "a path of one machine"),
    (concat!("TO", "DO"), "work left undone"),
    (concat!("FIX", "ME"), "work left undone"),
    (concat!("XX", "X"), "work left undone"),
    (concat!("HA", "CK:"), "work left undone"),
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        reason: "a file that outgrows a reader is two files: cap the tail and structure stays",
        check: length,
    },
    Rule {
        reason: "the first thing a reader needs is what a module is and what it never does",
        check: module_doc,
    },
    Rule { reason: "a test nobody runs proves nothing", check: ignored_test },
    Rule { reason: "a panic in a control plane is an outage without a message", check: unwrap },
    Rule {
        reason: "expect() fails when it is no longer needed and says why; allow() rots in silence",
        check: allow,
    },
    Rule {
        reason: "a sleeping test is slow when it passes and wrong when the machine is busy",
        check: sleep,
    },
    Rule {
        reason: "the repository must read the same on every machine and hold finished work",
        check: stray,
    },
];

fn length(source: &Source) -> Vec<(usize, String)> {
    if source.kind != Kind::Rust {
        return Vec::new();
    }
    let lines = source.text.lines().count();
    let code = source.code().count();
    if lines > MOST_LINES {
        vec![(
            lines,
            format!("{lines} lines, at most {MOST_LINES}: split the file by what its parts are about"),
        )]
    } else if code > MOST_CODE {
        vec![(
            1,
            format!("{code} lines of code, at most {MOST_CODE}: split the file by what its parts are about"),
        )]
    } else {
        Vec::new()
    }
}

fn module_doc(source: &Source) -> Vec<(usize, String)> {
    if source.kind != Kind::Rust {
        return Vec::new();
    }
    let first = source.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if first.starts_with("//! ") {
        return Vec::new();
    }
    vec![(1, "the file does not open with '//! what this is, what it never does'".to_owned())]
}

fn ignored_test(source: &Source) -> Vec<(usize, String)> {
    let marks = [concat!("#[ign", "ore]"), concat!("#[ign", "ore =")];
    rust_lines(source)
        .filter(|(_, line)| marks.iter().any(|mark| line.contains(mark)))
        .map(|(number, _)| (number, "an ignored test".to_owned()))
        .collect()
}

fn unwrap(source: &Source) -> Vec<(usize, String)> {
    if source.kind != Kind::Rust {
        return Vec::new();
    }
    let mark = concat!(".unw", "rap()");
    source
        .code()
        .filter(|(_, line)| line.contains(mark))
        .map(|(number, _)| {
            (
                number,
                "unwrap outside of tests: return an error, or expect(\"the fact that holds\")".to_owned(),
            )
        })
        .collect()
}

fn allow(source: &Source) -> Vec<(usize, String)> {
    let marks = [concat!("#[al", "low("), concat!("#![al", "low(")];
    rust_lines(source)
        .filter(|(_, line)| marks.iter().any(|mark| line.contains(mark)))
        .map(|(number, _)| (number, "a silenced lint: use #[expect(lint, reason = \"…\")]".to_owned()))
        .collect()
}

fn sleep(source: &Source) -> Vec<(usize, String)> {
    // The test kit holds the one place that waits between polls.
    if source.kind != Kind::Rust || source.path.starts_with("services/testkit/") {
        return Vec::new();
    }
    let marks = [concat!("thread::sl", "eep("), concat!("time::sl", "eep(")];
    let lines: Vec<(usize, &str)> = source.test_code().collect();
    // Between two looks at a condition a pause is right; it is the lone one that guesses how long something takes.
    let polls = |at: usize| {
        lines[at.saturating_sub(POLL)..at]
            .iter()
            .any(|(_, line)| line.contains("loop {") || line.contains("while "))
    };
    let sleeps = |line: &str| marks.iter().any(|mark| line.contains(mark));
    (0..lines.len())
        .filter(|at| sleeps(lines[*at].1) && !polls(*at))
        .map(|at| (lines[at].0, "a test that sleeps: poll a condition with a deadline".to_owned()))
        .collect()
}

fn stray(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        for (mark, what) in STRAY {
            if stands_alone(line, mark) {
                found.push((number, format!("'{mark}' is {what}")));
            }
        }
    }
    found
}

/// Whether the mark is there as a word or path of its own: not the end of a longer one, as in `/var/…`.
fn stands_alone(line: &str, mark: &str) -> bool {
    line.match_indices(mark)
        .any(|(at, _)| !line[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric()))
}

fn rust_lines(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let is_rust = source.kind == Kind::Rust;
    source.lines().filter(move |(_, line)| is_rust && !line.trim().starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::super::Check;
    use super::*;

    /// What a rule says about a file of the given text.
    fn found(rule: Check, path: &str, text: &str) -> Vec<usize> {
        rule(&Source::new(path, text)).into_iter().map(|(line, _)| line).collect()
    }

    const FILE: &str = "services/a/src/lib.rs";

    #[test]
    fn every_rule_sees_a_file_that_breaks_it() {
        let long = "fn a() {}\n".repeat(501);
        let dense = "fn a() {}\n".repeat(301);
        let cases: [(Check, &str, &str, &[usize]); 11] = [
            (length, FILE, &long, &[501]),
            (length, FILE, &dense, &[1]),
            (module_doc, FILE, "use std::fs;\n", &[1]),
            (ignored_test, FILE, concat!("#[te", "st]\n#[ign", "ore]\nfn a() {}\n"), &[2]),
            (unwrap, FILE, concat!("fn a() { b().unw", "rap() }\n"), &[1]),
            (allow, FILE, concat!("#[al", "low(dead_code)]\nfn a() {}\n"), &[1]),
            (sleep, FILE, concat!("#[cfg(test)]\nmod tests {\n std::thread::sl", "eep(a);\n}\n"), &[3]),
            (sleep, "tests/tests/a.rs", concat!("tokio::time::sl", "eep(a).await;\n"), &[1]),
            (stray, "README.md", concat!("see\n/wo", "rk/main\n"), &[2]),
            (stray, FILE, concat!("// TO", "DO: later\n"), &[1]),
            (stray, "deploy/a.yaml", concat!("path: /tm", "p/a\n"), &[1]),
        ];
        for (index, (rule, path, text, lines)) in cases.into_iter().enumerate() {
            assert_eq!(found(rule, path, text), lines, "case {index}");
        }
    }

    #[test]
    fn tests_comments_and_other_files_are_left_alone() {
        let commented = "// fn a() {}\n".repeat(400);
        let cases: [(Check, &str, &str); 8] = [
            (length, FILE, &commented),
            (length, "migrations/1.sql", &"a\n".repeat(600)),
            (module_doc, FILE, "//! What it is.\n"),
            (unwrap, FILE, concat!("#[cfg(test)]\nmod tests {\n fn a() { b().unw", "rap() } }\n")),
            (stray, FILE, concat!("let path = \"/var/tm", "p/a\";\n")),
            (unwrap, FILE, concat!("// never .unw", "rap() here\n")),
            (sleep, FILE, concat!("fn poll() { std::thread::sl", "eep(a) }\n")),
            (
                sleep,
                "tests/tests/a.rs",
                concat!("while !done() {\n assert!(now() < deadline);\n thread::sl", "eep(a);\n}\n"),
            ),
        ];
        for (index, (rule, path, text)) in cases.into_iter().enumerate() {
            assert_eq!(found(rule, path, text), Vec::<usize>::new(), "case {index}");
        }
    }
}
