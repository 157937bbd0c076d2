//! Client tokens, which make `RunInstances` and `CreateVolume` safe to repeat.
//!
//! EC2 remembers a token for about a day, also after the instance it made is terminated, and answers a repeated launch
//! with that dead instance. So a token cannot be a function of the database alone: it is one of (cluster, database,
//! role, **generation**), and the generation is written down, with a precondition, before the call. A crash between any
//! two steps then repeats the same token and gets the same machine, and a machine that is gone is followed by the next
//! generation.
//!
//! The launch parameters are deliberately *not* part of the token. Were they, a changed image between a lost answer and
//! its retry would make a second machine in silence. As it is, EC2 refuses (`ParameterMismatch`). The [`Fingerprint`] of
//! the parameters is kept beside the generation instead, so that the planner sees the difference before it asks, and
//! takes the next generation as a decision.

use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::Role;

/// A client token: at most 64 ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientToken(String);

impl ClientToken {
    /// The one token of this resource: the same from whatever process, at whatever time.
    pub fn new(cluster: &str, database: &str, role: Role, generation: u64) -> Self {
        let digest = digest(&["token/1", cluster, database, role.as_str(), &generation.to_string()]);
        // 4 + 48 characters; 192 bits are far beyond any collision.
        Self(format!("qdb-{}", hex(&digest[..24])))
    }

    /// As EC2 takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hash of launch parameters: equal exactly if EC2 takes them for the same under one token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

impl Fingerprint {
    pub(crate) fn of(parts: &[&str]) -> Self {
        Self(hex(&digest(parts)[..16]))
    }

    /// 32 hexadecimal digits, fit for an annotation.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for Fingerprint {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

/// Each part goes in with its length first, so that `("a", "bc")` and `("ab", "c")` differ.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{Launch, NewVolume, Protection, SecurityGroupId, Tags, UserData, VolumeKind};

    #[test]
    fn a_token_never_changes_between_releases() {
        // Were it to, a launch whose answer was lost across a deploy would be made twice.
        let token = ClientToken::new("eu-west-1", "0192aaaa-0000-7000-8000-000000000001", Role::Instance, 1);
        assert_eq!(token.as_str(), "qdb-e9834e85936a6a974f3c63d1a3327806aa5faf3f2e2f231e");
    }

    #[test]
    fn every_part_of_the_identity_counts() {
        let tokens = HashSet::from([
            ClientToken::new("a", "b", Role::Instance, 1),
            ClientToken::new("a", "b", Role::Instance, 2),
            ClientToken::new("a", "b", Role::Volume, 1),
            ClientToken::new("a", "c", Role::Instance, 1),
            ClientToken::new("ab", "", Role::Instance, 1),
            ClientToken::new("", "ab", Role::Instance, 1),
        ]);
        assert_eq!(tokens.len(), 6);
    }

    fn launch() -> Launch {
        Launch {
            image: "ami-1".into(),
            instance_type: "m6i.large".into(),
            subnet: "subnet-1".into(),
            security_groups: vec!["sg-1".into(), "sg-2".into()],
            user_data: UserData::new("{}"),
            instance_profile: None,
            protection: Protection::ON,
            tags: Tags::new().named("db1"),
        }
    }

    #[test]
    fn every_launch_parameter_counts() {
        let valid = launch();
        let changed: [fn(&mut Launch); 10] = [
            |launch| launch.image = "ami-2".into(),
            |launch| launch.instance_type = "m6i.xlarge".into(),
            |launch| launch.subnet = "subnet-2".into(),
            |launch| drop(launch.security_groups.pop()),
            |launch| launch.user_data = UserData::new("{ }"),
            |launch| launch.instance_profile = Some(String::new()),
            |launch| launch.instance_profile = Some("node".into()),
            |launch| launch.protection.stop = false,
            |launch| launch.protection.termination = false,
            |launch| launch.tags = Tags::new().named("db2"),
        ];
        let mut seen = HashSet::from([valid.fingerprint()]);
        for change in changed {
            let mut launch = valid.clone();
            change(&mut launch);
            assert!(seen.insert(launch.fingerprint()), "no difference for {launch:?}");
        }
    }

    #[test]
    fn the_order_of_groups_does_not_count() {
        let mut other = launch();
        other.security_groups.reverse();
        assert_eq!(other.fingerprint(), launch().fingerprint());
        assert_eq!(other.security_groups[0], SecurityGroupId::new("sg-2"));
    }

    #[test]
    fn every_volume_parameter_counts() {
        let valid = NewVolume {
            zone: "a".into(),
            size_gib: 10,
            kind: VolumeKind::Gp3,
            iops: None,
            throughput: None,
            encrypted: true,
            snapshot: None,
            tags: Tags::new(),
        };
        let changed: [fn(&mut NewVolume); 8] = [
            |volume| volume.zone = "b".into(),
            |volume| volume.size_gib = 11,
            |volume| volume.kind = VolumeKind::Io2,
            |volume| volume.iops = Some(3000),
            |volume| volume.throughput = Some(3000),
            |volume| volume.encrypted = false,
            |volume| volume.snapshot = Some("snap-1".into()),
            |volume| volume.tags = Tags::new().named("x"),
        ];
        let mut seen = HashSet::from([valid.fingerprint()]);
        for change in changed {
            let mut volume = valid.clone();
            change(&mut volume);
            assert!(seen.insert(volume.fingerprint()), "no difference for {volume:?}");
        }
    }

    proptest! {
        #[test]
        fn ec2_takes_every_token(cluster in ".{0,80}", database in ".{0,80}", generation in any::<u64>()) {
            let token = ClientToken::new(&cluster, &database, Role::Volume, generation);
            prop_assert!(token.as_str().len() <= 64 && token.as_str().is_ascii());
        }
    }
}
