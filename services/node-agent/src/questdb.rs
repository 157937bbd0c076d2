//! From an image name to the QuestDB that is installed, and the command that starts it as the image would. Looks at
//! directories; starts nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the jars are seen inside a mount namespace, as in the image.
pub const LIBRARY: &str = "/app";
/// The root of a QuestDB, as in the image.
pub const ROOT: &str = "/var/lib/questdb";
/// End of the tag of an image whose entry point puts passwords from files into the environment, for a QuestDB that does not know
/// such files itself.
const READS_FILES: &str = "-files";

/// An image that is not here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not QuestDB, or without a version.
    #[error("image {image:?} is not questdb/questdb with a version")]
    Foreign {
        /// The image.
        image: String,
    },
    /// A version that is not installed.
    #[error("image {image:?} is not here; installed: {}", installed.join(", "))]
    NotInstalled {
        /// The image.
        image: String,
        /// Versions that are.
        installed: Vec<String>,
    },
}

/// The directory with the jar of this image: the one given, or a sibling installation of another version
/// (`…/questdb-<version>/lib`).
pub fn library(configured: Option<&Path>, image: &str) -> Result<PathBuf, Error> {
    let Some(version) = version(image) else {
        return Err(Error::Foreign { image: image.to_owned() });
    };
    let candidates = configured.map(directories).unwrap_or_default();
    let jar = format!("questdb-{}.jar", version.strip_suffix(READS_FILES).unwrap_or(version));
    candidates.iter().find(|directory| directory.join(&jar).is_file()).cloned().ok_or_else(|| {
        let installed = candidates.iter().flat_map(|directory| versions(directory)).collect();
        Error::NotInstalled { image: image.to_owned(), installed }
    })
}

/// The version an image names.
pub fn version(image: &str) -> Option<&str> {
    let image = image.split_once('@').map_or(image, |(image, _)| image);
    let (name, version) = image.rsplit_once(':')?;
    let known = name == "questdb/questdb" || name.ends_with("/questdb/questdb");
    let clean = !version.is_empty()
        && !version.contains("..")
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    (known && clean).then_some(version)
}

/// Whether the entry point of an image puts passwords from files into the environment.
pub fn reads_files(image: &str) -> bool {
    version(image).is_some_and(|version| version.ends_with(READS_FILES))
}

/// `java …`, as the image's entry point has it.
pub fn command(java: &Path, heap: &str, library: &Path, root: &str, prepend: Option<&str>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![java.into(), format!("-Xmx{heap}").into()];
    words.push(format!("-XX:ErrorFile={root}/db/hs_err_pid+%p.log").into());
    // Later options win, so what the pod asks for comes after ours.
    words.extend(prepend.unwrap_or_default().split_whitespace().map(OsString::from));
    words.extend(["-p".into(), library.into(), "-m".into(), "io.questdb/io.questdb.ServerMain".into()]);
    words.extend(["-d".into(), root.into()]);
    words
}

/// Where the program `java` really is, and its installation if that lies outside `/usr`.
pub fn java_home(java: &Path) -> std::io::Result<(PathBuf, Option<PathBuf>)> {
    let real = std::fs::canonicalize(java)?;
    let home = real.parent().and_then(Path::parent).map(Path::to_owned);
    let outside = !real.starts_with("/usr");
    Ok((real, home.filter(|_| outside)))
}

fn directories(configured: &Path) -> Vec<PathBuf> {
    let mut directories = vec![configured.to_owned()];
    let installation = configured.parent();
    let named = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("questdb-"))
    };
    if let Some(cache) = installation.filter(|path| named(path)).and_then(Path::parent) {
        let entries = std::fs::read_dir(cache).into_iter().flatten().flatten();
        let siblings = entries.map(|entry| entry.path()).filter(|path| named(path));
        directories.extend(siblings.map(|path| path.join("lib")).filter(|path| path != configured));
    }
    directories
}

fn versions(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_prefix("questdb-")?.strip_suffix(".jar")?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_name_versions() {
        let check = |image: &str, expected: Option<&str>| assert_eq!(version(image), expected, "{image}");
        check("questdb/questdb:9.3.0", Some("9.3.0"));
        check("docker.io/questdb/questdb:9.3.0@sha256:00", Some("9.3.0"));
        check("registry:5000/questdb/questdb:9.3.4-rhel", Some("9.3.4-rhel"));
        check("questdb/questdb", None);
        check("nginx:1", None);
        check("questdb/questdb:../x", None);
    }

    #[test]
    fn an_entry_point_that_reads_files_is_named_by_the_tag() {
        for (image, expected) in [
            ("questdb/questdb:9.3.2-files", true),
            ("questdb/questdb:9.3.2", false),
            ("questdb/questdb-files:9.3.2", false),
            ("nginx:1-files", false),
        ] {
            assert_eq!(reads_files(image), expected, "{image}");
        }
    }

    #[test]
    fn installations_beside_the_given_one_count() {
        let cache = std::env::temp_dir().join(format!("node-agent-jars-{}", std::process::id()));
        for version in ["9.3.0", "9.3.4"] {
            let lib = cache.join(format!("questdb-{version}/lib"));
            std::fs::create_dir_all(&lib).unwrap();
            std::fs::write(lib.join(format!("questdb-{version}.jar")), "").unwrap();
        }
        let given = cache.join("questdb-9.3.0/lib");
        assert_eq!(library(Some(&given), "questdb/questdb:9.3.0"), Ok(given.clone()));
        assert_eq!(library(Some(&given), "questdb/questdb:9.3.4"), Ok(cache.join("questdb-9.3.4/lib")));
        assert_eq!(library(Some(&given), "questdb/questdb:9.3.4-files"), Ok(cache.join("questdb-9.3.4/lib")));
        let error = library(Some(&given), "questdb/questdb:8.0.0").unwrap_err();
        assert!(error.to_string().contains("installed: 9.3.0, 9.3.4"), "{error}");
        std::fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn the_pod_may_override_the_heap() {
        let words = command(Path::new("/j"), "256m", Path::new("/app"), ROOT, Some("-Xmx1g -Dx=y"));
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[..2], ["/j", "-Xmx256m"]);
        assert_eq!(words[3..5], ["-Xmx1g", "-Dx=y"]);
        assert_eq!(words[words.len() - 2..], ["-d", "/var/lib/questdb"]);
    }
}
