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
