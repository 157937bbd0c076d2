//! What a pod says of itself: written to its template, and so to the pod, in a form in which every field that QuestDB heeds
//! only after a start can be told apart.

use std::collections::BTreeMap;

use domain::{catalogue, reference_token};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use resources::{ChangeMeans, names};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Change;
use super::reload::FIELD;
use crate::secrets::Keyring;
use crate::upgrade::version_of;
use crate::{Children, Validated, build, overrides, pod};

/// The field by which other credentials are told.
pub(super) const CREDENTIALS: &str = "/spec/credentials";

/// The field by which host ports are taken or not.
const HOST_PORTS: &str = "/spec/network/hostPorts";

/// What QuestDB was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Running {
    /// Container image by its well-known name.
    image: String,
    /// The restart that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart_nonce: Option<String>,
    /// Which credentials it read, by the revision of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credentials: Option<String>,
    /// It has keys for the line protocol over TCP, and listens for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ilp: bool,
    /// It has a user who may only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    readonly: bool,
    /// Keys of server.conf with a hash of the value, which may be long.
    config: BTreeMap<String, String>,
    /// It sees a server.conf that changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    live: bool,
    /// Whether it takes ports of its machine; it does when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_ports: Option<bool>,
    /// Fields of the pod that were chosen, with a hash of the choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pod: BTreeMap<String, String>,
}

impl Running {
    /// What a pod made now would be started with.
    pub(crate) fn of(validated: &Validated) -> Self {
        Self {
            image: validated.image.clone(),
            restart_nonce: validated.restart_nonce.clone(),
            credentials: validated.keyring.revision.clone(),
            ilp: validated.keyring.ilp,
            readonly: validated.keyring.readonly,
            config: build::server_keys(validated)
                .into_iter()
                .map(|(key, value)| (key.to_owned(), digest(value.as_bytes())))
                .collect(),
            live: true,
            host_ports: (!validated.reach.host_ports).then_some(false),
            pod: overrides::digests(&validated.overrides, digest),
        }
    }

    /// What the pods of a StatefulSet are started with.
    pub(crate) fn of_template(set: Option<&StatefulSet>) -> Option<Self> {
        Self::read(of_template(set))
    }

    /// What QuestDB was started with last or, while it has no pod, what the one would be that its StatefulSet makes next.
    pub(crate) fn in_force(children: &Children) -> Option<Self> {
        match children.pod.as_deref() {
            Some(pod) => Self::read(pod.metadata.annotations.as_ref()),
            None => Self::of_template(children.stateful_set.as_deref()),
        }
    }

    /// The version of QuestDB.
    pub(crate) fn version(&self) -> &str {
        version_of(&self.image)
    }

    /// Whether QuestDB may not know a key of server.conf: it was started without it, and its version is not known to have it.
    pub(crate) fn may_not_know(&self, key: &str) -> bool {
        !self.config.contains_key(key) && !catalogue::is_reloadable(self.version(), key)
    }

    /// Whether a key of server.conf was given this value by whoever asked for it.
    pub(crate) fn has_key(&self, key: &str, value: &str) -> bool {
        !build::is_fixed(key) && self.config.get(key) == Some(&digest(value.as_bytes()))
    }

    fn keyring(self) -> Keyring {
        let Self { credentials: revision, ilp, readonly, .. } = self;
        Keyring { revision, readonly, ilp, ..Keyring::default() }
    }

    /// As an annotation.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From the annotations of a pod; `None` of one that an older operator had made.
    pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        serde_json::from_str(annotations?.get(names::RUNNING)?).ok()
    }

    /// Keys of server.conf that QuestDB heeds and that differ.
    fn differing_keys<'a>(&'a self, running: &'a Self) -> impl Iterator<Item = &'a str> {
        let Self { config, .. } = self;
        let keys = config.keys().chain(running.config.keys().filter(|key| !config.contains_key(*key)));
        let differing = |key: &&String| build::is_heeded(key) && config.get(*key) != running.config.get(*key);
        keys.filter(differing).map(String::as_str)
    }

    /// The same where nobody knows which values these keys have: any that is asked for is another.
    pub(super) fn without(&self, keys: &[&str]) -> Self {
        let unknown = keys.iter().map(|key| ((*key).to_owned(), String::new()));
        Self { config: self.config.clone().into_iter().chain(unknown).collect(), ..self.clone() }
    }

    /// The keys that a QuestDB of this version, which runs, is to be told to read again; none when nothing differs, or when
    /// something does for which it has to start anew.
    pub(super) fn to_read_again<'a>(&'a self, running: &'a Self, version: &str) -> Vec<&'a str> {
        let keys: Vec<&str> = self.differing_keys(running).collect();
        let all = running.live && keys.iter().all(|key| catalogue::is_reloadable(version, key));
        if all && self.differences(running).len() == keys.len() { keys } else { Vec::new() }
    }

    /// What a pod that runs this lacks of what is wished for.
    pub(super) fn differences(&self, running: &Self) -> Vec<Change> {
        // Which credentials there are differs only with their revision.
        let Self {
            image,
            restart_nonce,
            credentials,
            host_ports,
            config: _,
            pod,
            ilp: _,
            readonly: _,
            live: _,
        } = self;
        let restart = |field: String, why: &str| Change::new(field, ChangeMeans::Restart, why);
        let mut changes = Vec::new();
        if *image != running.image {
            changes.push(restart("/spec/version".to_owned(), "another image is another process"));
        }
        if restart_nonce.is_some() && *restart_nonce != running.restart_nonce {
            changes.push(restart("/spec/restartNonce".to_owned(), "a restart was asked for"));
        }
        let keys = self.differing_keys(running);
        changes.extend(keys.map(|key| restart(field_of(key), "QuestDB reads server.conf when it starts")));
        // One that was drawn before there were revisions is what every pod of that time read.
        if credentials.is_some() && *credentials != running.credentials {
            changes.push(restart(CREDENTIALS.to_owned(), "QuestDB reads credentials when it starts"));
        }
        if *host_ports != running.host_ports {
            changes.push(restart(HOST_PORTS.to_owned(), "a pod is made anew to take host ports, or none"));
        }
        let fields = pod.keys().chain(running.pod.keys().filter(|field| !pod.contains_key(*field)));
        let differing = fields.filter(|field| pod.get(*field) != running.pod.get(*field));
        changes.extend(
            differing.map(|field| restart(format!("/spec/pod/{field}"), "a pod is made anew to be another")),
        );
        changes
    }
}

/// The field of a key of server.conf.
pub(crate) fn field_of(key: &str) -> String {
    format!("{FIELD}{}", reference_token(key))
}

/// A hash of everything else in a template: what the operator chooses and nobody is restarted for. Which machine it is for is
/// not of it: that alone restarts.
pub(crate) fn template_digest(pod: &mut Value) -> String {
    // It is put back: who hashed a copy without it would copy all the rest.
    let node = pod["nodeSelector"].take();
    let found = digest(pod.to_string().as_bytes());
    pod["nodeSelector"] = node;
    found
}

/// Which credentials a pod made by this StatefulSet is started with.
pub(crate) fn keyring_of_template(set: Option<&StatefulSet>) -> Keyring {
    Running::read(of_template(set)).map(Running::keyring).unwrap_or_default()
}

/// Which credentials a pod says it was started with; `None` of one that an older operator had made.
pub(crate) fn keyring_of_pod(pod: &Pod) -> Option<Keyring> {
    Running::read(pod.metadata.annotations.as_ref()).map(Running::keyring)
}

/// The restart that QuestDB was started for last or, while it has no pod, that of the one that its StatefulSet makes next.
pub(crate) fn restart_in_force(children: &Children) -> Option<String> {
    Running::in_force(children)?.restart_nonce
}

/// Whether a pod takes ports of its machine, as it says of itself. One that an older operator had made counts as one that does: its
/// name leads to the machine.
pub(crate) fn takes_host_ports(pod: &Pod) -> bool {
    Running::read(pod.metadata.annotations.as_ref()).is_none_or(|running| running.host_ports != Some(false))
}

/// The image that a pod was started with, by its well-known name: one that an older operator had made does not say it in so many
/// words.
pub(crate) fn image_of_pod(pod: &Pod) -> Option<String> {
    let running = Running::read(pod.metadata.annotations.as_ref()).map(|running| running.image);
    let asked = || pod.spec.as_ref().and_then(image_of_spec);
    // A runtime may name it by another registry, or by a digest that tells nothing.
    let told = || {
        let (_, version) = pod::questdb(pod)?.image.rsplit_once(':')?;
        catalogue::major(version).map(|_| catalogue::image_of(version))
    };
    running.or_else(asked).or_else(told)
}

/// The image that the pods of a StatefulSet are started with, by its well-known name.
pub(crate) fn image_of_template(set: Option<&StatefulSet>) -> Option<String> {
    let running = Running::read(of_template(set)).map(|running| running.image);
    running.or_else(|| image_of_spec(set?.spec.as_ref()?.template.spec.as_ref()?))
}

/// The same of what a pod is made of, whose image may come from any repository.
fn image_of_spec(pod: &PodSpec) -> Option<String> {
    let image = pod.containers.iter().find(|found| found.name == pod::QUESTDB)?.image.as_ref()?;
    let version = image.rsplit_once(':').filter(|(name, version)| {
        let is_digest = name.contains('@');
        !is_digest && catalogue::is_comparable(version)
    });
    Some(version.map_or_else(|| image.clone(), |(_, version)| catalogue::image_of(version)))
}

/// Whether a pod waits for its image although the next would be made in another way, from another repository or with other Secrets:
/// nothing of it runs, and it would wait for ever. What it is made with is not kept of a pod, and others may have written over the name.
pub(crate) fn is_stranded(set: Option<&StatefulSet>, pod: &Pod) -> bool {
    let mut containers = pod::preparing(pod).chain(pod::questdb(pod));
    let waits =
        containers.any(|found| pod::waiting_for(found).is_some_and(|reason| reason.contains("Image")));
    waits && differs(pod.metadata.annotations.as_ref(), of_template(set), names::TEMPLATE)
}

/// Annotations of a pod or of a template.
pub(super) type Annotations<'a> = Option<&'a BTreeMap<String, String>>;

/// The annotations of the template of a StatefulSet.
pub(super) fn of_template(set: Option<&StatefulSet>) -> Annotations<'_> {
    set?.spec.as_ref()?.template.metadata.as_ref()?.annotations.as_ref()
}

/// Whether a pod has another value under a key than its template. A pod without one is too old to tell.
pub(super) fn differs(pod: Annotations<'_>, template: Annotations<'_>, key: &str) -> bool {
    let of = |annotations: Annotations<'_>| annotations?.get(key).cloned();
    matches!((of(pod), of(template)), (Some(pod), Some(template)) if pod != template)
}

/// A short hash.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..4])
}
