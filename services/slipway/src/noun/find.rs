//! Which rows of what was set aside are meant: by database, cluster and reason.

use clap::Args;
use uuid::Uuid;

use crate::client::Client;
use crate::client::aside::Which;
use crate::error::Error;

/// Which rows.
#[derive(Debug, Clone, Args)]
pub struct Narrow {
    /// Only of a database, by name or id
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// Only of a cluster
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// Only with this reason
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
}

impl Narrow {
    /// The same with the database's identity.
    pub async fn which(self, client: &Client) -> Result<Which, Error> {
        let database = match self.database {
            Some(text) => Some(identity(client, &text).await?),
            None => None,
        };
        Ok(Which { database, cluster: self.cluster, code: self.code, over: false })
    }
}

/// The identity of a database. One that nobody knows may have rows too, so an id is taken as it is.
pub async fn identity(client: &Client, text: &str) -> Result<Uuid, Error> {
    let bare = ["databases/", "parked/"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    match bare.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(client.find_database(bare).await?.id),
    }
}
