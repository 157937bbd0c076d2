//! What is on offer: QuestDB versions, instance types, limits. Checked here, so that a wrong wish never leaves the API.

/// QuestDB versions on offer, oldest first.
pub const VERSIONS: &[&str] = &["9.3.4"];

/// The version of a database that names none.
pub const DEFAULT_VERSION: &str = "9.3.4";

/// EC2 instance types on offer with their memory in MiB and processors.
pub const INSTANCE_TYPES: &[InstanceType] = &[
    InstanceType { name: "m7i.large", memory_mib: 8_192, processors: 2 },
    InstanceType { name: "m7i.xlarge", memory_mib: 16_384, processors: 4 },
    InstanceType { name: "r7i.2xlarge", memory_mib: 65_536, processors: 8 },
    InstanceType { name: "r7i.4xlarge", memory_mib: 131_072, processors: 16 },
];

/// The instance type of a database that names none.
pub const DEFAULT_INSTANCE_TYPE: &str = "m7i.large";

/// Least and greatest size of a volume in GiB.
pub const SIZE_GIB: (u32, u32) = (10, 16_384);
/// Size of a volume that names none, in GiB.
pub const DEFAULT_SIZE_GIB: u32 = 50;
/// Least and greatest IOPS of a gp3 volume.
pub const IOPS: (u32, u32) = (3_000, 16_000);
/// IOPS of a volume that names none.
pub const DEFAULT_IOPS: u32 = 3_000;
/// Least and greatest throughput of a gp3 volume in MB/s.
pub const THROUGHPUT: (u32, u32) = (125, 1_000);
/// Throughput of a volume that names none, in MB/s.
pub const DEFAULT_THROUGHPUT: u32 = 125;
/// Most keys of server.conf in one database.
pub const CONFIG_KEYS: usize = 100;
/// Longest value of a server.conf key.
pub const CONFIG_VALUE_LENGTH: usize = 1_024;
/// Most CIDRs in one database.
pub const ALLOWED_CIDRS: usize = 50;

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
    "cairo.root",
    "cairo.snapshot.",
    "metrics.enabled",
    "config.validation.strict",
];

/// An EC2 instance type on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceType {
    /// EC2's name.
    pub name: &'static str,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub processors: u32,
}

/// The instance type of that name.
pub fn instance_type(name: &str) -> Option<&'static InstanceType> {
    INSTANCE_TYPES.iter().find(|kind| kind.name == name)
}

/// The container image of a version on offer.
pub fn image(version: &str) -> Option<String> {
    VERSIONS.contains(&version).then(|| format!("questdb/questdb:{version}"))
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
    }
}
