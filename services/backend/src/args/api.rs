//! What the API is told: where it is, and what it offers.

use std::net::SocketAddr;

use clap::Args;
use domain::catalogue::{self, DefaultNotOnOffer, InstanceTypes, Offer, Versions};

/// Where the API is, and what it offers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "API", about = None, long_about = None)]
pub struct ApiArgs {
    /// Address of the API; port 0 takes a free one and logs it
    #[arg(long, env = "SLIPWAY_API_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub api_listen: SocketAddr,
    /// QuestDB versions that databases may be asked for with, separated by commas. Those that are known when absent. The operator
    /// of each cluster has to offer them as well
    #[arg(long, env = "SLIPWAY_QUESTDB_VERSIONS", value_name = "VERSIONS")]
    pub questdb_versions: Option<Versions>,
    /// QuestDB version of databases that name none: one of those
    #[arg(long, env = "SLIPWAY_DEFAULT_QUESTDB_VERSION", value_name = "VERSION", default_value = catalogue::DEFAULT_VERSION)]
    pub default_questdb_version: String,
    /// EC2 instance types that databases may be asked for with, separated by commas; one that is not known with its memory and
    /// its virtual processors. All that are known when absent. The operator of each cluster has to offer them as well
    #[arg(long, env = "SLIPWAY_INSTANCE_TYPES", value_name = "TYPE[:MIB:PROCESSORS]")]
    pub instance_types: Option<InstanceTypes>,
}

impl ApiArgs {
    /// What may be asked for.
    ///
    /// # Errors
    ///
    /// The version of databases that name none is not among it.
    pub fn offer(&self) -> Result<Offer, DefaultNotOnOffer> {
        let versions = self.questdb_versions.clone().unwrap_or_default();
        let instance_types = self.instance_types.clone().unwrap_or_default();
        Offer::new(versions, &self.default_questdb_version, instance_types)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        api: ApiArgs,
    }

    fn offer(more: &[&str]) -> Result<Offer, String> {
        let cli = Cli::try_parse_from(["x"].iter().chain(more)).map_err(|error| error.to_string())?;
        cli.api.offer().map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_known_is_on_offer_unless_something_else_is_named() {
        assert_eq!(offer(&[]), Ok(Offer::default()));
        let named = ["--questdb-versions=9.3.5,9.4.0", "--default-questdb-version=9.4.0"];
        let offer = offer(&[&named[..], &["--instance-types=m7i.xlarge"][..]].concat()).unwrap();
        assert_eq!(offer.default_version(), "9.4.0");
        let told = [offer.versions().told(), offer.instance_types().told()];
        assert_eq!(told, ["must be one of: 9.3.5, 9.4.0", "must be one of: m7i.xlarge"]);
    }

    #[test]
    fn what_cannot_be_offered_is_told() {
        for (arguments, told) in [
            (&["--questdb-versions=9.3.4 9.4.0"][..], "\"9.3.4 9.4.0\" is not a QuestDB version"),
            (&["--questdb-versions=9.4.0"][..], "9.3.4 is the QuestDB version of databases that name none"),
            (
                &["--default-questdb-version=9.4.0"][..],
                "9.4.0 is the QuestDB version of databases that name none",
            ),
        ] {
            let wrong = offer(arguments).unwrap_err();
            assert!(wrong.contains(told), "{arguments:?}: {wrong}");
        }
    }
}
