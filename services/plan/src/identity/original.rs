//! Of two resources whose status holds the same database: for which of them it was made. One that is brought back from a backup together
//! with its status, into another namespace while the first one is there, is believed as that one is. Only the disk tells them apart.
//!
//! *Invariant:* what tells is written by us alone or by who may write tags in AWS: `PersistentVolumes`, which lie in no namespace, and
//! what is in EC2.

use std::fmt;

use cloud::Tags;
use k8s_openapi::api::core::v1::PersistentVolume;
use resources::names;

use super::doubt::whose;
use crate::Subject;

/// A resource that something names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// For which resource a disk was made, as far as something of it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MadeFor {
    /// For the one that is judged.
    This,
    /// For another one.
    Other(Named),
    /// It tells of none.
    Untold,
}

impl MadeFor {
    /// By its `PersistentVolume`: by the labels or, should somebody have changed those, by the claim that it is for.
    pub fn by_object(subject: &Subject, object: &PersistentVolume) -> Self {
        let labels = object.metadata.labels.as_ref();
        if subject.owns(labels) || subject.is_claimant(object) {
            return Self::This;
        }
        let label = |key: &str| labels?.get(key).cloned();
        let labelled = || {
            let (namespace, name) = (label(names::LABEL_NAMESPACE)?, label(names::LABEL_NAME)?);
            Some(Named { namespace, name })
        };
        let claimed = || {
            let claim = object.spec.as_ref()?.claim_ref.as_ref()?;
            let name = names::of_claim(claim.name.as_deref()?)?.to_owned();
            Some(Named { namespace: claim.namespace.clone()?, name })
        };
        Self::named(subject, labelled().or_else(claimed))
    }

    /// By its tags: whom somebody who may write them has named, else for whom we made it.
    pub fn by_tags(subject: &Subject, tags: &Tags) -> Self {
        let named = whose(tags).and_then(|told| told.strip_prefix(&subject.cluster)?.strip_prefix('/'));
        let named = named.and_then(|told| told.split_once('/'));
        // Accounts have rules of their own for what the console shows.
        let named = named
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'));
        let of = |(namespace, name): (&str, &str)| Named {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Self::named(subject, named.map(of))
    }

    fn named(subject: &Subject, named: Option<Named>) -> Self {
        match named {
            None => Self::Untold,
            Some(named) if named.namespace == subject.namespace && named.name == subject.name => Self::This,
            Some(named) => Self::Other(named),
        }
    }
}

/// Whether a `PersistentVolume` has the name that we give to the one of its volume.
pub fn is_named_by_us(object: &PersistentVolume) -> bool {
    let csi = object.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    csi.is_some_and(|csi| {
        object.metadata.name.as_ref() == Some(&names::persistent_volume(&csi.volume_handle))
    })
}

/// The other resources that disks of a database were made for, where none of them was made for this one.
pub fn made_for_others(disks: Vec<MadeFor>) -> Vec<Named> {
    if disks.contains(&MadeFor::This) {
        return Vec::new();
    }
    let other = |disk| match disk {
        MadeFor::Other(named) => Some(named),
        MadeFor::This | MadeFor::Untold => None,
    };
    disks.into_iter().filter_map(other).collect()
}

/// Why nothing is done for a resource whose database was made for another one, which stands for it as surely.
pub fn copy_of(subject: &Subject, original: &Named) -> String {
    let database = &subject.database;
    format!(
        "{original} stands for database {database} already, which status.databaseId names too, and its disk was made for that one: this is \
         a copy, as one that a backup brings back with its status; delete it, which takes nothing but the resource"
    )
}

#[cfg(test)]
mod tests {
    use cloud::key;
    use serde_json::{Value, json};

    use super::*;
    use crate::build;
    use crate::fixture::{subject, volume};

    fn other() -> MadeFor {
        MadeFor::Other(Named { namespace: "qdb-other".to_owned(), name: "trades".to_owned() })
    }

    /// The object of the disk of `qdb-other/trades`, the other resource of this database.
    fn theirs() -> Value {
        let owner = Subject { namespace: "qdb-other".to_owned(), name: "trades".to_owned(), ..subject() };
        build::persistent_volume(&owner, &volume(50)).body
    }

    #[test]
    fn the_object_of_a_disk_tells_for_whom_it_was_made_whichever_of_its_marks_is_left() {
        let check = |mut object: Value, change: fn(&mut Value), expected: MadeFor| {
            change(&mut object);
            let found = MadeFor::by_object(&subject(), &serde_json::from_value(object.clone()).unwrap());
            assert_eq!(found, expected, "{object}");
        };
        let own = || build::persistent_volume(&subject(), &volume(50)).body;
        check(own(), |_| {}, MadeFor::This);
        check(own(), |object| object["metadata"]["labels"] = Value::Null, MadeFor::This);
        check(own(), |object| object["spec"]["claimRef"] = Value::Null, MadeFor::This);
        let called =
            |object: &mut Value| object["metadata"]["labels"][names::LABEL_NAMESPACE] = json!("qdb-other");
        check(own(), called, MadeFor::This);
        let renumbered = |object: &mut Value| {
            object["metadata"]["labels"][names::LABEL_DATABASE] = json!("theirs");
            object["spec"]["claimRef"] = Value::Null;
        };
        check(own(), renumbered, MadeFor::This);

        check(theirs(), |_| {}, other());
        check(theirs(), |object| object["metadata"]["labels"] = Value::Null, other());
        check(theirs(), |object| object["spec"]["claimRef"] = Value::Null, other());
        let bare = |object: &mut Value| {
            object["metadata"]["labels"] = Value::Null;
            object["spec"]["claimRef"] = Value::Null;
        };
        check(theirs(), bare, MadeFor::Untold);
        let is_named = |object: &Value| is_named_by_us(&serde_json::from_value(object.clone()).unwrap());
        let mut clone = theirs();
        clone["metadata"]["name"] = json!("velero-clone-1");
        assert!(is_named(&theirs()) && !is_named(&clone));
        let of_nobody = |object: &mut Value| {
            object["metadata"]["labels"] = json!({});
            object["spec"]["claimRef"]["name"] = json!("something");
        };
        check(theirs(), of_nobody, MadeFor::Untold);
    }

    #[test]
    fn its_tags_tell_for_whom_a_disk_was_made_where_they_name_a_resource_of_this_cluster() {
        let check = |tags: Tags, expected: MadeFor| {
            assert_eq!(MadeFor::by_tags(&subject(), &tags), expected, "{tags:?}");
        };
        let named = |name: &str| Tags::new().named(name);
        check(named(&subject().display()), MadeFor::This);
        check(named("eu-west-1/qdb-other/trades"), other());
        check(named("eu-west-1/qdb-other/trades").with(key::FOR, subject().display()), MadeFor::This);
        check(named(&subject().display()).with(key::FOR, "eu-west-1/qdb-other/trades"), other());
        for name in [
            "",
            "trades",
            "eu-west-1/trades",
            "eu-west-1/a/b/c",
            "eu-west-12/a/b",
            "eu-west-1//b",
            "eu-west-1/a/",
        ] {
            check(named(name), MadeFor::Untold);
        }
        check(Tags::new(), MadeFor::Untold);
    }

    #[test]
    fn others_are_told_only_of_a_database_of_which_no_disk_was_made_for_this_one() {
        let named = Named { namespace: "qdb-other".to_owned(), name: "trades".to_owned() };
        assert_eq!(made_for_others(vec![MadeFor::Untold, other()]), std::slice::from_ref(&named));
        assert_eq!(made_for_others(vec![other(), MadeFor::This]), []);
        assert_eq!(made_for_others(vec![MadeFor::Untold]), []);
        assert_eq!(made_for_others(Vec::new()), []);
        let text = copy_of(&subject(), &named);
        assert!(text.starts_with("qdb-other/trades stands for database "), "{text}");
    }
}
