//! Orders for a last copy: each is waited for, and one that failed is followed by the next, ever more seldom.

use cloud::Volume;
use jiff::{SignedDuration, Timestamp};
use resources::names::snapshot::LAST_COPY;
use resources::{QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase};

use super::{World, evidence, without};
use crate::build::snapshot_order;
use crate::last_copy::{ATTEMPTS, attempts, number, number_of_order};
use crate::{Part, Plan, State, Step, Unseen};

/// How much later than its deadline an order counts as not heeded by anybody.
const GRACE: SignedDuration = SignedDuration::from_mins(2);
/// How long EC2 may take to show a copy as complete that its order calls so.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_mins(1);
/// Between an order that failed and the next, at first and at last.
const PAUSE: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(1), SignedDuration::from_hours(1));

/// A copy is asked for, waited for, or asked for again.
pub(super) fn order(world: &World<'_>, plan: &mut Plan, volume: &Volume) {
    if let Some(unseen) = &world.observed.children.copies_unseen {
        return plan.say(Part::LastCopy, hidden(unseen));
    }
    let mut all = attempts(&world.validated.subject).enumerate();
    let last = world.observed.children.last_copy.as_deref();
    let known = last.and_then(|order| {
        let (count, name) = all.find(|(_, name)| order.metadata.name.as_ref() == Some(name))?;
        Some((count, name, order))
    });
    let next = all.next().map(|(_, name)| name);
    let Some((count, name, order)) = known else { return request(world, plan, volume, next, None) };
    if order.metadata.deletion_timestamp.is_some() {
        let text = format!("QuestDBSnapshot {name} is being deleted: the copy is asked for again then");
        return plan.wait(Part::LastCopy, text);
    }
    if !is_of(world, volume, order) {
        return request(world, plan, volume, next, None);
    }
    let Some((since, why)) = trouble(world, volume, order) else {
        let phase = phase(order).as_str();
        let text = format!("waiting for QuestDBSnapshot {name} of {}: {phase}", volume.id);
        return plan.wait(Part::LastCopy, text);
    };
    let again = since.checked_add(pause(count)).unwrap_or(since);
    let failed = format!("QuestDBSnapshot {name} failed at {}: {why}", in_seconds(since));
    if world.observed.at >= again || next.is_none() {
        return request(world, plan, volume, next, Some(failed));
    }
    let text = format!(
        "the last copy of {} could not be made; {failed}; another one is asked for after {}, and the disk stays until one is \
         complete: {}",
        volume.id,
        in_seconds(again),
        without(world)
    );
    plan.say(Part::LastCopy, State::Broken(text));
}

fn in_seconds(at: Timestamp) -> Timestamp {
    at.round(jiff::Unit::Second).unwrap_or(at)
}

/// One that is there and cannot be seen would be asked for a second time, and one that is being deleted would count.
fn hidden(unseen: &Unseen) -> State {
    let unknown =
        |why: &str| format!("the disk stays while it is not known which copies of it were asked for: {why}");
    match unseen {
        Unseen::Yet => State::Running("waiting to see which copies of the disk were asked for".to_owned()),
        Unseen::Broken(why) => State::Running(unknown(why)),
        Unseen::Refused(why) => State::Broken(unknown(why)),
    }
}

/// Asks for the next copy; `failed` is what is known of the one before, if that was of the disk as it is now.
fn request(
    world: &World<'_>,
    plan: &mut Plan,
    volume: &Volume,
    name: Option<String>,
    failed: Option<String>,
) {
    let Some(name) = name else {
        return plan.say(Part::LastCopy, State::Broken(exhausted(world, volume, failed)));
    };
    plan.wait(Part::LastCopy, format!("QuestDBSnapshot {name} of {} is being asked for", volume.id));
    let reason = "the disk is destroyed only once a last copy of it is complete";
    let subject = &world.validated.subject;
    let number = number(subject, volume).unwrap_or_default().to_string();
    let manifest = snapshot_order(subject, &name, (LAST_COPY, &number));
    plan.act(Part::LastCopy, Step::Apply(manifest), reason);
}

/// No name is left for another order: nothing is tried any more, and the disk stays until somebody does something.
fn exhausted(world: &World<'_>, volume: &Volume, failed: Option<String>) -> String {
    let subject = &world.validated.subject;
    let first = attempts(subject).next().unwrap_or_default();
    let failed = failed.unwrap_or_else(|| "the latest is of the disk as it was before".to_owned());
    format!(
        "no further copy of {} is asked for, and the disk stays: all {ATTEMPTS} QuestDBSnapshots from {first} to {first}-{ATTEMPTS} \
         were used; {failed}. See kubectl describe questdbsnapshot {first}-{ATTEMPTS} --namespace {}, and cure what keeps EC2 from \
         copying the disk; to have it tried again, delete all of these, {first}, {first}-2 … {first}-{ATTEMPTS}; {}",
        volume.id,
        subject.namespace,
        without(world)
    )
}

/// Whether an order is for a copy of this very disk, as it is now.
fn is_of(world: &World<'_>, volume: &Volume, order: &QuestDBSnapshot) -> bool {
    let subject = &world.validated.subject;
    let status = order.status.as_ref();
    let database = status.and_then(|status| status.database_id.as_ref());
    let copied = status.and_then(|status| status.volume_id.as_deref());
    let number = number(subject, volume);
    number.is_some()
        && number_of_order(order) == number
        && order.spec.database == subject.name
        && database.is_none_or(|database| *database == subject.database)
        && copied.is_none_or(|copied| copied == volume.id.as_str())
}

fn phase(order: &QuestDBSnapshot) -> SnapshotPhase {
    order.status.as_ref().and_then(|status| status.phase).unwrap_or(SnapshotPhase::Pending)
}

/// Since when nothing more comes of an order, and why; nothing while it may still be carried out.
fn trouble(world: &World<'_>, volume: &Volume, order: &QuestDBSnapshot) -> Option<(Timestamp, String)> {
    let (now, status) = (world.observed.at, order.status.as_ref());
    let made = order.metadata.creation_timestamp.as_ref().map_or(now, |made| made.0);
    let ended = status.and_then(|status| status.ended_at.as_ref()).map_or(made, |ended| ended.0);
    match phase(order) {
        SnapshotPhase::Failed => {
            let why =
                status.and_then(QuestDBSnapshotStatus::message).unwrap_or("its status does not say why");
            Some((ended, why.to_owned()))
        }
        SnapshotPhase::Succeeded if now.duration_since(ended) > SHOWN_WITHIN => {
            Some((ended, against(world, volume, status.and_then(|status| status.snapshot_id.as_deref()))))
        }
        // EBS takes its time.
        SnapshotPhase::Succeeded | SnapshotPhase::Copying | SnapshotPhase::Releasing => None,
        SnapshotPhase::Pending | SnapshotPhase::Checkpointing => {
            let within = SignedDuration::from_secs(i64::from(order.spec.deadline_seconds));
            let due = made.checked_add(within + GRACE).ok()?;
            (now > due).then(|| (due, format!("it was not begun within {} s", within.as_secs())))
        }
    }
}

/// Why a copy that its order calls complete does not count.
fn against(world: &World<'_>, volume: &Volume, id: Option<&str>) -> String {
    let account = &world.observed.account;
    let Some(copy) = account.copies.iter().find(|copy| Some(copy.id.as_str()) == id) else {
        let id = id.unwrap_or("the copy");
        return format!("EC2 does not show {id} with the tags of a last copy of the disk");
    };
    evidence(world, volume, copy).judge().err().unwrap_or_default()
}

/// Between the failure of the order with this number, from 0 on, and the next.
fn pause(count: usize) -> SignedDuration {
    let (first, last) = PAUSE;
    let times = u32::try_from(count).ok().and_then(|count| 2_i32.checked_pow(count));
    times.and_then(|times| first.checked_mul(times)).map_or(last, |pause| pause.min(last))
}
