//! B2p, beside the Confluent Parallel Consumer: the table of its README. Ten thousand records of one partition that take 0
//! to 5 ms each, a hundred in flight, from one key to ten thousand; every record is handled.
//!
//! Product: the product's consumer in this process. Anchor: that library in a Java machine of its own, after it has warmed
//! up on other topics. Records a second for each number of keys, from the beginning of the first record to the end of the
//! last; processor time of all rows together, in seconds; and the most memory that each process ever had resident, in MB,
//! which for this one includes the clients of all other benches.
//!
//! Work is pretended as programs of either kind wait: here by the runtime's timer, which wakes whoever is due in a millisecond
//! together (`pretence.rs`), there by threads that are parked. In all it takes as long, and what waking costs is counted on
//! both sides. How long it did take is measured (`work`, milliseconds on average over all rows), because with few keys a record
//! that took too long makes all behind it late.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use testkit::stack;
use tokio::process::Command;

use crate::meter::{Running, Work, real};
use crate::{Results, Slice, process, topic};

/// The rows that take seconds, and so can be measured often.
pub const MANY: &[usize] = &[10, 20, 50, 100, 1_000, 10_000];
/// The rows that take half a minute.
pub const FEW: &[usize] = &[1, 2, 5];

/// Records of each row.
const RECORDS: usize = 10_000;
/// Records at work at once.
const IN_FLIGHT: usize = 100;
/// How often both consume a topic before anything counts.
const WARM_UPS: usize = 5;
/// The keys of that topic.
const WARM_KEYS: usize = 1_000;
/// How long a row may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long all of the Java program may take.
const JAVA: Duration = Duration::from_mins(10);

/// Measures a slice.
pub async fn measure(slice: Slice, rows: &[usize]) -> anyhow::Result<Results> {
    for keys in rows.iter().chain([&WARM_KEYS]) {
        let record = |number: usize| Ok((format!("key-{}", number % keys), vec![7; 100]));
        topic::filled(&name(*keys), 1, RECORDS, record).await?;
    }
    match slice {
        Slice::Product => product(rows).await,
        Slice::Anchor => anchor(rows).await,
    }
}

async fn product(rows: &[usize]) -> anyhow::Result<Results> {
    for _ in 0..WARM_UPS {
        consume(WARM_KEYS).await?;
    }
    let (mut results, mut cpu, mut work) = (Results::new(), 0.0, 0.0);
    for keys in rows {
        let (rate, used, worked) = consume(*keys).await?;
        results.insert(case(*keys), rate);
        cpu += used;
        work += worked / real(rows.len());
    }
    results.insert("cpu".to_owned(), cpu);
    results.insert("work".to_owned(), work);
    results.insert("memory".to_owned(), process::peak(std::process::id())?);
    Ok(results)
}

/// Records a second, processor time in seconds, and for how long a record was worked on in milliseconds.
async fn consume(keys: usize) -> anyhow::Result<(f64, f64, f64)> {
    let running = Running::start(&name(keys), IN_FLIGHT, Work::Varied, &[]);
    running.handles(1, PATIENCE).await?;
    let before = process::cpu(std::process::id())?;
    running.handles(RECORDS, PATIENCE).await?;
    let used = process::cpu(std::process::id())? - before;
    let (rate, work) = (real(running.handled()) / running.span().as_secs_f64(), running.work());
    running.end().await?;
    Ok((rate, used, work))
}

async fn anchor(rows: &[usize]) -> anyhow::Result<Results> {
    // `cargo xtask bench` has Maven put everything beside the folder of the programs.
    let folder = stack().programs.parent().context("programs have a folder")?.join("parallel-consumer");
    let output = java(&folder, rows).await?;
    let printed: Results = serde_json::from_str(output.trim())
        .with_context(|| format!("understanding what the Java program printed: {output}"))?;
    let mut results = Results::new();
    for (what, value) in printed {
        let row = rows.iter().find(|keys| name(**keys) == what);
        results.insert(row.map_or(what, |keys| case(*keys)), value);
    }
    Ok(results)
}

async fn java(folder: &Path, rows: &[usize]) -> anyhow::Result<String> {
    let classes = format!("{0}/classes:{0}/libraries/*", folder.display());
    let running = Command::new("java")
        .args(["-cp", &classes, "io.slipway.bench.Rows", &stack().kafka_bootstrap])
        .args([RECORDS, IN_FLIGHT, WARM_UPS].map(|number| number.to_string()))
        .arg(name(WARM_KEYS))
        .args(rows.iter().map(|keys| name(*keys)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(JAVA, running).await.context("the Java program did not end")?;
    let output = output.context("running java")?;
    ensure!(
        output.status.success(),
        "the Java program failed: {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn name(keys: usize) -> String {
    format!("bench.rows-{keys}")
}

fn case(keys: usize) -> String {
    format!("{keys}-keys")
}
