//! A custom resource becomes a wish that can be carried out, or a list of what is wrong and where. What the API server
//! already bounds is not checked again; what only the operator knows (catalogue, suffix, zones) is.
//!
//! A wish to stop or to go is checked for nothing: a bad field must not keep anybody from deleting a database.

use std::collections::{BTreeMap, BTreeSet};

use domain::catalogue::{self, InstanceType, Repository};
use domain::{Rule, Violation, Violations, reference_token};
use resources::render::sorted;
use resources::{
    CredentialsSpec, DeletionPolicy, Exposure, InstructionSpec, PodOverrides, QuestDB, QuestDBSpec,
    SecretSpec, StorageSpec, UpgradeResult, names,
};

use crate::goal::{is_held_back, is_leaving};
use crate::in_force::{self, keeps_name};
use crate::overrides;
use crate::reach::{self, Reach};
use crate::secrets::Keyring;
use crate::upgrade::version_of;
use crate::{Goal, InForce, Settings, Subject};

/// A wish that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// Which database.
    pub subject: Subject,
    /// What is asked for in the end.
    pub goal: Goal,
    /// The resource itself is being deleted.
    pub removing: bool,
    /// The same, were it not for its protection.
    pub held_back: bool,
    /// The instruction, if the resource is managed.
    pub instruction: Option<InstructionSpec>,
    /// Generation of the spec.
    pub generation: i64,
    /// QuestDB version.
    pub version: String,
    /// Container image by its well-known name, which tells one QuestDB from another.
    pub image: String,
    /// Where that image comes from.
    pub repository: Repository,
    /// Secrets with which images are pulled in this cluster, beside those of the spec.
    pub image_pull_secrets: Vec<String>,
    /// EC2 instance type.
    pub instance_type: InstanceType,
    /// Machine image.
    pub node_image: String,
    /// Disk.
    pub storage: StorageSpec,
    /// Keys of server.conf that the user chose.
    pub config: BTreeMap<String, String>,
    /// DNS name.
    pub hostname: String,
    /// Who may connect, sorted.
    pub allowed_cidrs: Vec<String>,
    /// Where credentials come from.
    pub credentials: CredentialsSpec,
    /// Which of them are in force. Not of the wish: planning looks at the operator's Secret.
    pub keyring: Keyring,
    /// The restart that was asked for.
    pub restart_nonce: Option<String>,
    /// Zone, if the wish names one.
    pub zone: Option<String>,
    /// How it is reached within its cluster.
    pub reach: Reach,
    /// How its pod is otherwise than by default.
    pub overrides: PodOverrides,
    /// Fields that would be refused if they were new, and why; they stay as they are.
    pub kept: Vec<String>,
}

impl Validated {
    /// The container image by the name under which it is pulled. Nobody is restarted for another of the same version.
    pub fn container_image(&self) -> String {
        self.repository.image(version_of(&self.image))
    }

    /// The Secrets with which images are pulled, each once: those of the spec, then those of the cluster. Nobody is restarted for
    /// another one of the cluster.
    pub fn pull_secrets(&self) -> Vec<&str> {
        let own = self.overrides.image_pull_secrets.iter().map(|secret| secret.name.as_str());
        let mut told = BTreeSet::new();
        own.chain(self.image_pull_secrets.iter().map(String::as_str))
            .filter(|name| told.insert(*name))
            .collect()
    }

    /// Whether the disk is destroyed only once a last copy of it is complete.
    pub fn keeps_copy(&self) -> bool {
        self.goal == Goal::Purge && self.storage.deletion_policy == DeletionPolicy::Snapshot
    }
}

/// Checks a resource whose identity is known, as if nothing ran.
pub fn validate(resource: &QuestDB, subject: Subject, settings: &Settings) -> Result<Validated, Violations> {
    validate_over(resource, subject, settings, InForce::default)
}

/// The same, of a database of which it can be known what is in force: asked for only where something is wrong.
pub fn validate_over(
    resource: &QuestDB,
    subject: Subject,
    settings: &Settings,
    in_force: impl FnOnce() -> InForce,
) -> Result<Validated, Violations> {
    let spec = &resource.spec;
    let goal = Goal::of(resource);
    let mut violations = Violations::default();
    if goal == Goal::Serve {
        check(resource, &subject, settings, &mut violations);
    }
    let kept =
        if violations.0.is_empty() { Vec::new() } else { in_force().pardon(resource, &mut violations) };
    let known = settings.instance_types.known(&spec.compute.instance_type);
    let known = known.or_else(|| catalogue::instance_type(catalogue::DEFAULT_INSTANCE_TYPE));
    let Some(instance_type) = known.cloned() else {
        violations.push(unknown(in_force::INSTANCE_TYPE, "the catalogue is empty"));
        return Err(violations);
    };
    violations.into_result()?;
    let allowed_cidrs = sorted(&spec.network.allowed_cidrs);
    Ok(Validated {
        goal,
        removing: is_leaving(resource),
        held_back: is_held_back(resource),
        instruction: spec.instruction.clone(),
        generation: resource.metadata.generation.unwrap_or_default(),
        version: spec.version.clone(),
        image: catalogue::image_of(&spec.version),
        repository: repository(spec, settings),
        image_pull_secrets: settings.image_pull_secrets.clone(),
        instance_type,
        node_image: spec.compute.node_image.clone().unwrap_or_else(|| settings.node_image.clone()),
        storage: spec.storage.clone(),
        config: spec.config.clone(),
        hostname: kept_name(resource, &subject).unwrap_or_else(|| hostname(spec, &subject, settings)),
        allowed_cidrs,
        credentials: spec.credentials.clone().unwrap_or_default(),
        keyring: Keyring::default(),
        restart_nonce: spec.restart_nonce.clone(),
        zone: spec.zone.clone(),
        reach: Reach::of(&spec.network, &subject, settings),
        overrides: spec.pod.clone().unwrap_or_default(),
        kept,
        subject,
    })
}

/// Where the image comes from: one that is named was accepted, be it from a repository of before.
fn repository(spec: &QuestDBSpec, settings: &Settings) -> Repository {
    let named = spec.image.as_deref().and_then(|image| {
        let repository = image.strip_suffix(spec.version.as_str())?.strip_suffix(':')?;
        repository.parse().ok()
    });
    named.unwrap_or_else(|| settings.questdb_image.clone())
}

/// The name that a database was given, by its own name if it asks for none: another suffix of the operator is for those that come
/// later, and renames nobody.
fn kept_name(resource: &QuestDB, subject: &Subject) -> Option<String> {
    if let Some(own) = &resource.spec.network.hostname {
        return keeps_name(resource).then(|| cloud::normalise_name(own));
    }
    let given = &resource.status.as_ref()?.dns.as_ref()?.name;
    given.strip_prefix(&subject.name)?.starts_with('.').then(|| given.clone())
}

/// The DNS name of a database: its own if it may have it, else resource name and suffix.
pub fn hostname(spec: &QuestDBSpec, subject: &Subject, settings: &Settings) -> String {
    let own = spec.network.hostname.as_deref().map(cloud::normalise_name);
    own.filter(|name| is_below(name, &settings.dns_suffix))
        .unwrap_or_else(|| format!("{}.{}", subject.name, cloud::normalise_name(&settings.dns_suffix)))
}

fn check(resource: &QuestDB, subject: &Subject, settings: &Settings, violations: &mut Violations) {
    let spec = &resource.spec;
    if subject.name.len() > NAME_LENGTH {
        let detail = format!("a resource's name may have at most {NAME_LENGTH} characters");
        violations.push(Violation::new(in_force::NAME, Rule::Range, detail));
    }
    if !is_name_of_service(&subject.name) {
        let detail =
            "a resource's name begins with a letter and has no dot, because its Service is called so too";
        violations.push(Violation::new(in_force::NAME, Rule::Format, detail));
    }
    if !settings.versions.contains(&spec.version) && !is_in_force(resource) {
        let detail = not_on_offer(&settings.versions.told(), "SLIPWAY_QUESTDB_VERSIONS");
        violations.push(unknown("/spec/version", &detail));
    }
    let image = settings.questdb_image.image(&spec.version);
    if spec.image.as_ref().is_some_and(|wished| *wished != image) {
        violations.push(one_of(in_force::IMAGE, std::iter::once(image.as_str())));
    }
    let types = &settings.instance_types;
    if types.get(&spec.compute.instance_type).is_none() {
        let detail = not_on_offer(&types.told(), "SLIPWAY_INSTANCE_TYPES");
        violations.push(unknown(in_force::INSTANCE_TYPE, &detail));
    }
    if let Some(image) = &spec.compute.node_image
        && *image != settings.node_image
    {
        violations.push(one_of("/spec/compute/nodeImage", std::iter::once(settings.node_image.as_str())));
    }
    if let Some(zone) = &spec.zone
        && !settings.zones.contains_key(zone)
    {
        violations.push(one_of("/spec/zone", settings.zones.keys().map(String::as_str)));
    }
    check_storage(&spec.storage, violations);
    check_config(&spec.config, violations);
    check_network(spec, settings, violations);
    check_credentials(spec.credentials.as_ref(), subject, violations);
    reach::check(&spec.network, subject, settings, violations);
    if let Some(overrides) = &spec.pod {
        overrides::check(overrides, types.known(&spec.compute.instance_type), violations);
    }
}

/// What is said to who asks for another version or machine than there is, and to who told a backend of it and not the operator.
fn not_on_offer(told: &str, setting: &str) -> String {
    format!(
        "{told}; {setting} of this cluster's operator says which, and that of the backend must name no others"
    )
}

/// Whether the version that is asked for is the one that the database has, which may be on offer no more.
fn is_in_force(resource: &QuestDB) -> bool {
    let Some(status) = &resource.status else { return false };
    let version = Some(&resource.spec.version);
    let image = catalogue::image_of(&resource.spec.version);
    let started = status.last_upgrade.as_ref().is_some_and(|upgrade| {
        let rolled_back = upgrade.result == UpgradeResult::RolledBack;
        image == if rolled_back { upgrade.from.as_str() } else { upgrade.to.as_str() }
    });
    status.version.as_ref() == version || started
}

/// Whether a Service may have the name of a resource: Kubernetes before 1.36 takes none that begins with a digit.
fn is_name_of_service(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase()) && !name.contains('.')
}

/// Longest name of a resource: StatefulSet's labels and the DNS label need room.
const NAME_LENGTH: usize = 52;

fn check_storage(storage: &StorageSpec, violations: &mut Violations) {
    let limits = catalogue::volume_limits(storage.volume_type.as_str());
    let refusals = limits.map(|limits| limits.refusals(storage.size_gib, storage.iops, storage.throughput));
    for (field, detail) in refusals.into_iter().flatten() {
        violations.push(Violation::new(format!("/spec/storage/{field}"), Rule::Range, detail));
    }
}

fn check_config(config: &BTreeMap<String, String>, violations: &mut Violations) {
    for (key, value) in config {
        let pointer = format!("/spec/config/{}", reference_token(key));
        // Some of QuestDB's have capitals: `shared.worker.haltOnError`.
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if key.is_empty() || !key.bytes().all(good) {
            let detail = "a key has letters, digits, '.', '_' and '-'";
            violations.push(Violation::new(&pointer, Rule::Format, detail));
        }
        if value.contains(['\n', '\r', '\0']) {
            violations.push(Violation::new(&pointer, Rule::Format, "a value is one line"));
        }
        if let Some(prefix) =
            catalogue::RESERVED_CONFIG_PREFIXES.iter().find(|prefix| key.starts_with(*prefix))
        {
            let detail = format!("keys that begin with {prefix} belong to Slipway");
            violations.push(Violation::new(&pointer, Rule::Conflict, detail));
        } else if catalogue::is_overruled(key, value) {
            let detail = "Slipway writes another value, whatever is asked for";
            violations.push(Violation::new(&pointer, Rule::Conflict, detail));
        }
    }
}

fn check_network(spec: &QuestDBSpec, settings: &Settings, violations: &mut Violations) {
    if let Some(name) = &spec.network.hostname
        && !is_below(&cloud::normalise_name(name), &settings.dns_suffix)
    {
        let detail = format!("must be a name directly below {}", settings.dns_suffix);
        violations.push(Violation::new("/spec/network/hostname", Rule::Format, detail));
    }
    check_cidrs("/spec/network/allowedCidrs", &spec.network.allowed_cidrs, violations);
    if let Some(egress) = &spec.network.egress {
        check_cidrs("/spec/network/egress/cidrs", &egress.cidrs, violations);
    }
    if spec.network.exposure == Exposure::Public && spec.network.allowed_cidrs.is_empty() {
        let detail = "a public database needs at least one CIDR, else nobody could reach it";
        violations.push(Violation::new("/spec/network/allowedCidrs", Rule::Required, detail));
    }
}

fn check_cidrs(pointer: &str, cidrs: &[String], violations: &mut Violations) {
    for (index, _) in cidrs.iter().enumerate().filter(|(_, cidr)| !is_cidr(cidr)) {
        let pointer = format!("{pointer}/{index}");
        violations.push(Violation::new(pointer, Rule::Format, "must be a CIDR such as 10.0.0.0/8"));
    }
}

/// What the operator writes is no gift: it would take over its own word for ever.
fn check_credentials(wish: Option<&CredentialsSpec>, subject: &Subject, violations: &mut Violations) {
    let Some(CredentialsSpec { psql, psql_readonly, http, ilp }) = wish else { return };
    let login = |login: Option<&SecretSpec>| login.map(|login| login.secret_name.clone());
    let named = [
        ("psql", login(psql.as_ref())),
        ("psqlReadonly", login(psql_readonly.as_ref())),
        ("http", login(http.as_ref())),
        ("ilp", ilp.as_ref().and_then(|ilp| ilp.secret_name.clone())),
    ];
    let (own, drawn) = (names::credentials(&subject.name), names::drawn_key(&subject.name, ""));
    for (field, name) in named {
        if name.is_some_and(|name| name == own || name.starts_with(&drawn)) {
            let pointer = format!("/spec/credentials/{field}/secretName");
            violations.push(Violation::new(
                pointer,
                Rule::Conflict,
                "the operator itself writes that Secret",
            ));
        }
    }
}

/// One label below the suffix.
fn is_below(name: &str, suffix: &str) -> bool {
    let suffix = cloud::normalise_name(suffix);
    let label = name.strip_suffix(&suffix).and_then(|rest| rest.strip_suffix('.'));
    label.is_some_and(reach::is_host_label)
}

/// Whether a text is a range of addresses.
pub fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<std::net::IpAddr>() else { return false };
    let widest = if address.is_ipv4() { 32 } else { 128 };
    // A number may have a sign, and a length may not.
    length.bytes().all(|byte| byte.is_ascii_digit())
        && length.parse::<u8>().is_ok_and(|length| length <= widest)
}

fn one_of<'a>(pointer: &str, choices: impl Iterator<Item = &'a str>) -> Violation {
    unknown(pointer, &format!("must be one of: {}", choices.collect::<Vec<_>>().join(", ")))
}

fn unknown(pointer: &str, detail: &str) -> Violation {
    Violation::new(pointer, Rule::Unknown, detail)
}

#[cfg(test)]
mod guide;
#[cfg(test)]
mod tests;
