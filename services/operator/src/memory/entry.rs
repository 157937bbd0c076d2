//! What is remembered of one database, and until when that makes a difference.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::{Holdings, Role};
use plan::{Agreement, Failure, Part};

use super::{AGREED, SAID, SHOWN, UNSHOWN};

/// One database.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) spent: Option<u64>,
    /// Of what, where, and until when.
    pub(super) exhausted: Vec<(Role, String, Instant)>,
    pub(super) wrote: Option<Instant>,
    pub(super) asked: Option<Instant>,
    pub(super) seen: Option<Arc<Holdings>>,
    pub(super) failures: u32,
    /// How often in a row somebody was quicker in writing which object of which part.
    pub(super) overtaken: BTreeMap<(Part, String), u32>,
    pub(super) reported: Option<Instant>,
    /// Identity in a first status that is kept back.
    pub(super) unsaid: Option<String>,
    pub(super) brought: Vec<(String, Instant)>,
    pub(super) held: Vec<Held>,
    /// Since when.
    pub(super) agreed: Option<(Instant, Vec<Agreement>)>,
}

impl Entry {
    /// Whether it makes no difference any more: of ten thousand that have come to rest, nothing is to be kept.
    pub(super) fn is_over(&self) -> bool {
        let Self {
            spent,
            exhausted,
            wrote,
            asked,
            seen,
            failures,
            overtaken,
            reported,
            unsaid,
            brought,
            held,
            agreed,
        } = self;
        let past = |at: &Option<Instant>, after: Duration| at.is_none_or(|at| at.elapsed() >= after);
        let now = Instant::now();
        let for_good =
            spent.is_none() && seen.is_none() && unsaid.is_none() && *failures == 0 && held.is_empty();
        for_good
            && overtaken.is_empty()
            && exhausted.iter().all(|(.., until)| now >= *until)
            && brought.iter().all(|(_, at)| at.elapsed() >= UNSHOWN)
            && past(wrote, SHOWN)
            && past(asked, SHOWN)
            && past(reported, SAID)
            && past(&agreed.as_ref().map(|(since, _)| *since), AGREED)
    }
}

/// A part that nobody needs, which failed and rests while the others go on.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) generation: i64,
    pub(super) until: Instant,
    pub(super) attempts: u32,
    pub(super) failure: Failure,
}
