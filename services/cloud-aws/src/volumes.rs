//! EBS volumes.

use std::collections::HashMap;

use aws_sdk_ec2::types as ec2;
use cloud::{
    Attachment, ClientToken, Error, InstanceId, NewVolume, Select, Volume, VolumeChange, VolumeId,
    VolumeModification,
};

use crate::client::Aws;
use crate::convert::{self, required};
use crate::request::{
    self, ATTACH_VOLUME, CREATE_VOLUME, DELETE_VOLUME, DESCRIBE_VOLUMES, DESCRIBE_VOLUMES_MODIFICATIONS,
    DETACH_VOLUME, MODIFY_VOLUME, Pages, Request,
};

impl Aws {
    pub(crate) async fn create(&self, wanted: &NewVolume, token: &ClientToken) -> Result<Volume, Error> {
        let NewVolume { zone, size_gib, kind, iops, throughput, encrypted, snapshot, tags } = wanted;
        let sent = self
            .ec2
            .create_volume()
            .client_token(token.as_str())
            .availability_zone(zone)
            .size(signed(*size_gib))
            .volume_type(kind.as_str().into())
            .set_iops(iops.map(signed))
            .set_throughput(throughput.map(signed))
            .encrypted(*encrypted)
            .set_snapshot_id(snapshot.clone())
            .set_tag_specifications(convert::tagged(ec2::ResourceType::Volume, tags));
        let answer = self.call(CREATE_VOLUME, sent.send()).await?;
        // The answer has the fields of a volume in a type of its own.
        let seen = ec2::Volume::builder()
            .set_volume_id(answer.volume_id)
            .set_state(answer.state)
            .set_availability_zone(answer.availability_zone)
            .set_size(answer.size)
            .set_volume_type(answer.volume_type)
            .set_iops(answer.iops)
            .set_throughput(answer.throughput)
            .set_encrypted(answer.encrypted)
            .set_snapshot_id(answer.snapshot_id)
            .set_attachments(answer.attachments)
            .set_tags(answer.tags)
            .set_create_time(answer.create_time);
        convert::volume(seen.build()).map_err(|missing| missing.of(CREATE_VOLUME))
    }

    pub(crate) async fn volumes(&self, select: &Select<VolumeId>) -> Result<Vec<Volume>, Error> {
        let mut found = Vec::new();
        for filters in request::filters("volume-id", select) {
            let mut pages = Pages::of(DESCRIBE_VOLUMES);
            while let Some(page) = pages.next()? {
                let sent = self.ec2.describe_volumes().set_filters(Some(filters.clone()));
                let sent = sent.max_results(request::PAGE).set_next_token(page.token);
                let answer = self.call(DESCRIBE_VOLUMES, sent.send()).await?;
                found.extend(answer.volumes.unwrap_or_default());
                pages.then(answer.next_token);
            }
        }
        convert::all(DESCRIBE_VOLUMES, found, convert::volume)
    }

    pub(crate) async fn attach(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        device: &str,
    ) -> Result<Attachment, Error> {
        let sent = self.ec2.attach_volume().volume_id(volume.as_str()).instance_id(instance.as_str());
        let answer = self.call(ATTACH_VOLUME, sent.device(device).send()).await?;
        let (id, on) = (answer.volume_id, answer.instance_id);
        attachment(ATTACH_VOLUME, id, on, answer.device, answer.state)
    }

    /// Names the instance, so that a late caller cannot take the volume from a newer one; and never says force.
    pub(crate) async fn detach(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Attachment, Error> {
        let sent = self.ec2.detach_volume().volume_id(volume.as_str()).instance_id(instance.as_str());
        let answer = self.call(DETACH_VOLUME, sent.force(false).send()).await?;
        let (id, on) = (answer.volume_id, answer.instance_id);
        attachment(DETACH_VOLUME, id, on, answer.device, answer.state)
    }

    pub(crate) async fn delete(&self, volume: &VolumeId) -> Result<(), Error> {
        let sent = self.ec2.delete_volume().volume_id(volume.as_str());
        self.call(DELETE_VOLUME, sent.send()).await.map(drop)
    }

    pub(crate) async fn modify(
        &self,
        volume: &VolumeId,
        change: &VolumeChange,
    ) -> Result<VolumeModification, Error> {
        let VolumeChange { size_gib, kind, iops, throughput } = change;
        let sent = self
            .ec2
            .modify_volume()
            .volume_id(volume.as_str())
            .set_size(size_gib.map(signed))
            .set_volume_type(kind.as_ref().map(|kind| kind.as_str().into()))
            .set_iops(iops.map(signed))
            .set_throughput(throughput.map(signed));
        let answer = self.call(MODIFY_VOLUME, sent.send()).await?;
        required(answer.volume_modification, "modification")
            .and_then(convert::modification)
            .map_err(|missing| missing.of(MODIFY_VOLUME))
    }

    pub(crate) async fn modifications(&self, volumes: &[VolumeId]) -> Result<Vec<VolumeModification>, Error> {
        let mut found = Vec::new();
        for filters in request::filters("volume-id", &Select::Ids(volumes.to_vec())) {
            let mut pages = Pages::of(DESCRIBE_VOLUMES_MODIFICATIONS);
            while let Some(page) = pages.next()? {
                let sent = self.ec2.describe_volumes_modifications().set_filters(Some(filters.clone()));
                let sent = sent.max_results(request::PAGE).set_next_token(page.token);
                let answer = self.call(DESCRIBE_VOLUMES_MODIFICATIONS, sent.send()).await?;
                found.extend(answer.volumes_modifications.unwrap_or_default());
                pages.then(answer.next_token);
            }
        }
        Ok(latest(convert::all(DESCRIBE_VOLUMES_MODIFICATIONS, found, convert::modification)?))
    }
}

/// EC2 shows one modification of a volume, other endpoints its whole history: the one begun last counts, and of two
/// begun at once the later in the list.
fn latest(modifications: Vec<VolumeModification>) -> Vec<VolumeModification> {
    let mut latest: HashMap<VolumeId, VolumeModification> = HashMap::new();
    for one in modifications {
        let older = latest.get(&one.volume).is_none_or(|known| known.started_at <= one.started_at);
        if older {
            latest.insert(one.volume.clone(), one);
        }
    }
    latest.into_values().collect()
}

fn attachment(
    request: Request,
    volume: Option<String>,
    instance: Option<String>,
    device: Option<String>,
    state: Option<ec2::VolumeAttachmentState>,
) -> Result<Attachment, Error> {
    let seen = ec2::VolumeAttachment::builder()
        .set_volume_id(volume)
        .set_instance_id(instance)
        .set_device(device)
        .set_state(state);
    convert::attachment(seen.build()).map_err(|missing| missing.of(request))
}

/// EC2's numbers are signed; beyond any disk, it refuses the largest as well as the true one.
fn signed(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use cloud::ModificationState;

    use super::*;

    #[test]
    fn of_a_history_the_last_counts() {
        let one = |volume: &str, at: u64, state: ModificationState| VolumeModification {
            volume: volume.into(),
            state,
            progress: None,
            target: VolumeChange::default(),
            message: None,
            started_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(at)),
        };
        let newest = one("vol-1", 2, ModificationState::Optimizing);
        let other = one("vol-2", 1, ModificationState::Failed);
        let history = vec![newest.clone(), one("vol-1", 1, ModificationState::Completed), other.clone()];
        let mut found = latest(history);
        found.sort_by(|a, b| a.volume.cmp(&b.volume));
        assert_eq!(found, [newest, other]);
    }
}
