//! Tags: whose a resource is. They are written in the request that creates it, so that nothing of ours ever exists
//! untagged, and they are identity that survives the loss of every cluster: never a Kubernetes uid.

use std::borrow::Cow;

/// The keys we use.
pub mod key {
    /// Cluster by name.
    pub const CLUSTER: &str = "questdb.io/cluster";
    /// Database by id, hyphenated.
    pub const DATABASE: &str = "questdb.io/database";
    /// What it is to the database.
    pub const ROLE: &str = "questdb.io/role";
    /// Generation of the instance it belongs to.
    pub const GENERATION: &str = "questdb.io/generation";
    /// Sequence number of the desired state that had it made.
    pub const SEQ: &str = "questdb.io/seq";
    /// Which snapshot of its database it is, by the identity minted for it.
    pub const SNAPSHOT: &str = "questdb.io/snapshot";
    /// What held the database still when a snapshot was begun.
    pub const BASIS: &str = "questdb.io/basis";
    /// That what held the database still was still holding it after the snapshot had begun: its content can be trusted.
    pub const CONSISTENT: &str = "questdb.io/consistent";
    /// Namespace of the resource it was taken of: nobody else's database is made from it.
    pub const NAMESPACE: &str = "questdb.io/namespace";
    /// Name of the object in that namespace that had it made.
    pub const OBJECT: &str = "questdb.io/object";
    /// QuestDB version whose data it holds; of a disk the last one that may have opened it.
    pub const QUESTDB: &str = "questdb.io/version";
    /// The volume that a snapshot was asked for of: in the tags of what others copied of it, it is not the one that EC2 names.
    pub const VOLUME: &str = "questdb.io/volume";
    /// Which start of another version that was said for, by its second: of a disk.
    pub const START: &str = "questdb.io/start";
    /// The resource, as `cluster/namespace/name`, that may make its disk of this: written by people who may do so in AWS, never by us.
    pub const FOR: &str = "questdb.io/for";
    /// Which disks are not known to have had restored what they were made from: of a copy those that it comes from, of a disk the copy
    /// that it was made from, and those.
    pub const UNRESTORED: &str = "questdb.io/unrestored";
    /// Whether QuestDB has ever begun on it, and may have answered from it: of a disk that was made empty.
    pub const SERVED: &str = "questdb.io/served";
    /// What the AWS console shows.
    pub const NAME: &str = "Name";

    /// All of them.
    pub(super) const ALL: [&str; 17] = [
        CLUSTER, DATABASE, ROLE, GENERATION, SEQ, SNAPSHOT, BASIS, CONSISTENT, NAMESPACE, OBJECT, QUESTDB,
        VOLUME, START, FOR, UNRESTORED, SERVED, NAME,
    ];
}

/// A key; of ours, of which there are many, no copy is kept.
type Key = Cow<'static, str>;

/// Tags of a resource, in order of keys: there are few of one resource, and of tens of thousands of resources at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tags(Vec<(Key, Box<str>)>);

impl Tags {
    /// No tags.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// With one more, or with another value.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (kept(key.into()), value.into().into_boxed_str());
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (key, value)),
        }
        self
    }

    /// With the name that the AWS console shows.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        self.with(key::NAME, name)
    }

    /// The value of a tag.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.place(key).ok().map(|place| &*self.0[place].1)
    }

    /// Where a key is, or belongs.
    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_ref().cmp(key))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Those of ours that `observed` lacks or has with another value: what is left to set.
    #[must_use]
    pub fn missing_from(&self, observed: &Self) -> Self {
        self.iter().filter(|&(key, value)| observed.get(key) != Some(value)).collect()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Tags {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut tags = pairs.into_iter().fold(Self::new(), |tags, (key, value)| tags.with(key, value));
        tags.0.shrink_to_fit();
        tags
    }
}

fn kept(key: String) -> Key {
    let ours = key::ALL.into_iter().find(|ours| *ours == key);
    ours.map_or(Cow::Owned(key), Cow::Borrowed)
}

/// What a resource is to its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The machine.
    Instance,
    /// The disk with the data.
    Volume,
    /// The firewall around the machine.
    SecurityGroup,
    /// A copy of the disk.
    Snapshot,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Instance, Self::Volume, Self::SecurityGroup, Self::Snapshot];

    /// As the tag has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Volume => "volume",
            Self::SecurityGroup => "security-group",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Whose a resource is, as its tags say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Cluster by name.
    pub cluster: String,
    /// Database by id, hyphenated.
    pub database: String,
    /// What it is to the database.
    pub role: Role,
    /// Generation of the instance it belongs to; things that outlive instances carry the highest they served.
    pub generation: Option<u64>,
    /// Sequence number of the desired state that had it made.
    pub seq: Option<u64>,
}

/// Tags that look like ours and are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// A tag that must be there with the others is not.
    #[error("tag {key} is missing beside the others of questdb.io/")]
    Missing {
        /// Its key.
        key: &'static str,
    },
    /// A tag with a value that we never write.
    #[error("tag {key} has the value {value:?}, which is not one of ours")]
    Unknown {
        /// Its key.
        key: &'static str,
        /// What is there.
        value: String,
    },
}

impl Owner {
    /// Something without a generation yet.
    pub fn new(cluster: impl Into<String>, database: impl Into<String>, role: Role) -> Self {
        Self { cluster: cluster.into(), database: database.into(), role, generation: None, seq: None }
    }

    /// The tags that say this, without a name.
    pub fn tags(&self) -> Tags {
        let Self { cluster, database, role, generation, seq } = self;
        let mut tags = Tags::new()
            .with(key::CLUSTER, cluster)
            .with(key::DATABASE, database)
            .with(key::ROLE, role.as_str());
        if let Some(generation) = generation {
            tags = tags.with(key::GENERATION, generation.to_string());
        }
        if let Some(seq) = seq {
            tags = tags.with(key::SEQ, seq.to_string());
        }
        tags
    }

    /// Reads tags back: `None` when it is not ours at all (no cluster, database or role tag), an error when it is
    /// half ours, which callers must treat as somebody's and never as nobody's.
    pub fn parse(tags: &Tags) -> Result<Option<Self>, TagError> {
        let identity = [key::CLUSTER, key::DATABASE, key::ROLE];
        if identity.iter().all(|key| tags.get(key).is_none()) {
            return Ok(None);
        }
        let required = |key: &'static str| {
            tags.get(key).filter(|value| !value.is_empty()).ok_or(TagError::Missing { key })
        };
        let role = required(key::ROLE)?;
        let role = Role::ALL
            .into_iter()
            .find(|known| known.as_str() == role)
            .ok_or_else(|| TagError::Unknown { key: key::ROLE, value: role.to_owned() })?;
        Ok(Some(Self {
            cluster: required(key::CLUSTER)?.to_owned(),
            database: required(key::DATABASE)?.to_owned(),
            role,
            generation: number(tags, key::GENERATION)?,
            seq: number(tags, key::SEQ)?,
        }))
    }
}

fn number(tags: &Tags, key: &'static str) -> Result<Option<u64>, TagError> {
    tags.get(key)
        .map(|value| {
            // `parse` alone would take "+7" and "007": values that we never write.
            let number = value.parse().ok().filter(|number: &u64| number.to_string() == value);
            number.ok_or_else(|| TagError::Unknown { key, value: value.to_owned() })
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn valid() -> Owner {
        Owner { generation: Some(3), seq: Some(12), ..Owner::new("eu-west-1", "0192-ab", Role::Instance) }
    }

    #[test]
    fn what_is_not_tagged_is_not_ours() {
        assert_eq!(Owner::parse(&Tags::new()), Ok(None));
        assert_eq!(Owner::parse(&Tags::new().named("web").with("team", "a")), Ok(None));
        // A generation or seq alone is nobody's identity.
        assert_eq!(Owner::parse(&Tags::new().with(key::SEQ, "1")), Ok(None));
    }

    #[test]
    fn half_ours_is_an_error_and_never_nobodys() {
        for key in [key::CLUSTER, key::DATABASE, key::ROLE] {
            let without: Tags = valid().tags().iter().filter(|(name, _)| *name != key).collect();
            assert_eq!(Owner::parse(&without), Err(TagError::Missing { key }));
            assert_eq!(Owner::parse(&valid().tags().with(key, "")), Err(TagError::Missing { key }));
        }
    }

    #[test]
    fn values_that_we_never_write_are_refused() {
        let check = |key: &'static str, value: &str| {
            let parsed = Owner::parse(&valid().tags().with(key, value));
            assert_eq!(parsed, Err(TagError::Unknown { key, value: value.to_owned() }));
        };
        check(key::ROLE, "gateway");
        check(key::GENERATION, "-1");
        check(key::GENERATION, "+1");
        check(key::GENERATION, "01");
        check(key::SEQ, "");
        check(key::SEQ, "99999999999999999999");
    }

    #[test]
    fn missing_tags_are_those_that_differ() {
        let wanted = Tags::new().with("a", "1").with("b", "2").with("c", "3");
        let observed = Tags::new().with("a", "1").with("b", "other").with("x", "y");
        assert_eq!(wanted.missing_from(&observed), Tags::new().with("b", "2").with("c", "3"));
        assert!(wanted.missing_from(&wanted).is_empty());
    }

    #[test]
    fn of_our_own_keys_no_copy_is_kept() {
        let tags = valid().tags().named("a").with("team", "b");
        let copied: Vec<_> = tags.0.iter().filter(|(key, _)| matches!(key, Cow::Owned(_))).collect();
        assert_eq!(copied, [&("team".into(), "b".into())]);
    }

    proptest! {
        #[test]
        fn tags_are_a_map(pairs in proptest::collection::vec(("[a-d]{0,2}", "[a-d]{0,2}"), 0..12)) {
            let map: std::collections::BTreeMap<_, _> = pairs.iter().cloned().collect();
            let tags: Tags = pairs.into_iter().collect();
            let pairs: Vec<_> = map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            prop_assert_eq!(tags.iter().collect::<Vec<_>>(), pairs);
            for key in ["", "a", "ab", "d", "dd", "e"] {
                prop_assert_eq!(tags.get(key), map.get(key).map(String::as_str));
            }
            prop_assert_eq!(map.into_iter().rev().collect::<Tags>(), tags, "in whatever order they come");
        }

        #[test]
        fn an_owner_survives_its_tags(
            cluster in "[a-z0-9-]{1,20}", database in "[a-f0-9-]{1,36}", role in 0..4_usize,
            generation in proptest::option::of(any::<u64>()), seq in proptest::option::of(any::<u64>()),
        ) {
            let owner = Owner { generation, seq, ..Owner::new(cluster, database, Role::ALL[role]) };
            prop_assert_eq!(Owner::parse(&owner.tags().named("x")), Ok(Some(owner)));
        }
    }
}
