//! From one run state to another and back: machines come and go, the disk is the same one, and a restart stops the pod once.
//! The test stands in for the machine that joins and for Kubernetes' own controllers.

use cloud::{InstanceState, Volume, key};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use resources::{Phase, QuestDB, names};
use serde_json::{Value, json};
use testkit::eventually;

use super::rig::{PATIENCE, Rig};

const NAME: &str = "states";

/// A database of this test and how far its wish came.
struct Subject {
    rig: Rig,
    database: String,
    seq: i64,
}

impl Subject {
    /// Another wish for the database, as the provisioner applies it.
    async fn wish(&mut self, change: impl FnOnce(&mut Value)) {
        self.seq += 1;
        let mut object = self.rig.unique(NAME, &self.database, self.seq);
        object["spec"]["storage"]["provisioned"] = json!(self.seq > 1);
        change(&mut object["spec"]);
        self.rig.provision(&object).await.unwrap();
    }

    async fn wish_run_state(&mut self, run_state: &str) {
        let run_state = run_state.to_owned();
        self.wish(move |spec| spec["runState"] = json!(run_state)).await;
    }

    /// Waits until the newest wish was carried out in full.
    async fn carried_out(&self, end: Phase) -> QuestDB {
        let api = self.rig.as_admin();
        eventually(PATIENCE, &format!("seq {} carried out", self.seq), async || {
            let found = api.get(NAME).await.ok()?;
            let status = found.status.as_ref()?;
            let done = status.instruction.as_ref().is_some_and(|done| done.seq == self.seq);
            (done && status.phase == Some(end)).then_some(found)
        })
        .await
    }

    /// The machine of a generation, once it runs; it joins as a ready Node.
    async fn join(&self, generation: u64) {
        let text = generation.to_string();
        let instance = eventually(PATIENCE, &format!("machine {generation}"), async || {
            let all = self.rig.instances().await;
            assert!(all.len() < 2, "two machines of one database: {all:?}");
            all.into_iter().find(|found| {
                found.state == InstanceState::Running && found.tags.get(key::GENERATION) == Some(&text)
            })
        })
        .await;
        let nodes: Api<Node> = Api::all(self.rig.admin.clone());
        let name = names::node(&self.database[28..], generation);
        let labels = json!({
            names::LABEL_DATABASE: self.database, names::LABEL_NAME: NAME, names::LABEL_NAMESPACE: self.rig.namespace,
        });
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "providerID": format!("aws:///{}/{}", instance.zone, instance.id) },
        }))
        .unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    }

    fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.rig.admin.clone(), &self.rig.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.rig.admin.clone(), &self.rig.namespace)
    }

    /// The StatefulSet, once its pods would carry (or lack) this nonce.
    async fn set(&self, nonce: Option<&str>) -> StatefulSet {
        eventually(PATIENCE, &format!("a StatefulSet with nonce {nonce:?}"), async || {
            let set = self.sets().get_opt(NAME).await.unwrap()?;
            let metadata = set.spec.as_ref()?.template.metadata.as_ref()?;
            let found = metadata.annotations.as_ref()?.get(names::RESTART).map(String::as_str);
            (found == nonce && set.metadata.deletion_timestamp.is_none()).then_some(set)
        })
        .await
    }

    /// The StatefulSet's controller sees its newest form and, where there is none, makes the pod.
    async fn play_controller(&self, nonce: Option<&str>) -> Pod {
        let set = self.set(nonce).await;
        let status = json!({"status": {"replicas": 1, "observedGeneration": set.metadata.generation}});
        self.sets().patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        let name = format!("{NAME}-0");
        if let Some(pod) = self.pods().get_opt(&name).await.unwrap() {
            return pod;
        }
        let template = serde_json::to_value(&set.spec.unwrap().template).unwrap();
        let mut pod = json!({ "metadata": template["metadata"], "spec": template["spec"] });
        pod["metadata"]["name"] = json!(name);
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// The one volume there is.
    async fn volume(&self) -> Volume {
        let mut all = self.rig.volumes().await;
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    async fn no_machine(&self) {
        eventually(PATIENCE, "the end of the machine", async || {
            self.rig.instances().await.is_empty().then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_stops_and_returns_keeps_its_disk() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    let database = uuid::Uuid::now_v7().hyphenated().to_string();
    let mut subject = Subject { rig, database, seq: 0 };
    subject.wish_run_state("Running").await;
    subject.join(1).await;
    subject.play_controller(None).await;
    let (born, claims) = (subject.volume().await, subject.rig.admin.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(claims, &subject.rig.namespace);
    let claim = async || claims.get(&names::claim(NAME)).await.unwrap().metadata.uid;
    let first_claim = claim().await;

    for (away, end, generation) in [("Paused", Phase::Paused, 2), ("Deleted", Phase::Deleted, 3)] {
        subject.wish_run_state(away).await;
        // Nothing runs the pod: its end is the kubelet's word.
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        eventually(PATIENCE, "the end of the StatefulSet", async || {
            subject.sets().get_opt(NAME).await.unwrap().is_none().then_some(())
        })
        .await;
        let _ = subject.pods().delete(&format!("{NAME}-0"), &at_once).await;
        subject.no_machine().await;
        subject.carried_out(end).await;
        assert_eq!(
            (subject.volume().await.id, claim().await),
            (born.id.clone(), first_claim.clone()),
            "{away}"
        );

        subject.wish_run_state("Running").await;
        subject.join(generation).await;
        subject.play_controller(None).await;
        let back = subject.volume().await;
        assert_eq!((&back.id, &back.zone), (&born.id, &born.zone), "{away} and back");
        assert_eq!(back.tags.get(key::GENERATION), Some(generation.to_string().as_str()));
        assert_eq!(claim().await, first_claim, "{away} and back");
    }

    let before = subject.play_controller(None).await;
    subject.wish(|spec| spec["restartNonce"] = json!("once")).await;
    subject.play_controller(Some("once")).await;
    eventually(PATIENCE, "the end of the pod that ran before", async || {
        let pod = subject.pods().get_opt(&format!("{NAME}-0")).await.unwrap();
        pod.is_none_or(|pod| pod.metadata.uid != before.metadata.uid).then_some(())
    })
    .await;
    let after = subject.play_controller(Some("once")).await;
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(subject.volume().await.id, born.id);
    let machines = subject.rig.instances().await;
    let generations: Vec<_> =
        machines.iter().filter_map(|machine| machine.tags.get(key::GENERATION)).collect();
    assert_eq!(generations, ["3"], "a restart needs no other machine");
    subject.wish_run_state("Purged").await;
    subject.no_machine().await;
    subject.rig.end().await;
}
