//! That an object was found to be as we intend it: whoever intends the same again, of the same object at the same version, need not
//! compare them again.
//!
//! *Invariant:* an agreement says nothing of another version of the object, so that an edit by hand is compared as ever, nor of
//! another intention. An API server whose data were set back may give a version twice: so whoever remembers agreements has all of
//! them found anew within a minute.

use std::fmt;

use kube::core::ObjectMeta;
use sha2::{Digest, Sha256};

/// A hash of an object's version and of an intention.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Agreement([u8; 32]);

impl Agreement {
    /// Of an object and an intention, by its digest and by what follows for it from other objects. Nothing of what has no version.
    pub fn of(object: &ObjectMeta, (digest, follows): (&[u8; 32], Option<&str>)) -> Option<Self> {
        let (uid, version) = (object.uid.as_deref()?, object.resource_version.as_deref()?);
        let mut hash = Sha256::new();
        hash.update(digest);
        for text in [uid, version].into_iter().chain(follows) {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        Some(Self(hash.finalize().into()))
    }
}

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0[..4]))
    }
}
