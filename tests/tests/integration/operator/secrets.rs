//! Credentials that others give: taken over from Secrets on a real API server, brought into force by one restart that was told
//! before, and shown to nobody. The test stands in for the machine, the kubelet and Kubernetes' own controllers.

mod overwritten;

use axum::http::Method;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use resources::names::{self, condition};
use resources::{ChangeMeans, Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::rig::PATIENCE;
use super::subject::Subject;
use crate::front::{Front, Seen};

/// A value that must be nowhere but in Secrets.
const CANARY: &str = "canary-zebra-31";
/// A point of the curve P-256.
const POINT: (&str, &str) =
    ("6w2L1tE1rC2R0dQiQzbQMCq0TajjF1aiqozpZBgM1So", "STTek4Ug1b1XzcccmPkGCcr3BozE9TwgwlzC2orQ1JA");

impl Subject {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.rig.admin.clone(), &self.rig.namespace)
    }

    /// Somebody writes a Secret with these values and no others, for whom its annotations say.
    async fn give(&self, name: &str, annotations: Value, data: Value) {
        let api = self.secrets();
        let before = api.get_opt(name).await.unwrap();
        let mut metadata = json!({ "name": name, "annotations": annotations });
        if let Some(before) = &before {
            metadata["resourceVersion"] = json!(before.metadata.resource_version);
        }
        let secret = serde_json::from_value(json!({ "metadata": metadata, "stringData": data })).unwrap();
        let written = match before {
            Some(_) => api.replace(name, &PostParams::default(), &secret).await,
            None => api.create(&PostParams::default(), &secret).await,
        };
        written.unwrap();
    }

    async fn login(&self, name: &str, password: &str) {
        let annotations = json!({ names::SECRET_OF: self.name, names::secret::TYPE: "psql" });
        self.give(name, annotations, json!({ "username": "ada", "password": password })).await;
    }

    /// The operator's Secret holds this, or nothing, under a key.
    async fn holds(&self, key: &str, value: Option<&str>) {
        let own = names::credentials(&self.name);
        eventually(PATIENCE, &format!("{key} to be {}", value.is_some()), async || {
            let found = self.secrets().get(&own).await.ok()?.data?;
            let found = found.get(key).map(|bytes| String::from_utf8(bytes.0.clone()).unwrap());
            (found.as_deref() == value).then_some(())
        })
        .await;
    }

    /// Another pod than this one serves, and nothing is left to do.
    async fn restarted(&self, before: &Pod) -> Pod {
        let after = eventually(PATIENCE, "another pod", async || {
            let pod = self.play_controller(None).await;
            (pod.metadata.uid != before.metadata.uid).then_some(pod)
        })
        .await;
        self.answer().await;
        self.rests().await;
        after
    }

    async fn rests(&self) -> QuestDB {
        let api = self.rig.as_admin();
        eventually(PATIENCE, "nothing left to do", async || {
            let found = api.get(&self.name).await.ok()?;
            let status = found.status.as_ref()?;
            (status.phase == Some(Phase::Ready) && status.pending.is_empty()).then_some(found)
        })
        .await
    }

    /// What is said against Secrets.
    async fn refused(&self, words: &[&str]) {
        let api = self.rig.as_admin();
        eventually(PATIENCE, &format!("a condition with {words:?}"), async || {
            let conditions = api.get(&self.name).await.ok()?.status?.conditions;
            let found = conditions.iter().find(|found| found.type_ == condition::CREDENTIALS_ACCEPTED)?;
            let all = words.iter().all(|word| found.message.contains(word));
            (found.status == "False" && all).then_some(())
        })
        .await;
    }

    async fn accepted(&self) {
        let api = self.rig.as_admin();
        eventually(PATIENCE, "nothing against the Secrets", async || {
            let conditions = api.get(&self.name).await.ok()?.status?.conditions;
            let found = conditions.iter().find(|found| found.type_ == condition::CREDENTIALS_ACCEPTED)?;
            (found.status == "True").then_some(())
        })
        .await;
    }

    /// What was handed out by an operator that died before it noted where goes, as nobody asks for it, and the note that it was
    /// begun goes after it.
    async fn loses_what_was_begun(&self, id: &str) {
        let api = self.secrets();
        let uid = self.rig.as_admin().get(&self.name).await.unwrap().metadata.uid.unwrap();
        let handed_out = names::drawn_key(&self.name, id);
        self.give(&handed_out, json!({ names::RESOURCE: uid }), json!({ "auth.json": CANARY })).await;
        let own = names::credentials(&self.name);
        let noted = async || {
            let annotations = api.get(&own).await.unwrap().metadata.annotations.unwrap();
            serde_json::from_str::<Value>(&annotations[names::secret::TAKEN_FROM]).unwrap()
        };
        let mut begun = noted().await;
        begun["begun"] = json!([id]);
        let annotations = json!({ names::secret::TAKEN_FROM: begun.to_string() });
        let patch = json!({ "metadata": { "annotations": annotations } });
        api.patch(&own, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        eventually(PATIENCE, "a key that nobody noted to go", async || {
            let gone = api.get_opt(&handed_out).await.unwrap().is_none();
            (gone && noted().await.get("begun").is_none()).then_some(())
        })
        .await;
    }

    fn service_ports(service: &Service) -> Vec<i32> {
        service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).map(|port| port.port).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_given_is_told_brought_into_force_and_shown_to_nobody() {
    let mut subject = Subject::new(&unique("secrets")).await;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.serving().await;
    let first = subject.pod().await;
    // Of what names no database nothing is read.
    subject.give("foreign", json!({}), json!({ "password": "x" })).await;

    subject.login("own", CANARY).await;
    let second = subject.restarted(&first).await;
    subject.holds("pg-password", Some(CANARY)).await;
    subject.holds("pg-user", Some("ada")).await;
    told_before_it_was_done(&front);

    // The same at another version restarts nothing, and another password once.
    subject
        .give(
            "own",
            json!({ names::SECRET_OF: subject.name, names::secret::TYPE: "psql", "a": "b" }),
            json!({ "username": "ada", "password": CANARY }),
        )
        .await;
    subject.login("other", "rival").await;
    subject.refused(&["other", "own", "psql"]).await;
    subject.holds("pg-password", Some(CANARY)).await;
    subject.secrets().delete("other", &DeleteParams::default()).await.unwrap();
    subject.accepted().await;
    assert_eq!(subject.pod().await.metadata.uid, second.metadata.uid, "restarted for the same password");
    subject
        .give("own", json!({ names::SECRET_OF: subject.name, names::secret::TYPE: "psql" }), json!({}))
        .await;
    subject.refused(&["own", "username"]).await;
    subject.holds("pg-password", Some(CANARY)).await;
    let canary = format!("{CANARY}-2");
    subject.login("own", &canary).await;
    subject.restarted(&second).await;
    subject.holds("pg-password", Some(&canary)).await;

    let read =
        front.seen(|seen| seen.method == Method::GET && !seen.is_watch() && seen.path.contains("/secrets/"));
    assert!(
        read.iter().all(|seen| !seen.path.contains("/foreign")),
        "a Secret that concerns nobody was read"
    );
    let metadata = front.seen(|seen| seen.path.contains("/secrets?") && !seen.path.contains("labelSelector"));
    assert!(!metadata.is_empty(), "nobody looked for Secrets");
    shown_to_nobody(&subject, &front, (&operator.log(), &operator.metrics().await)).await;
    subject.purge().await;
}

/// A restart stands in status before values are written and before the pod is stopped.
fn told_before_it_was_done(front: &Front) {
    let all = front.seen(|_| true);
    let place = |what: &dyn Fn(&Seen) -> bool| all.iter().position(what).expect("it was asked for");
    let told = place(&|seen| seen.path.contains("/status") && seen.body.contains("/spec/credentials"));
    // A Secret whose creation is done again, as its watch tells late of it, is completed with no value.
    let has_values =
        |seen: &Seen| seen.path.contains("-credentials?") && seen.body.contains(names::secret::PG_PASSWORD);
    let written = place(&|seen| seen.method == Method::PATCH && has_values(seen));
    let stopped = place(&|seen| seen.method == Method::DELETE && seen.path.contains("/pods/"));
    assert!(told < written && written < stopped, "told {told}, written {written}, stopped {stopped}");
    let pending: Value = serde_json::from_str(&all[told].body).unwrap();
    assert_eq!(pending["status"]["pending"][0]["means"], json!(ChangeMeans::Restart));
}

/// Neither the resource nor events, log, metrics or what was sent to anything but Secrets hold a value, plain or encoded.
async fn shown_to_nobody(subject: &Subject, front: &Front, (log, metrics): (&str, &str)) {
    let resource = subject.rig.as_admin().get(&subject.name).await.unwrap();
    let events: Api<Event> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let events = events.list(&ListParams::default()).await.unwrap();
    assert!(
        !events.items.is_empty() && log.contains("SetCredentials") && metrics.contains("slipway_operator")
    );
    let mut sent = String::new();
    for seen in front.seen(|seen| !seen.path.contains("/secrets")) {
        sent += &seen.path;
        sent += &seen.body;
    }
    let shown = [
        ("the resource", serde_json::to_string(&resource).unwrap()),
        ("an event", serde_json::to_string(&events).unwrap()),
        ("the log", log.to_owned()),
        ("a metric", metrics.to_owned()),
        ("a request", sent),
    ];
    for (what, text) in shown {
        for value in [CANARY, "Y2FuYXJ5LXplYnJhLTMx", "rival"] {
            assert!(!text.contains(value), "{what} shows {value}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_that_moves_is_heard_by_both_databases() {
    let mut one = Subject::new(&unique("one")).await;
    let mut other = Subject::within(&one.rig, &unique("other"));
    let _operator = one.rig.start().await;
    one.serving().await;
    let first = one.pod().await;
    one.login("shared", "first").await;
    let second = one.restarted(&first).await;
    other.wish_run_state("Running").await;
    other.holds("http-user", Some("admin")).await;

    other.login("shared", "second").await;
    other.holds("pg-password", Some("second")).await;
    // Nobody could come in without a password: the last one stays.
    one.holds("pg-password", Some("first")).await;
    one.rests().await;
    one.login("alone", "third").await;
    one.restarted(&second).await;
    one.holds("pg-password", Some("third")).await;
    one.rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_opens_the_line_protocol_and_its_private_half_is_handed_out_once() {
    let mut subject = Subject::new(&unique("keys")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let services: Api<Service> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let ports = async || Subject::service_ports(&services.get(&subject.name).await.unwrap());
    assert!(!ports().await.contains(&9009), "open without a key");
    let first = subject.pod().await;
    let (x, y) = POINT;
    let key = json!({ "kty": "EC", "crv": "P-256", "kid": "theirs", "d": CANARY, "x": x, "y": y });
    let annotations = json!({ names::SECRET_OF: subject.name, names::secret::TYPE: "ilp" });
    subject.give("keys", annotations, json!({ "auth.json": key.to_string() })).await;
    let second = subject.restarted(&first).await;
    let line = format!("theirs ec-p-256-sha256 {x} {y}\n");
    subject.holds("ilp-keys", Some(&line)).await;
    assert!(ports().await.contains(&9009), "shut with a key");
    assert!(
        subject.rig.groups().await[0].ingress.iter().all(|rule| rule.from_port != 9009),
        "nobody is allowed in"
    );

    subject.secrets().delete("keys", &DeleteParams::default()).await.unwrap();
    let third = subject.restarted(&second).await;
    subject.holds("ilp-keys", None).await;
    assert!(!ports().await.contains(&9009), "open without a key");

    subject.wish(|spec| spec["credentials"] = json!({ "ilp": { "drawn": ["k1"] } })).await;
    let fourth = subject.restarted(&third).await;
    let handed_out = names::drawn_key(&subject.name, "k1");
    let secret = subject.secrets().get(&handed_out).await.unwrap();
    let jwk: Value = serde_json::from_slice(&secret.data.unwrap()["auth.json"].0).unwrap();
    let [d, x, y] = ["d", "x", "y"].map(|field| jwk[field].as_str().unwrap().to_owned());
    let line = format!("k1 ec-p-256-sha256 {x} {y}\n");
    subject.holds("ilp-keys", Some(&line)).await;
    let own = subject.secrets().get(&names::credentials(&subject.name)).await.unwrap();
    let values = own.data.unwrap().into_values().map(|bytes| String::from_utf8(bytes.0).unwrap());
    assert!(values.into_iter().all(|value| !value.contains(&d)), "the private half reaches the pod");
    // Fetched, and gone: it is neither needed nor made again.
    subject.secrets().delete(&handed_out, &DeleteParams::default()).await.unwrap();
    subject
        .wish(|spec| {
            spec["credentials"] = json!({ "ilp": { "drawn": ["k1"] } });
            spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] });
        })
        .await;
    subject.carried_out(Phase::Ready).await;
    assert!(subject.secrets().get_opt(&handed_out).await.unwrap().is_none(), "drawn twice");
    assert_eq!(subject.pod().await.metadata.uid, fourth.metadata.uid);
    subject.holds("ilp-keys", Some(&line)).await;
    let rules = &subject.rig.groups().await[0].ingress;
    assert!(rules.iter().any(|rule| rule.from_port == 9009), "{rules:?}");
    subject.loses_what_was_begun("k2").await;
    subject.holds("ilp-keys", Some(&line)).await;
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_the_spec_names_needs_no_annotation() {
    let mut subject = Subject::new(&unique("named")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let first = subject.pod().await;
    subject.wish(|spec| spec["credentials"] = json!({ "psqlReadonly": { "secretName": "mine" } })).await;
    subject.refused(&["spec.credentials.psqlReadonly", "mine", "not there"]).await;
    subject.give("mine", json!({}), json!({ "username": "reader", "password": "reads" })).await;
    let second = subject.restarted(&first).await;
    subject.holds("pg-readonly-password", Some("reads")).await;
    let environment = second.spec.unwrap().containers.remove(0).env.unwrap();
    let named = |name: &str| environment.iter().any(|found| found.name == name);
    assert!(named("QDB_PG_READONLY_USER") && named("QDB_PG_READONLY_PASSWORD_FILE"));
    assert!(!named("QDB_PG_READONLY_PASSWORD"), "a password is in the environment");
    // Another one is heard of, too.
    let before = subject.pod().await;
    subject.give("mine", json!({}), json!({ "username": "reader", "password": "more" })).await;
    let third = subject.restarted(&before).await;
    subject.holds("pg-readonly-password", Some("more")).await;
    // Credentials deleted by hand are drawn anew, and QuestDB learns them.
    let own = names::credentials(&subject.name);
    subject.secrets().delete(&own, &DeleteParams::default()).await.unwrap();
    subject.restarted(&third).await;
    subject.holds("pg-readonly-password", Some("more")).await;
    subject.purge().await;
}
