//! What EC2 refuses of a copy: a quota is used up, a right is missing, too many are under way.
//!
//! *Invariant:* no database stands still for what EC2 has only just refused. It would until the deadline, and for the next snapshot of a
//! schedule again, and its disk would fill up.

use resources::QuestDBSnapshot;

use super::{Ground, Seen, owes};

/// What EC2 refused, and did not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its words.
    pub why: String,
    /// Whether it is not asked again yet.
    pub rests: bool,
}

/// What is said of one for which EC2 is not asked again yet, of a database that would stand still meanwhile.
pub(super) fn for_now(resource: &QuestDBSnapshot, seen: &Seen) -> Option<String> {
    let would_stand_still = owes(resource) || matches!(seen.ground, Ground::Serving { .. });
    let refused = seen.refused.as_ref().filter(|refused| refused.rests && would_stand_still)?;
    Some(format!(
        "EC2 refuses the copy and is asked again in a while, until when the database goes on: {}",
        refused.why
    ))
}

/// Why there is no copy, where EC2 refused it.
pub(super) fn obstacle(seen: &Seen) -> Option<String> {
    let refused = seen.refused.as_ref()?;
    Some(format!("EC2 refused it: {}", refused.why))
}
