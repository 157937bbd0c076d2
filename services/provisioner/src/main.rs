//! `slipway-provisioner`.

use clap::Parser as _;

/// What one thread allocates another one frees, which glibc's allocator does slowly and gives little of back.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    runtime::program::main(provisioner::run(provisioner::Args::parse()))
}
