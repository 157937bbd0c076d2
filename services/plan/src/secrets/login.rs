//! A user and a password from a Secret.

use super::{Content, Credential, Hidden};

/// Names under which both are found: Kubernetes' own of basic authentication, and those of the other operator.
const USERS: [&str; 2] = ["username", "QDB_PG_USER"];
const PASSWORDS: [&str; 2] = ["password", "QDB_PG_PASSWORD"];
/// Longest user name.
const USER: usize = 128;
/// Longest password. QuestDB takes 64 KiB, and HTTP clients do not.
const PASSWORD: usize = 1_024;

/// Both, or what is wrong with them.
pub(super) fn login(credential: Credential, content: &Content) -> Result<[Hidden; 2], String> {
    let (users, passwords) = match credential {
        Credential::Psql => (&USERS[..], &PASSWORDS[..]),
        Credential::PsqlReadonly | Credential::Http | Credential::Ilp => (&USERS[..1], &PASSWORDS[..1]),
    };
    let user = text(content, users, USER)?;
    if user.contains([':', ' ']) {
        return Err(format!("Secret {}: its {} holds a colon or a blank", content.origin.name, users[0]));
    }
    let password = text(content, passwords, PASSWORD)?;
    Ok([user, password].map(|text| Hidden::new(text.as_bytes().to_vec())))
}

/// The value of the first of these keys that is there, without what QuestDB drops at both ends.
fn text<'a>(content: &'a Content, keys: &[&str], longest: usize) -> Result<&'a str, String> {
    let name = &content.origin.name;
    let found = keys.iter().find_map(|key| Some((key, content.data.get(*key)?)));
    let Some((key, value)) = found else {
        return Err(format!("Secret {name} has no key {}", keys[0]));
    };
    let Ok(text) = std::str::from_utf8(value.expose()) else {
        return Err(format!("Secret {name}: its {key} is no text"));
    };
    let text = text.trim_matches(is_dropped);
    if text.is_empty() || text.len() > longest || text.contains(char::is_control) {
        return Err(format!("Secret {name}: its {key} must be one line of 1 to {longest} bytes"));
    }
    Ok(text)
}

/// Whether QuestDB drops this at both ends of a file that it reads a password from: as Java's `String.trim`, which takes nothing but the
/// blank and what comes before it in ASCII. A blank of another script is a letter like any other, and people send it with their password.
const fn is_dropped(letter: char) -> bool {
    letter <= ' '
}
