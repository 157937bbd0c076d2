//! What a StatefulSet says of its last upgrade.
//!
//! *Invariant:* a record that cannot be read is not taken for none: by none, what was taken back would be tried again, and what is
//! being started would be left to itself.

use domain::catalogue;
use resources::{ChangeMeans, UpgradeStatus, names};

use super::{Decision, Look, later_on_disk, start};
use crate::change::{image_of_pod, image_of_template};
use crate::{Change, Children, State};

/// The annotation.
fn text(children: &Children) -> Option<&String> {
    children.stateful_set.as_ref()?.metadata.annotations.as_ref()?.get(names::UPGRADE)
}

/// The record, where it can be read.
pub(super) fn record(children: &Children) -> Option<UpgradeStatus> {
    serde_json::from_str(text(children)?).ok()
}

/// The annotation where it is no record, and why not.
pub(super) fn unread(children: &Children) -> Option<(&String, serde_json::Error)> {
    let text = text(children)?;
    Some((text, serde_json::from_str::<UpgradeStatus>(text).err()?))
}

impl Look<'_> {
    /// What is decided while the record cannot be read: nothing. What has run last, or would be started, stays in force, unless the
    /// disk tells of a later major version, as ever; and the annotation stays as it is, for whoever can put it right.
    pub(super) fn undecided(&self, record: Option<UpgradeStatus>) -> Option<Decision> {
        let children = &self.observed.children;
        let (written, why) = unread(children)?;
        let pod = children.pod.as_deref().filter(|pod| start::has_run(pod));
        let of_template = || image_of_template(children.stateful_set.as_deref());
        let told = pod.and_then(image_of_pod).or_else(of_template)?;
        let later = later_on_disk(self.observed, record.as_ref(), &told).map(catalogue::image_of);
        let image = later.unwrap_or(told);
        let why = format!(
            "annotation {} of StatefulSet {} cannot be read ({why}): what became of the last other version is not known, and none is \
             started or taken back until the annotation is put right or taken off; once it is off, what status.lastUpgrade says counts",
            names::UPGRADE,
            self.validated.subject.name
        );
        let change = Change::new("/spec/version", ChangeMeans::Refused, why.clone());
        Some(Decision {
            change: (image != self.validated.image).then_some(change),
            unread: Some(written.clone()),
            ..Decision::of(&image, record).says(State::Broken(why))
        })
    }
}
