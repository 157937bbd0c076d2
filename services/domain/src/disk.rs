//! How small a disk may be asked for, by what its cluster tells of it. Pure.
//!
//! No disk shrinks. But a size that was typed too large, and that nobody carried out, is taken back by asking for no less than the disk
//! has. The API server holds every writer to that by what the status says at that moment: what was decided here on older news is
//! refused there, and goes back like any other state that is refused.

/// What a cluster tells of the disk of a database. Sizes are in GiB, and `None` where nobody told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disk {
    /// What it has.
    pub has: Option<u32>,
    /// What its resource asks for.
    pub asked: Option<u32>,
    /// Whether EC2 is changing it.
    pub changing: bool,
}

impl Disk {
    /// The least size that can be asked for where `now` is: what the disk has, or is being given, because EC2 stops no change that it
    /// began. Where nobody told what it has, a size only grows.
    pub fn least(self, now: u32) -> u32 {
        let coming = self.asked.filter(|_| self.changing);
        self.has.map_or(now, |has| has.max(coming.unwrap_or(has)).min(now))
    }

    /// A size that is to be asked for, or what the disk has by now, if that is more. Where nobody told what it has, the API server
    /// takes no less than the resource asks for.
    pub fn raised(self, size: u32) -> u32 {
        self.has.or(self.asked).map_or(size, |known| known.max(size))
    }

    /// A size that is to be asked for, or the largest that its cluster shows, if that is more: by all that was told nobody refuses
    /// that, and no size that was asked for is lost with rows.
    pub fn certain(self, size: u32) -> u32 {
        self.has.max(self.asked).map_or(size, |known| known.max(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without what is not known.
    fn disk(has: u32, asked: u32, changing: bool) -> Disk {
        let known = |size: u32| Some(size).filter(|size| *size > 0);
        Disk { has: known(has), asked: known(asked), changing }
    }

    #[test]
    fn a_size_is_taken_back_to_no_less_than_the_disk_has_or_is_being_given() {
        for (told, now, least) in [
            (disk(0, 0, false), 5_000, 5_000),
            (disk(0, 5_000, false), 5_000, 5_000),
            (disk(0, 500, true), 5_000, 5_000),
            (disk(50, 5_000, false), 5_000, 50),
            (disk(50, 0, false), 5_000, 50),
            (disk(50, 5_000, true), 5_000, 5_000),
            // What was asked for last did not get there yet.
            (disk(50, 100, true), 5_000, 100),
            (disk(50, 50, true), 5_000, 50),
            (disk(5_000, 5_000, false), 5_000, 5_000),
            // EC2 had begun with it.
            (disk(5_000, 500, false), 500, 500),
            (disk(50, 5_000, true), 500, 500),
        ] {
            assert_eq!(told.least(now), least, "{told:?}, and {now} is asked for");
        }
    }

    #[test]
    fn nothing_less_is_asked_for_than_what_is_taken() {
        for (told, size, raised, certain) in [
            (disk(0, 0, false), 60, 60, 60),
            (disk(0, 100, false), 60, 100, 100),
            (disk(50, 100, false), 60, 60, 100),
            (disk(50, 100, true), 60, 60, 100),
            (disk(80, 100, false), 60, 80, 100),
            (disk(100, 80, false), 60, 100, 100),
            (disk(50, 50, false), 60, 60, 60),
        ] {
            assert_eq!((told.raised(size), told.certain(size)), (raised, certain), "{told:?}, {size}");
        }
    }
}
