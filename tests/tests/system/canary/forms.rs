//! The forms in which a value may be shown, and finding all forms of many values in one pass.

use std::collections::{BTreeSet, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Bytes by which the place of a form is found.
const START: usize = 8;

/// Values to look for.
#[derive(Default)]
pub(super) struct Values {
    known: BTreeSet<Vec<u8>>,
    names: Vec<String>,
    forms: Vec<(Vec<u8>, usize)>,
    /// Whether a form begins with these two bytes: most places are ruled out by it.
    begins: Vec<bool>,
    starts: HashMap<[u8; START], Vec<usize>>,
}

impl Values {
    /// One more, under a name by which it may be spoken of.
    pub(super) fn add(&mut self, name: &str, value: &[u8]) {
        assert!(value.len() >= START, "{name} is too short to be told from chance");
        if !self.known.insert(value.to_vec()) {
            return;
        }
        self.begins.resize(1 << 16, false);
        for form in forms(value) {
            // What follows a value of eight bytes can leave less of it in base64: others of its forms stand for that one.
            let Some(start) = form.first_chunk::<START>() else { continue };
            self.begins[pair(&form)] = true;
            self.starts.entry(*start).or_default().push(self.forms.len());
            self.forms.push((form, self.names.len()));
        }
        self.names.push(name.to_owned());
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Names of those that a text shows.
    pub(super) fn found(&self, text: &[u8]) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        if self.forms.is_empty() {
            return found;
        }
        for (at, window) in text.windows(START).enumerate().filter(|(_, window)| self.begins[pair(window)]) {
            found.extend(self.at(window, &text[at..]));
        }
        found
    }

    /// Names of those of which a form stands here, beginning with this.
    fn at<'a>(&'a self, start: &[u8], text: &[u8]) -> impl Iterator<Item = &'a str> {
        let forms = start.first_chunk::<START>().and_then(|start| self.starts.get(start));
        let forms = forms.into_iter().flatten().map(|index| &self.forms[*index]);
        forms.filter(|(form, _)| text.starts_with(form)).map(|(_, name)| self.names[*name].as_str())
    }
}

fn pair(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

/// All forms: as it is, as JSON (of Rust, and of Go, which escapes more), percent-encoded, base64 of both alphabets wherever in
/// a longer text it stands, as list of numbers (how Rust shows bytes), and each of these as hexadecimal digits (how Postgres
/// shows bytes).
fn forms(value: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut texts = BTreeSet::from([value.to_vec()]);
    if let Ok(text) = std::str::from_utf8(value) {
        let json = serde_json::to_string(text).unwrap();
        let json = json[1..json.len() - 1].to_owned();
        let escape =
            |text: String, letter: char| text.replace(letter, &format!("\\u{:04x}", u32::from(letter)));
        let go = ['&', '<', '>'].into_iter().fold(json.clone(), escape);
        texts.extend([json, go].map(String::into_bytes));
    }
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let whole = engine.encode([&vec![0; before][..], value].concat());
            // Neither what stands before it nor what follows has a part in these letters.
            let (from, to) = ((before * 8).div_ceil(6), (before + value.len()) * 8 / 6);
            texts.insert(whole.as_bytes()[from..to].to_vec());
        }
    }
    let percent = texts.iter().flat_map(|text| percent(text)).collect::<Vec<_>>();
    texts.extend(percent);
    let numbers =
        |between: &str| value.iter().map(u8::to_string).collect::<Vec<_>>().join(between).into_bytes();
    texts.extend([numbers(", "), numbers(",")]);
    let digits: Vec<_> = texts.iter().map(|text| hexadecimal(text)).collect();
    texts.extend(digits);
    texts
}

fn hexadecimal(bytes: &[u8]) -> Vec<u8> {
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// As in a path and as in a form, with digits of either case.
fn percent(bytes: &[u8]) -> [Vec<u8>; 3] {
    let encode = |digits: &dyn Fn(u8) -> String| {
        let letter = |byte: &u8| match byte {
            b'-' | b'_' | b'.' | b'~' => char::from(*byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
            byte => digits(*byte),
        };
        bytes.iter().map(letter).collect::<String>()
    };
    let upper = encode(&|byte| format!("%{byte:02X}"));
    let lower = encode(&|byte| format!("%{byte:02x}"));
    let form = upper.replace("%20", "+");
    [upper, lower, form].map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    const VALUE: &str = "wo rd+/&=<é?>\"end";

    /// Is it found in this, and nothing of the like in the same of another value?
    fn check(what: &str, show: impl Fn(&str) -> Vec<u8>) {
        let mut values = Values::default();
        values.add("it", VALUE.as_bytes());
        assert_eq!(values.found(&show(VALUE)), BTreeSet::from(["it"]), "{what}");
        let other = VALUE.replace("end", "eXd");
        assert!(values.found(&show(&other)).is_empty(), "another one, {what}");
    }

    #[test]
    fn a_value_is_found_in_every_form_and_no_other_value_is() {
        check("plain", |value| format!("password={value}\n").into_bytes());
        check("json", |value| serde_json::json!({ "a": value }).to_string().into_bytes());
        check("json of Go", |value| {
            let text = serde_json::json!({ "a": value }).to_string();
            text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e").into_bytes()
        });
        for before in ["", "a", "ad", "adm", "admin:"] {
            let text = move |value: &str| format!("{before}{value}, and more");
            check("base64", |value| STANDARD.encode(text(value)).into_bytes());
            check("base64 for URLs", |value| URL_SAFE.encode(text(value)).into_bytes());
            check("base64 as bytes of Postgres", |value| {
                hexadecimal(STANDARD.encode(text(value)).as_bytes())
            });
        }
        check("a path", |value| percent(format!("/a/{value}?b").as_bytes())[0].clone());
        check("a path in lower case", |value| percent(format!("/a/{value}?b").as_bytes())[1].clone());
        check("a form", |value| percent(format!("a={value}").as_bytes())[2].clone());
        check("bytes of Rust", |value| format!("{:?}", format!("a{value}b").as_bytes()).into_bytes());
        check("bytes of Postgres", |value| hexadecimal(format!("a{value}b").as_bytes()));
    }

    #[test]
    fn each_is_known_by_its_own_name() {
        let mut values = Values::default();
        for (name, value) in [("one", "value-one"), ("two", "value-two"), ("again", "value-one")] {
            values.add(name, value.as_bytes());
        }
        assert_eq!(values.len(), 2);
        assert_eq!(values.found(b"value-two, value-one"), BTreeSet::from(["one", "two"]));
        assert!(values.found(b"value-tw").is_empty() && values.found(b"").is_empty());
    }
}
