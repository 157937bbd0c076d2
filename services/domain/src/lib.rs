//! The words and rules of Slipway as plain values: identities, desired state, positions, operations, placement.
//!
//! Pure: no async, no I/O, no clock (time is a parameter), nothing serialisable. What crosses a process boundary has a
//! type of its own in `wire` or `resources`.

pub mod catalogue;
pub mod cluster;
pub mod credentials;
pub mod desired;
pub mod disk;
pub mod dry_run;
pub mod id;
pub mod lifecycle;
pub mod operation;
pub mod placement;
pub mod position;
pub mod recovery;
pub mod request;
pub mod violation;

pub use cluster::{Cluster, ClusterState};
pub use desired::{Compute, DeletionPolicy, Desired, Exposure, Network, RunState, Storage, VolumeType};
pub use disk::Disk;
pub use id::{ClusterId, DatabaseId, DatabaseName, InstructionId, OperationId, TenantId};
pub use operation::{Operation, OperationKind, OperationState};
pub use position::Position;
pub use recovery::OnFailure;
pub use violation::{Rule, Violation, Violations, reference_token};
