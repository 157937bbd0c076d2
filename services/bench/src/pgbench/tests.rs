//! What pgbench prints, and whether the scripts say what the product says.

use super::*;

#[test]
fn a_log_is_read_without_the_waiting() {
    let log = "0 1 4521 0 1763706000 123456 321\n0 2 900 0 1763706000 223456 0\n";
    assert_eq!(latencies(log).unwrap(), [Duration::from_micros(4_200), Duration::from_micros(900)]);
    let unpaced = "3 17 250 0 1763706000 1\n";
    assert_eq!(latencies(unpaced).unwrap(), [Duration::from_micros(250)]);
    for bad in ["0 1 skipped 0 1763706000 123456 321", "nonsense", "0 1 5 0 1 1 9"] {
        assert!(latencies(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_report_has_a_rate_unless_something_failed() {
    let report = "number of transactions actually processed: 100\nnumber of failed transactions: 0 (0.000%)\n\
                  latency average = 1.2 ms\ntps = 5512.25 (without initial connection time)\n";
    assert!((rate(report).unwrap() - 5_512.25).abs() < f64::EPSILON);
    assert!(rate(&report.replace("failed transactions: 0 (", "failed transactions: 3 (")).is_err());
    assert!(rate("nothing").is_err());
}

/// Text with every run of white space as one space.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The Rust sources of the store, string continuations joined.
fn sources_of_the_store() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/src");
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            text += &std::fs::read_to_string(path).unwrap();
        }
    }
    flat(&text.replace("\\\n", " "))
}

#[test]
fn the_scripts_write_the_columns_that_the_store_writes() {
    let store = sources_of_the_store();
    let mut found = 0;
    for script in [MINT, UPSERT] {
        for statement in script.split(';').map(flat) {
            for (begin, _) in statement.match_indices("insert into ") {
                let end = begin + statement[begin..].find(')').expect("columns") + 1;
                let head = &statement[begin..end];
                assert!(store.contains(head), "the store has no '{head}': bring the script up to date");
                found += 1;
            }
        }
    }
    assert_eq!(found, 8, "tenant, database, operation, event, instruction, answer, audit; observation");
}

#[test]
fn every_variable_of_the_scripts_is_given() {
    let given = [
        "tenant",
        "cluster",
        "region",
        "desired",
        "hash",
        "actor",
        "trace",
        "observed",
        "answer",
        "detail",
        "n",
        "client_id",
    ];
    for script in [MINT, UPSERT] {
        for line in script.lines().filter(|line| !line.starts_with("--")) {
            for word in line.replace("::", " ").split(':').skip(1) {
                let name: String =
                    word.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                assert!(given.contains(&name.as_str()), "':{name}' in: {line}");
            }
        }
    }
}
