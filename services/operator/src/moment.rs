//! Moments by a clock that goes on while the whole machine is suspended, be it a virtual one that is paused or a laptop that sleeps. On
//! Linux [`std::time::Instant`] stands still meanwhile, and so do timers: who wakes would believe in a lease that others have taken long
//! ago. It is for what ends by itself; how long something takes is measured as ever.

use std::time::Duration;

use nix::time::ClockId;

/// A moment of this machine since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Now. It costs as much as [`std::time::Instant::now`]: the kernel is not entered for it.
    pub(crate) fn now() -> Self {
        // Every Linux has this clock. Where it is kept from us it is for ever the end of time, so that nothing lasts and nobody leads.
        Self(ClockId::CLOCK_BOOTTIME.now().map_or(Duration::MAX, Duration::from))
    }

    /// So much later.
    pub(crate) const fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// How long it is from another moment to this one; nothing where that is not before it.
    pub(crate) const fn since(self, other: Self) -> Duration {
        self.0.saturating_sub(other.0)
    }

    /// How long it is from this one to now.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_on_and_without_a_clock_nothing_lasts() {
        const MORE: Duration = Duration::from_secs(1);
        let now = Moment::now();
        assert_eq!(now.after(MORE).since(now), MORE);
        assert_eq!(now.since(now.after(MORE)), Duration::ZERO);
        while now.elapsed().is_zero() {
            std::hint::spin_loop();
        }
        let never = Moment(Duration::MAX);
        assert_eq!(never.after(MORE).since(never), Duration::ZERO);
    }
}
