//! The two SDK clients of one account in one region, and the one way through which every request goes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_ec2::config::Credentials as FixedCredentials;
use cloud::{CallReport, Error, Limiter, OnCall};

use crate::failure::{Failure, error};
use crate::request::Request;
use crate::settings::{Credentials, Settings};

/// One AWS account in one region. Cheap to clone; clones share connections and the rate limiter.
#[derive(Clone)]
pub struct Aws {
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) route53: aws_sdk_route53::Client,
    limiter: Arc<Limiter>,
    longest_wait: Duration,
    on_call: Option<OnCall>,
}

impl fmt::Debug for Aws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aws").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

impl Aws {
    /// Prepares the clients. Nothing is sent to EC2 or Route 53 yet, and credentials are fetched at the first call, so
    /// that a process can start while AWS cannot be reached.
    pub async fn connect(settings: Settings) -> Self {
        let Settings { region, endpoint, credentials, timeouts, attempts, .. } = settings;
        let Settings { rates, longest_wait, on_call, .. } = settings;
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .region(Region::new(region))
            .retry_config(RetryConfig::standard().with_max_attempts(attempts.max(1)))
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(timeouts.connect)
                    .operation_attempt_timeout(timeouts.attempt)
                    .operation_timeout(timeouts.operation)
                    .build(),
            );
        if let Some(endpoint) = endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Credentials::Fixed { key_id, secret } = credentials {
            loader =
                loader.credentials_provider(FixedCredentials::new(key_id, secret, None, None, "settings"));
        }
        let config = loader.load().await;
        Self {
            ec2: aws_sdk_ec2::Client::new(&config),
            route53: aws_sdk_route53::Client::new(&config),
            limiter: Arc::new(Limiter::new(rates)),
            longest_wait,
            on_call,
        }
    }

    /// Holds the request back to its rate, sends it (a future of the SDK does nothing before it is polled), tells the
    /// metrics, and puts a failure into our words.
    pub(crate) async fn call<T, F: Failure>(
        &self,
        request: Request,
        sent: impl Future<Output = Result<T, F>>,
    ) -> Result<T, Error> {
        let waited = match self.limiter.acquire(request.family, request.operation, self.longest_wait).await {
            Ok(waited) => waited,
            Err(refused) => {
                self.report(request, Some(&refused), Duration::ZERO, Duration::ZERO);
                return Err(refused);
            }
        };
        let started = Instant::now();
        let answer = sent.await.map_err(|failure| error(request, &failure.describe(), failure.cause()));
        let refused = answer.as_ref().err();
        if let Some(Error::Throttled { retry_after, .. }) = refused {
            self.limiter.throttled(request.family, request.operation, *retry_after);
        }
        self.report(request, refused, waited, started.elapsed());
        answer
    }

    fn report(&self, request: Request, error: Option<&Error>, waited: Duration, took: Duration) {
        let code = error.and_then(|error| error.call().code.as_deref());
        let category = error.map_or("ok", Error::category);
        let report = CallReport { operation: request.operation, category, code, waited, took };
        tracing::debug!(
            aws.operation = report.operation,
            aws.category = report.category,
            aws.code = report.code,
            aws.request_id = error.and_then(|error| error.call().request_id.as_deref()),
            aws.waited_ms = millis(waited),
            duration_ms = millis(took),
            "called AWS"
        );
        if let Some(on_call) = &self.on_call {
            on_call(&report);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
