//! `slipway-provisioner`.

use clap::Parser as _;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    runtime::program::exit(provisioner::run(provisioner::Args::parse()).await)
}
