//! Of all Secrets of a database, which is taken over, and what stands against the others.

use std::collections::{BTreeMap, BTreeSet};

use resources::names;

use super::view::{Candidate, Known, View};
use super::written::Verdict;
use super::{Cause, Content, Credential, Hidden, NewCredentials, Origin, Refused, Revision, Taken, started};
use crate::few::few;
use crate::{Observed, Part, Target, Validated};

/// What is said behind what could not be taken over.
const STAYS: &str = ". What cannot be taken over leaves the last good in force";

/// What is to be done about the credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// What could not be taken over, and why: the last good stays in force.
    pub(crate) problems: Vec<String>,
    /// Secrets that are not there, and of which nothing stays in force.
    pub(crate) withdrawn: Vec<String>,
    /// That a way is asked for which leads to a port that stays shut.
    pub(crate) shut: Option<String>,
    /// Ids of keys that are still to be drawn, and of which the own Secret says so.
    pub(crate) draws: Vec<String>,
    /// Ids of keys that nobody asks for any more, and that may have been drawn without that having been noted.
    pub(crate) abandoned: Vec<String>,
    /// Secrets in which keys were handed out that nobody asks for any more.
    pub(crate) revoked: Vec<Target>,
    /// What of the rest is taken over.
    pub(crate) taking: Taking,
}

impl Choice {
    /// Nothing is done, and what can be said against Secrets without reading them is said.
    fn of(view: &View<'_>) -> Self {
        Self { problems: view.unclear(), withdrawn: view.withdrawn(), shut: view.shut(), ..Self::default() }
    }

    /// What stands against what is given, and what is in force all the same.
    pub(crate) fn refused(&self) -> Option<String> {
        let all: Vec<&str> = self.problems.iter().chain(&self.withdrawn).map(String::as_str).collect();
        let stays = if self.problems.is_empty() { "" } else { STAYS };
        (!all.is_empty()).then(|| few(&all, "; ") + stays)
    }

    /// All that people have to put right.
    pub(crate) fn told(&self) -> Option<String> {
        match (&self.shut, self.refused()) {
            (Some(shut), Some(refused)) => Some(format!("{shut}; {refused}")),
            (shut, refused) => refused.or_else(|| shut.clone()),
        }
    }

    /// Whether keys are about to be drawn: not once it was refused to hand them out, so that what ends another, and a pod, waits for
    /// none that may never come, also when it is time to ask again.
    pub(crate) fn awaits_keys(&self, observed: &Observed) -> bool {
        !self.draws.is_empty() && !observed.memory.refused.contains(&Part::Keys)
    }

    /// Whether keys of the line protocol over TCP may be on their way into the own Secret.
    pub(crate) fn brings_keys(&self) -> bool {
        match &self.taking {
            Taking::Nothing | Taking::Note(_) => false,
            Taking::Unread | Taking::PutRight(_) | Taking::Keep(_) => true,
            Taking::Renewal(new) => matches!(new.values.get(names::secret::ILP_KEYS), Some(Some(_))),
        }
    }

    /// What somebody changed in the own Secret and is about to stand there again.
    pub(crate) const fn put_right(&self) -> Option<&NewCredentials> {
        match &self.taking {
            Taking::PutRight(new) => Some(new),
            Taking::Nothing | Taking::Unread | Taking::Keep(_) | Taking::Note(_) | Taking::Renewal(_) => None,
        }
    }
}

/// What is taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taking {
    /// All of it was.
    #[default]
    Nothing,
    /// Something else is there, and was not read yet, or is still to be drawn.
    Unread,
    /// What somebody changed in the own Secret, as it was, before anything else is decided by what stands there.
    PutRight(NewCredentials),
    /// Which keys were drawn and which are about to be, before anything else: what was handed out must not be drawn again, and of
    /// what nobody knows of nothing could be revoked.
    Keep(NewCredentials),
    /// The same values, from somewhere else, or with a copy of them beside them.
    Note(NewCredentials),
    /// Other values: QuestDB is restarted for them.
    Renewal(NewCredentials),
}

impl Taking {
    /// Whether the own Secret is only written to say again what it said, or where that comes from: nobody asks for anything by that.
    pub(crate) const fn says_again(&self) -> bool {
        match self {
            Self::PutRight(_) | Self::Note(_) => true,
            Self::Nothing | Self::Unread | Self::Keep(_) | Self::Renewal(_) => false,
        }
    }
}

/// See [`super::to_read`].
pub(super) fn to_read(validated: &Validated, observed: &Observed) -> BTreeSet<String> {
    let Some(view) = View::new(validated, observed) else { return BTreeSet::new() };
    let mut names = BTreeSet::new();
    if view.is_in_doubt() || view.revoked().next().is_some() || !view.abandoned().is_empty() {
        names.insert(names::credentials(&validated.subject.name));
    }
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
            let missing = view.drawn().into_iter().filter(|id| !view.keys.contains_key(id));
            names.extend(missing.map(|id| names::drawn_key(&validated.subject.name, &id)));
        }
    }
    names
}

/// Chooses, from what was seen and read.
pub(crate) fn choose(validated: &Validated, observed: &Observed) -> Choice {
    let Some(view) = View::new(validated, observed) else { return Choice::default() };
    let mut choice = Choice::of(&view);
    let open = |credential: &Credential| !view.is_taken(*credential, &view.candidates(*credential));
    let open: Vec<Credential> = Credential::ALL.into_iter().filter(open).collect();
    let abandoned = view.abandoned();
    if open.is_empty() && !view.is_in_doubt() && view.revoked().next().is_none() && abandoned.is_empty() {
        choice.problems.extend(view.noted.refused.values().map(|refused| refused.why.clone()));
        return choice;
    }
    let own_name = names::credentials(&validated.subject.name);
    let Some(Some(own)) = observed.secrets.read.get(&own_name) else {
        choice.taking = Taking::Unread;
        return choice;
    };
    let revision = view.revision().map(String::as_str);
    let (cause, former) = match Verdict::of(revision, |key| own.data.get(key).map(Hidden::expose)) {
        Verdict::AsWritten => (Cause::Given, None),
        Verdict::Unheld => (Cause::Unheld, None),
        Verdict::Torn => (Cause::Changed, None),
        Verdict::Changed(former) => (Cause::Changed, Some(former)),
    };
    let put_right = former.map(|former| {
        let is_read = started::has_read(observed.children.pod.as_deref(), own, &former);
        NewCredentials::again(&view, own, former, is_read)
    });
    // What stands against what is given is told meanwhile, by what stands there then.
    let after = put_right.as_ref().map(NewCredentials::content);
    let own = after.as_ref().unwrap_or(own);
    let mut new = New::of(&view);
    for credential in open {
        if let Err(problem) = view.take(credential, own, &mut new) {
            new.problems.push(problem);
        }
    }
    new.part_readers(&view.noted, own);
    choice.problems.append(&mut new.problems);
    choice.problems.extend(new.taken.refused.values().map(|refused| refused.why.clone()));
    if let Some(put_right) = put_right {
        choice.taking = Taking::PutRight(put_right);
        return choice;
    }
    choice.draws.append(&mut new.draws);
    // What is drawn is noted before, or nobody would know of it should the wish change meanwhile.
    choice.draws.retain(|id| view.noted.begun.contains(id));
    choice.abandoned.extend(abandoned);
    let revoked = view.revoked().filter_map(|(id, key)| key.handed_out(&validated.subject, id));
    choice.revoked = revoked.collect();
    choice.taking = new.against(&view, own, cause);
    if choice.awaits_keys(observed) && matches!(choice.taking, Taking::Renewal(_)) {
        // One restart for all of it.
        choice.taking = Taking::Unread;
    }
    choice
}

/// What the own Secret becomes.
pub(super) struct New {
    pub(super) taken: Taken,
    pub(super) values: BTreeMap<&'static str, Option<Hidden>>,
    /// What could not be taken over, and why.
    pub(super) problems: Vec<String>,
    /// Ids of keys that are still to be drawn.
    pub(super) draws: Vec<String>,
}

impl New {
    fn of(view: &View<'_>) -> Self {
        let mut taken = view.noted.clone();
        taken.keys.clone_from(&view.keys);
        let wished = view.drawn();
        taken.keys.retain(|id, _| wished.contains(id));
        taken.begun.retain(|id| wished.contains(id));
        Self { taken, values: BTreeMap::new(), problems: Vec::new(), draws: Vec::new() }
    }

    /// Notes where a credential comes from.
    pub(super) fn come(&mut self, credential: Credential, origin: Option<Origin>) {
        match origin {
            Some(origin) => drop(self.taken.from.insert(credential, origin)),
            None => drop(self.taken.from.remove(&credential)),
        }
    }

    /// Notes that what a Secret holds is no good.
    pub(super) fn refuse(&mut self, credential: Credential, content: &Content, why: String) {
        self.taken.refused.insert(credential, Refused { of: content.origin.clone(), why });
    }

    /// The two users of the Postgres wire protocol are two: whoever would take the other's name does not get it.
    fn part_readers(&mut self, noted: &Taken, own: &Content) {
        let value = |key: &str| match self.values.get(key) {
            Some(value) => value.as_ref(),
            None => own.data.get(key),
        };
        let reader = value(names::secret::PG_READONLY_USER);
        if reader.is_none() || reader != value(names::secret::PG_USER) {
            return;
        }
        let differs = |credential: &Credential| {
            credential
                .keys()
                .iter()
                .any(|key| self.values.get(key).is_some_and(|value| value.as_ref() != own.data.get(*key)))
        };
        let both = [Credential::Psql, Credential::PsqlReadonly];
        let changed: Vec<Credential> = both.into_iter().filter(differs).collect();
        let origin = |credential: &Credential| self.taken.from.get(credential);
        let names: Vec<&str> = changed.iter().filter_map(origin).map(|origin| origin.name.as_str()).collect();
        self.problems.push(format!(
            "Secret {}: the user who may only read has the name of the one who may write",
            names.join(", ")
        ));
        for credential in changed {
            self.withdraw(noted, credential);
        }
    }

    /// Takes nothing over for a credential.
    fn withdraw(&mut self, noted: &Taken, credential: Credential) {
        for key in credential.keys() {
            self.values.remove(key);
        }
        self.come(credential, noted.from.get(&credential).cloned());
    }

    /// What there is to do, given what the own Secret holds and why it may have to be written whatever is given.
    fn against(mut self, view: &View<'_>, own: &Content, cause: Cause) -> Taking {
        self.values.retain(|key, value| own.data.get(*key) != value.as_ref());
        let new = NewCredentials::over(view, own);
        let is_noted = self.taken.keys == view.noted.keys && self.taken.begun == view.noted.begun;
        if !is_noted || view.revoked().next().is_some() {
            let Taken { keys, begun, .. } = self.taken;
            let mut taken = Taken { keys, begun, ..view.noted.clone() };
            // They are in force until QuestDB reads the Secret without them.
            taken.drawn.extend(view.revoked().map(|(id, _)| id.clone()));
            return Taking::Keep(NewCredentials { taken: Some(taken.text()), ..new });
        }
        let is_said = self.taken == view.noted || (!view.says && self.taken.is_empty());
        let taken = Some(self.taken.text());
        if !self.values.is_empty() {
            return Taking::Renewal(NewCredentials { taken, ..new }.with(self.values, Revision::Another));
        }
        match cause {
            Cause::Given if is_said => Taking::Nothing,
            cause => Taking::Note(NewCredentials { taken: taken.filter(|_| !is_said), cause, ..new }),
        }
    }
}
