//! A database that a test leads through its life, standing in for the machine that joins, for the kubelet and for
//! Kubernetes' own controllers.

use std::sync::Arc;

use cloud::{Instance, InstanceState, Volume, key};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use resources::{Phase, QuestDB, names};
use serde_json::{Value, json};
use testkit::eventually;

use super::rig::{PATIENCE, Rig};

/// A database of this test and how far its wish came.
pub(super) struct Subject {
    pub(super) rig: Arc<Rig>,
    pub(super) name: String,
    pub(super) database: String,
    seq: i64,
    /// The newest wish.
    said: Value,
}

impl Subject {
    pub(super) async fn new(name: &str) -> Self {
        Self::within(&Arc::new(Rig::new().await), name)
    }

    /// Another one, beside others in their namespace.
    pub(super) fn within(rig: &Arc<Rig>, name: &str) -> Self {
        let database = uuid::Uuid::now_v7().hyphenated().to_string();
        Self { rig: Arc::clone(rig), name: name.to_owned(), database, seq: 0, said: Value::Null }
    }

    /// A database that serves; the test stands in for everybody else.
    pub(super) async fn serving(&mut self) -> QuestDB {
        self.wish_run_state("Running").await;
        self.served().await
    }

    /// What was wished for serves, by the test's help.
    pub(super) async fn served(&self) -> QuestDB {
        self.helped().await;
        self.carried_out(Phase::Ready).await
    }

    /// Everybody else does their part for a new database.
    pub(super) async fn helped(&self) {
        self.join(1).await;
        self.started().await;
    }

    /// Everybody but the machine does their part, once that has joined.
    pub(super) async fn started(&self) {
        self.play_controller(None).await;
        self.answer().await;
        let (volume, machine) = (self.volume().await, self.machines().await.remove(0));
        self.rig.aws.attach_volume(&volume.id, &machine.id, "/dev/sdf").await.unwrap();
    }

    /// The pod answers its probes.
    pub(super) async fn answer(&self) {
        let condition = |kind: &str| json!({ "type": kind, "status": "True" });
        let status = json!({ "status": { "conditions": [condition("PodScheduled"), condition("Ready")] } });
        let name = names::pod(&self.name);
        self.pods().patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await.unwrap();
    }

    /// Ends the database where others do their part.
    pub(super) async fn purge_with_others(&mut self) {
        self.wish_purged().await;
        self.carried_out(Phase::Deleted).await;
        self.rig.end().await;
    }

    pub(super) async fn wish_purged(&mut self) {
        let size = self.rig.as_admin().get(&self.name).await.unwrap().spec.storage.size_gib;
        self.wish(move |spec| {
            spec["runState"] = json!("Purged");
            spec["storage"]["sizeGib"] = json!(size);
        })
        .await;
    }

    /// Ends the database, by the test's help, so that its name is free again.
    pub(super) async fn purge(&mut self) {
        self.wish_purged().await;
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        eventually(PATIENCE, "the end of the StatefulSet", async || {
            self.sets().get_opt(&self.name).await.unwrap().is_none().then_some(())
        })
        .await;
        let _ = self.pods().delete(&names::pod(&self.name), &at_once).await;
        let volume = self.volume().await;
        for attachment in volume.live_attachments() {
            self.rig.aws.detach_volume(&volume.id, &attachment.instance).await.unwrap();
        }
        self.no_machine().await;
        self.rig.end().await;
    }

    /// The newest wish, said again.
    pub(super) async fn say_again(&self) {
        self.rig.provision(&self.said).await.unwrap();
    }

    /// Another wish for the database, as the provisioner applies it.
    pub(super) async fn wish(&mut self, change: impl FnOnce(&mut Value)) {
        self.seq += 1;
        let mut object = self.rig.unique(&self.name, &self.database, self.seq);
        object["spec"]["storage"]["provisioned"] = json!(self.seq > 1);
        change(&mut object["spec"]);
        self.rig.provision(&object).await.unwrap();
        self.said = object;
    }

    pub(super) async fn wish_run_state(&mut self, run_state: &str) {
        let run_state = run_state.to_owned();
        self.wish(move |spec| spec["runState"] = json!(run_state)).await;
    }

    /// Waits until the newest wish was carried out in full.
    pub(super) async fn carried_out(&self, end: Phase) -> QuestDB {
        let what = format!("seq {} carried out", self.seq);
        eventually(PATIENCE, &what, async || self.found_carried_out(end).await).await
    }

    /// Whether the newest wish was carried out in full.
    pub(super) async fn is_carried_out(&self, end: Phase) -> bool {
        self.found_carried_out(end).await.is_some()
    }

    /// The resource, if by that very look the newest wish was carried out in full.
    async fn found_carried_out(&self, end: Phase) -> Option<QuestDB> {
        let found = self.rig.as_admin().get_opt(&self.name).await.ok()??;
        let status = found.status.as_ref()?;
        let is_done = status.instruction.as_ref().is_some_and(|done| done.seq == self.seq);
        (is_done && status.phase == Some(end)).then_some(found)
    }

    /// The machine of a generation, once it runs; it joins as a ready Node.
    pub(super) async fn join(&self, generation: u64) {
        let instance = self.runs(generation).await;
        self.rig.node(&self.node(generation), &instance, (&self.database, &self.name)).await;
    }

    /// The same as a Node of which nobody says that it is ready.
    pub(super) async fn join_sick(&self, generation: u64) {
        let instance = self.runs(generation).await;
        let of = (self.database.as_str(), self.name.as_str());
        self.rig.sick_node(&self.node(generation), &instance, of).await.unwrap();
    }

    /// The name of the Node that the machine of a generation is told to be.
    pub(super) fn node(&self, generation: u64) -> String {
        names::node(&self.database[28..], generation)
    }

    async fn runs(&self, generation: u64) -> Instance {
        let text = generation.to_string();
        eventually(PATIENCE, &format!("machine {generation}"), async || {
            let all = self.machines().await;
            assert!(all.len() < 2, "two machines of one database: {all:?}");
            all.into_iter().find(|found| {
                found.state == InstanceState::Running && found.tags.get(key::GENERATION) == Some(&text)
            })
        })
        .await
    }

    pub(super) fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.rig.admin.clone(), &self.rig.namespace)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.rig.admin.clone(), &self.rig.namespace)
    }

    pub(super) async fn pod(&self) -> Pod {
        self.pods().get(&names::pod(&self.name)).await.unwrap()
    }

    /// The StatefulSet, once its pods would carry (or lack) this nonce.
    pub(super) async fn set(&self, nonce: Option<&str>) -> StatefulSet {
        eventually(PATIENCE, &format!("a StatefulSet with nonce {nonce:?}"), async || {
            let set = self.sets().get_opt(&self.name).await.unwrap()?;
            let metadata = set.spec.as_ref()?.template.metadata.as_ref()?;
            let found = metadata.annotations.as_ref()?.get(names::RESTART).map(String::as_str);
            (found == nonce && set.metadata.deletion_timestamp.is_none()).then_some(set)
        })
        .await
    }

    /// The StatefulSet's controller sees its newest form and, where there is none, makes the pod.
    pub(super) async fn play_controller(&self, nonce: Option<&str>) -> Pod {
        let set = self.set(nonce).await;
        let status = json!({"status": {"replicas": 1, "observedGeneration": set.metadata.generation}});
        self.sets().patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        let name = names::pod(&self.name);
        if let Some(pod) = self.pods().get_opt(&name).await.unwrap() {
            return pod;
        }
        let template = serde_json::to_value(&set.spec.unwrap().template).unwrap();
        let mut pod = json!({ "metadata": template["metadata"], "spec": template["spec"] });
        pod["metadata"]["name"] = json!(name);
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// The scheduler puts the pod on the machine of this generation.
    pub(super) async fn bind(&self, generation: u64) {
        let (name, node) = (names::pod(&self.name), names::node(&self.database[28..], generation));
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": node } });
        let made = PostParams::default();
        self.pods().create_subresource::<_, Value>("binding", &name, &made, &binding).await.unwrap();
    }

    /// The database has one of everything that costs or that clients find.
    pub(super) async fn exists_once(&self, served: &QuestDB) {
        let (machines, volumes) = (self.rig.instances().await, self.rig.volumes().await);
        assert_eq!((machines.len(), volumes.len()), (1, 1), "{machines:?} {volumes:?}");
        assert_eq!(self.rig.groups().await.len(), 1);
        let name = &served.status.as_ref().unwrap().dns.as_ref().unwrap().name;
        let records = self.rig.records(name).await;
        let addresses: Vec<_> = records.iter().filter(|record| record.kind == cloud::RecordKind::A).collect();
        assert_eq!(addresses.len(), 1, "{records:?}");
        assert!(addresses[0].values.len() == 1, "{records:?}");
    }

    /// The machines of the database that live.
    pub(super) async fn machines(&self) -> Vec<Instance> {
        let mut all = self.rig.instances().await;
        all.retain(|machine| machine.tags.get(key::DATABASE) == Some(&self.database));
        all
    }

    /// The one volume of the database.
    pub(super) async fn volume(&self) -> Volume {
        let mut all = self.rig.volumes().await;
        all.retain(|volume| volume.tags.get(key::DATABASE) == Some(&self.database));
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    pub(super) async fn no_machine(&self) {
        eventually(PATIENCE, "the end of the machine", async || {
            self.machines().await.is_empty().then_some(())
        })
        .await;
    }
}
