//! What comes of a person's wish about a dead letter, or about a database whose state should be said again. Pure.
//!
//! *Invariant:* a letter is never sent again: what is published is the state that should be, at its own position, or
//! nothing. *Invariant:* of a database of which nothing is left, nothing is published.

use domain::{Position, RunState};
use jiff::Timestamp;
use store::{DeadLetterView, Settled, Settlement, Standing};

/// What a person wants of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// That what it stood for reaches its cluster.
    Redrive,
    /// That nothing comes of it.
    Discard,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How the letter is settled.
    pub(crate) settles: Settlement,
    /// Whether the newest state of its database is published again.
    pub(crate) publishes: bool,
    /// The same in words.
    pub(crate) message: String,
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// It was dealt with before.
    #[error("it is settled: {} at {}{}", .0.how.as_str(), .0.at, by(.0))]
    Settled(Settled),
    /// It is no instruction.
    #[error("it came from a cluster, not for one: observers say everything again by themselves; discard it")]
    NoInstruction,
    /// Its key names no database.
    #[error("its key names no database, so nobody knows whose state it was; discard it")]
    NoDatabase,
    /// Its key and its content name different databases.
    #[error(
        "its key and its content name different databases: publish the state of the one you mean, and discard it"
    )]
    TwoDatabases,
    /// Nobody knows the database.
    #[error("nobody knows the database that it names: nothing was sent; discard it")]
    UnknownDatabase,
    /// Nothing is left of the database.
    #[error("the database is purged{}: nothing is sent that could bring it back", since(.0.as_ref()))]
    Purged(Option<Timestamp>),
    /// It is newer than everything that was minted.
    #[error(
        "it stands at {letter}, but no more than {minted} was minted: rows of the control plane may be lost, and what clusters hold of them is outranked by the sweep"
    )]
    NeverMinted {
        /// Where it stands.
        letter: Position,
        /// The newest state that is known.
        minted: Position,
    },
    /// No relay can publish the state.
    #[error("no relay can publish the state of the database ({0}): change the database instead")]
    Unpublishable(String),
}

impl Refusal {
    /// The stable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Settled(_) => "settled",
            Self::NoInstruction => "no_instruction",
            Self::NoDatabase => "no_database",
            Self::TwoDatabases => "two_databases",
            Self::UnknownDatabase => "unknown_database",
            Self::Purged(_) => "purged",
            Self::NeverMinted { .. } => "never_minted",
            Self::Unpublishable(_) => "unpublishable",
        }
    }
}

/// What comes of a wish about a dead letter; `standing` is how its database stands, and `gossip` the topic whose records are
/// no instructions.
pub(crate) fn plan(
    verb: Verb,
    letter: &DeadLetterView,
    standing: Option<&Standing>,
    gossip: &str,
) -> Result<Plan, Refusal> {
    if let Some(settled) = &letter.settled {
        return Err(Refusal::Settled(settled.clone()));
    }
    match verb {
        Verb::Redrive => redrive(letter, standing, gossip),
        Verb::Discard => Ok(discard(letter, standing)),
    }
}

/// That the state of a database is published again, in words.
pub(crate) fn resend(standing: &Standing) -> Result<String, Refusal> {
    let Standing { minted, run_state, carried_out, purged_at, waits, set_aside, parked, .. } = standing;
    if purged_at.is_some() || (*run_state == RunState::Purged && *carried_out == Some(*minted)) {
        return Err(Refusal::Purged(*purged_at));
    }
    if let Some(why) = set_aside {
        return Err(Refusal::Unpublishable(why.clone()));
    }
    let mut words = format!("the state at {minted} is published again");
    if *waits {
        words = format!("the state at {minted} waits to be published already");
    }
    if parked.is_some_and(|parked| parked >= *minted) {
        words.push_str(", although it is parked: its cluster cannot take it now, and gets it when it can");
    }
    Ok(words)
}

fn redrive(letter: &DeadLetterView, standing: Option<&Standing>, gossip: &str) -> Result<Plan, Refusal> {
    if letter.origin.0 == gossip {
        return Err(Refusal::NoInstruction);
    }
    if letter.database.is_none() {
        return Err(Refusal::NoDatabase);
    }
    if letter.code == "key_mismatch" {
        return Err(Refusal::TwoDatabases);
    }
    let standing = standing.ok_or(Refusal::UnknownDatabase)?;
    let again = resend(standing)?;
    let minted = standing.minted;
    let (settles, message) = match letter.position {
        Some(letter) if letter > minted => return Err(Refusal::NeverMinted { letter, minted }),
        Some(older) if older < minted => {
            (Settlement::Superseded, format!("the letter stands at {older} and is superseded: {again}"))
        }
        Some(_) => (Settlement::Redriven, format!("{again}{}", doubts(&letter.code))),
        None => {
            (Settlement::Redriven, format!("nobody knows how old the letter is, and it is not sent: {again}"))
        }
    };
    Ok(Plan { settles, publishes: true, message })
}

/// What may well happen again to a state that was refused once.
fn doubts(code: &str) -> &'static str {
    match code {
        "invalid" => "; the API server refused it once, and may take it now if the cluster was changed since",
        "conflict" => {
            "; its resource held other content at this very position, and refuses it as long as it does: the next change \
             outranks both"
        }
        _ => "",
    }
}

fn discard(letter: &DeadLetterView, standing: Option<&Standing>) -> Plan {
    let newest = standing.is_some_and(|standing| letter.position == Some(standing.minted));
    let after = if newest {
        "; it stood for the newest state of its database, which the sweep sends again where the cluster does not show it"
    } else {
        ""
    };
    let message = format!("nothing is sent; the letter is kept, and counts no more{after}");
    Plan { settles: Settlement::Discarded, publishes: false, message }
}

fn by(settled: &Settled) -> String {
    let by = settled.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let why = settled.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{by}{why}")
}

fn since(at: Option<&Timestamp>) -> String {
    at.map(|at| format!(" since {at}")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
