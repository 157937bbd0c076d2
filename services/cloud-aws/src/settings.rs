//! How to reach AWS. Values only; where they come from is the business of a `main`.

use std::fmt;
use std::time::Duration;

use cloud::{OnCall, Rates};

/// Everything [`crate::Aws::connect`] needs.
#[derive(Clone)]
pub struct Settings {
    /// Region, like `eu-west-1`.
    pub region: String,
    /// Another endpoint than AWS's own, for both services.
    pub endpoint: Option<String>,
    /// Who we are.
    pub credentials: Credentials,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Attempts of one call, the first included.
    pub attempts: u32,
    /// Our share of the account's request rates.
    pub rates: Rates,
    /// How long a call may be held back by the rate limiter before it is refused.
    pub longest_wait: Duration,
    /// Told of every call, for metrics.
    pub on_call: Option<OnCall>,
}

impl Settings {
    /// AWS's own endpoint in this region, by the standard chain of credentials.
    pub fn new(region: impl Into<String>) -> Self {
        Self {
            region: region.into(),
            endpoint: None,
            credentials: Credentials::Standard,
            timeouts: Timeouts::default(),
            attempts: 3,
            rates: Rates::default(),
            longest_wait: Duration::from_secs(20),
            on_call: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, endpoint, credentials, timeouts, attempts, rates, longest_wait, on_call: _ } =
            self;
        f.debug_struct("Settings")
            .field("region", region)
            .field("endpoint", endpoint)
            .field("credentials", credentials)
            .field("timeouts", timeouts)
            .field("attempts", attempts)
            .field("rates", rates)
            .field("longest_wait", longest_wait)
            .finish_non_exhaustive()
    }
}

/// Who we are to AWS.
#[derive(Clone)]
pub enum Credentials {
    /// The standard chain: environment, profile, web identity, container, instance.
    Standard,
    /// A fixed key, for endpoints that take any.
    Fixed {
        /// Access key id.
        key_id: String,
        /// Secret access key.
        secret: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("Standard"),
            Self::Fixed { key_id, .. } => write!(f, "Fixed({key_id}, secret not shown)"),
        }
    }
}

/// Deadlines of one call. The operation's covers all attempts and the pauses between them.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Opening a connection.
    pub connect: Duration,
    /// One attempt.
    pub attempt: Duration,
    /// The whole call, without the time in the rate limiter.
    pub operation: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            attempt: Duration::from_secs(10),
            operation: Duration::from_secs(25),
        }
    }
}
