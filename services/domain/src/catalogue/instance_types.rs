//! EC2 instance types: what is known of them, and which of them are on offer.
//!
//! All of one processor architecture, x86-64: a machine image is of one, and there is one for all machines of a cluster that
//! name none. Types of another (Graviton) are not in the table.

use std::borrow::Cow;
use std::str::FromStr;

use crate::violation::{Rule, Violation};

/// An EC2 instance type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    /// EC2's name.
    pub name: Cow<'static, str>,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub processors: u32,
}

/// Least and greatest memory of a type in MiB: QuestDB needs the least, and no machine has more.
const MEMORY_MIB: (u32, u32) = (2_048, 67_108_864);
/// Least and greatest number of virtual processors of a type.
const PROCESSORS: (u32, u32) = (1, 4_096);
/// Longest name of a type, as the custom resource has it.
const NAME_LENGTH: usize = 64;

/// The sizes of families, each with its GiB for a virtual processor: all of these families have all of these sizes.
macro_rules! families {
    ($($family:literal: $gib:literal),+ $(,)?) => {
        [$(
            sized(concat!($family, ".large"), 2, $gib),
            sized(concat!($family, ".xlarge"), 4, $gib),
            sized(concat!($family, ".2xlarge"), 8, $gib),
            sized(concat!($family, ".4xlarge"), 16, $gib),
            sized(concat!($family, ".8xlarge"), 32, $gib),
            sized(concat!($family, ".12xlarge"), 48, $gib),
            sized(concat!($family, ".16xlarge"), 64, $gib),
        )+]
    };
}

const fn sized(name: &'static str, processors: u32, gib: u32) -> InstanceType {
    InstanceType { name: Cow::Borrowed(name), memory_mib: processors * gib * 1_024, processors }
}

/// The types that are known, and on offer unless a setting names others: for general use, with much memory, for computing, as
/// the EC2 instance types guide has them.
static KNOWN: [InstanceType; 42] = families! { "m7i": 4, "m6i": 4, "r7i": 8, "r6i": 8, "c7i": 2, "c6i": 2 };

/// The known instance type of that name, whether it is on offer or not.
pub fn instance_type(name: &str) -> Option<&'static InstanceType> {
    KNOWN.iter().find(|kind| kind.name == name)
}

/// Why a text does not name the instance types on offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInstanceTypes {
    /// It has another form.
    #[error(
        "{0:?} is neither the name of a known instance type, such as m7i.large, nor NAME:MIB:PROCESSORS, such as \
         r8i.2xlarge:65536:8"
    )]
    Form(String),
    /// Nothing is known of the type.
    #[error("what {0} has is not known: write {0}:MIB:PROCESSORS, such as r8i.2xlarge:65536:8")]
    Unknown(String),
    /// A number is out of its range.
    #[error("{what} of {name} must be {least} to {most}; got {got}")]
    Range {
        /// The type.
        name: String,
        /// What the number is of.
        what: &'static str,
        /// Least.
        least: u32,
        /// Greatest.
        most: u32,
        /// What was said.
        got: String,
    },
    /// It is there already.
    #[error("{0} is named twice")]
    Twice(String),
}

/// A type as a setting names it: by its name alone if it is known, else with its memory in MiB and its virtual processors.
/// Figures that are given are taken, of a known type as well.
impl FromStr for InstanceType {
    type Err = InvalidInstanceTypes;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let name = parts.next().filter(|name| is_name(name));
        match (name, parts.next(), parts.next(), parts.next()) {
            (Some(name), None, ..) => {
                instance_type(name).cloned().ok_or_else(|| InvalidInstanceTypes::Unknown(name.to_owned()))
            }
            (Some(name), Some(memory), Some(processors), None) => Ok(Self {
                name: Cow::Owned(name.to_owned()),
                memory_mib: number(name, "the memory in MiB", memory, MEMORY_MIB)?,
                processors: number(name, "the number of virtual processors", processors, PROCESSORS)?,
            }),
            _ => Err(InvalidInstanceTypes::Form(text.to_owned())),
        }
    }
}

/// A family and a size, as EC2 spells them.
fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(good);
    text.len() <= NAME_LENGTH
        && text.split_once('.').is_some_and(|(family, size)| is_part(family) && is_part(size))
}

fn number(
    name: &str,
    what: &'static str,
    text: &str,
    (least, most): (u32, u32),
) -> Result<u32, InvalidInstanceTypes> {
    let number = text.parse::<u32>().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| InvalidInstanceTypes::Range {
        name: name.to_owned(),
        what,
        least,
        most,
        got: text.to_owned(),
    })
}

/// The instance types on offer, in the order in which they are told: all that are known, unless a setting names others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceTypes(Vec<InstanceType>);

impl Default for InstanceTypes {
    fn default() -> Self {
        Self(KNOWN.to_vec())
    }
}

/// Types with commas between them; blanks around them do not count.
impl FromStr for InstanceTypes {
    type Err = InvalidInstanceTypes;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all: Vec<InstanceType> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let kind: InstanceType = part.parse()?;
            if all.iter().any(|other| other.name == kind.name) {
                return Err(InvalidInstanceTypes::Twice(kind.name.into_owned()));
            }
            all.push(kind);
        }
        Ok(Self(all))
    }
}

impl InstanceTypes {
    /// The type of that name, if it is on offer.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        self.0.iter().find(|kind| kind.name == name)
    }

    /// What is known of the type of that name, whether it is on offer or not.
    pub fn known(&self, name: &str) -> Option<&InstanceType> {
        self.get(name).or_else(|| instance_type(name))
    }

    /// What is wrong with a name at `pointer`, unless that type is on offer.
    pub fn refusal(&self, pointer: &str, name: &str) -> Option<Violation> {
        self.get(name).is_none().then(|| Violation::new(pointer, Rule::Unknown, self.told()))
    }

    /// What may be asked for, in words.
    pub fn told(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.name.as_ref()).collect();
        format!("must be one of: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_as_ec2_has_it() {
        for (name, gib, processors) in [
            ("m7i.large", 8, 2),
            ("m7i.xlarge", 16, 4),
            ("m6i.8xlarge", 128, 32),
            ("m6i.12xlarge", 192, 48),
            ("m7i.16xlarge", 256, 64),
            ("r7i.2xlarge", 64, 8),
            ("r7i.4xlarge", 128, 16),
            ("r6i.12xlarge", 384, 48),
            ("r6i.16xlarge", 512, 64),
            ("c6i.large", 4, 2),
            ("c7i.12xlarge", 96, 48),
            ("c7i.16xlarge", 128, 64),
        ] {
            let kind = instance_type(name).unwrap();
            assert_eq!((kind.memory_mib, kind.processors), (gib * 1_024, processors), "{name}");
        }
        for kind in &KNOWN {
            assert_eq!(kind.name.parse::<InstanceType>().as_ref(), Ok(kind));
            assert_eq!(KNOWN.iter().filter(|other| other.name == kind.name).count(), 1, "{}", kind.name);
        }
        assert_eq!((instance_type("m7g.large"), instance_type("m7i")), (None, None));
    }

    #[test]
    fn a_setting_offers_others_or_fewer() {
        let offer: InstanceTypes = "m7i.large,r8i.2xlarge:65536:8".parse().unwrap();
        assert_eq!(offer.told(), "must be one of: m7i.large, r8i.2xlarge");
        let figures = |kind: Option<&InstanceType>| kind.map(|kind| (kind.memory_mib, kind.processors));
        assert_eq!(figures(offer.get("r8i.2xlarge")), Some((65_536, 8)));
        assert_eq!(figures(offer.get("m7i.large")), Some((8_192, 2)));
        assert_eq!(figures(offer.get("m7i.xlarge")), None);
        assert_eq!(figures(offer.known("m7i.xlarge")), Some((16_384, 4)), "whoever has one keeps it");
        assert_eq!(figures(offer.known("r8i.4xlarge")), None);
        let corrected: InstanceTypes = "m7i.large:8000:2".parse().unwrap();
        assert_eq!(figures(corrected.known("m7i.large")), Some((8_000, 2)));
        let spaced: InstanceTypes = " m7i.large , m7i.xlarge ".parse().unwrap();
        assert_eq!(
            spaced,
            "m7i.large,m7i.xlarge".parse::<InstanceTypes>().unwrap(),
            "a blank around an entry does not count"
        );
        assert!(InstanceTypes::default().told().starts_with("must be one of: m7i.large, m7i.xlarge, "));
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_told() {
        for (text, told) in [
            ("", "\"\" is neither"),
            ("m7i.large,", "\"\" is neither"),
            ("m7i.large, , m7i.xlarge", "\"\" is neither"),
            ("m7i", "\"m7i\" is neither"),
            (".large:8192:2", "\".large:8192:2\" is neither"),
            ("M7i.large", "\"M7i.large\" is neither"),
            ("r8i.large:16384", "\"r8i.large:16384\" is neither"),
            ("r8i.large:16384:2:1", "\"r8i.large:16384:2:1\" is neither"),
            ("r8i.large", "what r8i.large has is not known: write r8i.large:MIB:PROCESSORS"),
            ("r8i.large:16GiB:2", "the memory in MiB of r8i.large must be 2048 to 67108864; got 16GiB"),
            ("r8i.large:2047:2", "the memory in MiB of r8i.large must be 2048 to 67108864; got 2047"),
            ("r8i.large:16384:0", "the number of virtual processors of r8i.large must be 1 to 4096; got 0"),
            ("m7i.large,m7i.large:8192:2", "m7i.large is named twice"),
        ] {
            let wrong = text.parse::<InstanceTypes>().unwrap_err().to_string();
            assert!(wrong.starts_with(told), "{text:?}: {wrong}");
        }
        let long = format!("{}.large:8192:2", "a".repeat(NAME_LENGTH));
        assert!(long.parse::<InstanceTypes>().is_err());
    }
}
