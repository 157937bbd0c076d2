//! The files that the house rules look at, and what each line of them is.
//!
//! Knows nothing of the rules themselves.

use std::path::Path;
use std::{fs, io};

/// Folders that hold nothing written by hand.
const SKIPPED_FOLDERS: [&str; 8] =
    [".git", ".slipway", "target", "node_modules", "generated", "__pycache__", ".venv", ".pytest_cache"];

/// Names of files that are written by tools.
const SKIPPED_FILES: [&str; 6] = [
    "Cargo.lock",
    "go.sum",
    "questdb.yaml",
    "questdbsnapshot.yaml",
    "questdbsnapshotschedule.yaml",
    "openapi.json",
];

/// The line before what is compiled for tests only.
const TESTS_ONLY: &str = "#[cfg(test)]";

/// What a file is, which decides the rules that apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rust source.
    Rust,
    /// A crate's manifest.
    Manifest,
    /// Any other text: scripts, documents, migrations, tables.
    Text,
}

/// One file of the checkout.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path relative to the checkout, with forward slashes.
    pub path: String,
    /// What the file is.
    pub kind: Kind,
    /// The whole text.
    pub text: String,
    /// Whether it is compiled for tests only, as the file that declares it says.
    pub for_tests: bool,
}

impl Source {
    /// A file under its path; the kind follows from the name.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let path = path.into();
        let kind = match path.rsplit('/').next() {
            Some("Cargo.toml") => Kind::Manifest,
            Some(name) if has_extension(name, "rs") => Kind::Rust,
            _ => Kind::Text,
        };
        Self { path, kind, text: text.into(), for_tests: false }
    }

    /// The lines with their numbers, counted from one.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The crate a Rust file belongs to: its folder under `services`, or `e2e` for the tests that need several programs.
    pub fn crate_name(&self) -> Option<&str> {
        match self.path.strip_prefix("services/") {
            Some(rest) => rest.split('/').next(),
            None => self.path.starts_with("tests/").then_some("e2e"),
        }
    }

    /// The first line of the tests inside a Rust file; one past the end where there are none, one for a test file.
    pub fn tests_start(&self) -> usize {
        let whole_file = self.for_tests
            || self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.starts_with("services/testkit/");
        if whole_file {
            return 1;
        }
        // A declaration such as `mod fixture;` is one line; only a module with its body begins the tests.
        let lines: Vec<&str> = self.text.lines().collect();
        let begins = |pair: &[&str]| pair[0].trim() == TESTS_ONLY && pair[1].trim().ends_with('{');
        lines.windows(2).position(begins).unwrap_or(lines.len()) + 1
    }

    /// Paths of files that this one declares to be compiled for tests only.
    fn declared_for_tests(&self) -> Vec<String> {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let declared = lines.windows(2).filter(|pair| pair[0] == TESTS_ONLY).filter_map(|pair| {
            let (_, name) = pair[1].strip_suffix(';')?.rsplit_once("mod ")?;
            Some(format!("{}/{name}.rs", self.folder()))
        });
        declared.collect()
    }

    /// Where the modules that this file declares lie.
    fn folder(&self) -> &str {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or_default();
        if matches!(name, "mod.rs" | "lib.rs" | "main.rs") {
            folder
        } else {
            self.path.trim_end_matches(".rs")
        }
    }

    /// The lines of a Rust file that ship: no tests, no comments, no blank lines.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.tests_start();
        self.lines().take_while(move |(number, _)| *number < end).filter(|(_, line)| is_code(line))
    }

    /// The lines of the tests of a Rust file, comments left out.
    pub fn test_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let start = self.tests_start();
        self.lines().skip_while(move |(number, _)| *number < start).filter(|(_, line)| is_code(line))
    }
}

/// Reads every file under the checkout that somebody writes by hand.
pub(super) fn read_all(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                folders.extend((!SKIPPED_FOLDERS.contains(&name.as_str())).then(|| entry.path()));
            } else if let Some(source) = read_one(root, &entry.path(), &name)? {
                sources.push(source);
            }
        }
    }
    let declared: Vec<String> = sources.iter().flat_map(Source::declared_for_tests).collect();
    for source in &mut sources {
        source.for_tests = declared.contains(&source.path);
    }
    Ok(sources)
}

fn read_one(root: &Path, path: &Path, name: &str) -> io::Result<Option<Source>> {
    let written_by_tool = SKIPPED_FILES.contains(&name) || has_extension(name, "snap");
    if written_by_tool || !path.is_file() {
        return Ok(None);
    }
    // A file that is not text (an image) has no lines to judge.
    let Ok(text) = String::from_utf8(fs::read(path)?) else { return Ok(None) };
    let relative = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    Ok(Some(Source::new(relative, text)))
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

fn is_code(line: &str) -> bool {
    let trimmed = line.trim();
    !trimmed.is_empty() && !trimmed.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let source = Source::new(
            "services/a/src/lib.rs",
            "//! Doc.\n\nfn a() {}\n// why\n#[cfg(test)]\nmod tests {\n}\n",
        );
        assert_eq!(source.kind, Kind::Rust);
        assert_eq!(source.crate_name(), Some("a"));
        assert_eq!(source.tests_start(), 5);
        assert_eq!(source.code().collect::<Vec<_>>(), [(3, "fn a() {}")]);
        assert_eq!(source.test_code().count(), 3);
    }

    #[test]
    fn a_module_declared_for_tests_is_a_file_of_tests() {
        let text = "//! Doc.\n#[cfg(test)]\npub(crate) mod fixture;\nfn a() {}\n";
        for (path, expect) in [
            ("services/a/src/lib.rs", "services/a/src/fixture.rs"),
            ("services/a/src/b.rs", "services/a/src/b/fixture.rs"),
        ] {
            let source = Source::new(path, text);
            assert_eq!(source.declared_for_tests(), [expect]);
            assert_eq!(source.code().count(), 3, "the code goes on after the declaration");
        }
        let declared = Source { for_tests: true, ..Source::new("services/a/src/fixture.rs", "fn a() {}\n") };
        assert_eq!(declared.tests_start(), 1);
    }

    #[test]
    fn a_test_file_is_tests_from_its_first_line() {
        for path in ["tests/tests/system/main.rs", "services/a/tests/b.rs", "services/a/src/b/tests.rs"] {
            assert_eq!(Source::new(path, "fn a() {}").tests_start(), 1, "{path}");
        }
        assert_eq!(Source::new("tests/src/lib.rs", "").crate_name(), Some("e2e"));
    }

    #[test]
    fn the_kind_follows_from_the_name() {
        assert_eq!(Source::new("services/a/Cargo.toml", "").kind, Kind::Manifest);
        assert_eq!(Source::new("README.md", "").kind, Kind::Text);
    }
}
