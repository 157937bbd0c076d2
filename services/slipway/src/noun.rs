//! The nouns: what each command asks of the API and shows of the answer. One file per noun.

pub mod clusters;
pub mod completions;
pub mod contexts;
pub mod databases;
pub mod dead_letters;
pub mod find;
pub mod operations;
pub mod parked;
pub mod unclaimed;
pub mod version;
