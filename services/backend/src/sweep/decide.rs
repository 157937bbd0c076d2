//! What the sweep makes of a database. Pure: ages are given, nothing is read and nothing is done.
//!
//! *Invariant:* absence is believed only of an observer that lately listed everything and told of it; until then nothing
//! is sent again. *Invariant:* nothing that a cluster shows is ever an order to destroy. *Invariant:* of a purged database
//! nothing is left only where its resource was seen to go.

use std::cmp::Reverse;
use std::time::Duration;

use domain::{ClusterState, DatabaseId, Position, RunState};
use store::{Divergence, Letters, Listing, Sighting, Subject};

/// When something is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How long a state may be on its way before anybody wonders.
    pub grace: Duration,
    /// How long nothing is done about a database that was sent again.
    pub again: Duration,
    /// For how long it counts that a cluster let itself be listed.
    pub listing: Duration,
    /// How long an instruction may still be found on its topic; `None` while nobody knows.
    pub retention: Option<Duration>,
}

/// A database, judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// How its cluster differs from what was minted, where it does.
    pub diverged: Option<Divergence>,
    /// What to do.
    pub act: Act,
}

/// What to do about a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing, for this reason.
    Leave(Why),
    /// Publish the state again.
    Resend,
    /// Mint the state again, above what the cluster holds and no smaller.
    Repair,
    /// Have the tombstone removed.
    Bury,
    /// The tombstone must stay after all.
    KeepTombstone,
    /// Nothing is left of it: it was seen to go.
    MarkPurged,
    /// Something of it is there again.
    UnmarkPurged,
}

/// A state that its cluster does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lagging {
    /// When it was last sent again.
    pub resent_ago: Option<Duration>,
    /// Whether it says that nothing should be left.
    pub is_purge: bool,
    /// Which.
    pub at: (DatabaseId, Position),
}

/// In which order states are sent again, where not all of them may be: those first that never were, then those for which
/// that is longest ago. Whatever does not heal would else take the turn of the others for ever. Of those that never were, purges come
/// last: a restored cluster may lack thousands of tombstones, for which nobody waits.
pub fn in_turn(mut lagging: Vec<Lagging>) -> Vec<(DatabaseId, Position)> {
    lagging.sort_by_key(|one| {
        let was_sent = one.resent_ago.is_some();
        (was_sent, one.is_purge && !was_sent, Reverse(one.resent_ago))
    });
    lagging.into_iter().map(|one| one.at).collect()
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is as it should be.
    Healthy,
    /// It is an alarm for people: the next change outranks what stands there.
    Report,
    /// It may still be on its way.
    Young,
    /// The relay has it.
    Unpublished,
    /// It waits for its cluster.
    Parked,
    /// It lies among the dead letters: sent again, it would come to lie there again.
    DeadLetter,
    /// It was sent again lately.
    SentAgain,
    /// Its cluster is out of service.
    Disabled,
    /// Nobody knows what its cluster holds.
    Unlisted,
}

/// Judges a database; `listing` is what is known of its cluster's observer.
pub fn judge(subject: &Subject, listing: Option<&Listing>, rules: &Rules) -> Judgement {
    let shown = shown(subject, listing, rules);
    if let Some(seen) = &subject.seen
        && seen.position > subject.minted
    {
        // Wherever that object is now: what it stood for outranks everything that will be minted until this is repaired.
        return Judgement { diverged: Some(Divergence::Ahead), act: Act::Repair };
    }
    if subject.purged {
        let act = if shown.is_some() { Act::UnmarkPurged } else { Act::Leave(Why::Healthy) };
        return Judgement { diverged: None, act };
    }
    let diverged = match shown {
        Some(seen) if seen.position < subject.minted => Divergence::Lagging,
        Some(seen) if is_other(subject, seen) => {
            return Judgement { diverged: Some(Divergence::Content), act: Act::Leave(Why::Report) };
        }
        Some(seen) => return Judgement { diverged: None, act: at_rest(subject, seen, rules) },
        None if has_gone(subject) && may_be_forgotten(subject, rules) => {
            return Judgement { diverged: None, act: Act::MarkPurged };
        }
        // Its tombstone may be gone because it was time: whether it was, is known in a moment.
        None if has_gone(subject) && rules.retention.is_none() => {
            return Judgement { diverged: None, act: Act::Leave(Why::Young) };
        }
        None => Divergence::Missing,
    };
    // It was refused, and would be for ever: a volume cannot shrink. Minted once more it asks for what is there, or is asked for, by now.
    if subject.outgrown && subject.letters == Letters::This {
        return Judgement { diverged: Some(diverged), act: Act::Repair };
    }
    if subject.minted_ago < rules.grace {
        return Judgement { diverged: None, act: Act::Leave(Why::Young) };
    }
    let act = hindrance(subject, listing, rules).map_or(Act::Resend, Act::Leave);
    Judgement { diverged: Some(diverged), act }
}

/// Whether a cluster's observer lately listed all there is, and what it told arrived here.
pub fn is_listed(listing: &Listing, rules: &Rules) -> bool {
    listing.arrived && listing.confirmed_ago.is_some_and(|ago| ago <= rules.listing)
}

/// Whether all that a cluster's observer told under the newest term had time to arrive here: what was not told is not there.
pub fn is_all_told(listing: &Listing, rules: &Rules) -> bool {
    listing.listed_ago.is_some_and(|ago| ago >= rules.grace) && is_listed(listing, rules)
}

/// What the cluster shows, as far as that is known. What was not told again under a term in which everything was told is
/// shown no more: it went while nobody looked, or stands at a position below the one that is believed.
fn shown<'a>(subject: &'a Subject, listing: Option<&Listing>, rules: &Rules) -> Option<&'a Sighting> {
    let seen = subject.seen.as_ref().filter(|seen| seen.present)?;
    let forgotten = listing.is_some_and(|listing| seen.term < listing.term && is_all_told(listing, rules));
    (!forgotten).then_some(seen)
}

/// Whether other content stands at the position that was minted.
fn is_other(subject: &Subject, seen: &Sighting) -> bool {
    seen.position == subject.minted
        && !seen.content_hash.is_empty()
        && seen.content_hash != subject.content_hash
}

/// Whether the database is purged and that was carried out in full.
fn is_over(subject: &Subject) -> bool {
    let carried_out = subject.seen.as_ref().and_then(|seen| seen.carried_out);
    subject.run_state == RunState::Purged && carried_out == Some(subject.minted)
}

/// Whether that is so and its tombstone was seen to go. One that is only not told of under a new term may be what a restored cluster
/// has lost and has again after the next restore: it is purged once more, which makes it anew.
fn has_gone(subject: &Subject) -> bool {
    is_over(subject) && subject.seen.as_ref().is_some_and(|seen| !seen.present)
}

/// Whether no instruction of the database can come any more, from wherever instructions come.
fn may_be_forgotten(subject: &Subject, rules: &Rules) -> bool {
    let passed = |ago| rules.retention.is_some_and(|retention| ago >= retention);
    subject.published_ago.is_some_and(passed) && subject.parked.is_none() && subject.letters == Letters::None
}

fn at_rest(subject: &Subject, seen: &Sighting, rules: &Rules) -> Act {
    if rules.retention.is_none() {
        return Act::Leave(Why::Healthy);
    }
    let over = is_over(subject) && seen.position == subject.minted && may_be_forgotten(subject, rules);
    match (over, subject.burying) {
        (true, false) => Act::Bury,
        (false, true) => Act::KeepTombstone,
        (true, true) | (false, false) => Act::Leave(Why::Healthy),
    }
}

/// Why a state that its cluster does not show is not sent again.
fn hindrance(subject: &Subject, listing: Option<&Listing>, rules: &Rules) -> Option<Why> {
    let Some(published_ago) = subject.published_ago else { return Some(Why::Unpublished) };
    if subject.parked.is_some_and(|parked| parked >= subject.minted) {
        return Some(Why::Parked);
    }
    if subject.letters == Letters::This {
        return Some(Why::DeadLetter);
    }
    if subject.resent_ago.is_some_and(|ago| ago < rules.again) {
        return Some(Why::SentAgain);
    }
    if published_ago < rules.grace {
        return Some(Why::Young);
    }
    let Some(listing) = listing else { return Some(Why::Unlisted) };
    if listing.state == ClusterState::Disabled {
        return Some(Why::Disabled);
    }
    // A list from before the state was published proves nothing.
    let after = listing.confirmed_ago.is_some_and(|ago| ago < published_ago);
    (!after || !is_listed(listing, rules)).then_some(Why::Unlisted)
}

#[cfg(test)]
mod tests;
