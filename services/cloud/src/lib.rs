//! The port to EC2 and Route 53: one small trait, [`Cloud`], in the words of the operator, with plain types.
//!
//! What else is here is pure or nearly so: tags and owners, client tokens, rate limits, batching of describes and a
//! shared view of everything a cluster owns. This crate never links an AWS SDK, never decides what should exist and
//! never reads the environment. `cloud-aws` is the implementation; tests use it against a real endpoint.

mod batch;
mod call;
mod dns;
mod error;
mod id;
mod instance;
mod limit;
mod lookup;
mod port;
mod security_group;
mod select;
mod shared;
mod snapshot;
mod tags;
mod token;
mod view;
mod volume;
mod word;
mod zone;
mod zone_view;

pub use batch::{Batcher, Batching, Fetched};
pub use call::{Call, CallReport, OnCall};
pub use dns::{DnsChange, DnsChangeState, DnsRecord, RecordChange, RecordKind, normalise_name};
pub use error::{Disposition, Error, ResourceKind};
pub use id::{ChangeId, HostedZoneId, InstanceId, SecurityGroupId, SnapshotId, VolumeId};
pub use instance::{Instance, InstanceState, Launch, Protection, UserData};
pub use limit::{Bucket, Family, Limiter, Rate, Rates, TooLong};
pub use lookup::Lookup;
pub use port::Cloud;
pub use security_group::{IngressRule, NewSecurityGroup, PeerRange, Protocol, SecurityGroup};
pub use select::{Select, TagFilter};
pub use snapshot::{NewSnapshot, SnapshotState, VolumeSnapshot};
pub use tags::{Owner, Role, TagError, Tags, key};
pub use token::{ClientToken, Fingerprint};
pub use view::{ClusterView, Holdings, Snapshot};
pub use volume::{
    Attachment, AttachmentState, ModificationState, NewVolume, Volume, VolumeChange, VolumeKind,
    VolumeModification, VolumeState,
};
pub use zone::{Gathering, Within, ZoneWriter};
pub use zone_view::{ZonePicture, ZoneView};
