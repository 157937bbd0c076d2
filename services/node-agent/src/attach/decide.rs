//! What a `VolumeAttachment` needs, and which device name is free. Pure.

use std::collections::BTreeSet;

use cloud::{InstanceId, Volume};
use k8s_openapi::api::storage::v1::VolumeAttachment;

use crate::manifest::DRIVER;

/// The finalizer that keeps the object until EC2 let go.
pub(super) const FINALIZER: &str = "external-attacher/ebs-csi-aws-com";
/// Remembers the instance, as the external attacher does.
pub(super) const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// What an attachment needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To be attached.
    Attach,
    /// To be detached.
    Detach,
    /// Nothing, or nothing of us.
    Nothing,
}

/// By looking at the object alone.
pub fn need(attachment: &VolumeAttachment) -> Need {
    if attachment.spec.attacher != DRIVER {
        return Need::Nothing;
    }
    let deleted = attachment.metadata.deletion_timestamp.is_some();
    let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
    // Without the note nothing was ever asked of EC2: a finalizer alone is not ours.
    let begun = has_finalizer(attachment) && noted_instance(attachment).is_some();
    match (deleted, begun, attached) {
        (true, true, _) => Need::Detach,
        (false, _, false) => Need::Attach,
        (true, false, _) | (false, _, true) => Need::Nothing,
    }
}

/// Whether our finalizer is on it.
pub(super) fn has_finalizer(attachment: &VolumeAttachment) -> bool {
    attachment.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// The instance noted on it.
pub(super) fn noted_instance(attachment: &VolumeAttachment) -> Option<InstanceId> {
    attachment.metadata.annotations.as_ref()?.get(NODE_ID).map(|id| InstanceId::new(id.as_str()))
}

/// The first free name of those that EC2 recommends for data volumes and then of the longer ones.
pub fn device(volumes: &[Volume], instance: &InstanceId) -> Option<String> {
    let attachments = volumes.iter().flat_map(Volume::live_attachments);
    let taken: BTreeSet<&str> =
        attachments.filter(|found| found.instance == *instance).map(|found| found.device.as_str()).collect();
    let short = ('f'..='p').map(|letter| format!("/dev/sd{letter}"));
    let long = ('a'..='z').map(|letter| format!("/dev/xvdb{letter}"));
    short.chain(long).find(|name| !taken.contains(name.as_str()))
}

#[cfg(test)]
mod tests {
    use cloud::{Attachment, AttachmentState, Tags, VolumeKind, VolumeState};
    use jiff::Timestamp;
    use k8s_openapi::api::storage::v1::VolumeAttachmentStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn attachment(driver: &str, deleted: bool, finalizer: bool, attached: bool) -> VolumeAttachment {
        let mut object = VolumeAttachment::default();
        object.spec.attacher = driver.into();
        object.metadata.deletion_timestamp = deleted.then_some(Time(Timestamp::UNIX_EPOCH));
        object.metadata.finalizers = finalizer.then(|| vec![FINALIZER.to_owned()]);
        object.metadata.annotations = finalizer.then(|| [(NODE_ID.to_owned(), "i-1".to_owned())].into());
        object.status = Some(VolumeAttachmentStatus { attached, ..VolumeAttachmentStatus::default() });
        object
    }

    #[test]
    fn needs_follow_from_the_object() {
        let check = |deleted: bool, finalizer: bool, attached: bool, expected: Need| {
            assert_eq!(need(&attachment(DRIVER, deleted, finalizer, attached)), expected);
            assert_eq!(need(&attachment("other", deleted, finalizer, attached)), Need::Nothing);
        };
        check(false, false, false, Need::Attach);
        check(false, true, false, Need::Attach);
        check(false, true, true, Need::Nothing);
        check(true, true, true, Need::Detach);
        check(true, true, false, Need::Detach);
        check(true, false, true, Need::Nothing);
        let mut unknown = attachment(DRIVER, true, true, true);
        unknown.metadata.annotations = None;
        assert_eq!(need(&unknown), Need::Nothing);
    }

    #[test]
    fn devices_are_not_given_twice() {
        let instance = InstanceId::from("i-1");
        let volume = |device: &str, on: &str, state: AttachmentState| Volume {
            id: "vol".into(),
            state: VolumeState::InUse,
            zone: "z".into(),
            size_gib: 1,
            kind: VolumeKind::Gp3,
            iops: None,
            throughput: None,
            encrypted: false,
            snapshot: None,
            attachments: vec![Attachment {
                volume: "vol".into(),
                instance: on.into(),
                device: device.into(),
                state,
                goes_with_machine: false,
            }],
            tags: Tags::default(),
            created_at: None,
        };
        assert_eq!(device(&[], &instance).as_deref(), Some("/dev/sdf"));
        let volumes = [
            volume("/dev/sdf", "i-1", AttachmentState::Detaching),
            volume("/dev/sdg", "i-2", AttachmentState::Attached),
            volume("/dev/sdg", "i-1", AttachmentState::Detached),
        ];
        assert_eq!(device(&volumes, &instance).as_deref(), Some("/dev/sdg"));
        let names =
            ('f'..='p').map(|letter| volume(&format!("/dev/sd{letter}"), "i-1", AttachmentState::Attached));
        assert_eq!(device(&names.collect::<Vec<_>>(), &instance).as_deref(), Some("/dev/xvdba"));
    }
}
