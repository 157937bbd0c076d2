//! The standard metrics of a process, read from `/proc/self` when somebody asks.
//!
//! What cannot be read is left out: a scrape never fails because of it, and a wrong zero is never shown.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Ticks a second of the times in `/proc`: fixed by the kernel's interface on every machine we run on.
const TICKS: f64 = 100.0;

/// Encodes the state of this process.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(stat) = read("/proc/self/stat").as_deref().and_then(Stat::parse) {
            encode_stat(&mut encoder, &stat)?;
        }
        if let Some(status) = read("/proc/self/status") {
            encode_memory(&mut encoder, &status)?;
        }
        if let Some(open) = open_files() {
            gauge(&mut encoder, "process_open_fds", "Open file descriptors.", open)?;
        }
        if let Some(limit) = max_files() {
            gauge(&mut encoder, "process_max_fds", "Highest number of open file descriptors.", limit)?;
        }
        Ok(())
    }
}

fn encode_stat(encoder: &mut DescriptorEncoder<'_>, stat: &Stat) -> Result<(), fmt::Error> {
    let cpu = ConstCounter::new(stat.cpu_ticks / TICKS);
    add(encoder, "process_cpu_seconds", "Processor time used, user and system.", &cpu)?;
    gauge(encoder, "process_threads", "Threads of the process.", stat.threads)?;
    let Some(boot) = read("/proc/stat").as_deref().and_then(|text| keyed(text, "btime")) else {
        return Ok(());
    };
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
    let began = ConstGauge::new(boot as f64 + stat.start_ticks / TICKS);
    add(encoder, "process_start_time_seconds", "Start of the process since 1970.", &began)
}

fn encode_memory(encoder: &mut DescriptorEncoder<'_>, status: &str) -> Result<(), fmt::Error> {
    for (key, name, help) in [
        ("VmRSS:", "process_resident_memory_bytes", "Memory held in pages of the machine."),
        ("VmSize:", "process_virtual_memory_bytes", "Memory mapped."),
    ] {
        if let Some(kib) = keyed(status, key) {
            gauge(encoder, name, help, kib.saturating_mul(1024))?;
        }
    }
    Ok(())
}

/// The parts of `/proc/self/stat` that are shown.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: f64,
    threads: i64,
    start_ticks: f64,
}

impl Stat {
    /// The second field, the name, may hold spaces and parentheses: counting starts behind its last parenthesis, where
    /// the first field is number 3 of proc(5).
    fn parse(text: &str) -> Option<Self> {
        let fields = text.rsplit_once(')')?.1.split_whitespace().collect::<Vec<_>>();
        let field = |number: usize| fields.get(number - 3).copied();
        let ticks = |number| field(number)?.parse::<f64>().ok();
        Some(Self {
            cpu_ticks: ticks(14)? + ticks(15)?,
            threads: field(20)?.parse().ok()?,
            start_ticks: ticks(22)?,
        })
    }
}

/// The first number of the line that begins with `key`.
fn keyed(text: &str, key: &str) -> Option<i64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// How many files the process may have open; `None` where nobody says, and where there is no limit.
pub(crate) fn max_files() -> Option<i64> {
    keyed(&read("/proc/self/limits")?, "Max open files")
}

fn open_files() -> Option<i64> {
    // The listing itself holds one descriptor open.
    let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    i64::try_from(count).ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> Result<(), fmt::Error> {
    add(encoder, name, help, &ConstGauge::new(value))
}

fn add(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_a_name_with_parentheses() {
        let text = "4242 (odd ) name) S 1 4242 4242 0 -1 4194560 1083 0 0 0 150 50 0 0 20 0 7 0 123400 226000000 560 \
                    18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let expected = Stat { cpu_ticks: 200.0, threads: 7, start_ticks: 123_400.0 };
        assert_eq!(Stat::parse(text), Some(expected));
    }

    #[test]
    fn what_is_cut_short_is_left_out() {
        assert_eq!(Stat::parse("4242 (name) S 1 2"), None);
        assert_eq!(Stat::parse(""), None);
        assert_eq!(keyed("VmRSS:\n", "VmRSS:"), None);
        assert_eq!(keyed("Max open files            unlimited            unlimited", "Max open files"), None);
    }

    #[test]
    fn keyed_lines_give_their_first_number() {
        assert_eq!(keyed("VmPeak:  9 kB\nVmRSS:\t  1234 kB\n", "VmRSS:"), Some(1234));
        assert_eq!(
            keyed(
                "Max open files            1024                 524288               files",
                "Max open files"
            ),
            Some(1024)
        );
        assert_eq!(keyed("cpu 1 2\nbtime 1700000000\n", "btime"), Some(1_700_000_000));
    }
}
