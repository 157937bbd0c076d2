//! Which Secrets hold a database's credentials, and what of them is taken over into the operator's own Secret, which is the
//! one that the pod sees.
//!
//! A Secret says by its annotations whose it is and which credential it holds; a spec may name some beside those. From
//! metadata alone follows which Secret is to be read at all ([`to_read`]): one that was taken over at the version it has is
//! not read again.
//!
//! A value that another hand writes over in the operator's own Secret, or takes out of it, is put right by the copy of all of them
//! that lies there beside them (`written`).
//!
//! *Invariant:* what cannot be taken over changes nothing: the last good value stays in force, and the reason names the
//! Secret and its key, never a value.

mod choice;
mod drawn;
mod jwk;
mod keyring;
mod login;
mod started;
mod take;
#[cfg(test)]
mod tests;
mod view;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ObjectMeta;
use resources::names;
use serde::{Deserialize, Serialize};

use crate::identity::mark;
use crate::{Observed, Subject, Validated};

pub(crate) use choice::{Choice, Taking, choose};
pub use drawn::DrawnKey;
pub(crate) use drawn::{begun_keys, handed_out};
pub use keyring::Keyring;
pub use written::{Cause, IN_DOUBT, NewCredentials, Revision, copy, is_changed, judge};

/// The words by which a Secret says what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credential {
    /// User of the Postgres wire protocol.
    Psql,
    /// One who may only read.
    PsqlReadonly,
    /// User of HTTP.
    Http,
    /// Keys of the line protocol over TCP.
    Ilp,
}

impl Credential {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Psql, Self::PsqlReadonly, Self::Http, Self::Ilp];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Psql => "psql",
            Self::PsqlReadonly => "psql-readonly",
            Self::Http => "http",
            Self::Ilp => "ilp",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|credential| credential.as_str() == word)
    }

    /// The keys of the operator's Secret that it becomes.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Psql => &[names::secret::PG_USER, names::secret::PG_PASSWORD],
            Self::PsqlReadonly => &[names::secret::PG_READONLY_USER, names::secret::PG_READONLY_PASSWORD],
            Self::Http => &[names::secret::HTTP_USER, names::secret::HTTP_PASSWORD],
            Self::Ilp => &[names::secret::ILP_KEYS],
        }
    }

    /// Whether a database may be without it, so that it goes with its Secret.
    const fn is_optional(self) -> bool {
        matches!(self, Self::PsqlReadonly | Self::Ilp)
    }
}

/// Bytes that are shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(Vec<u8>);

impl Hidden {
    /// Hides these.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, for who writes them down.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// A Secret at a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Name, within the namespace of the resource.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Its `resourceVersion`.
    pub version: String,
}

impl Origin {
    /// Of an object as it is.
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// A Secret that says it holds a credential of a database, or in which a key of one was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which, at which version.
    pub origin: Origin,
    /// What it says it holds.
    pub word: Option<String>,
    /// Uid of the resource for which a key was handed out in it.
    pub handed_out_for: Option<String>,
}

/// A Secret as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Which, at which version.
    pub origin: Origin,
    /// Its values.
    pub data: BTreeMap<String, Hidden>,
    /// Since when at least they stand there, of those that somebody wrote long after the operator wrote anything there.
    pub hands: BTreeMap<String, Timestamp>,
}

impl Content {
    /// Of a Secret that was read in full.
    pub fn of(secret: Secret) -> Self {
        let data = secret.data.unwrap_or_default().into_iter();
        Self {
            origin: Origin::of(&secret.metadata),
            hands: started::hands(&secret.metadata),
            data: data.map(|(key, value)| (key, Hidden::new(value.0))).collect(),
        }
    }
}

/// Everything known of the Secrets of one database.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Those that say so by annotation, sorted by name.
    pub claims: Vec<Claim>,
    /// Ids of keys that were handed out in Secrets which are there still.
    pub handed_out: BTreeSet<String>,
    /// Those that the spec names, as their watches show them: `None` is not there, and what is missing is not known yet.
    pub named: BTreeMap<String, Option<Origin>>,
    /// Those that [`to_read`] asked for: `None` is not there.
    pub read: BTreeMap<String, Option<Content>>,
    /// Those of them that could not be read, and why.
    pub unreadable: BTreeMap<String, String>,
}

impl Secrets {
    /// By what those say that concern a resource of this name.
    pub fn told(claims: Vec<Claim>, subject: &Subject) -> Self {
        let (keys, claims): (Vec<Claim>, Vec<Claim>) =
            claims.into_iter().partition(|claim| claim.handed_out_for.is_some());
        let ours = keys.iter().filter(|key| key.handed_out_for.as_deref() == Some(subject.uid.as_str()));
        let ids = ours.filter_map(|key| names::of_drawn_key(&key.origin.name));
        Self { handed_out: ids.map(|(_, id)| id.to_owned()).collect(), claims, ..Self::default() }
    }

    /// Takes in what was read under a name that [`to_read`] asked for.
    pub fn put(&mut self, validated: &Validated, name: String, found: Option<Secret>) {
        let subject = &validated.subject;
        // What the operator writes itself is known by its labels or its mark, what is given by its name.
        let own = name == names::credentials(&subject.name);
        let claimed = self.claims.iter().any(|claim| claim.origin.name == name);
        let given = claimed || named(validated).contains(&name);
        let ours = |found: &Secret| subject.holds(&found.metadata);
        if !own && !given && found.as_ref().is_some_and(|found| !ours(found)) {
            let why = "it belongs to somebody else: remove or rename it".to_owned();
            self.unreadable.insert(name, why);
            return;
        }
        let found = found.filter(|found| given && !own || ours(found));
        self.read.insert(name, found.map(Content::of));
    }
}

/// Which resource a Secret says it belongs to, by its name; the namespace is the Secret's own. Not that of the Secret which
/// the operator itself writes for it.
pub fn owner(metadata: &ObjectMeta) -> Option<&str> {
    let owner = metadata.annotations.as_ref()?.get(names::SECRET_OF)?.as_str();
    let own = metadata.name.as_deref() == Some(names::credentials(owner).as_str());
    (!own && !owner.is_empty()).then_some(owner)
}

/// Name and uid of the resource for which a key was handed out in a Secret. Of one that is being deleted nothing is left to be done:
/// whoever holds it by a finalizer lets it go.
fn handed_out_for(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (resource, _) = names::of_drawn_key(metadata.name.as_deref()?)?;
    Some((resource, mark(metadata)?))
}

/// The resource that a Secret concerns, by its name: its [`owner`], or the one for which a key was handed out in it.
pub fn concerned(metadata: &ObjectMeta) -> Option<&str> {
    owner(metadata).or_else(|| handed_out_for(metadata).map(|(resource, _)| resource))
}

/// What a Secret says that concerns a resource.
pub fn claim(metadata: &ObjectMeta) -> Claim {
    let annotations = metadata.annotations.as_ref();
    let of_key = handed_out_for(metadata).filter(|_| owner(metadata).is_none());
    Claim {
        origin: Origin::of(metadata),
        word: annotations.and_then(|annotations| annotations.get(names::secret::TYPE)).cloned(),
        handed_out_for: of_key.map(|(_, uid)| uid.to_owned()),
    }
}

/// Names of the Secrets that a spec names, and that are to be watched for its sake.
pub fn named(validated: &Validated) -> BTreeSet<String> {
    let wish = &validated.credentials;
    let logins = [&wish.psql, &wish.psql_readonly, &wish.http];
    let logins = logins.into_iter().flatten().map(|login| login.secret_name.clone());
    let ilp = wish.ilp.iter().filter_map(|ilp| ilp.secret_name.clone());
    logins.chain(ilp).collect()
}

/// Names of the Secrets that have to be read before it can be said what is to be done. None where all were taken over as they
/// are.
pub fn to_read(validated: &Validated, observed: &Observed) -> BTreeSet<String> {
    choice::to_read(validated, observed)
}

/// What the operator's own Secret says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Taken {
    /// What was taken over from where.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    from: BTreeMap<Credential, Origin>,
    /// Ids of keys that the operator drew, and that are in force.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    drawn: BTreeSet<String>,
    /// Keys that the operator drew and that are asked for, in force or not yet: nobody could draw them again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    keys: BTreeMap<String, DrawnKey>,
    /// Ids of keys that are about to be drawn, or were and are not known yet: nobody else knows of what is handed out for them.
    /// They are not in force.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    begun: BTreeSet<String>,
    /// What could not be taken over, so that it is not read again and again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<Credential, Refused>,
}

/// A Secret whose content is no good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refused {
    of: Origin,
    why: String,
}

impl Taken {
    /// What the annotation says; `None` without one that can be read.
    fn noted(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(names::secret::TAKEN_FROM)?;
        serde_json::from_str(text).ok()
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
