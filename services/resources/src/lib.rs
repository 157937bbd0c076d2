//! The custom resources `QuestDB`, `QuestDBSnapshot` and `QuestDBSnapshotSchedule`: their types, rules and names, and how a
//! desired state becomes a `QuestDB`'s spec.
//!
//! Types and pure functions only: no client, no clock, no decisions about what should run. The schema that the API
//! server holds is generated from here (`deploy/crds`) and compared by a test.
//!
//! *Invariant:* the spec of a resource that carries an instruction only ever moves forward in (epoch, seq, render). The
//! API server keeps that by the rules in [`fence`], whoever writes.

mod credentials;
pub mod fence;
pub mod names;
mod pod;
mod reach;
pub mod render;
mod schedule;
mod schema;
mod seen;
mod served;
mod snapshot;
mod spec;
mod status;
mod unmanaged;
mod upgrade;

pub use credentials::{CredentialsSpec, IlpSpec, SecretSpec};
pub use pod::{
    AmountsSpec, ContainerSpec, EmptyDirSpec, EnvSourceSpec, EnvSpec, KeySpec, MountSpec, NameSpec,
    PodOverrides, PortSpec, ProbeSpec, ProbesSpec, SecretVolumeSpec, TaintEffect, TolerationSpec, VolumeSpec,
};
pub use reach::{
    EgressSpec, IngressSpec, MonitorKind, MonitorSpec, RouteSpec, ServiceSpec, ServiceType, TlsSpec,
};
pub use render::{object, render};
pub use schedule::{
    QuestDBSnapshotSchedule, QuestDBSnapshotScheduleSpec, QuestDBSnapshotScheduleStatus, RetentionSpec,
    SnapshotTemplate,
};
pub use schema::{definition, definitions};
pub use seen::{Readable, Seen, unread};
pub use served::{DOCUMENT, DOCUMENTS, lacking, state, state_of};
pub use snapshot::{CopyPolicy, QuestDBSnapshot, QuestDBSnapshotSpec, QuestDBSnapshotStatus, SnapshotPhase};
pub use spec::{
    ComputeSpec, DeletionPolicy, Exposure, InstructionSpec, NetworkSpec, QuestDB, QuestDBSpec, RunState,
    StorageSource, StorageSpec, VolumeType,
};
pub use status::{
    ChangeMeans, DnsState, DnsStatus, EndpointsStatus, FormerNameStatus, InstructionStatus, LastCopyStatus,
    NextNameStatus, NodeStatus, PendingStatus, Phase, PlanForStatus, QuestDBStatus, StepState, StepStatus,
    VolumeStatus,
};
pub use unmanaged::unmanaged;
pub use upgrade::{UpgradeResult, UpgradeStatus};
