//! Kafka brokers of a test's own: two of a cluster, killed and started again as the test likes. A write counts only if both
//! have it.
//!
//! Clients come in without a password, as nobody in particular, and may do everything until a test takes a right away;
//! brokers and Kafka's own tools come in by another door, as the administrator.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sandbox::stack::{Layout, Programs};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::eventually;

/// How long a broker may take to start, and a tool to do its work.
const LIMIT: Duration = Duration::from_mins(1);
/// Any identity: no other cluster is ever met.
const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";
const LOGIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
                     password=\"admin\" user_admin=\"admin\";";

/// A broker. It ends, and what it kept goes, with its handle.
#[derive(Debug)]
pub struct Broker {
    java: Java,
    folder: PathBuf,
    clients: u16,
    admins: u16,
    process: Option<Child>,
}

/// How Kafka's programs are started.
#[derive(Debug, Clone)]
struct Java {
    program: String,
    class_path: String,
}

impl Broker {
    /// The two brokers of a cluster of their own; the first is also the controller.
    ///
    /// # Errors
    /// When they cannot be made or started.
    pub async fn pair() -> anyhow::Result<(Self, Self)> {
        let controller = port()?;
        tokio::try_join!(Self::make(1, controller), Self::make(2, controller))
    }

    /// Where its clients find it.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.clients)
    }

    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        let properties = self.properties().display().to_string();
        let mut command = self.java.command("-Xmx256m", &["kafka.Kafka", &properties]);
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        self.process = Some(command.spawn().context("starting a broker")?);
        let address = self.bootstrap();
        let listens = async || TcpStream::connect(&address).await.ok().map(drop);
        eventually(LIMIT, "a broker listening", listens).await;
        Ok(())
    }

    /// Kills it as a crash would (SIGKILL).
    ///
    /// # Errors
    /// When it did not run.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the broker does not run")?;
        ensure!(process.try_wait()?.is_none(), "the broker had ended by itself");
        process.kill().await?;
        Ok(())
    }

    /// Adds or takes away rights, in the words of Kafka's own tool.
    ///
    /// # Errors
    /// When the tool fails.
    pub async fn rights(&self, words: &[&str]) -> anyhow::Result<()> {
        let login = self.folder.join("admin.properties");
        let text =
            format!("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={LOGIN}\n");
        std::fs::write(&login, text)?;
        let address = format!("127.0.0.1:{}", self.admins);
        let login = login.display().to_string();
        let begin = [
            "org.apache.kafka.tools.AclCommand",
            "--bootstrap-server",
            &address,
            "--command-config",
            &login,
            "--force",
        ];
        self.java.run(&[&begin, words].concat()).await
    }

    async fn make(node: u8, controller: u16) -> anyhow::Result<Self> {
        let folder = crate::stack().state_dir.join("data").join(crate::unique("kafka"));
        std::fs::create_dir_all(&folder)?;
        let (java, clients, admins) = (Java::find()?, port()?, port()?);
        let mut broker = Self { java, folder, clients, admins, process: None };
        std::fs::write(broker.properties(), broker.settings(node, controller))?;
        let properties = broker.properties().display().to_string();
        broker.java.run(&["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", &properties]).await?;
        broker.start().await?;
        Ok(broker)
    }

    fn properties(&self) -> PathBuf {
        self.folder.join("properties")
    }

    fn settings(&self, node: u8, controller: u16) -> String {
        let mut listeners =
            format!("CLIENTS://127.0.0.1:{},ADMINS://127.0.0.1:{}", self.clients, self.admins);
        let advertised = listeners.clone();
        let mut roles = "broker";
        if node == 1 {
            roles = "broker,controller";
            let _ = write!(listeners, ",CONTROLLER://127.0.0.1:{controller}");
        }
        let mut text = String::new();
        for (name, value) in [
            ("process.roles", roles),
            ("node.id", &node.to_string()),
            ("controller.quorum.voters", &format!("1@127.0.0.1:{controller}")),
            ("listeners", &listeners),
            ("advertised.listeners", &advertised),
            ("controller.listener.names", "CONTROLLER"),
            ("inter.broker.listener.name", "ADMINS"),
            (
                "listener.security.protocol.map",
                "CLIENTS:PLAINTEXT,ADMINS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            ),
            ("sasl.enabled.mechanisms", "PLAIN"),
            ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
            ("sasl.mechanism.controller.protocol", "PLAIN"),
            ("listener.name.admins.plain.sasl.jaas.config", LOGIN),
            ("listener.name.controller.plain.sasl.jaas.config", LOGIN),
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            ("super.users", "User:admin"),
            ("allow.everyone.if.no.acl.found", "true"),
            ("log.dirs", &self.folder.join("data").display().to_string()),
            ("auto.create.topics.enable", "false"),
            ("min.insync.replicas", "2"),
            ("offsets.topic.replication.factor", "2"),
            ("offsets.topic.num.partitions", "4"),
            ("group.initial.rebalance.delay.ms", "0"),
            ("broker.session.timeout.ms", "4000"),
            ("broker.heartbeat.interval.ms", "1000"),
            ("num.network.threads", "2"),
            ("num.io.threads", "2"),
        ] {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.start_kill();
        }
        // What a dying process writes still may stay behind: it goes with the stack.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Java {
    /// As the stack starts its own broker.
    fn find() -> anyhow::Result<Self> {
        let state = &crate::stack().state_dir;
        let programs = Programs::read(&Layout::new(state, state))?.programs;
        let kafka =
            programs.into_iter().find(|program| program.name == "kafka").context("the stack has no Kafka")?;
        let mut words = kafka.command.into_iter();
        let program = words.next().context("Kafka's command is empty")?;
        let class_path = words.skip_while(|word| word != "-cp").nth(1).context("no class path")?;
        Ok(Self { program, class_path })
    }

    fn command(&self, heap: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args([heap, "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
        command.args(["-cp", &self.class_path]);
        command.args(words).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn run(&self, words: &[&str]) -> anyhow::Result<()> {
        let ended = tokio::time::timeout(LIMIT, self.command("-Xmx128m", words).output()).await;
        let output = ended.with_context(|| format!("{words:?} did not end in time"))??;
        let said = || [&output.stdout[..], &output.stderr].concat();
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said()));
        Ok(())
    }
}

fn port() -> anyhow::Result<u16> {
    Ok(crate::free_address()?.port())
}
