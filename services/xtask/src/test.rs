//! `cargo xtask test`: everything that proves the project, in groups; what CI runs is this with no group named.
//!
//! The last line is `N passed, N failed, N skipped`; before it each failure has a line. *Invariant:* the stack of the tests is taken down again, however the
//! run ends, unless it was asked to stay.

mod asked;
mod failures;
mod plan;
mod run;
mod space;
mod tally;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
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
    /// Let faults last as long as the promises about them say, an hour the longest; goes with the group faults, and takes two
    /// hours in all
    #[arg(long)]
    full_length: bool,
    /// Release of Kubernetes under the tests: before a release, those of the operator run on the oldest and on the newest one too. A
    /// stack that another one has left is to be taken down first
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
    /// Every fault, and a storm of them: kills, halts, black holes, nonsense, with the recovery times told; and each death of the
    /// operator
    Faults,
}

/// How long faults last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// As long as it takes to see what comes of them.
    Usual,
    /// As long as the promises about them say.
    Full,
}

impl Length {
    /// What was asked for; refused where there is nothing that would last longer.
    fn of(groups: &[Group], full: bool) -> anyhow::Result<Self> {
        if !full {
            return Ok(Self::Usual);
        }
        ensure!(groups == [Group::Faults], "--full-length is about the group faults: name it, and no other");
        Ok(Self::Full)
    }

    /// What the tests are told.
    fn told(self) -> &'static str {
        match self {
            Self::Usual => "0",
            Self::Full => "1",
        }
    }

    /// No step may take longer.
    fn limit(self) -> Duration {
        match self {
            Self::Usual => Duration::from_hours(1),
            Self::Full => Duration::from_hours(4),
        }
    }
}

/// Runs the tests; the code is 1 when one failed, 130 when interrupted.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut groups = arguments.groups.clone();
    if groups.is_empty() {
        groups = Group::USUAL.to_vec();
    }
    groups.sort_unstable();
    groups.dedup();
    let length = Length::of(&groups, arguments.full_length)?;
    if arguments.list {
        plan::print(&groups, length);
        return Ok(ExitCode::SUCCESS);
    }
    let workspace = workspace.on(arguments.kubernetes.into());
    run::run(&workspace, (&groups, length), arguments.keep_stack, &arguments.further)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_have_a_full_length() {
        assert_eq!(Length::of(&[Group::Faults], true).expect("faults alone"), Length::Full);
        for groups in [&Group::USUAL[..], &[Group::Unit], &[Group::System, Group::Faults], &[]] {
            assert!(Length::of(groups, true).is_err(), "{groups:?}");
            assert_eq!(Length::of(groups, false).expect("nothing was asked for"), Length::Usual);
        }
    }
}
