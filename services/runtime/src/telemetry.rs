//! Logs and traces of a program: what it is told on its command line, and the subscriber made of it.
//!
//! Logs go to the error stream, one line an event, because the output stream belongs to data (`openapi`, `tokens`).
//! Traces are exported only where a collector is named; a trace id exists in any case. It never writes files and never
//! reads the environment by itself.

mod asked;
mod json;

use std::error::Error as StdError;
use std::io::IsTerminal;
use std::str::FromStr;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::Service;
use asked::Asked;
use json::JsonLayer;

/// What is logged unless told otherwise: our sentences, and only trouble from libraries that narrate every packet, or name every turn.
pub const DEFAULT_FILTER: &str = "info,hyper=warn,hyper_util=warn,h2=warn,tower=warn,tonic=warn,rustls=warn,\
    reqwest=warn,sqlx::query=warn,sqlx::postgres::notice=warn,aws_config=warn,aws_runtime=warn,\
    aws_smithy_runtime=warn,aws_smithy_runtime_api=warn,librdkafka=warn,kube_client=warn,\
    kube_runtime::controller=warn,opentelemetry=warn";

/// How long a dropped [`Guard`] waits for the collector.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);

/// How long the exporter waits for one answer of the collector.
const EXPORT_DEADLINE: Duration = Duration::from_secs(5);

/// Spans with this target only name a task in the log. As part of a trace they would make one trace, without end, of
/// everything that the task ever handles.
pub(crate) const TASK_TARGET: &str = "slipway::task";

/// Where kube names each turn of its controllers. A turn has a span of its own within that, often in the trace of whoever asked for it,
/// beside which this one would be a trace that says nothing; and a line of the log has what it is about from there.
const TURNS: &str = "kube_runtime::controller";

/// Where kube writes down the whole answer of an API server that it could not read, at `warn`: it may be a Secret's, values and
/// all. The error itself comes to whoever asked, who says so without the answer. Only of this one module: its children (loading of
/// certificates) show no answers.
const SHOWS_ANSWERS: &str = "kube_client::client";

/// Arguments of logs and traces, to be flattened into a program's own.
#[derive(Debug, Clone, clap::Args)]
// Without the two `None`s the comment above would become the description of the program.
#[command(next_help_heading = "Telemetry", about = None, long_about = None)]
pub struct TelemetryArgs {
    /// What to log: directives such as `info,provisioner=debug,sqlx=warn`
    #[arg(long = "log", env = "SLIPWAY_LOG", value_name = "DIRECTIVES", default_value = DEFAULT_FILTER, hide_default_value = true)]
    pub log: LogFilter,

    /// Layout of log lines [default: human on a terminal, json elsewhere]
    #[arg(long = "log-format", env = "SLIPWAY_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Where to export traces to by OTLP over gRPC, such as `http://collector:4317` [default: nowhere]
    #[arg(long = "otlp-endpoint", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
}

impl Default for TelemetryArgs {
    fn default() -> Self {
        Self { log: LogFilter(DEFAULT_FILTER.to_owned()), log_format: None, otlp_endpoint: None }
    }
}

/// Directives that are known to parse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl FromStr for LogFilter {
    type Err = tracing_subscriber::filter::ParseError;

    fn from_str(directives: &str) -> Result<Self, Self::Err> {
        // A variable that is set to nothing is meant as not set; the library would switch all but errors off.
        let directives = if directives.trim().is_empty() { DEFAULT_FILTER } else { directives };
        EnvFilter::try_new(directives)?;
        Ok(Self(directives.to_owned()))
    }
}

/// Layout of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line, dotted fields flat at its top level.
    Json,
    /// For reading on a terminal.
    Human,
}

/// Telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directives do not parse (they did when the arguments were read).
    #[error("parse the log directives {directives:?}")]
    ParseFilter {
        /// As given.
        directives: String,
        /// What is wrong.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The collector's address has a scheme that we cannot speak.
    #[error(
        "export traces to {endpoint:?}: only http:// addresses are supported, put a local collector in between"
    )]
    UseEndpoint {
        /// As given.
        endpoint: String,
    },
    /// The exporter refuses its configuration.
    #[error("build the trace exporter for {endpoint:?}")]
    BuildExporter {
        /// As given.
        endpoint: String,
        /// What is wrong.
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// A subscriber stands already.
    #[error("install the log subscriber")]
    Install(#[source] tracing_subscriber::util::TryInitError),
}

/// Starts logs and traces of this process and chooses its cryptography; the first thing that `main` does. With a
/// collector configured it must run inside the asynchronous runtime.
pub fn init(service: Service, args: &TelemetryArgs) -> Result<Guard, Error> {
    crate::install_crypto();
    let provider = provider(service, args.otlp_endpoint.as_deref())?;
    let filter = EnvFilter::try_new(&args.log.0)
        .map_err(|source| Error::ParseFilter { directives: args.log.0.clone(), source })?;
    let terminal = std::io::stderr().is_terminal();
    let format = args.log_format.unwrap_or(if terminal { LogFormat::Human } else { LogFormat::Json });
    let log = match format {
        LogFormat::Json => JsonLayer::new(service, std::io::stderr).boxed(),
        LogFormat::Human => {
            tracing_subscriber::fmt::layer().with_ansi(terminal).with_writer(std::io::stderr).boxed()
        }
    };
    let traces = traces(&provider, service, named(args.otlp_endpoint.as_deref()).is_some());
    subscriber(traces, filter, log).try_init().map_err(Error::Install)?;
    log_panics();
    Ok(Guard { provider: Some(provider) })
}

/// Keeps telemetry alive; when it goes, what is not yet exported is sent, for a bounded time.
#[derive(Debug)]
#[must_use = "telemetry ends when the guard is dropped"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Guard {
    #[cfg(test)]
    pub(crate) const fn empty() -> Self {
        Self { provider: None }
    }

    /// Sends what is not yet exported, for at most `limit`, without blocking the runtime that carries the export.
    pub async fn shutdown(mut self, limit: Duration) {
        let Some(provider) = self.provider.take() else { return };
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(limit));
        // The processor bounds itself; the outer limit is for the case that it does not.
        let flushed = tokio::time::timeout(limit.saturating_add(Duration::from_millis(500)), flush).await;
        if !matches!(flushed, Ok(Ok(Ok(())))) {
            tracing::warn!(limit_ms = millis(limit), "some traces could not be exported before the end");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take() {
            // Nobody is left to hear of a failure: the ordinary way out is `shutdown`, which tells.
            let _ = provider.shutdown_with_timeout(FLUSH_DEADLINE);
        }
    }
}

/// An error with its causes on one line, for the place that handles and logs it.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    std::iter::successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// A duration as the whole milliseconds of a `duration_ms` field.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The collector, where one is named: a variable that is set to nothing is meant as not set.
fn named(endpoint: Option<&str>) -> Option<&str> {
    endpoint.map(str::trim).filter(|endpoint| !endpoint.is_empty())
}

fn provider(service: Service, endpoint: Option<&str>) -> Result<SdkTracerProvider, Error> {
    let builder = SdkTracerProvider::builder().with_resource(
        Resource::builder()
            .with_service_name(service.name)
            .with_attribute(opentelemetry::KeyValue::new("service.version", service.version))
            .build(),
    );
    let Some(endpoint) = named(endpoint) else {
        // Spans are named and numbered but not recorded. A caller's wish to be sampled is passed on all the same.
        return Ok(builder.with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff))).build());
    };
    if !endpoint.starts_with("http://") {
        return Err(Error::UseEndpoint { endpoint: endpoint.to_owned() });
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_DEADLINE)
        .build()
        .map_err(|source| Error::BuildExporter { endpoint: endpoint.to_owned(), source })?;
    Ok(builder
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_batch_exporter(exporter)
        .build())
}

/// Traces below, logs above. The directives rule the log alone: a quiet log must not cut traces into pieces.
fn subscriber<L>(
    traces: Traces,
    filter: EnvFilter,
    log: L,
) -> impl Subscriber + Send + Sync + for<'a> LookupSpan<'a> + use<L>
where
    L: Layer<TracedRegistry> + Send + Sync + 'static,
{
    Registry::default().with(traces).with(log.with_filter(Asked(filter)))
}

type Traces = tracing_subscriber::filter::Filtered<
    tracing_opentelemetry::OpenTelemetryLayer<Registry, opentelemetry_sdk::trace::SdkTracer>,
    FilterFn<fn(&Metadata<'_>) -> bool>,
    Registry,
>;
type TracedRegistry = tracing_subscriber::layer::Layered<Traces, Registry>;

/// Spans in their traces. What only a collector shows (thread, place in the source, how long a span was at work) is gathered, at
/// each entry of each span, only where they are exported.
fn traces(provider: &SdkTracerProvider, service: Service, are_exported: bool) -> Traces {
    let traced: fn(&Metadata<'_>) -> bool = |metadata| {
        *metadata.level() <= Level::INFO && ![TASK_TARGET, TURNS, SHOWS_ANSWERS].contains(&metadata.target())
    };
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(service.name))
        .with_location(are_exported)
        .with_threads(are_exported)
        .with_tracked_inactivity(are_exported)
        .with_filter(filter_fn(traced).with_max_level_hint(LevelFilter::INFO))
}

/// A panic becomes a log line like any other, instead of loose text between JSON lines.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        tracing::error!(
            panic.location = %location,
            thread.name = thread.name().unwrap_or("unnamed"),
            "panicked: {message}"
        );
    }));
}

#[cfg(test)]
pub(crate) mod test_support;

#[cfg(test)]
mod tests;
