//! The main job on a running stack: a database in each region, made through the same command line that users have.
//!
//! Talks to the stack only as a user would; what it prints on the output stream is how to reach the databases.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sandbox::command::{self, TAIL};
use sandbox::progress::Progress;
use sandbox::stack::{ClusterFacts, Layout, StackFacts};
use serde_json::Value;

use crate::terminal::{Terminal, print};
use crate::workspace::Workspace;

/// How long a database may take to become ready.
const TO_BE_READY: Duration = Duration::from_mins(10);
/// How long one attempt to connect to it may take.
const CONNECT: Duration = Duration::from_secs(2);
/// Where QuestDB speaks the PostgreSQL protocol.
const POSTGRES_PORT: u16 = 8812;

/// What a demonstration needs at every step.
pub(super) struct Demo<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) layout: &'a Layout,
    pub(super) facts: &'a StackFacts,
    pub(super) terminal: &'a Terminal,
}

impl Demo<'_> {
    /// Makes the databases, or finds them, and prints how to reach them.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let clusters: Vec<&ClusterFacts> =
            self.facts.clusters.iter().filter(|cluster| !cluster.bare).collect();
        thread::scope(|scope| {
            let handles: Vec<_> = clusters.iter().map(|cluster| scope.spawn(|| self.make(cluster))).collect();
            handles
                .into_iter()
                .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<anyhow::Result<Vec<()>>>()
        })?;
        for cluster in &clusters {
            print(&format!("\n{} in {}\n{}", name_in(cluster), cluster.region, self.connection(cluster)?));
        }
        if let Some(first) = clusters.first() {
            self.print_next(first);
        }
        Ok(())
    }

    /// Sees to it that the cluster has its database and that it is ready.
    fn make(&self, cluster: &ClusterFacts) -> anyhow::Result<()> {
        let name = name_in(cluster);
        let step = format!("database {name}");
        self.terminal.start(&step);
        let since = Instant::now();
        let made = match self.look(&name)? {
            Some(database) if phase(&database) == "Ready" => Ok(()),
            Some(database) => self.follow(&step, &name, &["operations", "watch", operation(&database)]),
            None => self.follow(
                &step,
                &name,
                &["databases", "create", &name, "--region", &cluster.region, "--wait"],
            ),
        };
        let made = made.and_then(|()| self.await_answer(&step, &name));
        match made {
            Ok(()) => self.terminal.done(&step, since.elapsed()),
            Err(ref error) => {
                let logs = self.layout.logs();
                let hint = format!(
                    "'cargo xtask status' shows what runs; the programs' logs are in {}.",
                    logs.display()
                );
                self.terminal.failed(&step, &format!("{error:#}"), &hint);
            }
        }
        made
    }

    /// Waits until it is ready *and* takes connections: after a restart of the stack the last word of its cluster is old.
    fn await_answer(&self, step: &str, name: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + TO_BE_READY;
        loop {
            let database = self.look(name)?.context("it is there")?;
            let phase = phase(&database);
            let answers =
                address(&database).is_some_and(|to| TcpStream::connect_timeout(&to, CONNECT).is_ok());
            if phase == "Ready" && answers {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{name} is {phase} and {}",
                    if answers { "takes connections" } else { "takes no connections" }
                );
            }
            self.terminal.note(step, &format!("{phase}; waiting for its port"));
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// The database as the API shows it, if there is one of that name.
    fn look(&self, name: &str) -> anyhow::Result<Option<Value>> {
        let output =
            self.slipway(&["databases", "get", name, "-o", "json"]).output().context("running slipway")?;
        match output.status.code() {
            Some(0) => Ok(Some(serde_json::from_slice(&output.stdout).context("understanding slipway")?)),
            // The code of 'not found'.
            Some(3) => Ok(None),
            _ => bail!("slipway: {}", String::from_utf8_lossy(&output.stderr).trim_end()),
        }
    }

    /// Runs a command that waits, showing what it says.
    fn follow(&self, step: &str, name: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let log = self.layout.log(name);
        let mut child = self
            .slipway(arguments)
            .stdout(std::fs::File::create(&log)?)
            .stderr(Stdio::piped())
            .spawn()
            .context("starting slipway")?;
        let lines = child
            .stderr
            .take()
            .map(BufReader::new)
            .into_iter()
            .flat_map(BufRead::lines)
            .map_while(Result::ok);
        let mut said = Vec::new();
        for line in lines {
            self.terminal.note(step, line.trim());
            said.push(line);
        }
        let status = command::wait(&mut child, TO_BE_READY)?;
        if !status.success() {
            bail!(
                "{name} did not become ready ({status})\n{}",
                said[said.len().saturating_sub(TAIL)..].join("\n")
            );
        }
        Ok(())
    }

    fn connection(&self, cluster: &ClusterFacts) -> anyhow::Result<String> {
        let kubeconfig = cluster.kubeconfig.display().to_string();
        let kubectl = self.facts.kubectl.display().to_string();
        let name = name_in(cluster);
        // Names of the AWS endpoint's zones are known to nobody outside of it; the machines' addresses are.
        let words = [
            "databases",
            "connect",
            &name,
            "--kubeconfig",
            &kubeconfig,
            "--kubectl",
            &kubectl,
            "--by-address",
        ];
        let output = self.slipway(&words).output().context("asking how to connect")?;
        if !output.status.success() {
            bail!("asking how to connect to {name}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    fn print_next(&self, cluster: &ClusterFacts) {
        let env = self.layout.env_file();
        let env = env.strip_prefix(self.workspace.root()).unwrap_or(&env);
        let name = name_in(cluster);
        print("\nNext:");
        print(&format!("  . {}   # addresses, tokens and tools for this shell", env.display()));
        print(&format!("  slipway databases describe {name}   # what should be, what is, what happened"));
        print(&format!(
            "  slipway databases connect {name} --by-address --kubeconfig $KUBECONFIG --kube-context {} --psql   # SQL",
            cluster.name
        ));
    }

    fn slipway(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.workspace.programs().join("slipway"));
        command
            .args(arguments)
            .env("SLIPWAY_API", self.facts.api_url.as_deref().unwrap_or_default())
            .env("SLIPWAY_TOKEN", self.facts.token.as_deref().unwrap_or_default())
            .env("SLIPWAY_TENANT", sandbox::stack::DEMO_TENANT)
            .stdin(Stdio::null());
        command
    }
}

fn name_in(cluster: &ClusterFacts) -> String {
    format!("demo-{}", cluster.region)
}

/// The database out of what `get` printed: one, or a list of one.
fn one(printed: &Value) -> &Value {
    printed.get(0).or_else(|| printed.pointer("/databases/0")).unwrap_or(printed)
}

fn phase(printed: &Value) -> &str {
    one(printed).pointer("/observed/phase").and_then(Value::as_str).unwrap_or("Pending")
}

/// Where its machine takes connections of the PostgreSQL protocol.
fn address(printed: &Value) -> Option<SocketAddr> {
    let address = one(printed).pointer("/observed/node/address")?.as_str()?;
    Some(SocketAddr::new(address.parse().ok()?, POSTGRES_PORT))
}

fn operation(printed: &Value) -> &str {
    one(printed).get("operation_id").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_database_is_read_from_one_or_from_a_list() {
        let database = json!({"name": "a", "operation_id": "o", "observed": {"phase": "Ready", "node": {"address": "10.1.2.3"}}});
        for printed in [database.clone(), json!([database]), json!({"databases": [database]})] {
            assert_eq!((phase(&printed), operation(&printed)), ("Ready", "o"));
            assert_eq!(address(&printed), "10.1.2.3:8812".parse().ok());
        }
        assert_eq!(phase(&json!({"name": "a"})), "Pending");
        assert_eq!(address(&json!({"name": "a"})), None);
    }
}
