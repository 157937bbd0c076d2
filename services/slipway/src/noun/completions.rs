//! Completions of the command line for shells. They know commands and flags; they ask no API.

use clap::{Args, CommandFactory, ValueEnum};

use crate::cli::Cli;
use crate::error::Error;
use crate::session::Session;

/// `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(slipway completions bash)
  slipway completions zsh > \"${fpath[1]}/_slipway\"
  slipway completions fish > ~/.config/fish/completions/slipway.fish")]
pub struct Shell {
    /// The shell
    #[arg(value_enum)]
    shell: Kind,
}

/// Shells that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
}

/// Prints them.
pub fn run(session: &Session, shell: &Shell) -> Result<(), Error> {
    session.output.data(&text(shell.shell))
}

fn text(kind: Kind) -> String {
    let shell = match kind {
        Kind::Bash => clap_complete::Shell::Bash,
        Kind::Zsh => clap_complete::Shell::Zsh,
        Kind::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "slipway", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_noun() {
        for kind in Kind::value_variants() {
            let script = text(*kind);
            for noun in
                ["databases", "operations", "clusters", "dead-letters", "parked", "unclaimed", "contexts"]
            {
                assert!(script.contains(noun), "{kind:?} {noun}");
            }
        }
    }
}
