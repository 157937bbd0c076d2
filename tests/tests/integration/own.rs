//! A cluster of the test's own, to be restored from a backup: etcd and API server as those of the bare cluster run, on
//! other ports and data.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::config::Kubeconfig;
use testkit::{Server, eventually, stack, unique};
use tokio::process::{Child, Command};

/// How long the API server may take to answer.
const START: Duration = Duration::from_mins(4);

pub(crate) struct Own {
    folder: PathBuf,
    etcd: Vec<String>,
    api_server: Vec<String>,
    running: Vec<Child>,
    /// Kubeconfig of the administrator.
    pub(crate) admin: PathBuf,
    /// Kubeconfig of the provisioner.
    pub(crate) provisioner: PathBuf,
    /// Kubeconfig of the operator.
    pub(crate) operator: PathBuf,
}

impl Own {
    /// A cluster with our definition, policies and rights.
    pub(crate) async fn start() -> Self {
        let folder = testkit::scratch().join(unique("own"));
        std::fs::create_dir_all(folder.join("certificates")).unwrap();
        let [client, peer, api] = [(); 3].map(|()| testkit::free_address().unwrap());
        let data = folder.join("etcd");
        let etcd = command_of(
            "bare-etcd",
            &[
                ("--data-dir", &data.display().to_string()),
                ("--listen-client-urls", &format!("http://{client}")),
                ("--advertise-client-urls", &format!("http://{client}")),
                ("--listen-peer-urls", &format!("http://{peer}")),
                ("--initial-advertise-peer-urls", &format!("http://{peer}")),
                ("--initial-cluster", &format!("default=http://{peer}")),
            ],
        );
        let api_server = command_of(
            "bare-apiserver",
            &[
                ("--etcd-servers", &format!("http://{client}")),
                ("--secure-port", &api.port().to_string()),
                ("--cert-dir", &folder.join("certificates").display().to_string()),
            ],
        );
        let facts = testkit::bare_cluster();
        let server = format!("https://127.0.0.1:{}", api.port());
        let [admin, provisioner, operator] = [
            ("admin", &facts.kubeconfig),
            ("provisioner", &facts.provisioner_kubeconfig),
            ("operator", &facts.operator_kubeconfig),
        ]
        .map(|(name, like)| {
            let path = folder.join(format!("{name}.kubeconfig"));
            std::fs::write(&path, kubeconfig(like, &server, &folder)).unwrap();
            path
        });
        let mut own = Self { folder, etcd, api_server, running: Vec::new(), admin, provisioner, operator };
        own.run().await;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy");
        for part in ["crds", "rbac", "policies"] {
            own.kubectl(&["apply", "--filename", &root.join(part).display().to_string()]).await;
        }
        own
    }

    /// Takes a backup; the servers stand still for that.
    pub(crate) async fn back_up(&mut self) {
        self.stop().await;
        self.copy("etcd", "backup");
        self.run().await;
    }

    /// Brings back what the backup has; all that was written since is lost.
    pub(crate) async fn restore(&mut self) {
        self.stop().await;
        std::fs::remove_dir_all(self.folder.join("etcd")).unwrap();
        self.copy("backup", "etcd");
        self.run().await;
    }

    /// Writes to it until its version has passed another: by its version alone it cannot be told from one that lost nothing.
    pub(crate) async fn written_past(&self, version: u64) {
        let notes: Api<ConfigMap> = Api::namespaced(testkit::client(&self.admin).await.unwrap(), "default");
        let metadata = ObjectMeta { generate_name: Some("note-".to_owned()), ..ObjectMeta::default() };
        let note = ConfigMap { metadata, ..ConfigMap::default() };
        let mut reached = 0;
        while reached <= version {
            // Just started, it may take long with its first requests.
            let written = async || notes.create(&PostParams::default(), &note).await.ok();
            let made = eventually(START, "a note", written).await;
            reached = made.metadata.resource_version.unwrap().parse().unwrap();
        }
    }

    async fn run(&mut self) {
        self.running = vec![self.spawn("etcd", &self.etcd), self.spawn("api-server", &self.api_server)];
        eventually(START, "the API server", async || {
            // An API server ends by itself when etcd takes long to come, and either when somebody has its port just now.
            if self.running[0].try_wait().unwrap().is_some() {
                self.running[0] = self.spawn("etcd", &self.etcd);
            }
            if self.running[1].try_wait().unwrap().is_some() {
                self.running[1] = self.spawn("api-server", &self.api_server);
            }
            self.run_kubectl(&["get", "--raw=/readyz"]).await.then_some(())
        })
        .await;
    }

    fn spawn(&self, name: &str, command: &[String]) -> Child {
        let path = self.folder.join(format!("{name}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        child.unwrap()
    }

    /// Kills both, as a lost machine does: the API server first.
    async fn stop(&mut self) {
        while let Some(mut child) = self.running.pop() {
            child.kill().await.unwrap();
        }
    }

    fn copy(&self, from: &str, to: &str) {
        let copied = std::process::Command::new("cp")
            .args(["--recursive", "--preserve"])
            .args([self.folder.join(from), self.folder.join(to)])
            .status();
        assert!(copied.unwrap().success(), "{from} was copied to {to}");
    }

    async fn kubectl(&self, arguments: &[&str]) {
        let what = format!("kubectl {}", arguments.join(" "));
        eventually(START, &what, async || self.run_kubectl(arguments).await.then_some(())).await;
    }

    async fn run_kubectl(&self, arguments: &[&str]) -> bool {
        let output = Command::new(&stack().kubectl)
            .arg(format!("--kubeconfig={}", self.admin.display()))
            .arg("--request-timeout=5s")
            .args(arguments)
            .output()
            .await;
        output.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The command of a server of the stack with other values of some flags.
fn command_of(server: &str, changes: &[(&str, &str)]) -> Vec<String> {
    let pid = Server::named(server).status().unwrap().pid.expect("it runs");
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let mut command: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    for (flag, value) in changes {
        let beginning = format!("{flag}=");
        let word = command.iter_mut().find(|word| word.starts_with(&beginning)).expect("it has the flag");
        *word = format!("{beginning}{value}");
    }
    command
}

/// The credentials of somebody of the bare cluster for another server, which signed its own certificate.
fn kubeconfig(like: &Path, server: &str, folder: &Path) -> String {
    let mut config = Kubeconfig::read_from(like).unwrap();
    for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.server = Some(server.to_owned());
        cluster.certificate_authority_data = None;
        let certificate = folder.join("certificates").join("apiserver.crt");
        cluster.certificate_authority = Some(certificate.display().to_string());
    }
    serde_json::to_string(&config).unwrap()
}
