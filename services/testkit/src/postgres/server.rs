//! Postgres servers of a test's own: a primary, standbys of it, stopped, started and promoted as the test likes.
//!
//! They keep nothing through a power cut, and are stopped and removed with their handles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::eventually;

const LIMIT: Duration = Duration::from_mins(3);
const USER: &str = "slipway";
const DATABASE: &str = "slipway";
/// Name by which a primary knows its standby.
const STANDBY: &str = "standby";

/// A server on a port of its own.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    port: u16,
    owner: Option<Owner>,
}

/// Whom Postgres runs as where the tests run as root, which it refuses to be.
#[derive(Debug, Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl Server {
    /// A fresh primary with an empty database.
    ///
    /// # Errors
    /// When it cannot be made or started.
    pub async fn primary() -> anyhow::Result<Self> {
        let server = Self::prepare().await?;
        let data = server.data();
        let words =
            ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"];
        server.tool("initdb", &[&["--pgdata", &data], &words[..]].concat()).await?;
        server.start().await?;
        let admin = format!("postgres://{USER}@127.0.0.1:{}/postgres", server.port);
        super::query(&admin, &format!("create database {DATABASE}")).await?;
        Ok(server)
    }

    /// A standby of this server, which follows it.
    ///
    /// # Errors
    /// When it cannot be made or started, or does not follow in time.
    pub async fn standby(&self) -> anyhow::Result<Self> {
        let standby = Self::prepare().await?;
        let source = format!("host=127.0.0.1 port={} user={USER} application_name={STANDBY}", self.port);
        let words = ["--dbname", &source, "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"];
        standby.tool("pg_basebackup", &[&["--pgdata", &standby.data()], &words[..]].concat()).await?;
        standby.start().await?;
        self.wait_for("streaming", "select state from pg_stat_replication").await;
        Ok(standby)
    }

    /// From now on no commit is acknowledged that the standby does not have.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn require_standby(&self) -> anyhow::Result<()> {
        self.query(&format!("alter system set synchronous_standby_names = '{STANDBY}'")).await?;
        self.query("select pg_reload_conf()").await?;
        self.wait_for("sync", "select sync_state from pg_stat_replication").await;
        Ok(())
    }

    /// Starts the server, and waits until it takes connections.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(&self) -> anyhow::Result<()> {
        let settings = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c shared_buffers=16MB \
             -c max_connections=60 -c wal_keep_size=128MB -c wal_retrieve_retry_interval=200ms",
            self.port
        );
        let (data, log) = (self.data(), self.folder.join("log").display().to_string());
        let words = ["--pgdata", &data, "--log", &log, "--options", &settings, "--wait", "start"];
        self.tool("pg_ctl", &words).await
    }

    /// Stops the server: `fast` ends its connections and writes everything out, `immediate` is a crash.
    ///
    /// # Errors
    /// When it does not stop.
    pub async fn stop(&self, mode: &str) -> anyhow::Result<()> {
        self.tool("pg_ctl", &["--pgdata", &self.data(), "--mode", mode, "--wait", "stop"]).await
    }

    /// Makes a standby the primary.
    ///
    /// # Errors
    /// When it is none.
    pub async fn promote(&self) -> anyhow::Result<()> {
        self.tool("pg_ctl", &["--pgdata", &self.data(), "--wait", "promote"]).await
    }

    /// Lets the server refuse writes, or take them again, as in a planned change of the primary.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn refuse_writes(&self, refuse: bool) -> anyhow::Result<()> {
        let word = if refuse { "on" } else { "off" };
        self.query(&format!("alter system set default_transaction_read_only = {word}")).await?;
        self.query("select pg_reload_conf()").await?;
        self.wait_for(word, "show default_transaction_read_only").await;
        Ok(())
    }

    /// Waits until a standby has everything that this server has now.
    ///
    /// # Errors
    /// When this server does not answer.
    pub async fn followed_by(&self, standby: &Self) -> anyhow::Result<()> {
        let sent = self.query("select pg_current_wal_lsn()").await?;
        standby.wait_for("t", &format!("select pg_last_wal_replay_lsn() >= '{sent}'")).await;
        Ok(())
    }

    /// Where the server's database is.
    pub fn url(&self) -> String {
        url_of(&[self])
    }

    /// Runs a statement in the server's database.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn query(&self, statement: &str) -> anyhow::Result<String> {
        super::query(&self.url(), statement).await
    }

    /// Waits until a statement gives this answer.
    pub async fn wait_for(&self, answer: &str, statement: &str) {
        eventually(LIMIT, statement, async || (self.query(statement).await.ok()? == answer).then_some(()))
            .await;
    }

    async fn prepare() -> anyhow::Result<Self> {
        let owner = Owner::find().await?;
        let folder = Path::new("/var/tmp").join(crate::unique("slipway-postgres"));
        std::fs::create_dir(&folder)?;
        if let Some(Owner { user, group }) = owner {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
        }
        let port = crate::free_address()?.port();
        Ok(Self { folder, port, owner })
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    async fn tool(&self, name: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(crate::stack().postgres_bin.join(name));
        // A server inherits what it is given: a pipe would stay open as long as it lives.
        let output = self.folder.join(format!("{name}.out"));
        let file = std::fs::File::create(&output)?;
        command.args(arguments).current_dir(&self.folder).stdin(std::process::Stdio::null());
        command.stdout(file.try_clone()?).stderr(file);
        if let Some(Owner { user, group }) = self.owner {
            command.uid(user).gid(group);
        }
        let status = tokio::time::timeout(LIMIT, command.status()).await;
        let status = status.with_context(|| format!("{name} did not end in time"))??;
        let said = || std::fs::read_to_string(&output).unwrap_or_default();
        ensure!(status.success(), "{name}: {status}: {}", said());
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut command = std::process::Command::new(crate::stack().postgres_bin.join("pg_ctl"));
        command.args(["--pgdata", &self.data(), "--mode", "immediate", "--silent", "stop"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        if let Some(Owner { user, group }) = self.owner {
            use std::os::unix::process::CommandExt as _;
            command.uid(user).gid(group);
        }
        // A server that was stopped before is no failure.
        let _ = command.current_dir("/").status();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Owner {
    async fn find() -> anyhow::Result<Option<Self>> {
        let number = async |arguments: &[&str]| {
            let output = Command::new("id").args(arguments).output().await?;
            let text = String::from_utf8(output.stdout)?;
            text.trim().parse::<u32>().with_context(|| format!("id {arguments:?}: {text:?}"))
        };
        if number(&["-u"]).await? != 0 {
            return Ok(None);
        }
        let (user, group) = (number(&["-u", "postgres"]).await?, number(&["-g", "postgres"]).await?);
        Ok(Some(Self { user, group }))
    }
}

/// One URL for several servers, in this order.
pub fn url_of(servers: &[&Server]) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    format!("postgres://{USER}@{}/{DATABASE}", hosts.join(","))
}
