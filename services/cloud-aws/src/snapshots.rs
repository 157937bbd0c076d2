//! EBS snapshots.

use aws_config::retry::RetryConfig;
use aws_sdk_ec2::types as ec2;
use cloud::{Error, NewSnapshot, Select, SnapshotId, VolumeSnapshot};

use crate::client::Aws;
use crate::convert;
use crate::request::{self, CREATE_SNAPSHOT, DELETE_SNAPSHOT, DESCRIBE_SNAPSHOTS, Pages};

impl Aws {
    /// Sent once: a repetition of the SDK's would make a second snapshot of an attempt whose answer was lost.
    pub(crate) async fn begin_snapshot(&self, wanted: &NewSnapshot) -> Result<VolumeSnapshot, Error> {
        let NewSnapshot { volume, description, tags } = wanted;
        let once = aws_sdk_ec2::config::Builder::default().retry_config(RetryConfig::disabled());
        let sent = self
            .ec2
            .create_snapshot()
            .volume_id(volume.as_str())
            .description(description)
            .set_tag_specifications(convert::tagged(ec2::ResourceType::Snapshot, tags))
            .customize()
            .config_override(once);
        let answer = self.call(CREATE_SNAPSHOT, sent.send()).await?;
        // The answer has the fields of a snapshot in a type of its own.
        let seen = ec2::Snapshot::builder()
            .set_snapshot_id(answer.snapshot_id)
            .set_state(answer.state)
            .set_volume_id(answer.volume_id)
            .set_volume_size(answer.volume_size)
            .set_progress(answer.progress)
            .set_state_message(answer.state_message)
            .set_encrypted(answer.encrypted)
            .set_tags(answer.tags)
            .set_start_time(answer.start_time);
        convert::snapshot(seen.build()).map_err(|missing| missing.of(CREATE_SNAPSHOT))
    }

    /// Our own only: without an owner, EC2 would search everything that anybody made public.
    pub(crate) async fn snapshots(&self, select: &Select<SnapshotId>) -> Result<Vec<VolumeSnapshot>, Error> {
        let mut found = Vec::new();
        for filters in request::filters("snapshot-id", select) {
            let mut pages = Pages::of(DESCRIBE_SNAPSHOTS);
            while let Some(page) = pages.next()? {
                let sent = self.ec2.describe_snapshots().owner_ids("self").set_filters(Some(filters.clone()));
                let sent = sent.max_results(request::PAGE).set_next_token(page.token);
                let answer = self.call(DESCRIBE_SNAPSHOTS, sent.send()).await?;
                found.extend(answer.snapshots.unwrap_or_default());
                pages.then(answer.next_token);
            }
        }
        convert::all(DESCRIBE_SNAPSHOTS, found, convert::snapshot)
    }

    pub(crate) async fn destroy_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Error> {
        let sent = self.ec2.delete_snapshot().snapshot_id(snapshot.as_str());
        self.call(DELETE_SNAPSHOT, sent.send()).await.map(drop)
    }
}
