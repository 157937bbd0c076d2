//! A connection that somebody keeps open: a long transaction, a lock, a client that stands still.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const LIMIT: Duration = Duration::from_secs(30);

/// psql, fed statement by statement. It ends with its handle, and what it did not commit is gone.
#[derive(Debug)]
pub struct Session {
    _psql: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    asked: u32,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// When psql cannot be started or the server does not let it in.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let mut psql = Command::new(crate::stack().postgres_bin.join("psql"))
            .args(["--quiet", "--no-psqlrc", "--tuples-only", "--no-align", "--dbname", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = psql.stdin.take().context("the input is a pipe")?;
        let output = BufReader::new(psql.stdout.take().context("the output is a pipe")?).lines();
        let mut session = Self { _psql: psql, input, output, asked: 0 };
        session.run("select 1").await?;
        Ok(session)
    }

    /// Runs statements and gives their output, one row a line.
    ///
    /// # Errors
    /// When they do not end in time or the connection is gone.
    pub async fn run(&mut self, statements: &str) -> anyhow::Result<String> {
        self.asked += 1;
        let end = format!("end of {}", self.asked);
        self.input.write_all(format!("{statements};\n\\echo {end}\n").as_bytes()).await?;
        self.input.flush().await?;
        let mut lines = Vec::new();
        loop {
            let line =
                tokio::time::timeout(LIMIT, self.output.next_line()).await.context("no end in time")??;
            let line = line.context("the session is closed")?;
            if line == end {
                return Ok(lines.join("\n"));
            }
            lines.push(line);
        }
    }
}
