//! The node agent of the sandbox: stands in for kubelet, CSI attacher, cloud controller and the machines themselves, for
//! one cluster. Each running EC2 instance becomes a Node, each `VolumeAttachment` an attachment of EC2, each pod with a
//! QuestDB a real process that sees its disk, files and variables as in a container.
//!
//! *Invariant:* a process runs only while its machine does, and only on disks that EC2 says are attached to it.
//! *Invariant:* nothing outside the data directory and the stack's network namespaces is changed on this computer.
//! *Invariant:* processes outlive the agent; they end with their pod, their machine or `cleanup`.

pub mod agent;
pub mod api;
pub mod attach;
pub mod context;
pub mod control;
pub mod disks;
#[cfg(test)]
mod fixture;
pub mod fleet;
pub mod growth;
pub mod keeper;
pub mod leftovers;
pub mod machine;
pub mod machine_type;
pub mod manifest;
pub mod metrics;
pub mod network;
pub mod node;
pub mod pod;
pub mod process;
pub mod questdb;
pub mod settings;
pub mod user_data;
