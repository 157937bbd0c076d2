//! The operator's contracts on a real API server, and the operator itself against the AWS endpoint. The cluster has no
//! controllers: nothing but the test and the operator moves anything.

#![cfg(test)]

mod apart;
mod circle;
mod clocks;
mod crash;
mod definitions;
mod denied;
mod diff;
mod disk;
mod drift;
mod edits;
mod everywhere;
mod exact;
mod fence;
mod fields;
mod firewall;
mod frugal;
mod guide;
mod hands;
mod identity;
mod kubectl;
mod labels;
mod last_copy;
mod late;
mod leader;
mod life;
mod moves;
mod names;
mod others;
mod overrides;
mod policies;
mod process;
mod questdb;
mod quiet;
mod reach;
mod refused;
mod reload;
mod restored;
mod rig;
mod rights;
mod schedules;
mod scopes;
mod secrets;
mod snapshots;
mod source;
mod stale;
mod states;
mod subject;
mod truth;
mod unclaimed;
mod unobserved;
mod upgrades;
mod waits;
mod walks;
