//! The objects we intend, one file per kind: our fields and nothing else, so that server-side apply owns exactly those.
//! Total functions of valid values.

mod config;
mod disruption_budget;
mod ingress;
mod linker;
mod machine;
mod monitor;
mod network_policy;
mod overlay;
mod persistent_volume;
mod ports;
mod range;
mod restorer;
mod secret;
mod service;
mod snapshot_order;
mod stateful_set;

use serde_json::Value;

pub use config::{checksum, config_map, server_conf};
pub(crate) use config::{is_fixed, is_heeded, server_keys};
pub use disruption_budget::disruption_budget;
pub use ingress::routes;
pub use machine::{launch, node_labels, node_value, security_group, security_group_rules};
pub(crate) use machine::{machine_groups, rules_by_weight, security_group_name};
pub use monitor::monitor;
pub use network_policy::network_policy;
pub(crate) use persistent_volume::kind_of;
pub use persistent_volume::{claim, new_volume, persistent_volume};
pub use restorer::Copied;
pub use secret::{drawn_key, secret};
pub use service::{headless, service};
pub(crate) use snapshot_order::snapshot_order;
pub(crate) use stateful_set::{USER, all_tolerations, give_time};
pub use stateful_set::{pod_labels, stateful_set};

/// The same with these parts, as they are: of whatever stands within `json!` a copy is made, and of a part within a part as many as
/// there are around it.
fn with_parts<const PARTS: usize>(mut whole: Value, parts: [(&str, Value); PARTS]) -> Value {
    for (name, part) in parts {
        whole[name] = part;
    }
    whole
}

/// A size as Kubernetes writes it back: in the greatest unit that divides it. Any other spelling would look edited.
fn gibibytes(gib: u32) -> String {
    if gib.is_multiple_of(1_024) { format!("{}Ti", gib / 1_024) } else { format!("{gib}Gi") }
}

/// The same for memory.
fn mebibytes(mib: u32) -> String {
    if mib.is_multiple_of(1_024) { gibibytes(mib / 1_024) } else { format!("{mib}Mi") }
}

#[cfg(test)]
mod tests;
