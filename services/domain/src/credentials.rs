//! Keys of the Secret that holds a database's credentials: the operator writes them, the pod and the command line read
//! them.

/// User of the Postgres wire protocol.
pub const PG_USER: &str = "pg-user";
/// Password of the Postgres wire protocol.
pub const PG_PASSWORD: &str = "pg-password";
/// User of HTTP.
pub const HTTP_USER: &str = "http-user";
/// Password of HTTP.
pub const HTTP_PASSWORD: &str = "http-password";
/// User of the Postgres wire protocol who may only read. Absent unless somebody named one.
pub const PG_READONLY_USER: &str = "pg-readonly-user";
/// Password of the same.
pub const PG_READONLY_PASSWORD: &str = "pg-readonly-password";
/// Public keys of those who may write over the line protocol over TCP, as QuestDB reads them. Absent unless there are some.
pub const ILP_KEYS: &str = "ilp-keys";
