//! What is shown and what is written are read alike, and every difference is found.

use super::*;

const SHOWN: &str = "# HELP reads Reads, by \"kind\".
# TYPE reads counter
reads_total{kind=\"a,b=\\\"c\\\"} d\",host=\"h{}\"} 1
reads_total{kind=\"\",host=\"i\",other=\"\\\\\"} 1
# HELP depth Rows waiting.
# TYPE depth gauge
depth 7
# HELP took Seconds.
# TYPE took histogram
took_sum{op=\"a\"} 1.0
took_bucket{le=\"+Inf\",op=\"a\"} 1
# HELP build What is running.
# TYPE build info
build_info{version=\"1\"} 1
# EOF
";

const DOCUMENT: &str = "# Metrics

## Reader

| metric | type | labels | what it says |
|---|---|---|---|
| `build_info` | info | `version` | what runs |
| `depth` | gauge | | rows |
| `reads_total` | counter | `host`, `kind`, `other` | reads, `a` or `b` |
| `took` | histogram | `op` | seconds |

## Writer

| `other` | gauge | | others |
";

fn metric(kind: &str, labels: &[&str]) -> Metric {
    Metric { kind: kind.to_owned(), labels: labels.iter().map(|label| (*label).to_owned()).collect() }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn what_is_shown_is_read_with_types_and_labels() {
    let expected = [
        ("build_info", metric("info", &["version"])),
        ("depth", metric("gauge", &[])),
        ("reads_total", metric("counter", &["host", "kind", "other"])),
        ("took", metric("histogram", &["op"])),
    ];
    let expected = expected.map(|(name, metric)| (name.to_owned(), metric));
    assert_eq!(shown(SHOWN), BTreeMap::from(expected));
}

#[test]
fn a_section_that_says_what_is_shown_passes() {
    let section = section(DOCUMENT, "Reader");
    assert_documented(section, &names(&["reads", "depth", "took"]), SHOWN);
    assert!(documented(section).get("reads_total").is_some_and(|row| row.text.contains("`a` or `b`")));
    assert_eq!(super::section(DOCUMENT, "Nobody"), "");
}

#[test]
fn every_difference_is_found() {
    let section = section(DOCUMENT, "Reader");
    let differs = |from: &str, to: &str| {
        let changed = section.replace(from, to);
        assert_ne!(changed, section, "{from}");
        std::panic::catch_unwind(|| assert_documented(&changed, &names(&["depth"]), SHOWN)).is_err()
    };
    for (from, to) in [
        ("`depth` | gauge", "`depth` | counter"),
        ("`depth`", "`depths`"),
        ("| `depth` | gauge | | rows |", ""),
        ("`host`, `kind`", "`kind`"),
        ("`op`", "`op`, `code`"),
    ] {
        assert!(differs(from, to), "{from} → {to}");
    }
    let unseen = std::panic::catch_unwind(|| assert_documented(section, &names(&["never"]), SHOWN));
    assert!(unseen.is_err(), "what is registered and not shown");
}
