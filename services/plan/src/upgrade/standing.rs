//! Which image is in force, by what became of the last one that was started.

use domain::catalogue;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{UpgradeResult, UpgradeStatus};

use super::{Decision, Look, copy, reported, same_start, start, version_of};
use crate::State;
use crate::change::has_other_restarts;

/// What is known of the image in force.
pub(super) enum Standing {
    /// It, and what became of the last upgrade.
    Known(String, Option<Box<UpgradeStatus>>),
    /// Nothing else can be decided yet.
    Open(Box<Decision>),
}

impl Standing {
    fn known(image: String, record: Option<UpgradeStatus>) -> Self {
        Self::Known(image, record.map(Box::new))
    }
}

/// Whether what the new image has written may be more than the one before can read.
pub(super) fn is_forward_only(record: &UpgradeStatus) -> bool {
    catalogue::is_downgrade(version_of(&record.to), version_of(&record.from))
}

impl Look<'_> {
    /// The record with its end; when that was is what was told first.
    fn ended(&self, record: UpgradeStatus, result: UpgradeResult, reason: Option<String>) -> UpgradeStatus {
        let known =
            reported(self.resource).filter(|known| known.result == result && same_start(known, &record));
        let known = known.and_then(|known| known.ended_at.clone());
        let ended_at = known.unwrap_or(Time(self.observed.at));
        let complete = result == UpgradeResult::RolledBack && record.snapshot.is_some();
        let record = UpgradeStatus { result, reason, ended_at: Some(ended_at), complete, ..record };
        self.with_what_is_copied(record)
    }

    /// Whatever the image before wrote once it served again is not in the copy. A pod that somebody else put in the place of the
    /// one that was put back may be the next of one that served while nobody looked; one that is about to be restarted for its
    /// wish is followed by another, and is ended only as it was seen ([`Decision::rests_on`]).
    fn with_what_is_copied(&self, record: UpgradeStatus) -> UpgradeStatus {
        let Some(pod) = self.pod_of(&record.from).filter(|_| record.complete) else { return record };
        let uid = pod.metadata.uid.clone();
        let is_another = record.put_back.is_some() && record.put_back != uid;
        let restarts = has_other_restarts(self.validated, self.choice, pod);
        let complete = !is_another && !start::served(pod);
        UpgradeStatus { complete, put_back: uid.filter(|_| complete && !restarts), ..record }
    }

    /// The record, with what nobody has written down yet: that it served, that its process has begun, or that the image
    /// before serves again. The pod that shows it may be gone by the next look.
    pub(super) fn noted(&self, record: UpgradeStatus) -> UpgradeStatus {
        let is_open = record.result != UpgradeResult::Succeeded;
        let pod = self.pod_of(&record.to).filter(|_| is_open);
        if pod.is_some_and(start::served) {
            return self.ended(record, UpgradeResult::Succeeded, None);
        }
        let has_run = pod.is_some_and(start::has_run);
        match record.result {
            UpgradeResult::Running => UpgradeStatus { begun: record.begun || has_run, ..record },
            // It was taken back before it began, and began before its pod was gone.
            UpgradeResult::RolledBack if has_run && is_forward_only(&record) => UpgradeStatus {
                result: UpgradeResult::Running,
                reason: None,
                begun: true,
                answered: false,
                complete: false,
                ended_at: None,
                ..record
            },
            UpgradeResult::RolledBack | UpgradeResult::Succeeded => self.with_what_is_copied(record),
        }
    }

    /// The same for a database that is not to serve: what was not begun before that is not begun after it.
    pub(super) fn at_rest(&self, record: UpgradeStatus) -> UpgradeStatus {
        let record = self.noted(record);
        if record.result != UpgradeResult::Running || !self.is_untouched(&record) {
            return record;
        }
        let reason = Some("it was to stop before it was started".to_owned());
        let record = self.ended(record, UpgradeResult::RolledBack, reason);
        UpgradeStatus { answered: true, ..record }
    }

    /// Whether the process of before is still there: the new one has not begun.
    fn is_untouched(&self, record: &UpgradeStatus) -> bool {
        let before = self.pod_of(&record.from);
        !record.begun && before.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
    }

    /// Which image is in force, by what became of the last one that was started.
    pub(super) fn standing(&self, image: String, record: Option<UpgradeStatus>) -> Standing {
        let Some(before) = record else { return Standing::known(image, None) };
        let record = self.noted(before.clone());
        if record.result == UpgradeResult::Succeeded && before.result != record.result {
            // What it has written is its own from here on, even if it was to be taken back.
            return Standing::known(record.to.clone(), Some(record));
        }
        // Once it has begun it is in force whatever the template says.
        let stays = record.begun && is_forward_only(&record);
        if record.result == UpgradeResult::Running && (stays || record.to == image) {
            return self.under_way(record);
        }
        Standing::known(image, Some(record))
    }

    /// The template has the new image, and it is not known whether that serves.
    fn under_way(&self, record: UpgradeStatus) -> Standing {
        let (wish, at) = (self.validated.image.as_str(), self.observed.at);
        let (from, to) = (version_of(&record.from), version_of(&record.to));
        let pod = self.pod_of(&record.to);
        let nodes = &self.observed.children.nodes;
        let judged = pod.filter(|pod| start::may_be_judged(pod, nodes, record.started_at.0));
        let forward_only = is_forward_only(&record);
        let Some(reason) = judged.and_then(|pod| start::failure(pod, at)) else {
            return self.not_yet(record, forward_only);
        };
        let open = |decision| Standing::Open(Box::new(decision));
        if !forward_only || !record.begun {
            let from = record.from.clone();
            return Standing::known(from, Some(self.ended(record, UpgradeResult::RolledBack, Some(reason))));
        }
        if wish != record.to && wish != record.from && !catalogue::is_downgrade(to, &self.validated.version) {
            // What served last, and its copy, stay what they are: nothing has served since.
            return open(self.begin(&record.from, record.snapshot.clone(), true));
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
        let untouched = self.is_untouched(&record);
        let back = |record: UpgradeStatus, reason: &str| {
            let (from, reason) = (record.from.clone(), Some(reason.to_owned()));
            let record = self.ended(record, UpgradeResult::RolledBack, reason);
            Standing::known(from, Some(UpgradeStatus { answered: true, ..record }))
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
        // Started all the same, it might write what the version that is asked for by now cannot read.
        if set && untouched {
            return back(record, "another version was asked for before it was started");
        }
        let text = format!(
            "QuestDB {to} is being started: {} is looked at once it is known whether that serves",
            self.validated.version
        );
        Standing::Open(Box::new(Decision::of(&image, Some(record)).says(State::Running(text))))
    }
}
