//! Values to text, purely: no clock, no terminal, no colour. What goes where is `output`'s business.

pub mod aside;
pub mod clusters;
pub mod connect;
pub mod databases;
pub mod describe;
pub mod diff;
pub mod letter;
pub mod operations;
pub mod text;

#[cfg(test)]
pub(crate) mod fixture;
