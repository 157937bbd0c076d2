//! The program `bench-status-latency`; what it measures is said in `bench::status`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::run(bench::status::measure)
}
