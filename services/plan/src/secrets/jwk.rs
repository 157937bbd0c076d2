//! JSON Web Keys of the curve P-256: their public halves, in the form in which QuestDB reads them. The private half is never
//! looked at.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use resources::names::secret::JWK;
use serde_json::Value;

use super::Content;

/// Bytes of a coordinate.
const COORDINATE: usize = 32;
/// Longest id of a key.
const KEY_ID: usize = 64;
/// Most keys of a database.
const MOST: usize = 64;
/// The algorithm, in QuestDB's word.
const ALGORITHM: &str = "ec-p-256-sha256";

/// Lines of QuestDB's file by the id of the key.
pub(super) type Lines = BTreeMap<String, String>;

/// The keys of a Secret: of one key or of a set.
pub(super) fn keys(content: &Content) -> Result<Lines, String> {
    let at = format!("Secret {}: its {JWK}", content.origin.name);
    let value =
        content.data.get(JWK).ok_or_else(|| format!("Secret {} has no key {JWK}", content.origin.name))?;
    let parsed: Value = serde_json::from_slice(value.expose()).map_err(|_| format!("{at} is no JSON"))?;
    let all = match parsed.get("keys") {
        Some(Value::Array(all)) => all.as_slice(),
        Some(_) => return Err(format!("{at} has keys that are no list")),
        None => std::slice::from_ref(&parsed),
    };
    if all.is_empty() || all.len() > MOST {
        return Err(format!("{at} must hold 1 to {MOST} keys"));
    }
    let mut lines = Lines::new();
    for (index, key) in all.iter().enumerate() {
        let (id, line) = line(key).map_err(|what| format!("{at}, key {index}: {what}"))?;
        if lines.insert(id, line).is_some() {
            return Err(format!("{at}, key {index}: another key has its kid"));
        }
    }
    Ok(lines)
}

/// The lines of a file that we wrote.
pub(super) fn read(file: &[u8]) -> Lines {
    let text = std::str::from_utf8(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| Some((line.split(' ').next()?.to_owned(), line.to_owned())));
    lines.filter(|(id, _)| !id.is_empty()).collect()
}

/// The file.
pub(super) fn file(lines: &Lines) -> String {
    lines.values().fold(String::new(), |text, line| text + line + "\n")
}

fn line(key: &Value) -> Result<(String, String), &'static str> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    if text("kty") != Some("EC") || text("crv") != Some("P-256") {
        return Err("kty must be EC and crv P-256");
    }
    let id = text("kid").ok_or("there is no kid")?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if id.is_empty() || id.len() > KEY_ID || !id.bytes().all(good) {
        return Err("kid must be 1 to 64 letters, digits, '.', '_' and '-'");
    }
    let (x, y) = (coordinate(text("x"))?, coordinate(text("y"))?);
    let point = [&[4], x.as_slice(), y.as_slice()].concat();
    ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .map_err(|_| "x and y are no point of the curve P-256")?;
    let [x, y] = [x, y].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    Ok((id.to_owned(), format!("{id} {ALGORITHM} {x} {y}")))
}

fn coordinate(text: Option<&str>) -> Result<Vec<u8>, &'static str> {
    let bytes = text.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    bytes
        .filter(|bytes| bytes.len() == COORDINATE)
        .ok_or("x and y must be 32 bytes each, as base64url without padding")
}
