//! What is wished for on a walk: whole specs, each of which differs from the one before in some of everything that may
//! change.
//!
//! Left out is what is refused, whose tests are elsewhere, and what [`covered`](super::covered) names with the reason.

use resources::Phase;
use serde_json::{Value, json};
use testkit::Random;

/// The versions that databases of a walk may have.
pub(super) const VERSIONS: [&str; 2] = [domain::catalogue::DEFAULT_VERSION, "9.3.5"];
/// A Secret with a login, which specs name.
pub(super) const LOGIN: &str = "reads";
/// Secrets with a key, a `ConfigMap` and an account of the same namespace, which pods name, and the last of the Secrets routes.
pub(super) const SECRETS: [&str; 3] = ["keys", "registry", "cert"];
pub(super) const CONFIG_MAP: &str = "ca";
pub(super) const ACCOUNT: &str = "desk";

/// How many percent of everything that may change do from one wish to the next.
const CHANGING: u64 = 35;
/// How many percent of the wishes before the last are left on the way.
const LEFT: u64 = 50;
/// The most changes of a resource after which a wish is left: a create and a move have about as many.
const MOST_CHANGES: u64 = 9;
/// Run state, whether nobody may delete the database, and where that ends; those that serve first.
const STATES: [(&str, bool, Phase); 7] = [
    ("Running", false, Phase::Ready),
    ("Running", false, Phase::Ready),
    ("Running", true, Phase::Ready),
    ("Running", true, Phase::Ready),
    ("Paused", false, Phase::Paused),
    ("Paused", true, Phase::Paused),
    ("Deleted", false, Phase::Deleted),
];
const SERVING: usize = 4;

/// A wish, and how long it is given.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// All of the spec but what tells one database, and one wish, from another.
    pub(super) spec: Value,
    /// Where it ends.
    pub(super) end: Phase,
    /// Whether it may ask for another disk than the one before.
    pub(super) changes_disk: bool,
    /// Whether it asks for a name of its own.
    pub(super) renamed: bool,
    /// After how many changes of the resource the next wish comes; none when it is carried out before.
    pub(super) left_after: Option<usize>,
    /// Nothing is to be done for it, until the next one comes.
    pub(super) suspended: bool,
}

impl Wish {
    /// The same, and nobody goes on before it is carried out.
    pub(super) fn in_full(&self) -> Self {
        Self { changes_disk: false, left_after: None, suspended: false, ..self.clone() }
    }
}

/// Wishes of which the last one serves: a database that was never to run has no disk, and one that is paused has.
pub(super) fn walk(random: &mut Random, zones: &[String], node_image: &str) -> Vec<Wish> {
    let zone = random.pick(zones).unwrap().clone();
    let (disks, choices) = (disks(), [machine(node_image), network(), pod()].concat());
    let mut chosen: Vec<usize> = choices.iter().map(|of| one_of(random, of.len())).collect();
    let length = 3 + one_of(random, 2);
    // A name that another took the place of leads to the database for half a minute more: one change of it has to do.
    let renamed_at = random.chance(30).then_some(1);
    let (mut disk, mut size, mut disk_rests) = (one_of(random, disks.len()), 20, true);
    let mut wishes = Vec::new();
    for number in 0..length {
        let is_last = number + 1 == length;
        let changes_disk = number > 0 && disk_rests && random.chance(60);
        if changes_disk {
            disk = one_of(random, disks.len());
            size += *random.pick(&[0, 10]).unwrap();
        }
        if number > 0 {
            change(random, &mut chosen, &choices);
        }
        let (state, protected, end) = STATES[one_of(random, if is_last { SERVING } else { STATES.len() })];
        let mut spec = json!({
            "runState": state, "deletionProtection": protected, "zone": zone, "storage": { "sizeGib": size },
        });
        merge(&mut spec, &disks[disk]);
        chosen.iter().zip(&choices).for_each(|(choice, of)| merge(&mut spec, &of[*choice]));
        let left = !is_last && random.chance(LEFT);
        let changes = random.below(MOST_CHANGES + 1);
        let left_after = left.then(|| usize::try_from(changes).unwrap());
        let suspended = random.chance(25) && left && number > 0;
        let renamed = renamed_at.is_some_and(|at| at <= number);
        // EC2 takes the next change only a while after the last, and is asked again minutes later: that is tested by itself.
        disk_rests = (disk_rests && !changes_disk) || (!left && end == Phase::Ready);
        wishes.push(Wish { spec, end, changes_disk, renamed, left_after, suspended });
    }
    wishes
}

fn change(random: &mut Random, chosen: &mut [usize], choices: &[Choice]) {
    for (choice, of) in chosen.iter_mut().zip(choices) {
        if random.chance(CHANGING) {
            *choice = one_of(random, of.len());
        }
    }
}

fn one_of(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap()
}

/// Writes what one object says over another.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}

/// Parts of a spec of which one is chosen. What a part does not say is not said.
type Choice = Vec<Value>;

/// How fast the disk is.
fn disks() -> Choice {
    let storage = |kind: &str, iops: u32, throughput: u32| {
        let storage = json!({ "type": kind, "iops": iops, "throughput": throughput });
        json!({ "storage": storage })
    };
    vec![
        json!({}),
        storage("gp3", 3_000, 250),
        storage("gp3", 6_000, 500),
        storage("io2", 3_000, 125),
        storage("io2", 5_000, 500),
    ]
}

/// Machine and process.
fn machine(node_image: &str) -> Vec<Choice> {
    let version = |version: &str| json!({ "version": version });
    let named = |version: &str| json!({ "version": version, "image": domain::catalogue::image_of(version) });
    let config = |config: Value| json!({ "config": config });
    // One that is read again, and one that is read at the start.
    let (live, dead) = ("http.net.connection.limit", "shared.worker.count");
    let drawn = |ids: &[&str]| json!({ "credentials": { "ilp": { "drawn": ids } } });
    vec![
        vec![version(VERSIONS[0]), named(VERSIONS[0]), version(VERSIONS[1]), named(VERSIONS[1])],
        vec![
            json!({}),
            json!({ "compute": { "instanceType": "m7i.large" } }),
            json!({ "compute": { "instanceType": "m7i.xlarge" } }),
        ],
        vec![json!({}), json!({ "compute": { "nodeImage": node_image } })],
        vec![
            json!({}),
            json!({ "storage": { "deletionPolicy": "Delete" } }),
            json!({ "storage": { "deletionPolicy": "Snapshot" } }),
        ],
        vec![
            json!({}),
            config(json!({ dead: "2" })),
            config(json!({ live: "80" })),
            config(json!({ live: "90" })),
            config(json!({ dead: "2", live: "90" })),
        ],
        vec![json!({}), json!({ "restartNonce": "one" }), json!({ "restartNonce": "two" })],
        vec![
            json!({}),
            drawn(&["first"]),
            drawn(&["first", "second"]),
            json!({ "credentials": { "psqlReadonly": { "secretName": LOGIN } } }),
        ],
    ]
}

/// Who reaches it, and whom it reaches. Who is let in, who is meant and how hang together.
fn network() -> Vec<Choice> {
    let network = |network: Value| json!({ "network": network });
    let note = json!({ "example.com/a": "1" });
    let (one, two) = (json!(["10.9.0.0/16"]), json!(["10.9.0.0/16", "10.7.0.0/16"]));
    let route = |point: &str| json!({ "entryPoints": [point] });
    vec![
        vec![
            json!({}),
            network(json!({ "allowedCidrs": one })),
            network(json!({ "allowedCidrs": two, "exposure": "Public" })),
            network(json!({ "service": { "annotations": note } })),
            network(json!({ "allowedCidrs": one, "service": { "headlessAnnotations": note } })),
            network(json!({ "allowedCidrs": two, "service": { "type": "LoadBalancer" } })),
            network(json!({
                "allowedCidrs": one, "exposure": "Public",
                "service": { "type": "LoadBalancer", "annotations": note },
            })),
        ],
        vec![
            json!({}),
            network(json!({ "allowedNamespaces": ["apps"] })),
            network(json!({ "allowedNamespaces": ["web", "apps"] })),
        ],
        vec![
            json!({}),
            network(json!({ "egress": {} })),
            network(json!({ "egress": { "cidrs": ["10.8.0.0/16"] } })),
            network(json!({ "egress": { "cidrs": ["10.8.0.0/16"], "namespaces": ["logs"] } })),
        ],
        vec![
            json!({}),
            network(json!({ "networkPolicy": true })),
            network(json!({ "networkPolicy": false })),
        ],
        vec![
            json!({}),
            network(json!({ "disruptionBudget": true })),
            network(json!({ "disruptionBudget": false })),
        ],
        vec![json!({}), network(json!({ "hostPorts": true })), network(json!({ "hostPorts": false }))],
        vec![
            json!({}),
            network(json!({ "ingress": { "http": route("web") } })),
            network(json!({ "ingress": { "http": route("websecure"), "tls": {} } })),
            network(
                json!({ "ingress": { "http": route("websecure"), "tls": { "secretName": SECRETS[2] } } }),
            ),
            network(json!({ "ingress": { "http": route("web"), "pg": route("postgres"), "tls": {} } })),
            network(json!({ "ingress": { "pg": route("postgres"), "ilp": route("questdb"), "tls": {} } })),
        ],
        vec![
            json!({}),
            network(json!({ "monitor": { "kind": "PodMonitor" } })),
            network(json!({
                "monitor": { "kind": "PodMonitor", "labels": { "release": "all" }, "intervalSeconds": 30 },
            })),
        ],
    ]
}

/// How its pod is otherwise than by default.
fn pod() -> Vec<Choice> {
    let pod = |pod: Value| json!({ "pod": pod });
    let time = json!({ "name": "TZ", "value": "UTC" });
    let read = json!({ "secretKeyRef": { "name": SECRETS[0], "key": "a" } });
    let scratch = json!({ "name": "scratch", "emptyDir": { "sizeLimit": "1024Mi" } });
    let shipper = |image: &str, mounts: Value| {
        json!({
            "name": "shipper", "image": image, "ports": [{ "name": "ship", "containerPort": 8080 }],
            "resources": { "cpu": "250m", "memory": "256Mi" }, "volumeMounts": mounts,
        })
    };
    let mounted = json!([{ "name": "scratch", "mountPath": "/scratch" }]);
    let certificates = json!({ "name": "ca", "configMap": { "name": CONFIG_MAP } });
    let keys = json!({ "name": "keys", "secret": { "secretName": SECRETS[0] } });
    vec![
        vec![
            json!({}),
            pod(json!({ "labels": { "team": "trading" } })),
            pod(
                json!({ "labels": { "team": "risk", "desk": "7" }, "annotations": { "example.com/b": "2" } }),
            ),
        ],
        vec![json!({}), pod(json!({ "resources": { "cpu": "1", "memory": "4096Mi" } }))],
        vec![
            json!({}),
            pod(json!({ "probes": { "readiness": { "periodSeconds": 2, "failureThreshold": 5 } } })),
            pod(json!({ "probes": { "startup": { "periodSeconds": 5, "failureThreshold": 100 } } })),
        ],
        // One and the same variable has a value, is read from somewhere, or stands elsewhere in the list.
        vec![
            json!({}),
            pod(json!({ "env": [time, { "name": "KEY", "value": "1" }] })),
            pod(json!({ "env": [{ "name": "KEY", "valueFrom": read }, time] })),
            pod(json!({ "env": [{ "name": "EMPTY", "value": "" }] })),
        ],
        vec![
            json!({}),
            pod(json!({ "containers": [shipper("example.com/shipper:1", json!([]))] })),
            pod(json!({ "volumes": [scratch], "containers": [shipper("example.com/shipper:2", mounted)] })),
            pod(json!({
                "volumes": [certificates, scratch],
                "volumeMounts": [{ "name": "ca", "mountPath": "/etc/ca", "readOnly": true }],
            })),
            pod(json!({ "volumes": [keys, certificates] })),
        ],
        vec![
            json!({}),
            pod(json!({ "tolerations": [{ "key": "desk", "value": "trading", "effect": "NoSchedule" }] })),
            pod(json!({ "tolerations": [{ "key": "any" }] })),
        ],
        vec![
            json!({}),
            pod(json!({ "serviceAccountName": ACCOUNT, "imagePullSecrets": [{ "name": SECRETS[1] }] })),
            pod(json!({ "terminationGracePeriodSeconds": 300 })),
        ],
    ]
}

#[test]
fn a_seed_is_the_same_walks_again() {
    let zones = ["a".to_owned(), "b".to_owned()];
    let walks = |seed| {
        let mut random = Random::new(seed);
        let walks = (0..10).map(|_| walk(&mut random, &zones, "ami-1"));
        walks.map(|wishes| format!("{wishes:?}")).collect::<Vec<_>>()
    };
    assert_eq!(walks(1), walks(1));
    assert_ne!(walks(1), walks(2));
}

/// No kind of wish comes too seldom to be walked.
#[test]
fn walks_go_everywhere() {
    let (mut random, zones) = (Random::new(1), ["a".to_owned()]);
    let walks: Vec<_> = (0..100).map(|_| walk(&mut random, &zones, "ami-1")).collect();
    let all = || walks.iter().flatten();
    assert!(walks.iter().all(|wishes| wishes.last().unwrap().end == Phase::Ready));
    for end in [Phase::Paused, Phase::Deleted] {
        assert!(all().filter(|wish| wish.end == end).count() > 20, "{end:?}");
    }
    let left = all().filter(|wish| wish.left_after.is_some()).count();
    let suspended = all().filter(|wish| wish.suspended).count();
    let renamed = all().filter(|wish| wish.renamed).count();
    assert!(left > 80 && suspended > 5 && renamed > 30, "{left} {suspended} {renamed}");
}
