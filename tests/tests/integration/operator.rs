//! The operator's contracts on a real API server, and the operator itself against the AWS endpoint. The cluster has no
//! controllers: nothing but the test and the operator moves anything.

#![cfg(test)]

mod apart;
mod drift;
mod fence;
mod late;
mod life;
mod policies;
mod rig;
mod states;
mod subject;
