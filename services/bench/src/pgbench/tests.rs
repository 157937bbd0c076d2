//! What pgbench prints, and whether the scripts are whole.

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

#[test]
fn a_create_is_what_the_product_does() {
    let script = mint().unwrap();
    let mut at = 0;
    for head in [
        "\\set n :n + 1\nbegin;\n",
        "select pg_try_advisory_xact_lock(",
        "from idempotency_keys where",
        "from clusters c order by c.id;",
        "for share)",
        "insert into tenants (id)",
        "insert into databases (",
        "insert into operations (",
        "insert into operation_events (",
        "insert into instructions (",
        "where d.id = (",
        "where o.id = (",
        "insert into idempotency_keys (",
        "insert into audit (",
        ";\ncommit;\n",
    ] {
        let found = script[at..].find(head).unwrap_or_else(|| panic!("no '{head}' in its place: {script}"));
        at += found + head.len();
    }
    assert_eq!(at, script.len());
    assert_eq!(script.matches(";\n").count(), 11, "nine statements between begin and commit");
}

#[test]
fn every_variable_of_the_scripts_is_given() {
    let given = [
        "tenant",
        "cluster",
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
    for script in [mint().unwrap(), upsert().unwrap()] {
        for line in script.lines() {
            for word in line.replace("::", " ").split(':').skip(1) {
                let name: String =
                    word.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                assert!(given.contains(&name.as_str()), "':{name}' in: {line}");
            }
        }
    }
}
