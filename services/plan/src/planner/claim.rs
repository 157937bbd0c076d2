//! `PersistentVolume` and claim, which lead the pod to its disk.
//!
//! *Invariant:* a claim that stands for another disk than the database has is taken away only while no pod that is on a Node uses it.

use cloud::Volume;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use resources::names;
use serde_json::Value;

use super::child::{ensure, ensure_with};
use super::tuning::{modification_of, persistent_volume_of};
use super::{World, going};
use crate::{Kind, Part, Plan, State, Step, Target, build};

/// Has both made; whether they are as they should be.
pub(super) fn keep(world: &World<'_>, plan: &mut Plan, volume: Option<&Volume>) -> bool {
    let Some(volume) = volume else { return false };
    let subject = &world.validated.subject;
    let (known, children) = (&world.observed.memory.agreed, &world.observed.children);
    let there = children.claim.as_deref();
    let claim = there.filter(|claim| stands_for(claim, volume));
    let mut intended = build::persistent_volume(subject, volume);
    let found = persistent_volume_of(children, volume);
    let account = &world.observed.account;
    let is_under_way = modification_of(account, volume).is_some_and(|found| found.state.is_under_way());
    if let Some(size) = found.and_then(capacity)
        && (is_under_way || account.modification_untold.is_some())
    {
        // The kubelet grows a file system once, as soon as its PersistentVolume is larger than the claim: by then the disk has to
        // be, too.
        intended.body["spec"]["capacity"]["storage"] = size.0.as_str().into();
    }
    let uid = claim_to_name(claim, found);
    let names_claim = |body: &mut Value| {
        let uid = uid?.to_owned();
        body["spec"]["claimRef"]["uid"] = uid.as_str().into();
        Some(uid)
    };
    let first = ensure_with(known, plan, Part::Attachment, (intended, names_claim), found);
    if let Some(other) = there.filter(|_| claim.is_none()) {
        replace(world, plan, other, volume);
        return false;
    }
    let mut intended = build::claim(subject, volume);
    if let Some(size) = claim.and_then(request) {
        // A claim without a storage class cannot be expanded: it keeps the size it was made with.
        intended.body["spec"]["resources"]["requests"]["storage"] = size.0.as_str().into();
    }
    let second = ensure(known, plan, Part::Attachment, intended, claim);
    first && second
}

/// The size that a `PersistentVolume` has.
fn capacity(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")
}

/// The size that a claim asks for.
fn request(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// The `PersistentVolume` that a claim names.
fn named(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref()
}

/// Whether a claim stands for this disk, or for none so far.
fn stands_for(claim: &PersistentVolumeClaim, volume: &Volume) -> bool {
    named(claim).is_none_or(|named| named == names::persistent_volume(volume.id.as_str()))
}

/// The claim that a disk has to name once it was bound. One that somebody deleted and that was made again has another uid: until
/// the disk names that, Kubernetes holds it for the one that is gone. A name is never left out again: whoever has written it
/// once would take it away by that, and with it the claim's binding.
fn claim_to_name<'a>(
    claim: Option<&'a PersistentVolumeClaim>,
    disk: Option<&'a PersistentVolume>,
) -> Option<&'a str> {
    let phase = claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref());
    let uid = claim.and_then(|claim| claim.metadata.uid.as_deref());
    match disk?.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref() {
        Some(named) => Some(uid.unwrap_or(named)),
        // It was bound, and somebody took the name away.
        None => uid.filter(|_| matches!(phase, Some("Bound" | "Lost"))),
    }
}

/// What a claim stands for cannot be changed: where somebody has put another disk in the place of one that is missing, the claim
/// is made again. Under a pod it would stay until that is gone.
fn replace(world: &World<'_>, plan: &mut Plan, claim: &PersistentVolumeClaim, volume: &Volume) {
    let (name, disk) = (names::claim(&world.validated.subject.name), &volume.id);
    let other = named(claim).unwrap_or_default();
    let pod = world.observed.children.pod.as_deref();
    let pod = pod.filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    if let Some(pod) = pod {
        if pod.metadata.deletion_timestamp.is_some() {
            let text =
                format!("claim {name} stands for {other} until QuestDB has stopped; the disk is {disk}");
            return plan.wait(Part::Attachment, text);
        }
        let text = format!(
            "claim {name} stands for {other}, and by its tags the disk is {disk}: pause the database and let it run again to have \
             it go on with that, or give the tags back to the disk that its pod has"
        );
        return plan.say(Part::Attachment, State::Broken(text));
    }
    if claim.metadata.deletion_timestamp.is_none() {
        let target = Target::of(Kind::PersistentVolumeClaim, &claim.metadata);
        let reason = format!("it stands for {other}, and the disk is {disk}");
        plan.act(Part::Attachment, Step::Delete(target), reason);
    }
    let text = format!("claim {name} is made again for {disk}: it stands for {other}");
    let claim = [(Kind::PersistentVolumeClaim, &claim.metadata)];
    plan.say(Part::Attachment, going::state(world.observed.at, &claim, text));
}
