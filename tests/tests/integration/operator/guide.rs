//! What the operator's guides show, given to a real API server as somebody who follows them would, and to the rules that the operator
//! itself has: an example that either of them refuses is worse than none. Nobody looks after what is written here.

use std::collections::BTreeMap;

use ::operator::Args;
use clap::Parser as _;
use plan::schedule::Clock;
use plan::{Settings, Subject, validate};
use resources::{QuestDB, QuestDBSnapshotSchedule};
use serde_json::{Value, json};

use super::kubectl::{GUIDES, Kubectl};
use super::rig::{DATABASE, Rig};

/// The operator that the guides speak of.
const PROGRAM: &str = "slipway-operator --cluster eu-west-1 --region eu-west-1 --hosted-zone-id Z1 --dns-suffix eu.example.com \
    --vpc-id vpc-1 --zones eu-west-1a=subnet-1 --node-image ami-1 --questdb-versions 9.3.4,9.3.5";

/// What the guide has applied beside definitions and rights.
const DEPLOYMENT: &str = include_str!("../../../../deploy/operator/deployment.yaml");

/// The database that the guide makes, and that its edits are of.
const BASE: &str = "trades";

fn settings() -> Settings {
    Args::try_parse_from(PROGRAM.split_whitespace()).unwrap().settings()
}

/// What is indented or fenced, without that.
fn blocks(guide: &str) -> Vec<String> {
    let (mut blocks, mut fenced) = (vec![String::new()], false);
    for line in guide.lines() {
        let fence = line.starts_with("```");
        fenced ^= fence;
        let text = if fenced { Some(line) } else { line.strip_prefix("    ") };
        match text.filter(|_| !fence) {
            Some(text) => blocks.last_mut().unwrap().extend([text, "\n"]),
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// The YAML of a block, if that is what it is: on its own, or in a command that reads it.
fn yaml(block: &str) -> Option<Value> {
    let text = match block.split_once("<<'YAML'\n") {
        Some((_, rest)) => rest.split_once("YAML\n").unwrap().0,
        None => block,
    };
    let (key, rest) = text.lines().next()?.split_once(':')?;
    let is_key = !key.is_empty() && key.chars().all(char::is_alphanumeric);
    (is_key && (rest.is_empty() || rest.starts_with(' ')))
        .then(|| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// The edits of the table of a database's life, but for those that leave something to be filled in.
fn edits(guide: &str) -> Vec<Value> {
    let (_, rest) = guide.split_once("| to | edit | what happens |").unwrap();
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(2));
    let edits = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter(|edit| !edit.contains('…'));
    edits.map(|edit| serde_saphyr::from_str(&format!("{{{edit}}}")).unwrap()).collect()
}

/// What is written over what: fields of fields stay that are not named.
fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

/// A person with the guides.
struct Reader {
    kubectl: Kubectl,
    namespace: String,
    settings: Settings,
    base: Value,
}

impl Reader {
    /// One who made the database of the guide.
    async fn new(rig: &Rig) -> Self {
        let objects = GUIDES.iter().flat_map(|guide| blocks(guide)).filter_map(|block| yaml(&block));
        let mut ours = objects.filter(|object| object["metadata"]["name"] == BASE);
        let base = ours.next().expect("the guide makes a database");
        let reader = Self {
            kubectl: Kubectl::new(rig, BASE),
            namespace: rig.namespace.clone(),
            settings: settings(),
            base,
        };
        reader.apply(reader.base.clone(), true).await;
        reader
    }

    /// Neither the API server nor the operator's own rules have a word against it.
    async fn apply(&self, mut object: Value, kept: bool) {
        object["metadata"]["namespace"] = json!(self.namespace);
        let read = self.kubectl.apply(&object, kept).await;
        match object["kind"].as_str().unwrap() {
            "QuestDB" => {
                let resource: QuestDB = serde_json::from_value(read).unwrap();
                let subject = Subject::naming(&resource, &self.settings, DATABASE).unwrap();
                let validated = validate(&resource, subject, &self.settings);
                validated.unwrap_or_else(|violations| panic!("{violations:?}: {object:#}"));
            }
            "QuestDBSnapshotSchedule" => {
                let spec = serde_json::from_value::<QuestDBSnapshotSchedule>(read).unwrap().spec;
                Clock::new(&spec.schedule, &spec.time_zone, jiff::Timestamp::now()).unwrap();
            }
            "QuestDBSnapshot" | "Secret" => {}
            other => panic!("no guide speaks of {other}: {object:#}"),
        }
    }

    /// The same of the database with other fields in its spec.
    async fn edit(&self, change: &Value) {
        let mut object = self.base.clone();
        merge(&mut object["spec"], change);
        self.apply(object, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_the_guides_show_is_refused() {
    let rig = Rig::new().await;
    let reader = Reader::new(&rig).await;
    let mut shown: BTreeMap<String, usize> = BTreeMap::new();
    for object in GUIDES.iter().flat_map(|guide| blocks(guide)).filter_map(|block| yaml(&block)) {
        let what = object["kind"].as_str().unwrap_or("part of a spec").to_owned();
        if object.get("kind").is_some() {
            reader.apply(object, false).await;
        } else {
            reader.edit(&object).await;
        }
        *shown.entry(what).or_default() += 1;
    }
    let expected = [
        ("QuestDB", 4),
        ("QuestDBSnapshot", 2),
        ("QuestDBSnapshotSchedule", 2),
        ("Secret", 1),
        ("part of a spec", 5),
    ];
    assert_eq!(shown, BTreeMap::from(expected.map(|(what, count)| (what.to_owned(), count))));
    let edits = edits(GUIDES[0]);
    assert!(edits.len() > 10, "{edits:?}");
    for edit in &edits {
        reader.edit(edit).await;
    }
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_the_operator_is_deployed_with_is_refused() {
    let rig = Rig::new().await;
    let kubectl = Kubectl::new(&rig, BASE);
    // As it is handed out, and with the line that the guide has people take the '#' out of.
    let with_secret = DEPLOYMENT.replace("# imagePullSecrets:", "imagePullSecrets:");
    assert_ne!(with_secret, DEPLOYMENT);
    for text in [DEPLOYMENT, with_secret.as_str()] {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        assert_eq!(objects.len(), 3);
        for mut object in objects {
            object["metadata"]["namespace"] = json!(rig.namespace);
            kubectl.apply(&object, false).await;
        }
    }
    rig.end().await;
}
