//! EC2 and Route 53 behind the port `cloud`: the one crate that links the AWS SDK.
//!
//! It translates, and holds to a rate, a deadline and few retries. It never decides what should exist, never waits for
//! a state to be reached, never caches an answer, and never logs user data or credentials.
//!
//! The SDK retries what failed on the way (three attempts by default). For calls that create (`RunInstances`,
//! `CreateVolume`) that is safe only because the port demands a client token of us; for the others because repeating
//! them is harmless or refused (a second `AttachVolume` answers `VolumeInUse`, a second `CreateSecurityGroup`
//! `InvalidGroup.Duplicate`: so these answers can also mean "done by the attempt whose answer was lost"). `CreateSnapshot`,
//! which has neither token nor refusal, is sent once.
//!
//! The process needs a rustls crypto provider: the SDK brings its own (aws-lc-rs) and does not depend on the
//! process-wide default, but other crates do, so a `main` installs that one first thing.

mod classify;
mod client;
mod convert;
mod dns;
mod failure;
mod groups;
mod instances;
mod port;
mod request;
mod settings;
mod snapshots;
#[cfg(test)]
mod tests;
mod volumes;

pub use client::Aws;
pub use settings::{Credentials, Settings, Timeouts};
