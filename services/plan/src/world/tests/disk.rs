//! A disk that grows in the model: EC2 shows the new size before it can be used, the kubelet grows the file system once, and
//! both say so.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cloud::{ModificationState, VolumeChange, VolumeId, VolumeKind, VolumeModification};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus};
use resources::{Phase, RunState, VolumeType, names};
use serde_json::{Value, json};

use super::kubernetes::parse;
use super::model::{Refusal, World};
use super::runner::{pass, settle};
use super::{check_serving, phase, serving, wish};
use crate::{Kind, Observed, Step, Validated, Work, modification_must_be_read, work};

/// Ticks that a change of a disk takes until it can be used.
const WORK: usize = 3;
/// Ticks that EC2 optimizes it then.
const OPTIMIZES: usize = 4;

impl World {
    /// EC2 begins to change the disk.
    pub(super) fn begin_modification(&mut self, volume: &VolumeId, target: VolumeChange) {
        self.usable = self.volumes.iter().find(|found| found.id == *volume).map(|found| found.size_gib);
        self.modification = Some(VolumeModification {
            volume: volume.clone(),
            state: ModificationState::Modifying,
            progress: Some(0),
            target,
            message: None,
            started_at: None,
        });
        (self.modifying, self.optimizing) = (WORK, OPTIMIZES);
    }

    pub(super) fn is_modifying(&self) -> bool {
        self.modification.as_ref().is_some_and(|found| found.state == ModificationState::Modifying)
    }

    pub(super) fn is_optimizing(&self) -> bool {
        self.modification.as_ref().is_some_and(|found| found.state == ModificationState::Optimizing)
    }

    /// What the operator reads of it, asked for as it asks.
    pub(super) fn modification_of(
        &self,
        resource: &resources::QuestDB,
        wish: &Validated,
        observed: &Observed,
    ) -> Option<VolumeModification> {
        self.modification.clone().filter(|_| modification_must_be_read(resource, wish, observed))
    }

    pub(super) fn tick_disk(&mut self) {
        match self.modification.as_mut() {
            Some(found) if self.modifying > 0 => {
                self.modifying -= 1;
                found.progress = Some(if self.modifying == 0 { 60 } else { 50 });
                if self.modifying == 0 {
                    found.state = ModificationState::Optimizing;
                }
            }
            Some(found) if self.optimizing > 0 => {
                self.optimizing -= 1;
                found.progress = Some(if self.optimizing == 0 { 100 } else { 77 });
                if self.optimizing == 0 {
                    found.state = ModificationState::Completed;
                }
            }
            _ => {}
        }
        if !self.bind() {
            return;
        }
        let children = &self.children;
        let (Some(claim), Some(volume)) = (&children.claim, children.persistent_volumes.first()) else {
            return;
        };
        let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.clone());
        if claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Lost")) {
            let claim = Arc::make_mut(self.children.claim.as_mut().unwrap());
            claim.status.as_mut().unwrap().phase = Some("Bound".to_owned());
            return;
        }
        let known = claim.status.as_ref().and_then(|status| status.capacity.clone());
        if known == capacity || (known.is_some() && children.pod.is_none()) {
            return;
        }
        if let (Some(_), Some(small)) = (&known, self.usable.filter(|_| self.is_modifying())) {
            // The kubelet believes what the PersistentVolume says: a second time it does not look.
            let asked = &capacity.as_ref().unwrap()["storage"].0;
            assert_eq!(*asked, format!("{small}Gi"), "a file system grows before its disk has");
        }
        let status = PersistentVolumeClaimStatus {
            phase: Some("Bound".to_owned()),
            capacity,
            ..PersistentVolumeClaimStatus::default()
        };
        let number = self.next().to_string();
        let claim = Arc::make_mut(self.children.claim.as_mut().unwrap());
        (claim.status, claim.metadata.resource_version) = (Some(status), Some(number));
    }

    /// Kubernetes' binder: a disk is for the one claim that it names by its uid, and for the next new one of that name if it names
    /// none; a claim that was bound and is named no more is lost. Whether it is bound.
    fn bind(&mut self) -> bool {
        let Some(found) = self.children.claim.as_deref() else { return false };
        let disk = found.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
        let disks = &self.children.persistent_volumes;
        let place = disks.iter().position(|found| found.metadata.name.as_ref() == disk);
        let (Some(claim), Some(place)) = (found.metadata.uid.clone(), place) else { return false };
        let bound = disks[place].spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
        if bound.is_none() && self.is_bound() {
            let claim = Arc::make_mut(self.children.claim.as_mut().unwrap());
            claim.status.as_mut().unwrap().phase = Some("Lost".to_owned());
            return false;
        }
        if bound.is_none() {
            let number = self.next().to_string();
            let volume = Arc::make_mut(&mut self.children.persistent_volumes[place]);
            volume.metadata.resource_version = Some(number);
            volume.spec.as_mut().and_then(|spec| spec.claim_ref.as_mut()).unwrap().uid = Some(claim.clone());
        }
        bound.is_none_or(|bound| bound == claim)
    }

    /// An apply of the `PersistentVolume`. A field that nobody else owns goes when its owner leaves it out; the binder's stays.
    pub(super) fn write_disk(&mut self, mut body: Value) {
        let of = |found: &Arc<PersistentVolume>| found.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
        let name = body["metadata"]["name"].as_str().map(str::to_owned);
        let mut all = std::mem::take(&mut self.children.persistent_volumes);
        let place = all.iter().position(|found| found.metadata.name == name);
        let named = place.map(|place| all.remove(place)).as_ref().and_then(of);
        let uid = &mut body["spec"]["claimRef"]["uid"];
        if uid.is_null() && !self.names_claim {
            *uid = json!(named);
        } else if uid.as_str() != named.as_deref() {
            self.names_claim = !uid.is_null();
        }
        all.insert(0, Arc::new(parse(&body)));
        self.children.persistent_volumes = all;
    }

    /// An apply of the claim. The status is a resource of its own, and what it stands for cannot be changed.
    pub(super) fn write_claim(&mut self, body: &Value) -> Result<(), Refusal> {
        let claim: PersistentVolumeClaim = parse(body);
        let disk = |claim: &PersistentVolumeClaim| claim.spec.as_ref()?.volume_name.clone();
        let found = self.children.claim.as_deref();
        if found.is_some_and(|found| disk(found) != disk(&claim)) {
            return Err("the spec of a claim is immutable");
        }
        let status = found.and_then(|found| found.status.clone());
        self.children.claim = Some(Arc::new(PersistentVolumeClaim { status, ..claim }));
        Ok(())
    }

    /// Whether a pod gets the disk.
    pub(super) fn is_bound(&self) -> bool {
        let claim = self.children.claim.as_ref();
        claim.is_some_and(|claim| {
            claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
        })
    }

    /// How large the file system is.
    fn file_system(&self) -> String {
        let claim = self.children.claim.as_ref().unwrap();
        claim.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0.clone()
    }
}

fn resizing(world: &World) -> (String, String, String) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == names::condition::VOLUME_RESIZING).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

/// Passes and ticks until the condition has this reason; its text.
fn until(world: &mut World, reason: &str) -> String {
    for _ in 0..super::runner::ENOUGH {
        pass(world, &mut 0, None, false);
        let (status, found, text) = resizing(world);
        if found == reason {
            assert_eq!(status == "True", ["Modifying", "Growing"].contains(&reason), "{text}");
            return text;
        }
        world.tick();
    }
    panic!("{reason} was never said: {:?}", resizing(world));
}

#[test]
fn growth_ends_with_the_file_system_and_is_told_on_the_way() {
    let mut world = serving();
    assert_eq!(world.file_system(), "50Gi");
    wish(&mut world, 2, |spec| spec.storage.size_gib = 80);
    let text = until(&mut world, "Modifying");
    assert!(text.contains("80 GiB"), "{text}");
    world.tick();
    pass(&mut world, &mut 0, None, false);
    let (_, _, text) = resizing(&world);
    assert!(text.contains("EC2 is changing vol-") && text.contains(", 50 % done"), "{text}");
    let volume = world.children.persistent_volumes[0].spec.clone().unwrap();
    assert_eq!(
        volume.capacity.unwrap()["storage"].0,
        "50Gi",
        "the kubelet would grow nothing, and never look again"
    );
    let text = until(&mut world, "Growing");
    assert!(text.contains("has 80 GiB, its file system 50: the kubelet"), "{text}");
    let carried_out =
        |world: &World| world.resource.status.as_ref().unwrap().instruction.as_ref().unwrap().seq;
    assert_eq!(carried_out(&world), 1, "what was asked for cannot be used yet");
    // What can be used is carried out, however long EC2 moves what lies on it.
    let text = until(&mut world, "Optimizing");
    assert!(text.contains("is as asked for; EC2 optimizes it, "), "{text}");
    assert_eq!((world.file_system().as_str(), carried_out(&world)), ("80Gi", 2));
    assert_eq!(phase(&world), Some(Phase::Ready));
    assert_eq!(until(&mut world, "Done"), "the disk is as asked for");
    check_serving(&world, None);
}

#[test]
fn what_ec2_does_with_a_disk_is_told_by_its_last_change() {
    use ModificationState::{Completed, Failed, Modifying, Optimizing};
    let (to_it, elsewhere) = (Some(6_000), Some(5_000));
    // What the disk shows, what the last change leads to, and how far it is.
    for (shown, target, state, expected) in [
        (3_000, to_it, Modifying, Work::Changing),
        (3_000, elsewhere, Modifying, Work::Changing),
        (6_000, to_it, Modifying, Work::Changing),
        (6_000, to_it, ModificationState::Unknown("new".to_owned()), Work::Changing),
        // The volume is shown as it was before, or something else is asked for by now.
        (3_000, to_it, Optimizing, Work::Changing),
        (3_000, elsewhere, Optimizing, Work::Holding),
        (3_000, None, Optimizing, Work::Holding),
        (6_000, to_it, Optimizing, Work::Optimizing),
        (6_000, elsewhere, Optimizing, Work::Optimizing),
        (3_000, to_it, Completed, Work::Nothing),
        (6_000, to_it, Completed, Work::Nothing),
        (3_000, to_it, Failed, Work::Nothing),
    ] {
        let what = format!("{shown} {target:?} {state:?}");
        let mut world = serving();
        wish(&mut world, 2, |spec| spec.storage.iops = 6_000);
        let volume = world.volumes[0].id.clone();
        world.begin_modification(&volume, VolumeChange { iops: target, ..VolumeChange::default() });
        world.volumes[0].iops = Some(shown);
        world.modification.as_mut().unwrap().state = state;
        let mut observed = world.look();
        observed.account.modification = world.modification.clone();
        assert_eq!(work(&crate::fixture::validated(&world.resource), &observed), expected, "{what}");
        observed.account.modification.as_mut().unwrap().volume = "vol-other".into();
        assert_eq!(work(&crate::fixture::validated(&world.resource), &observed), Work::Nothing, "{what}");
    }
}

#[test]
fn the_next_change_waits_until_ec2_has_optimized_the_last_one_and_is_asked_for_once() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.iops = 6_000);
    until(&mut world, "Optimizing");
    let before = world.modified;
    wish(&mut world, 3, |spec| (spec.storage.iops, spec.storage.throughput) = (7_000, 500));
    // The model refuses it until then, and the report would give its words.
    let text = until(&mut world, "Delayed");
    let expected = "is to have 7000 IOPS, 500 MiB/s as soon as EC2 has optimized it after its last change, ";
    assert!(text.contains(expected) && text.contains("0 % done"), "{text}");
    assert_eq!((world.modified, phase(&world)), (before, Some(Phase::Updating)));
    settle(&mut world, None, false);
    assert_eq!(world.modified, before + 1);
    assert_eq!((world.volumes[0].iops, world.volumes[0].throughput), (Some(7_000), Some(500)));
    check_serving(&world, None);
}

#[test]
fn how_far_ec2_is_costs_a_status_for_each_ten_percent_and_none_at_rest() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.iops = 6_000);
    until(&mut world, "Optimizing");
    (world.modifying, world.optimizing) = (0, 0);
    let mut texts = Vec::new();
    let mut statuses = 0;
    let mut look = |world: &mut World, state: ModificationState, percent: u8| {
        let found = world.modification.as_mut().unwrap();
        (found.state, found.progress) = (state, Some(percent));
        let before = world.resource.metadata.resource_version.clone();
        let planned = pass(world, &mut 0, None, false);
        assert_eq!((planned.actions.len(), phase(world)), (0, Some(Phase::Ready)));
        statuses += usize::from(world.resource.metadata.resource_version != before);
        texts.push(resizing(world).2);
        statuses
    };
    let begun = look(&mut world, ModificationState::Optimizing, 0);
    for percent in 0..100 {
        look(&mut world, ModificationState::Optimizing, percent);
    }
    assert_eq!(look(&mut world, ModificationState::Optimizing, 99) - begun, 9);
    assert_eq!(look(&mut world, ModificationState::Completed, 100) - begun, 10);
    // Whatever is shown from here on, nobody looks.
    for percent in [10, 20, 30] {
        assert_eq!(look(&mut world, ModificationState::Optimizing, percent) - begun, 10);
    }
    assert!(texts[50].contains(", 40 % done"), "{}", texts[50]);
    assert_eq!(texts.last().unwrap(), "the disk is as asked for");
}

#[test]
fn whoever_pauses_meanwhile_is_told_no_number_that_grows_old() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.iops = 6_000);
    until(&mut world, "Optimizing");
    super::operations::become_(&mut world, RunState::Paused);
    settle(&mut world, None, false);
    assert_eq!(resizing(&world), ("False".into(), "Done".into(), "the disk is as asked for".into()));
}

#[test]
fn another_type_is_asked_for_with_all_that_it_has() {
    // An adopted disk of another type may have no number of operations, of which EC2 would choose one.
    let mut world = serving();
    let volume = &mut world.volumes[0];
    (volume.kind, volume.iops, volume.throughput) = (VolumeKind::Other("st1".to_owned()), None, None);
    let asked = |world: &mut World| {
        let planned = pass(world, &mut 0, None, false);
        let mut steps = planned.actions.iter().map(|action| action.step.clone());
        steps.find_map(|step| match step {
            Step::ModifyVolume { change, .. } => Some(change),
            _ => None,
        })
    };
    let gp3 = VolumeChange {
        size_gib: None,
        kind: Some(VolumeKind::Gp3),
        iops: Some(3_000),
        throughput: Some(125),
    };
    assert_eq!(asked(&mut world), Some(gp3));
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.volume_type = VolumeType::Io2);
    let io2 = VolumeChange { kind: Some(VolumeKind::Io2), iops: Some(3_000), ..VolumeChange::default() };
    assert_eq!(asked(&mut world), Some(io2));
}

#[test]
fn who_forgot_that_a_disk_grows_finds_out_by_its_persistent_volume() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.size_gib = 80);
    until(&mut world, "Modifying");
    // The report of it was lost, and EC2 shows the new size already: the model fails where anybody grows the file system now.
    world.resource.status.as_mut().unwrap().conditions.clear();
    settle(&mut world, None, false);
    assert_eq!(world.file_system(), "80Gi");
    check_serving(&world, None);
}

#[test]
fn a_change_that_ec2_gave_up_is_asked_for_again_in_its_words() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.size_gib = 80);
    let volume = world.volumes[0].id.clone();
    world.begin_modification(&volume, VolumeChange { size_gib: Some(80), ..VolumeChange::default() });
    let begun = world.now;
    let found = world.modification.as_mut().unwrap();
    (found.state, found.message) = (ModificationState::Failed, Some("no room in the zone".to_owned()));
    let since = Duration::from_secs(begun.as_second().try_into().unwrap());
    found.started_at = Some(SystemTime::UNIX_EPOCH + since);
    (world.modifying, world.optimizing) = (0, 0);
    let before = world.modified;
    let text = until(&mut world, "Delayed");
    let again = Timestamp::from_second(begun.as_second() + 3_600).unwrap();
    let expected = format!(
        "is to have 80 GiB; EC2 gave up the last change: no room in the zone; tried again after {again}"
    );
    assert!(text.ends_with(&expected), "{text}");
    for minutes in [1, 30, 59] {
        world.now = begun + SignedDuration::from_mins(minutes);
        pass(&mut world, &mut 0, None, false);
        assert_eq!(world.modified, before, "it is asked for again after {minutes} min");
    }
    // Something else was not given up.
    let mut other = world.clone();
    wish(&mut other, 3, |spec| spec.storage.size_gib = 90);
    pass(&mut other, &mut 0, None, false);
    assert_eq!(other.modified, before + 1);
    world.now = again;
    let planned = pass(&mut world, &mut 0, None, false);
    let asked =
        planned.actions.iter().find(|action| matches!(action.step, Step::ModifyVolume { .. })).unwrap();
    assert!(asked.reason.ends_with("EC2 gave up the last change: no room in the zone"), "{}", asked.reason);
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn a_file_system_that_is_no_smaller_waits_for_nobody() {
    // As the API server writes them, and as people may have.
    for (size, waits) in [
        ("50Gi", false),
        ("51200Mi", false),
        ("53687091200", false),
        ("1Ti", false),
        ("49Gi", true),
        ("odd", false),
    ] {
        let mut world = serving();
        let claim = Arc::make_mut(world.children.claim.as_mut().unwrap());
        claim.status = parse(&json!({ "phase": "Bound", "capacity": { "storage": size } }));
        let (seen, observed) = world.see();
        let validated = crate::fixture::validated(&seen);
        let planned = crate::plan(&seen, &validated, &observed, &crate::fixture::settings());
        let state = planned.state(crate::Part::Tuning);
        assert_eq!(matches!(state, Some(crate::State::Running(_))), waits, "{size}: {state:?}");
    }
}

#[test]
fn a_disk_that_somebody_else_grows_is_followed_when_it_can_be_used() {
    let mut world = serving();
    let volume = world.volumes[0].id.clone();
    world.begin_modification(&volume, VolumeChange { size_gib: Some(80), ..VolumeChange::default() });
    world.volumes[0].size_gib = 80;
    // The model fails where the file system is grown before the disk has.
    settle(&mut world, None, false);
    assert_eq!(world.file_system(), "80Gi");
    until(&mut world, "Done");
    check_serving(&world, None);
}

#[test]
fn a_claim_that_somebody_deleted_is_made_again_and_gets_the_disk() {
    let mut world = super::operations::paused();
    let (disk, uid) = (world.volumes[0].id.clone(), uid_of_claim(&world));
    world.children.claim = None;
    super::operations::become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.volumes[0].id, disk);
    assert!(world.is_bound() && uid_of_claim(&world) != uid, "{:?}", world.children.persistent_volumes);
    // Whatever is written to the disk from now on says so too, also while the claim is not seen.
    assert!(world.names_claim);
    let claim = world.children.claim.take();
    let mut grown = world.resource.clone();
    grown.spec.storage.size_gib = 80;
    world.volumes[0].size_gib = 80;
    let asked = crate::fixture::validated(&grown);
    let planned = crate::plan(&grown, &asked, &world.look(), &crate::fixture::settings());
    let of_disk = planned.actions.iter().find_map(|action| match &action.step {
        Step::Apply(manifest) if manifest.kind == Kind::PersistentVolume => Some(&manifest.body),
        _ => None,
    });
    let named = of_disk.unwrap().pointer("/spec/claimRef/uid").and_then(Value::as_str);
    assert_eq!(named, claim.as_ref().unwrap().metadata.uid.as_deref());
    world.volumes[0].size_gib = 50;
    world.children.claim = claim;
    wish(&mut world, 9, |spec| spec.storage.size_gib = 80);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(world.is_bound());
    // An operator of before took the name away.
    let disk = Arc::make_mut(&mut world.children.persistent_volumes[0]);
    disk.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = None;
    world.tick();
    assert!(!world.is_bound());
    settle(&mut world, None, false);
    assert!(world.is_bound());
    // The same under a pod: the claim goes when that does.
    let mut world = super::serving();
    world.children.claim = None;
    super::operations::change(&mut world, |spec| spec.restart_nonce = Some("now".to_owned()));
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(world.is_bound());
}

fn uid_of_claim(world: &World) -> Option<String> {
    world.children.claim.as_ref()?.metadata.uid.clone()
}
