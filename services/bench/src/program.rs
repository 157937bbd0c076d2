//! What the bench program is: the name of a bench and two arguments in, one JSON object out. Measures nothing itself.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use tokio::runtime::Builder;

use crate::{
    apply, backend, backlog, blast, cold, cost, create, creations, drain, engine, idle, ingest, memory,
    parallel, partitions, passes, request, serving, status, streams,
};

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

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// B1
    ApplySaturation,
    /// B2
    Engine,
    /// B2p, the rows with ten keys and more
    Parallel,
    /// B2p, the rows with fewer keys
    ParallelFewKeys,
    /// B3
    Partitions,
    /// B4
    RequestLatency,
    /// B5
    StatusLatency,
    /// B6
    GossipIngest,
    /// B7a
    CreateThroughput,
    /// B7b
    RelayDrain,
    /// B9
    CostGrowth,
    /// B9b
    BackendCost,
    /// B9o
    PassCost,
    /// B10
    Idle,
    /// B11
    CacheMemory,
    /// B11s
    ServingMemory,
    /// B11b
    BacklogMemory,
    /// B12
    ColdStart,
    /// B8r
    CreationRate,
    /// B15
    BlastRadius,
    /// From a commit to the streams of two replicas
    Streams,
}

impl Bench {
    fn runtime(self) -> Builder {
        let mut runtime = Builder::new_multi_thread();
        runtime.enable_all();
        if matches!(self, Self::Parallel | Self::ParallelFewKeys) {
            // One thread is plenty for this work. With two, each record that ends wakes both, to share what is not there.
            runtime.worker_threads(1);
        }
        runtime
    }
}

/// Measures one slice on the stack that `SLIPWAY_TEST_STATE` names
#[derive(Debug, Parser)]
struct Arguments {
    /// The bench
    #[arg(value_name = "BENCH")]
    bench: Bench,
    /// What to measure
    #[arg(long)]
    slice: Slice,
    /// How long to measure
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// The `main` of the program.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let measured = arguments
        .bench
        .runtime()
        .build()
        .context("starting the runtime")
        .and_then(|runtime| runtime.block_on(measure(&arguments)))
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

async fn measure(arguments: &Arguments) -> anyhow::Result<Results> {
    let Arguments { bench, slice, seconds } = *arguments;
    match bench {
        Bench::ApplySaturation => apply::measure(slice, seconds).await,
        Bench::Engine => engine::measure(slice, seconds).await,
        Bench::Parallel => parallel::measure(slice, parallel::MANY).await,
        Bench::ParallelFewKeys => parallel::measure(slice, parallel::FEW).await,
        Bench::Partitions => partitions::measure(slice, seconds).await,
        Bench::RequestLatency => request::measure(slice, seconds).await,
        Bench::StatusLatency => status::measure(slice, seconds).await,
        Bench::GossipIngest => ingest::measure(slice, seconds).await,
        Bench::CreateThroughput => create::measure(slice, seconds).await,
        Bench::RelayDrain => drain::measure(slice).await,
        Bench::CostGrowth => cost::measure(slice).await,
        Bench::BackendCost => backend::measure(slice).await,
        Bench::PassCost => passes::measure(slice, seconds).await,
        Bench::Idle => idle::measure(slice, seconds).await,
        Bench::CacheMemory => memory::measure(slice).await,
        Bench::ServingMemory => serving::measure(slice).await,
        Bench::ColdStart => cold::measure(slice).await,
        Bench::CreationRate => creations::measure(slice).await,
        Bench::BacklogMemory => backlog::measure(slice, seconds).await,
        Bench::BlastRadius => blast::measure(slice, seconds).await,
        Bench::Streams => streams::measure(slice, seconds).await,
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
        let arguments = parse(&["engine", "--slice", "anchor", "--seconds", "8"]).unwrap();
        assert_eq!((arguments.bench, arguments.slice, arguments.seconds), (Bench::Engine, Slice::Anchor, 8));
        for wrong in [
            &["engine", "--slice", "both", "--seconds", "8"][..],
            &["engine", "--slice", "product"],
            &["engine", "--slice", "product", "--seconds", "0"],
            &["none", "--slice", "product", "--seconds", "8"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
