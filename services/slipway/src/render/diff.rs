//! What a change would take, as the operator says it.

use domain::dry_run::Line;
use serde::Serialize;

use super::text::{clean, table};

/// What a change would take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Namespace of the resource.
    pub namespace: String,
    /// Its name.
    pub resource: String,
    /// Generation of the spec that the change was compared with.
    pub generation: i64,
    /// Whether there would be anything to do.
    pub would_change: bool,
    /// Fields that are or would be asked for otherwise than they are.
    pub changes: Vec<Change>,
    /// The first steps.
    pub steps: Vec<Step>,
    /// What else is to be read.
    pub notes: Vec<String>,
}

/// A field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Which, as a JSON pointer.
    pub field: String,
    /// What it takes: `online`, `restart`, `move`, `stop` or `refused`.
    pub means: String,
    /// What happens, or why nothing does.
    pub why: String,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub reason: String,
}

/// An answer of the operator about a resource at a generation; what is wrong where the spec would not be accepted.
pub fn difference(
    (namespace, resource, generation): (&str, &str, i64),
    answer: Vec<Line>,
) -> Result<Difference, Vec<String>> {
    let (mut changes, mut steps, mut notes, mut wrong) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for line in answer {
        match line {
            Line::Change { means, field, why } => changes.push(Change { field, means, why }),
            Line::Step { name, reason } => steps.push(Step { name, reason }),
            Line::Note(text) => notes.push(text),
            Line::Wrong(text) => wrong.push(clean(&text)),
            Line::Nothing => {}
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    // What is not understood is no promise that nothing would change.
    let would_change = !(changes.is_empty() && steps.is_empty() && notes.is_empty());
    let (namespace, resource) = (namespace.to_owned(), resource.to_owned());
    Ok(Difference { namespace, resource, generation, would_change, changes, steps, notes })
}

/// The same for reading.
pub fn text(difference: &Difference) -> String {
    if !difference.would_change {
        return "nothing would change".to_owned();
    }
    let changes = difference.changes.iter();
    let changes = changes.map(|change| vec![change.means.clone(), change.field.clone(), change.why.clone()]);
    let steps = difference.steps.iter().map(|step| vec![step.name.clone(), step.reason.clone()]);
    let parts = [
        table(&["MEANS", "FIELD", "WHY"], changes.collect()),
        table(&["FIRST STEP", "REASON"], steps.collect()),
        difference.notes.iter().map(|note| clean(note)).collect::<Vec<_>>().join("\n"),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Result<Difference, Vec<String>> {
        let lines = lines.iter().map(|line| match line.parse() {
            Ok(line) => line,
        });
        difference(("data", "trades", 3), lines.collect())
    }

    #[test]
    fn as_tables() {
        let shown = text(
            &of(&[
                "restart /spec/config/cairo.max.uncommitted.rows: QuestDB reads it when it starts",
                "online /spec/storage/sizeGib: the disk grows",
                "step ModifyVolume: the disk is not as large as it should be",
                "3 more lines are left out",
            ])
            .unwrap(),
        );
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn as_json() {
        let shown = of(&["restart /spec/restartNonce: asked for", "step Apply: the pod", "a note"]).unwrap();
        insta::assert_json_snapshot!(shown);
    }

    #[test]
    fn only_the_operators_word_is_nothing() {
        let nothing = of(&["nothing would change"]).unwrap();
        assert_eq!((nothing.would_change, text(&nothing).as_str()), (false, "nothing would change"));
        for line in ["step Apply: the pod", "refused /spec/zone: it stays", "something of a later operator"] {
            assert!(of(&[line]).unwrap().would_change, "{line}");
        }
        let wrong = of(&["wrong: /spec/version is none", "wrong: b\u{7}"]).unwrap_err();
        assert_eq!(wrong, ["/spec/version is none", "b "]);
    }
}
