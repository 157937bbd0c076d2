//! What is known of all watches, and what follows from it: of which namespaces everything is seen, and whether the process is
//! ready. Pure; time is a parameter.
//!
//! *Invariant:* a namespace counts as seen only when every kind that databases need was listed in it to the end, and every kind
//! of the cluster itself was. *Invariant:* what a watch showed before it was refused, or broke, counts only for a while.

mod words;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use kube::Resource as _;
use plan::Unseen;
use resources::QuestDB;

use super::ear::LIVED;
use super::trouble::{Trouble, Watched};
use words::{reasons, unseen};

/// For how long what was seen counts although the watch does not work: longer than an API server is away that is restarted, and
/// all that its watches take to be begun again then.
pub(crate) const STALE: Duration = Duration::from_mins(6);

/// Kinds of which an old picture costs no more than a write that is refused or changes nothing: what is decided on them destroys
/// nothing. Databases go on without them once they were listed.
const HARMLESS: [&str; 5] =
    ["ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Secret metadata", "Service"];

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
pub(super) struct Table {
    /// Those of all objects of a kind: what is decided, and told of readiness, is by them.
    kinds: BTreeMap<Watched, Row>,
    /// Those of one object each, of which there may be one for every database. Nothing goes through all of them.
    objects: BTreeMap<Watched, Row>,
    /// How many of the latter are refused, by kind and place.
    refused: BTreeMap<(String, Option<String>), usize>,
    /// Whether there is another kind or place in that, or one less, than was told.
    is_news: bool,
    lives: u64,
}

/// One beginning of a watch: who ends it ends no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life(u64);

/// One watch.
#[derive(Debug)]
struct Row {
    life: Life,
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
    /// When it was begun again, if it was.
    answered: Option<Instant>,
}

impl Ill {
    /// Whether it was begun again and has not broken since, for so long that it works.
    fn has_lived(&self, now: Instant) -> bool {
        self.answered.is_some_and(|answered| now.saturating_duration_since(answered) >= LIVED)
    }

    /// What it is that it works now; `listed` is whether all was shown before.
    fn over(&self, listed: bool, now: Instant) -> Works {
        // From there on what it shows counts, whether or not anybody has noticed.
        let counts = self.answered.map_or(now, |answered| now.min(answered + LIVED));
        let hidden = counts.saturating_duration_since(self.since) >= STALE;
        if hidden || !listed { Works::Anew } else { Works::Again }
    }
}

/// That a watch works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Works {
    /// As before.
    Still,
    /// It broke a moment ago.
    Again,
    /// What it shows did not count any more, or not yet.
    Anew,
}

/// That a watch broke.
pub(super) struct News {
    pub(super) trouble: Trouble,
    pub(super) label: &'static str,
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
    fn new(life: Life, need: Need, now: Instant) -> Self {
        Self { life, need, begun: now, listed: false, ill: None }
    }

    /// Whether what it shows is what there is, as far as it can be told.
    fn is_seen(&self, now: Instant) -> bool {
        self.listed && !self.is_late(now)
    }

    /// Whether it has shown nothing for long.
    fn is_late(&self, now: Instant) -> bool {
        let since = match &self.ill {
            Some(ill) if self.listed && ill.has_lived(now) => return false,
            Some(ill) => ill.since,
            None if self.listed => return false,
            None => self.begun,
        };
        now.saturating_duration_since(since) >= STALE
    }

    /// Why the API server refuses it.
    fn refusal(&self) -> Option<&Trouble> {
        let ill = self.ill.as_ref().filter(|ill| ill.answered.is_none() && ill.trouble.is_refusal())?;
        Some(&ill.trouble)
    }
}

impl Table {
    /// A watch is begun.
    pub(super) fn begun(&mut self, watched: &Watched, need: Need, now: Instant) -> Life {
        self.lives += 1;
        let life = Life(self.lives);
        self.change(watched, |rows| rows.insert(watched.clone(), Row::new(life, need, now)));
        life
    }

    /// A kind is not watched any more; whether it was.
    pub(super) fn ended(&mut self, kind: &str) -> bool {
        let before = self.kinds.len();
        self.kinds.retain(|watched, _| watched.kind != kind);
        self.kinds.len() != before
    }

    /// A watch is not begun again, unless it was begun anew since.
    pub(super) fn forget(&mut self, watched: &Watched, life: Life) {
        self.change(watched, |rows| {
            if rows.get(watched).is_some_and(|row| row.life == life) {
                rows.remove(watched);
            }
        });
    }

    /// All that it watches was shown; whether that is the first time.
    pub(super) fn listed(&mut self, watched: &Watched) -> bool {
        self.row(watched, |row| !std::mem::replace(&mut row.listed, true)).unwrap_or_default()
    }

    /// One works.
    pub(super) fn works(&mut self, watched: &Watched, now: Instant) -> Works {
        let works = |row: &mut Row| row.ill.take().map_or(Works::Still, |ill| ill.over(row.listed, now));
        self.row(watched, works).unwrap_or(Works::Still)
    }

    /// One was begun again. It may break at once; one that ends well now and then is begun again without having broken, and works
    /// once it has lived for long enough: it may never be silent for so long.
    pub(super) fn answered(&mut self, watched: &Watched, now: Instant) -> Works {
        self.row(watched, |row| {
            if let Some(ill) = &mut row.ill {
                // What ends well is begun again where it ended, and has worked since its first answer.
                ill.answered.get_or_insert(now);
            }
        });
        self.silent(watched, now)
    }

    /// One says nothing: it works if it was begun again long enough ago.
    pub(super) fn silent(&mut self, watched: &Watched, now: Instant) -> Works {
        let silent = |row: &mut Row| {
            let ill = row.ill.take_if(|ill| row.listed && ill.has_lived(now));
            ill.map_or(Works::Still, |ill| ill.over(row.listed, now))
        };
        self.row(watched, silent).unwrap_or(Works::Still)
    }

    /// One broke; whether it is something else than before.
    pub(super) fn broke(&mut self, watched: &Watched, need: Need, news: News, now: Instant) -> bool {
        if !watched.is_one() && !self.kinds.contains_key(watched) {
            self.begun(watched, need, now);
        }
        let broke = |row: &mut Row| {
            let before = row.ill.take();
            let same = before.as_ref().is_some_and(|before| before.label == news.label);
            // One that is begun again and again and breaks at once shows nothing.
            let since = before.filter(|before| !before.has_lived(now)).map_or(now, |before| before.since);
            let News { trouble, label } = news;
            row.ill = Some(Ill { trouble, label, since, answered: None });
            !same
        };
        self.row(watched, broke).unwrap_or_default()
    }

    fn row<R>(&mut self, watched: &Watched, change: impl FnOnce(&mut Row) -> R) -> Option<R> {
        self.change(watched, |rows| rows.get_mut(watched).map(change))
    }

    /// Changes one row, and counts whether it is refused.
    fn change<R>(&mut self, watched: &Watched, change: impl FnOnce(&mut BTreeMap<Watched, Row>) -> R) -> R {
        if !watched.is_one() {
            return change(&mut self.kinds);
        }
        let rows = &mut self.objects;
        let is_refused =
            |rows: &BTreeMap<Watched, Row>| rows.get(watched).is_some_and(|row| row.refusal().is_some());
        let before = is_refused(rows);
        let changed = change(rows);
        let after = is_refused(rows);
        let place = || (watched.kind.clone(), watched.place.clone());
        if after && !before {
            let count = self.refused.entry(place()).or_default();
            self.is_news |= *count == 0;
            *count += 1;
        } else if before
            && !after
            && let Entry::Occupied(mut count) = self.refused.entry(place())
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                self.is_news = true;
            }
        }
        changed
    }

    /// Whether there is something to tell of watches of one object that was not told.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// Whether some watch of a kind does not work, or has not shown what there is.
    pub(super) fn is_any_ill(&self) -> bool {
        self.kinds.values().any(|row| row.ill.is_some() || !row.listed)
    }

    /// The kinds and places of watches that the API server refuses.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let kinds = self.kinds.iter().filter(|(_, row)| row.refusal().is_some());
        let kinds = kinds.map(|(watched, _)| (watched.kind.as_str(), watched.place.as_deref()));
        kinds.chain(self.refused.keys().map(|(kind, place)| (kind.as_str(), place.as_deref())))
    }

    /// Whether every kind of the cluster itself was listed.
    pub(super) fn is_cluster_listed(&self) -> bool {
        let mut rows = self.needed().peekable();
        rows.peek().is_some() && rows.all(|(watched, row)| watched.place.is_some() || row.listed)
    }

    /// Why databases of a namespace are not decided on; nothing when they are.
    pub(super) fn unseen(&self, namespace: &str, rights: &str, now: Instant) -> Option<Unseen> {
        unseen(self.decides(namespace), rights, now)
    }

    /// Why not everything of a namespace is seen as it is now. For who leaves, what is not seen would stay behind; and what is
    /// written may never show.
    pub(super) fn unseen_whole(&self, namespace: &str, rights: &str, now: Instant) -> Option<Unseen> {
        let rows = self.needed().filter(|(watched, _)| is_at(watched, namespace));
        unseen(rows, rights, now)
    }

    /// What resources of a namespace are to say of that. Of what is broken everywhere each would say the same: that is for
    /// readiness and metrics. While the resource itself is not seen, nothing can be written to it.
    pub(super) fn told(&self, namespace: &str, why: Unseen, now: Instant) -> Option<Unseen> {
        let at = || self.needed().filter(|(watched, _)| is_at(watched, namespace));
        let hidden = || at().filter(|(_, row)| !row.is_seen(now));
        let own = QuestDB::kind(&());
        let alone = |watched: &Watched| {
            let others =
                self.kinds.iter().filter(|(other, _)| other.kind == watched.kind && *other != watched);
            watched.place.is_some() && { others }.any(|(_, row)| row.is_seen(now))
        };
        let is_told = match why {
            Unseen::Yet => false,
            Unseen::Broken(_) => hidden().any(|(watched, row)| row.is_late(now) && alone(watched)),
            Unseen::Refused(_) => true,
        };
        (is_told && hidden().all(|(watched, _)| watched.kind != own)).then_some(why)
    }

    /// What decisions for databases of a namespace wait for: what they need and nobody listed, or what is too old and harmful.
    fn decides(&self, namespace: &str) -> impl Iterator<Item = (&Watched, &Row)> {
        let counts = |watched: &Watched, row: &Row| !row.listed || !HARMLESS.contains(&watched.kind.as_str());
        self.needed().filter(move |(watched, row)| is_at(watched, namespace) && counts(watched, row))
    }

    /// Whether a kind was listed in a namespace by this process, however long ago.
    pub(super) fn was_listed(&self, kind: &str, namespace: &str) -> bool {
        let mut rows = self
            .kinds
            .iter()
            .filter(|(watched, _)| watched.kind == kind && is_at(watched, namespace))
            .peekable();
        rows.peek().is_some() && rows.all(|(_, row)| row.listed)
    }

    /// Why it is not known what there is of a kind in a namespace. Of one that nobody watches nothing is known.
    pub(super) fn unseen_of(
        &self,
        kind: &str,
        namespace: &str,
        rights: &str,
        now: Instant,
    ) -> Option<Unseen> {
        let rows =
            || self.kinds.iter().filter(|(watched, _)| watched.kind == kind && is_at(watched, namespace));
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
            Ok(()) if self.needed().next().is_none() => Err("nothing is watched yet".to_owned()),
            Ok(()) if none => {
                let texts: Vec<_> = namespaces.values().filter_map(|bad| bad.clone().err()).collect();
                Err(format!("no namespace can be looked after: {}", texts.join("; ")))
            }
            cluster => cluster,
        };
        let of_snapshots = self.kinds.iter().filter(|(_, row)| row.need == Need::Snapshots);
        Ready { required, namespaces, snapshots: reasons(of_snapshots, rights, now) }
    }

    fn needed(&self) -> impl Iterator<Item = (&Watched, &Row)> {
        self.kinds.iter().filter(|(_, row)| row.need == Need::Databases)
    }
}

fn is_at(watched: &Watched, namespace: &str) -> bool {
    watched.place.as_deref().is_none_or(|place| place == namespace)
}

#[cfg(test)]
mod tests;
