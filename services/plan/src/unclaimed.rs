//! Machines and firewalls of ours that no resource stands for: what somebody leaves behind who takes the finalizer off a resource that
//! is being deleted. They are told, and never touched: the resource may be on its way back, and a disk hangs on each machine. Of a
//! database without a machine the firewall tells, which goes before its resource does; a disk may be meant to stay.

use cloud::{Instance, Owner, SecurityGroup, Tags, key};

use crate::Settings;

/// One of them, by what its tags say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unclaimed {
    /// The id of the machine, or of the firewall.
    pub id: String,
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
    let living = machines.filter(|machine| !machine.state.is_ending());
    of(settings, living.map(|machine| (machine.id.as_str(), &machine.tags)), is_seen, is_known)
}

/// The same of firewalls.
pub fn unclaimed_firewalls<'a>(
    settings: &Settings,
    groups: impl Iterator<Item = &'a SecurityGroup>,
    is_seen: impl Fn(&str) -> bool,
    is_known: impl Fn(&str) -> bool,
) -> Vec<Unclaimed> {
    of(settings, groups.map(|group| (group.id.as_str(), &group.tags)), is_seen, is_known)
}

fn of<'a>(
    settings: &Settings,
    things: impl Iterator<Item = (&'a str, &'a Tags)>,
    is_seen: impl Fn(&str) -> bool,
    is_known: impl Fn(&str) -> bool,
) -> Vec<Unclaimed> {
    let cluster = format!("{}/", settings.cluster);
    let found = things.filter_map(|(id, tags)| {
        let owner = Owner::parse(tags).ok()??;
        if owner.cluster != settings.cluster || is_known(&owner.database) {
            return None;
        }
        let resource = tags.get(key::NAME).unwrap_or_default().strip_prefix(&cluster).unwrap_or_default();
        let namespace = resource.split_once('/').map_or("", |(namespace, _)| namespace);
        let (id, database) = (id.to_owned(), owner.database);
        is_seen(namespace).then(|| Unclaimed { id, database, resource: resource.to_owned() })
    });
    let mut found: Vec<Unclaimed> = found.collect();
    found.sort();
    found
}
