//! What the operator decides, as pure functions: a valid wish and what is observed give a list of steps as data.
//!
//! `validate` turns a custom resource into a [`Validated`] that cannot be wrong; [`plan()`] compares it with an
//! [`Observed`] world and says what to do next and why; `report` turns the outcome into a status. Builders of manifests
//! are in `build`. No client, no clock (time is a parameter), no async.
//!
//! *Invariant:* every step can be carried out twice, and a crash between any two leads to the same end: what is planned
//! depends on what is observed alone, never on what was planned before.

pub mod build;
mod goal;
mod matches;
mod observed;
mod part;
mod planner;
mod report;
mod settings;
mod step;
mod subject;
mod validate;

pub use goal::Goal;
pub use observed::{Account, Children, Dns, Memory, Observed};
pub use part::Part;
pub use planner::{
    DnsQuestion, dns_question, machine_to_check, modification_must_be_read, name_to_release, plan,
    pod_is_ready, serving,
};
pub use report::{Applied, Failure, refused, status};
pub use settings::Settings;
pub use step::{Action, Kind, Manifest, Plan, Progress, State, Step, Target};
pub use subject::Subject;
pub use validate::{Validated, hostname, validate};

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod world;
