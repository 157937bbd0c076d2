//! Identities and names, each a type of its own, so that none is mistaken for another. Parsing is the only way in.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// Why a text is not the identity it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a UUID.
    #[error("must be a UUID such as 0192f3a4-5b6c-7d8e-9f00-112233445566")]
    NotAUuid,
    /// Not an RFC 1123 label, or too long.
    #[error(
        "must be 1 to {longest} characters: lower-case letters, digits and '-', beginning with a letter and ending with a letter or digit"
    )]
    NotALabel {
        /// The greatest length allowed.
        longest: usize,
    },
}

/// The greatest length of a database's name: leaves room for suffixes within Kubernetes' 63 characters.
pub const NAME_LENGTH: usize = 40;
/// The greatest length of a tenant's name: templates of namespaces leave room for it.
pub const TENANT_LENGTH: usize = 40;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that is known to be this identity.
            pub const fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// A new identity, ordered by time of minting (UUID v7).
            pub fn mint() -> Self {
                Self(Uuid::now_v7())
            }

            /// The UUID.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Uuid::parse_str(text).map(Self).map_err(|_| Error::NotAUuid)
            }
        }
    };
}

uuid_id!(
    /// A database, for ever: never reused, unlike its name.
    DatabaseId
);
uuid_id!(
    /// One thing that was asked for, with its progress.
    OperationId
);
uuid_id!(
    /// One minted desired state on its way to a cluster.
    InstructionId
);

impl DatabaseId {
    /// The last eight hexadecimal digits: the random end of a UUID v7, which tells databases of one name apart.
    pub fn short(self) -> String {
        let text = self.0.simple().to_string();
        text[text.len() - 8..].to_owned()
    }
}

macro_rules! label_id {
    ($(#[$doc:meta])* $name:ident, $longest:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                if is_label(text, $longest) { Ok(Self(text.to_owned())) } else { Err(Error::NotALabel { longest: $longest }) }
            }
        }
    };
}

label_id!(
    /// Who owns databases. A label, because it is part of a namespace's name.
    TenantId,
    TENANT_LENGTH
);
label_id!(
    /// A registered Kubernetes cluster.
    ClusterId,
    40
);
label_id!(
    /// What people call a database; unique among a tenant's living databases.
    DatabaseName,
    NAME_LENGTH
);

/// RFC 1123 label that begins with a letter (so that it is also a valid Service name).
fn is_label(text: &str, longest: usize) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    !bytes.is_empty()
        && bytes.len() <= longest
        && bytes.iter().all(inner)
        && bytes[0].is_ascii_lowercase()
        && bytes[bytes.len() - 1] != b'-'
}

/// The name of a database's custom resource: readable, and free for reuse beside a tombstone.
pub fn resource_name(name: &DatabaseName, id: DatabaseId) -> String {
    format!("{name}-{}", id.short())
}

/// The namespace of a tenant, by a cluster's template, in which `{tenant}` stands for the tenant.
pub fn namespace(template: &str, tenant: &TenantId) -> String {
    template.replace("{tenant}", tenant.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_rfc_1123() {
        let longest = "a".repeat(NAME_LENGTH);
        for good in ["a", "trades", "eu-1", "a1-b2", longest.as_str()] {
            assert!(good.parse::<DatabaseName>().is_ok(), "{good}");
        }
        let too_long = "a".repeat(NAME_LENGTH + 1);
        for bad in ["", "-a", "a-", "A", "1a", "a_b", "a.b", "ä", "a b", too_long.as_str()] {
            assert!(bad.parse::<DatabaseName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn resource_names_tell_namesakes_apart() {
        let name: DatabaseName = "trades".parse().unwrap();
        let (first, second) = (DatabaseId::mint(), DatabaseId::mint());
        assert_ne!(resource_name(&name, first), resource_name(&name, second));
        assert!(first.to_string().ends_with(&first.short()));
        assert_eq!(first.short().len(), 8);
    }

    #[test]
    fn the_longest_resource_name_is_a_label() {
        let name: DatabaseName = "a".repeat(NAME_LENGTH).parse().unwrap();
        assert!(
            resource_name(&name, DatabaseId::mint()).len() <= 52,
            "StatefulSet names leave room for a revision hash"
        );
    }

    #[test]
    fn namespaces_come_from_the_template() {
        let tenant: TenantId = "acme".parse().unwrap();
        assert_eq!(namespace("qdb-{tenant}", &tenant), "qdb-acme");
        assert_eq!(namespace("shared", &tenant), "shared");
    }
}
