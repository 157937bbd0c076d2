//! What callers ask for, as they ask for it, and the rules that turn it into a desired state.
//!
//! The raw forms hold what came in; `Create::validate` and `Change::apply` are the only ways out, and they tell everything
//! that is wrong at once. Serialisation is `wire`'s.

mod network;

use std::collections::BTreeMap;

use crate::catalogue::{self, Offer};
use crate::cluster::Cluster;
use crate::desired::{Compute, DeletionPolicy, Desired, Exposure, Network, RunState, Storage, VolumeType};
use crate::disk::Disk;
use crate::id::{DatabaseId, DatabaseName};
use crate::recovery::OnFailure;
use crate::violation::{Rule, Violation, Violations, reference_token};

/// A new database, as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Create {
    /// Name.
    pub name: String,
    /// AWS region.
    pub region: String,
    /// Everything that can also change later.
    pub change: Change,
}

/// A change, as asked for; what is `None` stays as it is (or takes its default on create).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// QuestDB version.
    pub version: Option<String>,
    /// EC2 instance type.
    pub instance_type: Option<String>,
    /// Size of the volume in GiB.
    pub size_gib: Option<i64>,
    /// EBS volume type.
    pub volume_type: Option<String>,
    /// IOPS of the volume.
    pub iops: Option<i64>,
    /// Throughput of the volume in MiB/s.
    pub throughput: Option<i64>,
    /// What becomes of the volume on delete.
    pub deletion_policy: Option<String>,
    /// All keys of server.conf (replaces what was there).
    pub config: Option<BTreeMap<String, String>>,
    /// CIDRs that may connect (replaces what was there).
    pub allowed_cidrs: Option<Vec<String>>,
    /// Who can reach the database.
    pub exposure: Option<String>,
    /// Whether nobody may delete the database.
    pub deletion_protection: Option<bool>,
    /// What to do if this fails for good; not part of the desired state.
    pub on_failure: Option<String>,
}

/// A new database that follows every rule; it only lacks its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Valid {
    /// Name.
    pub name: DatabaseName,
    /// AWS region.
    pub region: String,
    fields: Fields,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fields {
    version: String,
    instance_type: String,
    storage: Storage,
    config: BTreeMap<String, String>,
    allowed_cidrs: Vec<String>,
    exposure: Exposure,
    deletion_protection: bool,
}

impl Create {
    /// Checks every rule and tells all that is wrong, by what is on offer.
    pub fn validate(&self, offer: &Offer) -> Result<Valid, Violations> {
        let mut wrong = Violations::default();
        let name = wrong.keep(
            self.name
                .parse::<DatabaseName>()
                .map_err(|error| Violation::new("/name", Rule::Format, error.to_string())),
        );
        let version = self.change.version.as_deref();
        wrong.0.extend(version.and_then(|version| offer.versions().refusal("/version", version)));
        let fields = self.change.over(&Fields::defaults(offer), &mut wrong);
        // One that nobody named may not be on offer either.
        wrong.0.extend(offer.instance_types().refusal("/compute/instance_type", &fields.instance_type));
        if self.region.is_empty() {
            wrong.push(Violation::new("/region", Rule::Required, "name the AWS region, such as eu-west-1"));
        }
        match name {
            Some(name) if wrong.0.is_empty() => Ok(Valid { name, region: self.region.clone(), fields }),
            _ => Err(wrong),
        }
    }
}

impl Valid {
    /// The first desired state of the database `id` in `cluster`.
    pub fn place(self, id: DatabaseId, cluster: &Cluster) -> Desired {
        let hostname = cluster.hostname(&self.name, id);
        let Fields { version, instance_type, storage, config, allowed_cidrs, exposure, deletion_protection } =
            self.fields;
        Desired {
            name: self.name,
            run_state: RunState::Running,
            version,
            compute: Compute { instance_type, node_image: None },
            storage,
            config,
            network: Network { hostname, allowed_cidrs, exposure },
            restart_nonce: None,
            deletion_protection,
        }
    }
}

impl Change {
    /// What to do if this fails for good; the way back unless something else was asked for.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure.as_deref().and_then(OnFailure::parse).unwrap_or(OnFailure::Revert)
    }

    /// The desired state that follows `current`; equal to it when nothing changes. Whatever the database has may stay, be it
    /// on offer no more. How small its disk may be asked for depends on what is told of that.
    pub fn apply(&self, current: &Desired, disk: Disk, offer: &Offer) -> Result<Desired, Violations> {
        let mut wrong = Violations::default();
        if matches!(current.run_state, RunState::Deleted | RunState::Purged) {
            wrong.push(Violation::new(
                "",
                Rule::Conflict,
                "the database is deleted; it cannot change any more",
            ));
        }
        let version = self.version.as_deref().unwrap_or(&current.version);
        wrong.0.extend(offer.versions().refusal_after(&current.version, "/version", version));
        let fields = self.over(&Fields::of(current), &mut wrong);
        if fields.instance_type != current.compute.instance_type {
            let types = offer.instance_types();
            wrong.0.extend(types.refusal("/compute/instance_type", &fields.instance_type));
        }
        wrong.0.extend(shrinks(fields.storage.size_gib, current.storage.size_gib, disk));
        wrong.into_result()?;
        let mut next = current.clone();
        next.version = fields.version;
        next.compute.instance_type = fields.instance_type;
        next.storage = fields.storage;
        next.config = fields.config;
        next.network.allowed_cidrs = fields.allowed_cidrs;
        next.network.exposure = fields.exposure;
        next.deletion_protection = fields.deletion_protection;
        Ok(next)
    }

    /// What is asked for over what there was; which version and instance type may be, is checked by who asks.
    fn over(&self, base: &Fields, wrong: &mut Violations) -> Fields {
        let mut fields = base.clone();
        if let Some(version) = &self.version {
            fields.version.clone_from(version);
        }
        if let Some(instance_type) = &self.instance_type {
            fields.instance_type.clone_from(instance_type);
        }
        self.storage_over(&mut fields.storage, wrong);
        if let Some(config) = &self.config {
            check_config(config, &fields.config, wrong);
            fields.config.clone_from(config);
        }
        if let Some(cidrs) = &self.allowed_cidrs {
            fields.allowed_cidrs = network::check_cidrs(cidrs, wrong);
        }
        word("/network/exposure", self.exposure.as_deref(), Exposure::ALL, wrong, &mut fields.exposure);
        // Only of a network that is asked for: another change must not fail for what was allowed once.
        if self.exposure.is_some() || self.allowed_cidrs.is_some() {
            network::check_exposure(fields.exposure, &fields.allowed_cidrs, wrong);
        }
        fields.deletion_protection = self.deletion_protection.unwrap_or(fields.deletion_protection);
        let mut on_failure = OnFailure::Revert;
        word("/on_failure", self.on_failure.as_deref(), OnFailure::ALL, wrong, &mut on_failure);
        fields
    }

    fn storage_over(&self, storage: &mut Storage, wrong: &mut Violations) {
        let mut number = |pointer: &str, wish: Option<i64>, (least, most): (u32, u32), target: &mut u32| {
            let Some(wish) = wish else { return };
            match u32::try_from(wish).ok().filter(|value| (least..=most).contains(value)) {
                Some(value) => *target = value,
                None => wrong.push(Violation::new(
                    pointer,
                    Rule::Range,
                    format!("must be {least} to {most}; got {wish}"),
                )),
            }
        };
        number("/storage/size_gib", self.size_gib, catalogue::SIZE_GIB, &mut storage.size_gib);
        number("/storage/iops", self.iops, catalogue::IOPS, &mut storage.iops);
        number("/storage/throughput", self.throughput, catalogue::THROUGHPUT, &mut storage.throughput);
        let wish = self.volume_type.as_deref();
        word("/storage/type", wish, VolumeType::ALL, wrong, &mut storage.volume_type);
        let wish = self.deletion_policy.as_deref();
        word("/storage/deletion_policy", wish, DeletionPolicy::ALL, wrong, &mut storage.deletion_policy);
        self.check_volume(storage, wrong);
    }

    /// The numbers fit each other. Only of a disk that is asked for: another change must not fail for what was allowed once.
    fn check_volume(&self, storage: &Storage, wrong: &mut Violations) {
        let numbers = [self.size_gib, self.iops, self.throughput];
        let pointers = ["/storage/size_gib", "/storage/iops", "/storage/throughput", "/storage/type"];
        let told = wrong.0.iter().any(|violation| pointers.contains(&violation.pointer.as_str()));
        if told || (numbers == [None; 3] && self.volume_type.is_none()) {
            return;
        }
        let limits = catalogue::volume_limits(&storage.volume_type.to_string());
        let refusals =
            limits.map(|limits| limits.refusals(storage.size_gib, storage.iops, storage.throughput));
        for (field, detail) in refusals.into_iter().flatten() {
            wrong.push(Violation::new(format!("/storage/{field}"), Rule::Range, detail));
        }
    }
}

impl Fields {
    fn defaults(offer: &Offer) -> Self {
        Self {
            version: offer.default_version().to_owned(),
            instance_type: catalogue::DEFAULT_INSTANCE_TYPE.to_owned(),
            storage: Storage {
                size_gib: catalogue::DEFAULT_SIZE_GIB,
                volume_type: VolumeType::Gp3,
                iops: catalogue::DEFAULT_IOPS,
                throughput: catalogue::DEFAULT_THROUGHPUT,
                provisioned: false,
                deletion_policy: DeletionPolicy::Retain,
            },
            config: BTreeMap::new(),
            allowed_cidrs: Vec::new(),
            exposure: Exposure::Internal,
            deletion_protection: false,
        }
    }

    fn of(desired: &Desired) -> Self {
        Self {
            version: desired.version.clone(),
            instance_type: desired.compute.instance_type.clone(),
            storage: desired.storage.clone(),
            config: desired.config.clone(),
            allowed_cidrs: desired.network.allowed_cidrs.clone(),
            exposure: desired.network.exposure,
            deletion_protection: desired.deletion_protection,
        }
    }
}

/// What is wrong with a size that is wished for where `now` is asked for, if it is too small.
fn shrinks(wish: u32, now: u32, disk: Disk) -> Option<Violation> {
    let least = disk.least(now);
    if wish >= least {
        return None;
    }
    let detail = if least < now {
        format!("can be taken back to no less than {least} GiB, which the disk has or is being given")
    } else {
        format!("can only grow: it is {now} GiB now")
    };
    Some(Violation::new("/storage/size_gib", Rule::Shrinks, detail))
}

fn word<T: Copy + std::fmt::Display>(
    pointer: &str,
    wish: Option<&str>,
    all: &[T],
    wrong: &mut Violations,
    target: &mut T,
) {
    let Some(wish) = wish else { return };
    let Some(value) = all.iter().find(|value| value.to_string() == wish) else {
        let words: Vec<String> = all.iter().map(ToString::to_string).collect();
        wrong.push(Violation::new(pointer, Rule::Unknown, format!("must be one of: {}", words.join(", "))));
        return;
    };
    *target = *value;
}

type Keys = BTreeMap<String, String>;

/// A key that belongs to Slipway by now, and that a database has had, may stay as it is.
fn check_config(config: &Keys, before: &Keys, wrong: &mut Violations) {
    if config.len() > catalogue::CONFIG_KEYS {
        let most = catalogue::CONFIG_KEYS;
        wrong.push(Violation::new("/config", Rule::Range, format!("holds at most {most} keys")));
    }
    for (key, value) in config {
        let pointer = format!("/config/{}", reference_token(key));
        let well_formed = !key.is_empty()
            && key.len() <= 128
            // Some of QuestDB's have capitals: `shared.worker.haltOnError`.
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !well_formed {
            wrong.push(Violation::new(
                &pointer,
                Rule::Format,
                "a key of server.conf has letters, digits, '.', '_' and '-'",
            ));
        } else if before.get(key) != Some(value)
            && (catalogue::is_reserved(key) || catalogue::is_overruled(key, value))
        {
            wrong.push(Violation::new(&pointer, Rule::Conflict, "belongs to Slipway and cannot be set"));
        }
        if value.len() > catalogue::CONFIG_VALUE_LENGTH || value.chars().any(char::is_control) {
            let most = catalogue::CONFIG_VALUE_LENGTH;
            wrong.push(Violation::new(
                &pointer,
                Rule::Format,
                format!("a value has at most {most} bytes and no control characters"),
            ));
        }
    }
}

#[cfg(test)]
mod tests;
