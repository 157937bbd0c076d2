//! Why a record is neither done nor set aside.

use crate::gossip;

/// Neither done nor set aside: to be tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Parked instructions cannot be written.
    #[error("park the instruction")]
    Park(#[source] store::Error),
    /// Dead letters cannot be written.
    #[error("keep the dead letter")]
    Bury(#[source] store::Error),
    /// The outcome cannot be told.
    #[error("tell the outcome")]
    Tell(#[source] gossip::Error),
    /// Nobody knows whether the cluster is registered.
    #[error("look the cluster up: {reason}")]
    Registry {
        /// Why not.
        reason: String,
    },
}

impl Error {
    /// A word for metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Park(_) => "held_park",
            Self::Bury(_) => "held_bury",
            Self::Tell(_) => "held_tell",
            Self::Registry { .. } => "held_registry",
        }
    }

    /// Whether it is for a partition of gossip that takes nothing, of which somebody was told already.
    pub(crate) const fn is_silence(&self) -> bool {
        matches!(self, Self::Tell(gossip::Error::Silent { .. }))
    }
}
