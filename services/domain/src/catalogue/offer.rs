//! What whoever makes or changes a database may choose from.

use super::{DEFAULT_VERSION, InstanceTypes, Versions};

/// Versions and machines on offer, with the version of a database that names none, which is one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    versions: Versions,
    default_version: String,
    instance_types: InstanceTypes,
}

/// The version of databases that name none is not on offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{version} is the QuestDB version of databases that name none, and {told}")]
pub struct DefaultNotOnOffer {
    version: String,
    told: String,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            versions: Versions::default(),
            default_version: DEFAULT_VERSION.to_owned(),
            instance_types: InstanceTypes::default(),
        }
    }
}

impl Offer {
    /// These versions and machines; a database that names no version has `default_version`.
    ///
    /// # Errors
    ///
    /// That version is not on offer.
    pub fn new(
        versions: Versions,
        default_version: &str,
        instance_types: InstanceTypes,
    ) -> Result<Self, DefaultNotOnOffer> {
        let version = default_version.to_owned();
        if !versions.contains(default_version) {
            return Err(DefaultNotOnOffer { version, told: versions.told() });
        }
        Ok(Self { versions, default_version: version, instance_types })
    }

    /// The versions.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// The version of a database that names none.
    pub fn default_version(&self) -> &str {
        &self.default_version
    }

    /// The machines.
    pub fn instance_types(&self) -> &InstanceTypes {
        &self.instance_types
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_databases_that_name_none_is_on_offer() {
        let of = |versions: &str, version: &str| {
            Offer::new(versions.parse().unwrap(), version, InstanceTypes::default())
        };
        assert_eq!(of("9.3.4", DEFAULT_VERSION), Ok(Offer::default()));
        assert_eq!(of("9.3.4,9.4.0", "9.4.0").unwrap().default_version(), "9.4.0");
        let wrong = of("9.4.0,9.4.1", "9.3.4").unwrap_err().to_string();
        let told =
            "9.3.4 is the QuestDB version of databases that name none, and must be one of: 9.4.0, 9.4.1";
        assert_eq!(wrong, told);
    }
}
