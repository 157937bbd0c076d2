//! The nouns: what each command asks of the API and shows of the answer. One file per noun.

pub mod clusters;
pub mod completions;
pub mod contexts;
pub mod databases;
pub mod operations;
pub mod version;
