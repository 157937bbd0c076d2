//! kubectl as somebody at a terminal has it, who follows the operator's guides line by line.

use std::process::{Output, Stdio};

use serde_json::Value;
use testkit::bare_cluster;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use super::rig::{PATIENCE, Rig};
use crate::support::stack;

/// What the guides say.
pub(super) const GUIDES: [&str; 2] = [
    include_str!("../../../../deploy/operator/README.md"),
    include_str!("../../../../deploy/operator/snapshots.md"),
];

/// A terminal of somebody with one namespace and one database in it.
pub(super) struct Kubectl {
    namespace: String,
    database: String,
}

impl Kubectl {
    pub(super) fn new(rig: &Rig, database: &str) -> Self {
        Self { namespace: rig.namespace.clone(), database: database.to_owned() }
    }

    /// Begins what lines of a guide say, with the names of this test and its patience in place of the guide's.
    pub(super) fn follow(&self, lines: &str) -> Child {
        for line in lines.lines() {
            assert!(GUIDES.iter().any(|guide| guide.contains(line)), "no guide says: {line}");
        }
        let script: Vec<_> = lines.lines().map(|line| self.own(line)).collect();
        shell(&script.join("\n"))
    }

    fn own(&self, line: &str) -> String {
        let mut own = line.replace("-n data ", "").replace("trades", &self.database);
        for long in ["5m", "15m", "30m", "2h"] {
            own = own.replace(&format!("--timeout={long}"), "--timeout=180s");
        }
        // What is so at once is waited for as long as a busy API server may take to say so.
        own = own.replace("--timeout=1s", "--timeout=20s");
        own.replace("kubectl ", &format!("kubectl --namespace {} ", self.namespace))
    }

    /// What the API server makes of an object, which stays there if it is `kept`.
    pub(super) async fn apply(&self, object: &Value, kept: bool) -> Value {
        let dry_run = if kept { "none" } else { "server" };
        let line = format!(
            "kubectl --namespace {} apply --validate=strict --dry-run={dry_run} --output=json --filename=-",
            self.namespace
        );
        let mut applying = shell(&line);
        let mut input = applying.stdin.take().unwrap();
        input.write_all(object.to_string().as_bytes()).await.unwrap();
        drop(input);
        let (code, stdout, stderr) = ended(applying).await;
        assert_eq!(code, Some(0), "the API server refuses what a guide shows: {stderr}\n{object:#}");
        serde_json::from_str(&stdout).unwrap()
    }
}

fn shell(script: &str) -> Child {
    let place = stack().kubectl.parent().unwrap().display();
    Command::new("/bin/sh")
        .args(["-ec", script])
        .env("PATH", format!("{place}:/usr/bin:/bin"))
        .env("KUBECONFIG", &bare_cluster().kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Exit code and what it printed.
pub(super) async fn ended(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        tokio::time::timeout(3 * PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// What it printed, having ended well.
pub(super) async fn succeeded(child: Child) -> String {
    let (code, stdout, stderr) = ended(child).await;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    stdout
}

/// How many of the things that were waited for came.
pub(super) fn met(printed: &str) -> usize {
    printed.lines().filter(|line| line.ends_with(" condition met")).count()
}
