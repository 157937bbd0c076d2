//! The program `slipway-operator`: reads its configuration and runs, or prints the rights that it needs.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use operator::{Args, rights::Rights};

/// Of all that a pass costs, glibc's allocator took two fifths: what one thread allocates another one frees. How soon it gives back what
/// nobody uses is set in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let command = Args::command()
        .subcommand(Rights::command())
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true);
    let matches = command.get_matches();
    if let Some((_, matches)) = matches.subcommand() {
        return print(matches);
    }
    match Args::from_arg_matches(&matches) {
        Ok(args) => runtime::program::main(operator::run(args)),
        Err(error) => error.exit(),
    }
}

fn print(matches: &clap::ArgMatches) -> ExitCode {
    let rights = match Rights::from_arg_matches(matches) {
        Ok(rights) => rights,
        Err(error) => error.exit(),
    };
    let printed = rights.print().map_err(std::io::Error::other);
    match printed.and_then(|text| std::io::stdout().write_all(text.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => runtime::program::exit(Err::<(), _>(error)),
    }
}
