//! What is wrong with an input, field by field. Never a transport error: `wire` turns these into problem documents.

use std::fmt;

/// The rule that a field broke; stable, so that programs can branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// The field must be present.
    Required,
    /// The text does not have the required form (for names: RFC 1123 label).
    Format,
    /// A number or length lies outside its range.
    Range,
    /// The value is not one of those on offer.
    Unknown,
    /// The field does not exist.
    UnknownField,
    /// The field cannot change any more.
    Immutable,
    /// The size is less than can be asked for: no disk shrinks.
    Shrinks,
    /// The value clashes with another one.
    Conflict,
}

impl Rule {
    /// The stable code of the rule, as it appears in problem documents.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Format => "format",
            Self::Range => "range",
            Self::Unknown => "unknown",
            Self::UnknownField => "unknown_field",
            Self::Immutable => "immutable",
            Self::Shrinks => "shrinks",
            Self::Conflict => "conflict",
        }
    }
}

/// One broken rule at one place of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer (RFC 6901) to the field, such as `/storage/size_gib`.
    pub pointer: String,
    /// The rule.
    pub rule: Rule,
    /// What the rule asks for, for people.
    pub detail: String,
}

impl Violation {
    /// A violation at `pointer`.
    pub fn new(pointer: impl Into<String>, rule: Rule, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), rule, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.detail)
    }
}

/// Everything that is wrong with one input; all of it is told at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations(pub Vec<Violation>);

impl Violations {
    /// Records the violation of a failed parse and gives back the value of a good one.
    pub fn keep<T>(&mut self, result: Result<T, Violation>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(violation) => {
                self.0.push(violation);
                None
            }
        }
    }

    /// Records a violation.
    pub fn push(&mut self, violation: Violation) {
        self.0.push(violation);
    }

    /// `Err` if anything was recorded.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{violation}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Violations {}

/// A key as it stands in a JSON pointer (RFC 6901).
pub fn reference_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_a_key_of_any_letters() {
        for (key, token) in [("a", "a"), ("a/b~c", "a~1b~0c"), ("~1", "~01")] {
            assert_eq!(reference_token(key), token);
        }
    }
}
