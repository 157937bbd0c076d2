//! Why bytes from Kafka are not a record. Each variant has a stable code under which dead letters are kept.

/// Why a record cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not protobuf of this message.
    #[error("the bytes are not a record of this schema: {reason}")]
    Undecodable {
        /// What the decoder said.
        reason: String,
    },
    /// Written for newer readers only.
    #[error("the record asks for a reader of schema {needed}; this program reads {known}; upgrade it")]
    ReaderTooOld {
        /// The least schema version asked for.
        needed: u32,
        /// The schema version known here.
        known: u32,
    },
    /// Written in a later generation of the schema, whose fields may mean anything.
    #[error("the record is of schema generation {found}; this program reads generation {known} only")]
    NewerMajor {
        /// The generation of the record.
        found: u32,
        /// The generation known here.
        known: u32,
    },
    /// A field is missing or breaks its rule.
    #[error("field {field}: {reason}")]
    BadField {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// The stable code of the reason.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Undecodable { .. } => "undecodable",
            Self::ReaderTooOld { .. } => "reader_too_old",
            Self::NewerMajor { .. } => "newer_major",
            Self::BadField { .. } => "bad_field",
        }
    }

    pub(crate) fn bad(field: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::BadField { field, reason: reason.to_string() }
    }
}

/// Parses a text field by its domain type.
pub(crate) fn field<T>(name: &'static str, text: &str) -> Result<T, Error>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| Error::bad(name, error))
}

/// A word of a closed list.
pub(crate) fn word<T>(name: &'static str, text: &str, parse: fn(&str) -> Option<T>) -> Result<T, Error> {
    parse(text).ok_or_else(|| Error::bad(name, format!("unknown word {text:?}")))
}

/// A time in milliseconds since 1970.
pub(crate) fn time(name: &'static str, milliseconds: i64) -> Result<jiff::Timestamp, Error> {
    jiff::Timestamp::from_millisecond(milliseconds).map_err(|error| Error::bad(name, error))
}

/// A time that may be absent (0).
pub(crate) fn optional_time(name: &'static str, milliseconds: i64) -> Result<Option<jiff::Timestamp>, Error> {
    if milliseconds == 0 { Ok(None) } else { time(name, milliseconds).map(Some) }
}

/// The reverse of [`optional_time`].
pub(crate) fn milliseconds(time: Option<jiff::Timestamp>) -> i64 {
    time.map_or(0, jiff::Timestamp::as_millisecond)
}
