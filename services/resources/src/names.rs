//! Every name that more than one program must spell alike: managers, annotations, labels, finalizers, condition types.
//! Constants and the functions that make names of names; nothing here reads or writes.

/// API group of the custom resource.
pub const GROUP: &str = "crd.questdb.io";
/// Its stored version.
pub const VERSION: &str = "v1";
/// Its kind.
pub const KIND: &str = "QuestDB";
/// Name of the definition.
pub const DEFINITION: &str = "questdbs.crd.questdb.io";

/// Field manager of the provisioner: owns the spec of managed resources.
pub const PROVISIONER: &str = "slipway-provisioner";
/// Field manager of the operator: owns the children and the finalizer.
pub const OPERATOR: &str = "slipway-operator";

/// Version of the translation from a desired state to a spec; raised with every change of [`crate::render()`] that
/// alters its output, so that an older provisioner cannot undo a newer one's rendering of the same instruction. A test of that
/// module holds a row for each version.
pub const RENDER: i64 = 1;

/// Keeps the resource until its objects and machines are gone.
pub const FINALIZER: &str = "crd.questdb.io/cleanup";

/// Annotation of a resource: W3C trace context of the request that caused the spec.
pub const TRACEPARENT: &str = "crd.questdb.io/traceparent";
/// Annotation of a resource: generation of its instance, written before the instance is asked for.
pub const GENERATION: &str = "crd.questdb.io/instance-generation";
/// Annotation of a resource: hash of the launch parameters that the generation stands for.
pub const LAUNCH: &str = "crd.questdb.io/instance-launch";
/// Annotation of a resource: zone that the generation is launched in.
pub const LAUNCH_ZONE: &str = "crd.questdb.io/instance-zone";
/// Annotation of a resource: generations whose machines may be taken down, each written before its machine's protection is
/// taken off.
pub const RELEASED: &str = "crd.questdb.io/instance-released";
/// Annotation of a resource: the last generations in a row whose machines were given up because they did not join the cluster, or
/// their Nodes did not become ready.
pub const UNJOINED: &str = "crd.questdb.io/instance-unjoined";
/// Annotation of a Secret: name of the resource that it belongs to.
pub const SECRET_OF: &str = "crd.questdb.io/name";
/// Annotation of a child: uid of the resource that it goes with. It stands in for an `ownerReference`, by which Kubernetes would
/// take the child away as soon as somebody deletes its resource in the foreground, whatever protects its database.
pub const RESOURCE: &str = "crd.questdb.io/resource-uid";
/// Annotation of a child: hash of what the operator applied last.
pub const APPLIED: &str = "crd.questdb.io/applied";
/// Annotation of a pod template: hash of everything that needs a restart to be heeded.
pub const CHECKSUM: &str = "crd.questdb.io/checksum";
/// Annotation of a pod template: what QuestDB is started with, field by field.
pub const RUNNING: &str = "crd.questdb.io/running";
/// Annotation of a pod template: hash of what nobody is restarted for.
pub const TEMPLATE: &str = "crd.questdb.io/template";
/// Annotation of a pod template: versions of what others made and variables are read from when a container starts.
pub const READ_AT_START: &str = "crd.questdb.io/read-at-start";
/// Annotation of a pod template, and so of its pods: the disk that the database has served from, which a pod must not find empty.
/// Empty on a pod that may.
pub const SERVED_FROM: &str = "crd.questdb.io/served-from";
/// Annotation of a pod: which server.conf it is to be shown. A kubelet that sees another one looks at once.
pub const CONFIG: &str = "crd.questdb.io/config";
/// Annotation of a pod: what of server.conf QuestDB was told to read and, when asked, did not have although its file had to be there:
/// keys, each with a hash of its value.
pub const CONFIG_REFUSED: &str = "crd.questdb.io/config-refused";
/// Annotation of a StatefulSet: its last upgrade, and what became of it.
pub const UPGRADE: &str = "crd.questdb.io/upgrade";
/// Annotation of a snapshot that was taken before an upgrade: the database.
pub const BEFORE_UPGRADE: &str = "crd.questdb.io/before-upgrade";
/// Annotation of a resource: `true` stops the operator from doing anything; it still says what is pending.
pub const PAUSE_RECONCILE: &str = "crd.questdb.io/pause-reconcile";
/// Annotation of a resource: a disk that the database has served from, and a pod that may begin on it although it is empty.
pub const MAY_BE_EMPTY: &str = "crd.questdb.io/may-be-empty";
/// Annotation of a resource: a JSON merge patch of its spec, of which status says what it would take.
pub const DRY_RUN: &str = domain::dry_run::PATCH;
/// Annotation of a resource: a text of the asker's choice, which status repeats beside the answer to the above.
pub const DRY_RUN_QUESTION: &str = domain::dry_run::QUESTION;
/// Annotation of a pod template: the restart that was asked for.
pub const RESTART: &str = "crd.questdb.io/restart";
/// Annotation of a resource: identity of the database of a resource without an instruction, minted once.
pub const ADOPTED_ID: &str = "crd.questdb.io/database-id";

/// Label of every child: name of its resource.
pub const LABEL_NAME: &str = "crd.questdb.io/name";
/// Label of every child: namespace of its resource (cluster-scoped children have none of their own).
pub const LABEL_NAMESPACE: &str = "crd.questdb.io/namespace";
/// Label of every child and of the resource: identity of the database.
pub const LABEL_DATABASE: &str = "crd.questdb.io/database";
/// Label of a resource: its tenant.
pub const LABEL_TENANT: &str = "crd.questdb.io/tenant";
/// Label of a resource: what people call the database.
pub const LABEL_DATABASE_NAME: &str = "crd.questdb.io/database-name";
/// Label of a Service: whether it is the one of the clients or the one of the pods.
pub const LABEL_SERVICE: &str = "crd.questdb.io/service";
/// Label of a namespace, given by Kubernetes itself: its name.
pub const LABEL_NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Label that says who looks after an object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of a Node that a kubelet may not give itself: the database that the machine serves.
pub const LABEL_NODE: &str = "node-restriction.kubernetes.io/questdb-database";
/// Label of a Node: its zone.
pub const LABEL_ZONE: &str = "topology.kubernetes.io/zone";
/// Taint of a Node that belongs to one database.
pub const TAINT: &str = "questdb.io/dedicated";

/// Keys of the Secret with a database's credentials.
pub mod secret {
    pub use domain::credentials::{
        HTTP_PASSWORD, HTTP_USER, ILP_KEYS, PG_PASSWORD, PG_READONLY_PASSWORD, PG_READONLY_USER, PG_USER,
    };

    /// Annotation of a Secret: which credential of the database it holds.
    pub const TYPE: &str = "crd.questdb.io/secret-type";
    /// Annotation of the operator's Secret: the Secrets, at which version, that its values were taken from.
    pub const TAKEN_FROM: &str = "crd.questdb.io/credentials-from";
    /// Annotation of the operator's Secret: another text for other values. QuestDB is restarted for it. It follows what the
    /// operator writes: what another hand writes over a value changes it not, and is put right.
    pub const REVISION: &str = "crd.questdb.io/credentials-revision";
    /// Key of the operator's Secret: a copy of the values that the operator wrote, by which they are put right.
    pub const WRITTEN: &str = "last-written";
    /// Annotation of a StatefulSet: public halves of the keys that the operator drew, should its Secret be lost.
    pub const DRAWN: &str = "crd.questdb.io/drawn-keys";
    /// Key of a Secret with a JSON Web Key or a set of them.
    pub const JWK: &str = "auth.json";
}

/// What snapshots and their schedules carry.
pub mod snapshot {
    /// Keeps a snapshot until nothing is left to be done for it.
    pub const FINALIZER: &str = "crd.questdb.io/snapshot";
    /// Finalizer of a snapshot for which a database may be held: it goes when the database is known to be free.
    pub const RELEASE_OWED: &str = "crd.questdb.io/release-owed";
    /// Annotation of a snapshot: its identity in AWS, minted once.
    pub const IDENTITY: &str = "crd.questdb.io/snapshot-id";
    /// Annotation of a snapshot that is the last of its database: the generation of the disk that it is asked for of.
    pub const LAST_COPY: &str = "crd.questdb.io/last-copy";
    /// Label of a snapshot that a schedule made: the schedule's name.
    pub const LABEL_SCHEDULE: &str = "crd.questdb.io/schedule";
    /// Annotation of a snapshot that a schedule made: the time it was made for.
    pub const SCHEDULED_FOR: &str = "crd.questdb.io/scheduled-for";
}

/// Types of conditions in status.
pub mod condition {
    /// It serves what its spec asks for.
    pub const READY: &str = "Ready";
    /// Something is being worked on.
    pub const PROGRESSING: &str = "Progressing";
    /// Something is wrong that does not heal by itself.
    pub const DEGRADED: &str = "Degraded";
    /// Its run state asks for a pause, and nothing of it runs any more.
    pub const PAUSED: &str = "Paused";
    /// The spec can be carried out.
    pub const CONFIG_ACCEPTED: &str = "ConfigAccepted";
    /// The machine has joined the cluster and is ready.
    pub const NODE_HEALTHY: &str = "NodeHealthy";
    /// The name answers with the machine's address.
    pub const DNS_READY: &str = "DNSReady";
    /// The disk is being changed.
    pub const VOLUME_RESIZING: &str = "VolumeResizing";
    /// Somebody else writes a field of ours again and again, and it is left as it is; or undoes a rule of the firewall, which is not.
    pub const CONTENDED: &str = "Contended";
    /// Nothing is done, because an annotation of the resource says so.
    pub const RECONCILE_PAUSED: &str = "ReconcilePaused";
    /// Something that we need belongs to somebody else.
    pub const CONFLICT: &str = "Conflict";
    /// A database is held still for a snapshot.
    pub const HELD: &str = "Held";
    /// Another version is being started.
    pub const UPGRADE_IN_PROGRESS: &str = "UpgradeInProgress";
    /// The database goes to another machine.
    pub const MOVING: &str = "Moving";
    /// Somebody wants the machine's Node empty.
    pub const NODE_CORDONED: &str = "NodeCordoned";
    /// Every Secret that says it holds credentials of the database could be taken over.
    pub const CREDENTIALS_ACCEPTED: &str = "CredentialsAccepted";
    /// Everything of others that the pod names is there, and the Secret with the certificate of routes.
    pub const REFERENCES_FOUND: &str = "ReferencesFound";
    /// A copy of the disk that stays when the disk is destroyed: `True` once it is complete.
    pub const LAST_COPY: &str = "LastCopy";
    /// The resource is to be deleted, and the protection of its spec keeps that from happening.
    pub const DELETION_HELD: &str = "DeletionHeld";
    /// Every kind of object that the spec asks for beside Kubernetes' own is known to the cluster.
    pub const INTEGRATIONS_READY: &str = "IntegrationsReady";
    /// Everything that belongs to databases of this namespace can be seen; while it cannot, nothing is decided.
    pub const NAMESPACE_SEEN: &str = "NamespaceSeen";
    /// The API server does not let the operator do something that it has to do for this database, or AWS not look at it.
    pub const ACCESS_DENIED: &str = "AccessDenied";
}

/// Reasons of conditions that others look for.
pub mod reason {
    /// The cluster's definition of a kind of object lacks a field that is to be written.
    pub const OLD_DEFINITION: &str = "OldDefinition";
    /// Not everything of the namespace can be seen, and nothing is decided for its databases.
    pub const NAMESPACE_UNSEEN: &str = "NamespaceUnseen";
    /// A machine did not become a Node of the cluster in its time, or has its database and is none any more.
    pub const NOT_JOINED: &str = "NotJoined";
    /// The Node of a machine was not ready for some time.
    pub const NOT_READY: &str = "NotReady";
    /// The Node of the machine that a database is to move to is ready and takes no pod: somebody cordoned or tainted it.
    pub const NODE_CLOSED: &str = "NodeClosed";
    /// All that say what a machine lacks to take its database; the first goes before the others.
    pub const OF_MACHINES: [&str; 3] = [NOT_JOINED, NOT_READY, NODE_CLOSED];
}

/// Ports of QuestDB.
pub mod port {
    /// REST, web console, line protocol over HTTP.
    pub const HTTP: u16 = 9000;
    /// Postgres wire protocol.
    pub const PG: u16 = 8812;
    /// Health and metrics.
    pub const MIN: u16 = 9003;
    /// Line protocol over TCP.
    pub const ILP: u16 = 9009;
    /// The kubelet of a machine, for logs and commands.
    pub const KUBELET: u16 = 10250;
    /// Of those who resolve names.
    pub const DNS: u16 = 53;
}

/// The volume claim of a resource: StatefulSet's own scheme for the template `data` and ordinal 0.
pub fn claim(resource: &str) -> String {
    format!("data-{resource}-0")
}

/// The resource whose claim would have this name.
pub fn of_claim(claim: &str) -> Option<&str> {
    claim.strip_prefix("data-")?.strip_suffix("-0")
}

/// The one pod of a resource.
pub fn pod(resource: &str) -> String {
    format!("{resource}-0")
}

/// The Secret with a resource's credentials.
pub fn credentials(resource: &str) -> String {
    format!("{resource}-credentials")
}

/// The Secret in which the private half of a key that the operator drew is handed out. With dots, which no resource has in
/// its name: it is nobody else's child.
pub fn drawn_key(resource: &str, key_id: &str) -> String {
    format!("{resource}.ilp.{key_id}")
}

/// The resource, and the id of the key, of such a Secret.
pub fn of_drawn_key(secret: &str) -> Option<(&str, &str)> {
    secret.split_once(".ilp.")
}

/// The ConfigMap with a resource's server.conf.
pub fn config(resource: &str) -> String {
    format!("{resource}-config")
}

/// The Service that gives the pod a name within the cluster.
pub fn headless(resource: &str) -> String {
    format!("{resource}-pods")
}

/// The route of a resource for the Postgres wire protocol.
pub fn route_pg(resource: &str) -> String {
    format!("{resource}-pg")
}

/// The route of a resource for the line protocol over TCP.
pub fn route_ilp(resource: &str) -> String {
    format!("{resource}-ilp")
}

/// The `NetworkPolicy` and the `PodDisruptionBudget` of a resource: never its own name, because that is what its users
/// call theirs.
pub fn guard(resource: &str) -> String {
    format!("{resource}-questdb")
}

/// The `PersistentVolume` of an EBS volume: named after it, because the handle of one cannot change.
pub fn persistent_volume(volume: &str) -> String {
    format!("qdb-{volume}")
}

/// What the names of all last copies of a resource's database begin with. The end of the database's identity tells it from one
/// that had the name before.
pub fn last_copy(resource: &str, short: &str) -> String {
    let suffix = format!("-{short}");
    format!("{}{suffix}{LAST_COPY_END}", resource.strip_suffix(&suffix).unwrap_or(resource))
}

/// What [`last_copy`] ends with.
pub const LAST_COPY_END: &str = "-last";

/// The Node of a database's instance of this generation.
pub fn node(short: &str, generation: u64) -> String {
    format!("qdb-{short}-g{generation}")
}

/// The generation in the name of a Node.
pub fn generation_of_node(name: &str) -> Option<u64> {
    name.rsplit_once("-g")?.1.parse().ok()
}
