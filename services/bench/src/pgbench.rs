//! The bare database server: the product's statements run by pgbench, in a database that is made for it and dropped.

mod script;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use testkit::stack;
use tokio::process::Command;

use crate::ground::TENANT;
use crate::pace;
use crate::samples::Samples;

pub(crate) use script::{fill, mint, numbered, upsert};

/// Where the numbers of the counting runs begin; below are those of warm-ups.
const COUNTED: u32 = 1_000_000;
/// Beyond the time a run was given.
const MARGIN: Duration = Duration::from_mins(1);
const SETUP: Duration = Duration::from_mins(1);

/// A database with the product's tables, and nothing but what the statements refer to.
#[derive(Debug)]
pub(crate) struct Scratch {
    url: String,
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Scratch {
    /// Makes it with the clusters that the product has, and one database. The variables are those of the scripts.
    pub(crate) async fn make(variables: Vec<(&'static str, String)>) -> anyhow::Result<Self> {
        let scratch = Self::empty(variables).await?;
        // As many clusters as the product has: placement reads them all.
        scratch
            .execute(&format!(
                "insert into tenants (id) values ('{}'); insert into clusters select * from jsonb_populate_recordset(null::clusters, $json${}$json$)",
                scratch.variable("tenant"),
                testkit::query(&stack().database_url, "select jsonb_agg(c) from clusters c").await?,
            ))
            .await?;
        // One database that observations can be of.
        scratch.run(&mint()?, &["--client=1", "--transactions=1", "--define=n=0"]).await?;
        Ok(scratch)
    }

    /// Makes it with these clusters of the benches' own and their tenant. The variables are those of the scripts.
    pub(crate) async fn with_clusters(
        names: &[String],
        variables: Vec<(&'static str, String)>,
    ) -> anyhow::Result<Self> {
        let scratch = Self::empty(variables).await?;
        let rows: Vec<String> = names
            .iter()
            .map(|name| {
                format!(
                    "('{name}', 'bench-1', '123456789012', '{{}}', 'ZBENCH', 'bench-1.db.slipway.test', 'qdb-{{tenant}}', 'active', 'file:{name}.kubeconfig')"
                )
            })
            .collect();
        let statement = format!(
            "insert into tenants (id) values ('{TENANT}'); insert into clusters (id, region, account, zones, \
             hosted_zone_id, dns_suffix, namespace_template, state, credentials) values {}",
            rows.join(", ")
        );
        scratch.execute(&statement).await?;
        Ok(scratch)
    }

    /// Runs statements.
    pub(crate) async fn execute(&self, statements: &str) -> anyhow::Result<String> {
        testkit::query(&self.url, statements).await
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A folder that goes with it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    async fn empty(variables: Vec<(&'static str, String)>) -> anyhow::Result<Self> {
        let url = testkit::fresh_database().await?;
        let folder = stack().state_dir.join(testkit::unique("bench"));
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let scratch = Self { url, folder, variables };
        let mut migrate = Command::new(stack().programs.join("slipway-backend"));
        migrate
            .arg("migrate")
            .env("DATABASE_URL", &scratch.url)
            .env("KAFKA_BOOTSTRAP", &stack().kafka_bootstrap);
        output(migrate, SETUP).await?;
        Ok(scratch)
    }

    /// Runs a script at the pace of a stage and takes the time of each run.
    pub(crate) async fn paced(&self, script: &str, rounds: u32) -> anyhow::Result<Samples> {
        let log = self.folder.join("log");
        let words = [
            "--client=1".to_owned(),
            format!("--transactions={}", rounds + pace::WARM_UP),
            format!("--rate={}", pace::stage_rate()),
            "--log".to_owned(),
            format!("--log-prefix={}", log.display()),
            format!("--define=n={COUNTED}"),
        ];
        self.run(script, &words.each_ref().map(String::as_str)).await?;
        let mut samples = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log.")) {
                samples.extend(latencies(&std::fs::read_to_string(&path)?)?);
                std::fs::remove_file(&path)?;
            }
        }
        ensure!(samples.len() > pace::WARM_UP as usize, "pgbench logged {} runs", samples.len());
        Ok(samples.into_iter().skip(pace::WARM_UP as usize).collect())
    }

    /// Runs a script this often from one client as fast as it goes; runs a second.
    pub(crate) async fn repeated(&self, script: &str, times: usize) -> anyhow::Result<f64> {
        let times = format!("--transactions={times}");
        rate(&self.run(script, &["--client=1", &times, &format!("--define=n={COUNTED}")]).await?)
    }

    /// Runs a script from this many clients as fast as it goes; runs a second.
    pub(crate) async fn throughput(&self, script: &str, clients: u32, seconds: u32) -> anyhow::Result<f64> {
        let clients = format!("--client={clients}");
        self.run(script, &[&clients, "--jobs=2", "--time=1", "--define=n=1"]).await?;
        let (time, start) = (format!("--time={seconds}"), format!("--define=n={COUNTED}"));
        rate(&self.run(script, &[&clients, "--jobs=2", &time, &start]).await?)
    }

    /// Drops it.
    pub(crate) async fn drop(self) -> anyhow::Result<()> {
        let name = self
            .url
            .rsplit('/')
            .next()
            .and_then(|rest| rest.split('?').next())
            .context("a URL names a database")?;
        testkit::query(&stack().database_url, &format!("drop database {name} with (force)")).await?;
        std::fs::remove_dir_all(&self.folder).with_context(|| format!("removing {}", self.folder.display()))
    }

    fn variable(&self, name: &str) -> &str {
        self.variables.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    async fn run(&self, script: &str, words: &[&str]) -> anyhow::Result<String> {
        let file = self.folder.join("script.sql");
        std::fs::write(&file, script).with_context(|| format!("writing {}", file.display()))?;
        let mut pgbench = Command::new(stack().postgres_bin.join("pgbench"));
        pgbench.args(["--no-vacuum", "--protocol=prepared"]).args(words);
        for (name, value) in &self.variables {
            pgbench.arg(format!("--define={name}={value}"));
        }
        pgbench.arg("--file").arg(&file).arg(&self.url);
        // The longest run is a slice.
        output(pgbench, Duration::from_mins(10) + MARGIN).await
    }
}

/// What a command prints; an error when it fails or does not end in time.
async fn output(mut command: Command, limit: Duration) -> anyhow::Result<String> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let running = command.kill_on_drop(true).output();
    let output =
        tokio::time::timeout(limit, running).await.with_context(|| format!("{name} did not end in time"))?;
    let output = output.with_context(|| format!("running {name}"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(String::from_utf8(output.stdout)?)
}

/// The times in pgbench's log of single transactions, without the time each waited for its turn:
/// `client number time script epoch microseconds lag`, times in microseconds.
fn latencies(log: &str) -> anyhow::Result<Vec<Duration>> {
    let latency = |line: &str| {
        let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let (time, lag) = (fields.get(2)?, fields.get(6).unwrap_or(&0));
        Some(Duration::from_micros(time.checked_sub(*lag)?))
    };
    log.lines()
        .map(|line| latency(line).with_context(|| format!("not a line of pgbench's log: {line}")))
        .collect()
}

/// Transactions a second in pgbench's report; an error when some failed.
fn rate(report: &str) -> anyhow::Result<f64> {
    let value = |name: &str| report.lines().find_map(|line| line.strip_prefix(name));
    if let Some(failed) = value("number of failed transactions: ") {
        ensure!(failed.starts_with("0 "), "pgbench: {failed} transactions failed");
    }
    let rate = value("tps = ").and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    rate.with_context(|| format!("no rate in what pgbench says: {report}"))
}

#[cfg(test)]
mod tests;
