//! What EC2 is asked for, of a snapshot that is to be begun.

use cloud::{NewSnapshot, Owner, Role, key};
use resources::QuestDBSnapshot;

use super::{Disk, Ground, Seen, identity};

/// What is asked of EC2: everything that anybody will ever have to know of the copy is in its tags.
pub(super) fn new(resource: &QuestDBSnapshot, seen: &Seen, disk: &Disk) -> NewSnapshot {
    let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    let generation = match &seen.ground {
        Ground::Ended { number, .. } => Some(*number),
        Ground::Absent | Ground::Stopped { .. } | Ground::Serving { .. } | Ground::Unclear(_) => None,
    };
    let unrestored = match &seen.ground {
        Ground::Stopped { disk, .. } | Ground::Ended { disk, .. } => disk.unrestored.as_deref(),
        // What a checkpoint holds is restored as it is.
        Ground::Absent | Ground::Serving { .. } | Ground::Unclear(_) => None,
    };
    let owner = Owner { generation, ..Owner::new(&disk.cluster, &disk.database, Role::Snapshot) };
    let tags = owner.tags().named(cut(&format!("{}/{namespace}/{name}", disk.cluster), TAG));
    let tags = match unrestored {
        Some(disks) => tags.with(key::UNRESTORED, disks),
        None => tags,
    };
    NewSnapshot {
        volume: disk.volume.clone(),
        description: cut(&format!("{} of QuestDB {namespace}/{}", name, resource.spec.database), DESCRIPTION),
        tags: tags
            .with(key::SNAPSHOT, identity(resource).unwrap_or_default())
            .with(key::BASIS, seen.ground.basis().unwrap_or_default())
            .with(key::NAMESPACE, namespace)
            .with(key::OBJECT, name)
            .with(key::QUESTDB, &disk.version)
            .with(key::VOLUME, disk.volume.as_str()),
    }
}

/// How many characters EC2 takes of a description, and of the value of a tag.
const DESCRIPTION: usize = 255;
const TAG: usize = 256;

/// What people read in the AWS console, and nothing rests on: a snapshot may have a name of 253 characters.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
