//! The bodies of the HTTP API. Field names are the contract; unknown fields are refused on the way in.

pub mod aside;
pub mod cluster;
pub mod database;
pub mod operation;
pub mod problem;
pub mod unreadable;

pub use aside::{
    DeadLetterList, Intervention, ParkedList, Resent, SettledLetter, UnclaimedList, WholeLetter,
};
pub use cluster::{Cluster, ClusterList, RegisterCluster, UpdateCluster};
pub use database::{Accepted, CreateDatabase, Database, DatabaseList, PurgeDatabase, UpdateDatabase};
pub use operation::{Operation, OperationEvent, OperationList};
pub use problem::{FieldProblem, Problem};
pub use unreadable::{Unreadable, UnreadableCluster};
