//! Where QuestDB's images come from.

use std::fmt;
use std::str::FromStr;

use super::QUESTDB_IMAGE;

/// The repository of QuestDB's images, without a tag: that is the version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository(String);

/// Most characters of a repository: with a version behind it, it may stand in a custom resource.
const LONGEST: usize = 200;

/// Why a text is no repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the repository of an image, such as questdb/questdb or registry.example.com:5000/mirror/questdb: without tag \
     and digest, because the version is the tag, and at most {longest} characters",
    longest = LONGEST
)]
pub struct InvalidRepository(String);

impl Default for Repository {
    fn default() -> Self {
        Self(QUESTDB_IMAGE.to_owned())
    }
}

impl FromStr for Repository {
    type Err = InvalidRepository;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, path) = match text.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (Some(first), rest),
            _ => (None, text),
        };
        let good = text.len() <= LONGEST && host.is_none_or(is_host) && path.split('/').all(is_component);
        if good { Ok(Self(text.to_owned())) } else { Err(InvalidRepository(text.to_owned())) }
    }
}

fn is_host(text: &str) -> bool {
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    !name.is_empty() && name.bytes().all(good) && port.is_none_or(is_port)
}

fn is_component(text: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.into_iter().all(|end| end.is_some_and(is_end))
        && !text.contains("..")
        && text.bytes().all(|byte| is_end(byte) || b"._-".contains(&byte))
}

impl Repository {
    /// The image of a version from here.
    pub fn image(&self, version: &str) -> String {
        format!("{self}:{version}")
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_neither_tag_nor_digest() {
        for (text, good) in [
            ("questdb/questdb", true),
            ("questdb", true),
            ("registry.example.com/questdb", true),
            ("registry.example.com:5000/a/b-c/questdb_x", true),
            ("localhost/questdb", true),
            ("Registry.example.com/questdb", true),
            ("0123.dkr.ecr.eu-west-1.amazonaws.com/questdb", true),
            ("", false),
            ("questdb/", false),
            ("/questdb", false),
            ("questdb//questdb", false),
            ("questdb/questdb:9.3.4", false),
            ("registry.example.com:5000/questdb:9.3.4", false),
            ("questdb/questdb@sha256:00", false),
            ("registry.example.com:/questdb", false),
            ("registry.example.com:x/questdb", false),
            ("registry.example.com", true),
            ("https://registry.example.com/questdb", false),
            ("QuestDB/questdb", false),
            ("questdb/quest db", false),
            ("questdb/-questdb", false),
            ("questdb/a..b", false),
        ] {
            assert_eq!(text.parse::<Repository>().is_ok(), good, "{text:?}");
        }
        assert!(format!("a/{}", "b".repeat(LONGEST)).parse::<Repository>().is_err());
        let told = "questdb/questdb:9.3.4".parse::<Repository>().unwrap_err().to_string();
        assert!(told.contains("without tag and digest"), "{told}");
    }

    #[test]
    fn a_version_is_its_tag() {
        assert_eq!(Repository::default().image("9.3.4"), super::super::image_of("9.3.4"));
        let mirror: Repository = "registry.example.com/questdb".parse().unwrap();
        assert_eq!(mirror.image("9.3.4"), "registry.example.com/questdb:9.3.4");
        assert_eq!(QUESTDB_IMAGE.parse::<Repository>(), Ok(Repository::default()));
    }
}
