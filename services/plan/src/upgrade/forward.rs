//! The way forward where an image was taken back and the one that was put back does not start either: nothing has been served since, and
//! there is nothing newer to copy. It asks for no copy. What was written while that of before was taken is on the disk alone, which is
//! gone forward on.

use k8s_openapi::api::core::v1::Pod;
use resources::{UpgradeResult, UpgradeStatus};

use super::{Look, copy, start};
use crate::Observed;
use crate::change::image_of_pod;

impl Look<'_> {
    /// The copy from before the last image that was taken back, if the one that was put back fails as well: it will not serve to
    /// be copied, and there is nothing newer to copy.
    pub(super) fn kept(&self, pod: &Pod, record: &UpgradeStatus) -> Option<String> {
        let is_put_back = record.result == UpgradeResult::RolledBack
            && record.complete
            && image_of_pod(pod).as_ref() == Some(&record.from);
        let kept = |name: &String| copy::is_kept(name, self.validated, self.observed);
        record.snapshot.clone().filter(|name| is_put_back && self.does_not_start(pod, record) && kept(name))
    }

    /// Whether what was put back does not start: its process has ended, or it was waited for as long as for any other that is started,
    /// as where its image is not to be had any more.
    fn does_not_start(&self, pod: &Pod, record: &UpgradeStatus) -> bool {
        let Observed { children, at, .. } = self.observed;
        let is_judged = start::may_be_judged(pod, &children.nodes, record.started_at.0);
        start::has_failed(pod) || is_judged && !start::served(pod) && start::failure(pod, *at).is_some()
    }
}

/// What people can do then.
pub(super) fn told(record: &UpgradeStatus) -> String {
    let copy = copy::told(record.snapshot.as_deref());
    format!(
        "ask for another version: as long as there is {copy}, which holds the disk as it was before, it is started on the disk as it is \
         now, without another copy"
    )
}
