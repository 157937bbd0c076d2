//! Which Secrets name which database, and in which keys of it were handed out, kept by what a watch tells of all Secrets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use plan::secrets::{Claim, claim, concerned};
use resources::QuestDB;

/// Secrets by database.
#[derive(Debug, Default)]
pub(super) struct Annotated(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    current: Table,
    /// What a list has shown so far.
    next: Table,
}

#[derive(Debug, Default)]
struct Table {
    claims: HashMap<ObjectRef<QuestDB>, BTreeMap<String, Claim>>,
    /// Whose a Secret is, by its namespace and name.
    owners: HashMap<(String, String), ObjectRef<QuestDB>>,
}

impl Annotated {
    /// Takes an event in; which databases are to be looked at. One that lost a Secret is as much among them as one that got it.
    pub(super) fn take_in(&self, event: &Event<PartialObjectMeta<Secret>>) -> Vec<ObjectRef<QuestDB>> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => {
                tables.next = Table::default();
                Vec::new()
            }
            Event::InitApply(object) => {
                tables.next.put(&object.metadata, whose(&object.metadata));
                Vec::new()
            }
            Event::InitDone => {
                let former = mem::take(&mut tables.current);
                tables.current = mem::take(&mut tables.next);
                tables.current.differing(&former)
            }
            Event::Apply(object) => tables.current.put(&object.metadata, whose(&object.metadata)),
            Event::Delete(object) => tables.current.put(&object.metadata, None),
        }
    }

    /// The Secrets of a database, sorted by name.
    pub(super) fn of(&self, database: &ObjectRef<QuestDB>) -> Vec<Claim> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.current.claims.get(database).into_iter().flat_map(|claims| claims.values().cloned()).collect()
    }
}

impl Table {
    /// Notes whose a Secret is from now on; whom that concerns.
    fn put(&mut self, metadata: &ObjectMeta, owner: Option<ObjectRef<QuestDB>>) -> Vec<ObjectRef<QuestDB>> {
        if owner.is_none() && self.owners.is_empty() {
            // In most clusters no Secret names a database, and there are many.
            return Vec::new();
        }
        let claim = claim(metadata);
        let key = (metadata.namespace.clone().unwrap_or_default(), claim.origin.name.clone());
        let former = match &owner {
            Some(owner) => self.owners.insert(key, owner.clone()),
            None => self.owners.remove(&key),
        };
        if let Some(former) = &former
            && let Some(claims) = self.claims.get_mut(former)
        {
            claims.remove(&claim.origin.name);
            if claims.is_empty() {
                self.claims.remove(former);
            }
        }
        if let Some(owner) = &owner {
            self.claims.entry(owner.clone()).or_default().insert(claim.origin.name.clone(), claim);
        }
        let concerned: HashSet<_> = former.into_iter().chain(owner).collect();
        concerned.into_iter().collect()
    }

    /// The databases of which another table says something else.
    fn differing(&self, other: &Self) -> Vec<ObjectRef<QuestDB>> {
        let all: HashSet<_> = self.claims.keys().chain(other.claims.keys()).collect();
        let differs =
            |database: &&&ObjectRef<QuestDB>| self.claims.get(**database) != other.claims.get(**database);
        all.iter().filter(differs).map(|database| (*database).clone()).collect()
    }
}

fn whose(metadata: &ObjectMeta) -> Option<ObjectRef<QuestDB>> {
    Some(ObjectRef::new(concerned(metadata)?).within(metadata.namespace.as_deref()?))
}

#[cfg(test)]
mod tests {
    use resources::names;
    use serde_json::json;

    use super::*;

    fn secret(name: &str, of: Option<&str>, version: &str) -> PartialObjectMeta<Secret> {
        let annotations = of.map(|of| json!({ names::SECRET_OF: of, names::secret::TYPE: "psql" }));
        let metadata = json!({ "name": name, "namespace": "n", "uid": name, "resourceVersion": version,
            "annotations": annotations });
        PartialObjectMeta {
            metadata: serde_json::from_value(metadata).unwrap(),
            ..PartialObjectMeta::default()
        }
    }

    struct Rig(Annotated);

    impl Rig {
        fn tell(&self, event: &Event<PartialObjectMeta<Secret>>) -> Vec<String> {
            let mut names: Vec<_> = self.0.take_in(event).into_iter().map(|owner| owner.name).collect();
            names.sort_unstable();
            names
        }

        fn of(&self, database: &str) -> Vec<String> {
            let claims = self.0.of(&ObjectRef::new(database).within("n")).into_iter();
            claims.map(|claim| format!("{}@{}", claim.origin.name, claim.origin.version)).collect()
        }
    }

    #[test]
    fn an_annotation_that_goes_or_moves_concerns_both() {
        let rig = Rig(Annotated::default());
        assert_eq!(rig.tell(&Event::Apply(secret("s", Some("a"), "1"))), ["a"]);
        assert_eq!(rig.tell(&Event::Apply(secret("t", Some("a"), "2"))), ["a"]);
        assert_eq!(rig.of("a"), ["s@1", "t@2"]);
        assert_eq!(rig.tell(&Event::Apply(secret("s", Some("b"), "3"))), ["a", "b"]);
        assert_eq!((rig.of("a"), rig.of("b")), (vec!["t@2".to_owned()], vec!["s@3".to_owned()]));
        assert_eq!(rig.tell(&Event::Apply(secret("s", Some("b"), "4"))), ["b"]);
        assert_eq!(rig.tell(&Event::Apply(secret("s", None, "5"))), ["b"]);
        assert_eq!(rig.tell(&Event::Delete(secret("t", None, "6"))), ["a"]);
        assert!(rig.of("a").is_empty() && rig.of("b").is_empty());
        assert_eq!(rig.tell(&Event::Delete(secret("t", Some("a"), "6"))), [""; 0]);
    }

    #[test]
    fn of_what_concerns_no_database_nothing_is_kept() {
        let rig = Rig(Annotated::default());
        for event in [Event::Init, Event::InitApply(secret("x", None, "1")), Event::InitDone] {
            assert_eq!(rig.tell(&event), [""; 0]);
        }
        assert_eq!(rig.tell(&Event::Apply(secret("y", None, "1"))), [""; 0]);
        rig.tell(&Event::Apply(secret("s", Some("a"), "1")));
        rig.tell(&Event::Delete(secret("s", Some("a"), "1")));
        // The operator's own is no gift.
        rig.tell(&Event::Apply(secret("a-credentials", Some("a"), "1")));
        let tables = rig.0.0.lock().unwrap();
        assert!(tables.current.claims.is_empty() && tables.current.owners.is_empty(), "{tables:?}");
        assert!(tables.next.owners.is_empty());
    }

    #[test]
    fn a_list_concerns_those_for_whom_something_changed_meanwhile() {
        let rig = Rig(Annotated::default());
        for (name, owner) in [("s", "a"), ("t", "b"), ("u", "c")] {
            rig.tell(&Event::Apply(secret(name, Some(owner), "1")));
        }
        rig.tell(&Event::Init);
        for shown in [secret("s", Some("a"), "1"), secret("t", Some("d"), "2"), secret("u", None, "2")] {
            rig.tell(&Event::InitApply(shown));
        }
        assert_eq!(rig.of("b"), ["t@1"], "until the list is whole, what was known stands");
        assert_eq!(rig.tell(&Event::InitDone), ["b", "c", "d"]);
        assert_eq!((rig.of("a").len(), rig.of("b").len(), rig.of("d").len()), (1, 0, 1));
    }
}
