//! One request to AWS, as errors and metrics tell of it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The request behind an error: enough to find it in AWS's own records.
#[derive(Clone, Debug)]
pub struct Call {
    /// EC2's or Route 53's name of the operation, like `RunInstances`.
    pub operation: &'static str,
    /// AWS's error code, when there was an answer with one.
    pub code: Option<String>,
    /// AWS's words, or ours when there was no answer.
    pub message: String,
    /// AWS's request id, which its support asks for.
    pub request_id: Option<String>,
    /// What lies below, when the request did not end in a readable answer.
    pub cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Call {
    /// A call of which nothing more is known.
    pub fn new(operation: &'static str, message: impl Into<String>) -> Self {
        Self { operation, code: None, message: message.into(), request_id: None, cause: None }
    }

    /// With AWS's code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if let Some(code) = &self.code {
            write!(f, " answered {code}")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl StdError for Call {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_ref().map(|cause| cause.as_ref() as &(dyn StdError + 'static))
    }
}

/// What metrics are told of every request.
#[derive(Clone, Copy, Debug)]
pub struct CallReport<'a> {
    /// Operation, like `DescribeInstances`.
    pub operation: &'static str,
    /// `ok`, or the category of the error.
    pub category: &'static str,
    /// AWS's code, when it gave one. Unbounded text: for logs rather than for labels.
    pub code: Option<&'a str>,
    /// How long the rate limiter held it back.
    pub waited: Duration,
    /// How long the request took, its retries included.
    pub took: Duration,
}

/// Called once per request, on the caller's task: must be quick and must not block.
pub type OnCall = Arc<dyn Fn(&CallReport<'_>) + Send + Sync>;
