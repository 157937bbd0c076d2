//! The custom resource `QuestDB`: its types, its fence, its names, and how a desired state becomes its spec.
//!
//! Types and pure functions only: no client, no clock, no decisions about what should run. The schema that the API
//! server holds is generated from here (`deploy/crds/questdb.yaml`) and compared by a test.
//!
//! *Invariant:* the spec of a resource that carries an instruction only ever moves forward in (epoch, seq, render). The
//! API server keeps that by the rules in [`fence`], whoever writes.

pub mod fence;
pub mod names;
pub mod render;
mod schema;
mod spec;
mod status;

pub use render::{object, render};
pub use schema::definition;
pub use spec::{
    ComputeSpec, DeletionPolicy, Exposure, InstructionSpec, NetworkSpec, QuestDB, QuestDBSpec, RunState,
    StorageSpec, VolumeType,
};
pub use status::{
    DnsState, DnsStatus, EndpointsStatus, InstructionStatus, NodeStatus, Phase, QuestDBStatus, StepState,
    StepStatus, VolumeStatus,
};
