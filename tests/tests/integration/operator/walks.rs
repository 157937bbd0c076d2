//! Walks through wishes, some of which are left before they are carried out: in the end there is nothing by which a database
//! that went such a way can be told from one that was made by the last wish, neither in the cluster nor in AWS.
//!
//! By a seed that can be played again.

mod covered;
mod picture;
mod plain;
mod wish;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use cloud::ModificationState;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use resources::names::{self, condition};
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{Random, Spawned, eventually, unique};

use self::picture::Found;
use self::wish::Wish;
use super::foreign::{DEFINING, Kind, definition};
use super::hands::undefine;
use super::others::Others;
use super::process::Processes;
use super::rig::{PATIENCE, Rig, patiently};
use super::subject::Subject;
use crate::support::stack;

/// The seed with which the same walks are gone again.
const SEED: &str = "SLIPWAY_WALKS_SEED";
/// Walks at once. Each has a fresh database beside it.
const WALKS: usize = 6;
/// How long a wish may take among so many: a name that another took the place of is given back after half a minute, what failed
/// for good is tried again within five, and as long QuestDB is told of what it is to read again before it is restarted.
const LONG: Duration = Duration::from_mins(10);
/// Most differences of a walk that are shown.
const SHOWN: usize = 20;
/// Kinds of others that wishes ask for.
const KINDS: [Kind; 3] = [
    ("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor"),
    ("traefik.io", "v1alpha1", "ingressroutes", "IngressRoute"),
    ("traefik.io", "v1alpha1", "ingressroutetcps", "IngressRouteTCP"),
];

/// The name that a database has that asks for one of its own.
fn other_name(name: &str) -> String {
    format!("{name}-anew")
}

/// A database that goes a way, and one that is made by the last wish of that way.
struct Walk {
    wishes: Vec<Wish>,
    walker: Subject,
    fresh: Subject,
}

impl Walk {
    fn draw(rig: &Arc<Rig>, random: &mut Random) -> Self {
        let facts = stack().clusters.iter().find(|cluster| !cluster.zones.is_empty()).unwrap();
        let wishes = wish::walk(random, &rig.zones(), &facts.node_image);
        let [walker, fresh] = ["walks", "fresh"].map(|word| Subject::within(rig, &unique(word)));
        Self { wishes, walker, fresh }
    }

    /// The wishes one after the other, as people would read them.
    fn story(&self) -> String {
        let mut story = format!("the walk of {} beside {}:", self.walker.name, self.fresh.name);
        for Wish { spec, end, renamed, left_after, suspended, .. } in &self.wishes {
            let name = if *renamed { ", under another name" } else { "" };
            let time = match (suspended, left_after) {
                (true, _) => "left suspended".to_owned(),
                (false, Some(changes)) => format!("left after {changes} changes"),
                (false, None) => format!("until {}", end.as_str()),
            };
            let _ = write!(story, "\n  {time}{name}: {spec}");
        }
        story
    }

    /// Both to their end.
    async fn lead(&mut self) {
        let story = self.story();
        let last = [self.wishes.last().unwrap().in_full()];
        tokio::join!(go(&mut self.walker, &self.wishes, &story), go(&mut self.fresh, &last, &story));
    }

    /// What both do not have in common.
    async fn differences(&self, found: &Found, processes: &Processes) -> Option<String> {
        let picture = async |subject: &Subject| {
            let address = processes.address(&subject.name).to_string();
            picture::picture(found, subject, &address).await
        };
        let (walked, fresh) = (picture(&self.walker).await, picture(&self.fresh).await);
        picture::assert_whole(&fresh);
        let texts = picture::differences(walked, fresh);
        let first = texts.iter().take(SHOWN).fold(String::new(), |all, text| all + "\n    " + text);
        (!texts.is_empty()).then(|| format!("{}\n  {} differences:{first}", self.story(), texts.len()))
    }

    /// Both go, with all they have.
    async fn purge(&mut self) {
        let mut last = self.wishes.last().unwrap().in_full();
        last.end = Phase::Deleted;
        last.spec["runState"] = json!("Purged");
        last.spec["deletionProtection"] = json!(false);
        last.spec["storage"]["deletionPolicy"] = json!("Delete");
        let last = [last];
        let story = format!("the end of {} and {}", self.walker.name, self.fresh.name);
        tokio::join!(go(&mut self.walker, &last, &story), go(&mut self.fresh, &last, &story));
    }
}

async fn go(subject: &mut Subject, wishes: &[Wish], story: &str) {
    for (number, wish) in wishes.iter().enumerate() {
        say(subject, wish).await;
        let what = format!("wish {} of {} by {}: {story}", number + 1, wishes.len(), subject.name);
        reaches(subject, wish, &what).await;
    }
}

/// The wish, as the provisioner applies it. A database is known to have a disk once somebody has seen it.
async fn say(subject: &mut Subject, wish: &Wish) {
    let api = subject.rig.as_admin();
    let found = api.get_opt(&subject.name).await.unwrap();
    if found.is_some() {
        let annotations = json!({ names::PAUSE_RECONCILE: wish.suspended.then_some("true") });
        let note = json!({ "metadata": { "annotations": annotations } });
        api.patch(&subject.name, &PatchParams::default(), &Patch::Merge(&note)).await.unwrap();
    }
    let has_disk = |found: &QuestDB| {
        found.spec.storage.provisioned || found.status.as_ref().is_some_and(|status| status.volume.is_some())
    };
    let has_disk = found.as_ref().is_some_and(has_disk);
    if wish.changes_disk && has_disk {
        disk_rests(subject).await;
    }
    let mut spec = wish.spec.clone();
    spec["storage"]["provisioned"] = json!(has_disk);
    if wish.renamed {
        spec["network"]["hostname"] = json!(subject.rig.hostname(&other_name(&subject.name)));
    }
    subject
        .wish(|of| {
            let Value::Object(said) = spec else { panic!("a spec is an object") };
            of.as_object_mut().unwrap().extend(said);
        })
        .await;
}

/// Waits until EC2 would take another change of the disk.
async fn disk_rests(subject: &Subject) {
    let (aws, volume) = (&subject.rig.aws, [subject.volume().await.id]);
    eventually(LONG, "a disk that may be changed", async || {
        let found = patiently(|| aws.describe_volume_modifications(&volume)).await;
        found.iter().all(|found| found.state == ModificationState::Completed).then_some(())
    })
    .await;
}

/// Waits until the wish is carried out or, if it is to be left, as far as that.
async fn reaches(subject: &Subject, wish: &Wish, what: &str) {
    let (api, mut versions) = (subject.rig.as_admin(), BTreeSet::new());
    eventually(LONG, what, async || {
        let found = api.get(&subject.name).await.ok()?;
        versions.insert(found.metadata.resource_version.clone());
        let is_left = match wish.left_after {
            Some(_) if wish.suspended => is_suspended(&found),
            Some(changes) => versions.len() > changes,
            None => false,
        };
        (is_left || subject.is_carried_out(wish.end).await).then_some(())
    })
    .await;
}

fn is_suspended(resource: &QuestDB) -> bool {
    let mut conditions = resource.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|found| found.type_ == condition::RECONCILE_PAUSED && found.status == "True")
}

/// What specs name, and kinds that the cluster has of others.
async fn prepare(rig: &Rig) {
    let (client, namespace) = (rig.admin.clone(), rig.namespace.as_str());
    let made = PostParams::default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let login = json!({ "username": "reader", "password": "given" });
    let named =
        wish::SECRETS.map(|name| (name, json!({ "a": "1" }))).into_iter().chain([(wish::LOGIN, login)]);
    for (name, data) in named {
        let secret = json!({ "metadata": { "name": name }, "stringData": data });
        secrets.create(&made, &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let named = |name: &str| json!({ "metadata": { "name": name } });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    maps.create(&made, &serde_json::from_value(named(wish::CONFIG_MAP)).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    accounts.create(&made, &serde_json::from_value(named(wish::ACCOUNT)).unwrap()).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (group, version, plural, kind) in KINDS {
        let parameters = PatchParams::apply("slipway-tests").force();
        let definition = definition((group, version, plural, kind));
        definitions.patch(&defined(plural, group), &parameters, &Patch::Apply(&definition)).await.unwrap();
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let known = async || api.list(&ListParams::default()).await.ok();
        eventually(PATIENCE, &format!("{kind} to be known"), known).await;
    }
}

fn defined(plural: &str, group: &str) -> String {
    format!("{plural}.{group}")
}

async fn operator(rig: &Rig) -> Spawned {
    let lease = rig.lease().await;
    let (kubeconfig, versions) = (rig.rights(&lease).await, wish::VERSIONS.join(","));
    rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_QUESTDB_VERSIONS", &versions)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_to_a_wish_does_not_show() {
    let seed = testkit::seed(SEED);
    let _defining = DEFINING.lock().await;
    let rig = Arc::new(Rig::new().await);
    prepare(&rig).await;
    let mut random = Random::new(seed);
    let mut walks: Vec<Walk> = (0..WALKS).map(|_| Walk::draw(&rig, &mut random)).collect();
    let both = walks.iter().flat_map(|walk| [&*walk.walker.name, &*walk.fresh.name]);
    let processes = Processes::of(&rig, both).await;
    let others = Others::of(&rig);
    let operator = operator(&rig).await;
    join_all(walks.iter_mut().map(Walk::lead)).await;
    // A pod may be ready before it has an address: nobody who carries a wish out waits for that.
    processes.started(&rig).await;
    let found = Found::read(&rig).await;
    let differing = join_all(walks.iter().map(|walk| walk.differences(&found, &processes))).await;
    let differing: Vec<String> = differing.into_iter().flatten().collect();
    assert!(differing.is_empty(), "seed {seed}: the way shows\n{}", differing.join("\n"));

    join_all(walks.iter_mut().map(Walk::purge)).await;
    operator.kill().await.unwrap();
    drop((others, processes));
    for kind in KINDS {
        undefine(&rig.admin, kind).await;
    }
    rig.end().await;
}
