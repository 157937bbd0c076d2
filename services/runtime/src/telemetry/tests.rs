//! Lines as a query sees them, arguments as a shell gives them, and the export against a deaf collector.

use std::io::Read;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clap::Parser;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::test_support::{self, Capture, SERVICE, logged};
use super::*;
use crate::lock;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] std::fmt::Error);

#[test]
fn dotted_fields_lie_flat_beside_the_message() {
    let lines = logged("info", || {
        tracing::info!(
            db.id = "d-1",
            kafka.offset = 42_u64,
            ratio = 0.5,
            ok = true,
            duration_ms = 7,
            "applied the {}",
            "resource"
        );
    });
    let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["service"], "slipway-example");
    assert_eq!(line["target"], "runtime::telemetry::tests");
    assert_eq!(line["message"], "applied the resource");
    assert_eq!(line["db.id"], "d-1");
    assert_eq!(line["kafka.offset"], 42);
    assert_eq!(line["ratio"], 0.5);
    assert_eq!(line["ok"], true);
    assert_eq!(line["duration_ms"], 7);
    assert_eq!(line.get("trace_id"), None, "outside a span there is no trace");
}

#[test]
fn the_line_begins_with_what_people_read_first() {
    let capture = Capture::default();
    tracing::dispatcher::with_default(&test_support::dispatch("info", capture.clone()), || {
        tracing::warn!(a = 1, "slow");
    });
    let text = capture.text();
    let timestamp = text.strip_prefix("{\"timestamp\":\"").unwrap().get(..27).unwrap();
    assert!(timestamp.ends_with('Z') && timestamp.as_bytes()[10] == b'T', "{timestamp}");
    timestamp.parse::<jiff::Timestamp>().unwrap();
    let rest = r#"","level":"WARN","service":"slipway-example","target":"runtime::telemetry::tests","message":"slow","a":1}"#;
    assert!(text.ends_with(&format!("{rest}\n")), "{text}");
}

#[test]
fn span_fields_are_flat_and_the_innermost_wins() {
    let lines = logged("info", || {
        let outer =
            tracing::info_span!("message", cluster.name = "eu", attempt = 1, outcome = tracing::field::Empty);
        let _outer = outer.clone().entered();
        let _inner = tracing::info_span!("step", attempt = 2, db.id = "d-1").entered();
        outer.record("outcome", "applied");
        tracing::info!(attempt = 3, "one");
        tracing::info!("two");
    });
    assert_eq!(lines[0]["attempt"], 3);
    assert_eq!(lines[1]["attempt"], 2);
    for line in &lines {
        assert_eq!(line["cluster.name"], "eu");
        assert_eq!(line["db.id"], "d-1");
        assert_eq!(line["outcome"], "applied");
        assert_eq!(line["span"], "step");
    }
}

#[test]
fn a_line_tells_the_trace_it_belongs_to() {
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let lines = logged("info", || {
        let span = tracing::info_span!("message");
        assert!(crate::trace::set_parent(&span, Some(header)));
        span.in_scope(|| tracing::info!("given"));
        tracing::info_span!("message").in_scope(|| tracing::info!("own"));
    });
    assert_eq!(lines[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let own = lines[1]["trace_id"].as_str().unwrap();
    assert_eq!(own.len(), 32);
    assert_ne!(own, "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[test]
fn the_span_of_a_task_names_it_without_tying_its_work_into_one_trace() {
    let lines = logged("info", || {
        let _task = tracing::info_span!(target: TASK_TARGET, "task", task.name = "relay").entered();
        tracing::info!("idle");
        for _ in 0..2 {
            tracing::info_span!("message").in_scope(|| tracing::info!("working"));
        }
    });
    assert!(lines.iter().all(|line| line["task.name"] == "relay"));
    assert_eq!(lines[0].get("trace_id"), None);
    assert_ne!(lines[1]["trace_id"], lines[2]["trace_id"]);
    assert!(lines[1]["trace_id"].is_string());
}

#[test]
fn a_quiet_log_keeps_the_trace_whole() {
    let lines = logged("warn", || {
        tracing::info_span!("request").in_scope(|| {
            tracing::info!("not said");
            tracing::warn!("said");
        });
    });
    let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
    assert_eq!(line["message"], "said");
    assert!(crate::TraceContext::current().is_none());
}

/// Libraries ask whether they should say something, and then do not.
#[test]
fn a_question_that_no_line_follows_takes_no_line_with_it() {
    let lines = logged("info,quiet=warn", || {
        for ask in [
            (|| tracing::enabled!(target: "quiet", Level::DEBUG)) as fn() -> bool,
            || tracing::enabled!(target: "quiet", Level::INFO),
        ] {
            ask();
            tracing::info!("right after a question");
            ask();
            tracing::info_span!("handling").in_scope(|| tracing::info!("in a span right after a question"));
        }
    });
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[1]["trace_id"].is_string() && lines[1]["span"] == "handling", "{lines:?}");
    assert!(lines[3]["trace_id"].is_string() && lines[3]["span"] == "handling", "{lines:?}");
}

#[test]
fn fields_named_like_keys_of_ours_are_kept_apart() {
    let lines = logged("info", || tracing::info!(level = "high", service = "pg", r#type = "x", "tide"));
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[0]["field.level"], "high");
    assert_eq!(lines[0]["field.service"], "pg");
    assert_eq!(lines[0]["type"], "x");
}

#[test]
fn values_that_json_lacks_become_text() {
    let lines = logged("info", || {
        let error = Outer(std::fmt::Error);
        let error: &(dyn StdError + 'static) = &error;
        tracing::error!(error, share = f64::NAN, quoted = "a \"b\"\n", "failed");
    });
    assert_eq!(lines[0]["error"], format!("outer: {}", std::fmt::Error));
    assert_eq!(lines[0]["share"], "NaN");
    assert_eq!(lines[0]["quoted"], "a \"b\"\n");
}

#[test]
fn arguments_have_defaults_and_are_checked() {
    let parsed = Cli::try_parse_from(["x"]).unwrap().telemetry;
    assert_eq!(parsed.log, LogFilter(DEFAULT_FILTER.to_owned()));
    assert_eq!((parsed.log_format, parsed.otlp_endpoint), (None, None));
    let parsed = Cli::try_parse_from(["x", "--log", "", "--log-format", "json"]).unwrap().telemetry;
    assert_eq!(parsed.log, LogFilter(DEFAULT_FILTER.to_owned()));
    assert_eq!(parsed.log_format, Some(LogFormat::Json));
    assert!(Cli::try_parse_from(["x", "--log", "runtime=louder"]).is_err());
    assert!(Cli::try_parse_from(["x", "--log-format", "xml"]).is_err());
}

#[test]
fn the_group_leaves_the_description_of_the_program_alone() {
    /// Moves ships.
    #[derive(Debug, Parser)]
    struct Described {
        #[command(flatten)]
        _telemetry: TelemetryArgs,
        #[command(flatten)]
        _ops: crate::OpsArgs,
    }
    let help = <Described as clap::CommandFactory>::command().render_long_help().to_string();
    assert!(help.starts_with("Moves ships\n"), "{help}");
    assert!(help.contains("SLIPWAY_LOG") && help.contains("SLIPWAY_OPS_LISTEN"), "{help}");
}

#[test]
fn an_address_we_cannot_speak_to_is_refused() {
    for endpoint in ["https://collector:4317", "collector:4317"] {
        assert!(matches!(provider(SERVICE, Some(endpoint)), Err(Error::UseEndpoint { .. })), "{endpoint}");
    }
    assert!(provider(SERVICE, Some(" ")).is_ok(), "set to nothing is not set");
}

#[test]
fn a_chain_reads_from_the_outside_in() {
    assert_eq!(chain(&Outer(std::fmt::Error)), format!("outer: {}", std::fmt::Error));
}

#[test]
fn an_answer_that_kube_could_not_read_is_shown_at_no_level() {
    for directives in [DEFAULT_FILTER, "trace", "kube_client::client=trace"] {
        let lines = logged(directives, || {
            tracing::warn!(target: "kube_client::client", "{}, {}", r#"{"data":{"pg-password":"eA=="}}"#, "EOF");
            tracing::error!(target: "kube_client::client::tls", "others go on");
        });
        let messages: Vec<_> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
        assert!(messages.iter().all(|message| !message.contains("password")), "{directives}: {messages:?}");
        assert_eq!(messages, ["others go on"], "{directives}");
    }
}

/// Keeps what is exported.
#[derive(Debug, Clone, Default)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Exported {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        lock(&self.0).extend(batch);
        std::future::ready(Ok(()))
    }
}

#[test]
fn an_answer_that_kube_could_not_read_is_no_part_of_a_trace() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    // A second one beside it, as beside that of any other test.
    let _beside = test_support::dispatch("off", Capture::default());
    let log = JsonLayer::new(SERVICE, std::io::sink);
    let traces = traces(&provider, SERVICE, true);
    tracing::subscriber::with_default(subscriber(traces, EnvFilter::new("off"), log), || {
        tracing::info_span!("handling").in_scope(|| {
            tracing::warn!(target: "kube_client::client", "{}, {}", r#"{"data":{"pg-password":"eA=="}}"#, "EOF");
            tracing::warn!(target: "kube_client::client::tls", "others go on");
        });
    });
    let spans = lock(&exported.0);
    let [span] = spans.as_slice() else { panic!("one span, not {spans:?}") };
    let shown = format!("{:?}", span.events.events);
    assert!(span.events.events.len() == 1 && shown.contains("others go on"), "{shown}");
}

#[test]
fn what_kube_calls_a_turn_is_no_part_of_a_trace() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let _beside = test_support::dispatch("off", Capture::default());
    let log = JsonLayer::new(SERVICE, std::io::sink);
    let traces = traces(&provider, SERVICE, true);
    tracing::subscriber::with_default(subscriber(traces, EnvFilter::new("info"), log), || {
        let turn = tracing::info_span!(target: "kube_runtime::controller", "reconciling object");
        turn.in_scope(|| tracing::info_span!("reconcile").in_scope(|| ()));
    });
    let spans = lock(&exported.0);
    let [span] = spans.as_slice() else { panic!("one span, not {spans:?}") };
    assert_eq!(span.name, "reconcile");
}

#[test]
fn what_kube_calls_a_turn_is_in_no_line_unless_it_is_asked_for() {
    for (directives, is_there) in [(DEFAULT_FILTER, false), ("info", true)] {
        let lines = logged(directives, || {
            let turn = tracing::info_span!(
                target: "kube_runtime::controller", "reconciling object", object.name = "a"
            );
            let pass = || tracing::info_span!("reconcile", db.id = "d-1").in_scope(|| tracing::info!("one"));
            turn.in_scope(pass);
        });
        let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
        assert_eq!((line["db.id"].as_str(), line.get("object.name").is_some()), (Some("d-1"), is_there));
    }
}

#[test]
fn what_only_a_collector_shows_is_gathered_for_one() {
    for is_exported in [true, false] {
        let exported = Exported::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
        let _beside = test_support::dispatch("off", Capture::default());
        let (traces, log) = (traces(&provider, SERVICE, is_exported), JsonLayer::new(SERVICE, std::io::sink));
        tracing::subscriber::with_default(subscriber(traces, EnvFilter::new("off"), log), || {
            tracing::info_span!("handling", db.id = "d-1").in_scope(|| ());
        });
        let spans = lock(&exported.0);
        let [span] = spans.as_slice() else { panic!("one span, not {spans:?}") };
        let has = |key: &str| span.attributes.iter().any(|pair| pair.key.as_str() == key);
        assert!(has("db.id"), "{span:?}");
        for key in ["busy_ns", "thread.id", "code.line.number"] {
            assert_eq!(has(key), is_exported, "{key}: {span:?}");
        }
    }
}

/// The collector here accepts and then says nothing: spans must reach it, and the end must not wait for its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deaf_collector_is_written_to_but_not_waited_for() {
    // A machine that stands still for a moment does so in one of them.
    let mut took: Vec<Duration> = Vec::new();
    while took.last().is_none_or(|last| *last >= Duration::from_secs(5)) {
        assert!(took.len() < 3, "took {took:?}");
        took.push(end_before_a_deaf_collector().await);
    }
}

/// How long the end takes.
async fn end_before_a_deaf_collector() -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (heard, hearing) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut preface = [0; 14];
        stream.read_exact(&mut preface).unwrap();
        // The connection is handed over so that it stays open until the test is done with it.
        heard.send((preface, stream)).ok();
    });
    let provider = provider(SERVICE, Some(&endpoint)).unwrap();
    let guard = Guard { provider: Some(provider.clone()) };
    let (traces, log) = (traces(&provider, SERVICE, true), JsonLayer::new(SERVICE, std::io::sink));
    let subscriber = subscriber(traces, EnvFilter::new("off"), log);
    tracing::subscriber::with_default(subscriber, || tracing::info_span!("exported").in_scope(|| ()));
    let began = Instant::now();
    guard.shutdown(Duration::from_millis(700)).await;
    let took = began.elapsed();
    let (preface, _stream) = tokio::time::timeout(Duration::from_secs(30), hearing).await.unwrap().unwrap();
    assert_eq!(&preface, b"PRI * HTTP/2.0");
    took
}
