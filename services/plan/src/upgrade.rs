//! From one QuestDB to another: the disk is copied first, then the new image is started, and one that does not start is
//! taken back.
//!
//! What has to be known for that stands on the StatefulSet, beside the template that it is about, and is written with it in
//! one request: from which image to which, since when, and what became of it. Status has the same, for the time when there
//! is no StatefulSet; and the disk has the version, for when there is nothing but the disk.
//!
//! *Invariant:* no image but the last one that ran is started without a copy of the disk, unless QuestDB has never begun on it
//! ([`unserved`]).
//! *Invariant:* an image that was taken back is not tried again before the wish names another one or another restart.
//! *Invariant:* what a new image may have written is not given to the one before by itself: one that served stays, and one of
//! another major version stays once its process has begun. By its pod alone that may be known, which goes with its StatefulSet: so that
//! is deleted only while the pod is as it was seen ([`PodSeen`]).

mod copy;
mod decision;
mod disk;
mod forward;
mod seen;
mod standing;
mod start;
mod stuck;
mod unserved;
mod written;

use std::sync::Arc;

use domain::catalogue;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{ChangeMeans, QuestDB, QuestDBSnapshot, UpgradeResult, UpgradeStatus};

use crate::change::{has_other_restarts, image_of_pod, image_of_template};
use crate::planner::living;
use crate::secrets::Choice;
use crate::{Change, Children, Goal, Observed, State, Validated, pod_is_ready};

pub(crate) use decision::Decision;
pub(crate) use disk::{newer, reported_version, start_of, too_old_by_tag};
pub use disk::{serves_as, understates, version_on};
pub use seen::PodSeen;
use standing::Standing;
pub(crate) use start::{has_begun, has_failed};
pub(crate) use stuck::stuck;
use unserved::Unserved;
pub(crate) use unserved::{NEVER, ONCE, says_unserved};

/// What a decision rests on.
struct Look<'a> {
    resource: &'a QuestDB,
    validated: &'a Validated,
    observed: &'a Observed,
    choice: &'a Choice,
}

/// The version that an image is of.
pub(crate) fn version_of(image: &str) -> &str {
    image.rsplit_once(':').map_or(image, |(_, version)| version)
}

/// Decides which image is in force.
pub(crate) fn decide(
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
    choice: &Choice,
) -> Decision {
    let look = Look { resource, validated, observed, choice };
    let record = look.record();
    let wish = validated.image.as_str();
    if validated.goal != Goal::Serve {
        return Decision::of(wish, record.map(|record| look.at_rest(record)));
    }
    if let Some(undecided) = look.undecided(record.clone()) {
        return undecided;
    }
    let first = match look.unserved(record.as_ref()) {
        Some(Unserved::Never) => return Decision { starts_first: true, ..Decision::of(wish, None) },
        Some(Unserved::First(image)) => Some(image),
        None => None,
    };
    let (image, record) = in_force(resource, observed, (record, first));
    let Some(image) = image else { return Decision::of(wish, record) };
    match look.standing(image, record) {
        Standing::Open(decision) => *decision,
        Standing::Known(image, record) => {
            let answered = |record: UpgradeStatus| UpgradeStatus {
                answered: record.answered
                    || (record.result == UpgradeResult::RolledBack && record.to != wish),
                ..record
            };
            let record = record.map(|record| answered(*record));
            if image == wish { Decision::of(wish, record) } else { look.asked(&image, record) }
        }
    }
}

/// The record as status has it.
fn reported(resource: &QuestDB) -> Option<&UpgradeStatus> {
    resource.status.as_ref()?.last_upgrade.as_ref()
}

/// Whether two records are of one start.
fn same_start(one: &UpgradeStatus, other: &UpgradeStatus) -> bool {
    (&one.from, &one.to, one.started_at.0.as_second())
        == (&other.from, &other.to, other.started_at.0.as_second())
}

/// The image that an upgrade left in force.
fn ran_last(record: &UpgradeStatus) -> &str {
    match record.result {
        UpgradeResult::RolledBack => &record.from,
        // It may have written, and was given a copy.
        UpgradeResult::Running | UpgradeResult::Succeeded => &record.to,
    }
}

/// The image that ran last, and the record that holds of it. Only a database that never served has none, or one of which there is
/// nothing but a disk that does not say it: that of an older operator, or of a version that cannot be compared.
///
/// What the cluster tells may be older than the disk, where it was restored from a copy of before. While nothing has the disk open,
/// that is believed where it tells of a later major version, and what is told of an earlier start says nothing of it.
///
/// What has begun on the disk as the `first` one is in force although the StatefulSet may have another by now, of which no record tells.
fn in_force(
    resource: &QuestDB,
    observed: &Observed,
    (record, first): (Option<UpgradeStatus>, Option<String>),
) -> (Option<String>, Option<UpgradeStatus>) {
    let children = &observed.children;
    let of_status = || Some(catalogue::image_of(resource.status.as_ref()?.version.as_deref()?));
    let told = first
        .or_else(|| image_of_template(children.stateful_set.as_deref()))
        .or_else(|| image_of_pod(children.pod.as_deref()?))
        .or_else(|| record.as_ref().map(|record| ran_last(record).to_owned()))
        .or_else(of_status);
    let Some(told) = told else {
        let shown = living(&observed.account.volumes).next().and_then(disk::version_of_disk);
        return (shown.map(catalogue::image_of), record);
    };
    match later_on_disk(observed, record.as_ref(), &told) {
        Some(later) => (Some(catalogue::image_of(later)), None),
        None => (Some(told), record),
    }
}

/// The version that the disk tells of, where it is of a later major one than the image that is told, and is believed.
fn later_on_disk<'a>(observed: &'a Observed, record: Option<&UpgradeStatus>, told: &str) -> Option<&'a str> {
    let disk = living(&observed.account.volumes).next()?;
    let is_explained = record.is_some_and(|record| disk::is_of_given_up(disk, record));
    let counts = disk.live_attachments().next().is_none() && !pod_is_ready(observed) && !is_explained;
    disk::version_of_disk(disk).filter(|shown| counts && catalogue::is_downgrade(shown, version_of(told)))
}

/// What is said to who asks for a version that cannot read the data.
fn too_old(written: &str, wished: &str) -> String {
    format!("QuestDB {wished} cannot read what {written} has written: ask for {written} or a later one")
}

impl Look<'_> {
    /// What is known of the last upgrade.
    fn record(&self) -> Option<UpgradeStatus> {
        let set = self.observed.children.stateful_set.as_deref();
        let written = written::record(&self.observed.children);
        let reported = reported(self.resource).cloned();
        if written::unread(&self.observed.children).is_some() {
            return reported;
        }
        match (written, reported) {
            (Some(written), Some(reported))
                if written.result == UpgradeResult::Running && same_start(&written, &reported) =>
            {
                let stops = self.validated.goal != Goal::Serve
                    || set.is_some_and(|set| set.metadata.deletion_timestamp.is_some());
                match reported.result {
                    // It was seen to end when nothing was written any more, because it was to stop.
                    UpgradeResult::Succeeded => Some(reported),
                    UpgradeResult::RolledBack if stops => Some(reported),
                    _ => Some(UpgradeStatus { begun: written.begun || reported.begun, ..written }),
                }
            }
            // What was seen of a pod since, and could not be written.
            (Some(written), Some(reported))
                if written.result == UpgradeResult::RolledBack && same_start(&written, &reported) =>
            {
                let resumed = reported.result == UpgradeResult::Running
                    && (reported.begun && !written.begun)
                    && standing::is_forward_only(&written);
                // That it was taken back at all may not have been reported yet; then nothing was seen since either.
                let (complete, put_back) = if reported.result == UpgradeResult::Running {
                    (written.complete, written.put_back.clone())
                } else {
                    let complete = written.complete && reported.complete;
                    // In which pod it was put back is written before it is said.
                    let seen = reported.put_back.clone().or_else(|| written.put_back.clone());
                    (complete, seen.filter(|_| complete))
                };
                Some(if resumed { reported } else { UpgradeStatus { complete, put_back, ..written } })
            }
            // It was decided on and never written: nothing has begun.
            (None, Some(reported))
                if reported.result == UpgradeResult::Running
                    && set.is_some()
                    && image_of_template(set).as_ref() != Some(&reported.to)
                    && self.pod_of(&reported.to).is_none() =>
            {
                None
            }
            (written, reported) => written.or(reported),
        }
    }

    /// The pod, if it runs this image.
    fn pod_of(&self, image: &str) -> Option<&Pod> {
        self.observed.children.pod.as_deref().filter(|pod| image_of_pod(pod).as_deref() == Some(image))
    }

    /// Another image is asked for than is in force.
    fn asked(&self, image: &str, record: Option<UpgradeStatus>) -> Decision {
        let (wish, version) = (self.validated.image.as_str(), self.validated.version.as_str());
        if let Some(known) = &record {
            let same = known.to == wish && known.restart_nonce == self.validated.restart_nonce;
            if known.result == UpgradeResult::RolledBack && same && !known.answered {
                let text = self.taken_back(known);
                return Decision::of(image, record).refused(text);
            }
        }
        if let Some(written) = self.newest(image, record.as_ref()) {
            let told = if self.is_told_by_tag_alone() { too_old_by_tag } else { too_old };
            return Decision::of(image, record).refused(told(&written, version));
        }
        self.copied_first(image, record)
    }

    fn taken_back(&self, record: &UpgradeStatus) -> String {
        let from = version_of(&record.from);
        let serves = if pod_is_ready(self.observed) && self.pod_of(&record.from).is_some() {
            format!("{from} serves on")
        } else {
            format!("{from} is put back")
        };
        format!(
            "QuestDB {} did not start and was taken back, {serves}: {}; {} holds the disk as it was before; for another attempt \
             change spec.restartNonce",
            version_of(&record.to),
            record.reason.as_deref().unwrap_or_default(),
            copy::told(record.snapshot.as_deref())
        )
    }

    /// The newest version that has written to the disk for all we know, if the wish may not read that.
    fn newest(&self, image: &str, record: Option<&UpgradeStatus>) -> Option<String> {
        let reported = self.resource.status.as_ref().and_then(|status| status.version.clone());
        let pod =
            self.observed.children.pod.as_deref().filter(|pod| start::has_run(pod)).and_then(image_of_pod);
        let record = record.filter(|record| record.result != UpgradeResult::RolledBack);
        let images = [Some(image.to_owned()), record.map(|record| record.to.clone()), pod];
        let of_images = images.into_iter().flatten().map(|image| version_of(&image).to_owned());
        of_images
            .chain(reported)
            .filter(|written| catalogue::is_downgrade(written, &self.validated.version))
            .max_by_key(|written| catalogue::major(written))
    }

    /// Notes the start of the image that is asked for; whether another has begun on the way to it. Of what was noted already
    /// the first time stands.
    fn begin(&self, from: &str, snapshot: Option<String>, begun: bool) -> Decision {
        let Validated { image, version, restart_nonce, .. } = self.validated;
        let known = reported(self.resource).filter(|known| {
            known.result == UpgradeResult::Running
                && (known.from.as_str(), &known.to) == (from, image)
                && (&known.snapshot, &known.restart_nonce) == (&snapshot, restart_nonce)
        });
        let record = UpgradeStatus {
            from: from.to_owned(),
            to: image.clone(),
            result: UpgradeResult::Running,
            reason: None,
            snapshot,
            restart_nonce: restart_nonce.clone(),
            begun,
            answered: false,
            complete: false,
            put_back: None,
            started_at: known.map_or(Time(self.observed.at), |known| known.started_at.clone()),
            ended_at: None,
        };
        let state = State::Running(format!("QuestDB {version} is being started"));
        Decision::of(image, Some(record)).says(state)
    }

    /// The disk is copied before anything else is done to it: from there on EBS goes on by itself.
    fn copied_first(&self, image: &str, record: Option<UpgradeStatus>) -> Decision {
        let why = format!(
            "another image is another process: the disk is copied first, then QuestDB {} is started, and taken back if it \
             does not serve",
            self.validated.version
        );
        let asked = Decision {
            change: Some(Change::new("/spec/version", ChangeMeans::Restart, why)),
            ..Decision::of(image, record)
        };
        // A template that has the new image already is put back first.
        let template = image_of_template(self.observed.children.stateful_set.as_deref());
        let holds = template.is_none_or(|template| template == image);
        let waits = |text: String| Decision { holds, ..asked.clone().says(State::Running(text)) };
        let pod = self.pod_of(image).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        if let Some(pod) = pod
            && has_other_restarts(self.validated, self.choice, pod)
        {
            // Which of two changes keeps QuestDB from starting would not be known.
            let text = "what else is asked for needs a restart of its own, and comes first";
            return asked.says(State::Running(text.to_owned()));
        }
        let serves = pod.is_some() && pod_is_ready(self.observed);
        let kept = pod.and_then(|pod| self.kept(pod, asked.record.as_ref()?));
        match copy::standing(self.resource, self.validated, self.observed) {
            copy::Standing::Begun(name) => self.begin(image, Some(name), false),
            copy::Standing::Missing(_) if kept.is_some() => self.begin(image, kept, false),
            copy::Standing::Refused(text) => asked.refused(text),
            copy::Standing::Waits(text) => waits(text),
            // A restart, and a Node that is drained, wait for that no more than for a copy that failed.
            copy::Standing::Unseen(state) => asked.says(state),
            copy::Standing::Missing(name) if serves => {
                let copy = Some(copy::manifest(&self.validated.subject, &name));
                Decision { copy, ..waits(format!("QuestDBSnapshot {name} is being asked for")) }
            }
            copy::Standing::Missing(_) | copy::Standing::Unnamed => {
                waits(stuck::copied_once_it_serves(version_of(image)))
            }
        }
    }
}

/// The snapshot that an upgrade waits for, the latest of its attempts, else the one that may still be started from, by `find`,
/// which knows every snapshot of the namespace by name.
pub fn copy_to_look_at(
    resource: &QuestDB,
    validated: &Validated,
    children: &Children,
    find: impl Fn(&str) -> Option<Arc<QuestDBSnapshot>>,
) -> Option<Arc<QuestDBSnapshot>> {
    let stems = copy::stems(resource, validated, children)?;
    let last = |stem: &str| copy::attempts(stem).map_while(|name| find(&name)).last();
    let known = || written::record(children).or_else(|| reported(resource).cloned());
    let may_start = || find(&known().filter(|record| record.complete)?.snapshot?);
    last(&stems.ours).or_else(|| last(&stems.older)).or_else(may_start)
}
