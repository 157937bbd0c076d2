//! Looking for a value everywhere but in the Secrets where it belongs.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use testkit::{ClusterFacts, stack};

use crate::main_job::Ready;
use crate::support::{kubectl, ops_address};

/// A place where something is shown, and all of what it shows.
type Shown = (String, String);

/// Neither rows, topics, logs, metrics nor objects of the cluster hold any of these values, plain or as base64. Each kind of
/// place is known to have been looked at, because it tells of the database.
pub(crate) async fn shown_to_nobody(home: &ClusterFacts, database: &Ready, values: &[&str]) {
    let state = &stack().state_dir;
    let mut places = Vec::new();
    for (what, shown) in [
        ("rows", rows().await),
        (
            "topics",
            files(&state.join("data/kafka"), |path| path.to_string_lossy().contains("/provisioning.")),
        ),
        ("logs", files(&state.join("logs"), |_| true)),
        ("objects", objects(home, database).await),
    ] {
        let known = shown.iter().any(|(_, text)| text.contains(&database.id));
        assert!(known, "no {what} tell of {}: nothing was looked at", database.id);
        places.extend(shown);
    }
    places.extend(metrics(home).await);
    for (place, text) in places {
        for value in values {
            let encoded = STANDARD.encode(value);
            // Whatever follows it changes its end.
            let encoded = &encoded.trim_end_matches('=')[..encoded.trim_end_matches('=').len() - 1];
            assert!(!text.contains(value) && !text.contains(encoded), "{place} shows {value}");
        }
    }
}

async fn rows() -> Vec<Shown> {
    let url = &stack().database_url;
    let tables =
        testkit::query(url, "select tablename from pg_tables where schemaname = 'public'").await.unwrap();
    let mut shown = Vec::new();
    for table in tables.lines() {
        let rows = testkit::query(url, &format!("select t::text from {table} t")).await.unwrap();
        shown.push((format!("table {table}"), rows));
    }
    shown
}

/// All files below a folder that count.
fn files(folder: &Path, counts: impl Fn(&Path) -> bool) -> Vec<Shown> {
    let (mut folders, mut shown) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>() {
            if path.is_dir() {
                folders.push(path);
            } else if counts(&path) {
                // It may have been rotated away meanwhile.
                let text = fs::read(&path).ok();
                let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
                shown.extend(text.map(|text| (path.display().to_string(), text)));
            }
        }
    }
    shown
}

async fn objects(home: &ClusterFacts, database: &Ready) -> Vec<Shown> {
    let mut shown = Vec::new();
    for kinds in [
        "questdb,questdbsnapshot,questdbsnapshotschedule,pod,statefulset,configmap,service,pvc,networkpolicy",
        "events",
    ] {
        let get = ["get", kinds, "--namespace", &database.namespace, "--output", "json"];
        shown.push((kinds.to_owned(), kubectl(home, &get).await.unwrap()));
    }
    shown
}

async fn metrics(home: &ClusterFacts) -> Vec<Shown> {
    let mut shown = Vec::new();
    for program in
        ["backend", "provisioner", &format!("{}-operator", home.name), &format!("{}-nodes", home.name)]
    {
        let url = format!("http://{}/metrics", ops_address(program).unwrap());
        let text = testkit::http().get(url).send().await.unwrap().text().await.unwrap();
        assert!(text.contains("# EOF"), "{program} shows no metrics: {text}");
        shown.push((format!("metrics of {program}"), text));
    }
    shown
}
