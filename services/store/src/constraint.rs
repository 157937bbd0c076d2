//! Named constraints as errors that callers can branch on. The one place that knows the names.

/// What a constraint refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Conflict {
    /// A living database of the tenant has this name.
    #[error("a database of this name exists")]
    NameTaken,
    /// The position was minted before.
    #[error("this position was minted before")]
    PositionTaken,
    /// No such tenant.
    #[error("no such tenant")]
    UnknownTenant,
    /// No such cluster.
    #[error("no such cluster")]
    UnknownCluster,
    /// No such database.
    #[error("no such database")]
    UnknownDatabase,
    /// The same secret was given out before.
    #[error("this token exists")]
    TokenExists,
    /// The idempotency key was used in the meantime.
    #[error("this idempotency key was used at the same time")]
    KeyUsed,
    /// The operation reached its end before.
    #[error("the operation has ended; it does not move any more")]
    OperationEnded,
}

/// The conflict that a constraint stands for; `None` where its violation is a mistake of ours.
pub(crate) fn conflict(constraint: &str) -> Option<Conflict> {
    Some(match constraint {
        "databases_living_name_key" => Conflict::NameTaken,
        "instructions_position_key" | "operations_position_key" => Conflict::PositionTaken,
        "databases_tenant_fkey" | "tokens_tenant_fkey" => Conflict::UnknownTenant,
        "databases_cluster_fkey" => Conflict::UnknownCluster,
        "instructions_database_fkey" | "operations_database_fkey" | "observations_database_fkey" => {
            Conflict::UnknownDatabase
        }
        "tokens_hash_key" => Conflict::TokenExists,
        "idempotency_keys_pkey" => Conflict::KeyUsed,
        "operations_ends_are_final" => Conflict::OperationEnded,
        _ => return None,
    })
}
