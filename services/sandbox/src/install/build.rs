//! Carries out a recipe in an empty directory. It knows the commands; it knows nothing of the cache around them.

use std::path::Path;
use std::process::Command;

use super::cache::{create_directory, write_file};
use super::command::Shell;
use super::error::Error;
use super::programs;
use super::recipe::{GoModule, Source};

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
    let mut command = Command::new(programs::go(shell.step)?);
    command
        .current_dir(material)
        .args(["build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"])
        .arg(format!("-ldflags={}", module.linker_flags))
        .arg(format!("-o=../{}", module.output))
        .args(&module.packages)
        // No C compiler is needed, and the programs run on any Linux.
        .env("CGO_ENABLED", "0")
        // The machine's Go, or a clear refusal: never a tool chain fetched on the side.
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env_remove("GOOS")
        .env_remove("GOARCH");
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
