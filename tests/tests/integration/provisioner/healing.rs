//! The whole circle (Postgres, relay, provisioner, API server, observer, sink, sweep) heals what went astray, in a bounded
//! time, and leaves alone what it does not know.

use std::time::Duration;

use backend::doorbell::Doorbell;
use backend::metrics::Metrics;
use backend::relay::Relay;
use backend::sink::GossipSink;
use backend::sweep::decide::Rules;
use backend::sweep::{PAGE, Settings, Sweep};
use domain::{Desired, OperationKind, Position, RunState};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use resources::QuestDB;
use runtime::CancellationToken;
use serde_json::json;
use store::{Mint, NewDatabase, Terms};
use testkit::{eventually, unique};
use wire::Instruction;

use super::rig::{PATIENCE, Rig, name};
use crate::own::Own;
use crate::support::counted;

/// How the provisioners observe here: they ask in short order where the server stands, and a watch that ends soon is told before how
/// far it is.
pub(crate) const OFTEN: [&str; 4] = ["--list-check-period", "0.5", "--watch-timeout", "3"];
/// The bound on healing: listing, sweep, relay, apply and observation, each within their short periods, with room for two
/// busy processors.
pub(super) const HEALED: Duration = Duration::from_mins(2);

const SETTINGS: Settings = Settings {
    period: Duration::from_millis(300),
    cap: 20,
    page: PAGE,
    rules: Rules {
        grace: Duration::from_secs(1),
        again: Duration::from_secs(3),
        listing: Duration::from_secs(15),
        retention: Some(Duration::from_secs(2)),
    },
};

/// A rig with a backend.
pub(crate) struct World {
    pub(crate) rig: Rig,
    registry: runtime::Metrics,
    stop: CancellationToken,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(Rig::new().await).await
    }

    /// With a rig that was made before.
    pub(super) async fn on(rig: Rig) -> Self {
        let registry = runtime::Metrics::new(runtime::service!("test"));
        let (metrics, stop) = (Metrics::new(&registry), CancellationToken::new());
        let [instructions, gossip] = rig.topics.clone();
        let (store, doorbell) = (rig.store.clone(), Doorbell::default());
        let beat = |name: &str| runtime::Health::new().liveness.heartbeat(name, PATIENCE);
        let relay =
            Relay::new(store.clone(), rig.producer.clone(), instructions, doorbell.clone(), metrics.clone());
        tokio::spawn(relay.run(beat("relay"), counted(), stop.clone()));
        let sink = GossipSink::new(store.clone(), unique("sink"), &gossip, metrics.clone());
        let settings = bus::sink::Settings::new(rig.connection.clone(), &gossip, unique("sink"));
        tokio::spawn(backend::serve::consume(sink, settings, std::sync::Arc::default(), stop.clone()));
        let sweep = Sweep { store, gossip, doorbell, metrics, settings: SETTINGS };
        let retention = tokio::sync::watch::channel(SETTINGS.rules.retention).1;
        tokio::spawn(sweep.run(retention, beat("sweep"), stop.clone()));
        rig.store.ensure_tenant(&rig.tenant.parse().unwrap()).await.unwrap();
        Self { rig, registry, stop }
    }

    /// Asks for a database in `cluster`; gives it as its first instruction.
    pub(super) async fn create(&self, cluster: &str) -> Instruction {
        let mut first = self.rig.instruction(1);
        first.cluster = cluster.parse().unwrap();
        first.desired.name = unique("trades").parse().unwrap();
        let new =
            NewDatabase { id: first.database, tenant: first.tenant.clone(), cluster: first.cluster.clone() };
        let mut transaction = self.rig.store.begin().await.unwrap();
        transaction.create(&new, mint(OperationKind::Create, first.desired.clone())).await.unwrap();
        transaction.commit().await.unwrap();
        first
    }

    pub(super) async fn change(&self, of: &Instruction, edit: impl FnOnce(&mut Desired)) {
        let mut transaction = self.rig.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, of.database).await.unwrap().unwrap();
        let mut desired = locked.desired.clone();
        edit(&mut desired);
        transaction.change(&locked, mint(OperationKind::Update, desired)).await.unwrap();
        transaction.commit().await.unwrap();
    }

    pub(crate) async fn ask(&self, statement: &str) -> String {
        testkit::query(&self.rig.database_url, statement).await.unwrap()
    }

    /// A number out of the database, once it is as expected.
    pub(super) async fn count(&self, statement: &str, expected: &str) {
        self.rig.count(statement, expected).await;
    }

    /// Waits until what the cluster shows is what was minted, by Postgres' own belief.
    pub(super) async fn settled(&self, of: &Instruction) {
        self.is_settled(&of.database.to_string()).await;
    }

    /// The same of a database by its identity.
    pub(crate) async fn is_settled(&self, database: &str) {
        let seen = format!(
            "select count(*) from databases d join observations s on s.database_id = d.id \
             join cluster_observers o on o.cluster_id = d.cluster_id where d.id = '{database}' and s.present \
             and (s.epoch, s.seq) = (d.epoch, d.seq) and s.term = o.term and o.listed_term = o.term \
             and d.diverged_kind is null"
        );
        self.count(&seen, "1").await;
    }

    /// Cancelled with this world.
    pub(crate) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The newest term of a cluster's observer.
    pub(crate) async fn term(&self, cluster: &str) -> String {
        self.ask(&format!("select term from cluster_observers where cluster_id = '{cluster}'")).await
    }

    /// Waits until a later observer has listed everything.
    pub(crate) async fn listed_after(&self, cluster: &str, term: &str) {
        let later = format!(
            "select term > {term} and listed_term = term from cluster_observers where cluster_id = '{cluster}'"
        );
        self.count(&later, "t").await;
    }

    /// Waits until some turns of the sweep began and ended.
    pub(super) async fn turns(&self, number: u32) {
        let now: u32 = self.ask("select number from turns where name = 'sweep'").await.parse().unwrap();
        let enough = format!("select number > {} from turns where name = 'sweep'", now + number);
        self.count(&enough, "t").await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) fn mint(kind: OperationKind, desired: Desired) -> Mint {
    let terms = Terms::within(PATIENCE);
    Mint { kind, desired, actor: "test".to_owned(), traceparent: None, hash: wire::hash::of, terms }
}

/// The resource, once it is there and fits.
pub(super) async fn resource(
    api: &Api<QuestDB>,
    of: &Instruction,
    what: &str,
    fits: impl Fn(&QuestDB) -> bool,
) -> QuestDB {
    eventually(HEALED, what, async || api.get_opt(&name(of)).await.ok().flatten().filter(&fits)).await
}

pub(super) fn stands_at(object: &QuestDB, position: (i64, i64)) -> bool {
    object.spec.instruction.as_ref().is_some_and(|held| (held.epoch, held.seq) == position)
}

/// Deletes a resource by hand, as far as the policy lets anybody: it must seem to be of a deleted database.
pub(super) async fn delete_by_hand(api: &Api<QuestDB>, of: &Instruction) -> QuestDB {
    let status = json!({"status": {"phase": "Deleted"}});
    let before = api.patch_status(&name(of), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    api.delete(&name(of), &DeleteParams::default()).await.unwrap();
    before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_is_deleted_by_hand_comes_back() {
    let world = World::new().await;
    let running = world.rig.start(&OFTEN);
    let first = world.create("bare").await;
    let api = world.rig.api();
    resource(&api, &first, "the resource", |_| true).await;
    world.settled(&first).await;
    let before = delete_by_hand(&api, &first).await;
    let after = resource(&api, &first, "it again", |found| found.metadata.uid != before.metadata.uid).await;
    assert_eq!(json!(after.spec), json!(before.spec), "the same state at the same position");
    world.settled(&first).await;
    // The same while nobody looks: the next observer never knew of it.
    running.stop().await;
    delete_by_hand(&api, &first).await;
    let running = world.rig.start(&OFTEN);
    resource(&api, &first, "it again", |found| found.metadata.uid != after.metadata.uid).await;
    world.settled(&first).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_rows_are_noticed_and_what_is_left_of_them_wins() {
    let world = World::new().await;
    let running = world.rig.start(&OFTEN);
    let first = world.create("bare").await;
    let api = world.rig.api();
    resource(&api, &first, "the resource", |_| true).await;
    // What a lost transaction had published: a change of this database, and a database that was created.
    let mut lost = first.clone();
    lost.position = Position { epoch: 1, seq: 5 };
    lost.desired.version = "9.3.5".to_owned();
    world.rig.publish(&lost).await;
    let forgotten = world.rig.instruction(1);
    world.rig.publish(&forgotten).await;
    let repaired = resource(&api, &first, "what is left", |found| stands_at(found, (2, 2))).await;
    assert_eq!(repaired.spec.version, first.desired.version);
    world.settled(&first).await;
    let code = format!("select code from unclaimed where database_id = '{}' and", forgotten.database);
    world.count(&format!("{code} resolved_at is null"), "unknown_database").await;
    let ahead = format!("select code from unclaimed where database_id = '{}' and", first.database);
    world.count(&format!("{ahead} resolved_at is not null"), "ahead").await;
    world.turns(3).await;
    resource(&api, &forgotten, "the forgotten one, left alone", |found| stands_at(found, (1, 1))).await;
    assert_eq!(world.ask("select count(*) from audit where action = 'databases.repair'").await, "1");
    running.stop().await;
}

/// Somebody who may watch QuestDB resources as long as the binding is there.
async fn watcher(client: &kube::Client) -> (String, Api<ClusterRoleBinding>, ClusterRoleBinding) {
    let who = unique("watcher");
    let metadata = ObjectMeta { name: Some(who.clone()), ..ObjectMeta::default() };
    let may = PolicyRule {
        api_groups: Some(vec!["crd.questdb.io".to_owned()]),
        resources: Some(vec!["questdbs".to_owned()]),
        verbs: vec!["list".to_owned(), "watch".to_owned()],
        ..PolicyRule::default()
    };
    let role = ClusterRole { metadata: metadata.clone(), rules: Some(vec![may]), ..ClusterRole::default() };
    Api::<ClusterRole>::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    let group = "rbac.authorization.k8s.io".to_owned();
    let binding = ClusterRoleBinding {
        metadata,
        role_ref: RoleRef { api_group: group.clone(), kind: "ClusterRole".to_owned(), name: who.clone() },
        subjects: Some(vec![Subject {
            api_group: Some(group),
            kind: "User".to_owned(),
            name: who.clone(),
            namespace: None,
        }]),
    };
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    (who, bindings, binding)
}

impl World {
    /// Credentials of the cluster `bare` by which the administrator acts as somebody else.
    fn credentials_as(&self, who: &str) {
        let mut config = Kubeconfig::read_from(&testkit::bare_cluster().kubeconfig).unwrap();
        for auth in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
            auth.impersonate = Some(who.to_owned());
        }
        let text = serde_json::to_string(&config).unwrap();
        std::fs::write(self.rig.credentials.join("bare.kubeconfig"), text).unwrap();
    }

    async fn unlisted(&self, expected: bool) {
        let line = format!("clusters_unlisted{{cluster=\"bare\"}} {}", u8::from(expected));
        eventually(PATIENCE, &line, async || self.registry.encode().unwrap().contains(&line).then_some(()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_that_may_not_list_leads_to_no_sending_again() {
    let world = World::new().await;
    // Whoever takes the cluster anew could not list it, and would see nothing of what is done by hand.
    world.rig.keep_observers().await;
    let running = world.rig.start(&OFTEN);
    let first = world.create("bare").await;
    let api = world.rig.api();
    resource(&api, &first, "the resource", |_| true).await;
    world.settled(&first).await;
    // Read again by whoever may not apply it, it would be parked.
    world.rig.committed().await;
    running.stop().await;
    let (who, bindings, binding) = watcher(&world.rig.client).await;
    world.credentials_as(&who);
    let term = world.term("bare").await;
    // A watch that stays open, which nobody may begin anew either.
    let running = world.rig.start(&OFTEN[..2]);
    world.listed_after("bare", &term).await;
    world.settled(&first).await;
    world.unlisted(false).await;
    bindings.delete(&who, &DeleteParams::default()).await.unwrap();
    world.unlisted(true).await;
    let resends = format!("select resends from databases where id = '{}'", first.database);
    let before = world.ask(&resends).await;
    // Its watch is still open and tells of this; but whoever cannot list is not believed about what is not there.
    delete_by_hand(&api, &first).await;
    let missing = format!("select diverged_kind from databases where id = '{}'", first.database);
    world.count(&missing, "missing").await;
    world.turns(8).await;
    assert_eq!(world.ask(&resends).await, before);
    assert!(api.get_opt(&name(&first)).await.unwrap().is_none());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    world.unlisted(false).await;
    let more = format!("select resends > {before} from databases where id = '{}'", first.database);
    world.count(&more, "t").await;
    running.stop().await;
    bindings.delete(&who, &DeleteParams::default()).await.unwrap();
}

impl World {
    /// Reports what stands in the resource as carried out: purged, as the operator does when nothing is left.
    pub(super) async fn carried_out(&self, of: &Instruction, seq: i64) {
        let held = json!({"id": "", "epoch": 1, "seq": seq, "render": 1, "hash": ""});
        let status = json!({"status": {"phase": "Deleted", "instruction": held}});
        let params = PatchParams::default();
        self.rig.api().patch_status(&name(of), &params, &Patch::Merge(&status)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tombstone_goes_when_nothing_can_come_and_what_comes_all_the_same_is_purged() {
    let world = World::new().await;
    let running = world.rig.start(&OFTEN);
    let first = world.create("bare").await;
    let api = world.rig.api();
    resource(&api, &first, "the resource", |_| true).await;
    world.change(&first, |desired| desired.run_state = RunState::Purged).await;
    // Kept after the purge was asked for, so that nobody can say which of the two is the older.
    let letter = format!(
        "insert into dead_letters (topic, kafka_partition, kafka_offset, database_id, code, message, consumer) \
         values ('elsewhere', 0, 0, '{}', 'invalid', '', 'test')",
        first.database
    );
    world.ask(&letter).await;
    resource(&api, &first, "purged", |found| stands_at(found, (1, 2))).await;
    world.settled(&first).await;
    world.turns(8).await;
    assert_eq!(world.ask("select count(*) from tombstones").await, "0", "its purge was not carried out");
    world.carried_out(&first, 2).await;
    world.count("select count(*) from observations where (carried_epoch, carried_seq) = (1, 2)", "1").await;
    world.turns(8).await;
    assert_eq!(world.ask("select count(*) from tombstones").await, "0", "a dead letter may still be sent");
    assert!(api.get_opt(&name(&first)).await.unwrap().is_some());
    world.ask("delete from dead_letters").await;
    world.count("select count(*) from databases where purged_at is not null", "1").await;
    assert!(api.get_opt(&name(&first)).await.unwrap().is_none());
    world.count("select count(*) from tombstones", "0").await;
    // Somebody sends an old instruction all the same: it must not stay.
    world.rig.publish(&first).await;
    let again = resource(&api, &first, "purged again", |found| stands_at(found, (1, 2))).await;
    assert_eq!(json!(again.spec)["runState"], json!("Purged"));
    world.count("select count(*) from databases where purged_at is null", "1").await;
    world.carried_out(&first, 2).await;
    world.count("select count(*) from databases where purged_at is not null", "1").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_restored_from_a_backup_gets_all_that_it_lost() {
    restored(&OFTEN, async |_, _| {}).await;
}

/// By its version alone such a server cannot be told from one that lost nothing; no check of it comes within the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_cluster_is_noticed_although_its_version_has_passed_all_that_was_seen() {
    restored(&["--gossip-period", "1"], Own::written_past).await;
}

/// `then` is done as soon as the server is there again; it is told the greatest version that was seen of a resource.
async fn restored(arguments: &[&str], then: impl AsyncFn(&Own, u64)) {
    let world = World::new().await;
    let mut own = Own::start().await;
    std::fs::copy(&own.provisioner, world.rig.credentials.join("own.kubeconfig")).unwrap();
    world.rig.register_as("own", domain::ClusterState::Active).await;
    let running = world.rig.start(arguments);
    let (older, kept) = (world.create("own").await, world.create("own").await);
    let client = testkit::client(&own.admin).await.unwrap();
    let api: Api<QuestDB> = Api::namespaced(client, &format!("qdb-{}", world.rig.tenant));
    let is = async |of: &Instruction, what: &str, seq| {
        resource(&api, of, what, |found| stands_at(found, (1, seq))).await
    };
    is(&older, "the first", 1).await;
    let before = is(&kept, "the second", 1).await;
    own.back_up().await;
    world.change(&older, |desired| desired.storage.size_gib = 100).await;
    is(&older, "the first, changed", 2).await;
    let newer = world.create("own").await;
    let last = is(&newer, "the third, of which the backup knows nothing", 1).await;
    for of in [&older, &kept, &newer] {
        world.settled(of).await;
    }
    let term = world.term("own").await;
    own.restore().await;
    then(&own, last.metadata.resource_version.unwrap().parse().unwrap()).await;
    world.listed_after("own", &term).await;
    is(&older, "the change again", 2).await;
    is(&newer, "the third again", 1).await;
    let after = is(&kept, "the second as it was", 1).await;
    assert_eq!(after.metadata.uid, before.metadata.uid, "nothing was destroyed");
    for of in [&older, &kept, &newer] {
        world.settled(of).await;
    }
    running.stop().await;
}
