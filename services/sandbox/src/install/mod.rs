//! Installs what the local stack runs on: packages of the system, and the servers, each in one pinned version.
//!
//! Servers go to a cache outside the tree that several checkouts and processes share (see [`Cache`]). What is there is not
//! touched again: [`ensure`] then looks at a few files, starts no build and never uses the network.
//!
//! It never starts a server, never changes the checkout, and never removes an entry that is not outdated or damaged.

mod build;
mod cache;
mod command;
mod error;
mod lock;
mod programs;
mod recipe;
#[cfg(test)]
mod scratch;
mod system;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

pub use cache::Cache;
pub use error::{Error, Failure};
pub use recipe::{ETCD, KAFKA, KUBERNETES, OLDER_QUESTDB, QUESTDB};

use crate::progress::Progress;
use command::Shell;
use recipe::{Recipe, key};

/// Something that the local stack needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Packages of the operating system, `PostgreSQL` and Java among them.
    SystemPackages,
    /// etcd.
    Etcd,
    /// kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
    Kubernetes(Release),
    /// The jar of `QuestDB`.
    QuestDb,
    /// The jar of the release before it, beside it.
    OlderQuestDb,
    /// The jars of Apache Kafka.
    Kafka,
    /// Definitions of other projects' kinds.
    Definitions,
    /// The Python environment of the AWS endpoint.
    AwsEndpoint,
}

impl Component {
    /// Everything, in the order in which it is worth having, with another release of Kubernetes.
    pub fn all_with(kubernetes: Release) -> [Self; 8] {
        Self::ALL.map(|one| match one {
            Self::Kubernetes(_) => Self::Kubernetes(kubernetes),
            other => other,
        })
    }

    /// Everything, in the order in which it is worth having.
    pub const ALL: [Self; 8] = [
        Self::SystemPackages,
        Self::Etcd,
        Self::Kubernetes(Release::Usual),
        Self::QuestDb,
        Self::OlderQuestDb,
        Self::Kafka,
        Self::Definitions,
        Self::AwsEndpoint,
    ];
}

/// Releases of Kubernetes from the oldest to the newest that the operator is supported on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// The oldest.
    Oldest,
    /// The one that everything runs on, unless another is asked for.
    #[default]
    Usual,
    /// The newest.
    Newest,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Oldest, Self::Usual, Self::Newest];
}

/// Where everything is. Paths of components that were not asked for are where they would be.
#[derive(Debug, Clone)]
pub struct Installed {
    cache: Cache,
    kubernetes: Release,
    java: PathBuf,
    postgres_bin: PathBuf,
}

impl Installed {
    fn find(cache: &Cache, kubernetes: Release) -> Self {
        Self {
            cache: cache.clone(),
            kubernetes,
            java: programs::java().unwrap_or_else(|| PathBuf::from("/usr/bin/java")),
            postgres_bin: programs::postgres_bin()
                .unwrap_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin")),
        }
    }

    /// Directory of kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
    pub fn kubernetes_bin(&self) -> PathBuf {
        self.entry(Component::Kubernetes(self.kubernetes)).join("bin")
    }

    /// Directory of etcd.
    pub fn etcd_bin(&self) -> PathBuf {
        self.entry(Component::Etcd).join("bin")
    }

    /// Directory of Kafka's jars, all of which belong on the class path.
    pub fn kafka_lib(&self) -> PathBuf {
        self.entry(Component::Kafka).join("lib")
    }

    /// Directory of the `QuestDB` jar.
    pub fn questdb_lib(&self) -> PathBuf {
        self.entry(Component::QuestDb).join("lib")
    }

    /// The Python interpreter that has what the AWS endpoint imports. Start programs as its `-m`.
    pub fn aws_python(&self) -> PathBuf {
        self.entry(Component::AwsEndpoint).join("venv/bin/python")
    }

    /// Directory of the `PostgreSQL` server's programs.
    pub fn postgres_bin(&self) -> &Path {
        &self.postgres_bin
    }

    /// The Java runtime.
    pub fn java(&self) -> &Path {
        &self.java
    }

    fn entry(&self, component: Component) -> PathBuf {
        self.cache.directory(&key(component))
    }
}

/// Sees to it that the components are there, installing what is not. Says nothing of what is there already.
///
/// Packages of the system come first, as the rest may need them; then compiling and fetching go on side by side.
/// When something fails, what is under way is finished, because it is kept, and nothing new is begun.
pub fn ensure(cache: &Cache, components: &[Component], progress: &dyn Progress) -> Result<Installed, Error> {
    if components.contains(&Component::SystemPackages) {
        system::ensure(cache, progress)?;
    }
    let (compile, fetch): (Vec<Recipe>, Vec<Recipe>) = components
        .iter()
        .filter_map(|component| recipe::recipe(*component))
        .filter(|recipe| !cache.is_ready(&recipe.entry))
        .partition(|recipe| recipe.source.is_compiled());
    let stop = AtomicBool::new(false);
    let lane = |recipes: &[Recipe]| install_in_turn(cache, recipes, progress, &stop);
    let (compiled, fetched) = thread::scope(|scope| {
        let compiling = scope.spawn(|| lane(&compile));
        let fetched = lane(&fetch);
        let compiled = compiling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (compiled, fetched)
    });
    compiled.and(fetched)?;
    let kubernetes = components.iter().find_map(|component| match component {
        Component::Kubernetes(release) => Some(*release),
        _ => None,
    });
    Ok(Installed::find(cache, kubernetes.unwrap_or_default()))
}

fn install_in_turn(
    cache: &Cache,
    recipes: &[Recipe],
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(), Error> {
    for recipe in recipes {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        install(cache, recipe, progress).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
    }
    Ok(())
}

fn install(cache: &Cache, recipe: &Recipe, progress: &dyn Progress) -> Result<(), Error> {
    let step = recipe.entry.step.as_str();
    progress.start(step);
    let since = Instant::now();
    let waiting = |holder: &str| {
        progress.note(step, &format!("waiting for process {holder}, which installs it"));
    };
    let result = cache.install(&recipe.entry, &waiting, &|into| {
        let shell = Shell {
            step,
            log: cache.fresh_log(&recipe.entry.key)?,
            deadline: recipe.deadline,
            hint: recipe.hint,
            progress,
        };
        build::build(&recipe.source, into, &shell)
    });
    match &result {
        Ok(_) => progress.done(step, since.elapsed()),
        Err(error) => {
            let (log_tail, hint) = error.explain();
            progress.failed(step, &log_tail, &hint);
        }
    }
    result.map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::progress::Silent;
    use scratch::Scratch;

    /// An entry that looks complete, without what is in it.
    fn pretend(cache: &Cache, component: Component) {
        let recipe = recipe::recipe(component).unwrap();
        let place = cache.directory(&recipe.entry.key);
        for file in &recipe.entry.files {
            let path = place.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::write(place.join("installed"), &recipe.entry.stamp).unwrap();
    }

    #[test]
    fn what_is_there_is_left_alone() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        let servers: Vec<Component> = Component::ALL.into_iter().skip(1).collect();
        for component in &servers {
            pretend(&cache, *component);
        }
        let installed = ensure(&cache, &servers, &Silent).unwrap();
        for directory in [".locks", ".logs", ".partial"] {
            assert!(!scratch.path().join(directory).exists(), "{directory} was touched");
        }
        assert!(installed.kubernetes_bin().join("kube-apiserver").is_file());
        assert!(installed.etcd_bin().join("etcd").is_file());
        assert!(installed.kafka_lib().is_dir());
        assert!(installed.questdb_lib().join(format!("questdb-{QUESTDB}.jar")).is_file());
        assert!(installed.aws_python().is_file());
    }

    #[test]
    fn another_release_of_kubernetes_lies_beside_the_usual_one() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        let places = Release::ALL.map(|release| {
            let components: Vec<Component> = Component::all_with(release).into_iter().skip(1).collect();
            for component in &components {
                pretend(&cache, *component);
            }
            let installed = ensure(&cache, &components, &Silent).unwrap();
            assert!(installed.kubernetes_bin().join("kube-apiserver").is_file());
            installed.kubernetes_bin()
        });
        assert!(places[0] != places[1] && places[1] != places[2] && places[0] != places[2], "{places:?}");
    }

    #[test]
    fn nothing_is_begun_after_a_failure() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        let recipes = [recipe::recipe(Component::Etcd).unwrap()];
        install_in_turn(&cache, &recipes, &Silent, &AtomicBool::new(true)).unwrap();
        assert!(!cache.directory(&key(Component::Etcd)).exists());
    }

    #[test]
    fn everything_is_listed_once() {
        for (index, one) in Component::ALL.iter().enumerate() {
            assert!(!Component::ALL[index + 1..].contains(one));
        }
    }
}
