//! Somebody who has a hand in the objects of a database: takes them away, and puts others of their names there that say
//! something else.

use std::collections::VecDeque;
use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, PostParams};
use resources::names;
use serde_json::{Value, json};
use testkit::{Random, eventually};

use super::super::edits::{self, OBJECTS};
use super::super::rig::{PATIENCE, Rig};
use super::super::subject::Subject;

/// How often each object is replaced in all: who writes a field more often is told, and not fought.
const OFTEN: usize = 2;
/// What makes another database of what is in these is not this one's fault: who loses its credentials gets others, and a claim
/// that is made anew does not bind.
const SPARED: [&str; 2] = ["Secret", "PersistentVolumeClaim"];

type Object = (&'static str, &'static str, &'static str, &'static str);

/// The objects that are meddled with.
fn objects() -> Vec<Object> {
    OBJECTS.into_iter().filter(|(_, _, kind, _)| !SPARED.contains(kind)).collect()
}

/// What an object is made to say: where, under which name, and what.
fn theirs(kind: &str) -> (&'static str, &'static str, Value) {
    match kind {
        "ConfigMap" => ("/data", "server.conf", json!("theirs")),
        "Service" => ("/spec/selector", "app", json!("theirs")),
        "StatefulSet" => ("/spec", "replicas", json!(0)),
        "NetworkPolicy" => ("/spec", "policyTypes", json!(["Ingress"])),
        "PodDisruptionBudget" => ("/spec", "maxUnavailable", json!(1)),
        other => panic!("nobody meddles with {other}"),
    }
}

/// One of them.
pub(super) struct Hand {
    rig: Arc<Rig>,
    of: String,
    random: Random,
    next: VecDeque<Object>,
}

impl Hand {
    pub(super) fn of(subject: &Subject, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut next = VecDeque::new();
        for _ in 0..OFTEN {
            let mut all = objects();
            random.shuffle(&mut all);
            next.extend(all);
        }
        Self { rig: Arc::clone(&subject.rig), of: subject.name.clone(), random, next }
    }

    /// Takes the next object away and at once puts another one of its name there, which says something else; nothing where
    /// somebody is quicker. One that is about to be made is waited for.
    pub(super) async fn replace(&mut self, is_made: bool) {
        let Some(object) = self.next.pop_front() else { return };
        let (api, name) = self.find(object);
        let found = if is_made { Some(there(&api, &name).await) } else { api.get_opt(&name).await.unwrap() };
        let Some(found) = found else { return };
        let another = another(found, object.2);
        if api.delete(&name, &DeleteParams::default()).await.is_ok() {
            let _ = api.create(&PostParams::default(), &another).await;
        }
    }

    /// Takes an object away, and once more as soon as it is there again; then it comes again.
    pub(super) async fn take_twice(&mut self) {
        let object = *self.random.pick(&objects()).unwrap();
        let (api, name) = self.find(object);
        for _ in 0..2 {
            let taken = there(&api, &name).await.metadata.uid;
            let _ = api.delete(&name, &DeleteParams::default()).await;
            eventually(PATIENCE, &format!("another {name}"), async || {
                let found = api.get_opt(&name).await.unwrap()?;
                (found.metadata.uid != taken).then_some(())
            })
            .await;
        }
    }

    /// Asserts that nothing is left of what it did.
    pub(super) async fn is_undone(&self) {
        for object in objects() {
            let (api, name) = self.find(object);
            let found = serde_json::to_value(api.get(&name).await.unwrap()).unwrap();
            let (place, field, value) = theirs(object.2);
            assert_ne!(found.pointer(place).map(|found| &found[field]), Some(&value), "{found:#}");
            assert!(found["metadata"]["annotations"][names::APPLIED].is_string(), "{found:#}");
        }
    }

    fn find(&self, object: Object) -> (Api<DynamicObject>, String) {
        (edits::api(&self.rig, object), edits::name(&self.of, object.3))
    }
}

async fn there(api: &Api<DynamicObject>, name: &str) -> DynamicObject {
    eventually(PATIENCE, &format!("{name} to be there"), async || api.get_opt(name).await.unwrap()).await
}

/// Another object of the same name and labels.
fn another(found: DynamicObject, kind: &str) -> DynamicObject {
    let DynamicObject { types, metadata, mut data } = found;
    let fields = data.as_object_mut().unwrap();
    fields.remove("status");
    // A Service gets an address of its own, unless it is to have none.
    let spec = fields.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec.filter(|spec| spec.get("clusterIP") != Some(&json!("None"))) {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    let (place, field, value) = theirs(kind);
    data.pointer_mut(place).unwrap()[field] = value;
    let ObjectMeta { name, namespace, labels, .. } = metadata;
    let metadata = ObjectMeta { name, namespace, labels, ..ObjectMeta::default() };
    DynamicObject { types, metadata, data }
}
