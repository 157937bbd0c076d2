//! What is known of all watches, and what follows from it: of which namespaces everything is seen, and whether the process is
//! ready. Pure; time is a parameter.
//!
//! *Invariant:* a namespace counts as seen only when every kind that databases need was listed in it to the end, and every kind
//! of the cluster itself was. *Invariant:* what a watch showed before it was refused, or broke, counts only for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Resource as _;
use plan::Unseen;
use resources::QuestDB;

use super::ear::LIVED;
use super::trouble::{Trouble, Watched, told};

/// For how long what was seen counts although the watch does not work: longer than an API server is away that is restarted, and
/// all that its watches take to be begun again then; longer, too, than the life of one watch (290 s), with which one heals that
/// met an event that it could not read.
pub(crate) const STALE: Duration = Duration::from_mins(6);

/// Kinds of which an old picture costs no more than a write that is refused or changes nothing: what is decided on them destroys
/// nothing. Databases go on without them once they were listed.
const HARMLESS: [&str; 5] =
    ["ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Secret metadata", "Service"];

/// What is told of watches that are begun again until they work: the same whichever they are.
const BROKEN: &str = "the operator cannot watch everything there, and tries again until it works: its /readyz says what and why";

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
    /// When it was begun again, if it was.
    answered: Option<Instant>,
}

impl Ill {
    /// Whether it was begun again and has not broken since, for so long that it works.
    fn has_lived(&self, now: Instant) -> bool {
        self.answered.is_some_and(|answered| now.saturating_duration_since(answered) >= LIVED)
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
    fn new(need: Need, now: Instant) -> Self {
        Self { need, begun: now, listed: false, ill: None }
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

    /// One works.
    pub(super) fn works(&mut self, watched: &Watched, now: Instant) -> Works {
        let Some(row) = self.0.get_mut(watched) else { return Works::Still };
        let late = !row.listed || row.is_late(now);
        match row.ill.take() {
            None => Works::Still,
            Some(_) if late => Works::Anew,
            Some(_) => Works::Again,
        }
    }

    /// One was begun again. It may break at once; one that ends well now and then is begun again without having broken.
    pub(super) fn answered(&mut self, watched: &Watched, now: Instant) {
        let ill = self.0.get_mut(watched).and_then(|row| row.ill.as_mut());
        if let Some(ill) = ill {
            // What ends well is begun again where it ended, and has worked since its first answer.
            ill.answered.get_or_insert(now);
        }
    }

    /// One says nothing: it works if it was begun again long enough ago.
    pub(super) fn silent(&mut self, watched: &Watched, now: Instant) -> Works {
        let Some(row) = self.0.get_mut(watched) else { return Works::Still };
        let Some(ill) = row.ill.take_if(|ill| row.listed && ill.has_lived(now)) else { return Works::Still };
        if now.saturating_duration_since(ill.since) >= STALE { Works::Anew } else { Works::Again }
    }

    /// One broke; whether it is something else than before.
    pub(super) fn broke(&mut self, watched: &Watched, need: Need, news: News, now: Instant) -> bool {
        let row = self.0.entry(watched.clone()).or_insert_with(|| Row::new(need, now));
        let before = row.ill.take();
        let same = before.as_ref().is_some_and(|before| before.label == news.label);
        // One that is begun again and again and breaks at once shows nothing.
        let since = before.filter(|before| !before.has_lived(now)).map_or(now, |before| before.since);
        let News { trouble, label } = news;
        row.ill = Some(Ill { trouble, label, since, answered: None });
        !same
    }

    /// Whether some watch does not work, or has not shown what there is.
    pub(super) fn is_any_ill(&self) -> bool {
        self.0.values().any(|row| row.ill.is_some() || !row.listed)
    }

    /// Watches that the API server refuses.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Watched> {
        self.0.iter().filter(|(_, row)| row.refusal().is_some()).map(|(watched, _)| watched)
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
            let others = self.0.iter().filter(|(other, _)| other.kind == watched.kind && *other != watched);
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
        let mut rows =
            self.0.iter().filter(|(watched, _)| watched.kind == kind && is_at(watched, namespace)).peekable();
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
            Ok(()) if self.needed().next().is_none() => Err("nothing is watched yet".to_owned()),
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
    let (mut hidden, mut late, mut refused) = (false, false, Vec::new());
    for (watched, row) in rows {
        hidden |= !row.is_seen(now);
        // What may come any moment is told only when it does not.
        late |= row.is_late(now);
        // The same whichever of them is late by now.
        refused.extend(row.refusal().map(|trouble| (watched, trouble)));
    }
    if !hidden {
        return None;
    }
    let text = told(&refused, rights);
    Some(match (refused.is_empty(), late) {
        (false, _) => Unseen::Refused(text),
        (true, true) => Unseen::Broken(BROKEN.to_owned()),
        (true, false) => Unseen::Yet,
    })
}

/// What is not seen, with the errors' own words.
fn reasons<'a>(
    rows: impl Iterator<Item = (&'a Watched, &'a Row)>,
    rights: &str,
    now: Instant,
) -> Result<(), String> {
    let hidden: Vec<_> = rows.filter(|(_, row)| !row.is_seen(now)).collect();
    let refused = hidden.iter().filter_map(|(watched, row)| Some((*watched, row.refusal()?)));
    let refused: Vec<_> = refused.collect();
    let others = hidden.iter().filter(|(_, row)| row.refusal().is_none());
    let others = others.map(|(watched, row)| match row.ill.as_ref().map(|ill| &ill.trouble) {
        Some(Trouble::Broken(text)) => format!("watch of {watched}: {text}"),
        Some(Trouble::Denied(_) | Trouble::Missing) => format!("watch of {watched}: begun a moment ago"),
        None => format!("watch of {watched}: not listed yet"),
    });
    let refused = Some(told(&refused, rights)).filter(|text| !text.is_empty());
    let texts: Vec<_> = refused.into_iter().chain(others).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}

#[cfg(test)]
mod tests;
