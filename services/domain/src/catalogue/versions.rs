//! QuestDB versions: which of them are on offer.

use std::str::FromStr;

use super::{VERSIONS, is_downgrade};
use crate::violation::{Rule, Violation};

/// Longest version, as the custom resource has it.
const LENGTH: usize = 32;

/// Why a text does not name the QuestDB versions on offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVersions {
    /// It has another form.
    #[error(
        "{0:?} is not a QuestDB version, such as 9.3.4: the tag of an image, of at most {longest} letters, digits, '.', '_' and \
         '-'",
        longest = LENGTH
    )]
    Form(String),
    /// It is there already.
    #[error("{0} is named twice")]
    Twice(String),
}

/// The QuestDB versions on offer, in the order in which they are told: those that are known, unless a setting names others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions(Vec<String>);

impl Default for Versions {
    fn default() -> Self {
        Self(VERSIONS.iter().map(|version| (*version).to_owned()).collect())
    }
}

/// Versions with commas between them; blanks around them do not count.
impl FromStr for Versions {
    type Err = InvalidVersions;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all: Vec<String> = Vec::new();
        for version in text.split(',').map(str::trim) {
            if !is_tag(version) {
                return Err(InvalidVersions::Form(version.to_owned()));
            }
            if all.iter().any(|other| other == version) {
                return Err(InvalidVersions::Twice(version.to_owned()));
            }
            all.push(version.to_owned());
        }
        Ok(Self(all))
    }
}

/// Whether a text can be the tag of an image, which no dot and no hyphen begins.
fn is_tag(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LENGTH).contains(&text.len()) && text.bytes().all(good) && !text.starts_with(['.', '-'])
}

impl Versions {
    /// Whether a version is on offer.
    pub fn contains(&self, version: &str) -> bool {
        self.0.iter().any(|offered| offered == version)
    }

    /// What is wrong with a version at `pointer`, unless it is on offer.
    pub fn refusal(&self, pointer: &str, version: &str) -> Option<Violation> {
        (!self.contains(version)).then(|| Violation::new(pointer, Rule::Unknown, self.told()))
    }

    /// What is wrong with another version at `pointer` of a database that has `current`, which may stay.
    pub fn refusal_after(&self, current: &str, pointer: &str, version: &str) -> Option<Violation> {
        if version == current {
            return None;
        }
        self.refusal(pointer, version).or_else(|| {
            let detail = format!("an older major version cannot read the data of {current}");
            is_downgrade(current, version).then(|| Violation::new(pointer, Rule::Conflict, detail))
        })
    }

    /// What may be asked for, in words.
    pub fn told(&self) -> String {
        format!("must be one of: {}", self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_offers_others_or_fewer() {
        let offer: Versions = "9.3.4,9.4.0-rc1,nightly".parse().unwrap();
        assert_eq!(offer.told(), "must be one of: 9.3.4, 9.4.0-rc1, nightly");
        assert!(offer.contains("9.4.0-rc1") && !offer.contains("9.4.0") && !offer.contains(""));
        assert_eq!(VERSIONS.join(",").parse::<Versions>(), Ok(Versions::default()));
        assert_eq!(" 9.3.4, 9.4.0-rc1 ,nightly\n".parse::<Versions>(), Ok(offer));
    }

    #[test]
    fn what_a_database_has_stays_and_whatever_else_it_gets_is_on_offer_and_reads_its_data() {
        let offer: Versions = "9.4.0,10.0.0".parse().unwrap();
        for (current, version, rule) in [
            ("9.3.4", "9.3.4", None),
            ("9.3.4", "9.4.0", None),
            ("9.3.4", "10.0.0", None),
            ("9.3.4", "9.3.5", Some(Rule::Unknown)),
            ("10.0.1", "10.0.1", None),
            ("10.0.1", "10.0.0", None),
            ("10.0.1", "9.4.0", Some(Rule::Conflict)),
            ("10.0.1", "9.3.4", Some(Rule::Unknown)),
        ] {
            let found = offer.refusal_after(current, "/version", version).map(|wrong| wrong.rule);
            assert_eq!(found, rule, "{current} to {version}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_told() {
        for (text, told) in [
            ("", "\"\" is not a QuestDB version"),
            ("9.3.4,", "\"\" is not a QuestDB version"),
            ("9.3.4 9.4.0", "\"9.3.4 9.4.0\" is not a QuestDB version"),
            ("9.3.4, ", "\"\" is not a QuestDB version"),
            ("questdb/questdb:9.3.4", "\"questdb/questdb:9.3.4\" is not a QuestDB version"),
            ("-9.3.4", "\"-9.3.4\" is not a QuestDB version"),
            ("9.3.4,9.4.0,9.3.4", "9.3.4 is named twice"),
        ] {
            let wrong = text.parse::<Versions>().unwrap_err().to_string();
            assert!(wrong.starts_with(told), "{text:?}: {wrong}");
        }
        assert!("9".repeat(LENGTH).parse::<Versions>().is_ok());
        assert!("9".repeat(LENGTH + 1).parse::<Versions>().is_err());
    }
}
