//! The program `bench-create-throughput`; what it measures is said in `bench::create`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::run(bench::create::measure)
}
