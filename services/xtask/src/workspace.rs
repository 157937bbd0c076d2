//! The checkout, its stacks, its cache and its build: the few facts every command starts from.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use sandbox::install::{self, Cache, Component, Release};
use sandbox::progress::Progress;
use sandbox::stack::{Layout, Tools};
use sandbox::supervisor;

/// A checkout of Slipway.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    root: PathBuf,
    executable: PathBuf,
    programs: PathBuf,
    cache: Cache,
    kubernetes: Release,
}

impl Workspace {
    /// The checkout around the working directory.
    pub(crate) fn find(cache: Option<PathBuf>) -> anyhow::Result<Self> {
        let here = std::env::current_dir().context("finding the working directory")?;
        let root = here.ancestors().find(|folder| folder.join("services/xtask/Cargo.toml").exists());
        let root = root.context("this is not a checkout of Slipway")?.to_path_buf();
        // Remembered now: a build during this command puts another file in its place.
        let executable = std::env::current_exe().context("finding my own program")?;
        let programs = executable.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { root, executable, programs, cache: Cache::locate(cache)?, kubernetes: Release::Usual })
    }

    /// The same checkout, whose stacks run on another release of Kubernetes.
    pub(crate) fn on(&self, kubernetes: Release) -> Self {
        Self { kubernetes, ..self.clone() }
    }

    /// Root of the checkout.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The stack that people use.
    pub(crate) fn stack(&self) -> Layout {
        Layout::new(&self.root, self.root.join(".slipway"))
    }

    /// The stack of the tests, apart from it.
    pub(crate) fn test_stack(&self) -> Layout {
        Layout::new(&self.root, self.root.join(".slipway/test"))
    }

    /// Folder of the built programs: where this one lies too.
    pub(crate) fn programs(&self) -> PathBuf {
        self.programs.clone()
    }

    /// Folder of everything that is built.
    pub(crate) fn target(&self) -> PathBuf {
        self.programs.parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// The same checkout with its release builds.
    pub(crate) fn released(&self) -> Self {
        let programs = self.programs.parent().map(|target| target.join("release")).unwrap_or_default();
        Self { programs, ..self.clone() }
    }

    /// A cargo command in the root, which builds where this program was built.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(&self.root);
        if let Some(target) = self.programs.parent() {
            command.env("CARGO_TARGET_DIR", target);
        }
        command
    }

    /// The command that supervises a stack.
    pub(crate) fn supervisor(&self, layout: &Layout) -> Command {
        let mut command = Command::new(&self.executable);
        command.arg("supervise").arg("--state").arg(layout.state()).current_dir(&self.root);
        command
    }

    /// The stack of the benches.
    pub(crate) fn bench_stack(&self) -> Layout {
        Layout::new(&self.root, self.root.join(".slipway/bench"))
    }

    /// Every stack that this checkout may have, with what started it.
    pub(crate) fn stacks(&self) -> [(&'static str, Layout); 3] {
        [("bench", self.bench_stack()), ("test", self.test_stack()), ("up", self.stack())]
    }

    /// Sees to it that the packages of the system are there, some of which compiling needs too.
    pub(crate) fn install_packages(&self, progress: &dyn Progress) -> anyhow::Result<()> {
        install::ensure(&self.cache, &[Component::SystemPackages], progress)?;
        Ok(())
    }

    /// Sees to it that all servers are installed.
    pub(crate) fn install(&self, progress: &dyn Progress) -> anyhow::Result<Tools> {
        let installed = install::ensure(&self.cache, &Component::all_with(self.kubernetes), progress)?;
        Ok(Tools {
            java: installed.java().to_path_buf(),
            kafka_lib: installed.kafka_lib(),
            postgres_bin: installed.postgres_bin().to_path_buf(),
            kubernetes_bin: installed.kubernetes_bin(),
            etcd_bin: installed.etcd_bin(),
            questdb_lib: installed.questdb_lib(),
            aws_python: installed.aws_python(),
            programs: self.programs(),
        })
    }
}

/// Takes the right to change a stack; an error tells when another command has it.
pub(crate) fn lock(layout: &Layout) -> anyhow::Result<File> {
    for folder in layout.folders() {
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    }
    match supervisor::try_lock(&layout.command_lock())? {
        Some(lock) => Ok(lock),
        None => bail!("another 'cargo xtask' works on {} right now", layout.state().display()),
    }
}
