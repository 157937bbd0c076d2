//! The alerts that are handed out: each asks for what is measured, and each has a heading that says what to do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::panic::catch_unwind;

use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

use super::{Row, documented, section};

type Table<'a> = BTreeMap<&'a str, Row<'a>>;

const CONTROL_PLANE: &str = include_str!("../../../deploy/alerts/slipway.yaml");
const OPERATOR: &str = include_str!("../../../deploy/alerts/operator.yaml");
/// In the order in which the guide has them.
const FILES: [&str; 2] = [CONTROL_PLANE, OPERATOR];
const GUIDE: &str = include_str!("../../../docs/alerts.md");
const METRICS: &str = include_str!("../../../docs/metrics.md");
const METRICS_OF_OPERATOR: &str = include_str!("../../../deploy/operator/metrics.md");

/// Labelled counters that show their series from the start, as zero.
const BEGUN: [&str; 2] = ["controller_runtime_reconcile_panics_total", "slipway_snapshots_ended_total"];
/// Labels that Prometheus gives to whatever it scrapes.
const OF_TARGETS: [&str; 2] = ["job", "instance"];
/// What kind of object a file is.
const KIND: (&str, &str) = ("monitoring.coreos.com/v1", "PrometheusRule");
/// What an alert consists of.
const PARTS: [&str; 5] = ["alert", "annotations", "expr", "for", "labels"];

/// What an expression asks for.
#[derive(Default)]
struct Asked {
    selectors: Vec<VectorSelector>,
    /// Labels that it groups or matches by.
    by: BTreeSet<String>,
}

impl Asked {
    fn group(&mut self, modifier: Option<&LabelModifier>) {
        let labels = modifier.into_iter().flat_map(|modifier| &modifier.labels().labels);
        self.by.extend(labels.cloned());
    }
}

impl ExprVisitor for Asked {
    type Error = Infallible;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, Infallible> {
        match expression {
            Expr::VectorSelector(selector) => self.selectors.push(selector.clone()),
            Expr::MatrixSelector(range) => self.selectors.push(range.vs.clone()),
            Expr::Aggregate(aggregate) => self.group(aggregate.modifier.as_ref()),
            Expr::Binary(binary) => {
                self.group(binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref()));
            }
            _ => {}
        }
        Ok(true)
    }
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// The alerts of a file, in its order.
fn alerts(file: &str) -> Vec<Value> {
    let rules = yaml(file);
    let groups = rules["spec"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

fn text<'a>(alert: &'a Value, part: &str) -> &'a str {
    alert[part].as_str().unwrap_or_else(|| panic!("{part} of {alert}"))
}

/// The row of what a selector names: a histogram is asked for by the names of its three kinds of series.
fn row<'a>(table: &'a Table<'a>, name: &str) -> Option<&'a Row<'a>> {
    let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(*end));
    let stem = stem.filter(|stem| table.contains_key(*stem));
    let is_histogram = stem.is_some();
    table.get(stem.unwrap_or(name)).filter(|row| (row.metric.kind == "histogram") == is_histogram)
}

fn asked(alert: &str, expression: &str) -> Asked {
    let expression = parser::parse(expression).unwrap_or_else(|error| panic!("{alert}: {error}"));
    let mut asked = Asked::default();
    walk_expr(&mut asked, &expression).unwrap();
    assert!(!asked.selectors.is_empty(), "{alert} asks for nothing");
    asked
}

/// Asserts that an expression can be read, and asks for metrics, labels and values that there are.
fn check(alert: &str, expression: &str, table: &Table<'_>) {
    let asked = asked(alert, expression);
    let mut labels = BTreeSet::from(OF_TARGETS.map(str::to_owned));
    for selector in &asked.selectors {
        let name = selector.name.as_deref().unwrap_or_default();
        let row = row(table, name).unwrap_or_else(|| panic!("{alert}: nobody measures '{name}'"));
        check_matchers(alert, selector, row);
        labels.extend(row.metric.labels.iter().cloned());
        labels.extend((row.metric.kind == "histogram").then(|| "le".to_owned()));
    }
    for label in &asked.by {
        assert!(labels.contains(label), "{alert}: nothing of it has the label {label}");
    }
}

fn check_matchers(alert: &str, selector: &VectorSelector, row: &Row<'_>) {
    assert!(selector.matchers.or_matchers.is_empty(), "{alert}: such matchers are not checked");
    for matcher in &selector.matchers.matchers {
        let name = &matcher.name;
        assert!(row.metric.labels.contains(name), "{alert}: there is no label {name}: {}", row.text);
        for value in matcher.value.split('|').filter(|value| is_word(value)) {
            let is_known = row.text.contains(&format!("`{value}`"));
            assert!(is_known, "{alert}: nothing is said of {name} {value}: {}", row.text);
        }
    }
}

/// Words are to be explained in the table; numbers such as the status of an answer, and patterns, are not.
fn is_word(value: &str) -> bool {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    value.starts_with(|first: char| first.is_ascii_alphabetic()) && value.chars().all(is_of_word)
}

/// The files, each with what its alerts may ask for.
fn with_tables() -> [(&'static str, Table<'static>); 2] {
    let mut of_operator = documented(METRICS_OF_OPERATOR);
    of_operator.extend(documented(section(METRICS, "Every program")));
    [(CONTROL_PLANE, documented(METRICS)), (OPERATOR, of_operator)]
}

#[test]
fn an_alert_on_what_may_happen_once_takes_a_new_series_for_a_rise() {
    for (file, table) in with_tables() {
        for alert in alerts(file).iter().filter(|alert| text(alert, "for") == "0m") {
            let (name, expression) = (text(alert, "alert"), text(alert, "expr"));
            let deaf = asked(name, expression).selectors.into_iter().find_map(|selector| {
                let counter = selector.name?;
                let row = row(&table, &counter).filter(|row| row.metric.kind == "counter")?;
                let begins = !row.metric.labels.is_empty() && !BEGUN.contains(&counter.as_str());
                (begins && !expression.contains(&format!("unless {counter} offset"))).then_some(counter)
            });
            assert_eq!(deaf, None, "{name}: it shows nothing before it counts its first");
        }
    }
}

/// One Prometheus may look at the operators of many clusters, each with a job of its own.
#[test]
fn alerts_of_the_operator_keep_clusters_apart() {
    for alert in alerts(OPERATOR) {
        let (name, expression) = (text(&alert, "alert"), text(&alert, "expr"));
        let mut groups = expression.split(" by (").skip(1);
        assert!(groups.all(|labels| labels.starts_with("job")), "{name} does not say which cluster's");
        for whole in ["sum(", "max(", "min(", "count("] {
            assert!(!expression.contains(whole), "{name} makes one of all clusters");
        }
        // What nobody shows has no job: who showed it before is named.
        assert!(!expression.contains("absent(") || expression.contains("by (job)"), "{name} waits for all");
    }
}

/// Of a pause that hangs the phase says only that it is being stopped.
#[test]
fn one_alert_calls_for_databases_in_trouble_by_their_condition_and_their_phase() {
    let of_trouble = ["slipway_databases", "slipway_databases_degraded"];
    let asks = |alert: &Value| -> BTreeSet<String> {
        let asked = asked(text(alert, "alert"), text(alert, "expr"));
        asked.selectors.into_iter().filter_map(|selector| selector.name).collect()
    };
    let mut found: Vec<_> = alerts(OPERATOR).iter().map(asks).collect();
    found.retain(|names| of_trouble.iter().any(|name| names.contains(*name)));
    assert_eq!(found, [BTreeSet::from(of_trouble.map(str::to_owned))], "no trouble calls twice");
}

/// The phase of a database is `Degraded` for whatever reason its condition has; by the condition those are left out for which another
/// alert calls. So phases count only where an operator shows nothing better.
#[test]
fn for_a_machine_that_does_not_join_only_the_alert_of_machines_calls() {
    let expression = |name: &str| {
        let found = alerts(OPERATOR).into_iter().find(|alert| text(alert, "alert") == name);
        text(&found.unwrap(), "expr").to_owned()
    };
    let of_trouble = parser::parse(&expression("SlipwayOperatorDatabasesDegraded")).unwrap();
    let fallback = "slipway_databases_degraded or on (job, instance) slipway_databases{phase=\"Degraded\"}";
    let expected = parser::parse(&format!("max by (job) ({fallback}) > 0")).unwrap();
    assert_eq!(of_trouble, expected);
    for (name, reason) in
        [("SlipwayOperatorMachineNeverJoins", "NotJoined"), ("SlipwayOperatorNodeNotReady", "NotReady")]
    {
        let calls = format!("slipway_databases_unjoined{{reason=\"{reason}\"}}");
        assert!(expression(name).contains(&calls), "{name} does not call for what the other leaves out");
    }
}

#[test]
fn every_alert_asks_for_what_is_measured() {
    for (file, table) in with_tables() {
        for alert in alerts(file) {
            check(text(&alert, "alert"), text(&alert, "expr"), &table);
        }
    }
}

#[test]
fn an_expression_that_asks_for_what_is_not_there_is_found() {
    let table = documented(METRICS);
    let passes = |expression: &str| catch_unwind(|| check("Tried", expression, &table)).is_ok();
    for right in [
        "max by (job) (outbox_pending) > 0",
        "sum by (le, route) (rate(http_request_seconds_bucket{method=\"1\"}[5m])) > 0",
        "databases_diverged{kind=~\"missing|lagging\"} > 0 unless on (kind) databases_diverged offset 1h > 0",
        "http_requests_total{status=~\"5..\"} > 0",
    ] {
        assert!(passes(right), "{right}");
    }
    for wrong in [
        "max(outbox_pending > 0",
        "outbox_waiting > 0",
        "vector(1) > 0",
        "http_request_seconds > 1",
        "outbox_pending_sum > 1",
        "outbox_pending{cluster=\"1\"} > 0",
        "max by (cluster) (outbox_pending) > 0",
        "outbox_pending > 0 unless on (cluster) outbox_newer > 0",
        "sum by (le) (http_requests_total) > 0",
        "databases_diverged{kind=~\"missing|laging\"} > 0",
    ] {
        assert!(!passes(wrong), "{wrong}");
    }
}

#[test]
fn every_alert_has_a_heading_and_every_heading_an_alert() {
    let alerts: Vec<Value> = FILES.into_iter().flat_map(alerts).collect();
    let names: Vec<&str> = alerts.iter().map(|alert| text(alert, "alert")).collect();
    let headings: Vec<&str> = GUIDE.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert_eq!(names, headings, "the same, and in the same order");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each once");
}

#[test]
fn every_alert_says_how_grave_it_is_since_when_and_where_to_read_on() {
    for alert in FILES.into_iter().flat_map(alerts) {
        let name = text(&alert, "alert");
        let mut parts: Vec<&str> = alert.as_object().unwrap().keys().map(String::as_str).collect();
        parts.sort_unstable();
        assert_eq!(parts, PARTS, "{name}");
        assert!(["critical", "warning"].contains(&text(&alert["labels"], "severity")), "{name}");
        let after = text(&alert, "for");
        let number = after.strip_suffix(['m', 'h']).unwrap_or_default();
        assert!(number.parse::<u32>().is_ok(), "{name} after {after}");
        assert!(!text(&alert["annotations"], "summary").is_empty(), "{name}");
        let runbook = format!("docs/alerts.md#{}", name.to_lowercase());
        assert_eq!(text(&alert["annotations"], "runbook"), runbook, "{name}");
    }
}

#[test]
fn headings_that_the_guide_refers_to_are_there() {
    let headings =
        GUIDE.lines().filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")));
    let anchors: BTreeSet<String> =
        headings.map(|heading| heading.to_lowercase().replace(' ', "-")).collect();
    let links: Vec<&str> =
        GUIDE.split("](#").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        assert!(anchors.contains(link), "{link}");
    }
}

#[test]
fn what_is_applied_is_a_rule_file_too_without_what_surrounds_it() {
    for file in FILES {
        let whole = yaml(file);
        assert_eq!((text(&whole, "apiVersion"), text(&whole, "kind")), KIND);
        // As the command at the head of the file makes it.
        let (_, spec) = file.split_once("\nspec:\n").unwrap();
        let moved: Vec<&str> = spec.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
        assert_eq!(yaml(&moved.join("\n")), whole["spec"]);
        assert!(file.contains("#     sed '1,/^spec:/d; s/^  //' deploy/alerts/"), "the command is told");
    }
}
