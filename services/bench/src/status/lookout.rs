//! A session of psql that looks out for a row and notes when it can be seen, by the clock of this machine.
//!
//! It looks again every millisecond, the shortest pause of Postgres: what it says is late by half of that on average.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a row may take.
const PATIENCE: Duration = Duration::from_secs(25);

/// Goes with the session. Each look has a snapshot of its own.
const FUNCTION: &str =
    "create function pg_temp.seen(wanted uuid, mark text) returns bigint language plpgsql as $$
declare enough timestamptz := clock_timestamp() + interval '20 seconds';
begin
  while clock_timestamp() < enough loop
    if exists (select from observations where database_id = wanted and body -> 'node' ->> 'name' = mark) then
      return (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    end if;
    perform pg_sleep(0.001);
  end loop;
  return 0;
end $$;
select 1;
";

/// The session; it ends when dropped.
#[derive(Debug)]
pub(super) struct Lookout {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _psql: Child,
}

/// A row is being looked out for.
#[must_use]
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a mut Lookout);

impl Lookout {
    /// Starts the session.
    pub(super) async fn post(programs: &Path, url: &str) -> anyhow::Result<Self> {
        let mut psql = Command::new(programs.join("psql"))
            .args(["--quiet", "--no-psqlrc", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting psql")?;
        let input = psql.stdin.take().context("psql has an input")?;
        let output = BufReader::new(psql.stdout.take().context("psql has an output")?).lines();
        let mut lookout = Self { input, output, _psql: psql };
        lookout.say(FUNCTION).await?;
        ensure!(lookout.hear().await? == "1", "psql does not answer");
        Ok(lookout)
    }

    /// Begins to look out for an observation of the database that shows a node of this name.
    pub(super) async fn wait_for(&mut self, database: &str, node: &str) -> anyhow::Result<Waiting<'_>> {
        self.say(&format!("select pg_temp.seen('{database}', '{node}');\n")).await?;
        Ok(Waiting(self))
    }

    async fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.input.write_all(text.as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    async fn hear(&mut self) -> anyhow::Result<String> {
        let line =
            tokio::time::timeout(PATIENCE, self.output.next_line()).await.context("psql says nothing")??;
        line.context("psql ended")
    }
}

impl Waiting<'_> {
    /// When the row was seen, since 1970.
    pub(super) async fn seen(self) -> anyhow::Result<Duration> {
        let line = self.0.hear().await?;
        let micros = line.parse().with_context(|| format!("not a time: {line}"))?;
        ensure!(micros > 0, "the row was not seen in time");
        Ok(Duration::from_micros(micros))
    }
}

/// Now by the clock that Postgres reads too, since 1970.
pub(super) fn now() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?)
}
