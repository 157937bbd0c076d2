//! A small model of the world for tests: Kubernetes with its controllers, EC2 and Route 53, as far as the planner meets
//! them. Steps change it, `tick` lets the others do their part. Not compiled otherwise.
//!
//! It checks what must never happen as it goes: a machine asked for before its generation was written, a disk destroyed
//! while something holds it, a machine ended while it is protected.

mod tests;
