//! Looking at a database that is being destroyed, before its disk is copied a last time.
//!
//! *Invariant:* everything is read live, the resource too: a copy that was begun too early would not count, and would be made for
//! nothing.

use cloud::{Instance, InstanceState, Owner, Role, Select, Volume};
use kube::Api;
use plan::Subject;
use plan::snapshot::Ground;
use resources::QuestDB;

use super::Snapshots;
use super::ground::{Look, believed, disk, is_held};
use crate::error::Error;

/// Looks at a database without a pod, of which the copy of the disk under a `number` is asked for.
pub(super) async fn look(snapshots: &Snapshots, known: &QuestDB, number: u64) -> Result<Look, Error> {
    let context = &snapshots.context;
    let (name, namespace) =
        (known.metadata.name.clone().unwrap_or_default(), known.metadata.namespace.as_deref());
    let api: Api<QuestDB> = Api::namespaced(context.client.clone(), namespace.unwrap_or_default());
    let Some(database) = context.call("look at the database", api.get_opt(&name)).await? else {
        return Ok(Look::unclear(format!("QuestDB {name} is not there any more")));
    };
    let Some(subject) = believed(&database, &context.settings) else {
        return Ok(Look::unclear(format!("QuestDB {name} has no identity yet")));
    };
    if let Some(why) = is_not_asked(&database, &subject, &context.settings) {
        return Ok(Look::unclear(why));
    }
    let select = Select::database(&subject.cluster, &subject.database);
    let machines = context.cloud.describe_instances(&select).await;
    let machines = machines.map_err(Error::aws("look for machines of the database"))?;
    if let Some(why) = is_left(&machines) {
        return Ok(Look::unclear(why));
    }
    let (disk, volume) = match disk(snapshots, &database, &subject).await? {
        Ok(found) => found,
        Err(why) => return Ok(Look::unclear(why)),
    };
    if let Some(why) = is_held(&volume).or_else(|| is_of_other(&volume, &subject, number)) {
        return Ok(Look::unclear(why));
    }
    Ok(Look { ground: Ground::Ended { disk, number }, door: None, blind: None })
}

/// A machine that may still have the disk.
pub(super) fn is_left(machines: &[Instance]) -> Option<String> {
    let left = machines.iter().find(|machine| machine.state != InstanceState::Terminated)?;
    Some(format!("{} is {}", left.id, left.state))
}

/// Why a disk does not carry the number.
pub(super) fn is_of_other(volume: &Volume, subject: &Subject, number: u64) -> Option<String> {
    let owner = Owner { generation: Some(number), ..subject.owner(Role::Volume) };
    (Owner::parse(&volume.tags) != Ok(Some(owner)))
        .then(|| format!("{} is not of generation {number} by its tags", volume.id))
}

/// Why no last copy is asked for, by the resource itself.
pub(super) fn is_not_asked(
    database: &QuestDB,
    subject: &Subject,
    settings: &plan::Settings,
) -> Option<String> {
    let name = &subject.name;
    if plan::is_suspended(database) {
        return Some(format!("nothing is to be done for QuestDB {name}, as its annotation says"));
    }
    match plan::validate(database, subject.clone(), settings) {
        Ok(validated) if validated.keeps_copy() => None,
        Ok(_) => Some(format!("QuestDB {name} is not to be copied and destroyed")),
        Err(_) => Some(format!("the spec of QuestDB {name} is refused")),
    }
}
