//! Statements of which more is to be known than what they answer, by name: those of the hot paths, so that whoever measures against
//! a bare Postgres gives it the same ones, and those that must not walk over what gathers for years, so that it can be looked at how
//! Postgres carries them out. Each lies in the file of its table, with what its parameters are.

pub use crate::aside::LETTERS;
pub use crate::audit::INSERT as AUDIT;
pub use crate::clusters::{CLUSTERS, HOLD_OPEN};
pub use crate::databases::READ as DATABASE;
pub use crate::endings::DUE;
pub use crate::events::APPEND as APPEND_EVENTS;
pub use crate::idempotency::{CLAIM, CLAIMED, STORE as STORE_ANSWER};
pub use crate::mint::CREATE;
pub use crate::observations::UPSERT;
pub use crate::observers::RAISE as RAISE_TERMS;
pub use crate::operations::{LIST as OPERATIONS, MOVE as MOVE_OPERATIONS, READ as OPERATION};
pub use crate::outbox::{MARK, UNPUBLISHED};
pub use crate::sweep::{LISTINGS, SUBJECTS as SWEEP_SUBJECTS};
