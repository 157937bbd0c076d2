//! What each group runs, as data.

use super::{Group, Length, asked};
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
    CargoTest(Tests),
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

/// Tests of cargo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tests {
    /// The command.
    pub(super) words: &'static [&'static str],
    /// Parts of names: tests that have one of them in theirs are left out.
    pub(super) without: &'static [&'static str],
    /// Names of all that are run; every test when there are none.
    pub(super) only: &'static [&'static str],
    /// How many are run at once.
    pub(super) at_once: AtOnce,
    /// What the tests are told beside where the stack is.
    pub(super) told: &'static [(&'static str, &'static str)],
}

/// How many tests are run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtOnce {
    /// They harm what all use.
    One,
    /// One for each processor: they compute, or measure how long something takes.
    Computing,
    /// More than there are processors: they wait for servers, and share nothing but those.
    Waiting,
}

impl AtOnce {
    /// The number on so many processors; the test programs' own when there is none.
    pub(super) fn number(self, processors: usize) -> Option<usize> {
        match self {
            Self::One => Some(1),
            Self::Computing => None,
            // Two to a processor: three would keep all processors busy. Beyond eight it is the servers that are waited for.
            Self::Waiting => Some((2 * processors).min(8).max(processors)),
        }
    }
}

impl Tests {
    const fn of(words: &'static [&'static str]) -> Self {
        Self { words, without: &[], only: &[], at_once: AtOnce::Computing, told: &[] }
    }

    fn describe(self) -> String {
        let told: Vec<String> = self.told.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let told = told.concat();
        let words = asked::words(&self, &[]).unwrap_or_default().join(" ");
        let parted = if words.is_empty() { "" } else { " -- " };
        format!("{told}cargo {}{parted}{words}", self.words.join(" "))
    }
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
        work: Work::CargoTest(Tests::of(&["test", "--workspace", "--lib", "--bins", "--no-fail-fast"])),
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
        work: Work::CargoTest(Tests { without: WAITING, ..Tests::of(OF_INTEGRATION) }),
    },
    Step {
        name: "waiting-tests",
        work: Work::CargoTest(Tests {
            without: COMPUTING,
            at_once: AtOnce::Waiting,
            ..Tests::of(OF_INTEGRATION)
        }),
    },
];

const OF_INTEGRATION: &[&str] = &["test", "--workspace", "--test", "integration", "--no-fail-fast"];

/// Modules of integration tests that wait for an operator or for AWS nearly all of their time.
const WAITING: &[&str] = &["cloud_aws::", "operator::"];

/// The others: they keep the processors busy, or say how soon something has to be.
const COMPUTING: &[&str] = &["backend::", "bus::", "node_agent::", "provisioner::", "store::"];

const SYSTEM: &[Step] = &[
    Step { name: "programs", work: Work::Cargo(BUILD) },
    Step { name: "stack", work: Work::Stack },
    Step {
        name: "system-tests",
        work: Work::CargoTest(Tests::of(&["test", "--workspace", "--test", "system", "--no-fail-fast"])),
    },
    Step { name: "selected-faults", work: Work::CargoTest(Tests { only: SELECTED_FAULTS, ..ALL_FAULTS }) },
];

/// Faults that every run of all tests meets: of each kind the one that says most for its time.
const SELECTED_FAULTS: &[&str] = &[
    "a_killed_provisioner_is_replaced",
    "a_sleeper_that_wakes_changes_nothing",
    "a_killed_broker_loses_nothing",
    "a_killed_postgres_loses_nothing_that_was_accepted",
    "a_black_hole_swallows_only_its_own",
    "nonsense_is_set_aside_and_everything_else_goes_on",
    "a_seed_is_the_same_storm_again",
];

const ALL_FAULTS: Tests = Tests {
    at_once: AtOnce::One,
    ..Tests::of(&["test", "--workspace", "--test", "faults", "--no-fail-fast"])
};

/// An integration test that goes through some of many cases each time, and here through all.
const fn in_full(name: &'static str, only: &'static [&'static str]) -> Step {
    let told: &[_] = &[("SLIPWAY_CRASH_EVERY", "1")];
    let tests = Tests { only, at_once: AtOnce::Waiting, told, ..Tests::of(OF_INTEGRATION) };
    Step { name, work: Work::CargoTest(tests) }
}

const FAULTS: &[Step] = &[
    Step { name: "fault-programs", work: Work::Cargo(BUILD) },
    // Without the rest of the stack, which would only take processors from them.
    Step { name: "fault-servers", work: Work::Servers },
    // Each by itself: as one they would take longer than a step may.
    in_full("deaths-by-kind", &["operator::crash::deaths_after_the_first_step_of_each_kind_are_made_good"]),
    in_full("deaths-at-aws", &["operator::crash::a_death_after_any_write_to_aws_is_made_good"]),
    in_full(
        "deaths-at-api-server",
        &["operator::crash::a_death_after_any_write_to_the_api_server_is_made_good"],
    ),
    in_full(
        "deaths-without-status",
        &["operator::crash::a_status_that_is_lost_at_a_death_after_any_write_is_made_good"],
    ),
    Step { name: "fault-stack", work: Work::Stack },
    Step { name: "fault-tests", work: Work::CargoTest(ALL_FAULTS) },
];

/// At full length those faults last longer too whose tests need a server of their own before the API server.
const FAULTS_AT_FULL_LENGTH: &[Step] = &[
    FAULTS[0],
    FAULTS[1],
    FAULTS[2],
    FAULTS[3],
    FAULTS[4],
    FAULTS[5],
    Step {
        name: "long-integration-tests",
        work: Work::CargoTest(Tests { only: LONG, ..Tests::of(OF_INTEGRATION) }),
    },
    FAULTS[6],
    FAULTS[7],
];

const LONG: &[&str] =
    &["provisioner::failing::errors_now_and_then_are_outlived_and_errors_without_end_are_not_asked_for"];

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
            Work::Cargo(words) => format!("cargo {}", words.join(" ")),
            Work::CargoTest(tests) => tests.describe(),
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
            let words = match step.work {
                Work::Cargo(words) => words,
                Work::CargoTest(tests) => tests.words,
                _ => continue,
            };
            let is_whole = words[0] == "fmt" || words.contains(&"--workspace");
            assert!(is_whole, "{}: other features would be other builds", step.name);
        }
    }

    /// Whether what a step needs is among those before it.
    fn stands(before: &[Step], step: &Step) -> bool {
        let Work::CargoTest(tests) = step.work else { return true };
        let base = if tests.words == OF_INTEGRATION { Work::Servers } else { Work::Stack };
        before.iter().any(|step| step.work == base)
    }

    #[test]
    fn what_tests_stand_on_comes_before_them() {
        for (group, first) in [
            (Group::Integration, Work::Servers),
            (Group::System, Work::Stack),
            (Group::Faults, Work::Servers),
        ] {
            let steps = group.steps(Length::Full);
            assert_eq!((steps[0].work, steps[1].work), (Work::Cargo(BUILD), first));
            assert_eq!(steps.iter().enumerate().find(|(at, step)| !stands(&steps[..*at], step)), None);
            assert!(!steps.last().is_some_and(|step| step.is_foundation()));
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
            let Work::CargoTest(tests) = step.work else { continue };
            let mut words = tests.words.iter().skip_while(|word| **word != "--test").skip(1);
            let Some(program) = words.next() else { continue };
            let folder = root.join("tests/tests").join(program);
            for test in tests.only {
                let name = test.rsplit("::").next().unwrap_or(test);
                assert!(has_test(&folder, name), "{}: there is no test {name} in {program}", step.name);
            }
        }
    }

    #[test]
    fn each_module_of_integration_tests_is_run_by_one_step() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tests/integration");
        let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
        let modules: Vec<&str> =
            main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
        let has_tests = |module: &&&str| {
            let sources = std::fs::read_to_string(folder.join(format!("{module}.rs"))).unwrap();
            sources.contains("#[tokio::test") || folder.join(module).is_dir()
        };
        let mut named = [WAITING, COMPUTING].concat();
        named.sort_unstable();
        // Not a test of its own: what stands before an API server in tests.
        let mut found: Vec<String> = modules
            .iter()
            .filter(has_tests)
            .filter(|module| **module != "front")
            .map(|one| format!("{one}::"))
            .collect();
        found.sort_unstable();
        assert_eq!(found, named);
    }

    #[test]
    fn who_waits_leaves_room_for_others() {
        let numbers = |at_once: AtOnce| [1, 2, 4, 16].map(|processors| at_once.number(processors));
        assert_eq!(numbers(AtOnce::Waiting), [Some(2), Some(4), Some(8), Some(16)]);
        assert_eq!(numbers(AtOnce::One), [Some(1); 4]);
        assert_eq!(numbers(AtOnce::Computing), [None; 4]);
    }
}
