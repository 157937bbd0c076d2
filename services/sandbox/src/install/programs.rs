//! Finds the programs that we use and do not make: Go, Java, Maven, Python, `PostgreSQL`.
//!
//! They are found the way a shell finds them. Whether they are new enough is asked only before they are used to install
//! something: starting a Java machine to read its version would cost every warm start a tenth of a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::Error;

const GO_NEEDED: (u32, u32) = (1, 25);
const JAVA_NEEDED: u32 = 17;
const POSTGRES_NEEDED: u32 = 15;
const POSTGRES_HOME: &str = "/usr/lib/postgresql";

/// Where a program is, as a shell would find it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let output = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    path.is_absolute().then_some(path)
}

/// A Go tool chain that is new enough.
pub(crate) fn go(step: &str) -> Result<PathBuf, Error> {
    let usual = PathBuf::from("/usr/local/go/bin/go");
    let found = find("go").or_else(|| usual.is_file().then_some(usual));
    let problem = match found {
        None => "there is no `go`".to_owned(),
        Some(path) => match parse_go_version(&ask(&path, &["version"])) {
            Some(version) if version >= GO_NEEDED => return Ok(path),
            Some((major, minor)) => format!("{} is Go {major}.{minor}", path.display()),
            None => format!("{} does not say its version", path.display()),
        },
    };
    Err(Error::Program {
        step: step.to_owned(),
        problem,
        hint: format!(
            "install Go {}.{} or newer (the archive of the Go project, unpacked to /usr/local/go, will do; the one in Debian 12 is too old)",
            GO_NEEDED.0, GO_NEEDED.1
        ),
    })
}

/// The Java runtime, wherever it is, however old.
pub(crate) fn java() -> Option<PathBuf> {
    find("java")
}

/// Maven, and a Java runtime that runs what Maven will fetch.
pub(crate) fn maven(step: &str) -> Result<PathBuf, Error> {
    let refuse = |problem: String, package: &str| Error::Program {
        step: step.to_owned(),
        problem,
        hint: format!("run: apt-get install {package}"),
    };
    let jdk = "openjdk-17-jdk-headless";
    let java = java().ok_or_else(|| refuse("there is no `java`".to_owned(), jdk))?;
    match parse_java_version(&ask(&java, &["-version"])) {
        Some(version) if version >= JAVA_NEEDED => {}
        Some(version) => {
            return Err(refuse(format!("`java` is version {version}, older than {JAVA_NEEDED}"), jdk));
        }
        None => return Err(refuse("`java` does not say its version".to_owned(), jdk)),
    }
    find("mvn").ok_or_else(|| refuse("there is no `mvn`".to_owned(), "maven"))
}

/// A Python that can make virtual environments. The system's own goes first: one that a version manager put before it
/// changes under an environment that was made from it.
pub(crate) fn python(step: &str) -> Result<PathBuf, Error> {
    let system = PathBuf::from("/usr/bin/python3");
    [Some(system), find("python3")]
        .into_iter()
        .flatten()
        .find(|path| succeeds(path, &["-c", "import venv, ensurepip"]))
        .ok_or_else(|| Error::Program {
            step: step.to_owned(),
            problem: "there is no `python3` that can make virtual environments".to_owned(),
            hint: "run: apt-get install python3-venv".to_owned(),
        })
}

/// The directory of `PostgreSQL`'s server programs: the version that we are tested with, else the newest that will do.
pub(crate) fn postgres_bin() -> Option<PathBuf> {
    postgres_bin_below(Path::new(POSTGRES_HOME))
}

fn postgres_bin_below(home: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(home).ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let bin = entry.path().join("bin");
        let complete = bin.join("postgres").is_file() && bin.join("initdb").is_file();
        (version >= POSTGRES_NEEDED && complete).then_some((version, bin))
    });
    versions.max_by_key(|(version, _)| (*version == POSTGRES_NEEDED, *version)).map(|(_, bin)| bin)
}

/// Whether the command ends well.
pub(crate) fn succeeds(program: &Path, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// What the command says on either stream; nothing if it cannot be run.
fn ask(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        // Or an old `go` fetches a newer one of itself, silently.
        .env("GOTOOLCHAIN", "local")
        .stdin(Stdio::null())
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            text
        },
    )
}

/// `go version go1.26.8 linux/amd64` → (1, 26).
fn parse_go_version(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    let minor = version.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((1, minor.parse().ok()?))
}

/// `openjdk version "17.0.15" 2025-04-15` → 17; `java version "1.8.0_392"` → 8.
fn parse_java_version(text: &str) -> Option<u32> {
    let version = text.split('"').nth(1)?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::scratch::Scratch;

    #[test]
    fn versions_of_go() {
        let cases = [
            ("go version go1.26.8 linux/amd64", Some((1, 26))),
            ("go version go1.25rc1 linux/arm64", Some((1, 25))),
            ("go version devel +abc", None),
            ("", None),
        ];
        for (text, expect) in cases {
            assert_eq!(parse_go_version(text), expect, "{text}");
        }
    }

    #[test]
    fn versions_of_java() {
        let cases = [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK …", Some(17)),
            ("openjdk version \"21\" 2023-09-19", Some(21)),
            ("openjdk version \"24-ea\"", Some(24)),
            ("java version \"1.8.0_392\"", Some(8)),
            ("sh: java: not found", None),
        ];
        for (text, expect) in cases {
            assert_eq!(parse_java_version(text), expect, "{text}");
        }
    }

    #[test]
    fn programs_are_found_by_absolute_path_or_not_at_all() {
        assert!(find("sh").unwrap().is_absolute());
        assert_eq!(find("no-such-program-anywhere"), None);
        // A word that the shell itself knows is not a program.
        assert_eq!(find("cd"), None);
    }

    #[test]
    fn postgres_of_the_tested_version_goes_before_newer_ones() {
        let scratch = Scratch::new();
        assert_eq!(postgres_bin_below(&scratch.path().join("none")), None);
        let add = |version: &str, programs: &[&str]| {
            let bin = scratch.path().join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            for program in programs {
                fs::write(bin.join(program), "").unwrap();
            }
            bin
        };
        let found = || postgres_bin_below(scratch.path());
        add("14", &["postgres", "initdb"]);
        add("18", &["psql"]);
        assert_eq!(found(), None, "too old, or the client alone");
        let newer = add("16", &["postgres", "initdb"]);
        assert_eq!(found(), Some(newer));
        let newest = add("17", &["postgres", "initdb"]);
        assert_eq!(found(), Some(newest));
        let tested = add("15", &["postgres", "initdb"]);
        assert_eq!(found(), Some(tested));
    }
}
