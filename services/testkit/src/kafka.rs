//! Kafka brokers of a test's own: two of a cluster, killed and started again as the test likes. A write counts only if both
//! have it.
//!
//! Clients come in without a password, as nobody in particular, and may do everything until a test takes a right away;
//! brokers and Kafka's own tools come in by another door, as the administrator. Or one alone that lets clients in by TLS and
//! with a password only.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sandbox::stack::{Layout, Programs};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::eventually;

/// How long a broker may take to start, and a tool to do its work.
const LIMIT: Duration = Duration::from_mins(3);
/// Any identity: no other cluster is ever met.
const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";
const LOGIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
                     password=\"admin\" user_admin=\"admin\";";

const KEYS_PASSWORD: &str = "changeit";

/// How long a login at the locked door holds: then the client has to log in again on the same connection.
pub const LOGIN_HOLDS: Duration = Duration::from_secs(3);

/// How clients come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// As anybody.
    Open,
    /// By TLS, with a password that has to be said again after so long.
    Locked(Option<Duration>),
}

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
        tokio::try_join!(Self::make(1, controller, Door::Open), Self::make(2, controller, Door::Open))
    }

    /// One broker alone, whose clients speak TLS and log in (SCRAM-SHA-512), again every [`LOGIN_HOLDS`]. Nobody may yet: see
    /// [`Self::password`].
    ///
    /// # Errors
    /// When it cannot be made or started.
    pub async fn locked() -> anyhow::Result<Self> {
        Self::make(1, port()?, Door::Locked(Some(LOGIN_HOLDS))).await
    }

    /// Two such brokers, where a login holds as long as its connection.
    ///
    /// # Errors
    /// When they cannot be made or started.
    pub async fn locked_pair() -> anyhow::Result<(Self, Self)> {
        let (controller, door) = (port()?, Door::Locked(None));
        let (one, other) =
            tokio::try_join!(Self::make(1, controller, door), Self::make(2, controller, door))?;
        // Who believes one believes the other.
        let [first, second] = [&one, &other].map(|broker| std::fs::read_to_string(broker.certificate()));
        std::fs::write(one.certificate(), first? + &second?)?;
        Ok((one, other))
    }

    /// Gives a user of the locked door a password, in the place of any before.
    ///
    /// # Errors
    /// When Kafka's tool fails.
    pub async fn password(&self, user: &str, password: &str) -> anyhow::Result<()> {
        let scram = format!("SCRAM-SHA-512=[iterations=4096,password={password}]");
        let words = ["--alter", "--add-config", &scram, "--entity-type", "users", "--entity-name", user];
        self.administrate("kafka.admin.ConfigCommand", &words).await
    }

    /// The file of properties with which a client comes in at the locked door. Written anew as a mounted Secret is: whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn login(&self, user: &str, password: &str) -> anyhow::Result<PathBuf> {
        let (certificate, file) = (self.certificate(), self.folder.join("client.properties"));
        let certificate = certificate.display();
        let text = format!(
            "# TLS, and a password\nsecurity.protocol=SASL_SSL\nssl.ca.location={certificate}\n\
             sasl.mechanism=SCRAM-SHA-512\nsasl.username={user}\nsasl.password={password}\n"
        );
        let unfinished = file.with_extension("new");
        std::fs::write(&unfinished, text)?;
        std::fs::rename(unfinished, &file)?;
        Ok(file)
    }

    /// The certificate by which clients know that it is this broker.
    fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
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

    /// Lets none of its files grow any more, as when its disk is full, and waits until that has ended it. Started again, it
    /// has room.
    ///
    /// # Errors
    /// When it did not run, or goes on.
    pub async fn fill_disk(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the broker does not run")?;
        let pid = process.id().context("the broker had ended by itself")?.to_string();
        let mut limit = Command::new("prlimit");
        limit.args(["--pid", &pid, "--fsize=1:1"]).stdin(Stdio::null()).kill_on_drop(true);
        finish(limit, &["prlimit"]).await?;
        let ended = tokio::time::timeout(LIMIT, process.wait()).await;
        ended.context("a broker whose files cannot grow goes on")??;
        Ok(())
    }

    /// Adds or takes away rights, in the words of Kafka's own tool.
    ///
    /// # Errors
    /// When the tool fails.
    pub async fn rights(&self, words: &[&str]) -> anyhow::Result<()> {
        self.administrate("org.apache.kafka.tools.AclCommand", &[&["--force"], words].concat()).await
    }

    async fn administrate(&self, tool: &str, words: &[&str]) -> anyhow::Result<()> {
        let login = self.folder.join("admin.properties");
        let text =
            format!("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={LOGIN}\n");
        std::fs::write(&login, text)?;
        let address = format!("127.0.0.1:{}", self.admins);
        let login = login.display().to_string();
        let begin = [tool, "--bootstrap-server", &address, "--command-config", &login];
        self.java.run(&[&begin, words].concat()).await
    }

    async fn make(node: u8, controller: u16, door: Door) -> anyhow::Result<Self> {
        let folder = crate::stack().state_dir.join("data").join(crate::unique("kafka"));
        std::fs::create_dir_all(&folder)?;
        let (java, clients, admins) = (Java::find()?, port()?, port()?);
        let mut broker = Self { java, folder, clients, admins, process: None };
        let mut settings = broker.settings(node, controller, door);
        if let Door::Locked(holds) = door {
            let name = format!("CN=broker-{}", broker.clients);
            broker.java.make_certificate(&name, &broker.keys(), &broker.certificate()).await?;
            settings += &broker.lock(holds);
        }
        std::fs::write(broker.properties(), settings)?;
        let properties = broker.properties().display().to_string();
        broker.java.run(&["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", &properties]).await?;
        broker.start().await?;
        Ok(broker)
    }

    fn properties(&self) -> PathBuf {
        self.folder.join("properties")
    }

    fn keys(&self) -> PathBuf {
        self.folder.join("keys.p12")
    }

    /// What the locked door needs beside the other settings.
    fn lock(&self, holds: Option<Duration>) -> String {
        let mut text = String::new();
        let holds = holds.unwrap_or_default().as_millis().to_string();
        for (name, value) in [
            ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
            (
                "scram-sha-512.sasl.jaas.config",
                "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            ),
            ("scram-sha-512.connections.max.reauth.ms", &holds),
            ("ssl.keystore.type", "PKCS12"),
            ("ssl.keystore.location", &self.keys().display().to_string()),
            ("ssl.keystore.password", KEYS_PASSWORD),
            ("ssl.key.password", KEYS_PASSWORD),
        ] {
            let _ = writeln!(text, "listener.name.clients.{name}={value}");
        }
        text
    }

    fn settings(&self, node: u8, controller: u16, door: Door) -> String {
        let (clients, copies) = match door {
            Door::Open => ("PLAINTEXT", "2"),
            Door::Locked(_) => ("SASL_SSL", "1"),
        };
        let protocols = format!("CLIENTS:{clients},ADMINS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT");
        let mut listeners =
            format!("CLIENTS://127.0.0.1:{},ADMINS://127.0.0.1:{}", self.clients, self.admins);
        let advertised = listeners.clone();
        let mut roles = "broker";
        if node == 1 {
            roles = "broker,controller";
            let _ = write!(listeners, ",CONTROLLER://127.0.0.1:{controller}");
        }
        // A broker may be there long before its controller is, on busy processors.
        let registration = LIMIT.as_millis().to_string();
        let mut text = String::new();
        for (name, value) in [
            ("process.roles", roles),
            ("node.id", &node.to_string()),
            ("controller.quorum.voters", &format!("1@127.0.0.1:{controller}")),
            ("listeners", &listeners),
            ("advertised.listeners", &advertised),
            ("controller.listener.names", "CONTROLLER"),
            ("inter.broker.listener.name", "ADMINS"),
            ("listener.security.protocol.map", &protocols),
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
            ("min.insync.replicas", copies),
            ("offsets.topic.replication.factor", copies),
            ("offsets.topic.num.partitions", "4"),
            ("group.initial.rebalance.delay.ms", "0"),
            ("initial.broker.registration.timeout.ms", &registration),
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
        finish(self.command("-Xmx128m", words), words).await
    }

    /// A key pair for `127.0.0.1`, and its certificate, which nobody but itself vouches for.
    async fn make_certificate(&self, name: &str, keys: &Path, certificate: &Path) -> anyhow::Result<()> {
        let (keys, certificate) = (keys.display().to_string(), certificate.display().to_string());
        let stored =
            ["-keystore", &keys, "-storetype", "PKCS12", "-storepass", KEYS_PASSWORD, "-alias", "broker"];
        let pair = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3"];
        let name = ["-dname", name, "-ext", "san=ip:127.0.0.1", "-ext", "bc=ca:true"];
        let export = ["-exportcert", "-rfc", "-file", &certificate];
        for words in [[&pair[..], &name, &stored].concat(), [&export[..], &stored].concat()] {
            let mut tool = Command::new(Path::new(&self.program).with_file_name("keytool"));
            tool.args(&words).stdin(Stdio::null()).kill_on_drop(true);
            finish(tool, &words).await?;
        }
        Ok(())
    }
}

/// Runs a tool to its end.
async fn finish(mut command: Command, words: &[&str]) -> anyhow::Result<()> {
    let ended = tokio::time::timeout(LIMIT, command.output()).await;
    let output = ended.with_context(|| format!("{words:?} did not end in time"))??;
    let said = || [&output.stdout[..], &output.stderr].concat();
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said()));
    Ok(())
}

fn port() -> anyhow::Result<u16> {
    Ok(crate::free_address()?.port())
}
