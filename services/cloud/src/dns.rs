//! DNS records in a hosted zone. Names are lower case, without the last dot; values are exactly what Route 53 holds, so
//! that a delete (which must match) can be made from what was listed.

use std::fmt::Write as _;

use crate::ChangeId;
use crate::word::words;

words! {
    /// Kind of a record.
    RecordKind {
        /// IPv4 addresses.
        A = "A",
        /// Another name.
        Cname = "CNAME",
        /// Texts.
        Txt = "TXT",
    } else
    /// A kind that we never write.
    Other
}

words! {
    /// How far a change has come.
    DnsChangeState {
        /// Not on all name servers yet.
        Pending = "PENDING",
        /// On all name servers.
        InSync = "INSYNC",
    } else
    /// A word that Route 53 did not have when this was written. Counts as pending.
    Unknown
}

/// All values of one name and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DnsRecord {
    /// Name, lower case, without the last dot.
    pub name: String,
    /// Kind.
    pub kind: RecordKind,
    /// Seconds that resolvers may keep it.
    pub ttl: u32,
    /// Values as Route 53 holds them: texts are in quotes, see [`DnsRecord::texts`].
    pub values: Vec<String>,
    /// Whether it is a plain record. Aliases, weighted, geographic and other special records are listed (so that nobody
    /// takes the name for free) but never written by us.
    pub plain: bool,
}

impl DnsRecord {
    /// An address record.
    pub fn a(name: &str, ttl: u32, address: std::net::Ipv4Addr) -> Self {
        Self::plain(name, RecordKind::A, ttl, vec![address.to_string()])
    }

    /// A record that points to another name.
    pub fn cname(name: &str, ttl: u32, target: &str) -> Self {
        Self::plain(name, RecordKind::Cname, ttl, vec![normalise_name(target)])
    }

    /// A record of one text.
    pub fn txt(name: &str, ttl: u32, text: &str) -> Self {
        Self::plain(name, RecordKind::Txt, ttl, vec![quote(text)])
    }

    fn plain(name: &str, kind: RecordKind, ttl: u32, values: Vec<String>) -> Self {
        Self { name: normalise_name(name), kind, ttl, values, plain: true }
    }

    /// The texts of a TXT record without quotes and escapes; the values of any other.
    pub fn texts(&self) -> Vec<String> {
        match self.kind {
            RecordKind::Txt => self.values.iter().map(|value| unquote(value)).collect(),
            RecordKind::A | RecordKind::Cname | RecordKind::Other(_) => self.values.clone(),
        }
    }
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// There must be no record of that name and kind; else [`crate::Error::AlreadyExists`]. The way to take a name: of two
    /// who try, one is refused.
    Create(DnsRecord),
    /// Creates or replaces.
    Upsert(DnsRecord),
    /// Deletes exactly this; [`crate::Error::NotFound`] when it is not there, [`crate::Error::IncorrectState`] when it
    /// is there with other values.
    Delete(DnsRecord),
}

impl RecordChange {
    /// The record.
    pub fn record(&self) -> &DnsRecord {
        match self {
            Self::Create(record) | Self::Upsert(record) | Self::Delete(record) => record,
        }
    }
}

/// A change that Route 53 accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsChange {
    /// Its id.
    pub id: ChangeId,
    /// How far it has come.
    pub state: DnsChangeState,
}

/// Lower case, no last dot, and Route 53's octal escapes (`\052` for `*`) undone.
pub fn normalise_name(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut text = String::with_capacity(name.len());
    let mut at = 0;
    while at < bytes.len() {
        if let Some(character) = octal(&bytes[at..]) {
            text.push(character);
            at += 4;
        } else {
            // Safe to step by characters: an escape is ASCII, so `at` always stands on a boundary.
            let rest = &name[at..];
            let character = rest.chars().next().unwrap_or_default();
            text.extend(character.to_lowercase());
            at += character.len_utf8().max(1);
        }
    }
    if text.ends_with('.') {
        text.pop();
    }
    text
}

/// `\ddd` at the start, as an ASCII character. A label may contain an escaped dot: that stays escaped, for it is not a dot
/// between labels.
fn octal(bytes: &[u8]) -> Option<char> {
    let [b'\\', a @ b'0'..=b'1', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] = bytes else { return None };
    let code = (a - b'0') * 64 + (b - b'0') * 8 + (c - b'0');
    (code.is_ascii_graphic() && code != b'.' && code != b'\\').then(|| char::from(code).to_ascii_lowercase())
}

/// A TXT value may hold at most 255 bytes a string; longer texts become several strings, which readers join.
const TXT_STRING: usize = 255;

fn quote(text: &str) -> String {
    let mut strings = vec![String::new()];
    let mut length = 0;
    for byte in text.bytes() {
        if length == TXT_STRING {
            strings.push(String::new());
            length = 0;
        }
        length += 1;
        let Some(current) = strings.last_mut() else { continue };
        match byte {
            b'"' | b'\\' => current.extend(['\\', char::from(byte)]),
            b' '..=b'~' => current.push(char::from(byte)),
            // Writing to a string cannot fail.
            other => drop(write!(current, "\\{other:03o}")),
        }
    }
    strings.iter().map(|string| format!("\"{string}\"")).collect::<Vec<_>>().join(" ")
}

fn unquote(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    let (mut at, mut inside) = (0, false);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if inside => {
                text.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                at += 4;
                continue;
            }
            [b'\\', escaped, ..] if inside => {
                text.push(*escaped);
                at += 2;
                continue;
            }
            [b'"', ..] => inside = !inside,
            [other, ..] if inside => text.push(*other),
            _ => {}
        }
        at += 1;
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_compared_without_dot_case_and_escapes() {
        let check = |name: &str, expect: &str| assert_eq!(normalise_name(name), expect);
        check("Db1.Example.COM.", "db1.example.com");
        check("db1.example.com", "db1.example.com");
        check("\\052.example.com.", "*.example.com");
        check("a\\056b.example.com.", "a\\056b.example.com");
        check("\\137acme.example.com.", "_acme.example.com");
        check("", "");
        check("\\05", "\\05");
        check("ü.example.com.", "ü.example.com");
    }

    #[test]
    fn texts_are_quoted_as_route_53_wants_them() {
        let check = |text: &str, expect: &str| assert_eq!(quote(text), expect);
        check("heritage=slipway", "\"heritage=slipway\"");
        check("a \"b\" \\c", "\"a \\\"b\\\" \\\\c\"");
        check("ü", "\"\\303\\274\"");
        check("", "\"\"");
        assert_eq!(quote(&"x".repeat(300)), format!("\"{}\" \"{}\"", "x".repeat(255), "x".repeat(45)));
    }

    #[test]
    fn several_strings_of_one_value_are_one_text() {
        assert_eq!(unquote("\"ab\" \"cd\""), "abcd");
    }

    proptest! {
        #[test]
        fn every_text_survives(text in ".{0,600}") {
            prop_assert_eq!(DnsRecord::txt("n", 60, &text).texts(), vec![text]);
        }

        #[test]
        fn no_name_panics_and_normal_names_stay(name in "\\PC{0,40}") {
            let once = normalise_name(&name);
            if !once.ends_with('.') && !once.contains('\\') {
                prop_assert_eq!(normalise_name(&once), once);
            }
        }
    }
}
