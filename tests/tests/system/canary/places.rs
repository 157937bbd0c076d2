//! The places, kind by kind.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use kube::Resource as _;
use kube::core::DynamicObject;
use kube::discovery::{ApiGroup, Discovery, verbs};
use reqwest::Method;
use serde_json::Value;
use testkit::{ClusterFacts, Console, eventually, stack};

use super::Search;
use crate::support::{ROAD, answered};

/// Where a pod has the files of its Secret. The name of the volume is that of the StatefulSet's.
const HOME_OF_SECRETS: &str = "/volumes/secrets/";
/// Of an object, what is looked at of a Secret too: everything but the values.
const VALUES: [&str; 2] = ["data", "stringData"];

/// All log files of the stack.
pub(super) fn logs() -> Vec<PathBuf> {
    files(&stack().layout().logs())
}

/// All files below a folder, or the file itself. Links are followed to files only: mounts of a pod point anywhere.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut paths, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(path) = paths.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            paths.extend(entries.map(|entry| entry.path()));
        } else if metadata.is_file() || path.is_file() {
            found.push(path);
        }
    }
    found
}

impl Search {
    /// Every row of every table.
    pub(super) async fn rows(&mut self) {
        let url = &stack().database_url;
        let tables = "select format('%I.%I', schemaname, tablename) from pg_tables \
                      where schemaname not in ('pg_catalog', 'information_schema')";
        for table in testkit::query(url, tables).await.unwrap().lines() {
            let rows = testkit::query(url, &format!("select t::text from {table} t")).await.unwrap();
            let kind = if table.ends_with(".dead_letters") { "dead letter" } else { "row" };
            self.look(kind, &format!("table {table}"), rows.as_bytes());
        }
    }

    /// Keys, values and headers: Kafka keeps them as they came, because nobody compresses them.
    pub(super) fn topics(&mut self) {
        let kafka = files(&stack().layout().data().join("kafka"));
        for topic in ["provisioning.instructions", "provisioning.gossip"] {
            let of_topic = format!("/{topic}-");
            for path in kafka.iter().filter(|path| path.to_string_lossy().contains(&of_topic)) {
                self.look_into(&format!("topic {topic}"), path);
            }
        }
    }

    /// What came to the logs since the last look. One that was set aside as a program began anew is still its own.
    pub(super) fn logs(&mut self) {
        let ours: Vec<_> = testkit::programs().unwrap().into_iter().map(|(name, _)| name).collect();
        for path in logs() {
            let mut text = Vec::new();
            // It may have been set aside meanwhile.
            let Ok(mut file) = File::open(&path) else { continue };
            let length = file.metadata().map_or(0, |metadata| metadata.len());
            // What is shorter than what was looked at is another one.
            let from = self.read.get(&path).copied().filter(|from| *from <= length).unwrap_or_default();
            if file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut text)).is_err() {
                continue;
            }
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let stem = stem.strip_suffix(".1").unwrap_or(&stem).to_owned();
            let kind = if ours.contains(&stem) { format!("log of {stem}") } else { "other log".to_owned() };
            self.look(&kind, &path.display().to_string(), &text);
            self.read.insert(path, from + u64::try_from(text.len()).unwrap());
        }
    }

    /// Every object of every kind of a cluster in all namespaces, as the API server has it. Of Secrets all but their values.
    pub(super) async fn objects(&mut self, cluster: &ClusterFacts) {
        let client = testkit::client(&cluster.kubeconfig).await.unwrap();
        let known = Discovery::new(client.clone()).run().await.unwrap();
        for (resource, can) in known.groups().flat_map(ApiGroup::recommended_resources) {
            if !can.supports_operation(verbs::LIST) {
                continue;
            }
            let url = DynamicObject::url_path(&resource, None);
            // For a moment after its definition was written an API server asks to come again for a kind (429).
            let listed =
                eventually(ROAD, &format!("{} of {} listed", resource.plural, cluster.name), async || {
                    let request = axum::http::Request::get(&url).body(Vec::new()).unwrap();
                    match client.request_text(request).await {
                        Err(kube::Error::Api(status)) if status.code == 429 => None,
                        answer => Some(answer),
                    }
                })
                .await;
            let text = match listed {
                Ok(text) => text,
                // Such as one that a server of aggregated APIs would answer for.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405 | 503) => continue,
                Err(error) => panic!("list {} of {}: {error}", resource.plural, cluster.name),
            };
            let place = format!("{} of cluster {}", resource.plural, cluster.name);
            match resource.kind.as_str() {
                "Secret" => self.secrets(&place, &text),
                "Event" => self.look("event", &place, text.as_bytes()),
                _ => self.look("object", &place, text.as_bytes()),
            }
        }
    }

    fn secrets(&mut self, place: &str, list: &str) {
        let mut list: Value = serde_json::from_str(list).unwrap();
        for secret in list["items"].as_array_mut().into_iter().flatten() {
            let fields = secret.as_object_mut().unwrap();
            fields.retain(|key, _| !VALUES.contains(&key.as_str()));
            // This one `kubectl apply` writes into what it applies, values and all.
            if let Some(annotations) = secret["metadata"]["annotations"].as_object_mut() {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
            let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            self.look(
                "secret beside its values",
                &format!("{name} of {place}"),
                secret.to_string().as_bytes(),
            );
        }
    }

    /// What each program tells who scrapes it.
    pub(super) async fn metrics(&mut self) {
        for (program, url) in testkit::programs().unwrap() {
            // An operator that could not renew its lease has ended, and is there again in a moment.
            let text = eventually(ROAD, &format!("metrics of {program}"), async || {
                testkit::http().get(&url).send().await.ok()?.text().await.ok()
            })
            .await;
            assert!(text.contains("# EOF"), "{program} shows no metrics: {text}");
            self.look("metric", &format!("metrics of {program}"), text.as_bytes());
        }
    }

    /// Every answer of the API to a question of this tenant, by its own description; streams of events to their end.
    pub(super) async fn answers(&mut self, console: &Console) {
        let described: Value = serde_json::from_slice(&ask(console, "/openapi.json").await).unwrap();
        let paths = described["paths"].as_object().unwrap().iter();
        for (path, _) in paths.filter(|(_, methods)| methods.get("get").is_some()) {
            let all = match path.split_once("/{id}") {
                None => vec![path.clone()],
                Some((list, rest)) => {
                    let page = serde_json::from_slice(&ask(console, list).await).unwrap();
                    ids(&page).iter().map(|id| format!("{list}/{id}{rest}")).collect()
                }
            };
            for path in all {
                let text = ask(console, &path).await;
                // Steps need not name the database, so that what is published need not be in a stream.
                let told = String::from_utf8_lossy(&text).contains("\"state\"");
                assert!(told || !path.ends_with("/events"), "{path} is no stream of events");
                self.look("answer", &format!("GET {path}"), &text);
            }
        }
    }

    /// What AWS was asked for (the journal), and everything it has: tags and user data are there in full.
    pub(super) async fn cloud(&mut self) {
        let control = stack().aws_control_url.as_ref().expect("the strict endpoint");
        for page in ["journal", "instances", "volumes"] {
            let url = format!("{control}/{page}");
            let text = testkit::http().get(&url).send().await.unwrap().bytes().await.unwrap();
            self.look("call of AWS", &url, &text);
        }
        for path in files(&stack().layout().data().join("aws/state")) {
            self.look_into("thing of AWS", &path);
        }
    }

    /// Arguments and environment of every process but this one.
    pub(super) fn processes(&mut self) {
        let own = std::process::id().to_string();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let process = entry.file_name().to_string_lossy().into_owned();
            if process == own || !process.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let program = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let place = format!("process {process} ({})", program.trim());
            for (kind, file) in [("arguments", "cmdline"), ("environment", "environ")] {
                // It may have ended meanwhile.
                let text = fs::read(entry.path().join(file)).unwrap_or_default();
                self.look(kind, &format!("{kind} of {place}"), &text);
            }
        }
    }

    /// Files of all pods of a cluster and of these volumes. Those that are made of the Secret hold it: nothing else may.
    pub(super) fn containers(&mut self, cluster: &ClusterFacts, volumes: &[&str]) {
        let nodes = stack().layout().nodes(&cluster.name);
        let mut held = false;
        for path in files(&nodes.join("pods")) {
            if path.to_string_lossy().contains(HOME_OF_SECRETS) {
                held |= fs::read(&path).is_ok_and(|text| self.holds(&text));
            } else {
                self.look_into("file of a pod", &path);
            }
        }
        assert!(held, "no pod has a password as a file: it was not looked at");
        for volume in volumes {
            for path in files(&nodes.join("volumes").join(volume)) {
                self.look_into("file of a volume", &path);
            }
        }
    }

    fn look_into(&mut self, kind: &str, path: &Path) {
        // It may have been taken away meanwhile.
        if let Ok(text) = fs::read(path) {
            self.look(kind, &path.display().to_string(), &text);
        }
    }
}

/// What the API answers, again where the tenant has had its share of it for the moment, or it is not ready.
async fn ask(console: &Console, path: &str) -> Vec<u8> {
    let answer = answered(&console.request(Method::GET, path)).await;
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.bytes().await.unwrap().to_vec()
}

/// Ids of what a page lists.
fn ids(page: &Value) -> Vec<String> {
    let listed = page.as_object().unwrap().values().find_map(Value::as_array);
    let id = |item: &Value| match &item["id"] {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    };
    listed.into_iter().flatten().filter_map(id).collect()
}
