//! `cargo xtask bench`: product and limit measured side by side in release builds, on a stack of its own without operators.
//!
//! Slices of product and anchor alternate, so that what disturbs the machine disturbs both; a pair between which the
//! machine's speed changed is measured again. Judges nothing but the numbers that the bench programs print: by the median of
//! the pairs, and by the worst of them where a promise knows no exception (the bounds of memory under a backlog, the half second
//! within which streams show a change).

mod plan;
mod statistics;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use sandbox::progress::Progress;
use sandbox::stack::{Cluster, Layout, Options};
use serde::Serialize;

use crate::terminal::Terminal;
use crate::workspace::{self, Workspace};
use crate::{down, up};
use plan::{Bench, Case};
use statistics::{Pair, summarise};

/// The program that measures, in the folder of release builds.
const PROGRAM: &str = "slipway-bench";
/// What only a program has in it that can be told to die at some place.
const FAILPOINTS: &str = "SLIPWAY_FAILPOINTS";
/// How much the machine's speed may differ between the two slices of a pair.
const MOST_DRIFT: f64 = 0.15;
/// How long the speed of the machine is looked at before each slice.
const CALIBRATION: Duration = Duration::from_millis(500);

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Benches to run; all of them when none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// File for the results, one JSON object a case
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Pairs of slices to measure
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=99))]
    pairs: u32,
    /// Seconds of each slice
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Leave the stack of the benches running
    #[arg(long)]
    keep_stack: bool,
}

/// One case of one bench, as it is written down.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Outcome {
    bench: String,
    case: String,
    product: f64,
    anchor: f64,
    ratio: f64,
    ci_low: f64,
    ci_high: f64,
    /// Ratio of the worst pair, where that one is judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst: Option<f64>,
    unit: String,
    goal: String,
    holds: bool,
}

/// Runs the benches; the code is 1 when a goal is missed.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let benches = plan::select(&arguments.names)?;
    let terminal = Terminal::start();
    workspace.install_packages(&terminal)?;
    build(workspace, &benches, &terminal)?;
    let released = workspace.released();
    let layout = workspace.bench_stack();
    let outcomes = {
        let _lock = workspace::lock(&layout)?;
        // No operator: what is measured ends with the custom resource, and nothing else may move meanwhile.
        let options = Options { clusters: vec![Cluster::bare()], durable: true, ..Options::for_system() };
        up::start(&released, &layout, &options, false, &terminal)
            .and_then(|_| measure_all(&released, &layout, &benches, arguments, &terminal))
    };
    if !arguments.keep_stack {
        down::stop(&released, &layout, false, &terminal)?;
    }
    let outcomes = outcomes?;
    let all_hold = outcomes.iter().all(|outcome| outcome.holds);
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds what the benches need, which is not all: the operator alone costs many minutes.
fn build(workspace: &Workspace, benches: &[&Bench], terminal: &Terminal) -> anyhow::Result<()> {
    terminal.line("build in release mode");
    let mut words = vec!["build", "--release", "--bins", "-p", "bench", "-p", "backend", "-p", "provisioner"];
    let mut shipped = vec!["slipway-backend", "slipway-provisioner"];
    if benches.iter().any(|bench| bench.operator) {
        words.extend(["-p", "operator"]);
        shipped.push("slipway-operator");
    }
    let status = workspace.cargo(&words).stdout(Stdio::null()).status().context("running cargo")?;
    if !status.success() {
        bail!("the release build failed");
    }
    let programs = workspace.released().programs();
    shipped.iter().try_for_each(|program| without_failpoints(&programs.join(program)))?;
    if benches.iter().any(|bench| bench.java) { build_java(workspace, terminal) } else { Ok(()) }
}

/// Tests tell a program to die at some place; a release must not listen.
fn without_failpoints(program: &Path) -> anyhow::Result<()> {
    let mut grep = Command::new("grep");
    grep.args(["--quiet", "--text", "--fixed-strings", FAILPOINTS]).arg(program);
    // 0: it is there; 2: there is no such file.
    let code = grep.status().context("running grep")?.code();
    ensure!(code == Some(1), "{} has failpoints in it, or cannot be read", program.display());
    Ok(())
}

/// Where the bench program looks for it.
fn build_java(workspace: &Workspace, terminal: &Terminal) -> anyhow::Result<()> {
    terminal.line("build the Java program");
    let programs = workspace.programs();
    let folder = programs.parent().context("programs lie in a folder of builds")?.join("parallel-consumer");
    let status = Command::new("mvn")
        .args(["--quiet", "--batch-mode", &format!("-Dfolder={}", folder.display()), "package"])
        .current_dir(workspace.root().join("services/bench/parallel-consumer"))
        .status()
        .context("running mvn")?;
    if status.success() { Ok(()) } else { bail!("the Java program does not build") }
}

fn measure_all(
    workspace: &Workspace,
    layout: &Layout,
    benches: &[&Bench],
    arguments: &Arguments,
    terminal: &Terminal,
) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for bench in benches {
        terminal.start(bench.name);
        let since = Instant::now();
        let slice = |what: &str| slice(&workspace.programs(), layout, bench, what, arguments.seconds);
        let mut pairs: Vec<[BTreeMap<String, f64>; 2]> = Vec::new();
        let mut attempts = 0;
        let wanted = arguments.pairs.min(bench.most_pairs);
        if bench.warm_up {
            terminal.note(bench.name, "warm-up");
            pair(0, &slice)?;
        }
        while pairs.len() < wanted as usize {
            attempts += 1;
            if attempts > wanted * 3 {
                bail!(
                    "the machine is too restless to measure {}: two of three pairs were disturbed",
                    bench.name
                );
            }
            terminal.note(bench.name, &format!("pair {} of {wanted}", pairs.len() + 1));
            pairs.extend(pair(attempts, &slice)?);
        }
        terminal.done(bench.name, since.elapsed());
        let judged = judge(bench, &pairs)?;
        for outcome in &judged {
            crate::terminal::print(&line(outcome));
        }
        outcomes.extend(judged);
        // Whatever becomes of the next one, this took minutes.
        write(arguments.json.as_deref(), &outcomes)?;
    }
    Ok(outcomes)
}

/// One line for each outcome so far.
fn write(path: Option<&Path>, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let lines: Vec<String> = outcomes.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    std::fs::write(path, lines.join("\n") + "\n").with_context(|| format!("writing {}", path.display()))
}

/// Measures both slices, the first one in turn; nothing when the machine's speed changed in between.
fn pair(
    turn: u32,
    slice: &impl Fn(&str) -> anyhow::Result<BTreeMap<String, f64>>,
) -> anyhow::Result<Option<[BTreeMap<String, f64>; 2]>> {
    let product_first = turn.is_multiple_of(2);
    let order = if product_first { ["product", "anchor"] } else { ["anchor", "product"] };
    let before = speed();
    let first = slice(order[0])?;
    let between = speed();
    let second = slice(order[1])?;
    if (before - between).abs() / before.max(between) > MOST_DRIFT {
        return Ok(None);
    }
    Ok(Some(if product_first { [first, second] } else { [second, first] }))
}

/// Rounds of a fixed piece of work per second: how fast this machine is just now.
fn speed() -> f64 {
    let since = Instant::now();
    let mut rounds = 0.0;
    let mut value = 1_u64;
    while since.elapsed() < CALIBRATION {
        for _ in 0..10_000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        rounds += 1.0;
    }
    rounds / since.elapsed().as_secs_f64()
}

fn slice(
    programs: &Path,
    layout: &Layout,
    bench: &Bench,
    what: &str,
    seconds: u32,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let output = Command::new(programs.join(PROGRAM))
        .args([bench.measures, "--slice", what, "--seconds", &seconds.to_string()])
        .env("SLIPWAY_TEST_STATE", layout.state())
        .output()
        .with_context(|| format!("running {PROGRAM}"))?;
    if !output.status.success() {
        bail!("{} failed: {}", bench.name, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("understanding what {PROGRAM} printed of {}", bench.name))
}

fn judge(bench: &Bench, pairs: &[[BTreeMap<String, f64>; 2]]) -> anyhow::Result<Vec<Outcome>> {
    let judge_case = |Case { name: case, unit, goal, each }: &Case| {
        let values = pairs.iter().filter_map(|[product, anchor]| {
            Some(Pair { product: *product.get(*case)?, anchor: *anchor.get(*case)? })
        });
        let values: Vec<Pair> = values.collect();
        let summary =
            summarise(&values).with_context(|| format!("{} {case} was not measured", bench.name))?;
        let worst = each.then(|| goal.worst(&summary));
        Ok(Outcome {
            bench: bench.name.to_owned(),
            case: (*case).to_owned(),
            product: summary.product,
            anchor: summary.anchor,
            ratio: summary.ratio,
            ci_low: summary.low,
            ci_high: summary.high,
            worst,
            unit: (*unit).to_owned(),
            goal: goal.to_string(),
            holds: goal.holds(worst.unwrap_or(summary.ratio)),
        })
    };
    bench.cases.iter().map(judge_case).collect()
}

fn line(outcome: &Outcome) -> String {
    let Outcome { bench, case, product, anchor, ratio, ci_low, ci_high, worst, unit, goal, holds } = outcome;
    let verdict = if *holds { "holds" } else { "MISSED" };
    let worst = worst.map(|worst| format!(", worst {worst:.2}")).unwrap_or_default();
    format!(
        "{bench} {case:<8} product {product:.2} {unit}, limit {anchor:.2} {unit}, ratio {ratio:.2} [{ci_low:.2}, {ci_high:.2}]{worst}, goal {goal}: {verdict}"
    )
}

#[cfg(test)]
mod tests {
    use super::statistics::Goal;
    use super::*;

    const BENCH: Bench = Bench {
        name: "B0",
        measures: "none",
        cases: &[
            Case { name: "p50", unit: "ms", goal: Goal::AtMost(1.5), each: false },
            Case { name: "p99", unit: "ms", goal: Goal::AtMost(2.0), each: false },
        ],
        most_pairs: 9,
        warm_up: false,
        java: false,
        operator: false,
    };

    fn slices(p50: f64, p99: f64) -> BTreeMap<String, f64> {
        [("p50".to_owned(), p50), ("p99".to_owned(), p99)].into()
    }

    #[test]
    fn a_program_that_can_be_told_to_die_is_no_release() {
        let read = include_str!("../../runtime/src/failpoint.rs").contains(&format!("\"{FAILPOINTS}\""));
        assert!(read, "no program reads {FAILPOINTS}");
        let file = std::env::temp_dir().join(format!("slipway-release-{}", std::process::id()));
        for (word, passes) in [("NOTHING", true), (FAILPOINTS, false)] {
            let bytes = [&b"\0\xff"[..], word.as_bytes(), &b"\xff\0"[..]].concat();
            std::fs::write(&file, bytes).expect("a temporary file");
            assert_eq!(without_failpoints(&file).is_ok(), passes, "{word}");
        }
        std::fs::remove_file(&file).expect("it was just written");
        assert!(without_failpoints(&file).is_err(), "a program that is not there");
    }

    #[test]
    fn every_case_is_judged_by_its_own_goal() {
        let pairs = vec![[slices(14.0, 30.0), slices(10.0, 10.0)]; 4];
        let outcomes = judge(&BENCH, &pairs).expect("measured");
        let verdicts: Vec<(&str, bool)> = outcomes.iter().map(|one| (one.case.as_str(), one.holds)).collect();
        assert_eq!(verdicts, [("p50", true), ("p99", false)]);
        let text = serde_json::to_string(&outcomes[0]).expect("encodes");
        for key in
            ["bench", "case", "product", "anchor", "ratio", "ci_low", "ci_high", "unit", "goal", "holds"]
        {
            assert!(text.contains(&format!("\"{key}\":")), "{key} is not in {text}");
        }
    }

    #[test]
    fn one_bad_slice_is_a_miss_where_each_is_promised() {
        const PROMISED: Bench = Bench {
            cases: &[
                Case { name: "p50", unit: "ms", goal: Goal::AtMost(1.5), each: false },
                Case { name: "p99", unit: "ms", goal: Goal::AtMost(1.5), each: true },
            ],
            ..BENCH
        };
        let pair = |p99: f64| [slices(p99, p99), slices(10.0, 10.0)];
        let judged = |last: f64| judge(&PROMISED, &[pair(9.0), pair(10.0), pair(last)]).expect("measured");
        assert!(judged(15.0).iter().all(|one| one.holds), "all of them are within the goal");
        let [middle, each] = <[Outcome; 2]>::try_from(judged(16.0)).expect("two cases");
        assert!(middle.holds && !each.holds);
        assert_eq!((middle.ratio, middle.ci_high), (each.ratio, each.ci_high), "what is shown is the same");
        assert_eq!((middle.worst, each.worst), (None, Some(1.6)));
        assert!(line(&each).contains(", worst 1.60, goal <= 1.5: MISSED"), "{}", line(&each));
        assert!(!line(&middle).contains("worst"), "{}", line(&middle));
    }

    #[test]
    fn a_case_that_nobody_measured_is_an_error() {
        let pairs = vec![[BTreeMap::new(), slices(1.0, 1.0)]; 4];
        assert!(judge(&BENCH, &pairs).is_err());
    }

    #[test]
    fn slices_take_turns() {
        for (turn, expect) in [(1, ["anchor", "product"]), (2, ["product", "anchor"])] {
            let order = std::cell::RefCell::new(Vec::new());
            let measure = |what: &str| {
                order.borrow_mut().push(what.to_owned());
                Ok([(what.to_owned(), 1.0)].into())
            };
            let measured = pair(turn, &measure).expect("measured");
            let in_place = |[product, anchor]: &[BTreeMap<String, f64>; 2]| {
                product.contains_key("product") && anchor.contains_key("anchor")
            };
            assert!(
                measured.iter().all(in_place),
                "the product's slice comes first, whatever was measured first"
            );
            assert_eq!(order.into_inner(), expect);
        }
    }
}
