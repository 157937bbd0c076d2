//! Which namespaces are looked after. Databases and all that belongs to them in a namespace are watched and written there
//! alone; what has no namespace (Nodes, `PersistentVolume`s, attachments) is the cluster's in any case.

use std::collections::BTreeSet;

/// The namespaces of databases that this operator looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that there are and will be.
    All,
    /// These, of which there is at least one.
    Only(BTreeSet<String>),
}

impl Scope {
    /// These alone; all when none is named. An empty text names none.
    pub fn of(names: &[String]) -> Self {
        let names: BTreeSet<_> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
        if names.is_empty() { Self::All } else { Self::Only(names) }
    }

    /// Whether a namespace is looked after.
    pub(crate) fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }

    /// Where each kind is watched: once for the whole cluster, or in one namespace after the other.
    pub(crate) fn places(&self) -> Vec<Option<String>> {
        match self {
            Self::All => vec![None],
            Self::Only(names) => names.iter().cloned().map(Some).collect(),
        }
    }
}

/// The same, or nothing: an empty text is how a variable of the environment says that none is named.
pub(crate) fn name_or_none(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { name(text) }
}

/// A name that a namespace may have.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let inside = text.chars().all(|each| letter(each) || each == '-');
    if (1..=63).contains(&text.len()) && inside && !text.starts_with('-') && !text.ends_with('-') {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not the name of a namespace"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_all_and_a_name_counts_once() {
        let check = |names: &[&str], expected: &[Option<&str>]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            let expected: Vec<_> = expected.iter().map(|place| place.map(str::to_owned)).collect();
            assert_eq!(Scope::of(&names).places(), expected, "{names:?}");
        };
        check(&[], &[None]);
        check(&[""], &[None]);
        check(&["b", "", "a", "b"], &[Some("a"), Some("b")]);
    }

    #[test]
    fn only_what_is_named_is_covered() {
        assert!(Scope::All.covers("a"));
        let some = Scope::of(&["a".to_owned()]);
        assert!(some.covers("a") && !some.covers("b"));
    }

    #[test]
    fn what_no_namespace_is_called_is_refused() {
        assert_eq!(name_or_none(""), Ok(String::new()));
        for good in ["a", "team-1", "1"] {
            assert!(name(good).is_ok() && name_or_none(good).is_ok(), "{good}");
        }
        assert!(name("").is_err());
        for bad in ["A", "a_b", "-a", "a-", "a.b", "a b", "*", &"a".repeat(64)] {
            assert!(name(bad).is_err() && name_or_none(bad).is_err(), "{bad}");
        }
    }
}
