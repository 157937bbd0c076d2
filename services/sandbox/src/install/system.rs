//! Packages of the operating system: what is missing, and the one command that installs it.
//!
//! Nothing is installed that is there already, by whatever way it came, and nothing at all unless we are root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::cache::Cache;
use super::command::Shell;
use super::error::Error;
use super::{lock, programs};
use crate::progress::Progress;

/// The step in words.
pub(crate) const STEP: &str = "system packages";
const LOCK: &str = "system-packages";
const DEADLINE: Duration = Duration::from_mins(20);
const HINT: &str = "run `apt-get update`, look at what it says, and run the same again";

/// A package, and how we see without the package manager that what it brings is there.
struct Need {
    package: &'static str,
    proof: Proof,
}

enum Proof {
    /// A program that a shell finds.
    Program(&'static str),
    /// A shell command that ends well.
    Check(&'static str),
    /// Server programs of a version that will do.
    Postgres,
}

const NEEDS: [Need; 12] = [
    // To compile what is not Rust: librdkafka, the cryptography of TLS, allocators.
    need("build-essential", Proof::Check("command -v cc && command -v c++ && command -v make")),
    need("cmake", Proof::Program("cmake")),
    // librdkafka includes its headers even when it is told to do without it.
    need("libcurl4-openssl-dev", Proof::Check("echo '#include <curl/curl.h>' | cc -E -x c -")),
    // Brokers speak TLS. Linked as the system has it, so that the system's updates reach it.
    need("libssl-dev", Proof::Check("echo '#include <openssl/ssl.h>' | cc -E -x c -")),
    need("pkg-config", Proof::Program("pkg-config")),
    // Links several times faster than the default linker. See .cargo/linker.
    need("mold", Proof::Program("mold")),
    // Network namespaces of the nodes.
    need("iproute2", Proof::Program("ip")),
    need("postgresql-15", Proof::Postgres),
    need("openjdk-17-jdk-headless", Proof::Program("java")),
    need("maven", Proof::Program("mvn")),
    need("python3", Proof::Program("python3")),
    need("python3-venv", Proof::Check("python3 -c 'import venv, ensurepip'")),
];

const fn need(package: &'static str, proof: Proof) -> Need {
    Need { package, proof }
}

/// Installs the packages that are missing.
pub(crate) fn ensure(cache: &Cache, progress: &dyn Progress) -> Result<(), Error> {
    if missing_here().is_empty() {
        return Ok(());
    }
    progress.start(STEP);
    let since = Instant::now();
    let result = install_missing(cache, progress);
    match &result {
        Ok(()) => progress.done(STEP, since.elapsed()),
        Err(error) => {
            let (log_tail, hint) = error.explain();
            progress.failed(STEP, &log_tail, &hint);
        }
    }
    result
}

fn install_missing(cache: &Cache, progress: &dyn Progress) -> Result<(), Error> {
    let waiting =
        |holder: &str| progress.note(STEP, &format!("waiting for process {holder}, which installs them"));
    let _lock = lock::acquire(&cache.lock_file(LOCK), DEADLINE, &waiting)?;
    let packages = missing_here();
    if packages.is_empty() {
        return Ok(());
    }
    let apt =
        programs::find("apt-get").ok_or_else(|| Error::NoPackageManager { packages: packages.join(" ") })?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NeedRoot { command: by_hand(&packages) });
    }
    progress.note(STEP, &packages.join(" "));
    let shell = Shell { step: STEP, log: cache.fresh_log(LOCK)?, deadline: DEADLINE, hint: HINT, progress };
    shell.run(apt_get(&apt).arg("update"))?;
    shell.run(apt_get(&apt).args(["install", "--yes", "--no-install-recommends"]).args(&packages))?;
    let still = missing_here();
    if still.is_empty() {
        return Ok(());
    }
    Err(Error::Program {
        step: STEP.to_owned(),
        problem: format!("apt-get ended well, and yet these are missing: {}", still.join(" ")),
        hint: format!("run: {}", by_hand(&still)),
    })
}

fn apt_get(program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Somebody else's apt may be at work; five minutes are enough for most of them.
        .args(["-o", "DPkg::Lock::Timeout=300"]);
    command
}

fn by_hand(packages: &[&str]) -> String {
    format!("sudo apt-get install --no-install-recommends {}", packages.join(" "))
}

fn missing_here() -> Vec<&'static str> {
    missing(&NEEDS, &installed_packages(), &holds)
}

/// Packages that are neither installed nor made up for by something else.
fn missing(needs: &[Need], dpkg: &str, holds: &dyn Fn(&Proof) -> bool) -> Vec<&'static str> {
    let installed =
        |package: &str| dpkg.lines().any(|line| line.split_once(' ') == Some((package, "installed")));
    needs
        .iter()
        .filter(|need| !installed(need.package) && !holds(&need.proof))
        .map(|need| need.package)
        .collect()
}

/// What the package manager says of all that we need, one `name state` on a line; nothing where there is none.
fn installed_packages() -> String {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .args(NEEDS.iter().map(|need| need.package))
        .stdin(Stdio::null())
        .output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn holds(proof: &Proof) -> bool {
    match proof {
        Proof::Program(name) => programs::find(name).is_some(),
        Proof::Check(script) => programs::succeeds(Path::new("sh"), &["-c", script]),
        Proof::Postgres => programs::postgres_bin().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DPKG: &str = "cmake installed\nmold config-files\nmaven half-installed\n";

    fn names(dpkg: &str, holds: &dyn Fn(&Proof) -> bool) -> Vec<&'static str> {
        missing(&NEEDS, dpkg, holds)
    }

    #[test]
    fn on_a_bare_machine_everything_is_missing() {
        assert_eq!(names("", &|_| false).len(), NEEDS.len());
    }

    #[test]
    fn only_fully_installed_packages_count() {
        let found = names(DPKG, &|_| false);
        assert!(!found.contains(&"cmake"));
        assert!(found.contains(&"mold"), "removed, its configuration is left");
        assert!(found.contains(&"maven"), "its installation was cut short");
        assert!(found.contains(&"postgresql-15"), "unknown to the package manager");
    }

    #[test]
    fn what_came_another_way_is_not_installed_again() {
        let found = names("", &|proof| match proof {
            Proof::Program(name) => *name == "mvn",
            Proof::Check(_) => false,
            Proof::Postgres => true,
        });
        assert!(!found.contains(&"maven") && !found.contains(&"postgresql-15"));
        assert!(found.contains(&"mold") && found.contains(&"libcurl4-openssl-dev"));
    }

    #[test]
    fn a_name_that_begins_alike_is_another_package() {
        let found = names("python3-venv installed\n", &|_| false);
        assert!(found.contains(&"python3") && !found.contains(&"python3-venv"));
    }

    #[test]
    fn the_command_to_type_names_exactly_what_is_missing() {
        assert_eq!(by_hand(&["mold", "maven"]), "sudo apt-get install --no-install-recommends mold maven");
    }
}
