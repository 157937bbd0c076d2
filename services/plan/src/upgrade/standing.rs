//! Which image is in force, by what became of the last one that was started.

use domain::catalogue;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{UpgradeResult, UpgradeStatus};

use super::{Decision, Look, copy, start, version_of};
use crate::State;

/// What is known of the image in force.
pub(super) enum Standing {
    /// It, and what became of the last upgrade.
    Known(String, Option<UpgradeStatus>),
    /// Nothing else can be decided yet.
    Open(Box<Decision>),
}

fn ended(
    record: UpgradeStatus,
    result: UpgradeResult,
    reason: Option<String>,
    at: Timestamp,
) -> UpgradeStatus {
    UpgradeStatus { result, reason, ended_at: Some(Time(at)), ..record }
}

impl Look<'_> {
    /// The record, with a success that nobody has written down yet.
    pub(super) fn noted(&self, record: UpgradeStatus) -> UpgradeStatus {
        let is_open = record.result != UpgradeResult::Succeeded;
        if is_open && self.pod_of(&record.to).is_some_and(start::served) {
            return ended(record, UpgradeResult::Succeeded, None, self.observed.at);
        }
        record
    }

    /// Which image is in force, by what became of the last one that was started.
    pub(super) fn standing(&self, image: String, record: Option<UpgradeStatus>) -> Standing {
        let Some(before) = record else { return Standing::Known(image, None) };
        let record = self.noted(before.clone());
        if record.result == UpgradeResult::Succeeded && before.result != record.result {
            // What it has written is its own from here on, even if it was to be taken back.
            return Standing::Known(record.to.clone(), Some(record));
        }
        if record.result == UpgradeResult::Running && record.to == image {
            return self.under_way(record);
        }
        Standing::Known(image, Some(record))
    }

    /// The template has the new image, and it is not known whether that serves.
    fn under_way(&self, record: UpgradeStatus) -> Standing {
        let (wish, at) = (self.validated.image.as_str(), self.observed.at);
        let (from, to) = (version_of(&record.from), version_of(&record.to));
        let pod = self.pod_of(&record.to);
        let nodes = &self.observed.children.nodes;
        let judged = pod.filter(|pod| start::may_be_judged(pod, nodes, record.started_at.0));
        let forward_only = catalogue::is_downgrade(to, from);
        let Some(reason) = judged.and_then(|pod| start::failure(pod, at)) else {
            return self.not_yet(record, forward_only);
        };
        let open = |decision| Standing::Open(Box::new(decision));
        if !forward_only || !pod.is_some_and(start::has_run) {
            let from = record.from.clone();
            return Standing::Known(from, Some(ended(record, UpgradeResult::RolledBack, Some(reason), at)));
        }
        if wish != record.to && wish != record.from && !catalogue::is_downgrade(to, &self.validated.version) {
            return open(self.begin(&record.to, record.snapshot.clone()));
        }
        let text = format!(
            "QuestDB {to} does not start, and may have written what {from} cannot read: {reason}; {} holds the disk as it was \
             before: make a database of it, or ask for a later version",
            copy::told(record.snapshot.as_deref())
        );
        open(Decision::of(&record.to.clone(), Some(record)).says(State::Broken(text)))
    }

    /// Nothing speaks for or against the new image so far.
    fn not_yet(&self, record: UpgradeStatus, forward_only: bool) -> Standing {
        let (wish, at) = (self.validated.image.as_str(), self.observed.at);
        let (image, to) = (record.to.clone(), version_of(&record.to).to_owned());
        // The process of before is still there: the new one has not begun.
        let untouched =
            self.pod_of(&record.from).is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
        let back = |record: UpgradeStatus, reason: &str| {
            let (from, reason) = (record.from.clone(), Some(reason.to_owned()));
            let record = ended(record, UpgradeResult::RolledBack, reason, at);
            Standing::Known(from, Some(UpgradeStatus { answered: true, ..record }))
        };
        if wish == record.to {
            if untouched && !copy::is_fresh(record.started_at.0, at) {
                return back(record, "it was not started before its copy of the disk was too old");
            }
            let state = State::Running(format!("waiting for QuestDB {to} to serve"));
            return Standing::Open(Box::new(Decision::of(&image, Some(record)).says(state)));
        }
        let set = self.observed.children.stateful_set.is_some();
        if wish == record.from && set && (untouched || !forward_only) {
            return back(record, "the wish turned back before it served");
        }
        let text = format!(
            "QuestDB {to} is being started: {} is looked at once it is known whether that serves",
            self.validated.version
        );
        Standing::Open(Box::new(Decision::of(&image, Some(record)).says(State::Running(text))))
    }
}
