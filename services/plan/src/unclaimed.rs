//! Machines of ours that no resource stands for: what somebody leaves behind who takes the finalizer off a resource that is
//! being deleted. They are told, and never touched: the resource may be on its way back, and a disk hangs on each.

use cloud::{Instance, InstanceId, Owner, key};

use crate::Settings;

/// One of them, by what its tags say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unclaimed {
    /// The machine.
    pub machine: InstanceId,
    /// Identity of its database.
    pub database: String,
    /// Namespace and name of the resource that it was made for; empty when somebody took that tag off.
    pub resource: String,
}

/// Those of these machines that live, are this cluster's, of a namespace that is seen, and of none of the databases that are
/// known.
pub fn unclaimed<'a>(
    settings: &Settings,
    machines: impl Iterator<Item = &'a Instance>,
    is_seen: impl Fn(&str) -> bool,
    is_known: impl Fn(&str) -> bool,
) -> Vec<Unclaimed> {
    let found = machines.filter(|machine| !machine.state.is_ending()).filter_map(|machine| {
        let owner = Owner::parse(&machine.tags).ok()??;
        if owner.cluster != settings.cluster || is_known(&owner.database) {
            return None;
        }
        let display = machine.tags.get(key::NAME).unwrap_or_default();
        let resource = display.strip_prefix(&format!("{}/", settings.cluster)).unwrap_or_default();
        let namespace = resource.split_once('/').map_or("", |(namespace, _)| namespace);
        let (machine, database) = (machine.id.clone(), owner.database);
        is_seen(namespace).then(|| Unclaimed { machine, database, resource: resource.to_owned() })
    });
    let mut found: Vec<Unclaimed> = found.collect();
    found.sort();
    found
}
