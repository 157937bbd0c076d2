//! The whole stack at work: from an HTTP request to a ready QuestDB, and back to nothing.

mod canary;
mod change;
mod cli;
mod crash;
mod deleted;
mod edits;
mod emptied;
mod further;
mod keys;
mod main_job;
mod operations;
mod restore;
mod secrets;
mod states;
mod support;
mod trace;
mod upgrade;
