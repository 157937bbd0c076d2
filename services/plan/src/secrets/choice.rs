//! Of all Secrets of a database, which is taken over, and what stands against the others.

use std::collections::{BTreeMap, BTreeSet};

use resources::names;

use super::view::{Candidate, Known, View};
use super::{Content, Credential, Hidden, NewCredentials, Taken};
use crate::{Observed, Validated};

/// What is to be done about the credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// What could not be taken over, and why.
    pub(crate) problems: Vec<String>,
    /// Ids of keys that are still to be drawn.
    pub(crate) draws: Vec<String>,
    /// What of the rest is taken over.
    pub(crate) taking: Taking,
}

/// What is taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taking {
    /// All of it was.
    #[default]
    Nothing,
    /// Something else is there, and was not read yet.
    Unread,
    /// The same values, from somewhere else.
    Note(NewCredentials),
    /// Other values: QuestDB is restarted for them.
    Renewal(NewCredentials),
}

/// See [`super::to_read`].
pub(super) fn to_read(validated: &Validated, observed: &Observed) -> BTreeSet<String> {
    let Some(own) = &observed.children.secret else { return BTreeSet::new() };
    let view = View::new(validated, &observed.secrets, &own.metadata);
    let mut names = BTreeSet::new();
    for credential in Credential::ALL {
        let candidates = view.candidates(credential);
        if view.is_taken(credential, &candidates) {
            continue;
        }
        names.insert(names::credentials(&validated.subject.name));
        if let [Candidate { name, origin, .. }] = candidates.as_slice()
            && origin != &Known::Absent
        {
            names.insert(name.clone());
        }
        if credential == Credential::Ilp {
            let missing = view.drawn().into_iter().filter(|id| !view.noted.drawn.contains(id));
            names.extend(missing.map(|id| names::drawn_key(&validated.subject.name, &id)));
        }
    }
    names
}

/// Chooses, from what was seen and read.
pub(crate) fn choose(validated: &Validated, observed: &Observed) -> Choice {
    let Some(own) = &observed.children.secret else { return Choice::default() };
    let view = View::new(validated, &observed.secrets, &own.metadata);
    let mut choice = Choice { problems: view.unclear(), ..Choice::default() };
    let open = |credential: &Credential| !view.is_taken(*credential, &view.candidates(*credential));
    let open: Vec<Credential> = Credential::ALL.into_iter().filter(open).collect();
    if open.is_empty() {
        return choice;
    }
    let own_name = names::credentials(&validated.subject.name);
    let Some(Some(own)) = observed.secrets.read.get(&own_name) else {
        choice.taking = Taking::Unread;
        return choice;
    };
    let mut new = New { taken: view.noted.clone(), values: BTreeMap::new() };
    for credential in open {
        match view.take(credential, own, &mut new) {
            Ok(missing) => choice.draws.extend(missing),
            Err(problem) => choice.problems.push(problem),
        }
    }
    if let Err(problem) = new.check_readers(own) {
        choice.problems.push(problem);
        new.withdraw(&view.noted, Credential::PsqlReadonly);
    }
    choice.taking = new.against(&view, own);
    choice
}

/// What the own Secret becomes.
pub(super) struct New {
    pub(super) taken: Taken,
    pub(super) values: BTreeMap<&'static str, Option<Hidden>>,
}

impl New {
    /// The two users of the Postgres wire protocol are two.
    fn check_readers(&self, own: &Content) -> Result<(), String> {
        let value = |key: &str| match self.values.get(key) {
            Some(value) => value.as_ref(),
            None => own.data.get(key),
        };
        let reader = value(names::secret::PG_READONLY_USER);
        if reader.is_none() || reader != value(names::secret::PG_USER) {
            return Ok(());
        }
        let name = self.taken.from.get(&Credential::PsqlReadonly).map_or("", |origin| origin.name.as_str());
        Err(format!("Secret {name}: the user who may only read has the name of the one who may write"))
    }

    /// Takes nothing over for a credential.
    fn withdraw(&mut self, noted: &Taken, credential: Credential) {
        for key in credential.keys() {
            self.values.remove(key);
        }
        match noted.from.get(&credential) {
            Some(origin) => drop(self.taken.from.insert(credential, origin.clone())),
            None => drop(self.taken.from.remove(&credential)),
        }
    }

    /// What there is to do, given what the own Secret holds.
    fn against(mut self, view: &View<'_>, own: &Content) -> Taking {
        self.values.retain(|key, value| own.data.get(*key) != value.as_ref());
        let new = NewCredentials::of(&view.validated.subject, own.origin.clone(), &self.taken);
        if !self.values.is_empty() {
            return Taking::Renewal(NewCredentials { values: self.values, ..new });
        }
        if self.taken == view.noted || (!view.says && self.taken.is_empty()) {
            return Taking::Nothing;
        }
        Taking::Note(new)
    }
}
