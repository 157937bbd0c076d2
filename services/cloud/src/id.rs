//! Identifiers of AWS resources: text that must not be mixed up. They carry no meaning to us beyond identity.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as AWS gave it.
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            /// The text as AWS wants it.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text as AWS wants it, owned.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self::new(id)
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

id! {
    /// An EC2 instance, `i-…`.
    InstanceId
}
id! {
    /// An EBS volume, `vol-…`.
    VolumeId
}
id! {
    /// An EBS snapshot, `snap-…`.
    SnapshotId
}
id! {
    /// A security group, `sg-…`.
    SecurityGroupId
}
id! {
    /// A Route 53 hosted zone, without the `/hostedzone/` prefix.
    HostedZoneId
}
id! {
    /// A Route 53 change, without the `/change/` prefix.
    ChangeId
}
