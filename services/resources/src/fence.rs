//! The rules that the API server holds every writer to, and how a refusal is read back.
//!
//! The fence stands on the whole `spec`, because a rule on an optional part is passed by leaving that part out, and on the whole
//! resource where the status has a say.

use domain::catalogue::VolumeLimits;
use kube::core::{Message, Reason, Rule};

/// How a refusal by the fence begins.
const PREFIX: &str = "slipway-fence ";
/// What the API server puts before it in a cause.
const FORBIDDEN: &str = "Forbidden: ";

/// The spec of a managed resource only moves forward in (epoch, seq, render), or stays exactly as it is.
const FORWARD: &str = "!has(oldSelf.instruction) || (has(self.instruction) && (\
self.instruction.epoch > oldSelf.instruction.epoch \
|| (self.instruction.epoch == oldSelf.instruction.epoch && (self.instruction.seq > oldSelf.instruction.seq \
|| (self.instruction.seq == oldSelf.instruction.seq && self.instruction.render > oldSelf.instruction.render))) \
|| self == oldSelf))";

/// The position that stands, for the refused writer to compare with. (`+` with `string(int)` would exceed the limit of
/// estimated cost.)
const HOLDER: &str = "'slipway-fence %d/%d/%s'.format([oldSelf.instruction.epoch, oldSelf.instruction.seq, \
oldSelf.instruction.hash])";

/// A resource serves one database for life.
const SAME_DATABASE: &str = "!has(oldSelf.instruction) || !has(self.instruction) || \
self.instruction.databaseId == oldSelf.instruction.databaseId";

/// A volume never leaves its zone, so neither does the database. Immutable means presence too.
const SAME_ZONE: &str =
    "has(self.zone) == has(oldSelf.zone) && (!has(self.zone) || self.zone == oldSelf.zone)";

/// Nothing is made from a source once there is a disk: a later one would be heeded by nobody. Immutable means presence too.
const SAME_SOURCE: &str = "!has(oldSelf.storage) || !has(self.storage) || \
(has(self.storage.source) == has(oldSelf.storage.source) && \
(!has(self.storage.source) || self.storage.source == oldSelf.storage.source))";

/// A disk is made from one thing.
const ONE_SOURCE: &str =
    "(has(self.snapshot) ? 1 : 0) + (has(self.snapshotId) ? 1 : 0) + (has(self.volumeId) ? 1 : 0) == 1";

/// EBS volumes do not shrink. A wish that EC2 refuses can be taken back all the same, down to what the disk has. (In a write of the
/// spec the status is the stored one, whatever the writer sends.)
const GROWS: &str = "!has(oldSelf.spec.storage) || (has(self.spec.storage) && (\
self.spec.storage.sizeGib >= oldSelf.spec.storage.sizeGib || (has(self.status) && has(self.status.volume) \
&& self.spec.storage.sizeGib >= self.status.volume.sizeGib)))";

/// What was provisioned stays so: from then on a missing volume is an alarm and never an order to create one.
const STAYS_PROVISIONED: &str = "!has(oldSelf.storage) || !has(oldSelf.storage.provisioned) || \
!oldSelf.storage.provisioned || (has(self.storage) && has(self.storage.provisioned) && self.storage.provisioned)";

/// What is purged stays purged.
const STAYS_PURGED: &str = "!has(oldSelf.runState) || oldSelf.runState != 'Purged' || \
(has(self.runState) && self.runState == 'Purged')";

/// What is protected is not deleted: a rule on the new object alone, so that neither of the two can be written beside the other
/// in whatever order.
const PROTECTED_STAYS: &str = "!has(self.deletionProtection) || !self.deletionProtection || !has(self.runState) || \
!(self.runState in ['Deleted', 'Purged'])";

/// A load balancer without CIDRs would be open to nobody or, with many controllers, to everybody.
const BALANCED_FOR_SOMEBODY: &str = "!has(self.service) || !has(self.service.type) || \
self.service.type != 'LoadBalancer' || (has(self.allowedCidrs) && self.allowedCidrs.size() > 0)";

/// Without TLS nothing names the host, and a TCP route takes everything that comes in on its entry points.
const NAMED_BY_TLS: &str = "has(self.tls) || !(has(self.pg) || has(self.ilp))";

/// The instruction carried out never goes back.
const STATUS_FORWARD: &str = "!has(oldSelf.status) || !has(oldSelf.status.instruction) \
|| (has(self.status) && has(self.status.instruction) && (\
self.status.instruction.epoch > oldSelf.status.instruction.epoch \
|| (self.status.instruction.epoch == oldSelf.status.instruction.epoch \
&& self.status.instruction.seq >= oldSelf.status.instruction.seq)))";

/// The identity of a database is noted once: whoever took it away would have another machine and an empty disk made.
const IDENTITY_STAYS: &str = "!has(oldSelf.status) || !has(oldSelf.status.databaseId) || (has(self.status) \
&& has(self.status.databaseId) && self.status.databaseId == oldSelf.status.databaseId)";

/// A resource that people wrote and that is managed later is still the same database.
const IDENTITY_MATCHES: &str = "!has(self.spec.instruction) || !has(self.status) || !has(self.status.databaseId) \
|| self.spec.instruction.databaseId == self.status.databaseId";

pub(crate) fn forward() -> Rule {
    Rule::new(FORWARD).message(Message::Expression(HOLDER.to_owned())).reason(Reason::FieldValueForbidden)
}

pub(crate) fn same_database() -> Rule {
    Rule::new(SAME_DATABASE)
        .message("spec.instruction.databaseId is immutable: another database is another resource")
        .reason(Reason::FieldValueInvalid)
}

pub(crate) fn same_zone() -> Rule {
    Rule::new(SAME_ZONE)
        .message("spec.zone is immutable: a volume never leaves its zone")
        .reason(Reason::FieldValueInvalid)
}

pub(crate) fn same_source() -> Rule {
    Rule::new(SAME_SOURCE)
        .message("spec.storage.source is immutable: to restore another snapshot make another database")
        .reason(Reason::FieldValueInvalid)
}

pub(crate) fn one_source() -> Rule {
    Rule::new(ONE_SOURCE)
        .message("spec.storage.source has exactly one of snapshot, snapshotId and volumeId")
        .reason(Reason::FieldValueInvalid)
}

pub(crate) fn grows() -> Rule {
    Rule::new(GROWS)
        .message("spec.storage.sizeGib can only grow, or be taken back to no less than the disk has: status.volume.sizeGib")
        .reason(Reason::FieldValueInvalid)
        .field_path(".spec.storage.sizeGib")
}

pub(crate) fn stays_provisioned() -> Rule {
    Rule::new(STAYS_PROVISIONED)
        .message("spec.storage.provisioned cannot be taken back")
        .reason(Reason::FieldValueInvalid)
}

pub(crate) fn stays_purged() -> Rule {
    Rule::new(STAYS_PURGED)
        .message("spec.runState Purged is final: the volume may be gone already")
        .reason(Reason::FieldValueInvalid)
}

pub(crate) fn protected_stays() -> Rule {
    Rule::new(PROTECTED_STAYS)
        .message(
            "spec.deletionProtection and spec.runState Deleted or Purged exclude each other: to delete the database, set \
             spec.deletionProtection to false first",
        )
        .reason(Reason::FieldValueForbidden)
}

pub(crate) fn balanced_for_somebody() -> Rule {
    Rule::new(BALANCED_FOR_SOMEBODY)
        .message("spec.network.allowedCidrs must name whom the load balancer of spec.network.service lets in")
        .reason(Reason::FieldValueInvalid)
}

pub(crate) fn named_by_tls() -> Rule {
    Rule::new(NAMED_BY_TLS)
        .message("spec.network.ingress.tls is needed by pg and ilp: else they took everything that comes in on their entry points")
        .reason(Reason::FieldValueRequired)
}

pub(crate) fn status_forward() -> Rule {
    Rule::new(STATUS_FORWARD)
        .message("status.instruction cannot go back")
        .reason(Reason::FieldValueForbidden)
        .field_path(".status")
}

pub(crate) fn identity_stays() -> Rule {
    Rule::new(IDENTITY_STAYS)
        .message("status.databaseId is immutable: machine and disk are found by it")
        .reason(Reason::FieldValueForbidden)
        .field_path(".status")
}

pub(crate) fn identity_matches() -> Rule {
    Rule::new(IDENTITY_MATCHES)
        .message("spec.instruction.databaseId names another database than status.databaseId: it is another resource")
        .reason(Reason::FieldValueInvalid)
        .field_path(".spec")
}

/// The number of operations fits type and size, by the same table as everywhere.
pub(crate) fn iops_fit(limits: &VolumeLimits) -> Rule {
    let VolumeLimits { name, iops: (least, most), iops_per_gib, .. } = limits;
    let rule = format!(
        "self.type != '{name}' || (self.iops >= {least} && self.iops <= {most} && self.iops <= self.sizeGib * {iops_per_gib})"
    );
    let text = format!("{name} allows {least} to {most} iops, and at most {iops_per_gib} for each GiB");
    Rule::new(rule).message(text.as_str()).reason(Reason::FieldValueInvalid).field_path(".iops")
}

/// The throughput fits the number of operations, where it can be chosen.
pub(crate) fn throughput_fits(limits: &VolumeLimits) -> Rule {
    let VolumeLimits { name, throughput, iops_per_throughput: needed, .. } = limits;
    let (least, most) = throughput.unwrap_or_default();
    let rule = format!(
        "self.type != '{name}' || (self.throughput >= {least} && self.throughput <= {most} && self.throughput * {needed} <= self.iops)"
    );
    let text =
        format!("{name} allows a throughput of {least} to {most}, and needs {needed} iops for each MiB/s");
    Rule::new(rule).message(text.as_str()).reason(Reason::FieldValueInvalid).field_path(".throughput")
}

/// What stands in a resource whose fence refused a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Epoch.
    pub epoch: i64,
    /// Sequence number.
    pub seq: i64,
    /// Hash of the content.
    pub hash: String,
}

/// Reads the message of a cause of a refusal; `None` when it is not the fence that refused. What stands further back may be a
/// tenant's text, which the API server repeats.
pub fn holder(message: &str) -> Option<Holder> {
    let said = message.strip_prefix(FORBIDDEN).unwrap_or(message);
    let mut parts = said.strip_prefix(PREFIX)?.splitn(3, '/');
    let epoch = parts.next()?.parse().ok()?;
    let seq = parts.next()?.parse().ok()?;
    let hash = parts.next()?.chars().take_while(|character| !character.is_whitespace()).collect();
    Some(Holder { epoch, seq, hash })
}

#[cfg(test)]
mod tests;
