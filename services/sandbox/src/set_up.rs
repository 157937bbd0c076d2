//! The steps that happen once between starting servers and using them: database, networks, definitions, topics, tokens.
//!
//! Each step looks first or is harmless to repeat, so that bringing a stack up again is quick and changes nothing.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::command::OneShot;
use crate::http::{self, Request};
use crate::progress::Progress;
use crate::stack::{self, Blueprint, Cluster, DATABASE, RegionFacts};

/// Folders of manifests, in the order in which they must be applied.
const MANIFESTS: [&str; 3] = ["deploy/crds", "deploy/rbac", "deploy/policies"];

/// The AWS account that the endpoint plays.
const ACCOUNT: &str = "123456789012";

/// How long one call of the API may take.
const CALL: Duration = Duration::from_secs(30);
/// For how long a step that fails is begun again: on a busy machine a server that is ready may stand still.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause before it is.
const AGAIN: Duration = Duration::from_millis(300);

/// Sets up what lies in the servers themselves: the database, each region's network, each cluster's definitions.
pub(crate) fn servers(
    blueprint: &Blueprint<'_>,
    progress: &dyn Progress,
) -> anyhow::Result<Vec<RegionFacts>> {
    thread::scope(|scope| {
        let clusters = &blueprint.options.clusters;
        let database = scope.spawn(|| database(blueprint));
        let regions: Vec<_> = clusters
            .iter()
            .map(|cluster| scope.spawn(|| region(blueprint, &cluster.region, progress)))
            .collect();
        let manifests: Vec<_> =
            clusters.iter().map(|cluster| scope.spawn(|| manifests(blueprint, cluster, progress))).collect();
        joined(database)?;
        manifests.into_iter().try_for_each(joined)?;
        regions.into_iter().map(joined).collect()
    })
}

/// Sets up what the programs need before they start: tables and topics.
pub(crate) fn services(blueprint: &Blueprint<'_>, progress: &dyn Progress) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let topics = scope.spawn(|| step(progress, "topics", || backend(blueprint, "topics", &["topics"])));
        let migrations = step(progress, "migrations", || backend(blueprint, "migrations", &["migrate"]));
        joined(topics)?;
        migrations.map(drop)
    })
}

/// A token of role `sre`: the known one where the API still takes it, else a new one.
pub(crate) fn token(
    blueprint: &Blueprint<'_>,
    known: Option<String>,
    progress: &dyn Progress,
) -> anyhow::Result<String> {
    if let Some(token) = known
        && call(blueprint, &token, "GET", "/v1/clusters", "").is_ok()
    {
        return Ok(token);
    }
    // Names are for people; the time tells tokens of one stack apart.
    let name = format!("sandbox-{}", crate::clock::unix_now());
    let words = ["tokens", "create", "--role", "sre", "--name", &name];
    let output = step(progress, "token", || backend(blueprint, "token", &words))?;
    let token = output.lines().map(str::trim).rfind(|line| !line.is_empty());
    token.map(ToOwned::to_owned).context("'slipway-backend tokens create' printed no token")
}

/// Makes every full cluster known to the API.
pub(crate) fn clusters(
    blueprint: &Blueprint<'_>,
    regions: &[RegionFacts],
    token: &str,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    for cluster in blueprint.options.full_clusters() {
        let facts =
            regions.iter().find(|facts| facts.region == cluster.region).context("its region was set up")?;
        let path = format!("/v1/clusters/{}", cluster.name);
        let known = call(blueprint, token, "GET", &path, "").ok();
        let known: Value = known.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        if let Some(body) = registration(cluster, facts, &known) {
            step(progress, &format!("register {}", cluster.name), || {
                call(blueprint, token, "PUT", &path, &body.to_string())
            })?;
        }
    }
    Ok(())
}

/// What must be told to the API of a cluster; nothing where it knows already. What somebody has set there stays.
fn registration(cluster: &Cluster, facts: &RegionFacts, known: &Value) -> Option<Value> {
    let mut wanted = json!({
        "region": cluster.region,
        "account": ACCOUNT,
        "zones": facts.zones,
        "hosted_zone_id": facts.hosted_zone_id,
        "dns_suffix": stack::dns_suffix(&cluster.region),
        "credentials": format!("file:{}.kubeconfig", cluster.name),
    });
    let fields = wanted.as_object_mut()?;
    if fields.iter().all(|(name, value)| known.get(name) == Some(value)) {
        return None;
    }
    for name in ["state", "namespace_template"] {
        if let Some(value) = known.get(name) {
            fields.insert(name.to_owned(), value.clone());
        }
    }
    Some(wanted)
}

fn database(blueprint: &Blueprint<'_>) -> anyhow::Result<()> {
    let server = stack::url_of(blueprint.identity, "postgres");
    let psql = |statement: &str| {
        let words = ["--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-tAc", statement];
        let mut command =
            vec![blueprint.tools.postgres_bin.join("psql").display().to_string(), server.clone()];
        command.extend(words.iter().map(ToString::to_string));
        OneShot::new(command, blueprint.layout.state(), blueprint.layout.log("psql")).run()
    };
    let found = psql(&format!("SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"))?;
    if found.trim().is_empty() {
        psql(&format!("CREATE DATABASE {DATABASE}")).context("creating the database")?;
    }
    Ok(())
}

fn region(blueprint: &Blueprint<'_>, region: &str, progress: &dyn Progress) -> anyhow::Result<RegionFacts> {
    step(progress, &format!("network of {region}"), || {
        let layout = blueprint.layout;
        let output = OneShot::new(
            stack::bootstrap_command(blueprint, region),
            layout.state(),
            layout.log(&format!("bootstrap-{region}")),
        )
        .env([("PYTHONPATH", stack::aws_sources(blueprint)), ("PYTHONDONTWRITEBYTECODE", "1".to_owned())])
        .run()?;
        let mut facts: RegionFacts =
            serde_json::from_str(&output).context("understanding what it printed")?;
        region.clone_into(&mut facts.region);
        Ok(facts)
    })
}

fn manifests(blueprint: &Blueprint<'_>, cluster: &Cluster, progress: &dyn Progress) -> anyhow::Result<()> {
    let folders: Vec<PathBuf> = MANIFESTS
        .iter()
        .map(|folder| blueprint.layout.checkout().join(folder))
        .filter(|folder| holds_yaml(folder.as_path()))
        .collect();
    step(progress, &format!("definitions of {}", cluster.name), || {
        let run = |words: &[&str]| {
            let command = stack::kubectl(blueprint, cluster, words);
            let log = blueprint.layout.log(&format!("manifests-{}", cluster.name));
            OneShot::new(command, blueprint.layout.state(), log).run()
        };
        for folder in &folders {
            let path = folder.display().to_string();
            run(&[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--field-manager=slipway-sandbox",
                "-f",
                &path,
            ])
            .with_context(|| format!("applying {path}"))?;
            if folder.ends_with("crds") {
                run(&["wait", "--for=condition=Established", "--timeout=30s", "-f", &path])?;
            }
        }
        Ok(())
    })
}

fn holds_yaml(folder: &std::path::Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.path().extension().is_some_and(|extension| extension == "yaml"))
}

/// Runs a command of the backend with the environment it serves with.
fn backend(blueprint: &Blueprint<'_>, log: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = vec![blueprint.tools.programs.join("slipway-backend").display().to_string()];
    command.extend(arguments.iter().map(ToString::to_string));
    OneShot::new(command, blueprint.layout.state(), blueprint.layout.log(log))
        .env(stack::backend_environment(blueprint))
        .run()
}

/// One call of the API; an error for any status of 300 or more.
fn call(
    blueprint: &Blueprint<'_>,
    token: &str,
    method: &str,
    path: &str,
    body: &str,
) -> anyhow::Result<String> {
    let port = blueprint.identity.ports.of("api");
    let authorization = format!("Bearer {token}");
    let key = format!("sandbox-{}-{}", blueprint.identity.id, crate::clock::unix_now());
    let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", key.as_str())];
    let answer = http::send(Request { method, port, path, headers: &headers, body }, CALL)?;
    if answer.status >= 300 {
        bail!("{method} {path} was answered with {}: {}", answer.status, answer.body);
    }
    Ok(answer.body)
}

/// Tells of a step's beginning and end, and of its failure with what the error says.
fn step<T>(progress: &dyn Progress, name: &str, work: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    progress.start(name);
    let since = Instant::now();
    let mut result = work();
    while let Err(error) = &result
        && since.elapsed() < PATIENCE
    {
        progress.note(name, &format!("begun again: {error:#}"));
        thread::sleep(AGAIN);
        result = work();
    }
    match &result {
        Ok(_) => progress.done(name, since.elapsed()),
        Err(error) => {
            let hint = "Run the command again once the cause is gone: steps that are done are not repeated.";
            progress.failed(name, &format!("{error:#}"), hint);
        }
    }
    result.with_context(|| name.to_owned())
}

fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_registered_once_and_again_when_its_region_changed() {
        let cluster = Cluster::full("eu-west-1");
        let zones = [("eu-west-1a".to_owned(), "subnet-1".to_owned())].into();
        let facts = RegionFacts {
            region: cluster.region.clone(),
            vpc_id: "vpc-1".to_owned(),
            node_image: "ami-1".to_owned(),
            hosted_zone_id: "Z1".to_owned(),
            zones,
        };
        let mut known = registration(&cluster, &facts, &Value::Null).expect("nobody knows it yet");
        assert_eq!(known["credentials"], "file:eu-west-1.kubeconfig");
        assert_eq!(registration(&cluster, &facts, &known), None);

        known["state"] = "draining".into();
        known["hosted_zone_id"] = "Z0".into();
        let again = registration(&cluster, &facts, &known).expect("its zone is another");
        assert_eq!((&again["state"], &again["hosted_zone_id"]), (&"draining".into(), &"Z1".into()));
    }
}
