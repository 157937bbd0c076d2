//! Many databases at once, written where the API would write them. Text only.

const POPULATE: &str = include_str!("../sql/populate.sql");
const INSTRUCT: &str = include_str!("../sql/instruct.sql");

/// Databases of the benches' tenant in the benches' cluster.
#[derive(Debug, Clone)]
pub(crate) struct Population {
    /// Begins their identities: all but the last twelve digits.
    pub(crate) prefix: String,
    /// How many.
    pub(crate) count: usize,
    /// The desired state of all of them, as it lies in its column.
    pub(crate) desired: String,
    /// Its hash.
    pub(crate) hash: String,
}

impl Population {
    /// The same identities every time, and a desired state that nobody reads.
    pub(crate) fn silent(count: usize) -> Self {
        let (desired, hash) = ("{}".to_owned(), HASH.to_owned());
        Self { prefix: PREFIX.to_owned(), count, desired, hash }
    }

    /// Identities that nobody had before.
    pub(crate) fn fresh(count: usize, desired: String, hash: String) -> Self {
        let mut prefix = uuid::Uuid::now_v7().hyphenated().to_string();
        prefix.truncate(PREFIX.len());
        Self { prefix, count, desired, hash }
    }

    /// Databases that Kafka knows already.
    pub(crate) fn published(&self) -> String {
        self.fill(POPULATE, 1)
    }

    /// Databases with their operations and instructions, left to the relay.
    pub(crate) fn unpublished(&self) -> String {
        self.fill(POPULATE, 0) + &self.fill(INSTRUCT, 0)
    }

    /// A script with the marks filled in.
    pub(crate) fn script(&self, text: &str) -> String {
        self.fill(text, 0)
    }

    fn fill(&self, text: &str, published: u32) -> String {
        text.replace("{prefix}", &self.prefix)
            .replace("{count}", &self.count.to_string())
            .replace("{published}", &published.to_string())
            .replace("{hash}", &self.hash)
            .replace("{desired}", &self.desired)
    }
}

/// Begins the identities of [`Population::silent`].
const PREFIX: &str = "01900000-0000-7000-8000-";
/// Their hash.
pub(crate) const HASH: &str = "bench";

/// The identity of the database of this number.
pub(crate) fn identity(number: usize) -> String {
    format!("{PREFIX}{number:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mark_stays() {
        let population = Population::silent(10);
        for text in [population.published(), population.unpublished()] {
            assert!(!text.contains("{prefix}") && !text.contains("{count}"), "{text}");
            assert!(text.contains("01900000-0000-7000-8000-"));
        }
        assert_eq!(identity(255), "01900000-0000-7000-8000-0000000000ff");
    }

    #[test]
    fn fresh_identities_are_whole() {
        let one = Population::fresh(1, "{}".to_owned(), String::new());
        assert!(uuid::Uuid::parse_str(&format!("{}{:012x}", one.prefix, 1)).is_ok(), "{one:?}");
    }
}
