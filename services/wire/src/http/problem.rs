//! Problem documents (RFC 9457): what went wrong, where, and what to do about it.

use domain::Violations;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a problem document.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A problem document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// URI of the kind of problem: `/problems/` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in a few words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Stable code for programs.
    pub code: String,
    /// What happened here and what to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Each wrong field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
    /// The request, as the logs know it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
}

/// One wrong field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// JSON pointer to the field.
    pub pointer: String,
    /// Stable code of the rule.
    pub rule: String,
    /// What the rule asks for.
    pub detail: String,
}

impl Problem {
    /// A problem with a code, a title and a status.
    pub fn new(status: u16, code: &str, title: &str) -> Self {
        Self {
            kind: format!("/problems/{code}"),
            title: title.to_owned(),
            status,
            code: code.to_owned(),
            detail: String::new(),
            errors: Vec::new(),
            request_id: String::new(),
        }
    }

    /// With what happened here.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// An input that breaks rules.
    pub fn invalid(violations: &Violations) -> Self {
        let mut problem = Self::new(422, "invalid", "The request breaks one or more rules");
        problem.detail = violations.to_string();
        problem.errors = violations
            .0
            .iter()
            .map(|violation| FieldProblem {
                pointer: violation.pointer.clone(),
                rule: violation.rule.code().to_owned(),
                detail: violation.detail.clone(),
            })
            .collect();
        problem
    }
}
