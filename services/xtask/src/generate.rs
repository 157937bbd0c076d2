//! `cargo xtask generate`: files that are generated from sources and committed, so that a change of a contract shows in review.
//!
//! The generators are programs and examples of the workspace; here is only which writes what. `--check` writes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use sandbox::command::OneShot;

use crate::workspace::Workspace;

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Compare with what is committed instead of writing
    #[arg(long)]
    check: bool,
}

/// One generator.
struct Generator {
    /// Program below the folder of built programs, with its arguments.
    command: &'static [&'static str],
    /// The file or folder it makes, relative to the checkout.
    target: Target,
}

/// Where the output goes.
enum Target {
    /// What the program prints is the file.
    File(&'static str),
    /// The program is given a folder as its last argument and writes its files there.
    Folder(&'static str),
}

const GENERATORS: &[Generator] = &[
    Generator { command: &["examples/crd"], target: Target::Folder("deploy/crds") },
    Generator { command: &["slipway-operator", "rbac"], target: Target::File("deploy/rbac/operator.yaml") },
    Generator {
        command: &["slipway-operator", "rbac", "--namespace", "data"],
        target: Target::File("deploy/operator/rbac-of-one-namespace.yaml"),
    },
    Generator { command: &["slipway-backend", "openapi"], target: Target::File("deploy/openapi.json") },
    Generator { command: &["examples/generate"], target: Target::Folder("services/wire/src/generated") },
];

/// Builds the generators, runs them and writes or compares.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let status = workspace.cargo(BUILD).status().context("running cargo")?;
    if !status.success() {
        bail!("the generators do not build");
    }
    if !arguments.check {
        for path in write(workspace)? {
            eprintln!("wrote {path}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stale = compare(workspace)?;
    for path in &stale {
        eprintln!("{path} is not what its source gives: run 'cargo xtask generate' and commit the result");
    }
    Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What builds the generators: the whole workspace, so that features are those of every other build.
pub(crate) const BUILD: &[&str] = &["build", "--quiet", "--workspace", "--bins", "--examples"];

/// Writes what differs; the paths of what was written.
fn write(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let mut written = Vec::new();
    for (path, text) in generate(workspace)? {
        let target = workspace.root().join(&path);
        if fs::read_to_string(&target).is_ok_and(|committed| committed == text) {
            continue;
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&target, text).with_context(|| format!("writing {path}"))?;
        written.push(path);
    }
    Ok(written)
}

/// The committed files that are not what their generators give. The generators must be built.
pub(crate) fn compare(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let fresh = generate(workspace)?;
    Ok(stale(&fresh, |path| fs::read_to_string(workspace.root().join(path)).ok()))
}

fn stale(fresh: &[(String, String)], committed: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let differs = |(path, text): &&(String, String)| committed(path).as_ref() != Some(text);
    fresh.iter().filter(differs).map(|(path, _)| path.clone()).collect()
}

/// Every generated file as it should be, by its path in the checkout.
fn generate(workspace: &Workspace) -> anyhow::Result<Vec<(String, String)>> {
    let scratch = workspace.root().join(".slipway/generate");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    let mut files = Vec::new();
    for generator in GENERATORS {
        match generator.target {
            Target::File(path) => files.push((path.to_owned(), call(workspace, generator, &scratch, &[])?)),
            Target::Folder(folder) => {
                // Of its own: what another generator wrote is not its output.
                let into = scratch.join(folder);
                fs::create_dir_all(&into)?;
                call(workspace, generator, &scratch, &[&into.display().to_string()])?;
                files.extend(read_folder(&into, folder)?);
            }
        }
    }
    fs::remove_dir_all(&scratch)?;
    Ok(files)
}

fn call(
    workspace: &Workspace,
    generator: &Generator,
    scratch: &Path,
    further: &[&str],
) -> anyhow::Result<String> {
    let (program, arguments) = generator.command.split_first().context("a generator has a command")?;
    let mut command = vec![workspace.programs().join(program).display().to_string()];
    command.extend(arguments.iter().chain(further).map(ToString::to_string));
    OneShot::new(command, workspace.root(), scratch.join("log"))
        .run()
        .with_context(|| format!("generating with {program}"))
}

fn read_folder(folder: &Path, target: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((format!("{target}/{name}"), fs::read_to_string(&path)?))
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_or_is_missing_is_named() {
        let fresh =
            [("a", "1"), ("b", "2"), ("c", "3")].map(|(path, text)| (path.to_owned(), text.to_owned()));
        let committed = |path: &str| match path {
            "a" => Some("1".to_owned()),
            "b" => Some("other".to_owned()),
            _ => None,
        };
        assert_eq!(stale(&fresh, committed), ["b", "c"]);
    }
}
