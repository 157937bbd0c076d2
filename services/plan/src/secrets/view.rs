//! The Secrets of one database side by side: which there are for each credential, and what can be said against them.

use std::collections::BTreeSet;

use kube::core::ObjectMeta;
use resources::names;

use super::choice::New;
use super::jwk::{self, Lines};
use super::{Claim, Content, Credential, Hidden, Origin, Secrets, Taken, login};
use crate::Validated;

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
    secrets: &'a Secrets,
    /// What the own Secret says it was made from.
    pub(super) noted: Taken,
    /// That it says so.
    pub(super) says: bool,
}

impl Candidate {
    /// What is said of one that a spec names and that is not there.
    fn is_missing(&self) -> Option<String> {
        Some(format!("{} names Secret {}, which is not there", self.field?, self.name))
    }
}

impl<'a> View<'a> {
    pub(super) fn new(validated: &'a Validated, secrets: &'a Secrets, own: &ObjectMeta) -> Self {
        let noted = Taken::noted(own);
        Self { validated, secrets, says: noted.is_some(), noted: noted.unwrap_or_default() }
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
        let same = match candidates {
            [] => noted.is_none(),
            [Candidate { origin: Known::At(origin), .. }] => noted == Some(origin),
            [Candidate { origin: Known::Nothing, .. }] => false,
            // It is not there, or there are several.
            _ => true,
        };
        same && (credential != Credential::Ilp || candidates.len() > 1 || self.drawn() == self.noted.drawn)
    }

    /// What can be said against Secrets without reading them.
    pub(super) fn unclear(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.secrets.claims.iter().filter_map(wrong_word).collect();
        problems.extend(Credential::ALL.into_iter().flat_map(|credential| self.wrong_number(credential)));
        if self.wants_route_to_nothing() {
            problems.push(
                "spec.network.ingress.ilp asks for a way to port 9009, which is shut without a key"
                    .to_owned(),
            );
        }
        problems
    }

    fn wrong_number(&self, credential: Credential) -> Vec<String> {
        let candidates = self.candidates(credential);
        let missing = candidates.iter().filter(|candidate| candidate.origin == Known::Absent);
        let mut problems: Vec<String> = missing.filter_map(Candidate::is_missing).collect();
        let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
        if names.len() > 1 {
            let what = format!("Secrets {} are all of type {}", names.join(", "), credential.as_str());
            problems.push(format!("{what}: take the annotation {} off all but one", names::SECRET_OF));
        }
        problems
    }

    fn wants_route_to_nothing(&self) -> bool {
        let ingress = self.validated.reach.ingress.as_ref();
        ingress.is_some_and(|(_, wish)| wish.ilp.is_some()) && !self.validated.keyring.ilp
    }

    /// Takes one over, or says why not; ids of keys that are still to be drawn.
    pub(super) fn take(
        &self,
        credential: Credential,
        own: &Content,
        new: &mut New,
    ) -> Result<Vec<String>, String> {
        let candidates = self.candidates(credential);
        let content = match candidates.as_slice() {
            [] => None,
            [candidate] => match self.secrets.read.get(&candidate.name) {
                Some(Some(content)) => Some(content),
                // It went since it was seen, or was not read: the next look tells.
                Some(None) => return candidate.is_missing().map_or_else(|| Ok(Vec::new()), Err),
                None => return Ok(Vec::new()),
            },
            _ => return Ok(Vec::new()),
        };
        let mut missing = Vec::new();
        let values = match (credential, content) {
            (Credential::Ilp, content) => {
                let Keys { lines, drawn, missing: ids } = self.keys(content, own)?;
                (new.taken.drawn, missing) = (drawn, ids);
                vec![(!lines.is_empty()).then(|| Hidden::new(jwk::file(&lines).into_bytes()))]
            }
            (_, Some(content)) => login::login(credential, content)?.into_iter().map(Some).collect(),
            // It goes with its Secret, unless nobody could come in without it.
            (_, None) if credential.is_optional() => vec![None; credential.keys().len()],
            (_, None) => Vec::new(),
        };
        match content.map(|content| content.origin.clone()) {
            Some(origin) => drop(new.taken.from.insert(credential, origin)),
            None => drop(new.taken.from.remove(&credential)),
        }
        new.values.extend(credential.keys().iter().copied().zip(values));
        Ok(missing)
    }

    /// The keys that are to be in force: those of the Secret, and those that the operator drew.
    fn keys(&self, content: Option<&Content>, own: &Content) -> Result<Keys, String> {
        let lines = content.map(jwk::keys).transpose()?.unwrap_or_default();
        let mut keys = Keys { lines, ..Keys::default() };
        for id in self.drawn() {
            if let (true, Some(content)) = (keys.lines.contains_key(&id), content) {
                let name = &content.origin.name;
                return Err(format!(
                    "spec.credentials.ilp.drawn names {id}, which is a key of Secret {name}"
                ));
            }
            match self.drawn_line(&id, own)? {
                Some(line) => {
                    keys.lines.insert(id.clone(), line);
                    keys.drawn.insert(id);
                }
                None => keys.missing.push(id),
            }
        }
        Ok(keys)
    }

    /// The public half of a key that the operator drew, if it did.
    fn drawn_line(&self, id: &str, own: &Content) -> Result<Option<String>, String> {
        // Handed out once: from then on it is known by its public half alone.
        let file = own.data.get(names::secret::ILP_KEYS);
        let known = file.and_then(|file| jwk::read(file.expose()).remove(id));
        if known.is_some() && (self.noted.drawn.contains(id) || !self.says) {
            return Ok(known);
        }
        let name = names::drawn_key(&self.validated.subject.name, id);
        let Some(Some(content)) = self.secrets.read.get(&name) else { return Ok(None) };
        let line = jwk::keys(content)?.remove(id);
        line.map(Some)
            .ok_or_else(|| format!("Secret {name} holds another key than {id}: delete it, and it is drawn"))
    }
}

/// Keys of the line protocol over TCP.
#[derive(Default)]
struct Keys {
    lines: Lines,
    /// Ids of those that the operator drew.
    drawn: BTreeSet<String>,
    /// Ids of those that nobody drew yet.
    missing: Vec<String>,
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
