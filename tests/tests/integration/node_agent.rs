//! The node agent as a process, against an API server without controllers and the AWS endpoint. The test stands in for
//! the controllers: it binds pods and claims, and makes `VolumeAttachment`s.

#![cfg(test)]

mod machines;
mod pods;
mod restore;
mod rig;
