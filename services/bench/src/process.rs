//! A program of the product that a bench starts for itself, and what it costs as the kernel counts it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use testkit::stack;
use tokio::process::{Child, Command};

use crate::pace::until;

/// How long a program may take to become ready.
const READY: Duration = Duration::from_secs(30);

/// The operator's requests to the API server, once they are over.
pub(crate) const REQUESTS: &str = "rest_client_requests_total";

/// Methods by which something is written.
const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// The most memory that was ever resident, as the kernel calls it.
const PEAK: &str = "VmHWM:";

/// A running program; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    client: reqwest::Client,
    ops: String,
}

impl Process {
    /// Starts a program of the release build and waits until it says that it is ready.
    pub(crate) async fn start(
        program: &str,
        words: &[&str],
        environment: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let log = log(program)?;
        let child = Command::new(stack().programs.join(program))
            .args(words)
            .env("SLIPWAY_OPS_LISTEN", &listen)
            .env("SLIPWAY_LOG_FORMAT", "json")
            .env("KAFKA_BOOTSTRAP", &stack().kafka_bootstrap)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let mut process = Self { child, client: testkit::http(), ops: format!("http://{listen}") };
        process.ready().await?;
        Ok(process)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let Self { child, client, ops } = self;
        let url = format!("{ops}/readyz");
        until(READY, "a program to be ready", async || {
            if let Some(status) = child.try_wait()? {
                bail!("a program ended before it was ready: {status}");
            }
            let answer = client.get(&url).send().await;
            Ok(answer.is_ok_and(|answer| answer.status().is_success()).then_some(()))
        })
        .await
    }

    /// Processor time used so far, in seconds.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        cpu(self.id()?)
    }

    /// The most memory it ever had resident, in MB.
    pub(crate) fn peak(&self) -> anyhow::Result<f64> {
        peak(self.id()?)
    }

    /// Memory that it has resident now, in MB.
    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        parse_memory(&read(self.id()?, "status")?, "VmRSS:").context("an unusual /proc/PID/status")
    }

    /// The sum of all lines of a metric whose labels hold `label`.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> anyhow::Result<f64> {
        let text = self.metrics().await?;
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Requests by which an operator wrote to the API server, whatever came of them: all but those about its Lease.
    pub(crate) async fn writes(&self) -> anyhow::Result<usize> {
        Ok(writes(&self.metrics().await?))
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self.client.get(format!("{}/metrics", self.ops)).send().await?.text().await?)
    }

    fn id(&self) -> anyhow::Result<u32> {
        self.child.id().context("the program has ended")
    }

    /// Ends it at once. What it held in Kafka ends with its session: groups of benches are used once.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Processor time of a process, in seconds, by its own clock: the kernel's tables count in hundredths of a second, which is more
/// than an idle program uses in one.
pub(crate) fn cpu(id: u32) -> anyhow::Result<f64> {
    let clock =
        clock_getcpuclockid(Pid::from_raw(i32::try_from(id)?)).context("finding a program's clock")?;
    Ok(Duration::from(clock.now().context("reading a program's clock")?).as_secs_f64())
}

/// The most memory that a process ever had resident, in MB.
pub(crate) fn peak(id: u32) -> anyhow::Result<f64> {
    parse_memory(&read(id, "status")?, PEAK).context("an unusual /proc/PID/status")
}

fn read(id: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{id}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))
}

fn writes(metrics: &str) -> usize {
    let is_write = |line: &&str| {
        let writes = WRITES.iter().any(|method| line.contains(&format!("method=\"{method}\"")));
        line.starts_with(REQUESTS) && writes && !line.contains("resource=\"leases\"")
    };
    metrics.lines().filter(is_write).filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
}

fn parse_memory(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u32 = line.split_whitespace().next()?.parse().ok()?;
    Some(f64::from(kib) * 1_024.0 / 1_000_000.0)
}

/// A port that nobody has just now.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    // It could be taken before the program has it: then the program says so and the slice fails.
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("finding a port")?.local_addr()?.port())
}

fn log(program: &str) -> anyhow::Result<std::fs::File> {
    let path: PathBuf = stack().state_dir.join("logs").join(format!("bench-{program}.log"));
    ensure!(path.parent().is_some_and(std::path::Path::is_dir), "the stack has no folder of logs");
    std::fs::File::create(&path).with_context(|| format!("making {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_understood() {
        assert_eq!(parse_memory("Name:\tx\nVmHWM:\t   15625 kB\nVmRSS:\t 1 kB\n", PEAK), Some(16.0));
        assert_eq!(parse_memory("VmRSS: 1 kB", PEAK), None);
    }

    #[test]
    fn only_what_was_written_counts_whatever_came_of_it() {
        let line = |name: &str, (code, method): (&str, &str), resource: &str, count: u32| {
            let host = "host=\"127.0.0.1:6443\"";
            format!("{name}{{code=\"{code}\",method=\"{method}\",{host},resource=\"{resource}\"}} {count}\n")
        };
        let counted = [
            line(REQUESTS, ("200", "PATCH"), "questdbs", 1),
            line(REQUESTS, ("409", "PUT"), "questdbs/status", 20),
            line(REQUESTS, ("<error>", "POST"), "secrets", 300),
            line(REQUESTS, ("200", "DELETE"), "pods", 4_000),
        ];
        let others = [
            line(REQUESTS, ("200", "GET"), "statefulsets", 50_000),
            line(REQUESTS, ("200", "PUT"), "leases", 50_000),
            line("aws_api_requests_total", ("200", "POST"), "questdbs", 50_000),
            format!("# HELP {REQUESTS} Requests, method=\"POST\" 50000\n"),
        ];
        let lines: Vec<String> = [counted, others].concat();
        assert_eq!(writes(&lines.concat()), 4_321);
    }

    #[test]
    fn this_process_uses_something() {
        let before = cpu(std::process::id()).unwrap();
        let sum = (0..1_000_000_u64).fold(0, |sum: u64, number| std::hint::black_box(sum ^ number));
        let after = cpu(std::process::id()).unwrap();
        assert!(before > 0.0 && after > before, "{before} {after} {sum}");
        assert!(cpu(u32::MAX).is_err());
        assert!(peak(std::process::id()).unwrap() > 1.0);
    }
}
