//! The small parts of every output: tables without borders, lengths of time, words. Texts of others are cleaned of control
//! characters, so that none of them can play with the terminal.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;

/// What stands for nothing.
pub const NONE: &str = "-";

/// A table without borders, one line a row. Without rows it is empty.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.trim_fmt()
}

/// A text on one line without control characters; `-` where there is none.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Most characters of a text of others that is repeated within a message.
const BRIEF: usize = 300;

/// A text of others within a message: it neither steers the terminal nor fills it.
pub fn brief(text: &str) -> String {
    let whole = clean(text);
    let mut cut: String = whole.chars().take(BRIEF).collect();
    if cut.len() < whole.len() {
        cut.push('…');
    }
    cut
}

/// The text, or what stands for nothing.
pub fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { clean(text) }
}

/// Lines moved to the right.
pub fn indent(text: &str, width: usize) -> String {
    let mut moved = String::new();
    for line in text.lines() {
        let _ = writeln!(moved, "{:width$}{line}", "");
    }
    moved
}

/// How long ago, in the manner of kubectl: two units where they matter.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    match seconds {
        // Clocks differ a little; a time to come is no age.
        ..=0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

/// How long something took: `2.1s`, `1m04s`, `1h02m`.
pub fn took(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..60 => format!("{:.1}s", length.as_secs_f64()),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_neither_steer_the_terminal_nor_fill_it() {
        assert_eq!(brief("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(brief(&"é".repeat(BRIEF)), "é".repeat(BRIEF));
        assert_eq!(brief(&"é".repeat(BRIEF + 1)), format!("{}…", "é".repeat(BRIEF)));
    }

    #[test]
    fn ages_read_like_those_of_kubectl() {
        let table = [
            (-5, "0s"),
            (0, "0s"),
            (59, "59s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (70_000_000, "2y80d"),
        ];
        let then = Timestamp::from_second(1_000_000).unwrap();
        for (seconds, expected) in table {
            let now = then + jiff::SignedDuration::from_secs(seconds);
            assert_eq!(age(then, now), expected, "{seconds} s");
        }
    }

    #[test]
    fn lengths_of_time() {
        for (millis, expected) in [(0, "0.0s"), (2_149, "2.1s"), (64_000, "1m04s"), (3_725_000, "1h02m")] {
            assert_eq!(took(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn tables_have_no_borders_and_no_trailing_space() {
        let rows = vec![vec!["a".to_owned(), "1".to_owned()], vec!["bcd\x1b[2J\n".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "SIZE"], rows), "NAME       SIZE\na          1\nbcd [2J");
        assert_eq!(table(&["NAME"], Vec::new()), "");
    }
}
