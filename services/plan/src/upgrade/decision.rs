//! What is decided about the image of a database.

use k8s_openapi::api::core::v1::Pod;
use resources::{ChangeMeans, UpgradeResult, UpgradeStatus, names};

use super::PodSeen;
use crate::change::image_of_pod;
use crate::{Change, Manifest, State, build};

/// Which image is in force, and what is to be said and done about the one that is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decision {
    /// Image that the pod is to run now.
    pub(crate) image: String,
    /// What the StatefulSet is to say.
    pub(crate) record: Option<UpgradeStatus>,
    /// How far it is; nothing when nothing is to be told.
    pub(crate) state: Option<State>,
    /// The copy that has to be asked for.
    pub(crate) copy: Option<Manifest>,
    /// What is told beforehand.
    pub(crate) change: Option<Change>,
    /// Other restarts come with the one for the image.
    pub(super) holds: bool,
    /// QuestDB has never begun on the disk: the image is started on it as the first one.
    pub(super) starts_first: bool,
    /// What the StatefulSet says and goes on saying, because it cannot be read.
    pub(super) unread: Option<String>,
}

impl Decision {
    /// Whether the new image waits for its copy of the disk, and what needs a restart waits for the new image.
    pub(crate) const fn waits(&self) -> bool {
        self.holds
    }

    /// The record as an annotation.
    pub(crate) fn text(&self) -> Option<String> {
        let record = || Some(serde_json::to_string(self.record.as_ref()?).unwrap_or_default());
        self.unread.clone().or_else(record)
    }

    /// Writes the record on the StatefulSet, by whose template another image is given the time that it may take to begin.
    pub(crate) fn write_to(&self, set: &mut Manifest) {
        if let Some(text) = self.text() {
            set.body["metadata"]["annotations"][names::UPGRADE] = text.into();
        }
        if self.record.as_ref().is_some_and(|record| record.result == UpgradeResult::Running) {
            build::give_time(set);
        }
    }

    /// Whether a pod runs what is taken back: one that serves after all must not be ended for that.
    pub(crate) fn takes_back(&self, pod: &Pod) -> bool {
        image_of_pod(pod).is_some_and(|image| self.has_taken_back(&image))
    }

    /// Whether it counts that a pod has never served: only then another image is started without another copy.
    pub(crate) fn rests_on(&self, pod: &Pod) -> bool {
        let record = self.record.as_ref().filter(|record| record.complete);
        record.is_some() && image_of_pod(pod).as_ref() == record.map(|record| &record.from)
    }

    /// How the pod is seen, while it may still tell what became of another image.
    pub(crate) fn rests_on_pod(&self, pod: Option<&Pod>) -> Option<PodSeen> {
        let is_open = self.record.as_ref().is_some_and(|record| record.result != UpgradeResult::Succeeded);
        is_open.then(|| PodSeen::of(pod))
    }

    /// Whether this image was taken back, and the one before it is in force.
    pub(crate) fn has_taken_back(&self, image: &str) -> bool {
        let record = self.record.as_ref().filter(|record| record.result == UpgradeResult::RolledBack);
        image != self.image && record.is_some_and(|record| record.to == image)
    }

    pub(super) fn of(image: &str, record: Option<UpgradeStatus>) -> Self {
        Self { image: image.to_owned(), record, ..Self::default() }
    }

    pub(super) fn says(self, state: State) -> Self {
        Self { state: Some(state), ..self }
    }

    pub(super) fn refused(self, why: String) -> Self {
        let change = Change::new("/spec/version", ChangeMeans::Refused, why.clone());
        Self { state: Some(State::Refused(why)), change: Some(change), ..self }
    }
}
