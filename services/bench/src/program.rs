//! What every bench program is: two arguments in, one JSON object out. Measures nothing itself.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};

/// Case → number.
pub type Results = BTreeMap<String, f64>;

/// What a slice measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Slice {
    /// Slipway at work.
    Product,
    /// The bare servers doing the same work.
    Anchor,
}

/// Measures one slice on the stack that `SLIPWAY_TEST_STATE` names
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure
    #[arg(long)]
    slice: Slice,
    /// How long to measure
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// The `main` of a bench program.
pub fn run(measure: impl AsyncFnOnce(Slice, u32) -> anyhow::Result<Results>) -> ExitCode {
    let Arguments { slice, seconds } = Arguments::parse();
    let measured = tokio::runtime::Runtime::new()
        .context("starting the runtime")
        .and_then(|runtime| runtime.block_on(measure(slice, seconds)))
        .and_then(|results| Ok(serde_json::to_string(&results)?));
    match measured {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn print(text: &str) {
    println!("{text}");
}

fn complain(error: &anyhow::Error) {
    eprintln!("{error:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_called_as_agreed() {
        let parse = |words: &[&str]| Arguments::try_parse_from([&["bench"], words].concat());
        let arguments = parse(&["--slice", "anchor", "--seconds", "8"]).unwrap();
        assert_eq!((arguments.slice, arguments.seconds), (Slice::Anchor, 8));
        for wrong in [
            &["--slice", "both", "--seconds", "8"][..],
            &["--slice", "product"],
            &["--slice", "product", "--seconds", "0"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
