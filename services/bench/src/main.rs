//! The program that `cargo xtask bench` calls; what each bench measures is said in its module.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::run()
}
