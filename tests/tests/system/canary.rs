//! Looking for values everywhere but in the Secrets where they belong.
//!
//! *Invariant:* whatever fails names the value and the place, and never shows the value.

#![cfg(test)]

mod forms;
mod life;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use testkit::ClusterFacts;

use self::forms::Values;
use crate::main_job::Ready;

/// A search, with what it has come to.
#[derive(Default)]
pub(crate) struct Search {
    /// What nobody may show.
    hidden: Values,
    /// What is published on purpose: a kind of place in which none of it is found was not looked at.
    published: Values,
    shown: BTreeSet<String>,
    alive: BTreeSet<String>,
    /// How much of each log was looked at.
    read: BTreeMap<PathBuf, u64>,
}

impl Search {
    /// Nothing is looked for yet. Of logs, what is there already tells of other tests.
    fn new() -> Self {
        let logs = places::logs().into_iter();
        let read = logs.filter_map(|log| Some((fs::metadata(&log).ok()?.len(), log)));
        Self { read: read.map(|(length, log)| (log, length)).collect(), ..Self::default() }
    }

    /// What this place shows of all that is looked for.
    fn look(&mut self, kind: &str, place: &str, text: &[u8]) {
        for name in self.hidden.found(text) {
            self.shown.insert(format!("{place} shows the value of {name}"));
        }
        if !self.published.found(text).is_empty() {
            self.alive.insert(kind.to_owned());
        }
    }

    /// Whether a text holds a value that is hidden, where it may.
    fn holds(&self, text: &[u8]) -> bool {
        !self.hidden.found(text).is_empty()
    }

    /// Nothing was shown, and in each of these kinds of places something was found that is there for everybody to see.
    fn end(&self, kinds: &[&str]) {
        let dead: Vec<_> = kinds.iter().filter(|kind| !self.alive.contains(**kind)).collect();
        assert!(dead.is_empty(), "what is published was not found in {dead:?}: they were not looked at");
        assert!(self.shown.is_empty(), "{:#?}", self.shown);
    }
}

/// Neither rows, topics, logs, metrics nor objects hold any of these values in any form. Each kind of place is known to have been
/// looked at, because it tells of the database.
pub(crate) async fn shown_to_nobody(home: &ClusterFacts, database: &Ready, values: &[&str]) {
    let mut search = Search::default();
    for (number, value) in values.iter().enumerate() {
        search.hidden.add(&format!("number {number}"), value.as_bytes());
    }
    search.published.add("id", database.id.as_bytes());
    search.published.add("name", database.resource.as_bytes());
    search.rows().await;
    search.topics();
    search.logs();
    search.objects(home).await;
    search.metrics().await;
    search.end(&[
        "row",
        "topic provisioning.instructions",
        "topic provisioning.gossip",
        "log of backend",
        "object",
    ]);
}
