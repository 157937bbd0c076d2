//! From one QuestDB to another: the disk is copied first, then the new image is started, and one that does not start is
//! taken back.
//!
//! What has to be known for that stands on the StatefulSet, beside the template that it is about, and is written with it in
//! one request: from which image to which, since when, and what became of it. It is an observed fact like the template; who
//! takes the StatefulSet away takes the way back with it and nothing else.
//!
//! *Invariant:* an image that was taken back is not tried again before the wish names another one or another restart.
//! *Invariant:* data is never given to an older major version, but by the way back from a start that never served.

mod failed;

use domain::catalogue;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{ChangeMeans, QuestDB, QuestDBSnapshot, SnapshotPhase, UpgradeResult, UpgradeStatus, names};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::change::{image_of_pod, image_of_template};
use crate::{Change, Children, Goal, Kind, Manifest, Observed, State, Subject, Validated, pod_is_ready};

/// What the StatefulSet says of its last upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) status: UpgradeStatus,
    /// The restart that was asked for with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
}

impl Record {
    fn of(set: Option<&StatefulSet>) -> Option<Self> {
        serde_json::from_str(set?.metadata.annotations.as_ref()?.get(names::UPGRADE)?).ok()
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn ended(mut self, result: UpgradeResult, reason: Option<String>, at: Timestamp) -> Self {
        (self.status.result, self.status.reason, self.status.ended_at) = (result, reason, Some(Time(at)));
        self
    }
}

/// Which image is in force, and what is to be said and done about the one that is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decision {
    /// Image that the pod is to run now.
    pub(crate) image: String,
    /// What the StatefulSet is to say.
    pub(crate) record: Option<Record>,
    /// How far it is; nothing when nothing is to be told.
    pub(crate) state: Option<State>,
    /// The copy that has to be asked for.
    pub(crate) copy: Option<Manifest>,
    /// What is told beforehand.
    pub(crate) change: Option<Change>,
    /// Nothing may be started at all.
    pub(crate) forbidden: Option<String>,
}

impl Decision {
    /// Whether the new image waits for its copy of the disk, and what needs a restart waits for the new image.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, Some(State::Running(_))) && self.change.is_some()
    }

    fn of(image: &str, record: Option<Record>) -> Self {
        Self { image: image.to_owned(), record, ..Self::default() }
    }

    fn refused(self, why: String) -> Self {
        let change = Change::new("/spec/version", ChangeMeans::Refused, why.clone());
        Self { state: Some(State::Refused(why)), change: Some(change), ..self }
    }
}

/// The version that an image is of.
pub(crate) fn version_of(image: &str) -> &str {
    image.rsplit_once(':').map_or(image, |(_, version)| version)
}

/// Decides which image is in force.
pub(crate) fn decide(resource: &QuestDB, validated: &Validated, observed: &Observed) -> Decision {
    let children = &observed.children;
    let record = Record::of(children.stateful_set.as_deref());
    let wish = validated.image.as_str();
    if validated.goal != Goal::Serve {
        return Decision::of(wish, record);
    }
    let Some(current) = image_of_template(children.stateful_set.as_deref()) else {
        let written = resource.status.as_ref().and_then(|status| status.version.as_deref());
        let downgrade = written.filter(|written| catalogue::is_downgrade(written, &validated.version));
        let forbidden = downgrade.map(|written| too_old(written, &validated.version));
        return Decision { forbidden, ..Decision::of(wish, record) };
    };
    if current == wish {
        started(wish, record, observed)
    } else {
        asked(resource, validated, observed, (&current, record))
    }
}

fn too_old(written: &str, wished: &str) -> String {
    format!("QuestDB {wished} cannot read what {written} has written: ask for {written} or a later one")
}

/// The template has the image of the wish: it serves, or is on its way to, or does not start.
fn started(wish: &str, record: Option<Record>, observed: &Observed) -> Decision {
    let under_way =
        |record: &Record| record.status.result == UpgradeResult::Running && record.status.to == wish;
    let Some(record) = record.clone().filter(under_way) else { return Decision::of(wish, record) };
    let pod = observed.children.pod.as_deref().filter(|pod| image_of_pod(pod).as_deref() == Some(wish));
    let version = version_of(wish);
    if pod.is_some() && pod_is_ready(observed) {
        return Decision::of(wish, Some(record.ended(UpgradeResult::Succeeded, None, observed.at)));
    }
    if let Some(reason) = pod.and_then(|pod| failed::reason(pod, observed.at)) {
        let from = record.status.from.clone();
        let text = taken_back(version, &from, &reason);
        let record = record.ended(UpgradeResult::RolledBack, Some(reason), observed.at);
        return Decision::of(&from, Some(record)).refused(text);
    }
    let state = State::Running(format!("waiting for QuestDB {version} to serve"));
    Decision { state: Some(state), ..Decision::of(wish, Some(record)) }
}

fn taken_back(version: &str, from: &str, reason: &str) -> String {
    format!(
        "QuestDB {version} did not start and was taken back, {} serves on: {reason}; for another attempt change \
         spec.restartNonce",
        version_of(from)
    )
}

/// Another image is asked for than the template has.
fn asked(
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
    (current, record): (&str, Option<Record>),
) -> Decision {
    let wish = validated.image.as_str();
    if let Some(known) = &record {
        let status = &known.status;
        let same = status.to == wish && known.nonce == validated.restart_nonce;
        if status.result == UpgradeResult::RolledBack && same {
            let reason = status.reason.as_deref().unwrap_or_default();
            return Decision::of(current, record.clone()).refused(taken_back(
                &validated.version,
                current,
                reason,
            ));
        }
        if status.result == UpgradeResult::Running && status.to == current {
            return turned(validated, observed, known);
        }
    }
    if catalogue::is_downgrade(version_of(current), &validated.version) {
        return Decision::of(current, record).refused(too_old(version_of(current), &validated.version));
    }
    copied_first(resource, validated, observed, (current, record))
}

/// The wish turned elsewhere before it was known whether the image starts.
fn turned(validated: &Validated, observed: &Observed, record: &Record) -> Decision {
    let (wish, from) = (validated.image.as_str(), record.status.from.as_str());
    if wish == from {
        let reason = Some("the wish turned back before it served".to_owned());
        return Decision::of(
            wish,
            Some(record.clone().ended(UpgradeResult::RolledBack, reason, observed.at)),
        );
    }
    if catalogue::is_downgrade(version_of(from), &validated.version) {
        return Decision::of(from, Some(record.clone()))
            .refused(too_old(version_of(from), &validated.version));
    }
    begin(validated, observed, from, record.status.snapshot.clone())
}

fn begin(validated: &Validated, observed: &Observed, from: &str, snapshot: Option<String>) -> Decision {
    let status = UpgradeStatus {
        from: from.to_owned(),
        to: validated.image.clone(),
        result: UpgradeResult::Running,
        reason: None,
        snapshot,
        started_at: Time(observed.at),
        ended_at: None,
    };
    let record = Record { status, nonce: validated.restart_nonce.clone() };
    let state = State::Running(format!("QuestDB {} is being started", validated.version));
    Decision { state: Some(state), ..Decision::of(&validated.image, Some(record)) }
}

/// The disk is copied before anything else is done to it: from there on EBS goes on by itself.
fn copied_first(
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
    (current, record): (&str, Option<Record>),
) -> Decision {
    let why = format!(
        "another image is another process: the disk is copied first, then QuestDB {} is started, and taken back if it does \
         not serve",
        validated.version
    );
    let change = Some(Change::new("/spec/version", ChangeMeans::Restart, why));
    let waits = |text: String| Decision {
        state: Some(State::Running(text)),
        change: change.clone(),
        ..Decision::of(current, record.clone())
    };
    let Some(name) = copy_to_look_at(resource, validated, &observed.children) else {
        return waits(format!("QuestDB {} has to serve before its disk can be copied", version_of(current)));
    };
    let found = observed.children.copy.as_deref().filter(|copy| copy.metadata.name.as_ref() == Some(&name));
    match found.map(|copy| copy.status.as_ref().and_then(|status| status.phase)) {
        None => {
            let copy = Some(copy(&validated.subject, &name));
            Decision { copy, ..waits(format!("QuestDBSnapshot {name} is being asked for")) }
        }
        Some(Some(SnapshotPhase::Copying | SnapshotPhase::Succeeded)) => {
            begin(validated, observed, current, Some(name))
        }
        Some(Some(SnapshotPhase::Failed)) => {
            Decision::of(current, record.clone()).refused(format!(
                "the disk could not be copied, and nothing is upgraded without that: {}; delete QuestDBSnapshot {name} to \
                 have it taken again",
                found.map(message).unwrap_or_default()
            ))
        }
        Some(_) => waits(format!("waiting for QuestDBSnapshot {name} to be begun")),
    }
}

fn message(copy: &QuestDBSnapshot) -> String {
    let conditions = copy.status.iter().flat_map(|status| &status.conditions);
    let mut words = conditions.filter(|found| found.type_ == names::condition::READY);
    words.next().map(|found| found.message.clone()).unwrap_or_default()
}

/// The snapshot that an upgrade waits for, by name. It is one of this process under this wish: an older copy lacks what was
/// written since.
pub fn copy_to_look_at(resource: &QuestDB, validated: &Validated, children: &Children) -> Option<String> {
    let current = image_of_template(children.stateful_set.as_deref())?;
    if validated.goal != Goal::Serve || current == validated.image {
        return None;
    }
    let pod = children.pod.as_ref()?.metadata.uid.clone()?;
    let generation = resource.metadata.generation.unwrap_or_default();
    let digest = Sha256::digest(format!("{pod} {current} {} {generation}", validated.image));
    let version = validated.version.replace('.', "-");
    Some(format!("{}-before-{version}-{}", validated.subject.name, hex::encode(&digest[..4])))
}

/// How long the copy may take to begin, in seconds.
const COPY_WITHIN: u32 = 900;

fn copy(subject: &Subject, name: &str) -> Manifest {
    let mut metadata = subject.unowned(name);
    metadata["annotations"] = json!({ names::BEFORE_UPGRADE: subject.name });
    Manifest {
        kind: Kind::Snapshot,
        namespace: Some(subject.namespace.clone()),
        name: name.to_owned(),
        uid: None,
        body: json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "QuestDBSnapshot",
            "metadata": metadata,
            "spec": { "database": subject.name, "deadlineSeconds": COPY_WITHIN, "deletionPolicy": "Retain" },
        }),
    }
}
