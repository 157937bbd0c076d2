//! Many databases at once, written where the API would write them. Text only.

use std::ops::RangeInclusive;

const POPULATE: &str = include_str!("../sql/populate.sql");
const INSTRUCT: &str = include_str!("../sql/instruct.sql");

/// Databases of one statement: no statement lasts long, however busy the machine.
const PORTION: usize = 20_000;

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

    /// Databases that Kafka and their cluster know already, portion by portion.
    pub(crate) fn published(&self) -> impl Iterator<Item = String> {
        self.portions().map(|numbers| self.portion(POPULATE, &numbers, 1))
    }

    /// Databases with their operations and instructions, left to the relay, portion by portion.
    pub(crate) fn unpublished(&self) -> impl Iterator<Item = String> {
        self.instructed(0)
    }

    /// The same as the relay leaves them.
    pub(crate) fn relayed(&self) -> impl Iterator<Item = String> {
        self.instructed(1)
    }

    fn instructed(&self, published: u32) -> impl Iterator<Item = String> {
        self.portions().map(move |numbers| {
            self.portion(POPULATE, &numbers, published) + &self.portion(INSTRUCT, &numbers, published)
        })
    }

    fn portions(&self) -> impl Iterator<Item = RangeInclusive<usize>> {
        (0..self.count).step_by(PORTION).map(|first| first..=self.count.min(first + PORTION) - 1)
    }

    fn portion(&self, text: &str, numbers: &RangeInclusive<usize>, published: u32) -> String {
        let (first, last) = (numbers.start(), numbers.end());
        self.script(text)
            .replace("{first}", &first.to_string())
            .replace("{last}", &last.to_string())
            .replace("{first-digits}", &format!("{first:012x}"))
            .replace("{last-digits}", &format!("{last:012x}"))
            .replace("{published}", &published.to_string())
    }

    /// A script with the marks filled in.
    pub(crate) fn script(&self, text: &str) -> String {
        text.replace("{prefix}", &self.prefix)
            .replace("{count}", &self.count.to_string())
            .replace("{hash}", &self.hash)
            .replace("{desired}", &self.desired)
    }
}

/// Begins the identities of [`Population::silent`].
const PREFIX: &str = "01900000-0000-7000-8000-";
/// Their hash, as long as any.
pub(crate) const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

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
        for text in population.published().chain(population.unpublished()).chain(population.relayed()) {
            let text = text.replace("'{}'", "").replace("$json${}$json$", "");
            assert!(!text.contains('{') && !text.contains('}'), "{text}");
            assert!(text.contains("01900000-0000-7000-8000-"));
        }
        assert_eq!(identity(255), "01900000-0000-7000-8000-0000000000ff");
    }

    #[test]
    fn portions_are_the_whole() {
        let population = Population::silent(PORTION * 2 + 1);
        let portions: Vec<_> = population.portions().collect();
        assert_eq!(portions.len(), 3);
        assert_eq!(portions.iter().flat_map(Clone::clone).count(), population.count);
        let last = population.unpublished().last().unwrap();
        assert!(last.contains("generate_series(40000, 40000)"), "{last}");
        assert!(last.contains("01900000-0000-7000-8000-000000009c40"), "{last}");
    }

    #[test]
    fn fresh_identities_are_whole() {
        let one = Population::fresh(1, "{}".to_owned(), String::new());
        assert!(uuid::Uuid::parse_str(&format!("{}{:012x}", one.prefix, 1)).is_ok(), "{one:?}");
    }
}
