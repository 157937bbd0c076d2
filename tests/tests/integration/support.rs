//! What every integration test begins with: the stack, and something in it of its own.

pub(crate) use testkit::stack;
