//! What the keeper keeps: objects as text, by kind and name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// What a path is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Group, version and plural.
    pub(crate) kind: String,
    /// Of one namespace, where the path names one.
    pub(crate) namespace: Option<String>,
    /// Of one object.
    pub(crate) name: Option<String>,
    /// Of one part of it.
    pub(crate) subresource: Option<String>,
}

impl Place {
    /// An object of a kind.
    pub(crate) fn new(kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.map(ToOwned::to_owned);
        Self { kind: kind.to_owned(), namespace, name: Some(name.to_owned()), subresource: None }
    }

    /// Of a path; nothing when it is about no kind.
    pub(super) fn of(path: &str) -> Option<Self> {
        let mut words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
        let group = match *words.first()? {
            "api" => 2,
            "apis" => 3,
            _ => return None,
        };
        if words.len() <= group {
            return None;
        }
        let (version, rest) = (words[1..group].join("/"), words.split_off(group));
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let word = |index: usize| rest.get(index).map(ToString::to_string);
        Some(Self {
            kind: format!("{version}/{}", rest.first()?),
            namespace: namespace.map(ToOwned::to_owned),
            name: word(1),
            subresource: word(2),
        })
    }

    fn key(&self) -> String {
        format!(
            "{}/{}",
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default()
        )
    }
}

/// What a list is to show.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The label that an object must have.
    pub(super) label: Option<String>,
    /// How many objects at most.
    pub(super) limit: Option<usize>,
    /// The key that the page before ended with.
    pub(super) after: Option<String>,
}

/// Everything that is kept.
#[derive(Debug, Default)]
pub(super) struct Shelves {
    version: u64,
    kinds: BTreeMap<String, BTreeMap<String, Arc<str>>>,
}

impl Shelves {
    pub(super) fn get(&self, place: &Place) -> Option<&Arc<str>> {
        self.kinds.get(&place.kind)?.get(&place.key())
    }

    pub(super) fn bytes(&self, kind: &str) -> usize {
        self.kinds.get(kind).into_iter().flat_map(BTreeMap::values).map(|object| object.len()).sum()
    }

    pub(super) fn count(&self, kind: &str, text: &str) -> usize {
        self.kinds
            .get(kind)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|object| object.contains(text))
            .count()
    }

    /// A page of everything of a kind with a label.
    pub(super) fn list(&self, place: &Place, wanted: &Wanted) -> String {
        let Wanted { label, limit, after } = wanted;
        let (label, of) = (label.as_ref().map(|label| format!("\"{label}\":")), place.key());
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self
            .kinds
            .get(&place.kind)
            .into_iter()
            .flat_map(|all| all.range::<str, _>((from, Bound::Unbounded)));
        let mut found = rest.filter(|(key, object)| {
            (place.namespace.is_none() || key.starts_with(&of))
                && label.as_ref().is_none_or(|label| object.contains(label))
        });
        let page: Vec<_> = found.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
        let next = page.last().map_or("", |(key, _)| key.as_str());
        // A page that is full may be the last one.
        let next = if found.next().is_some() { next } else { "" };
        let items: Vec<&str> = page.iter().map(|(_, object)| object.as_ref()).collect();
        let version = self.version.max(1);
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{next}\"}},\"items\":[{}]}}",
            items.join(",")
        )
    }

    /// What became of an object, and how watches call it; nothing when it is not there.
    pub(super) fn write(
        &mut self,
        place: &Place,
        method: &str,
        body: Value,
    ) -> Option<(&'static str, Arc<str>)> {
        let mut place = place.clone();
        if place.name.is_none() {
            place.name = body.pointer("/metadata/name").and_then(Value::as_str).map(ToOwned::to_owned);
        }
        let key = place.key();
        self.version += 1;
        let version = self.version;
        let kept = self.kinds.entry(place.kind.clone()).or_default();
        let before = kept.get(&key).map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
        if method == "DELETE" {
            return Some(("DELETED", kept.remove(&key)?));
        }
        let word = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let mut object = match (method, before) {
            ("PUT", Some(mut before)) if place.subresource.is_some() => {
                before["status"] = body.get("status").cloned().unwrap_or_default();
                before
            }
            ("POST", _) | ("PUT", Some(_)) => body,
            ("PATCH", Some(mut before)) => {
                merge(&mut before, body);
                before
            }
            // An apply makes what is not there.
            ("PATCH", None) if place.subresource.is_none() && body.get("kind").is_some() => body,
            _ => return None,
        };
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(version.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("{version:032x}"));
        }
        let text: Arc<str> = object.to_string().into();
        kept.insert(key, Arc::clone(&text));
        Some((word, text))
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_understood() {
        let check = |path: &str, expected: Option<[&str; 4]>| {
            let found = Place::of(path).map(|found| {
                let text = |text: Option<String>| text.unwrap_or_default();
                [found.kind, text(found.namespace), text(found.name), text(found.subresource)]
            });
            assert_eq!(found, expected.map(|words| words.map(ToOwned::to_owned)), "{path}");
        };
        check("/api/v1/nodes", Some(["v1/nodes", "", "", ""]));
        check("/api/v1/namespaces/a/secrets/b", Some(["v1/secrets", "a", "b", ""]));
        check("/api/v1/namespaces/a", Some(["v1/namespaces", "", "a", ""]));
        check("/apis/g/v1/namespaces/a/questdbs/b/status", Some(["g/v1/questdbs", "a", "b", "status"]));
        check("/apis/g/v1", None);
        check("/version", None);
    }

    #[test]
    fn what_is_written_is_kept_listed_and_told() {
        let mut shelves = Shelves::default();
        let place = Place::new("v1/secrets", Some("a"), "b");
        let object =
            json!({"kind": "Secret", "metadata": {"name": "b", "labels": {"of": "x"}}, "data": {"k": "v"}});
        assert_eq!(shelves.write(&place, "PATCH", object.clone()).unwrap().0, "ADDED");
        let (word, text) = shelves.write(&place, "PATCH", json!({"data": {"k": null, "l": "w"}})).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((word, &found["data"]), ("MODIFIED", &json!({"l": "w"})));
        assert_eq!(found["metadata"]["resourceVersion"], "2");
        let all = Place { namespace: None, name: None, ..place.clone() };
        for (label, expected) in [(None, 1), (Some("of".to_owned()), 1), (Some("off".to_owned()), 0)] {
            let wanted = Wanted { label: label.clone(), ..Wanted::default() };
            let list: Value = serde_json::from_str(&shelves.list(&all, &wanted)).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), expected, "{label:?}");
        }
        assert_eq!(shelves.write(&place, "DELETE", Value::Null).unwrap().0, "DELETED");
        assert!(shelves.write(&place, "PATCH", json!({"data": {}})).is_none());
        assert_eq!(shelves.bytes("v1/secrets"), 0);
    }

    #[test]
    fn lists_come_in_pages_as_long_as_there_is_more() {
        let mut shelves = Shelves::default();
        for (namespace, name) in [("a", "1"), ("b", "1"), ("b", "2"), ("b", "3"), ("b", "4"), ("c", "1")] {
            let place = Place::new("v1/secrets", Some(namespace), name);
            shelves.write(&place, "POST", json!({ "metadata": { "name": name, "namespace": namespace } }));
        }
        let page = |place: &Place, wanted: &Wanted| {
            let list: Value = serde_json::from_str(&shelves.list(place, wanted)).unwrap();
            let next = list["metadata"]["continue"].as_str().filter(|next| !next.is_empty());
            (list["items"].as_array().unwrap().len(), next.map(str::to_owned))
        };
        let pages = |namespace: Option<&str>, limit| {
            let namespace = namespace.map(str::to_owned);
            let place = Place { namespace, name: None, ..Place::new("v1/secrets", None, "") };
            let first = page(&place, &Wanted { limit, ..Wanted::default() });
            let rest = std::iter::successors(Some(first), |(_, after)| {
                let after = Some(after.clone()?);
                Some(page(&place, &Wanted { limit, after, ..Wanted::default() }))
            });
            rest.map(|(count, _)| count).collect::<Vec<_>>()
        };
        assert_eq!((pages(None, None), pages(None, Some(4))), (vec![6], vec![4, 2]));
        assert_eq!((pages(Some("b"), Some(2)), pages(Some("b"), Some(3))), (vec![2, 2], vec![3, 1]));
        assert_eq!(pages(Some("d"), Some(3)), [0]);
    }
}
