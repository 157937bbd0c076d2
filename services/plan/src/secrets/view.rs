//! The Secrets of one database side by side: which there are for each credential, and what can be said against them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use resources::names;

use super::drawn::drawn_keys;
use super::{Claim, Credential, DrawnKey, IN_DOUBT, Origin, Secrets, Taken};
use crate::few::few;
use crate::{Goal, Observed, Validated};

/// What is known of a Secret without having read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Its version.
    At(Origin),
    /// It is not there.
    Absent,
    /// Nothing: its watch has only begun.
    Nothing,
}

/// A Secret for a credential.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) origin: Known,
    /// Field of the spec that names it.
    field: Option<&'static str>,
}

/// What everything is decided by.
pub(super) struct View<'a> {
    pub(super) validated: &'a Validated,
    pub(super) secrets: &'a Secrets,
    /// What the own Secret says it was made from.
    pub(super) noted: Taken,
    /// That it says so.
    pub(super) says: bool,
    /// Keys that the operator drew, by whatever still knows them.
    pub(super) keys: BTreeMap<String, DrawnKey>,
    own: &'a Secret,
}

impl Candidate {
    /// What is said of one that a spec names and that is not there.
    pub(super) fn is_missing(&self) -> Option<String> {
        Some(format!("{} names Secret {}, which is not there", self.field?, self.name))
    }
}

impl<'a> View<'a> {
    /// Nothing while the own Secret is not there.
    pub(super) fn new(validated: &'a Validated, observed: &'a Observed) -> Option<Self> {
        let own = observed.children.secret.as_deref()?;
        let noted = Taken::noted(&own.metadata);
        let (says, noted) = (noted.is_some(), noted.unwrap_or_default());
        let keys = drawn_keys(&observed.children);
        Some(Self { validated, secrets: &observed.secrets, noted, says, keys, own })
    }

    /// The Secrets for a credential: by annotation, and by the spec.
    pub(super) fn candidates(&self, credential: Credential) -> Vec<Candidate> {
        let says = |claim: &&Claim| claim.word.as_deref().and_then(Credential::of) == Some(credential);
        let claims = self.secrets.claims.iter().filter(says).map(|claim| Candidate {
            name: claim.origin.name.clone(),
            origin: Known::At(claim.origin.clone()),
            field: None,
        });
        let mut all: Vec<Candidate> = claims.collect();
        if let Some((field, name)) = self.named(credential) {
            all.retain(|candidate| candidate.name != name);
            let origin = match self.secrets.named.get(name) {
                Some(Some(origin)) => Known::At(origin.clone()),
                Some(None) => Known::Absent,
                None => Known::Nothing,
            };
            all.push(Candidate { name: name.to_owned(), origin, field: Some(field) });
        }
        all
    }

    fn named(&self, credential: Credential) -> Option<(&'static str, &'a str)> {
        let wish = &self.validated.credentials;
        let (field, name) = match credential {
            Credential::Psql => ("spec.credentials.psql", &wish.psql.as_ref()?.secret_name),
            Credential::PsqlReadonly => {
                ("spec.credentials.psqlReadonly", &wish.psql_readonly.as_ref()?.secret_name)
            }
            Credential::Http => ("spec.credentials.http", &wish.http.as_ref()?.secret_name),
            Credential::Ilp => ("spec.credentials.ilp", wish.ilp.as_ref()?.secret_name.as_ref()?),
        };
        Some((field, name))
    }

    /// Ids of keys that are asked for.
    pub(super) fn drawn(&self) -> BTreeSet<String> {
        self.validated.credentials.ilp.iter().flat_map(|ilp| &ilp.drawn).cloned().collect()
    }

    /// Whether a credential is what was taken over, or cannot be known, so that nothing is to be read for it.
    pub(super) fn is_taken(&self, credential: Credential, candidates: &[Candidate]) -> bool {
        let noted = self.noted.from.get(&credential);
        let refused = self.noted.refused.get(&credential).map(|refused| &refused.of);
        let same = match candidates {
            [Candidate { origin: Known::At(origin), .. }] => refused.or(noted) == Some(origin),
            [Candidate { origin: Known::Nothing, .. }] => false,
            found if found.is_empty() || self.is_withdrawn(credential, found) => {
                refused.or(noted).is_none() && !self.is_unexplained(credential)
            }
            // It is not there and takes nothing away, or there are several.
            _ => refused.is_none(),
        };
        same && !self.lacks(credential) && (credential != Credential::Ilp || self.drawn() == self.noted.drawn)
    }

    /// Whether the only Secret that is given for a credential is not there, and what it gave goes with it. What came from another one
    /// stays in force until this one is there.
    pub(super) fn is_withdrawn(&self, credential: Credential, candidates: &[Candidate]) -> bool {
        let [Candidate { name, origin: Known::Absent, .. }] = candidates else { return false };
        let noted = self.noted.from.get(&credential);
        credential.is_optional() && noted.is_none_or(|noted| noted.name == *name)
    }

    /// Whether the own Secret holds what it does not say the source of, so that nobody knows who asks for it.
    fn is_unexplained(&self, credential: Credential) -> bool {
        let drawn = credential == Credential::Ilp && !self.noted.drawn.is_empty();
        let explained = drawn || self.noted.from.contains_key(&credential);
        credential.is_optional() && !explained && credential.keys().iter().any(|key| self.has(key))
    }

    /// Whether the own Secret has lost what it says was taken over.
    fn lacks(&self, credential: Credential) -> bool {
        let drawn = credential == Credential::Ilp && !self.noted.drawn.is_empty();
        let noted = drawn || self.noted.from.contains_key(&credential);
        noted && !credential.keys().iter().all(|key| self.has(key))
    }

    /// Whether the own Secret has a key.
    fn has(&self, key: &str) -> bool {
        self.own.data.as_ref().is_some_and(|data| data.contains_key(key))
    }

    /// Which revision the own Secret says it is.
    pub(super) fn revision(&self) -> Option<&String> {
        self.own.metadata.annotations.as_ref()?.get(names::secret::REVISION)
    }

    /// Whether the values of the own Secret have to be looked at, because they are not known to be as they were written. Of a
    /// database that is not to serve nothing is read: they are looked at before it starts again.
    pub(super) fn is_in_doubt(&self) -> bool {
        let annotations = self.own.metadata.annotations.as_ref();
        self.validated.goal == Goal::Serve && annotations.is_some_and(|found| found.contains_key(IN_DOUBT))
    }

    /// Ids of keys that were drawn and that nobody asks for any more.
    pub(super) fn revoked(&self) -> impl Iterator<Item = (&String, &DrawnKey)> {
        let wished = self.drawn();
        self.keys.iter().filter(move |(id, _)| !wished.contains(*id))
    }

    /// Ids of keys that may have been drawn without that having been noted, and that nobody asks for any more.
    pub(super) fn abandoned(&self) -> BTreeSet<String> {
        let wished = self.drawn();
        self.noted.begun.difference(&wished).cloned().collect()
    }

    /// What can be said against Secrets without reading them.
    pub(super) fn unclear(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.secrets.claims.iter().filter_map(wrong_word).collect();
        problems.extend(Credential::ALL.into_iter().flat_map(|credential| self.wrong_number(credential)));
        problems
    }

    /// What is said of a way that leads to a port which stays shut.
    pub(super) fn shut(&self) -> Option<String> {
        let text = "spec.network.ingress.ilp asks for a way to port 9009, which is shut without a key";
        self.wants_route_to_nothing().then(|| text.to_owned())
    }

    /// Secrets that the spec names and that are not there, with which goes what they gave.
    pub(super) fn withdrawn(&self) -> Vec<String> {
        let missing = Credential::ALL.into_iter().filter_map(|credential| {
            let candidates = self.candidates(credential);
            let missing = candidates.iter().find_map(Candidate::is_missing);
            missing.filter(|_| self.is_withdrawn(credential, &candidates))
        });
        missing.map(|missing| format!("{missing}: nothing that came from it stays in force")).collect()
    }

    fn wrong_number(&self, credential: Credential) -> Vec<String> {
        let candidates = self.candidates(credential);
        // Of one that is withdrawn that is told apart.
        let stays = !self.is_withdrawn(credential, &candidates);
        let missing = candidates.iter().filter(|candidate| stays && candidate.origin == Known::Absent);
        let mut problems: Vec<String> = missing.filter_map(Candidate::is_missing).collect();
        let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
        if names.len() > 1 {
            let what = format!("Secrets {} are all of type {}", few(&names, ", "), credential.as_str());
            problems.push(format!("{what}: take the annotation {} off all but one", names::SECRET_OF));
        }
        problems
    }

    /// Whether a way leads to a port that stays shut. A key that was asked for and is not there yet will open it, or
    /// something else is said of it.
    fn wants_route_to_nothing(&self) -> bool {
        let ingress = self.validated.reach.ingress.as_ref();
        let is_keyed = self.has(names::secret::ILP_KEYS)
            || !self.drawn().is_empty()
            || !self.candidates(Credential::Ilp).is_empty();
        ingress.is_some_and(|(_, wish)| wish.ilp.is_some()) && !is_keyed
    }
}

fn wrong_word(claim: &Claim) -> Option<String> {
    let words = Credential::ALL.map(Credential::as_str).join(", ");
    let (name, key) = (&claim.origin.name, names::secret::TYPE);
    let Some(word) = &claim.word else {
        return Some(format!("Secret {name} has no annotation {key}: it must be one of {words}"));
    };
    if Credential::of(word).is_some() {
        return None;
    }
    let word: String = word.chars().filter(|letter| !letter.is_control()).take(64).collect();
    Some(format!("Secret {name} is of type \"{word}\", which must be one of {words}"))
}
