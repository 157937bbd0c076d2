//! The statements of the hot paths by name, so that whoever measures against a bare Postgres gives it the same ones. Each
//! lies in the file of its table, with what its parameters are.

pub use crate::audit::INSERT as AUDIT;
pub use crate::clusters::{CLUSTERS, HOLD_OPEN};
pub use crate::databases::READ as DATABASE;
pub use crate::events::APPEND as APPEND_EVENTS;
pub use crate::idempotency::{CLAIM, CLAIMED, STORE as STORE_ANSWER};
pub use crate::mint::CREATE;
pub use crate::observations::UPSERT;
pub use crate::operations::{MOVE as MOVE_OPERATIONS, READ as OPERATION};
pub use crate::outbox::{MARK, UNPUBLISHED};
