//! What the operator wrote into its own Secret, held as a copy in that very Secret: whatever another hand changes there is put
//! right from it, what was drawn as well as what was taken over, and without a restart, because QuestDB runs with what stood there
//! before. One that certainly does not (`started`) is restarted, by another revision of what is put right.
//!
//! The copy is a value beside the others, so whoever may not read them may not read it either. A digest in an annotation would say
//! more to people who see no values (passwords are guessed by one, and what shows no values shows annotations), and less to the
//! operator, which could not get back what it drew. The copy names the revision that it belongs to: an operator from before there
//! were copies writes other values under another revision, and those are not taken for somebody else's.
//!
//! *Invariant:* values are compared when the Secret comes over its watch, and again where it was read. What is remembered of it says
//! that something is the matter, and never a value.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use resources::names;
use serde::{Deserialize, Serialize};

use super::view::View;
use super::{Content, Credential, Hidden, Origin};

/// Annotation of the operator's Secret as it is remembered without its values, and of none on a server: they are not as they were
/// written, or nobody knows how they were.
pub const IN_DOUBT: &str = "crd.questdb.io/credentials-in-doubt";

/// New values for the operator's own Secret, or only notes about those that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCredentials {
    /// Namespace of the Secret.
    pub namespace: String,
    /// The Secret as it was read: nobody else may have written to it since.
    pub over: Origin,
    /// Values by key; `None` goes. Without any, only notes are written.
    pub values: BTreeMap<&'static str, Option<Hidden>>,
    /// Where they came from, for the annotation; `None` leaves that as it is.
    pub taken: Option<String>,
    /// The revision of the Secret afterwards.
    pub revision: Revision,
    /// Why it is written.
    pub cause: Cause,
    /// All values that stand there afterwards.
    pub(super) whole: BTreeMap<&'static str, Hidden>,
}

/// What the Secret is afterwards to those who were started with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Another one: they have to be started again.
    Another,
    /// This one, if it has any: they know these values.
    Same(Option<String>),
}

impl Revision {
    /// The revision, if it is known and there is one.
    pub(super) fn known(&self) -> Option<String> {
        match self {
            Self::Another => None,
            Self::Same(revision) => revision.clone(),
        }
    }
}

/// Why something is written into the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Others are given, or come from elsewhere.
    Given,
    /// Nothing there says what was written: an older operator made it, or somebody took that away.
    Unheld,
    /// Somebody changed what was written.
    Changed,
}

impl NewCredentials {
    /// Nothing new, over the Secret as it was read.
    pub(super) fn over(view: &View<'_>, own: &Content) -> Self {
        Self {
            namespace: view.validated.subject.namespace.clone(),
            over: own.origin.clone(),
            values: BTreeMap::new(),
            taken: None,
            revision: Revision::Same(view.revision().cloned()),
            cause: Cause::Given,
            whole: keys().filter_map(|key| Some((key, own.data.get(key)?.clone()))).collect(),
        }
    }

    /// What somebody changed, as it was; who has read it meanwhile is started again.
    pub(super) fn again(view: &View<'_>, own: &Content, former: Former, is_read: bool) -> Self {
        let Former { values, revision } = former;
        let revision = if is_read { Revision::Another } else { Revision::Same(revision) };
        Self { cause: Cause::Changed, ..Self::over(view, own).with(values, revision) }
    }

    /// What stands in the Secret afterwards, as far as it is the operator's.
    pub(super) fn content(&self) -> Content {
        let data = self.whole.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        Content { origin: self.over.clone(), data: data.collect(), hands: BTreeMap::new() }
    }

    /// The same with these values.
    pub(super) fn with(mut self, values: BTreeMap<&'static str, Option<Hidden>>, revision: Revision) -> Self {
        for (key, value) in &values {
            self.whole.remove(key);
            self.whole.extend(value.clone().map(|value| (*key, value)));
        }
        Self { values, revision, ..self }
    }

    /// The copy of all values under the revision that they have then.
    pub fn copy(&self, revision: Option<&str>) -> ByteString {
        let text = |value: &Hidden| ByteString(value.expose().to_vec());
        copy(revision, self.whole.iter().map(|(key, value)| ((*key).to_owned(), text(value))))
    }
}

/// The copy of the operator's values among these, under a revision.
pub fn copy(revision: Option<&str>, values: impl IntoIterator<Item = (String, ByteString)>) -> ByteString {
    let values = values.into_iter().filter(|(found, _)| keys().any(|key| key == found));
    let written = Written { revision: revision.map(str::to_owned), values: values.collect() };
    ByteString(serde_json::to_vec(&written).unwrap_or_default())
}

/// Notes on the operator's Secret, as it is on the server, whether it has to be read before anything is decided about it. Then its
/// values may be forgotten.
pub fn judge(secret: &mut Secret) {
    let is_in_doubt = !is_fixed(secret) && Verdict::of_secret(secret) != Verdict::AsWritten;
    let annotations = &mut secret.metadata.annotations;
    if is_in_doubt {
        annotations.get_or_insert_default().insert(IN_DOUBT.to_owned(), "true".to_owned());
    } else if let Some(found) = annotations {
        found.remove(IN_DOUBT);
    }
}

/// Whether somebody changed what was written into the operator's Secret, and it can be put right.
pub fn is_changed(secret: &Secret) -> bool {
    !is_fixed(secret) && matches!(Verdict::of_secret(secret), Verdict::Changed(_))
}

/// Whether nobody can change its values any more. Such a one takes no copy either, and needs none.
fn is_fixed(secret: &Secret) -> bool {
    secret.immutable == Some(true)
}

/// The keys that the operator writes. Whoever adds one has to tell it from what somebody put in: a copy that an operator from before
/// wrote under the same revision lacks it.
fn keys() -> impl Iterator<Item = &'static str> {
    Credential::ALL.into_iter().flat_map(|credential| credential.keys().iter().copied())
}

/// The copy as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    /// Of the Secret that has these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    /// By key.
    values: BTreeMap<String, ByteString>,
}

/// What is to be said of the operator's Secret, by all that it holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All of it is as it was written.
    AsWritten,
    /// No copy belongs to it.
    Unheld,
    /// Somebody wrote over the copy.
    Torn,
    /// Somebody changed values, or the revision.
    Changed(Former),
}

/// What stood there before somebody changed it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Former {
    /// What differs; `None` was not there.
    pub(super) values: BTreeMap<&'static str, Option<Hidden>>,
    pub(super) revision: Option<String>,
}

impl Verdict {
    /// By its revision, and by what stands under a key.
    pub(super) fn of<'a>(revision: Option<&str>, value: impl Fn(&str) -> Option<&'a [u8]>) -> Self {
        let Some(copy) = value(names::secret::WRITTEN) else { return Self::Unheld };
        let Ok(copy) = serde_json::from_slice::<Written>(copy) else { return Self::Torn };
        let mut values = BTreeMap::new();
        for key in keys() {
            let former = copy.values.get(key).map(|former| former.0.as_slice());
            if former != value(key) {
                values.insert(key, former.map(|former| Hidden::new(former.to_vec())));
            }
        }
        let is_same = copy.revision.as_deref() == revision;
        if values.is_empty() && is_same {
            return Self::AsWritten;
        }
        // Other values under another revision are those of an operator that keeps no copy. Either alone is nobody's of us, and none
        // of us takes the revision off.
        if !values.is_empty() && !is_same && revision.is_some() {
            return Self::Unheld;
        }
        Self::Changed(Former { values, revision: copy.revision })
    }

    fn of_secret(secret: &Secret) -> Self {
        let annotations = secret.metadata.annotations.as_ref();
        let revision = annotations.and_then(|found| found.get(names::secret::REVISION));
        let data = secret.data.as_ref();
        Self::of(revision.map(String::as_str), |key| data?.get(key).map(|value| value.0.as_slice()))
    }
}

#[cfg(test)]
impl NewCredentials {
    /// Writes all of it as the operator does; another revision is this one.
    pub(crate) fn write(&self, own: &mut Secret, another: &str) {
        let revision = match &self.revision {
            Revision::Another => Some(another.to_owned()),
            Revision::Same(revision) => revision.clone(),
        };
        let data = own.data.get_or_insert_default();
        for (key, value) in &self.values {
            data.remove(*key);
            data.extend(value.iter().map(|value| ((*key).to_owned(), ByteString(value.expose().to_vec()))));
        }
        data.insert(names::secret::WRITTEN.to_owned(), self.copy(revision.as_deref()));
        let annotations = own.metadata.annotations.get_or_insert_default();
        annotations
            .extend(self.taken.iter().map(|taken| (names::secret::TAKEN_FROM.to_owned(), taken.clone())));
        annotations.remove(names::secret::REVISION);
        annotations.extend(revision.map(|revision| (names::secret::REVISION.to_owned(), revision)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// As the operator wrote it: both logins, by the revision "r".
    fn written() -> Secret {
        let values = ["pg-user", "pg-password", "http-user", "http-password"];
        let mut data: BTreeMap<String, ByteString> = values
            .iter()
            .map(|key| ((*key).to_owned(), ByteString(format!("{key}!").into_bytes())))
            .collect();
        data.insert("theirs".to_owned(), ByteString(b"x".to_vec()));
        data.insert(names::secret::WRITTEN.to_owned(), copy(Some("r"), data.clone()));
        let metadata = json!({ "annotations": { names::secret::REVISION: "r", IN_DOUBT: "forged" } });
        Secret { data: Some(data), ..serde_json::from_value(json!({ "metadata": metadata })).unwrap() }
    }

    fn put(secret: &mut Secret, key: &str, value: Option<&[u8]>) {
        let data = secret.data.get_or_insert_default();
        data.remove(key);
        data.extend(value.map(|value| (key.to_owned(), ByteString(value.to_vec()))));
    }

    fn revise(secret: &mut Secret, revision: Option<&str>) {
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.remove(names::secret::REVISION);
        annotations.extend(revision.map(|text| (names::secret::REVISION.to_owned(), text.to_owned())));
    }

    fn rotate(secret: &mut Secret, revision: Option<&str>) {
        revise(secret, revision);
        put(secret, "pg-password", Some(b"y"));
    }

    fn changed(values: &[(&'static str, Option<&str>)]) -> Verdict {
        let hidden = |value: &str| Hidden::new(value.as_bytes().to_vec());
        let values = values.iter().map(|(key, value)| (*key, value.map(hidden))).collect();
        Verdict::Changed(Former { values, revision: Some("r".to_owned()) })
    }

    fn check(what: &str, hand: fn(&mut Secret), expected: &Verdict) {
        let mut secret = written();
        hand(&mut secret);
        assert_eq!(Verdict::of_secret(&secret), *expected, "{what}");
        assert_eq!(is_changed(&secret), matches!(expected, Verdict::Changed(_)), "{what}");
        judge(&mut secret);
        let is_in_doubt = secret.metadata.annotations.unwrap_or_default().contains_key(IN_DOUBT);
        assert_eq!(is_in_doubt, *expected != Verdict::AsWritten, "{what}");
    }

    #[test]
    fn a_value_that_is_not_as_it_was_written_is_noticed() {
        check("nothing", |_| {}, &Verdict::AsWritten);
        check("what is not ours", |found| put(found, "theirs", Some(b"y")), &Verdict::AsWritten);
        let one = changed(&[("pg-password", Some("pg-password!"))]);
        check("a password", |found| put(found, "pg-password", Some(b"y")), &one);
        check("a password that is taken out", |found| put(found, "pg-password", None), &one);
        let user = changed(&[("http-user", Some("http-user!"))]);
        check("a user", |found| put(found, "http-user", Some(b"")), &user);
        check(
            "a key that is put in",
            |found| put(found, "ilp-keys", Some(b"y")),
            &changed(&[("ilp-keys", None)]),
        );
        let two = [("pg-user", Some("pg-user!")), ("http-password", Some("http-password!"))];
        let both = |found: &mut Secret| {
            put(found, "pg-user", Some(b"y"));
            put(found, "http-password", None);
        };
        check("two of them", both, &changed(&two));
    }

    #[test]
    fn a_revision_and_a_copy_that_are_not_as_they_were_written_are_noticed() {
        check("the revision", |found| revise(found, Some("s")), &changed(&[]));
        check("no revision", |found| revise(found, None), &changed(&[]));
        let one = changed(&[("pg-password", Some("pg-password!"))]);
        check("neither of both", |found| rotate(found, None), &one);
        check("another operator's", |found| rotate(found, Some("s")), &Verdict::Unheld);
        check("no copy", |found| put(found, names::secret::WRITTEN, None), &Verdict::Unheld);
        check("another copy", |found| put(found, names::secret::WRITTEN, Some(b"y")), &Verdict::Torn);
        check("nothing in it", |found| found.data = None, &Verdict::Unheld);
        let bare = |found: &mut Secret| {
            found.metadata.annotations = None;
            found.data.as_mut().unwrap().retain(|key, _| key == names::secret::WRITTEN);
        };
        let all = ["pg-user", "pg-password", "http-user", "http-password"];
        let was = all.map(|key| format!("{key}!"));
        let all: Vec<_> = all.into_iter().zip(was.iter().map(|was| Some(was.as_str()))).collect();
        check("everything but the copy", bare, &changed(&all));
    }

    #[test]
    fn what_nobody_can_change_is_not_doubted() {
        let found = |immutable: Option<bool>| {
            let mut secret = Secret { immutable, ..written() };
            put(&mut secret, "pg-password", None);
            let is_changed = is_changed(&secret);
            judge(&mut secret);
            (is_changed, secret.metadata.annotations.unwrap().contains_key(IN_DOUBT))
        };
        assert_eq!([None, Some(false), Some(true)].map(found), [(true, true), (true, true), (false, false)]);
    }

    #[test]
    fn a_secret_from_before_revisions_may_be_held_too() {
        let mut secret = written();
        let held = copy(None, secret.data.clone().unwrap());
        put(&mut secret, names::secret::WRITTEN, Some(&held.0));
        revise(&mut secret, None);
        assert_eq!(Verdict::of_secret(&secret), Verdict::AsWritten);
        put(&mut secret, "pg-user", Some(b"y"));
        assert!(is_changed(&secret));
        revise(&mut secret, Some("s"));
        assert_eq!(Verdict::of_secret(&secret), Verdict::Unheld, "another operator's rotation");
    }

    #[test]
    fn the_copy_holds_our_keys_alone() {
        let secret = written();
        let copy: Value = serde_json::from_slice(&secret.data.unwrap()[names::secret::WRITTEN].0).unwrap();
        let keys: Vec<&String> = copy["values"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["http-password", "http-user", "pg-password", "pg-user"]);
        assert_eq!((&copy["revision"], &copy["values"]["pg-user"]), (&json!("r"), &json!("cGctdXNlciE=")));
    }
}
