//! The program `slipway-operator`: reads its configuration and runs.

use clap::Parser as _;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let args = operator::Args::parse();
    runtime::program::exit(operator::run(args).await)
}
