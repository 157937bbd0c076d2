//! The program that a kubeconfig names for tokens, run by us. The library would run it as a part of a call, on a thread that it cannot
//! call off: one that hangs would cost a thread and a process for each call.
//!
//! *Invariant:* what was run has ended when it is no longer waited for, and with it whatever it started.

use std::process::Stdio;
use std::time::Duration;

use kube::config::{AuthInfo, Cluster, ExecAuthCluster, ExecConfig, ExecInteractiveMode, Kubeconfig};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::{Credential, NoToken};

/// As many bytes of what it prints are read; a credential has some thousands.
const MOST: u64 = 1 << 20;

/// A program for tokens.
pub struct Program {
    /// The name of the kubeconfig's user that it is named for.
    user: String,
    exec: ExecConfig,
}

/// What it is told in its environment.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    api_version: Option<&'a str>,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
}

/// What was started; dropped, it is ended.
struct Running(Child);

impl Program {
    /// The program that a client of the current context would ask; `None` where it would ask none, because there is a token already, or
    /// because no client can be made at all. With `provideClusterInfo` it reads the file of the certificate authority, if one is named.
    pub fn of(kubeconfig: &Kubeconfig) -> Result<Option<Self>, NoToken> {
        let Some((cluster, user, auth)) = current(kubeconfig) else { return Ok(None) };
        if auth.auth_provider.as_ref().is_some_and(|provider| provider.config.contains_key("cmd-path")) {
            // The library would run it, without an end.
            return Err(NoToken::because(
                "is of an auth-provider, which Kubernetes gave up: name it under exec",
            ));
        }
        let has_password = auth.username.is_some() && auth.password.is_some();
        let has_token = auth.token.is_some() || auth.token_file.is_some() || auth.auth_provider.is_some();
        let Some(mut exec) = auth.exec.clone().filter(|_| !has_password && !has_token) else {
            return Ok(None);
        };
        if exec.provide_cluster_info {
            let told = ExecAuthCluster::try_from(cluster);
            let told = told.map_err(|_| {
                NoToken::because("is to be told of the certificate authority, which cannot be read")
            })?;
            exec.cluster = Some(told);
        }
        Ok(Some(Self { user: user.to_owned(), exec }))
    }

    /// Asks it. It has as long as `limit`, and is ended then.
    pub async fn run(&self, limit: Duration) -> Result<Credential, NoToken> {
        let printed = tokio::time::timeout(limit, self.output()).await;
        let printed = printed.map_err(|_| NoToken::because(format!("gave nothing within {limit:?}")))??;
        Credential::parse(&self.user, &printed)
    }

    async fn output(&self) -> Result<Vec<u8>, NoToken> {
        let started = self.command()?.spawn();
        let started = started.map_err(|error| NoToken::because(format!("cannot be started ({error})")))?;
        let mut running = Running(started);
        let lost = |error: std::io::Error| NoToken::because(format!("cannot be heard ({error})"));
        let mut printed = Vec::new();
        // To its end before the program is waited for: as long as it was not, its number is nobody else's.
        if let Some(output) = running.0.stdout.take() {
            output.take(MOST).read_to_end(&mut printed).await.map_err(lost)?;
        }
        let status = running.0.wait().await.map_err(lost)?;
        if status.success() { Ok(printed) } else { Err(NoToken::because(format!("failed ({status})"))) }
    }

    fn command(&self) -> Result<Command, NoToken> {
        let exec = &self.exec;
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(NoToken::because("asks people (interactiveMode is Always), and nobody is here"));
        }
        let program = exec.command.as_ref().ok_or_else(|| NoToken::because("has no command"))?;
        let asked = Asked {
            api_version: exec.api_version.as_deref(),
            kind: "ExecCredential",
            spec: Spec { interactive: false, cluster: exec.cluster.as_ref() },
        };
        let asked = serde_json::to_string(&asked);
        let asked = asked.map_err(|_| NoToken::because("cannot be told what is asked of it"))?;
        let variables = exec.env.iter().flatten();
        let variables = variables.filter_map(|one| Some((one.get("name")?, one.get("value")?)));
        let mut command = Command::new(program);
        command.args(exec.args.iter().flatten()).envs(variables).env("KUBERNETES_EXEC_INFO", asked);
        // What it says aside is for people who run it by hand.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // None once it was waited for. Those that it started go with it: a shell is often between us and what hangs.
        let number = self.0.id().and_then(|number| i32::try_from(number).ok());
        if let Some(number) = number {
            // It fails only if nobody is left.
            let _ = killpg(Pid::from_raw(number), Signal::SIGKILL);
        }
    }
}

/// Cluster and user of the current context, where all of it is there.
pub(crate) fn current(kubeconfig: &Kubeconfig) -> Option<(&Cluster, &str, &AuthInfo)> {
    let name = kubeconfig.current_context.as_deref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == name)?.context.as_ref()?;
    let user = context.user.as_deref()?;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?;
    let auth = kubeconfig.auth_infos.iter().find(|named| named.name == user)?;
    Some((cluster.cluster.as_ref()?, user, auth.auth_info.as_ref()?))
}

#[cfg(test)]
mod tests;
