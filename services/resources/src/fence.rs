//! The rules that the API server holds every writer to, and how a refusal is read back.
//!
//! The fence stands on the whole `spec`, because a rule on an optional part is passed by leaving that part out.

use kube::core::{Message, Reason, Rule};

/// How a refusal by the fence begins.
const PREFIX: &str = "slipway-fence ";

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

/// EBS volumes do not shrink.
const GROWS: &str =
    "!has(oldSelf.storage) || (has(self.storage) && self.storage.sizeGib >= oldSelf.storage.sizeGib)";

/// What was provisioned stays so: from then on a missing volume is an alarm and never an order to create one.
const STAYS_PROVISIONED: &str = "!has(oldSelf.storage) || !has(oldSelf.storage.provisioned) || \
!oldSelf.storage.provisioned || (has(self.storage) && has(self.storage.provisioned) && self.storage.provisioned)";

/// What is purged stays purged.
const STAYS_PURGED: &str = "!has(oldSelf.runState) || oldSelf.runState != 'Purged' || \
(has(self.runState) && self.runState == 'Purged')";

/// The instruction carried out never goes back.
const STATUS_FORWARD: &str = "!has(oldSelf.status) || !has(oldSelf.status.instruction) \
|| (has(self.status) && has(self.status.instruction) && (\
self.status.instruction.epoch > oldSelf.status.instruction.epoch \
|| (self.status.instruction.epoch == oldSelf.status.instruction.epoch \
&& self.status.instruction.seq >= oldSelf.status.instruction.seq)))";

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

pub(crate) fn grows() -> Rule {
    Rule::new(GROWS).message("spec.storage.sizeGib can only grow").reason(Reason::FieldValueInvalid)
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

pub(crate) fn status_forward() -> Rule {
    Rule::new(STATUS_FORWARD)
        .message("status.instruction cannot go back")
        .reason(Reason::FieldValueForbidden)
        .field_path(".status")
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

/// Reads a refusal's message; `None` when it is not the fence that refused.
pub fn holder(message: &str) -> Option<Holder> {
    let rest = &message[message.find(PREFIX)? + PREFIX.len()..];
    let mut parts = rest.splitn(3, '/');
    let epoch = parts.next()?.parse().ok()?;
    let seq = parts.next()?.parse().ok()?;
    let hash = parts.next()?.chars().take_while(|character| !character.is_whitespace()).collect();
    Some(Holder { epoch, seq, hash })
}

#[cfg(test)]
mod tests;
