//! The provisioner: instructions become custom resources, each in the cluster it is for; what became of them, and what is
//! seen of the resources, is told on the gossip topic.
//!
//! - [`decide`] and [`classify`] are pure: what a record is, and what a refusal means.
//! - [`work`] carries a decision out: one apply, then the outcome, then the offset.
//! - [`apply`] writes to a cluster; [`fleet`] knows the clusters and how they are.
//! - [`drain`] carries out later what a cluster could not take; [`letters`] knows what nobody can take.
//! - [`bury`] removes tombstones that are asked to go, the only other write.
//! - [`observe`] watches each cluster and says what it sees.
//!
//! *Invariant:* an offset is committed only after the effect of its record is durable: in the cluster, among the parked,
//! or among the dead letters. *Invariant:* nothing here waits for a database to become ready. *Invariant:* order is kept
//! by the custom resource's own fence; nothing in this program's memory is needed for it.

pub mod apply;
pub mod args;
pub mod bury;
pub mod classify;
pub mod decide;
pub mod drain;
pub mod fleet;
pub mod gossip;
pub mod health;
pub mod letters;
pub mod metrics;
pub mod observe;
pub mod run;
pub mod work;

pub use args::Args;
pub use run::run;
