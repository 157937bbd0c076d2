//! What is on offer: QuestDB versions, instance types, limits. Checked here, so that a wrong wish never leaves the API.

mod instance_types;
mod offer;
mod repository;
mod versions;

pub use instance_types::{InstanceType, InstanceTypes, InvalidInstanceTypes, instance_type};
pub use offer::{DefaultNotOnOffer, Offer};
pub use repository::{InvalidRepository, Repository};
pub use versions::{InvalidVersions, Versions};

/// QuestDB versions on offer unless a setting names others, oldest first.
pub const VERSIONS: &[&str] = &["9.3.4"];

/// The version of a database that names none, unless a setting says another.
pub const DEFAULT_VERSION: &str = "9.3.4";

/// The repository of QuestDB's images where no setting names another.
pub const QUESTDB_IMAGE: &str = "questdb/questdb";

/// The instance type of a database that names none.
pub const DEFAULT_INSTANCE_TYPE: &str = "m7i.large";

/// Least and greatest size of a volume in GiB.
pub const SIZE_GIB: (u32, u32) = (10, 16_384);
/// Size of a volume that names none, in GiB.
pub const DEFAULT_SIZE_GIB: u32 = 50;
/// Least and greatest IOPS of a volume of any type.
pub const IOPS: (u32, u32) = (100, 256_000);
/// IOPS of a volume that names none.
pub const DEFAULT_IOPS: u32 = 3_000;
/// Least and greatest throughput of a volume in MiB/s.
pub const THROUGHPUT: (u32, u32) = (125, 2_000);
/// Throughput of a volume that names none, in MiB/s.
pub const DEFAULT_THROUGHPUT: u32 = 125;
/// Most keys of server.conf in one database.
pub const CONFIG_KEYS: usize = 100;
/// Longest value of a server.conf key.
pub const CONFIG_VALUE_LENGTH: usize = 1_024;
/// Most CIDRs in one database.
pub const ALLOWED_CIDRS: usize = 50;
/// Longest CIDR, in bytes: an IPv6 network in full.
pub const CIDR_LENGTH: usize = 43;

/// Prefixes of server.conf keys that belong to Slipway: addresses, credentials, paths.
pub const RESERVED_CONFIG_PREFIXES: &[&str] = &[
    "http.bind.to",
    "http.net.bind.to",
    "http.min.",
    "pg.net.bind.to",
    "pg.user",
    "pg.password",
    "pg.readonly.",
    "http.user",
    "http.password",
    "line.tcp.net.bind.to",
    "line.tcp.auth",
    // What the web server shows and what SQL reads and writes are files below the root: credentials lie outside.
    "http.static.",
    "cairo.sql.backup.",
    "cairo.sql.copy.root",
    "cairo.sql.copy.work.root",
    "cairo.sql.copy.export.root",
    "cairo.volumes",
    "cairo.root",
    "cairo.snapshot.",
    // A restore that is put off would be done later, over newer data.
    "cairo.checkpoint.",
    // Health would fail for good after any error that QuestDB did not expect, and by that the kubelet restarts it.
    "http.pessimistic.",
    "metrics.enabled",
    "config.validation.strict",
];

/// Whether a key of server.conf belongs to Slipway.
pub fn is_reserved(key: &str) -> bool {
    RESERVED_CONFIG_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Keys of server.conf that Slipway itself writes, with the values that it gives them, which win: health and metrics on their own
/// port with one worker (more would only starve the probes of small machines), and a start that fails on a key that QuestDB does not
/// know.
///
/// The line protocol over TCP asks for nothing unless there are keys: it stays off here, and the pod's environment, which wins,
/// turns it on together with them. Over HTTP it asks for a password.
///
/// Probes carry no password, so health and metrics (on a port that the firewall lets nobody reach) ask for none.
pub const OWN_CONFIG: [(&str, &str); 7] = [
    ("config.validation.strict", "true"),
    ("http.health.check.authentication.required", "false"),
    ("http.min.enabled", "true"),
    ("http.min.worker.count", "1"),
    ("line.tcp.enabled", "false"),
    ("metrics.enabled", "true"),
    ("telemetry.enabled", "false"),
];

/// Whether nobody would heed this value of a key of server.conf, because Slipway writes another one.
pub fn is_overruled(key: &str, value: &str) -> bool {
    OWN_CONFIG.iter().any(|(own, written)| *own == key && *written != value)
}

/// Keys of server.conf that a running QuestDB takes over when it is told to read the file again, as `SHOW PARAMETERS` of 9.3.4
/// has them under `reloadable`, without those that belong to Slipway. Every later version is taken to have them too: whoever
/// relies on it asks the process afterwards.
pub const RELOADABLE: &[&str] = &[
    "cairo.mat.view.insert.as.select.batch.size",
    "cairo.mat.view.max.refresh.intervals",
    "cairo.mat.view.max.refresh.retries",
    "cairo.mat.view.rows.per.query.estimate",
    "cairo.parquet.export.copy.report.frequency.lines",
    "cairo.sql.asof.join.evacuation.threshold",
    "cairo.sql.asof.join.short.circuit.cache.capacity",
    "cairo.sql.copier.chunked",
    "cairo.sql.jit.max.in.list.size.threshold",
    "http.export.connection.limit",
    "http.ilp.connection.limit",
    "http.json.query.connection.limit",
    "http.multipart.header.buffer.size",
    "http.net.connection.limit",
    "http.recv.buffer.size",
    "http.request.header.buffer.size",
    "http.send.buffer.size",
    "line.http.max.recv.buffer.size",
    "line.tcp.net.connection.limit",
    "pg.named.statement.limit",
    "pg.net.connection.limit",
    "pg.recv.buffer.size",
    "pg.send.buffer.size",
    "query.tracing.enabled",
];
/// The oldest version of which [`RELOADABLE`] is known.
const RELOADABLE_SINCE: [u32; 3] = [9, 3, 4];

/// What EBS allows of each type of volume on offer, as the API reference of EC2 has it for `CreateVolume` (model of
/// aws-sdk-ec2 1.274) and the EBS user guide under "General Purpose SSD volumes" and "Provisioned IOPS SSD volumes" for the
/// ratios. EBS allows 65,536 GiB; how large a volume may be here is [`SIZE_GIB`].
pub const VOLUMES: [VolumeLimits; 2] = [
    VolumeLimits {
        name: "gp3",
        iops: (3_000, 80_000),
        iops_per_gib: 500,
        throughput: Some((125, 2_000)),
        iops_per_throughput: 4,
    },
    VolumeLimits {
        name: "io2",
        iops: (100, 256_000),
        iops_per_gib: 1_000,
        throughput: None,
        iops_per_throughput: 0,
    },
];

/// What EBS allows of a type of volume. A volume that asks for more would be refused for good, each time it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeLimits {
    /// EC2's name.
    pub name: &'static str,
    /// Least and greatest IOPS.
    pub iops: (u32, u32),
    /// Most IOPS for each GiB.
    pub iops_per_gib: u32,
    /// Least and greatest throughput in MiB/s, where it can be chosen at all.
    pub throughput: Option<(u32, u32)>,
    /// IOPS that each MiB/s needs.
    pub iops_per_throughput: u32,
}

/// A field of a volume and what is wrong with it.
pub type VolumeRefusal = (&'static str, String);

impl VolumeLimits {
    /// What EBS would refuse. A throughput that cannot be chosen is not looked at.
    pub fn refusals(&self, size_gib: u32, iops: u32, throughput: u32) -> Vec<VolumeRefusal> {
        let Self { name, iops: (least, most), iops_per_gib, .. } = *self;
        let mut wrong = Vec::new();
        let most_for_size = most.min(size_gib.saturating_mul(iops_per_gib));
        if iops < least || iops > most {
            wrong.push(("iops", format!("{name} allows {least} to {most}; got {iops}")));
        } else if iops > most_for_size {
            let detail = format!(
                "{name} of {size_gib} GiB allows at most {most_for_size} ({iops_per_gib} for each GiB); got {iops}"
            );
            wrong.push(("iops", detail));
        }
        let Some((least, most)) = self.throughput else { return wrong };
        let needed = throughput.saturating_mul(self.iops_per_throughput);
        if throughput < least || throughput > most {
            wrong.push(("throughput", format!("{name} allows {least} to {most}; got {throughput}")));
        } else if needed > iops && wrong.is_empty() {
            let detail = format!("{name} needs {needed} iops for {throughput} MiB/s; it has {iops}");
            wrong.push(("throughput", detail));
        }
        wrong
    }
}

/// What EBS allows of the type of that name.
pub fn volume_limits(name: &str) -> Option<&'static VolumeLimits> {
    VOLUMES.iter().find(|limits| limits.name == name)
}

/// The container image of a version on offer.
pub fn image(version: &str) -> Option<String> {
    VERSIONS.contains(&version).then(|| image_of(version))
}

/// The container image of a version, whether it is on offer or not, by its well-known name: by that one image is told from
/// another, whichever [`Repository`] it comes from.
pub fn image_of(version: &str) -> String {
    format!("{QUESTDB_IMAGE}:{version}")
}

/// The major version of a QuestDB version.
pub fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// Whether a running QuestDB of this version takes over another value of a key. Of a version that is no number nobody knows.
pub fn is_reloadable(version: &str, key: &str) -> bool {
    let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.as_slice() >= RELOADABLE_SINCE.as_slice())
        && RELOADABLE.contains(&key)
}

/// Whether a text can be the version of an image and be compared with others: it begins with a number, before the first dot.
pub fn is_comparable(version: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    major(version).is_some() && version.len() <= LONGEST_TAG && version.bytes().all(good)
}

/// Most characters of an image's tag.
const LONGEST_TAG: usize = 128;

/// Whether a version may not read what another one has written. Of a version that is no number nobody knows.
pub fn is_downgrade(from: &str, to: &str) -> bool {
    major(from).zip(major(to)).is_some_and(|(from, to)| to < from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_on_offer() {
        assert!(VERSIONS.contains(&DEFAULT_VERSION));
        assert!(instance_type(DEFAULT_INSTANCE_TYPE).is_some());
        assert!((SIZE_GIB.0..=SIZE_GIB.1).contains(&DEFAULT_SIZE_GIB));
        assert!((IOPS.0..=IOPS.1).contains(&DEFAULT_IOPS));
        assert!((THROUGHPUT.0..=THROUGHPUT.1).contains(&DEFAULT_THROUGHPUT));
        for limits in VOLUMES {
            for size in [SIZE_GIB.0, DEFAULT_SIZE_GIB, SIZE_GIB.1] {
                assert_eq!(
                    limits.refusals(size, DEFAULT_IOPS, DEFAULT_THROUGHPUT),
                    [],
                    "{} {size}",
                    limits.name
                );
            }
            assert!(IOPS.0 <= limits.iops.0 && limits.iops.1 <= IOPS.1, "{}", limits.name);
            let throughput = limits.throughput.unwrap_or(THROUGHPUT);
            assert!(THROUGHPUT.0 <= throughput.0 && throughput.1 <= THROUGHPUT.1, "{}", limits.name);
        }
    }

    #[test]
    fn what_is_reloaded_depends_on_key_and_version() {
        for (version, key, expected) in [
            ("9.3.4", "http.net.connection.limit", true),
            ("9.10.0", "http.net.connection.limit", true),
            ("10.0", "http.net.connection.limit", true),
            ("9.3.3", "http.net.connection.limit", false),
            ("9.3", "http.net.connection.limit", false),
            ("nightly", "http.net.connection.limit", false),
            ("9.3.4-rc1", "http.net.connection.limit", false),
            ("9.3.4", "shared.worker.count", false),
        ] {
            assert_eq!(is_reloadable(version, key), expected, "{version} {key}");
        }
        let is_ours = |key: &&&str| RESERVED_CONFIG_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        assert_eq!(RELOADABLE.iter().find(is_ours), None);
    }

    #[test]
    fn what_slipway_writes_itself_is_heeded_with_that_value_alone() {
        for (key, value) in OWN_CONFIG {
            assert!(!is_overruled(key, value) && is_overruled(key, "another"), "{key}");
        }
        assert!(!is_overruled("shared.worker.count", "2"));
        assert!(is_reserved("http.pessimistic.health.check.enabled"));
    }

    #[test]
    fn only_an_older_major_version_is_a_downgrade() {
        for (from, to, expected) in [
            ("9.3.4", "8.9.9", true),
            ("10.0.0", "9.9.9", true),
            ("9.3.4", "9.1.0", false),
            ("9.3.4", "10.0.0", false),
        ] {
            assert_eq!(is_downgrade(from, to), expected, "{from} {to}");
        }
        assert!(!is_downgrade("nightly", "9.3.4") && !is_downgrade("9.3.4", "nightly"));
    }

    #[test]
    fn only_what_begins_with_a_number_and_can_be_a_tag_is_comparable() {
        for (version, expected) in [
            ("9.3.4", true),
            ("10", true),
            ("9.4.0-rc1", true),
            ("nightly", false),
            ("", false),
            ("+9.3.4", false),
            ("9.3.4 ", false),
            ("9.3.4@sha256:0", false),
            // A digest, as far as it is taken for a version.
            ("4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945", false),
        ] {
            assert_eq!(is_comparable(version), expected, "{version:?}");
        }
        assert!(!is_comparable(&format!("9.{}", "1".repeat(LONGEST_TAG))));
    }

    #[test]
    fn what_ebs_would_refuse_is_told_by_field() {
        let check = |name: &str, (size, iops, throughput): (u32, u32, u32), expected: &[&str]| {
            let refusals = volume_limits(name).unwrap().refusals(size, iops, throughput);
            let fields: Vec<&str> = refusals.iter().map(|(field, _)| *field).collect();
            assert_eq!(fields, expected, "{name} {size} {iops} {throughput}: {refusals:?}");
        };
        check("gp3", (10, 5_000, 1_250), &[]);
        check("gp3", (10, 5_001, 125), &["iops"]);
        check("gp3", (10, 2_999, 125), &["iops"]);
        check("gp3", (160, 80_000, 2_000), &[]);
        check("gp3", (16_384, 80_001, 125), &["iops"]);
        check("gp3", (50, 3_000, 750), &[]);
        check("gp3", (50, 3_000, 751), &["throughput"]);
        check("gp3", (50, 3_000, 124), &["throughput"]);
        check("gp3", (16_384, 80_000, 2_001), &["throughput"]);
        check("gp3", (10, 6_000, 2_000), &["iops"]);
        check("gp3", (10, 6_000, 2_001), &["iops", "throughput"]);
        check("io2", (10, 10_000, 0), &[]);
        check("io2", (10, 10_001, 9_999), &["iops"]);
        check("io2", (10, 99, 0), &["iops"]);
        check("io2", (256, 256_000, 0), &[]);
        check("io2", (16_384, 256_001, 0), &["iops"]);
        assert_eq!(volume_limits("st1"), None);
    }
}
