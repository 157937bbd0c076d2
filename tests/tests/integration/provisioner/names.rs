//! One name, taken and given back again and again by many at once: each database of it ends as it was asked for last, and
//! none of them writes into another one's resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use domain::{DatabaseId, OperationKind, RunState};
use futures::future::join_all;
use resources::QuestDB;
use store::NewDatabase;
use testkit::{Random, Watched, audit, eventually, unique};

use super::healing::{HEALED, OFTEN, World, mint};
use super::rig::Rig;
use crate::front::{Act, Front};

const NAMES: usize = 2;
const PEOPLE: u64 = 5;
const ACTIONS: usize = 14;
/// Rounds of all people after which it is no accident that too little happened.
const ROUNDS: u64 = 40;

impl World {
    /// Asks for a database of this name; nothing if it is taken.
    async fn take(&self, wanted: &str) -> Option<DatabaseId> {
        let mut first = self.rig.instruction(1);
        first.desired.name = wanted.parse().unwrap();
        let (tenant, cluster) = (first.tenant.clone(), first.cluster.clone());
        let new = NewDatabase { id: first.database, tenant, cluster };
        let mut transaction = self.rig.store.begin().await.unwrap();
        let created = transaction.create(&new, mint(OperationKind::Create, first.desired)).await;
        if matches!(created, Err(store::Error::Conflict(_))) {
            return None;
        }
        created.unwrap();
        transaction.commit().await.unwrap();
        Some(first.database)
    }

    /// Lets a living database grow, or gives it back. Whether it was living.
    async fn move_on(&self, id: DatabaseId, give_back: bool) -> bool {
        let mut transaction = self.rig.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, id).await.unwrap().unwrap();
        let mut desired = locked.desired.clone();
        if desired.run_state == RunState::Deleted {
            return false;
        }
        let kind = if give_back { OperationKind::Delete } else { OperationKind::Update };
        if give_back {
            desired.run_state = RunState::Deleted;
        } else {
            desired.storage.size_gib += 1;
        }
        transaction.change(&locked, mint(kind, desired)).await.unwrap();
        transaction.commit().await.unwrap();
        true
    }
}

/// Of each name the databases that had it, in order.
type Holders = Mutex<BTreeMap<String, Vec<DatabaseId>>>;

async fn person(world: &World, holders: &Holders, names: &[String], mut random: Random) -> [usize; 3] {
    let mut happened = [0; 3];
    for _ in 0..ACTIONS {
        let wanted = random.pick(names).unwrap();
        let newest = holders.lock().unwrap().get(wanted).and_then(|ids| ids.last().copied());
        let what = match (newest, random.below(3)) {
            (Some(id), 0) => world.move_on(id, true).await.then_some(0),
            (Some(id), 1) => world.move_on(id, false).await.then_some(1),
            _ => world.take(wanted).await.map(|id| {
                holders.lock().unwrap().entry(wanted.clone()).or_default().push(id);
                2
            }),
        };
        if let Some(at) = what {
            happened[at] += 1;
        }
    }
    happened
}

/// All people, again and again until enough of everything happened: what was given back, what grew, what was made.
async fn people(world: &World, holders: &Holders, names: &[String], seed: u64) -> [usize; 3] {
    let mut total = [0; 3];
    for round in 0..ROUNDS {
        let seeds = (0..PEOPLE).map(|one| (seed * 31 + one) * ROUNDS + round);
        let people = seeds.map(|seed| person(world, holders, names, Random::new(seed)));
        for happened in join_all(people).await {
            total = [total[0] + happened[0], total[1] + happened[1], total[2] + happened[2]];
        }
        if is_enough(total) {
            break;
        }
    }
    assert!(is_enough(total), "seed {seed}: hardly anything happened: {total:?}");
    total
}

const fn is_enough([deleted, grown, created]: [usize; 3]) -> bool {
    deleted > 3 && grown > 3 && created > NAMES + 3
}

/// The row of each database beside its resource: name, epoch, seq, hash, run state.
async fn rows(world: &World) -> BTreeSet<String> {
    let rows = "select id || ' ' || epoch || '/' || seq || ' ' || content_hash || ' ' || (desired->>'run_state') from databases";
    world.ask(rows).await.lines().map(ToOwned::to_owned).collect()
}

fn resource_row(resource: &QuestDB) -> String {
    let held = resource.spec.instruction.as_ref().unwrap();
    let run_state = format!("{:?}", resource.spec.run_state).to_lowercase();
    format!("{} {}/{} {} {run_state}", held.database_id, held.epoch, held.seq, held.hash)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_goes_from_hand_to_hand_is_never_mixed_up() {
    let rig = Rig::new().await;
    audit::begin(&rig.database_url).await.unwrap();
    let world = World::on(rig).await;
    let front = Front::of(testkit::bare_cluster()).await;
    world.rig.credentials_at("bare", front.url());
    let watched = Watched::start(&testkit::bare_cluster().kubeconfig, &format!("qdb-{}", world.rig.tenant))
        .await
        .unwrap();
    let seed = u64::from(std::process::id());
    // Some are parked on the way and drained later, so that they come in another order than they were asked for.
    let unwell = Mutex::new(Random::new(seed));
    // The first apply is one of them: however few there are, something was turned away.
    let first = AtomicBool::new(true);
    front.set(move |seen| {
        let ill = seen.is_apply() && (first.swap(false, Relaxed) || unwell.lock().unwrap().chance(35));
        if ill { Act::Answer(503, None) } else { Act::Pass }
    });
    let members = [world.rig.start(&OFTEN), world.rig.start(&OFTEN)];
    let names: Vec<String> = (0..NAMES).map(|_| unique("shared")).collect();
    let holders = Holders::default();
    let [deleted, grown, created] = people(&world, &holders, &names, seed).await;
    // People may be done before the members have joined their group.
    let fired = format!("seed {seed}: an apply that is turned away");
    eventually(HEALED, &fired, async || (front.harmed() > 0).then_some(())).await;
    front.release();

    let api = world.rig.api();
    let all = eventually(HEALED, "every resource as its row says", async || {
        let list = api.list(&kube::api::ListParams::default()).await.ok()?.items;
        let found: BTreeSet<String> = list.iter().map(resource_row).collect();
        (found == rows(&world).await).then_some(list)
    })
    .await;
    assert_eq!(all.len(), created);
    let living = world
        .ask("select count(*) - count(distinct name) from databases where desired->>'run_state' = 'running'")
        .await;
    assert_eq!(living, "0", "seed {seed}: two of one name live");
    for resource in &all {
        let held = resource.spec.instruction.as_ref().unwrap();
        let own = resource.metadata.name.as_deref().unwrap();
        assert!(
            held.database_id.ends_with(&own[own.len() - 8..]),
            "seed {seed}: {own} holds {}",
            held.database_id
        );
    }
    // Said again, all the old ones included, nothing moves: what was deleted before its name was taken again stays so.
    world.count("select count(*) from operations where ended_at is null", "0").await;
    assert_eq!(watched.wrong(), [""; 0], "seed {seed}");
    assert_eq!(audit::wrong(&world.rig.database_url).await.unwrap(), [""; 0], "seed {seed}");
    world.count("select count(*) from parked_instructions", "0").await;
    assert_eq!(world.ask("select count(*) from dead_letters").await, "0");
    println!("seed {seed}: {created} databases of {NAMES} names, {grown} changes, {deleted} deletions");
    for member in members {
        member.stop().await;
    }
}
