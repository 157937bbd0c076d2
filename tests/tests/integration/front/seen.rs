//! A request that came to the front, and what it is about.

use std::time::Instant;

use axum::http::Method;

/// A request that came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) authorization: String,
    pub(crate) body: String,
    pub(crate) at: Instant,
    /// How many applies were under way when it came, where it is one too.
    pub(crate) beside: usize,
}

impl Seen {
    /// Whether it is an apply: not a probe, not a watch.
    pub(crate) fn is_apply(&self) -> bool {
        self.method == Method::PATCH
    }

    /// Whether it begins a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.path.contains("watch=true")
    }

    /// Whether it asks for all objects of a kind.
    pub(crate) fn is_list(&self) -> bool {
        self.method == Method::GET && self.path.contains("limit=") && !self.is_watch()
    }

    /// What it is about, without the query.
    pub(crate) fn about(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// The kind of what it is about, by its name in paths, where it is about many.
    pub(super) fn kind(&self) -> &str {
        self.about().rsplit('/').next().unwrap_or_default()
    }

    /// The kind of the one object that it changes, by its name in paths.
    pub(super) fn kind_of_one(&self) -> &str {
        let path = self.about().trim_end_matches("/status");
        if self.method == Method::POST { self.kind() } else { path.rsplit('/').nth(1).unwrap_or_default() }
    }

    /// Whether it changes anything but a Lease.
    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET && !self.is_of_lease()
    }

    /// Whether it is about a Lease.
    pub(crate) fn is_of_lease(&self) -> bool {
        self.path.contains("/leases")
    }

    /// Whether it asks where the API server stands, as a process does now and then: for one database, whichever it is.
    pub(crate) fn asks_for_a_version(&self) -> bool {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        self.about().ends_with("/questdbs") && query.split('&').any(|part| part == "limit=1")
    }

    /// Whether it asks which kinds there are, or how they are defined.
    pub(crate) fn is_discovery(&self) -> bool {
        if self.path == "/openapi/v3" {
            return true;
        }
        self.path.starts_with("/apis/") && self.path.matches('/').count() == 3
    }

    /// Whether it asks for a namespace.
    pub(crate) fn is_namespace(&self) -> bool {
        self.method == Method::POST && self.path.starts_with("/api/v1/namespaces")
    }
}
