//! Faults on real servers and programs: killed, halted, cut off, fed with nonsense. Whatever dies, what was accepted ends
//! in the right resource, in order, and nothing deleted comes back.
//!
//! Each test asserts that its fault fired, runs the oracles of the test kit afterwards, and tells the recovery time. The
//! tests run one at a time, because they harm servers that all of them use.

mod broker;
mod clusters;
mod members;
mod oracles;
mod postgres;
mod processes;
mod records;
mod rig;
mod storm;
