//! Carries out a recipe in an empty directory. It knows the commands; it knows nothing of the cache around them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cache::{create_directory, write_file};
use super::command::Shell;
use super::error::Error;
use super::programs;
use super::recipe::{GoFiles, GoModule, Source};

/// Fills `into` as the recipe says.
pub(crate) fn build(source: &Source, into: &Path, shell: &Shell) -> Result<(), Error> {
    // Kept in the entry, so that anybody can see what it was made from.
    let material = into.join("recipe");
    create_directory(&material)?;
    match source {
        Source::Go(module) => {
            write_file(&material.join("go.mod"), module.module)?;
            write_file(&material.join("go.sum"), module.sums)?;
            shell.run(&mut go(module, &material, shell)?)
        }
        Source::Files(from) => {
            write_file(&material.join("go.mod"), from.module)?;
            write_file(&material.join("go.sum"), from.sums)?;
            go_files(from, &material, into, shell)
        }
        Source::Maven { project } => {
            write_file(&material.join("pom.xml"), project)?;
            shell.run(&mut maven(&material, into, shell)?)
        }
        Source::Python { requirements, for_tests, constraints } => {
            write_file(&material.join("requirements.txt"), requirements)?;
            write_file(&material.join("requirements-dev.txt"), for_tests)?;
            write_file(&material.join("constraints.txt"), constraints)?;
            python(&material, into, shell)
        }
    }
}

fn go(module: &GoModule, material: &Path, shell: &Shell) -> Result<Command, Error> {
    let mut command = go_in(material, shell)?;
    command
        .args(["build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"])
        .arg(format!("-ldflags={}", module.linker_flags))
        .arg(format!("-o=../{}", module.output))
        .args(&module.packages)
        // No C compiler is needed, and the programs run on any Linux.
        .env("CGO_ENABLED", "0")
        .env_remove("GOOS")
        .env_remove("GOARCH");
    Ok(command)
}

/// Go refuses to fetch what is not as `go.sum` says.
fn go_files(from: &GoFiles, material: &Path, into: &Path, shell: &Shell) -> Result<(), Error> {
    let mut modules: Vec<&str> = from.files.iter().map(|file| file.module.as_str()).collect();
    modules.dedup();
    shell.run(go_in(material, shell)?.args(["mod", "download"]).args(&modules))?;
    let modules = module_cache(go_in(material, shell)?)?;
    for file in &from.files {
        let (source, target) = (modules.join(&file.module).join(file.path), into.join(file.name));
        let content =
            std::fs::read(&source).map_err(|error| Error::Prepare { path: source, source: error })?;
        std::fs::write(&target, content).map_err(|error| Error::Prepare { path: target, source: error })?;
    }
    Ok(())
}

/// Where Go keeps what it fetched.
fn module_cache(mut go: Command) -> Result<PathBuf, Error> {
    let prepare = |source| Error::Prepare { path: "the module cache of Go".into(), source };
    let output = go.args(["env", "GOMODCACHE"]).stdin(Stdio::null()).output().map_err(prepare)?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn go_in(material: &Path, shell: &Shell) -> Result<Command, Error> {
    let mut command = Command::new(programs::go(shell.step)?);
    command
        .current_dir(material)
        // The machine's Go, or a clear refusal: never a tool chain fetched on the side.
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    Ok(command)
}

fn maven(material: &Path, into: &Path, shell: &Shell) -> Result<Command, Error> {
    let mut command = Command::new(programs::maven(shell.step)?);
    command
        .current_dir(material)
        // -U: a failure that Maven remembers from an earlier day is asked for again.
        .args(["--batch-mode", "-U", "dependency:copy-dependencies"])
        .arg(format!("-DoutputDirectory={}", into.join("lib").display()));
    Ok(command)
}

/// The environment is moved after this. Its interpreter does not mind; the small programs in its `bin`, which name the
/// interpreter by path, do: so start everything as `python -m`.
fn python(material: &Path, into: &Path, shell: &Shell) -> Result<(), Error> {
    let environment = into.join("venv");
    let isolated = |program: &Path| {
        let mut command = Command::new(program);
        command
            .current_dir(material)
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONHOME")
            .env_remove("PIP_USER");
        command
    };
    shell.run(isolated(&programs::python(shell.step)?).args(["-m", "venv"]).arg(&environment))?;
    let own = environment.join("bin/python");
    let pip = ["-m", "pip", "--no-input", "--disable-pip-version-check"];
    let install = ["install", "--progress-bar=off", "-r", "requirements-dev.txt", "-c", "constraints.txt"];
    shell.run(isolated(&own).args(pip).args(install))?;
    shell.run(isolated(&own).args(pip).arg("check"))
}
