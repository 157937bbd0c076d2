//! `cargo xtask test`: everything that proves the project, in groups; what CI runs is this with no group named.
//!
//! The last line is `N passed, N failed, N skipped`; before it each failure has a line. *Invariant:* the stack of the tests is taken down again, however the
//! run ends, unless it was asked to stay.

mod failures;
mod plan;
mod run;
mod space;
mod tally;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use sandbox::install::Release;

use crate::workspace::Workspace;

/// Arguments of `test`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Groups to run; when none is named all of them, of the faults a selection
    #[arg(value_name = "GROUP")]
    groups: Vec<Group>,
    /// Show the groups and what they run, and run nothing
    #[arg(long)]
    list: bool,
    /// Leave the stack of the tests running, to look at it
    #[arg(long)]
    keep_stack: bool,
    /// Release of Kubernetes under the tests: before a release, all of them run on the oldest and on the newest one too. A stack
    /// that another one has left is to be taken down first
    #[arg(long, value_enum, default_value_t, value_name = "RELEASE")]
    kubernetes: Kubernetes,
    /// Passed on to the tests of cargo: a filter, or options of the test program
    #[arg(last = true, value_name = "ARGUMENT")]
    further: Vec<String>,
}

/// Releases of Kubernetes that the operator is supported on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Kubernetes {
    /// 1.33
    Oldest,
    /// 1.34
    #[default]
    Usual,
    /// 1.36
    Newest,
}

impl From<Kubernetes> for Release {
    fn from(release: Kubernetes) -> Self {
        match release {
            Kubernetes::Oldest => Self::Oldest,
            Kubernetes::Usual => Self::Usual,
            Kubernetes::Newest => Self::Newest,
        }
    }
}

/// Kinds of tests by what they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Group {
    /// Formatting, lints, house rules, generated files, tests without any server
    Unit,
    /// Tests against real Postgres, Kafka, API server and AWS endpoint
    Integration,
    /// Tests against the whole running system, and a selection of the faults
    System,
    /// Every fault, and a storm of them: kills, halts, black holes, nonsense, with the recovery times told
    Faults,
}

/// Runs the tests; the code is 1 when one failed, 130 when interrupted.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut groups = arguments.groups.clone();
    if groups.is_empty() {
        groups = Group::USUAL.to_vec();
    }
    groups.sort_unstable();
    groups.dedup();
    if arguments.list {
        plan::print(&groups);
        return Ok(ExitCode::SUCCESS);
    }
    run::run(&workspace.on(arguments.kubernetes.into()), &groups, arguments.keep_stack, &arguments.further)
}
