//! How much there is to do, and how much there may be. Pure.

/// How much there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Records in memory, running or waiting.
    pub(crate) in_memory: usize,
    /// Bytes of them.
    pub(crate) bytes: usize,
    /// Those of them that run.
    pub(crate) running: usize,
}

/// How much there may be to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Records in memory.
    pub(crate) in_memory: usize,
    /// Bytes of them.
    pub(crate) bytes: usize,
}

impl Load {
    /// Whether it comes to a bound, in one way or the other.
    pub(crate) const fn reaches(self, bound: Bound) -> bool {
        self.in_memory >= bound.in_memory || self.bytes >= bound.bytes
    }
}
