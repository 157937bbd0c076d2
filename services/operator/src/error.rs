//! What can go wrong in a pass, told apart by what is done about it.

mod refusal;
mod undeclared;

use std::time::Duration;

use self::refusal::Refusal;

/// A pass that could not be finished. The next one begins from the top.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not do what was asked.
    #[error("{call}")]
    Kubernetes {
        /// What was asked.
        call: &'static str,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// RBAC does not let us.
    #[error(
        "{call}: the API server does not let this operator {what}: grant it with what 'slipway-operator rbac' prints for the \
         namespaces that it looks after"
    )]
    Denied {
        /// What was asked.
        call: &'static str,
        /// Which verb, on what.
        what: String,
    },
    /// The definition in the cluster lacks a field of what was to be applied.
    #[error("{call}: {what}")]
    Undeclared {
        /// What was asked.
        call: &'static str,
        /// Which fields of which object, and what to do.
        what: String,
    },
    /// A namespace on its way out takes nothing new.
    #[error("{call}: the namespace is being deleted and takes nothing new")]
    Ending {
        /// What was asked.
        call: &'static str,
    },
    /// A call took longer than it may.
    #[error("{call} within {limit:?}")]
    Deadline {
        /// What was asked.
        call: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// AWS did not do what was asked.
    #[error("{call}")]
    Aws {
        /// What was asked.
        call: &'static str,
        /// Why not.
        #[source]
        source: Box<cloud::Error>,
    },
    /// EC2 took the request for the volume of a database, and gave the volume up. By the tokens that there are for it there is no
    /// other for a day.
    #[error(
        "EC2 gave up the volume that was asked for: most often the key that it is to be encrypted with, the account's default or \
         that of the copy, may not be used. Cure that; EC2 may give the same answer for a day, so delete the database and make \
         another if it is to be there sooner"
    )]
    GivenUp,
    /// EC2 has no room for the volume of a database where its machine is.
    #[error(
        "EC2 has no room now for a volume of that kind in {zone}, where its machine is (InsufficientVolumeCapacity): if another zone may \
         take the database, it goes there by itself; else it is asked for again every few minutes, and who does not want to wait deletes \
         the database and makes it again in another zone (spec.zone), or with another spec.storage.type"
    )]
    NoRoom {
        /// Where.
        zone: String,
    },
    /// It seems to be another account or region of AWS that answers: nothing is gone for being not there.
    #[error("{what}")]
    Elsewhere {
        /// Why it seems so, and what to do.
        what: String,
    },
    /// QuestDB did not do what was asked.
    #[error("{call}")]
    Database {
        /// What was asked.
        call: &'static str,
        /// Why not.
        #[source]
        source: Box<crate::database::Error>,
    },
    /// Something that we need is there and belongs to somebody else.
    #[error("{what} exists and is not ours: remove or rename it")]
    Foreign {
        /// What.
        what: String,
    },
    /// Something that is to be destroyed does not say that it is this database's.
    #[error(
        "{what} does not carry the tags of this database and is not destroyed: put them back, or, to keep it, take its \
         PersistentVolume away"
    )]
    NotTagged {
        /// What.
        what: String,
    },
    /// Something that is to be destroyed was made for another resource.
    #[error("{what}")]
    OfAnother {
        /// What, and what to do.
        what: String,
    },
    /// Somebody else writes a field of ours again and again.
    #[error("{what}")]
    Contended {
        /// Which, and who.
        what: String,
    },
    /// What was decided rests on something that is no longer so.
    #[error("{what}")]
    Stale {
        /// What changed.
        what: String,
    },
    /// The API server stored less than was written.
    #[error(
        "the status lost {fields} when it was stored: the definition of QuestDB in this cluster is older than this \
         operator; apply the definitions (deploy/crds) that belong to it"
    )]
    Pruned {
        /// The fields it does not know.
        fields: String,
    },
    /// The definition in the cluster, or who wrote a resource, is of another version than this operator, and what is asked for is
    /// not shown in whole.
    #[error("{what}")]
    Definition {
        /// What is missing, and what to do.
        what: String,
    },
    /// The system has no randomness to give.
    #[error("draw a password")]
    Random(#[source] getrandom::Error),
    /// The cryptographic library gave no key.
    #[error("draw a key")]
    Key,
    /// Too little of the lease is left for something that cannot be undone.
    #[error("the leader's lease has ended or is about to")]
    Lease,
    /// A mistake of the program: it is the business of one database, and of whoever reads the log.
    #[error("the program made a mistake (a panic): its message is in the log")]
    Panic,
}

impl Error {
    pub(crate) fn kubernetes(call: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| match refusal::of(&source) {
            Some(Refusal::Denied(what)) => Self::Denied { call, what },
            Some(Refusal::Undeclared(what)) => Self::Undeclared { call, what },
            Some(Refusal::Ending) => Self::Ending { call },
            None => Self::Kubernetes { call, source: Box::new(source) },
        }
    }

    pub(crate) fn aws(call: &'static str) -> impl FnOnce(cloud::Error) -> Self {
        move |source| Self::Aws { call, source: Box::new(source) }
    }

    pub(crate) fn database(call: &'static str) -> impl FnOnce(crate::database::Error) -> Self {
        move |source| Self::Database { call, source: Box::new(source) }
    }

    /// The error without what differs every time (request ids, ports), so that a status that means the same is the same.
    pub(crate) fn stable(&self) -> String {
        let Self::Aws { call, source } = self else { return without_ports(&runtime::telemetry::chain(self)) };
        let request = source.call();
        let code = request.code.as_deref().unwrap_or("no answer");
        format!("{call}: {source} ({}: {code})", request.operation)
    }

    /// Whether only a person or another wish cures it.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Aws { source, .. } => match source.disposition() {
                cloud::Disposition::Park => true,
                cloud::Disposition::Retry => false,
                cloud::Disposition::Wait => is_right_refused(source),
            },
            Self::Kubernetes { source, .. } => match source.as_ref() {
                // What 401 refuses is the credential, and the next one may be there in a second.
                kube::Error::Api(status) => matches!(status.code, 400 | 403 | 422),
                _ => false,
            },
            Self::Denied { .. }
            | Self::Undeclared { .. }
            | Self::GivenUp
            | Self::NoRoom { .. }
            | Self::Elsewhere { .. }
            | Self::Foreign { .. }
            | Self::NotTagged { .. }
            | Self::OfAnother { .. }
            | Self::Contended { .. }
            | Self::Pruned { .. }
            | Self::Definition { .. }
            | Self::Panic => true,
            Self::Database { .. }
            | Self::Ending { .. }
            | Self::Deadline { .. }
            | Self::Stale { .. }
            | Self::Random(_)
            | Self::Key
            | Self::Lease => false,
        }
    }

    /// Whether the API server or AWS refuses a right, which only people can grant.
    pub(crate) fn is_right_refused(&self) -> bool {
        match self {
            Self::Denied { .. } => true,
            Self::Aws { source, .. } => is_right_refused(source),
            _ => false,
        }
    }

    /// Whether AWS allows it only now and then: neither another wish nor anything done here makes it sooner.
    pub fn is_rationed(&self) -> bool {
        matches!(self, Self::Aws { source, .. } if matches!(**source, cloud::Error::TooSoon { .. }))
    }

    /// Whether AWS may well do it when asked again at once: it was busy, or its answer was lost.
    pub fn is_passing(&self) -> bool {
        let Self::Aws { source, .. } = self else { return false };
        // Under another number it may be done at once.
        source.disposition() == cloud::Disposition::Retry
            || matches!(**source, cloud::Error::ParameterMismatch { .. })
    }

    /// Whether somebody should hear of it: what goes by itself, or is as people want it, is no trouble.
    pub(crate) fn is_trouble(&self) -> bool {
        !self.is_conflict() && !matches!(self, Self::Ending { .. })
    }

    /// For metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Kubernetes { .. } => "kubernetes",
            Self::Denied { .. } => "denied",
            Self::Undeclared { .. } => "old_definition",
            Self::Ending { .. } => "ending",
            Self::Deadline { .. } => "deadline",
            Self::Aws { .. } | Self::GivenUp | Self::NoRoom { .. } | Self::Elsewhere { .. } => "aws",
            Self::Database { .. } => "database",
            Self::Foreign { .. } => "foreign",
            Self::NotTagged { .. } => "not_tagged",
            Self::OfAnother { .. } => "of_another",
            Self::Contended { .. } => "contended",
            Self::Stale { .. } => "stale",
            Self::Pruned { .. } => "pruned",
            Self::Definition { .. } => "definition",
            Self::Random(_) | Self::Key => "random",
            Self::Lease => "lease",
            Self::Panic => "panic",
        }
    }

    /// Whether the API server says of what was to be written that it cannot be.
    pub fn is_invalid(&self) -> bool {
        let Self::Kubernetes { source, .. } = self else { return false };
        matches!(source.as_ref(), kube::Error::Api(status) if status.code == 422)
    }

    /// Whether the API server says that what was asked for is not there.
    pub(crate) fn is_missing(&self) -> bool {
        let Self::Kubernetes { source, .. } = self else { return false };
        matches!(source.as_ref(), kube::Error::Api(status) if status.code == 404)
    }

    /// Whether the API server says that what was to be written has another version by now.
    pub(crate) fn is_overtaken(&self) -> bool {
        let Self::Kubernetes { source, .. } = self else { return false };
        matches!(source.as_ref(), kube::Error::Api(status) if status.code == 409)
    }

    /// Whether it is a refused precondition: somebody was quicker, and the next look decides anew.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Kubernetes { .. } => self.is_overtaken(),
            Self::Stale { .. } => true,
            Self::Denied { .. }
            | Self::Undeclared { .. }
            | Self::Ending { .. }
            | Self::Deadline { .. }
            | Self::Aws { .. }
            | Self::GivenUp
            | Self::NoRoom { .. }
            | Self::Elsewhere { .. }
            | Self::Database { .. }
            | Self::Foreign { .. }
            | Self::NotTagged { .. }
            | Self::OfAnother { .. }
            | Self::Contended { .. }
            | Self::Pruned { .. }
            | Self::Definition { .. }
            | Self::Random(_)
            | Self::Key
            | Self::Lease
            | Self::Panic => false,
        }
    }
}

/// Whether AWS refuses whom it knows: somebody has to grant that. Credentials that are of no use may be others in a second.
fn is_right_refused(error: &cloud::Error) -> bool {
    let is_right = |code: &str| code == "UnauthorizedOperation" || code.starts_with("AccessDenied");
    matches!(error, cloud::Error::Denied { .. }) && error.call().code.as_deref().is_some_and(is_right)
}

/// A text without the ports that connections were made from, each of which has another: the API server tells them of a webhook
/// that hangs up (`read tcp 10.0.0.1:40312->10.0.0.2:443: connection reset by peer`).
fn without_ports(text: &str) -> String {
    let mut parts: Vec<&str> = text.split("->").collect();
    let Some(last) = parts.pop() else { return String::new() };
    let from = parts.into_iter().map(|part| {
        let address = part.trim_end_matches(|letter: char| letter.is_ascii_digit());
        address.strip_suffix(':').filter(|_| address.len() < part.len()).unwrap_or(part)
    });
    from.chain([last]).collect::<Vec<_>>().join("->")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_breaks_again_is_the_same_error() {
        let refused = |port: u32| {
            let message = format!(
                "Internal error occurred: failed calling webhook \"a.b.c\": Post \"https://a.b.svc:443/\": read tcp \
                 10.0.0.1:{port}->10.0.0.2:443: read: connection reset by peer"
            );
            let status = serde_json::json!({ "status": "Failure", "code": 500, "reason": "InternalError", "message": message });
            let source = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
            Error::kubernetes("apply an object")(source)
        };
        assert_ne!(runtime::telemetry::chain(&refused(40_312)), runtime::telemetry::chain(&refused(5_117)));
        let stable = refused(40_312).stable();
        assert_eq!(stable, refused(5_117).stable());
        assert!(stable.contains("read tcp 10.0.0.1->10.0.0.2:443: read: connection reset"), "{stable}");
    }

    #[test]
    fn what_the_next_credential_cures_is_not_left_for_long() {
        for (code, lasting) in
            [(400, true), (401, false), (403, true), (409, false), (422, true), (500, false)]
        {
            let status = kube::core::Status::failure("no", "No").with_code(code).boxed();
            let error = Error::kubernetes("apply an object")(kube::Error::Api(status));
            assert_eq!(error.is_lasting(), lasting, "{code}");
        }
    }

    #[test]
    fn a_right_that_aws_refuses_is_for_people_and_credentials_that_ran_out_are_not() {
        for (code, lasting) in
            [("UnauthorizedOperation", true), ("AccessDenied", true), ("ExpiredToken", false), ("", false)]
        {
            let call = Box::new(cloud::Call::new("CreateVolume", "no").with_code(code));
            let error = Error::aws("create the volume")(cloud::Error::Denied { call });
            assert_eq!((error.is_lasting(), error.is_right_refused()), (lasting, lasting), "{code}");
        }
        let what = "list nodes".to_owned();
        assert!(Error::Denied { call: "look for Nodes", what }.is_right_refused());
        let what = "it has changed".to_owned();
        assert!(!Error::Stale { what }.is_right_refused());
        let call = Box::new(cloud::Call::new("RunInstances", "full").with_code("AccessDenied"));
        assert!(!Error::aws("launch the machine")(cloud::Error::Capacity { call }).is_lasting());
    }

    #[test]
    fn what_is_no_port_stays() {
        for (text, expected) in [
            ("", ""),
            ("no such thing", "no such thing"),
            ("[fd00::1]:40312->[fd00::2]:53", "[fd00::1]->[fd00::2]:53"),
            ("a:1->b:2->c:3", "a->b->c:3"),
            ("9.3.4->9.3.5", "9.3.4->9.3.5"),
            ("-> at the end ->", "-> at the end ->"),
        ] {
            assert_eq!(without_ports(text), expected);
        }
    }
}
