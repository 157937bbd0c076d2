//! The command line: what can be asked, and which module answers. Does nothing itself.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use sandbox::stack::Layout;
use sandbox::supervisor;

use crate::workspace::Workspace;
use crate::{bench, down, generate, status, test, tidy, up};

/// Builds, runs, tests and measures Slipway on this machine.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    places: Places,
    #[command(subcommand)]
    command: Command,
}

/// Where things are kept outside the checkout.
#[derive(Debug, Args)]
struct Places {
    /// Folder of installed servers, shared by all checkouts
    #[arg(long, env = "SLIPWAY_CACHE", global = true, value_name = "DIRECTORY")]
    cache: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install, build and start everything, then create a database in each region
    Up(up::Arguments),
    /// Stop everything that `up` and `test` started, and prove that nothing is left
    Down(down::Arguments),
    /// Show what runs
    Status,
    /// Prove the project: everything that CI runs
    Test(test::Arguments),
    /// Measure Slipway against the limits of this machine, in release builds
    Bench(bench::Arguments),
    /// Write the generated files anew
    Generate(generate::Arguments),
    /// Check the house rules that no compiler knows
    #[command(hide = true)]
    Tidy,
    /// Keep the programs of a stack running; started by `up`
    #[command(hide = true)]
    Supervise {
        /// State directory of the stack
        #[arg(long)]
        state: PathBuf,
    },
}

/// Runs the command line; the exit code tells how it went.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::find(cli.places.cache)?;
    match cli.command {
        Command::Up(arguments) => up::run(&workspace, &arguments),
        Command::Down(arguments) => down::run(&workspace, &arguments),
        Command::Status => Ok(status::run(&workspace)),
        Command::Test(arguments) => test::run(&workspace, &arguments),
        Command::Bench(arguments) => bench::run(&workspace, &arguments),
        Command::Generate(arguments) => generate::run(&workspace, &arguments),
        Command::Tidy => tidy::run(workspace.root()),
        Command::Supervise { state } => {
            supervisor::supervise(Layout::new(workspace.root(), state))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_read_as_people_write_them() {
        for words in [
            &["up", "--fresh", "--plain-aws", "--no-demo"][..],
            &["down", "--all-data"],
            &["status"],
            &["test", "unit", "system"],
            &["test", "--list"],
            &["test", "faults", "--full-length", "--", "a_black_hole"],
            &["bench", "B4", "--json", "results.json"],
            &["generate", "--check"],
        ] {
            let line = std::iter::once("cargo xtask").chain(words.iter().copied());
            assert!(Cli::try_parse_from(line).is_ok(), "{words:?}");
        }
        assert!(Cli::try_parse_from(["cargo xtask", "test", "no-such-group"]).is_err());
    }
}
