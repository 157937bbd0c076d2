//! What is known of all watches, and what follows from it: of which namespaces everything is seen, and whether the process is
//! ready. Pure; time is a parameter.
//!
//! *Invariant:* a namespace counts as seen only when every kind that databases need was listed in it to the end, and every kind
//! of the cluster itself was. *Invariant:* what a watch showed before it was refused, or broke, counts only for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plan::Unseen;

use super::trouble::{Trouble, Watched, told};

/// For how long what was seen counts although the watch does not work: longer than the silence after which one that was begun
/// again counts as working.
pub(crate) const STALE: Duration = Duration::from_mins(2);

/// Who needs what a watch shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Every database.
    Databases,
    /// Snapshots and their schedules.
    Snapshots,
    /// Whoever asks for the kind.
    Wish,
}

/// All watches.
#[derive(Debug, Default)]
pub(super) struct Table(BTreeMap<Watched, Row>);

/// One watch.
#[derive(Debug)]
struct Row {
    need: Need,
    begun: Instant,
    /// Whether all that it watches was shown once.
    listed: bool,
    ill: Option<Ill>,
}

/// A watch that does not work.
#[derive(Debug)]
struct Ill {
    trouble: Trouble,
    /// The kind of its error.
    label: &'static str,
    /// Since when nothing is shown any more.
    since: Instant,
    /// Whether it says nothing when it works again.
    quiet: bool,
}

/// That a watch broke.
pub(super) struct News {
    pub(super) trouble: Trouble,
    pub(super) label: &'static str,
    pub(super) quiet: bool,
    /// Whether it showed everything until now.
    pub(super) had_begun: bool,
}

/// What is ready and what is not, for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// What the operator cannot do without.
    pub(super) required: Result<(), String>,
    /// Each namespace that is looked after by name.
    pub(super) namespaces: BTreeMap<String, Result<(), String>>,
    /// What snapshots and their schedules need.
    pub(super) snapshots: Result<(), String>,
}

impl Row {
    fn new(need: Need, now: Instant) -> Self {
        Self { need, begun: now, listed: false, ill: None }
    }

    fn trouble(&self) -> Option<&Trouble> {
        self.ill.as_ref().map(|ill| &ill.trouble)
    }

    /// Whether what it shows is what there is, as far as it can be told.
    fn is_seen(&self, now: Instant) -> bool {
        self.listed && !self.is_late(now)
    }

    /// Whether it has shown nothing for long.
    fn is_late(&self, now: Instant) -> bool {
        let since = match &self.ill {
            Some(ill) => ill.since,
            None if self.listed => return false,
            None => self.begun,
        };
        now.saturating_duration_since(since) >= STALE
    }

    fn is_refused(&self) -> bool {
        self.trouble().is_some_and(Trouble::is_refusal)
    }
}

impl Table {
    /// A watch is begun.
    pub(super) fn begun(&mut self, watched: &Watched, need: Need, now: Instant) {
        self.0.insert(watched.clone(), Row::new(need, now));
    }

    /// A kind is not watched any more; whether it was.
    pub(super) fn ended(&mut self, kind: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|watched, _| watched.kind != kind);
        self.0.len() != before
    }

    /// A watch is not begun again; whether it was known.
    pub(super) fn forget(&mut self, watched: &Watched) -> bool {
        self.0.remove(watched).is_some()
    }

    /// All that it watches was shown; whether that is the first time.
    pub(super) fn listed(&mut self, watched: &Watched) -> bool {
        self.0.get_mut(watched).is_some_and(|row| !std::mem::replace(&mut row.listed, true))
    }

    /// One works; whether it did not before.
    pub(super) fn works(&mut self, watched: &Watched) -> bool {
        self.0.get_mut(watched).is_some_and(|row| row.ill.take().is_some())
    }

    /// A list is begun: it says so when it is shown to the end.
    pub(super) fn lists(&mut self, watched: &Watched) {
        if let Some(ill) = self.0.get_mut(watched).and_then(|row| row.ill.as_mut()) {
            ill.quiet = false;
        }
    }

    /// One has been silent for so long that it must have been begun with success: a list would have said so.
    pub(super) fn heals(&mut self, watched: &Watched) -> bool {
        let quiet = self.0.get(watched).and_then(|row| row.ill.as_ref()).is_some_and(|ill| ill.quiet);
        quiet && self.works(watched)
    }

    /// One broke; whether it is something else than before.
    pub(super) fn broke(&mut self, watched: &Watched, need: Need, news: News, now: Instant) -> bool {
        let row = self.0.entry(watched.clone()).or_insert_with(|| Row::new(need, now));
        let before = row.ill.take();
        let same = before.as_ref().is_some_and(|before| before.label == news.label);
        let since = before.filter(|_| !news.had_begun).map_or(now, |before| before.since);
        let News { trouble, label, quiet, .. } = news;
        row.ill = Some(Ill { trouble, label, since, quiet });
        !same
    }

    /// Watches that the API server refuses.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Watched> {
        self.0.iter().filter(|(_, row)| row.is_refused()).map(|(watched, _)| watched)
    }

    /// Whether every kind of the cluster itself was listed.
    pub(super) fn is_cluster_listed(&self) -> bool {
        self.needed().all(|(watched, row)| watched.place.is_some() || row.listed)
    }

    /// Why databases of a namespace are not decided on; nothing when they are.
    pub(super) fn unseen(&self, namespace: &str, rights: &str, now: Instant) -> Option<Unseen> {
        let rows = self.needed().filter(|(watched, _)| is_at(watched, namespace));
        unseen(rows, rights, now)
    }

    /// Why it is not known what there is of a kind in a namespace. Of one that nobody watches nothing is known.
    pub(super) fn unseen_of(
        &self,
        kind: &str,
        namespace: &str,
        rights: &str,
        now: Instant,
    ) -> Option<Unseen> {
        let rows = || self.0.iter().filter(|(watched, _)| watched.kind == kind && is_at(watched, namespace));
        if rows().next().is_none() {
            return Some(Unseen::Yet);
        }
        unseen(rows(), rights, now)
    }

    /// How ready it is to look after these namespaces; none of them is all that there are.
    pub(super) fn ready(&self, places: &[Option<String>], rights: &str, now: Instant) -> Ready {
        let bad = |place: Option<&str>| {
            let rows = self.needed().filter(move |(watched, _)| watched.place.as_deref() == place);
            reasons(rows, rights, now)
        };
        let namespaces: BTreeMap<_, _> =
            places.iter().flatten().map(|name| (name.clone(), bad(Some(name)))).collect();
        let none = !namespaces.is_empty() && namespaces.values().all(Result::is_err);
        let required = match bad(None) {
            Ok(()) if none => {
                let texts: Vec<_> = namespaces.values().filter_map(|bad| bad.clone().err()).collect();
                Err(format!("no namespace can be looked after: {}", texts.join("; ")))
            }
            cluster => cluster,
        };
        let of_snapshots = self.0.iter().filter(|(_, row)| row.need == Need::Snapshots);
        Ready { required, namespaces, snapshots: reasons(of_snapshots, rights, now) }
    }

    fn needed(&self) -> impl Iterator<Item = (&Watched, &Row)> {
        self.0.iter().filter(|(_, row)| row.need == Need::Databases)
    }
}

fn is_at(watched: &Watched, namespace: &str) -> bool {
    watched.place.as_deref().is_none_or(|place| place == namespace)
}

fn unseen<'a>(
    rows: impl Iterator<Item = (&'a Watched, &'a Row)>,
    rights: &str,
    now: Instant,
) -> Option<Unseen> {
    let hidden: Vec<_> = rows.filter(|(_, row)| !row.is_seen(now)).collect();
    if hidden.is_empty() {
        return None;
    }
    // What may come any moment is told only when it does not.
    let bad = hidden.iter().filter(|(_, row)| row.is_refused() || row.is_late(now));
    let bad: Vec<_> = bad.map(|(watched, row)| (*watched, row.trouble())).collect();
    if bad.is_empty() {
        return Some(Unseen::Yet);
    }
    let refused = bad.iter().any(|(_, trouble)| trouble.is_some_and(Trouble::is_refusal));
    let text = told(&bad, rights);
    Some(if refused { Unseen::Refused(text) } else { Unseen::Broken(text) })
}

/// What is not seen, with the errors' own words.
fn reasons<'a>(
    rows: impl Iterator<Item = (&'a Watched, &'a Row)>,
    rights: &str,
    now: Instant,
) -> Result<(), String> {
    let hidden: Vec<_> = rows.filter(|(_, row)| !row.is_seen(now)).collect();
    let refused = hidden.iter().filter(|(_, row)| row.is_refused());
    let refused: Vec<_> = refused.map(|(watched, row)| (*watched, row.trouble())).collect();
    let others = hidden.iter().filter_map(|(watched, row)| match row.trouble() {
        None => Some(format!("watch of {watched}: not listed yet")),
        Some(Trouble::Broken(text)) => Some(format!("watch of {watched}: {text}")),
        Some(Trouble::Denied(_) | Trouble::Missing) => None,
    });
    let refused = Some(told(&refused, rights)).filter(|text| !text.is_empty());
    let texts: Vec<_> = refused.into_iter().chain(others).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}

#[cfg(test)]
mod tests;
