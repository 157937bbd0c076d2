//! The command line as types: what can be asked for, with its help. The only place that reads the environment, through
//! clap. It decides nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Parser, Subcommand, ValueEnum};
use secrecy::SecretString;

use crate::noun::{clusters, completions, contexts, databases, dead_letters, operations, parked, unclaimed};

const EXAMPLES: &str = "Examples:
  slipway contexts set dev --api-url http://127.0.0.1:8080 --token-stdin < token
  slipway databases create trades --region eu-west-1 --wait
  slipway databases connect trades
  slipway operations list -o wide

Exit codes:
  0 done   1 failed   2 wrong usage or input   3 not found   4 not allowed
  5 conflict or failed precondition   124 out of time   130 interrupted
  141 nobody reads on what is watched
  of databases diff: 0 nothing would change   1 something would   6 failed";

/// QuestDB databases, each on a machine of its own.
#[derive(Debug, Parser)]
#[command(name = "slipway", version, max_term_width = 100, after_help = EXAMPLES, subcommand_required = true)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// The noun.
    #[command(subcommand)]
    pub command: Command,
}

/// The nouns.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create, look at, change, delete and connect to databases
    #[command(subcommand, visible_aliases = ["database", "db"])]
    Databases(Box<databases::Command>),
    /// Look at what was asked for, and follow it
    #[command(subcommand, visible_aliases = ["operation", "op"])]
    Operations(operations::Command),
    /// Look at and register Kubernetes clusters
    #[command(subcommand, visible_alias = "cluster")]
    Clusters(clusters::Command),
    /// Look at records that could not be carried out, and deal with them
    #[command(subcommand, visible_aliases = ["dead-letter", "dl"])]
    DeadLetters(dead_letters::Command),
    /// Look at instructions that wait for their cluster
    #[command(subcommand)]
    Parked(parked::Command),
    /// Look at what clusters hold although nobody can say why
    #[command(subcommand)]
    Unclaimed(unclaimed::Command),
    /// Keep addresses and tokens of several installations
    #[command(subcommand, visible_alias = "context")]
    Contexts(contexts::Command),
    /// Print a shell's completions
    Completions(completions::Shell),
    /// Print the version of this program and of the API
    Version,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Context to use instead of the current one
    #[arg(long, global = true, env = "SLIPWAY_CONTEXT", value_name = "NAME", hide_env_values = true)]
    pub context: Option<String>,
    /// Address of the API
    #[arg(long, global = true, env = "SLIPWAY_API", value_name = "URL", hide_env_values = true)]
    pub api_url: Option<String>,
    /// Bearer token; the environment or a context keeps it out of the list of processes
    #[arg(long, global = true, env = "SLIPWAY_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<SecretString>,
    /// Tenant to act for, where the token may act for several
    #[arg(long, global = true, env = "SLIPWAY_TENANT", value_name = "TENANT", hide_env_values = true)]
    pub tenant: Option<String>,
    /// How to print data
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// No colours
    #[arg(long, global = true, env = "NO_COLOR", value_parser = FalseyValueParser::new(), hide_env_values = true)]
    pub no_color: bool,
    /// No progress and no hints
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell of every request
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Longest time the whole command may take, such as 90s or 10m [default: 30s, waiting 30m]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Directory of configuration files
    #[arg(long, global = true, env = "XDG_CONFIG_HOME", hide = true)]
    pub config_home: Option<PathBuf>,
    /// Home directory
    #[arg(long, global = true, env = "HOME", hide = true)]
    pub home: Option<PathBuf>,
}

/// How to print data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns
    Table,
    /// More columns
    Wide,
    /// JSON, as the API speaks it
    Json,
    /// YAML of the same
    Yaml,
    /// Only names that other commands take
    Name,
}

/// Waiting for an operation.
#[derive(Debug, Clone, Copy, Args)]
pub struct Wait {
    /// Wait until it is done, showing its steps; for 30m unless --timeout says otherwise
    #[arg(long)]
    pub wait: bool,
}

/// What was given as a flag, which counts for more than the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own, none depends on another")]
pub struct Given {
    /// `--context`.
    pub context: bool,
    /// `--api-url`.
    pub api_url: bool,
    /// `--token`.
    pub token: bool,
    /// `--tenant`.
    pub tenant: bool,
}

impl Given {
    /// Looks where the values came from.
    pub fn of(matches: &ArgMatches) -> Self {
        let flag = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        Self {
            context: flag("context"),
            api_url: flag("api_url"),
            token: flag("token"),
            tenant: flag("tenant"),
        }
    }
}

/// A length of time: a number of seconds, or with units such as `90s`, `10m`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a length of time such as 90s, 10m or 1h30m");
    let length = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|length| Duration::try_from(length).ok())
            .ok_or_else(wrong)?,
    };
    // Within a century, so that adding it to the present cannot overflow.
    let century = Duration::from_hours(24 * 36_525);
    if length.is_zero() || length > century { Err(wrong()) } else { Ok(length) }
}

/// `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn given(arguments: &[&str]) -> (Cli, Given) {
        use clap::FromArgMatches;
        let matches = Cli::command().try_get_matches_from(arguments).unwrap();
        (Cli::from_arg_matches(&matches).unwrap(), Given::of(&matches))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_are_told_from_the_rest_wherever_they_stand() {
        let (_, first) = given(&["slipway", "--context", "dev", "databases", "list"]);
        let (cli, last) = given(&["slipway", "databases", "list", "--context", "dev"]);
        assert_eq!(cli.global.context.as_deref(), Some("dev"));
        assert!(first.context && last.context);
        assert!(!first.api_url && !first.token && !first.tenant);
    }

    #[test]
    fn a_token_is_not_in_the_debug_form() {
        let (cli, _) = given(&["slipway", "--token", "swordfish", "version"]);
        assert!(!format!("{cli:?}").contains("swordfish"));
    }

    #[test]
    fn lengths_of_time() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5_400), ("2h", 7_200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "-5s", "soon", "10 parsecs", "99999999999999999999", "9999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pairs() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        for text in ["", "a", "=b"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }

    /// The words of a command before what a shell makes of its output, without what stands for more of them.
    fn words(command: &str) -> Vec<String> {
        let (mut words, mut quote) = (vec![String::new()], None);
        for letter in command.chars() {
            match (quote, letter) {
                (None, '|' | '#' | '<' | '>') => break,
                (None, '\'' | '"') => quote = Some(letter),
                (None, ' ') => words.push(String::new()),
                (Some(open), _) if open == letter => quote = None,
                _ => words.last_mut().unwrap().push(letter),
            }
        }
        words.retain(|word| !word.is_empty() && word != "…");
        words
    }

    #[test]
    fn what_the_guides_have_people_type_can_be_typed() {
        let documents = [
            include_str!("../../../deploy/operator/README.md"),
            include_str!("../../../docs/alerts.md"),
            include_str!("../../../docs/upgrading.md"),
            include_str!("../../../README.md"),
        ];
        let mut typed = 0;
        for document in documents {
            let lines = document.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned);
            // What stands between back-ticks may go on in the next line.
            let within = document.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " "));
            for command in lines.chain(within).filter(|code| code.starts_with("slipway ")) {
                let refused = Cli::command().try_get_matches_from(words(&command)).err();
                let wrong = refused.filter(clap::Error::use_stderr);
                assert!(wrong.is_none(), "{command}: {}", wrong.unwrap());
                typed += 1;
            }
        }
        assert!(typed > 40, "{typed}");
    }

    /// Every help text, so that a change of one is seen in review.
    #[test]
    fn help() {
        let mut texts = String::new();
        collect(Cli::command().term_width(100), &mut texts);
        insta::assert_snapshot!(texts);
    }

    fn collect(command: clap::Command, texts: &mut String) {
        use std::fmt::Write;
        let mut command = command;
        command.build();
        for sub in command.get_subcommands_mut() {
            if sub.get_name() == "help" {
                continue;
            }
            writeln!(texts, "=== {}\n", sub.get_bin_name().unwrap_or_default()).unwrap();
            // The global options are the same everywhere: shown once, at the root.
            let help = sub.clone().term_width(100).render_long_help().to_string();
            let own = help.split("Global options:").next().unwrap_or_default();
            writeln!(texts, "{}", own.trim_end()).unwrap();
            if let Some((_, after)) = help.split_once("Examples:") {
                writeln!(texts, "\nExamples:{}", after.trim_end()).unwrap();
            }
            texts.push('\n');
            collect(sub.clone().term_width(100), texts);
        }
    }

    #[test]
    fn root_help() {
        insta::assert_snapshot!(Cli::command().term_width(100).render_long_help().to_string());
    }
}
