//! What must be done once before servers can start: databases initialised, keys made. Repeats nothing that is done.
//!
//! *Invariant:* each result appears by one rename, so an interrupted preparation is simply done again.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::Context;

use super::{Blueprint, files, servers};
use crate::command::OneShot;
use crate::progress::Progress;

/// Writes the files of the stack and does what its servers need done, side by side.
pub fn prepare(blueprint: &Blueprint<'_>, progress: &dyn Progress) -> anyhow::Result<()> {
    files::write_files(blueprint)?;
    thread::scope(|scope| {
        let postgres = scope.spawn(|| init_postgres(blueprint, progress));
        let kafka = scope.spawn(|| format_kafka(blueprint, progress));
        let keys = make_keys(blueprint);
        let joined = [postgres, kafka]
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
        keys
    })
}

fn init_postgres(blueprint: &Blueprint<'_>, progress: &dyn Progress) -> anyhow::Result<()> {
    let data = files::postgres_data(blueprint.layout, &blueprint.identity.id);
    if data.join("PG_VERSION").exists() {
        return Ok(());
    }
    let step = "initialise postgres";
    progress.start(step);
    let since = Instant::now();
    let parent = data.parent().context("the data folder has a parent")?;
    fs::create_dir_all(parent)?;
    let (fresh, password) = (parent.join("postgres.new"), parent.join("postgres.password"));
    remove_folder(&fresh)?;
    fs::create_dir_all(&fresh)?;
    files::give_to_postgres(&fresh, 0o700)?;
    fs::write(&password, format!("{}\n", blueprint.identity.secrets.postgres))?;
    files::give_to_postgres(&password, 0o600)?;
    let command = vec![
        blueprint.tools.postgres_bin.join("initdb").display().to_string(),
        format!("--pgdata={}", fresh.display()),
        format!("--username={}", servers::DATABASE_USER),
        format!("--pwfile={}", password.display()),
        "--auth=scram-sha-256".to_owned(),
        "--encoding=UTF8".to_owned(),
        "--locale=C.UTF-8".to_owned(),
        "--no-sync".to_owned(),
    ];
    let made = OneShot::new(command, parent, blueprint.layout.log("initdb")).user("postgres").run();
    fs::remove_file(&password)?;
    made.context("initialising postgres")?;
    fs::rename(&fresh, &data)?;
    progress.done(step, since.elapsed());
    Ok(())
}

fn format_kafka(blueprint: &Blueprint<'_>, progress: &dyn Progress) -> anyhow::Result<()> {
    let layout = blueprint.layout;
    if layout.data().join("kafka").join("meta.properties").exists() {
        return Ok(());
    }
    let step = "format kafka";
    progress.start(step);
    let since = Instant::now();
    let mut command = servers::kafka_java(blueprint, "-Xmx128m");
    let properties = layout.conf().join("kafka.properties").display().to_string();
    let words = [
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        "-t",
        &blueprint.identity.kafka_cluster,
        "-c",
    ];
    command.extend(words.iter().map(ToString::to_string));
    command.push(properties);
    OneShot::new(command, layout.state(), layout.log("kafka-format"))
        .run()
        .context("formatting kafka's log folder")?;
    progress.done(step, since.elapsed());
    Ok(())
}

/// The keys by which API servers sign service account tokens.
fn make_keys(blueprint: &Blueprint<'_>) -> anyhow::Result<()> {
    for cluster in &blueprint.options.clusters {
        let key = blueprint.layout.certificates(&cluster.name).join("service-account.key");
        if key.exists() {
            continue;
        }
        let fresh = key.with_extension("new");
        let words = ["openssl", "genrsa", "-out"];
        let mut command: Vec<String> = words.iter().map(ToString::to_string).collect();
        command.extend([fresh.display().to_string(), "2048".to_owned()]);
        OneShot::new(command, blueprint.layout.state(), blueprint.layout.log("keys"))
            .run()
            .with_context(|| format!("making the service account key of {}", cluster.name))?;
        fs::rename(&fresh, &key)?;
    }
    Ok(())
}

fn remove_folder(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        fs::remove_dir_all(path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}
