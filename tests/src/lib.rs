//! Tests that need more than one process. They live in `tests/integration` (single servers) and `tests/system` (the full
//! stack); `cargo xtask test` starts what they need.
