//! A subscriber shaped like the real one whose lines land in memory.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use serde_json::Value;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::{JsonLayer, provider, subscriber, traces};
use crate::{Service, lock};

pub(crate) const SERVICE: Service = Service { name: "slipway-example", version: "1.2.3" };

/// A second one beside that of any test. While there is only one, `tracing` asks whichever subscriber the thread has that comes
/// by a line of code first, and a thread of another test has none: the line would be silent for all.
static BESIDE: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));

/// Collects what is written.
#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    /// The lines so far, each parsed.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text()
            .lines()
            .map(|line| serde_json::from_str(line).expect("every line is one JSON object"))
            .collect()
    }

    /// What was written so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(lock(&self.0).clone()).expect("logs are UTF-8")
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Capture {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}

/// The real subscriber without an exporter, filtered by `directives`, writing to `capture`.
pub(crate) fn dispatch(directives: &str, capture: Capture) -> tracing::Dispatch {
    LazyLock::force(&BESIDE);
    let provider = provider(SERVICE, None).expect("no endpoint, nothing to refuse");
    let filter = EnvFilter::try_new(directives).expect("directives of a test");
    let traces = traces(&provider, SERVICE, false);
    tracing::Dispatch::new(subscriber(traces, filter, JsonLayer::new(SERVICE, capture)))
}

/// Runs `body` under the real subscriber and gives back what it logged.
pub(crate) fn logged(directives: &str, body: impl FnOnce()) -> Vec<Value> {
    let capture = Capture::default();
    tracing::dispatcher::with_default(&dispatch(directives, capture.clone()), body);
    capture.lines()
}

/// Runs `body` where spans have trace ids.
pub(crate) fn with_traces(body: impl FnOnce()) {
    logged("info", body);
}
