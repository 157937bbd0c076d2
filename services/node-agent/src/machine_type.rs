//! What an instance type offers: processors and memory. A small table of the families in use plus a rule for the rest,
//! because a Node needs a capacity and the sandbox's machines are all the same one. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Capacity of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Virtual processors.
    pub processors: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Whether its processors are Graviton.
    pub arm: bool,
}

/// By type name like `m7i.xlarge`. An unknown shape counts as a small machine.
pub fn capacity(instance_type: &str) -> Capacity {
    let (family, size) = instance_type.split_once('.').unwrap_or((instance_type, ""));
    let processors = processors(size);
    let per_processor = match family.bytes().next() {
        Some(b'c') => 2_048,
        Some(b'r' | b'i') => 8_192,
        Some(b'x') => 16_384,
        _ => 4_096,
    };
    let memory_mib = match (family.starts_with('t'), size) {
        (true, "nano") => 512,
        (true, "micro") => 1_024,
        (true, "small") => 2_048,
        (true, "medium") => 4_096,
        _ => u64::from(processors) * per_processor,
    };
    let arm = family.trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).contains('g');
    Capacity { processors, memory_mib, arm }
}

/// As a Node's `status.capacity`, or with a kubelet's reservation taken off as `status.allocatable`.
pub fn resources(capacity: Capacity, reserved: bool) -> BTreeMap<String, Quantity> {
    let (cpu, memory) = if reserved {
        (u64::from(capacity.processors) * 1_000 - 70, capacity.memory_mib.saturating_sub(355))
    } else {
        (u64::from(capacity.processors) * 1_000, capacity.memory_mib)
    };
    BTreeMap::from([
        ("cpu".to_owned(), Quantity(format!("{cpu}m"))),
        ("memory".to_owned(), Quantity(format!("{memory}Mi"))),
        ("ephemeral-storage".to_owned(), Quantity("20Gi".to_owned())),
        ("pods".to_owned(), Quantity("110".to_owned())),
    ])
}

fn processors(size: &str) -> u32 {
    match size {
        "medium" => 1,
        "xlarge" => 4,
        _ => size
            .strip_suffix("xlarge")
            .and_then(|factor| factor.parse::<u32>().ok())
            .filter(|factor| (1..=64).contains(factor))
            .map_or(2, |factor| factor * 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_sizes() {
        let check = |name: &str, processors: u32, memory_gib: u64, arm: bool| {
            let expected = Capacity { processors, memory_mib: memory_gib * 1_024, arm };
            assert_eq!(capacity(name), expected, "{name}");
        };
        check("m7i.large", 2, 8, false);
        check("m7i.xlarge", 4, 16, false);
        check("r7i.2xlarge", 8, 64, false);
        check("r7g.4xlarge", 16, 128, true);
        check("c6gn.large", 2, 4, true);
        check("t3.micro", 2, 1, false);
        check("mystery", 2, 8, false);
    }

    #[test]
    fn allocatable_is_less_than_capacity() {
        let capacity = capacity("m7i.large");
        assert_eq!(resources(capacity, false)["cpu"].0, "2000m");
        assert_eq!(resources(capacity, true)["cpu"].0, "1930m");
        assert_eq!(resources(capacity, true)["memory"].0, "7837Mi");
    }
}
