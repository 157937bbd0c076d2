//! The recipes: what each server is made from, in which version, and what must be there when it is done.
//!
//! Versions and checksums stand in the material under `servers/`, which is compiled in, so that an installation needs
//! no checkout beside it. A change of that material changes the entry's stamp, and the entry is made again.

use std::path::PathBuf;
use std::time::Duration;

use super::cache::{Entry, fingerprint};
use super::{Component, Release};

/// Version of the Kubernetes control plane that everything runs on.
pub const KUBERNETES: &str = "1.34.4";
/// The oldest that the operator is supported on.
const OLDEST_KUBERNETES: &str = "1.33.13";
/// The newest that the operator is supported on.
const NEWEST_KUBERNETES: &str = "1.36.3";
/// Version of etcd.
pub const ETCD: &str = "3.6.10";
/// Version of Apache Kafka.
pub const KAFKA: &str = "4.2.0";
/// Version of `QuestDB`. The first whose passwords we saw taken from files, as the pods need it.
pub const QUESTDB: &str = "9.3.4";
/// The release before, to upgrade from. It takes no passwords from files, so that no API offers it.
pub const OLDER_QUESTDB: &str = "9.3.2";

/// Version of Traefik, whose kinds a cluster may have.
const TRAEFIK: &str = "3.7.13";
/// Version of the Prometheus Operator, whose kinds a cluster may have.
const PROMETHEUS_OPERATOR: &str = "0.85.0";

const MINUTE: Duration = Duration::from_mins(1);

/// How one entry of the cache is made.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) entry: Entry,
    pub(crate) source: Source,
    /// How long one command may take on a slow machine.
    pub(crate) deadline: Duration,
    /// What to try if it fails.
    pub(crate) hint: &'static str,
}

/// What an entry is made from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Programs of a Go module of ours.
    Go(GoModule),
    /// Files of Go modules, as they are.
    Files(GoFiles),
    /// The jars that a Maven project depends on.
    Maven { project: &'static str },
    /// A Python environment with what the requirements name, and with what its tests need.
    Python { requirements: &'static str, for_tests: &'static str, constraints: &'static str },
}

/// A Go module whose `go.sum` pins all that its tools are built from.
#[derive(Debug)]
pub(crate) struct GoModule {
    pub(crate) module: &'static str,
    pub(crate) sums: &'static str,
    pub(crate) packages: Vec<&'static str>,
    pub(crate) linker_flags: String,
    /// A file, or a directory if there are several packages.
    pub(crate) output: &'static str,
}

/// Files of Go modules whose contents a `go.sum` pins.
#[derive(Debug)]
pub(crate) struct GoFiles {
    pub(crate) module: &'static str,
    pub(crate) sums: &'static str,
    pub(crate) files: Vec<GoFile>,
}

/// One file of a Go module.
#[derive(Debug)]
pub(crate) struct GoFile {
    /// The module and its version, as Go writes them.
    pub(crate) module: String,
    /// Where the file is in the module.
    pub(crate) path: &'static str,
    /// What it is called here.
    pub(crate) name: &'static str,
}

impl Source {
    /// Compiling keeps the processors busy, fetching keeps the network busy: one of each may run at a time.
    pub(crate) fn is_compiled(&self) -> bool {
        match self {
            Self::Go(_) => true,
            Self::Files(_) | Self::Maven { .. } | Self::Python { .. } => false,
        }
    }

    fn stamp(&self) -> String {
        match self {
            Self::Go(go) => {
                fingerprint(&[go.module, go.sums, &go.packages.join(" "), &go.linker_flags, go.output])
            }
            Self::Files(from) => {
                let files = from.files.iter().flat_map(|file| [file.module.as_str(), file.path, file.name]);
                fingerprint(&[from.module, from.sums].into_iter().chain(files).collect::<Vec<_>>())
            }
            Self::Maven { project } => fingerprint(&[project]),
            Self::Python { requirements, for_tests, constraints } => {
                fingerprint(&[requirements, for_tests, constraints])
            }
        }
    }
}

/// The recipe of a component; none for what the system's package manager installs.
pub(crate) fn recipe(component: Component) -> Option<Recipe> {
    match component {
        Component::SystemPackages => None,
        Component::Kubernetes(release) => Some(kubernetes(release)),
        Component::Etcd => Some(etcd()),
        Component::Kafka => Some(kafka()),
        Component::QuestDb => {
            Some(questdb(component, QUESTDB, include_str!("../../servers/questdb/pom.xml")))
        }
        Component::OlderQuestDb => {
            Some(questdb(component, OLDER_QUESTDB, include_str!("../../servers/questdb-older/pom.xml")))
        }
        Component::Definitions => Some(definitions()),
        Component::AwsEndpoint => Some(aws_endpoint()),
    }
}

/// Name of a component's directory in the cache.
pub(crate) fn key(component: Component) -> String {
    match component {
        Component::SystemPackages => "system-packages".to_owned(),
        Component::Kubernetes(release) => format!("kubernetes-{}", release.version()),
        Component::Etcd => format!("etcd-{ETCD}"),
        Component::Kafka => format!("kafka-{KAFKA}"),
        Component::QuestDb => format!("questdb-{QUESTDB}"),
        // A node agent finds other versions beside its own by this name.
        Component::OlderQuestDb => format!("questdb-{OLDER_QUESTDB}"),
        Component::Definitions => format!("definitions-{}", fingerprint(&[TRAEFIK, PROMETHEUS_OPERATOR])),
        Component::AwsEndpoint => format!("aws-endpoint-{}", fingerprint(&[REQUIREMENTS, FOR_TESTS])),
    }
}

const REQUIREMENTS: &str = include_str!("../../servers/aws/requirements.txt");
const FOR_TESTS: &str = include_str!("../../servers/aws/requirements-dev.txt");

const GO_HINT: &str =
    "run the same again; what was compiled so far is kept, so it continues where it stopped";
const FETCH_HINT: &str = "run the same again; what was fetched so far is kept";

impl Release {
    /// Its version.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Oldest => OLDEST_KUBERNETES,
            Self::Usual => KUBERNETES,
            Self::Newest => NEWEST_KUBERNETES,
        }
    }

    /// go.mod and go.sum.
    const fn material(self) -> (&'static str, &'static str) {
        match self {
            Self::Oldest => (
                include_str!("../../servers/kubernetes-oldest/go.mod"),
                include_str!("../../servers/kubernetes-oldest/go.sum"),
            ),
            Self::Usual => (
                include_str!("../../servers/kubernetes/go.mod"),
                include_str!("../../servers/kubernetes/go.sum"),
            ),
            Self::Newest => (
                include_str!("../../servers/kubernetes-newest/go.mod"),
                include_str!("../../servers/kubernetes-newest/go.sum"),
            ),
        }
    }
}

fn kubernetes(release: Release) -> Recipe {
    let (number, (module, sums)) = (release.version(), release.material());
    let (major, minor) = major_and_minor(number);
    let version = "k8s.io/component-base/version";
    let client = "k8s.io/client-go/pkg/version";
    let programs = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
    let source = Source::Go(GoModule {
        module,
        sums,
        packages: vec![
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            "k8s.io/kubernetes/cmd/kubectl",
        ],
        // Without these the server calls itself v0.0.0, and clients that ask for its version refuse it.
        linker_flags: format!(
            "-s -w -X {version}.gitVersion=v{number} -X {version}.gitMajor={major} -X {version}.gitMinor={minor} \
             -X {version}.gitTreeState=clean -X {client}.gitVersion=v{number}"
        ),
        output: "bin/",
    });
    let files = programs.iter().map(|program| PathBuf::from("bin").join(program));
    Recipe {
        entry: entry(Component::Kubernetes(release), "Kubernetes", number, &source, files.collect()),
        source,
        deadline: 40 * MINUTE,
        hint: GO_HINT,
    }
}

fn etcd() -> Recipe {
    let source = Source::Go(GoModule {
        module: include_str!("../../servers/etcd/go.mod"),
        sums: include_str!("../../servers/etcd/go.sum"),
        packages: vec!["go.etcd.io/etcd/server/v3"],
        linker_flags: "-s -w".to_owned(),
        output: "bin/etcd",
    });
    Recipe {
        entry: entry(Component::Etcd, "etcd", ETCD, &source, vec![PathBuf::from("bin/etcd")]),
        source,
        deadline: 20 * MINUTE,
        hint: GO_HINT,
    }
}

fn kafka() -> Recipe {
    let source = Source::Maven { project: include_str!("../../servers/kafka/pom.xml") };
    let files = ["kafka_2.13", "kafka-server", "kafka-tools", "kafka-clients"]
        .map(|name| PathBuf::from(format!("lib/{name}-{KAFKA}.jar")));
    Recipe {
        entry: entry(Component::Kafka, "Kafka", KAFKA, &source, files.into()),
        source,
        deadline: 15 * MINUTE,
        hint: FETCH_HINT,
    }
}

fn questdb(component: Component, version: &str, project: &'static str) -> Recipe {
    let source = Source::Maven { project };
    let files = vec![PathBuf::from(format!("lib/questdb-{version}.jar"))];
    Recipe {
        entry: entry(component, "QuestDB", version, &source, files),
        source,
        deadline: 15 * MINUTE,
        hint: FETCH_HINT,
    }
}

fn definitions() -> Recipe {
    let traefik = format!("github.com/traefik/traefik/v3@v{TRAEFIK}");
    let prometheus = format!("github.com/prometheus-operator/prometheus-operator@v{PROMETHEUS_OPERATOR}");
    let file = |module: &String, path, name| GoFile { module: module.clone(), path, name };
    let from = GoFiles {
        module: include_str!("../../servers/definitions/go.mod"),
        sums: include_str!("../../servers/definitions/go.sum"),
        files: vec![
            file(
                &traefik,
                "docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml",
                "traefik.yaml",
            ),
            file(
                &prometheus,
                "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
                "servicemonitors.yaml",
            ),
            file(
                &prometheus,
                "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
                "podmonitors.yaml",
            ),
        ],
    };
    let files = from.files.iter().map(|file| PathBuf::from(file.name)).collect();
    let source = Source::Files(from);
    let name = "definitions of Traefik and the Prometheus Operator";
    Recipe {
        entry: entry(Component::Definitions, name, "", &source, files),
        source,
        deadline: 10 * MINUTE,
        hint: FETCH_HINT,
    }
}

fn aws_endpoint() -> Recipe {
    let source = Source::Python {
        requirements: REQUIREMENTS,
        for_tests: FOR_TESTS,
        constraints: include_str!("../../servers/aws-constraints.txt"),
    };
    let files = vec![PathBuf::from("venv/bin/python"), PathBuf::from("venv/pyvenv.cfg")];
    Recipe {
        entry: entry(Component::AwsEndpoint, "AWS endpoint", "", &source, files),
        source,
        deadline: 15 * MINUTE,
        hint: FETCH_HINT,
    }
}

fn entry(component: Component, name: &str, version: &str, source: &Source, files: Vec<PathBuf>) -> Entry {
    let key = key(component);
    let lock = match source {
        // Two Mavens that fetch into one local repository at a time can spoil each other's files.
        Source::Maven { .. } => "maven".to_owned(),
        Source::Go(_) | Source::Files(_) | Source::Python { .. } => key.clone(),
    };
    Entry { key, step: format!("{name} {version}").trim_end().to_owned(), lock, stamp: source.stamp(), files }
}

fn major_and_minor(version: &str) -> (&str, &str) {
    let mut parts = version.split('.');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_agree_with_the_material() {
        let cases = [
            (Component::Kubernetes(Release::Oldest), format!("k8s.io/kubernetes v{OLDEST_KUBERNETES}")),
            (Component::Kubernetes(Release::Usual), format!("k8s.io/kubernetes v{KUBERNETES}")),
            (Component::Kubernetes(Release::Newest), format!("k8s.io/kubernetes v{NEWEST_KUBERNETES}")),
            (Component::Etcd, format!("go.etcd.io/etcd/server/v3 v{ETCD}")),
            (Component::Kafka, format!("<kafka.version>{KAFKA}</kafka.version>")),
            (Component::QuestDb, format!("<version>{QUESTDB}</version>")),
            (Component::OlderQuestDb, format!("<version>{OLDER_QUESTDB}</version>")),
            (Component::Definitions, format!("prometheus-operator v{PROMETHEUS_OPERATOR} h1:")),
            (Component::Definitions, format!("github.com/traefik/traefik/v3 v{TRAEFIK} h1:")),
            (Component::AwsEndpoint, "moto[server,ec2,route53]==".to_owned()),
        ];
        for (component, expect) in cases {
            let material = match recipe(component).unwrap().source {
                Source::Go(go) => go.module,
                Source::Files(from) => from.sums,
                Source::Maven { project } => project,
                Source::Python { requirements, .. } => requirements,
            };
            assert!(material.contains(&expect), "{component:?} does not pin {expect}");
        }
    }

    #[test]
    fn every_go_program_is_a_pinned_tool() {
        let kubernetes = Release::ALL.map(Component::Kubernetes);
        for component in kubernetes.into_iter().chain([Component::Etcd]) {
            let Source::Go(go) = recipe(component).unwrap().source else {
                panic!("{component:?} is not a Go module");
            };
            assert!(!go.sums.is_empty());
            for package in go.packages {
                let pinned =
                    go.module.lines().any(|line| line.trim().trim_start_matches("tool ").trim() == package);
                assert!(pinned, "{package} is not a tool of its module");
            }
        }
    }

    #[test]
    fn everything_in_python_is_pinned() {
        let Source::Python { requirements, for_tests, constraints } = aws_endpoint().source else {
            panic!("the endpoint is not Python");
        };
        let lines = requirements.lines().chain(for_tests.lines()).chain(constraints.lines());
        // The tests' file refers to the other one.
        let names_a_package = |line: &&str| !line.trim().is_empty() && !line.starts_with(['#', '-']);
        for line in lines.filter(names_a_package) {
            assert!(line.contains("=="), "{line} may change by itself");
        }
    }

    #[test]
    fn entries_have_names_of_their_own_and_something_to_check() {
        let recipes: Vec<Recipe> = Component::ALL.into_iter().filter_map(recipe).collect();
        assert_eq!(recipes.len(), Component::ALL.len() - 1);
        for (index, one) in recipes.iter().enumerate() {
            assert!(!one.entry.files.is_empty());
            assert!(!one.entry.key.contains('/'));
            for other in &recipes[index + 1..] {
                assert_ne!(one.entry.key, other.entry.key);
                assert_ne!(one.entry.stamp, other.entry.stamp);
            }
        }
    }
}
