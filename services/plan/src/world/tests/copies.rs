//! Last copies in the model: EC2's part, and that of the controller of snapshots, which is the real planner's. The model knows
//! what nobody who looks at it can know: what was last written to the disk, and what of that is in a copy.

use std::sync::Arc;
use std::time::SystemTime;

use cloud::{
    InstanceState, NewSnapshot, SnapshotId, SnapshotState, Tags, Volume, VolumeId, VolumeSnapshot, key,
};
use domain::catalogue;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::QuestDBSnapshot;
use resources::names;
use resources::names::snapshot::{FINALIZER, IDENTITY};

use super::model::{Refusal, World};
use crate::fixture::validated;
use crate::snapshot::{
    Disk, Ground, Known, Seen, Step, identity, is_settled, last_copy_of, plan, status, unrestored,
};
use crate::{Evidence, Observed, Validated, copies_to_look_at, serves_as, understates};

/// A copy of the disk in EC2.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub(super) shown: VolumeSnapshot,
    /// What was last written to the disk when it was begun.
    pub(super) holds: u64,
    /// EC2 cannot finish it.
    spoilt: bool,
}

/// Nothing is written to a disk that does not say which machine may.
pub(super) fn check_numbered(volume: &Volume, node: &Node) {
    let number = names::generation_of_node(node.metadata.name.as_deref().unwrap());
    let shown = volume.tags.get(key::GENERATION).and_then(|text| text.parse().ok());
    assert!(shown >= number, "{:?} is given a disk of generation {shown:?}", node.metadata.name);
}

/// Nothing is started on a disk that says only of an older one that it may have opened it.
pub(super) fn check_told(disk: Option<&Volume>, image: &str) {
    let Some(disk) = disk else { return };
    let (version, shown) = (crate::upgrade::version_of(image), crate::version_on(disk, None));
    let is_told = shown.is_some_and(|shown| !catalogue::is_downgrade(version, shown));
    assert!(is_told || !catalogue::is_comparable(version), "{version} starts on a disk of {shown:?}");
}

impl World {
    /// Asked for live: a disk is said to be an older QuestDB's only while that serves.
    pub(super) fn check_version(&self, id: &str, tags: &Tags) -> Result<(), Refusal> {
        let Some(version) = tags.get(key::QUESTDB) else { return Ok(()) };
        let mut disks = self.volumes.iter().filter(|disk| disk.id.as_str() == id);
        let children = &self.children;
        let (set, pod) = (children.stateful_set.as_deref(), children.pod.as_deref());
        if disks.any(|disk| understates(disk, version) && !serves_as(version, disk, set, pod)) {
            return Err("a later version may have opened the disk");
        }
        Ok(())
    }

    /// Asked for live.
    pub(super) fn last_copies(&self, wish: &Validated, observed: &Observed) -> Vec<VolumeSnapshot> {
        let Some((_, basis)) = copies_to_look_at(wish, observed) else { return Vec::new() };
        let found = self.copied.iter().filter(|copy| copy.shown.tags.get(key::BASIS) == Some(&basis));
        found.map(|copy| copy.shown.clone()).collect()
    }

    /// As whoever destroys the disk asks EC2 right before; and whether that was right.
    pub(super) fn check_last_copy(
        &self,
        volume: &VolumeId,
        copy: Option<&SnapshotId>,
    ) -> Result<(), Refusal> {
        let Some(disk) = self.volumes.iter().find(|found| found.id == *volume) else { return Ok(()) };
        let wish = validated(&self.resource);
        if !wish.keeps_copy() {
            return if copy.is_none() { Ok(()) } else { Err("no copy is asked for any more") };
        }
        let found = self.copied.iter().find(|found| Some(&found.shown.id) == copy);
        let found = found.ok_or("there is no last copy")?;
        let given = crate::number_given(&self.resource);
        let (subject, machines) = (&wish.subject, &*self.instances);
        let evidence = Evidence { subject, disk, machines, given, copy: &found.shown };
        evidence.judge().map_err(|_| "it is no last copy")?;
        let whole = found.shown.state == SnapshotState::Completed && found.shown.volume == *volume;
        assert!(whole, "{volume} is destroyed, and its copy is not there: {found:?}");
        assert_eq!(found.holds, self.written, "{volume} is destroyed, and its copy lacks what was written");
        Ok(())
    }

    /// Somebody deletes a snapshot.
    pub(super) fn delete_snapshot(&mut self, name: &str) {
        let Some(found) =
            self.snapshots.iter_mut().find(|found| found.metadata.name.as_deref() == Some(name))
        else {
            return;
        };
        Arc::make_mut(found).metadata.deletion_timestamp.get_or_insert(Time(self.now));
        self.snapshots.retain(|one| !is_gone(one));
    }

    pub(super) fn tick_last_copies(&mut self) {
        for copy in self.copied.iter_mut().filter(|copy| copy.shown.state == SnapshotState::Pending) {
            copy.shown.state = if copy.spoilt { SnapshotState::Error } else { SnapshotState::Completed };
        }
        if self.unheeded {
            return;
        }
        let orders = self.snapshots.iter().filter(|found| last_copy_of(found).is_some());
        for order in orders.filter(|order| !is_settled(order)).cloned().collect::<Vec<_>>() {
            self.look_after(&order);
        }
        self.snapshots.retain(|one| last_copy_of(one).is_none() || !is_gone(one));
    }

    /// What the controller of snapshots sees of a database that is being destroyed.
    fn ground(&self, number: u64) -> Ground {
        let wish = validated(&self.resource);
        let ended = self.instances.iter().all(|found| found.state == InstanceState::Terminated);
        match self.volumes.as_slice() {
            [disk]
                if wish.keeps_copy()
                    && ended
                    && self.children.pod.is_none()
                    && disk.is_detached()
                    && disk.tags.get(key::GENERATION) == Some(&number.to_string()) =>
            {
                let disk = Disk {
                    volume: disk.id.clone(),
                    cluster: wish.subject.cluster.clone(),
                    database: wish.subject.database.clone(),
                    version: wish.version,
                    unrestored: unrestored(&self.resource, disk),
                };
                Ground::Ended { disk, number }
            }
            _ => Ground::Unclear("the database is not at its end".to_owned()),
        }
    }

    fn look_after(&mut self, order: &Arc<QuestDBSnapshot>) {
        let mine = |copy: &&Copied| copy.shown.tags.get(key::SNAPSHOT) == identity(order);
        let seen = Seen {
            ground: self.ground(last_copy_of(order).unwrap()),
            copies: self.copied.iter().filter(mine).map(|copy| copy.shown.clone()).collect(),
            conclusive: true,
            before: Some("one that has waited for longer".to_owned()),
            known: Known::default(),
            refused: None,
            now: self.now,
        };
        let planned = plan(order, &seen);
        let mut order = order.clone();
        let changed = Arc::make_mut(&mut order);
        changed.status = Some(status(changed, &seen, &planned, None));
        let metadata = &mut changed.metadata;
        match planned.step {
            None => {}
            Some(Step::Hold) => {
                let minted = format!("00000000-0000-0000-0000-{:012}", self.number);
                metadata.annotations.get_or_insert_default().insert(IDENTITY.to_owned(), minted);
                metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
            }
            Some(Step::Begin(new)) => self.begin_copy(new),
            Some(Step::Trust(id)) => {
                let copy = self.copied.iter_mut().find(|copy| copy.shown.id == id).unwrap();
                copy.shown.tags = std::mem::take(&mut copy.shown.tags).with(key::CONSISTENT, "true");
            }
            Some(Step::Discard(id)) => self.copied.retain(|copy| copy.shown.id != id),
            Some(Step::LetGo) => metadata.finalizers = None,
            Some(other) => panic!("{} of a database that has ended", other.name()),
        }
        metadata.resource_version = Some(self.next().to_string());
        let known = self.snapshots.iter_mut().find(|one| one.metadata.uid == order.metadata.uid);
        *known.unwrap() = order;
    }

    fn begin_copy(&mut self, new: NewSnapshot) {
        let spoilt = self.spoilt > 0;
        self.spoilt = self.spoilt.saturating_sub(1);
        let shown = VolumeSnapshot {
            id: SnapshotId::new(format!("snap-{}", self.next())),
            state: SnapshotState::Pending,
            volume: new.volume,
            size_gib: 50,
            progress: None,
            message: None,
            encrypted: true,
            tags: new.tags,
            // EC2 tells it in milliseconds.
            started_at: Some(SystemTime::from(self.now + SignedDuration::from_millis(241))),
        };
        self.copied.push(Copied { shown, holds: self.written, spoilt });
    }

    /// The copy that holds everything.
    pub(super) fn whole_copy(&self) -> Option<&Copied> {
        let whole = |copy: &&Copied| {
            copy.shown.state == SnapshotState::Completed
                && copy.holds == self.written
                && copy.shown.tags.get(key::CONSISTENT).is_some()
        };
        self.copied.iter().find(whole)
    }

    /// Somebody takes the tags off everything that is a copy.
    pub(super) fn untag_copies(&mut self, off: &str) {
        for copy in &mut self.copied {
            let others: Tags = copy.shown.tags.iter().filter(|(found, _)| *found != off).collect();
            copy.shown.tags = others;
        }
    }
}

fn is_gone(snapshot: &QuestDBSnapshot) -> bool {
    let metadata = &snapshot.metadata;
    metadata.deletion_timestamp.is_some() && metadata.finalizers.iter().flatten().next().is_none()
}
