//! A question what another spec would take, and the answer in lines: the operator writes them, people and the command line
//! read them.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// Annotation of a resource: a JSON merge patch of its spec, of which status says what it would take.
pub const PATCH: &str = "crd.questdb.io/dry-run";
/// Annotation of a resource: a text of the asker's choice that tells this question from all others; status repeats it beside
/// the answer. May be left out.
pub const QUESTION: &str = "crd.questdb.io/dry-run-question";
/// Most characters of such a text that are repeated.
pub const QUESTION_LENGTH: usize = 64;

/// What status repeats of a question's patch: whoever asked can tell an answer to it from one to another.
pub fn hash(patch: &str) -> String {
    hex::encode(&Sha256::digest(patch)[..8])
}

const NOTHING: &str = "nothing would change";
const STEP: &str = "step ";
const WRONG: &str = "wrong: ";

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A field that is or would be asked for otherwise than it is.
    Change {
        /// What it takes, in a word.
        means: String,
        /// Field of the resource, as a JSON pointer.
        field: String,
        /// What happens, or why nothing does.
        why: String,
    },
    /// One of the first steps.
    Step {
        /// Its name.
        name: String,
        /// What it is for.
        reason: String,
    },
    /// The spec would not be accepted, and why.
    Wrong(String),
    /// There is nothing to do.
    Nothing,
    /// Something else that is to be read.
    Note(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change { means, field, why } => write!(f, "{means} {field}: {why}"),
            Self::Step { name, reason } => write!(f, "{STEP}{name}: {reason}"),
            Self::Wrong(text) => write!(f, "{WRONG}{text}"),
            Self::Nothing => f.write_str(NOTHING),
            Self::Note(text) => f.write_str(text),
        }
    }
}

impl FromStr for Line {
    type Err = std::convert::Infallible;

    /// What is none of the others is a note.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == NOTHING {
            return Ok(Self::Nothing);
        }
        if let Some(wrong) = text.strip_prefix(WRONG) {
            return Ok(Self::Wrong(wrong.to_owned()));
        }
        let (head, tail) = text.split_once(": ").unwrap_or((text, ""));
        Ok(match head.split_once(' ') {
            Some(("step", name)) if !name.is_empty() => {
                Self::Step { name: name.to_owned(), reason: tail.to_owned() }
            }
            Some((means, field)) if field.starts_with('/') && !means.is_empty() => {
                Self::Change { means: means.to_owned(), field: field.to_owned(), why: tail.to_owned() }
            }
            _ => Self::Note(text.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Line {
        match text.parse() {
            Ok(line) => line,
        }
    }

    #[test]
    fn lines_are_told_apart() {
        let text = str::to_owned;
        let change = |means: &str, field: &str, why: &str| Line::Change {
            means: text(means),
            field: text(field),
            why: text(why),
        };
        let table = [
            ("nothing would change", Line::Nothing),
            ("nothing would change: yet", Line::Note(text("nothing would change: yet"))),
            ("wrong: /spec/version is none", Line::Wrong(text("/spec/version is none"))),
            ("restart /spec/config/a b: it is: so", change("restart", "/spec/config/a b", "it is: so")),
            ("online /spec/storage/sizeGib", change("online", "/spec/storage/sizeGib", "")),
            ("step Apply: the pod", Line::Step { name: text("Apply"), reason: text("the pod") }),
            ("step", Line::Note(text("step"))),
            (" /spec: x", Line::Note(text(" /spec: x"))),
            ("a word of later: x", Line::Note(text("a word of later: x"))),
            ("", Line::Note(String::new())),
        ];
        for (line, expected) in table {
            assert_eq!(read(line), expected, "{line:?}");
        }
    }

    fn line() -> impl Strategy<Value = Line> {
        prop_oneof![
            Just(Line::Nothing),
            "\\PC{0,40}".prop_map(Line::Wrong),
            ("[a-z]{1,9}", "/[a-zA-Z0-9./ ]{0,40}", "\\PC{0,40}")
                .prop_map(|(means, field, why)| Line::Change { means, field, why }),
            ("[A-Za-z]{1,20}", "\\PC{0,40}").prop_map(|(name, reason)| Line::Step { name, reason }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(line in line()) {
            prop_assert_eq!(read(&line.to_string()), line);
        }

        #[test]
        fn no_line_loses_its_text(text in "\\PC{0,60}") {
            let again = read(&text).to_string();
            prop_assert!(again == text || again == format!("{text}: "), "{:?}", again);
        }
    }
}
