//! Faults on real servers and programs: killed, halted, cut off, fed with nonsense. Whatever dies, what was accepted ends
//! in the right resource, in order, and nothing deleted comes back.
//!
//! Each test asserts that its fault fired, runs the oracles of the test kit afterwards (where rows were lost, those that do not
//! need what was lost), tells the recovery time and holds it to its bound. The tests run one at a time, because they harm servers
//! that all of them use.

mod broker;
mod brokers;
mod clocks;
mod clusters;
mod coordinator;
mod failover;
mod former;
mod haste;
mod lost_rows;
mod members;
mod oracles;
mod postgres;
mod precise;
mod processes;
mod programs;
mod records;
mod recoveries;
mod rig;
mod sinks;
mod storm;
