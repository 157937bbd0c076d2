//! What every program of Slipway needs to run: logs and traces, a way to stop, health, metrics, patience.
//!
//! *Invariant:* nothing here knows a database, a topic or a cluster; names of components, loops and metrics are given
//! by the programs. *Invariant:* the environment is read only through the clap groups, which programs flatten into
//! their own arguments.
//!
//! A program of ordinary shape needs [`Program`] alone:
//!
//! ```no_run
//! use clap::Parser;
//! use std::time::Duration;
//!
//! #[derive(Parser)]
//! struct Args {
//!     #[command(flatten)]
//!     telemetry: runtime::TelemetryArgs,
//!     #[command(flatten)]
//!     ops: runtime::OpsArgs,
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     runtime::program::main(run(Args::parse()))
//! }
//!
//! async fn run(args: Args) -> Result<(), runtime::program::Error> {
//!     let service = runtime::service!("slipway-example");
//!     let program = runtime::Program::start(service, &args.telemetry, &args.ops).await?;
//!     let stop = program.stop();
//!     let postgres = program.health.readiness.component("postgres");
//!     program.tasks.spawn("worker", async move {
//!         postgres.set_ok();
//!         stop.cancelled().await;
//!     });
//!     program.run(Duration::from_secs(20)).await
//! }
//! ```

pub mod backoff;
pub mod connections;
pub mod deadline;
pub mod failpoint;
pub mod health;
pub mod list;
pub mod metrics;
pub mod ops;
pub mod program;
pub mod shutdown;
pub mod telemetry;
pub mod trace;

pub use backoff::Backoff;
pub use deadline::{DeadlineExceeded, deadline};
pub use health::Health;
pub use list::Trimmed;
pub use metrics::Metrics;
pub use ops::OpsArgs;
pub use program::Program;
pub use shutdown::Tasks;
pub use telemetry::TelemetryArgs;
pub use trace::TraceContext;

/// The metrics library, so that programs register with the same version of it.
pub use prometheus_client;
/// The token that says "stop": clones share one state.
pub use tokio_util::sync::CancellationToken;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who is running: stands in every log line, in the build metric and in exported traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Name of the program, for example `slipway-operator`.
    pub name: &'static str,
    /// Version of the program's crate.
    pub version: &'static str,
}

/// Makes a [`Service`] with the version of the calling crate.
#[macro_export]
macro_rules! service {
    ($name:expr) => {
        $crate::Service { name: $name, version: env!("CARGO_PKG_VERSION") }
    };
}

/// Chooses the cryptography of every TLS connection of this process; to be called before anything opens one.
///
/// Two providers may be linked through different libraries, and rustls then refuses to guess. Calling it again, or after
/// somebody else chose, changes nothing.
pub fn install_crypto() {
    // An error only says that a provider stands already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Locks a mutex whose holder may have panicked: our critical sections leave no half-made state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
