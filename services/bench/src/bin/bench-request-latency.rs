//! The program `bench-request-latency`; what it measures is said in `bench::request`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::run(bench::request::measure)
}
