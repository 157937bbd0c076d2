//! What each group runs, as data.

use super::{Group, Length};
use crate::terminal;

/// One thing that can pass or fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Its name in the output and of its log.
    pub(super) name: &'static str,
    /// What it does.
    pub(super) work: Work,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A command of cargo that passes or fails as one.
    Cargo(&'static [&'static str]),
    /// The documentation, where every warning is an error.
    Documentation,
    /// Tests of cargo, counted one by one.
    CargoTest(&'static [&'static str]),
    /// Tests in Python, counted one by one.
    Pytest,
    /// The house rules.
    Tidy,
    /// Committed files against their generators.
    Generated,
    /// Bring up the servers that integration tests need.
    Servers,
    /// Bring up everything.
    Stack,
}

/// The one way of building: without the examples, features of some dependencies would be others, and all would be built
/// twice.
const BUILD: &[&str] = &["build", "--workspace", "--bins", "--examples"];

const UNIT: &[Step] = &[
    Step { name: "format", work: Work::Cargo(&["fmt", "--all", "--check", "--", "--color=never"]) },
    Step { name: "tidy", work: Work::Tidy },
    Step {
        name: "lint",
        work: Work::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    },
    Step { name: "build", work: Work::Cargo(BUILD) },
    Step { name: "generated", work: Work::Generated },
    Step {
        name: "unit-tests",
        work: Work::CargoTest(&["test", "--workspace", "--lib", "--bins", "--no-fail-fast"]),
    },
    Step { name: "documentation", work: Work::Documentation },
];

const INTEGRATION: &[Step] = &[
    // The tests start programs: those of before a change would prove nothing of it.
    Step { name: "tested-programs", work: Work::Cargo(BUILD) },
    Step { name: "servers", work: Work::Servers },
    Step { name: "aws-endpoint-tests", work: Work::Pytest },
    Step {
        name: "integration-tests",
        work: Work::CargoTest(&["test", "--workspace", "--test", "integration", "--no-fail-fast"]),
    },
];

const SYSTEM: &[Step] = &[
    Step { name: "programs", work: Work::Cargo(BUILD) },
    Step { name: "stack", work: Work::Stack },
    Step {
        name: "system-tests",
        work: Work::CargoTest(&["test", "--workspace", "--test", "system", "--no-fail-fast"]),
    },
    Step { name: "selected-faults", work: Work::CargoTest(SELECTED_FAULTS) },
];

/// Faults that every run of all tests meets: of each kind the one that says most for its time.
const SELECTED_FAULTS: &[&str] = &[
    "test",
    "--workspace",
    "--test",
    "faults",
    "--no-fail-fast",
    "--",
    "--test-threads=1",
    "a_killed_provisioner_is_replaced",
    "a_sleeper_that_wakes_changes_nothing",
    "a_killed_broker_loses_nothing",
    "a_killed_postgres_loses_nothing_that_was_accepted",
    "a_black_hole_swallows_only_its_own",
    "nonsense_is_set_aside_and_everything_else_goes_on",
    "a_seed_is_the_same_storm_again",
];

const FAULTS: &[Step] = &[
    Step { name: "fault-programs", work: Work::Cargo(BUILD) },
    Step { name: "fault-stack", work: Work::Stack },
    Step {
        name: "fault-tests",
        work: Work::CargoTest(&[
            "test",
            "--workspace",
            "--test",
            "faults",
            "--no-fail-fast",
            "--",
            "--test-threads=1",
        ]),
    },
];

/// At full length those faults last longer too whose tests need a server of their own before the API server.
const FAULTS_AT_FULL_LENGTH: &[Step] = &[
    FAULTS[0],
    FAULTS[1],
    FAULTS[2],
    Step {
        name: "long-integration-tests",
        work: Work::CargoTest(&[
            "test",
            "--workspace",
            "--test",
            "integration",
            "--no-fail-fast",
            "--",
            "errors_now_and_then_are_outlived_and_errors_without_end_are_not_asked_for",
        ]),
    },
];

impl Group {
    /// What runs when no group is named: everything but what repeats a group's selection in full.
    pub(super) const USUAL: [Self; 3] = [Self::Unit, Self::Integration, Self::System];

    /// Its steps in order.
    pub(super) fn steps(self, length: Length) -> &'static [Step] {
        match self {
            Self::Unit => UNIT,
            Self::Integration => INTEGRATION,
            Self::System => SYSTEM,
            Self::Faults if length == Length::Full => FAULTS_AT_FULL_LENGTH,
            Self::Faults => FAULTS,
        }
    }

    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Integration => "integration",
            Self::System => "system",
            Self::Faults => "faults",
        }
    }
}

impl Step {
    /// Whether it needs what an earlier step of its group has brought up or built.
    pub(super) fn is_foundation(self) -> bool {
        matches!(self.work, Work::Servers | Work::Stack) || self.name.ends_with("programs")
    }

    fn describe(self) -> String {
        match self.work {
            Work::Cargo(words) | Work::CargoTest(words) => format!("cargo {}", words.join(" ")),
            Work::Documentation => "cargo doc, with every warning an error".to_owned(),
            Work::Pytest => "pytest of the AWS endpoint".to_owned(),
            Work::Tidy => "the house rules".to_owned(),
            Work::Generated => "cargo xtask generate --check".to_owned(),
            Work::Servers => "start Postgres, Kafka, an API server, the AWS endpoint".to_owned(),
            Work::Stack => "start the whole stack in .slipway/test".to_owned(),
        }
    }
}

/// Prints the groups with their steps.
pub(super) fn print(groups: &[Group], length: Length) {
    for group in groups {
        terminal::print(group.name());
        for step in group.steps(length) {
            terminal::print(&format!("  {:<22} {}", step.name, step.describe()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::ValueEnum;

    use super::*;

    fn steps(length: Length) -> impl Iterator<Item = &'static Step> {
        Group::value_variants().iter().flat_map(move |group| group.steps(length))
    }

    #[test]
    fn names_of_steps_are_unique_because_they_name_logs() {
        let mut names: Vec<&str> = steps(Length::Full).map(|step| step.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_build_and_test_is_of_the_whole_workspace() {
        for step in steps(Length::Full) {
            if let Work::Cargo(words) | Work::CargoTest(words) = step.work
                && words[0] != "fmt"
            {
                assert!(
                    words.contains(&"--workspace"),
                    "{}: other features would be other builds",
                    step.name
                );
            }
        }
    }

    #[test]
    fn what_tests_stand_on_comes_first() {
        for group in [Group::Integration, Group::System, Group::Faults] {
            let steps = group.steps(Length::Full);
            let last = steps.iter().rposition(|step| step.is_foundation()).expect("there is one");
            assert!(steps[last + 1..].iter().all(|step| !step.is_foundation()));
            assert!(last + 1 < steps.len());
        }
    }

    #[test]
    fn full_length_takes_nothing_away() {
        let all: Vec<&Step> = steps(Length::Full).collect();
        assert!(steps(Length::Usual).all(|step| all.contains(&step)));
        assert!(all.len() > steps(Length::Usual).count());
    }

    /// Whether a test of this name is somewhere in a folder.
    fn has_test(folder: &Path, name: &str) -> bool {
        let entries = std::fs::read_dir(folder).expect("a folder of tests").flatten();
        entries.map(|entry| entry.path()).any(|path| {
            if path.is_dir() {
                return has_test(&path, name);
            }
            std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&format!("fn {name}(")))
        })
    }

    /// A test program that knows none of the names passes: nothing failed.
    #[test]
    fn tests_that_are_named_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two levels deep");
        for step in steps(Length::Full) {
            let Work::CargoTest(words) = step.work else { continue };
            let mut words = words.iter().skip_while(|word| **word != "--test").skip(1);
            let Some(program) = words.next() else { continue };
            let folder = root.join("tests/tests").join(program);
            for name in words.filter(|word| !word.starts_with('-')) {
                assert!(has_test(&folder, name), "{}: there is no test {name} in {program}", step.name);
            }
        }
    }
}
