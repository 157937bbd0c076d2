//! The fence over every verb that can write, zombies, and two versions of the translator.

use domain::{Position, RunState};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use resources::names;
use serde_json::{Value, json};
use testkit::{Random, eventually};
use wire::OutcomeKind;

use super::bulkhead::behind_a_front;
use super::definitions::{definition, install, remove};
use super::rig::{PATIENCE, Rig, name};
use crate::front::Act;

const NAME: &str = "fenced";
const ROUNDS: usize = 120;
/// Writes that are taken at least: with fewer, little was tried, and there are more rounds.
const TAKEN: usize = ROUNDS / 60 + 1;
/// Rounds after which it is no accident that so few were taken.
const MOST_ROUNDS: usize = 20 * ROUNDS;
/// The highest number that a position can have.
const MOST: i64 = 9_007_199_254_740_991;

/// A position as the fence compares it.
type Place = (i64, i64, i64);

/// A managed resource under the fence alone: no admission policy, and an administrator who writes.
struct Fenced {
    client: kube::Client,
    api: Api<DynamicObject>,
    version: String,
}

impl Fenced {
    fn body(&self, (epoch, seq, render): Place, content: u64) -> Value {
        json!({
            "apiVersion": self.version, "kind": "QuestDB", "metadata": {"name": NAME},
            "spec": {
                "instruction": {"id": "i", "databaseId": "0192f3a4-5b6c-7d8e-9f00-112233445566", "epoch": epoch,
                    "seq": seq, "render": render, "hash": format!("h{content}")},
                "version": "9.3.4",
                "storage": {"sizeGib": 50},
                "config": {"cairo.max.uncommitted.rows": content.to_string()},
            },
        })
    }

    async fn now(&self) -> (Place, Value) {
        let object = self.api.get(NAME).await.unwrap();
        let spec = object.data["spec"].clone();
        let number = |field: &str| spec["instruction"][field].as_i64().expect("a position stands for ever");
        ((number("epoch"), number("seq"), number("render")), spec)
    }

    /// One write of a random kind. Whether it succeeds is the server's business.
    async fn write(&self, random: &mut Random) -> &'static str {
        let ((epoch, seq, render), spec) = self.now().await;
        let near = |random: &mut Random, around: i64| match random.below(9) {
            0 => i64::MAX,
            1 => MOST + 1,
            2 => 0,
            3 => MOST,
            _ => around + i64::try_from(random.below(3)).unwrap() - 1,
        };
        // Mostly near what stands: what is far off is refused for simpler reasons. After each epoch there is another.
        let place = match random.below(4) {
            0 => {
                let drawn = Some(near(random, epoch)).filter(|drawn| *drawn != MOST);
                (drawn.unwrap_or(epoch + 1), near(random, seq), near(random, render))
            }
            1 if seq == MOST => (epoch + 1, 1, 1),
            1 => (epoch, seq + 1, render),
            2 => (epoch, seq, near(random, render)),
            _ => (epoch, near(random, seq), render),
        };
        let mut body = self.body(place, random.below(3));
        match random.below(6) {
            0 => drop(body["spec"].as_object_mut().unwrap().remove("instruction")),
            1 => body["spec"]["instruction"] = Value::Null,
            2 => body["spec"] = spec,
            _ => {}
        }
        self.send(random, body).await
    }

    async fn send(&self, random: &mut Random, body: Value) -> &'static str {
        let (ours, theirs) = (PatchParams::apply(names::PROVISIONER), PatchParams::apply("somebody"));
        let api = &self.api;
        let patch =
            async |params: &PatchParams, patch: Patch<Value>| drop(api.patch(NAME, params, &patch).await);
        match random.below(10) {
            0 | 1 => {
                patch(&ours.force(), Patch::Apply(body)).await;
                "apply"
            }
            2 => {
                patch(&theirs.force(), Patch::Apply(body)).await;
                "apply of another, forced"
            }
            3 => {
                patch(&theirs, Patch::Apply(body)).await;
                "apply of another"
            }
            4 => {
                patch(&PatchParams::default(), Patch::Merge(body)).await;
                "merge patch"
            }
            5 => {
                let part = random.pick(&["seq", "epoch", "render", "hash"]).unwrap();
                let change = json!({"spec": {"instruction": {*part: body["spec"]["instruction"][part]}}});
                patch(&PatchParams::default(), Patch::Merge(change)).await;
                "merge patch of a part"
            }
            6 => {
                let operations = match random.below(3) {
                    0 => json!([{"op": "remove", "path": "/spec/instruction"}]),
                    1 => json!([{"op": "replace", "path": "/spec", "value": body["spec"]}]),
                    _ => json!([{"op": "add", "path": "/spec/config", "value": {"a": "b"}}]),
                };
                self.json_patch(&operations).await;
                "json patch"
            }
            7 => {
                let mut object = api.get(NAME).await.unwrap();
                object.data["spec"] = body["spec"].clone();
                drop(api.replace(NAME, &PostParams::default(), &object).await);
                "replace"
            }
            8 => {
                let mut object = api.get(NAME).await.unwrap();
                object.data = json!({"spec": body["spec"], "status": {"phase": "Ready"}});
                drop(api.replace_status(NAME, &PostParams::default(), &object).await);
                "replace of the status"
            }
            _ => {
                drop(api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(body)).await);
                "merge patch of the status"
            }
        }
    }
}

impl Fenced {
    async fn json_patch(&self, operations: &Value) {
        let request = axum::http::Request::patch(format!("{}/{NAME}", self.api.resource_url()))
            .header("content-type", "application/json-patch+json")
            .body(serde_json::to_vec(operations).unwrap());
        drop(self.client.request_text(request.unwrap()).await);
    }
}

async fn position_never_falls(seed: u64, fenced: &Fenced) {
    let mut random = Random::new(seed);
    let first = fenced.body((1, 1, 1), 0);
    let params = PatchParams::apply(names::PROVISIONER).force();
    fenced.api.patch(NAME, &params, &Patch::Apply(first)).await.unwrap();
    let (mut stood, mut moved, mut round) = (fenced.now().await, 0, 0);
    while round < ROUNDS || moved < TAKEN {
        assert!(round < MOST_ROUNDS, "seed {seed}: only {moved} writes were taken");
        let verb = fenced.write(&mut random).await;
        let stands = fenced.now().await;
        let what = format!("seed {seed}, round {round}, {verb}: {stood:?} became {stands:?}");
        assert!(stands.0 >= stood.0, "{what}");
        assert!(stands.0 > stood.0 || stands.1 == stood.1, "equal position, other content: {what}");
        assert!([stands.0.0, stands.0.1, stands.0.2].iter().all(|number| *number <= MOST), "{what}");
        moved += usize::from(stands.0 > stood.0);
        stood = stands;
        round += 1;
    }
    // Not wedged, not even by the highest position of an epoch, which is refused where it stands already: the next epoch is taken.
    let epoch = stood.0.0;
    let highest = fenced.body((epoch, MOST, MOST), 8);
    drop(fenced.api.patch(NAME, &params, &Patch::Apply(highest)).await);
    assert_eq!(fenced.now().await.0, (epoch, MOST, MOST), "seed {seed}");
    let next = fenced.body((epoch + 1, 1, 1), 9);
    fenced.api.patch(NAME, &params, &Patch::Apply(next)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_verb_takes_a_resource_back() {
    let client = testkit::client(&testkit::bare_cluster().kubeconfig).await.unwrap();
    let group = format!("{}.questdb.io", testkit::unique("g"));
    let definition = definition(&group, false);
    install(&client, &definition).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "QuestDB"));
    for seed in [1, 2, 3, u64::from(std::process::id())] {
        let namespace = testkit::temporary_namespace(&client, "fencing").await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        // Of a kind that is not served yet one object is just not there, whoever asks for it. A list is answered once it is served.
        let served = async || api.list(&ListParams::default()).await.ok();
        eventually(PATIENCE, "the definition", served).await;
        let (client, version) = (client.clone(), format!("{group}/v1"));
        let fenced = Fenced { client, api: api.clone(), version };
        position_never_falls(seed, &fenced).await;
        api.delete(NAME, &DeleteParams::default()).await.unwrap();
    }
    remove(&client, &definition).await;
}

/// An apply that was taken on its way before is let through after a newer one, and after a deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_that_was_held_back_changes_nothing_when_it_comes() {
    for newest in [RunState::Running, RunState::Deleted] {
        let (rig, front) = behind_a_front().await;
        let zombie = rig.start(&["--call-timeout", "50"]);
        let first = rig.instruction(1);
        rig.publish(&first).await;
        rig.outcome(&first, OutcomeKind::Applied).await;
        front.set(|seen| if seen.is_apply() { Act::Hold } else { Act::Pass });
        let mut second = first.clone();
        second.position = Position { epoch: 1, seq: 2 };
        second.desired.run_state = RunState::Paused;
        rig.publish(&second).await;
        front.fired(1).await;
        // Another process, which does not know of it, goes on.
        let third = after(&second, 3, RunState::Running);
        let fourth = after(&second, 4, newest);
        let near = rig.other_credentials("bare", &testkit::bare_cluster().server);
        let heir = rig.start_apart(&near);
        for instruction in [&third, &fourth] {
            rig.publish(instruction).await;
            rig.resource(instruction, instruction.position.seq).await;
        }
        let before = rig.resource(&first, 4).await;
        front.release();
        let outcome = rig.outcome(&second, OutcomeKind::Superseded).await;
        assert!(outcome.message.contains("1/4"), "{}", outcome.message);
        assert_eq!(rig.resource(&first, 4).await, before, "nothing was changed by the late one");
        zombie.stop().await;
        heir.stop().await;
    }
}

fn after(instruction: &wire::Instruction, seq: i64, run_state: RunState) -> wire::Instruction {
    let mut next = instruction.clone();
    next.position = Position { epoch: 1, seq };
    next.desired.run_state = run_state;
    next
}

/// A newer program renders the instruction otherwise. Ours meets it again and again and leaves it alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newer_rendering_of_an_instruction_stays() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let instruction = rig.instruction(4);
    rig.publish(&instruction).await;
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    let client = testkit::client(&testkit::bare_cluster().provisioner_kubeconfig).await.unwrap();
    let api: Api<resources::QuestDB> = Api::namespaced(client, &format!("qdb-{}", rig.tenant));
    let mut newer = rig.resource(&instruction, 4).await;
    newer.metadata.managed_fields = None;
    newer.metadata.resource_version = None;
    newer.spec.instruction.as_mut().unwrap().render = names::RENDER + 1;
    newer.spec.config.insert("of.the.newer.program".to_owned(), "1".to_owned());
    let params = PatchParams::apply(names::PROVISIONER).force();
    let newest = api.patch(&name(&instruction), &params, &Patch::Apply(&newer)).await.unwrap();
    for round in 2..5 {
        rig.publish(&instruction).await;
        eventually(PATIENCE, "another outcome", async || {
            (rig.told(instruction.database) >= round).then_some(())
        })
        .await;
        api.patch(&name(&instruction), &params, &Patch::Apply(&newer)).await.unwrap();
    }
    let said = rig.heard.about(instruction.database);
    for gossip in said {
        if let wire::Said::Outcome(outcome) = gossip.said {
            assert_eq!(outcome.kind, OutcomeKind::Applied, "no conflict: {outcome:?}");
        }
    }
    let stands = rig.resource(&instruction, 4).await;
    assert_eq!(stands.metadata.resource_version, newest.metadata.resource_version, "no flapping");
    rig.count("select count(*) from dead_letters", "0").await;
    running.stop().await;
}

/// Two programs in the middle of a roll, each of which reads every record: neither undoes what the other has rendered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_program_beside_a_newer_one_undoes_no_rendering() {
    let (rig, front) = behind_a_front().await;
    front.render_anew();
    let older = rig.start_apart(&rig.other_credentials("bare", &testkit::bare_cluster().server));
    let instruction = rig.instruction(4);
    rig.publish(&instruction).await;
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    let rendered = async |by: i64| {
        let resource = rig.resource(&instruction, 4).await;
        (resource.spec.instruction.as_ref()?.render == by).then_some(resource)
    };
    eventually(PATIENCE, "what the older one renders", async || rendered(names::RENDER).await).await;
    let newer = rig.start(&[]);
    let newest =
        eventually(PATIENCE, "what the newer one renders", async || rendered(names::RENDER + 1).await).await;
    assert!(newest.spec.config.contains_key("of.the.newer.program"), "{:?}", newest.spec.config);
    let outcomes = || {
        let said = rig.heard.about(instruction.database).into_iter();
        let outcomes = said.filter_map(|gossip| match gossip.said {
            wire::Said::Outcome(outcome) => Some(outcome.kind),
            wire::Said::Observation(_) => None,
        });
        outcomes.collect::<Vec<_>>()
    };
    for round in 1..=3 {
        let both = async || (outcomes().len() >= 2 * round).then_some(());
        eventually(PATIENCE, "the word of both", both).await;
        rig.publish(&instruction).await;
    }
    eventually(PATIENCE, "the last word of both", async || (outcomes().len() >= 8).then_some(())).await;
    // Both say so of each of four; whoever loses a partition for a moment says it once more.
    assert!(outcomes().iter().all(|kind| *kind == OutcomeKind::Applied), "no conflict: {:?}", outcomes());
    let stands = rig.resource(&instruction, 4).await;
    assert_eq!(stands.metadata.resource_version, newest.metadata.resource_version, "no flapping");
    rig.count("select count(*) from dead_letters", "0").await;
    older.stop().await;
    newer.stop().await;
}
