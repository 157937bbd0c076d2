//! The frame of a program: everything of this crate started in the right order and ended in the opposite one.
//!
//! Start: cryptography and logs, signals, operations server. End: not ready, tasks drained, operations server, traces
//! flushed. So an orchestrator can watch the draining, and nothing is logged into the void. What the program does is not
//! known here.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{Health, Metrics, OpsArgs, Service, Tasks, TelemetryArgs, failpoint, ops, shutdown, telemetry};

/// How long the operations server may take to answer its last requests.
const OPS_DEADLINE: Duration = Duration::from_secs(1);

/// How long the last traces may take to be exported.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);

/// The component that fails until [`Program::run`]: before that a program may not even have said what it needs.
const START: &str = "start";

/// How long the end of a process waits for what its program left behind.
const LINGER: Duration = Duration::from_secs(1);

/// Runs a program, in a runtime of its own, to the end of its process: for `main` to return. *Invariant:* that end waits for no thread
/// that itself waits for others, such as for the answer to a look-up of a name, or for a program that gives tokens: neither can be
/// called off.
pub fn main<E: Into<shutdown::BoxError>>(program: impl Future<Output = Result<(), E>>) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit(Err::<(), _>(error)),
    };
    let code = exit(runtime.block_on(program));
    runtime.shutdown_timeout(LINGER);
    code
}

/// Turns the end of a program into its exit code, saying why it failed: in the log, or, if it failed before there was
/// one, on the error stream.
pub fn exit<E: Into<shutdown::BoxError>>(result: Result<(), E>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let error = error.into();
    let reason = telemetry::chain(error.as_ref());
    if tracing::dispatcher::has_been_set() {
        tracing::error!("ended: {reason}");
    } else {
        eprintln!("error: {reason}");
    }
    ExitCode::FAILURE
}

/// A running program. Dropping it without [`Program::run`] stops it at once.
#[derive(Debug)]
pub struct Program {
    /// Its tasks.
    pub tasks: Tasks,
    /// Its health, as `/healthz` and `/readyz` tell it.
    pub health: Health,
    /// Its metrics, as `/metrics` shows them.
    pub metrics: Metrics,
    ops: OpsServer,
    telemetry: telemetry::Guard,
}

#[derive(Debug)]
struct OpsServer {
    address: SocketAddr,
    stop: DropGuard,
    task: JoinHandle<()>,
}

/// A program did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Logs or traces.
    #[error("start telemetry")]
    Telemetry(#[source] telemetry::Error),
    /// Signals.
    #[error("prepare the shutdown")]
    Signals(#[source] shutdown::Error),
    /// The operations server.
    #[error("start the operations server")]
    Ops(#[source] ops::Error),
    /// A task that failed, or draining that took too long.
    #[error("run the tasks")]
    Tasks(#[source] shutdown::Error),
}

impl Program {
    /// Starts telemetry, signal handling and the operations server. Call it once, inside the runtime, before anything
    /// that logs or connects.
    pub async fn start(service: Service, telemetry: &TelemetryArgs, ops: &OpsArgs) -> Result<Self, Error> {
        let telemetry = telemetry::init(service, telemetry).map_err(Error::Telemetry)?;
        failpoint::from_environment();
        let stop = shutdown::on_signal().map_err(Error::Signals)?;
        let program = Self::assemble(service, ops, telemetry, stop).await?;
        tracing::info!(
            service.version = service.version,
            ops.address = %program.ops.address,
            "{} started",
            service.name
        );
        Ok(program)
    }

    /// Everything but what a process can have only once.
    async fn assemble(
        service: Service,
        ops: &OpsArgs,
        telemetry: telemetry::Guard,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let (health, metrics) = (Health::new(), Metrics::new(service));
        health.readiness.component(START).set_failing("the program is starting");
        let ops = OpsServer::start(ops, &health, &metrics).await.map_err(Error::Ops)?;
        Ok(Self { tasks: Tasks::new(stop), health, metrics, ops, telemetry })
    }

    /// The token that a signal or a failed task cancels.
    pub fn stop(&self) -> CancellationToken {
        self.tasks.stop()
    }

    /// Where the operations server listens.
    pub const fn ops_address(&self) -> SocketAddr {
        self.ops.address
    }

    /// Runs until a signal or a failed task, then ends everything; tasks get `drain` to finish. To be called once all is started:
    /// only from then on the program can be ready. An error names the task that failed; hand it to [`exit`].
    pub async fn run(self, drain: Duration) -> Result<(), Error> {
        let Self { tasks, health, metrics: _, ops, telemetry } = self;
        health.readiness.remove(START);
        let stop = tasks.stop();
        stop.cancelled().await;
        health.readiness.component("shutdown").set_failing("the program is stopping");
        let result = tasks.drain(drain).await;
        ops.end().await;
        if result.is_ok() {
            tracing::info!("ended");
        }
        telemetry.shutdown(FLUSH_DEADLINE).await;
        result.map_err(Error::Tasks)
    }
}

impl OpsServer {
    async fn start(args: &OpsArgs, health: &Health, metrics: &Metrics) -> Result<Self, ops::Error> {
        let listener = ops::bind(args).await?;
        let address = listener.local_addr().map_err(ops::Error::Serve)?;
        let stop = CancellationToken::new();
        let router = ops::router(health.clone(), metrics.clone());
        // Not one of the tasks: it is to answer until those have drained.
        let task = tokio::spawn(ops::serve(listener, router, stop.clone()));
        Ok(Self { address, stop: stop.drop_guard(), task })
    }

    async fn end(self) {
        let Self { address: _, stop, task } = self;
        let cut = task.abort_handle();
        drop(stop);
        if tokio::time::timeout(OPS_DEADLINE, task).await.is_err() {
            cut.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::test_support::SERVICE;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    const LONG: Duration = Duration::from_secs(30);

    async fn program() -> Program {
        let ops = OpsArgs { ops_listen: "127.0.0.1:0".parse().unwrap() };
        Program::assemble(SERVICE, &ops, telemetry::Guard::empty(), CancellationToken::new()).await.unwrap()
    }

    async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    async fn says(address: SocketAddr, what: &str) {
        while !ask(address, "/readyz").await.unwrap().contains(what) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn the_end_of_a_process_waits_for_no_thread_that_waits_for_others() {
        let (hold, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let code = main(async move {
                tokio::task::spawn_blocking(move || wait.recv());
                Ok::<(), String>(())
            });
            tell.send(code).unwrap();
        });
        assert!(told.recv_timeout(LONG).is_ok(), "it never ends");
        drop(hold);
    }

    #[tokio::test]
    async fn a_program_is_not_ready_before_it_runs() {
        let program = program().await;
        let (address, stop) = (program.ops_address(), program.stop());
        let answer = ask(address, "/readyz").await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("the program is starting"),
            "{answer}"
        );
        let running = tokio::spawn(program.run(LONG));
        tokio::time::timeout(LONG, says(address, "\"ready\":true")).await.unwrap();
        stop.cancel();
        tokio::time::timeout(LONG, running).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_draining_program_still_answers_and_says_that_it_is_not_ready() {
        let program = program().await;
        let (address, stop) = (program.ops_address(), program.stop());
        assert!(ask(address, "/metrics").await.unwrap().contains("slipway_build_info{"));
        let (asked, done) = oneshot::channel::<()>();
        let token = stop.clone();
        program.tasks.spawn("worker", async move {
            token.cancelled().await;
            done.await.ok();
        });
        let running = tokio::spawn(program.run(LONG));
        tokio::time::timeout(LONG, says(address, "HTTP/1.1 200 ")).await.unwrap();
        stop.cancel();
        tokio::time::timeout(LONG, says(address, "the program is stopping")).await.unwrap();
        assert!(ask(address, "/readyz").await.unwrap().starts_with("HTTP/1.1 503 "));
        assert!(ask(address, "/healthz").await.unwrap().starts_with("HTTP/1.1 200 "));
        asked.send(()).unwrap();
        tokio::time::timeout(LONG, running).await.unwrap().unwrap().unwrap();
        assert!(ask(address, "/healthz").await.is_err(), "the address is free again");
    }

    #[tokio::test]
    async fn a_failed_task_is_what_the_program_ends_with() {
        let program = program().await;
        program.tasks.spawn("sink", async { Err::<(), _>("no offsets") });
        let error = tokio::time::timeout(LONG, program.run(LONG)).await.unwrap().unwrap_err();
        assert_eq!(telemetry::chain(&error), "run the tasks: task \"sink\" failed: no offsets");
    }
}
