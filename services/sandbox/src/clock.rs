//! Wall-clock times for logs, in ISO 8601, without a calendar library.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, in seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Seconds since 1970 as `2026-01-31T09:05:00Z`.
pub fn iso(seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let rest = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A span for people: `850 ms`, `12.3 s`, `4 min 05 s`.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        millis @ 1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

/// Counts days in years that begin in March, so that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_iso_8601() {
        for (seconds, expect) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
        ] {
            assert_eq!(iso(seconds), expect);
        }
    }

    #[test]
    fn spans_read_well() {
        for (millis, expect) in [(850, "850 ms"), (12_345, "12.3 s"), (245_000, "4 min 05 s")] {
            assert_eq!(span(Duration::from_millis(millis)), expect);
        }
    }
}
