//! A real QuestDB of a test's own, at an address of its own, as the pod of a database whose cluster runs none.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::{eventually, unique};
use tokio::process::{Child, Command};

use crate::support::questdb_lib;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_mins(3);

/// One process with a root of its own; it ends with the test.
pub(super) struct Questdb {
    pub(super) address: IpAddr,
    credentials: (String, String),
    root: PathBuf,
    child: Child,
}

impl Questdb {
    /// Starts it with these credentials and waits until it answers.
    pub(super) async fn start(credentials: (String, String)) -> Self {
        let root = testkit::scratch().join(unique("questdb"));
        std::fs::create_dir_all(root.join("conf")).unwrap();
        Self::over(root, credentials).await
    }

    /// Starts another one over what a disk held at one moment, as whoever restores it does.
    pub(super) async fn restore(&self, root: PathBuf) -> Self {
        std::fs::write(root.join("_restore"), "").unwrap();
        let restored = Self::over(root, self.credentials.clone()).await;
        assert!(!restored.root.join("_restore").exists(), "it did not restore");
        restored
    }

    async fn over(root: PathBuf, credentials: (String, String)) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let place = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = u8::try_from(std::process::id() % 250 + 1).unwrap();
        let address = Ipv4Addr::new(127, 78, process, place);
        let (user, password) = &credentials;
        let conf = format!(
            "http.bind.to={address}:9000\nhttp.user={user}\nhttp.password={password}\nhttp.min.enabled=false\n\
             pg.enabled=false\nline.tcp.enabled=false\ntelemetry.enabled=false\nshared.worker.count=1\n"
        );
        std::fs::write(root.join("conf/server.conf"), conf).unwrap();
        let child = launch(&root);
        let questdb = Self { address: IpAddr::V4(address), credentials, root, child };
        questdb.answers().await;
        questdb
    }

    /// Has other lines in its server.conf, which it reads when it is told to.
    pub(super) fn configure(&self, lines: &str) {
        let path = self.root.join("conf/server.conf");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{text}{lines}\n")).unwrap();
    }

    /// Dies as by a crash and starts again.
    pub(super) async fn crash(&mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
        self.child = launch(&self.root);
        self.answers().await;
    }

    /// What the disk holds at this moment, as a snapshot has it: the process stands still meanwhile.
    pub(super) async fn disk(&self) -> PathBuf {
        let copy = testkit::scratch().join(unique("disk"));
        let pid = self.child.id().unwrap().to_string();
        run("kill", &["-STOP", &pid]).await;
        run("cp", &["-a", self.root.to_str().unwrap(), copy.to_str().unwrap()]).await;
        run("kill", &["-CONT", &pid]).await;
        copy
    }

    /// Carries out a statement.
    pub(super) async fn sql(&self, statement: &str) -> Value {
        let answer = self.ask(statement).await.unwrap_or_else(|| panic!("no answer to {statement}"));
        assert!(answer["error"].is_null(), "{statement}: {answer}");
        answer
    }

    /// When the checkpoint began that holds it.
    pub(super) async fn held_since(&self) -> Option<String> {
        let answer = self.sql("SELECT in_progress, started_at FROM checkpoint_status()").await;
        let held = answer["dataset"][0][0].as_bool().unwrap();
        held.then(|| answer["dataset"][0][1].as_str().unwrap().to_owned())
    }

    async fn ask(&self, statement: &str) -> Option<Value> {
        let (user, password) = &self.credentials;
        let request = testkit::http().get(format!("http://{}:9000/exec", self.address));
        let request = request.query(&[("query", statement)]).basic_auth(user, Some(password));
        request.send().await.ok()?.json().await.ok()
    }

    async fn answers(&self) {
        eventually(PATIENCE, "an answer of QuestDB", async || self.ask("SELECT 1").await.map(drop)).await;
    }
}

impl Drop for Questdb {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

async fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().await.unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

fn launch(root: &Path) -> Child {
    let log = std::fs::File::create(root.join("log.txt")).unwrap();
    Command::new("java")
        // Its library, which it unpacks and leaves behind, goes with the rest.
        .arg(format!("-Djava.io.tmpdir={}", root.display()))
        .args(["-Xmx256m", "-p"])
        .arg(questdb_lib())
        .args(["-m", "io.questdb/io.questdb.ServerMain", "-d"])
        .arg(root)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
