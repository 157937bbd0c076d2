//! What can go wrong, and how it is told: what, where, what to do, which request. The exit codes are in `exit`.

use std::error::Error as StdError;
use std::fmt::Write;
use std::path::PathBuf;

use wire::http::{Database, Operation, Problem};

/// Any error as a source.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Asked for in a way that makes no sense.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do; may be empty.
        hint: String,
    },
    /// A name that several things bear.
    #[error("several databases are called {name:?}")]
    Ambiguous {
        /// The name.
        name: String,
        /// All that bear it.
        databases: Vec<Database>,
    },
    /// Not there.
    #[error("{what} is not there")]
    NotFound {
        /// What was looked for.
        what: String,
        /// What to do; may be empty.
        hint: String,
    },
    /// The API said no.
    #[error("{}", problem.title)]
    Refused {
        /// Method and path.
        request: String,
        /// Its words.
        problem: Box<Problem>,
    },
    /// The API could not be reached.
    #[error("cannot reach {url}")]
    Unreachable {
        /// Its address.
        url: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The API's answer could not be understood.
    #[error("cannot understand the answer to {request}")]
    Answer {
        /// Method and path.
        request: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The deadline passed.
    #[error("out of time: {doing}")]
    TimedOut {
        /// What was being done.
        doing: String,
        /// What to do; may be empty.
        hint: String,
    },
    /// An operation ended without success.
    #[error("{} of {} {}", operation.kind, operation.database_name, operation.state)]
    Ended {
        /// The operation.
        operation: Box<Operation>,
    },
    /// A database that cannot be connected to yet.
    #[error("{name} has no addresses yet (it is {status})")]
    NotReady {
        /// The database.
        name: String,
        /// Its status.
        status: String,
    },
    /// A file with secrets that others can read.
    #[error("{} can be read by others (mode {mode:o})", path.display())]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file whose content makes no sense.
    #[error("cannot understand {}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file that cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// kubectl or psql did not do what was asked.
    #[error("{reason}")]
    Kubectl {
        /// What it said.
        reason: String,
    },
    /// kubectl may not do what was asked.
    #[error("{reason}")]
    Forbidden {
        /// What it said.
        reason: String,
    },
    /// Somebody else was there first.
    #[error("{message}")]
    Conflict {
        /// Who, or what.
        message: String,
        /// What to do; may be empty.
        hint: String,
    },
    /// Something would change: no failure, but not the same either.
    #[error("something would change")]
    WouldChange,
    /// It is not known whether something would change.
    #[error("{0}")]
    Undecided(Box<Self>),
    /// Data that cannot be printed.
    #[error("cannot print the data")]
    Render(#[source] BoxError),
    /// The program could not start.
    #[error("cannot start")]
    Start(#[source] std::io::Error),
    /// The question was answered with no.
    #[error("nothing was done")]
    Declined,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted {
        /// What goes on all the same; may be empty.
        hint: String,
    },
    /// Whoever read what was printed went away while more was to come: no failure, but the end.
    #[error("nobody reads on")]
    Unread,
}

impl Error {
    /// Ctrl-C, with nothing that goes on.
    pub const fn interrupted() -> Self {
        Self::Interrupted { hint: String::new() }
    }

    /// Wrong usage, with nothing to add.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: String::new() }
    }

    /// Everything there is to say, in lines, the first without a prefix.
    pub fn explain(&self) -> String {
        if let Self::Undecided(why) = self {
            return why.explain();
        }
        let mut text = self.to_string();
        if let Some(root) = root(self) {
            let _ = write!(text, ": {root}");
        }
        match self {
            Self::Refused { request, problem } => refused(&mut text, request, problem),
            Self::Ended { operation } => ended(&mut text, operation),
            Self::Ambiguous { databases, .. } => {
                for Database { id, tenant, region, run_state, .. } in databases {
                    let _ = write!(text, "\n  {id} of tenant {tenant} in {region}, {run_state}");
                }
            }
            _ => {}
        }
        let hint = self.hint();
        if !hint.is_empty() {
            let _ = write!(text, "\nhint: {hint}");
        }
        text
    }

    /// What to do about it; empty where there is nothing to say.
    fn hint(&self) -> String {
        match self {
            Self::Usage { hint, .. }
            | Self::NotFound { hint, .. }
            | Self::TimedOut { hint, .. }
            | Self::Conflict { hint, .. }
            | Self::Interrupted { hint } => hint.clone(),
            Self::Forbidden { .. } => "use a context of kubectl that may".to_owned(),
            Self::Ambiguous { .. } => "use the id, or --tenant".to_owned(),
            Self::Refused { problem, .. } if problem.code == "tenant_required" => {
                "name the tenant by --tenant or SLIPWAY_TENANT".to_owned()
            }
            Self::Refused { request, problem } => advice(request, problem.status).to_owned(),
            Self::Unreachable { .. } => {
                "check --api-url (SLIPWAY_API, or the context) and that the API is up".to_owned()
            }
            Self::Answer { .. } => {
                "check that the address is that of a Slipway API; try `slipway version`".to_owned()
            }
            Self::Ended { operation } => format!("slipway databases describe {}", operation.database_id),
            Self::NotReady { name, .. } => format!("slipway databases describe {name}"),
            Self::OpenToOthers { path, .. } => format!("chmod 600 {}", path.display()),
            Self::Malformed { .. }
            | Self::File { .. }
            | Self::Kubectl { .. }
            | Self::WouldChange
            | Self::Undecided(_)
            | Self::Render(_)
            | Self::Start(_)
            | Self::Declined
            | Self::Unread => String::new(),
        }
    }
}

/// The deepest cause: what lies between says in layers what was being done, which the error itself says once.
fn root(error: &Error) -> Option<&(dyn StdError + 'static)> {
    let mut root = error.source()?;
    while let Some(deeper) = root.source() {
        root = deeper;
    }
    Some(root)
}

fn refused(text: &mut String, request: &str, problem: &Problem) {
    let _ = write!(text, " ({}, HTTP {})", problem.code, problem.status);
    // With fields listed below, the detail only says the same in one line.
    if problem.errors.is_empty() && !problem.detail.is_empty() {
        let _ = write!(text, "\n  {}", problem.detail);
    }
    for error in &problem.errors {
        let pointer = if error.pointer.is_empty() { "(body)" } else { &error.pointer };
        let _ = write!(text, "\n  {pointer}: {} [{}]", error.detail, error.rule);
    }
    let _ = write!(text, "\nrequest: {request}");
    if !problem.request_id.is_empty() {
        let _ = write!(text, " (request id {})", problem.request_id);
    }
}

fn ended(text: &mut String, operation: &Operation) {
    if let Some(error) = &operation.error {
        let _ = write!(text, ": {} ({})", error.message, error.code);
    }
    for step in operation.steps.iter().filter(|step| step.state == "failed") {
        let _ = write!(text, "\n  step {}: {}", step.name, step.message);
    }
    if let Some(by) = operation.superseded_by {
        let _ = write!(text, "\n  operation {by} took its place");
    }
    let _ = write!(text, "\noperation: {}", operation.id);
    if !operation.trace_id.is_empty() {
        let _ = write!(text, " (trace {})", operation.trace_id);
    }
}

/// What to do about a refusal, where the API's words may not say it in those of the command line.
fn advice(request: &str, status: u16) -> &'static str {
    let of_a_tenant = request.contains("/v1/databases") || request.contains("/v1/operations");
    match status {
        401 => "give a valid token by SLIPWAY_TOKEN or `slipway contexts set`",
        403 => "use a token that may; `slipway contexts list` shows what is kept",
        404 if of_a_tenant => {
            "names and ids are looked for in one tenant only: `slipway databases list`, --tenant"
        }
        404 if request.contains("/v1/dead-letters") => {
            "`slipway dead-letters list --settled` shows what is there"
        }
        404 => "`slipway clusters list` shows what is there",
        409 if !request.starts_with("POST") => "look at the present state with `slipway databases describe`",
        412 | 428 => {
            "the database changed since it was read (perhaps by an earlier try of this command): describe it, then run again"
        }
        422 | 400 => "change the values named above; `--help` shows what can be given",
        429 => "too many requests: run the command again a little later",
        500..=599 => "the API is in trouble; it is safe to run the command again",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use wire::http::FieldProblem;

    #[test]
    fn a_refusal_names_every_field_its_rule_and_the_request() {
        let mut problem =
            Problem::new(422, "invalid", "The request breaks one or more rules").detail("two things");
        problem.request_id = "0192f3a4".to_owned();
        problem.errors = vec![
            FieldProblem {
                pointer: "/name".to_owned(),
                rule: "format".to_owned(),
                detail: "must be lower case".to_owned(),
            },
            FieldProblem {
                pointer: "/storage/size_gib".to_owned(),
                rule: "range".to_owned(),
                detail: "must be 10 to 16384".to_owned(),
            },
        ];
        let error = Error::Refused { request: "POST /v1/databases".to_owned(), problem: Box::new(problem) };
        insta::assert_snapshot!(error.explain(), @r"
        The request breaks one or more rules (invalid, HTTP 422)
          /name: must be lower case [format]
          /storage/size_gib: must be 10 to 16384 [range]
        request: POST /v1/databases (request id 0192f3a4)
        hint: change the values named above; `--help` shows what can be given
        ");
    }

    #[test]
    fn whoever_acts_for_many_tenants_is_told_how_to_name_one() {
        let problem = Box::new(Problem::new(400, "tenant_required", "A header is missing"));
        let error = Error::Refused { request: "POST /v1/databases/a:purge".to_owned(), problem };
        assert!(error.explain().contains("--tenant"), "{}", error.explain());
    }

    #[test]
    fn a_failed_operation_names_its_step() {
        let error = Error::Ended { operation: Box::new(fixture::operation("failed")) };
        insta::assert_snapshot!(error.explain(), @r"
        create of trades failed: no zone has capacity for m7i.large; try another type (capacity)
          step instance: InsufficientInstanceCapacity in eu-west-1a
        operation: 0192f3a4-5b6c-7d8e-9f00-aabbccddeeff (trace 4bf92f3577b34da6a3ce929d0e0e4736)
        hint: slipway databases describe 0192f3a4-5b6c-7d8e-9f00-112233445566
        ");
    }

    #[test]
    fn a_superseded_operation_names_the_one_in_its_place() {
        let error = Error::Ended { operation: Box::new(fixture::operation("superseded")) };
        let text = error.explain();
        assert!(text.contains("operation 0192f3a4-5b6c-7d8e-9f00-ffffffffffff took its place"), "{text}");
    }

    #[test]
    fn namesakes_are_told_with_whose_they_are() {
        let other = Database { tenant: "umbrella".to_owned(), ..fixture::database() };
        let error =
            Error::Ambiguous { name: "trades".to_owned(), databases: vec![fixture::database(), other] };
        insta::assert_snapshot!(error.explain(), @r#"
        several databases are called "trades"
          0192f3a4-5b6c-7d8e-9f00-112233445566 of tenant acme in eu-west-1, running
          0192f3a4-5b6c-7d8e-9f00-112233445566 of tenant umbrella in eu-west-1, running
        hint: use the id, or --tenant
        "#);
    }

    #[test]
    fn the_cause_is_told_once() {
        let inner = std::io::Error::other("connection refused");
        let error = Error::Unreachable { url: "http://a/".to_owned(), source: Box::new(inner) };
        let text = error.explain();
        assert_eq!(text.matches("connection refused").count(), 1, "{text}");
        assert!(text.starts_with("cannot reach http://a/: connection refused\nhint: "), "{text}");
    }
}
