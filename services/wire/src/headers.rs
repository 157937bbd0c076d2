//! Names of the record headers. They repeat what the payload says, so that an undecodable record can still be placed.

/// Epoch of the instruction, decimal.
pub const EPOCH: &str = "slipway-epoch";
/// Seq of the instruction, decimal.
pub const SEQ: &str = "slipway-seq";
/// The cluster the record is about.
pub const CLUSTER: &str = "slipway-cluster";
/// Schema version of the payload, decimal.
pub const SCHEMA: &str = "slipway-schema";
/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
/// How urgent the record is: [`CLASS_BULK`], or nothing if somebody waits for it.
pub const CLASS: &str = "slipway-class";
/// One of many, for which nobody waits: of a rollout, or sent again.
pub const CLASS_BULK: &str = "bulk";
