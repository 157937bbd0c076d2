//! The content hash of a desired state: equal states have equal hashes in every program.

use domain::Desired;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

/// Hexadecimal SHA-256 of the state's protobuf form; maps are ordered, so the bytes are always the same.
pub fn of(desired: &Desired) -> String {
    let bytes = crate::proto::DesiredDatabase::from(desired).encode_to_vec();
    hex::encode(Sha256::digest(bytes))
}
