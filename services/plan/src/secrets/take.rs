//! What was read, taken over credential by credential; what stands against one holds up no other.

use std::collections::BTreeSet;

use resources::names;

use super::choice::New;
use super::jwk::{self, Lines};
use super::view::{Known, View};
use super::{Content, Credential, DrawnKey, Hidden, Origin, login};

/// What there is for a credential.
enum Found<'a> {
    /// There is none.
    Nothing,
    /// It was read.
    Read(&'a Content),
    /// It cannot be known; why, if that is not told elsewhere.
    Unclear(Option<String>),
}

impl<'a> View<'a> {
    /// What there is for a credential, as it was read.
    fn found(&self, credential: Credential) -> Found<'a> {
        let candidates = self.candidates(credential);
        if candidates.is_empty() || self.is_withdrawn(credential, &candidates) {
            return Found::Nothing;
        }
        let [candidate] = candidates.as_slice() else { return Found::Unclear(None) };
        if candidate.origin == Known::Absent {
            return Found::Unclear(None);
        }
        if let Some(why) = self.secrets.unreadable.get(&candidate.name) {
            return Found::Unclear(Some(format!("Secret {} could not be read: {why}", candidate.name)));
        }
        match self.secrets.read.get(&candidate.name) {
            Some(Some(content)) => Found::Read(content),
            // It went since it was seen, or was not read: the next look tells.
            Some(None) => Found::Unclear(candidate.is_missing()),
            None => Found::Unclear(None),
        }
    }

    /// Takes one over, or says why not.
    pub(super) fn take(&self, credential: Credential, own: &Content, new: &mut New) -> Result<(), String> {
        let found = self.found(credential);
        new.taken.refused.remove(&credential);
        if credential == Credential::Ilp {
            self.take_keys(found, own, new);
            return Ok(());
        }
        let (values, origin) = match found {
            Found::Unclear(problem) => return problem.map_or(Ok(()), Err),
            Found::Read(content) => {
                let login = match login::login(credential, content) {
                    Ok(login) => login,
                    Err(why) => {
                        new.refuse(credential, content, why);
                        return Ok(());
                    }
                };
                (login.into_iter().map(Some).collect(), Some(content.origin.clone()))
            }
            // It goes with its Secret, unless nobody could come in without it.
            Found::Nothing if credential.is_optional() => (vec![None; credential.keys().len()], None),
            Found::Nothing => (Vec::new(), None),
        };
        new.come(credential, origin);
        new.values.extend(credential.keys().iter().copied().zip(values));
        Ok(())
    }

    /// The keys that are to be in force: those of the Secret, and those that the operator drew. What stands against some holds
    /// up neither the others nor the end of any.
    fn take_keys(&self, found: Found<'_>, own: &Content, new: &mut New) {
        let file = own.data.get(names::secret::ILP_KEYS);
        let before = file.map(|file| jwk::read(file.expose())).unwrap_or_default();
        let wished = self.drawn();
        let mut unclear = BTreeSet::new();
        let given = match found {
            Found::Nothing => Ok((Lines::new(), None)),
            Found::Read(content) => match jwk::keys(content) {
                Ok(lines) => Ok(self.apart((content, lines), &before, new, &mut unclear)),
                Err(why) => {
                    new.refuse(Credential::Ilp, content, why);
                    Err(None)
                }
            },
            Found::Unclear(problem) => Err(problem),
        };
        let (mut lines, origin) = given.unwrap_or_else(|problem| {
            new.problems.extend(problem);
            let drawn = |id: &String| self.noted.drawn.contains(id) || wished.contains(id);
            let lines = before.iter().filter(|(id, _)| !drawn(id));
            let lines = lines.map(|(id, line)| (id.clone(), line.clone())).collect();
            (lines, self.noted.from.get(&Credential::Ilp).cloned())
        });
        let mut drawn = BTreeSet::new();
        for id in wished.difference(&unclear).cloned() {
            match self.drawn_key(&id, &before) {
                Ok(Some(key)) => {
                    lines.insert(id.clone(), key.line.clone());
                    new.taken.begun.remove(&id);
                    new.taken.keys.insert(id.clone(), key);
                    drawn.insert(id);
                }
                Ok(None) => {
                    new.taken.begun.insert(id.clone());
                    new.draws.push(id);
                }
                Err(problem) => new.problems.push(problem),
            }
        }
        new.taken.drawn = drawn;
        new.come(Credential::Ilp, origin);
        if lines != before || file.is_some() == lines.is_empty() {
            let value = (!lines.is_empty()).then(|| Hidden::new(jwk::file(&lines).into_bytes()));
            new.values.insert(names::secret::ILP_KEYS, value);
        }
    }

    /// The keys of a Secret, without those that are to be drawn, too. Of these, one that was drawn stays in force; of any other one it
    /// is `unclear` which is meant, so that it stays as it was `before`. All else is as the Secret has it, and what it has no more ends.
    fn apart(
        &self,
        (content, mut lines): (&Content, Lines),
        before: &Lines,
        new: &mut New,
        unclear: &mut BTreeSet<String>,
    ) -> (Lines, Option<Origin>) {
        let wished = self.drawn();
        let both: Vec<String> = lines.keys().filter(|id| wished.contains(*id)).cloned().collect();
        let Some(id) = both.first() else { return (lines, Some(content.origin.clone())) };
        let name = &content.origin.name;
        new.problems.push(format!("spec.credentials.ilp.drawn names {id}, which is a key of Secret {name}"));
        for id in both {
            lines.remove(&id);
            if self.keys.contains_key(&id) || self.noted.drawn.contains(&id) {
                continue;
            }
            lines.extend(before.get(&id).map(|line| (id.clone(), line.clone())));
            unclear.insert(id);
        }
        // Noted at no version: they go with the Secret, which is looked at again until that is clear.
        (lines, Some(Origin { version: String::new(), ..content.origin.clone() }))
    }

    /// A key that the operator drew, if it did.
    fn drawn_key(&self, id: &str, before: &Lines) -> Result<Option<DrawnKey>, String> {
        // Handed out once: from then on it is known by its public half alone.
        if let Some(key) = self.keys.get(id) {
            return Ok(Some(key.clone()));
        }
        let known = before.get(id).filter(|_| self.noted.drawn.contains(id) || !self.says);
        if let Some(line) = known {
            return Ok(Some(DrawnKey { line: line.clone(), secret: String::new() }));
        }
        let name = names::drawn_key(&self.validated.subject.name, id);
        if let Some(why) = self.secrets.unreadable.get(&name) {
            return Err(format!("the key {id} cannot be had from Secret {name}: {why}"));
        }
        let Some(Some(content)) = self.secrets.read.get(&name) else { return Ok(None) };
        let line = jwk::keys(content)?.remove(id);
        let line = line.ok_or_else(|| {
            format!("Secret {name} holds another key than {id}: delete it, and it is drawn")
        })?;
        Ok(Some(DrawnKey { line, secret: content.origin.uid.clone() }))
    }
}
