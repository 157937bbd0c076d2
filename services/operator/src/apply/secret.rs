//! Credentials: drawn once and kept, or taken over from Secrets that others made. *Invariant:* what is there is overwritten
//! only over the version that was read, and no password is ever logged.

use k8s_openapi::ByteString;
use kube::core::DynamicObject;
use plan::secrets::{Hidden, NewCredentials};
use plan::{Kind, Manifest};
use resources::names;
use serde_json::{Map, Value, json};

use super::Pass;
use super::kubernetes::{check_ours, dynamic};
use crate::error::Error;
use crate::write;

/// User names that QuestDB's own tools expect.
const USER: &str = "admin";
/// Letters of a password: no two that look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Letters in a password: 160 bits.
const LENGTH: usize = 32;

/// Creates the Secret, or fills in the keys that an existing one lacks.
pub(super) async fn create(pass: &Pass<'_>, manifest: &Manifest) -> Result<(), Error> {
    let context = pass.context;
    let api = dynamic(context, manifest.kind, manifest.namespace.as_deref());
    if manifest.uid.is_none() {
        let mut body = manifest.body.clone();
        body["metadata"]["annotations"][names::secret::REVISION] = json!(revision()?);
        body["data"] = Value::Object(data(&Map::new())?);
        let object: DynamicObject = serde_json::from_value(body)
            .map_err(|error| Error::kubernetes("build the Secret")(kube::Error::SerdeError(error)))?;
        match context.call("create the Secret", api.create(&write::parameters(), &object)).await {
            // One of its name is there: perhaps ours, without the labels by which it is found.
            Err(error) if error.is_conflict() => {}
            created => return created.map(drop),
        }
    }
    let Some(found) = check_ours(pass, &api, manifest).await? else {
        return Err(Error::Stale { what: format!("{} is not there any more", manifest.name) });
    };
    let there = found.data.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let missing = data(&there)?;
    // Labels and mark too: it may be here because somebody took them off.
    let mut metadata = manifest.body["metadata"].clone();
    metadata["resourceVersion"] = json!(found.metadata.resource_version);
    if !missing.is_empty() {
        // QuestDB knows another value, if any, and what was taken over may be what was lost.
        metadata["annotations"][names::secret::REVISION] = json!(revision()?);
        metadata["annotations"][names::secret::TAKEN_FROM] = Value::Null;
    }
    let body = json!({ "metadata": metadata, "data": missing });
    write::merge(context, &api, &manifest.name, "complete the Secret", &body).await.map(drop)
}

/// Takes the Secret, as it was seen, from the resource, or from who would take it away with that.
pub(super) async fn keep(pass: &Pass<'_>, manifest: &Manifest) -> Result<(), Error> {
    let api = dynamic(pass.context, manifest.kind, manifest.namespace.as_deref());
    let mut metadata = manifest.body["metadata"].clone();
    metadata["uid"] = json!(manifest.uid);
    let body = json!({ "metadata": metadata });
    write::merge(pass.context, &api, &manifest.name, "keep the Secret", &body).await.map(drop)
}

/// Writes other values, or where the same come from by now, over the Secret as it was read.
pub(super) async fn set(pass: &Pass<'_>, new: &NewCredentials) -> Result<(), Error> {
    let NewCredentials { namespace, over, values, taken } = new;
    let api = dynamic(pass.context, Kind::Secret, Some(namespace));
    let mut annotations = json!({ names::secret::TAKEN_FROM: taken });
    if !values.is_empty() {
        annotations[names::secret::REVISION] = json!(revision()?);
    }
    let text = |value: &Hidden| json!(ByteString(value.expose().to_vec()));
    let data: Map<String, Value> = values
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_ref().map_or(Value::Null, text)))
        .collect();
    let metadata = json!({ "uid": over.uid, "resourceVersion": over.version, "annotations": annotations });
    let body = json!({ "metadata": metadata, "data": data });
    write::merge(pass.context, &api, &over.name, "write other credentials", &body).await.map(drop)
}

/// Another text for other values. It says nothing of them.
fn revision() -> Result<String, Error> {
    password().map(|text| text.chars().take(12).collect())
}

/// The keys that are not there, with fresh values.
fn data(there: &Map<String, Value>) -> Result<Map<String, Value>, Error> {
    let mut data = Map::new();
    for (key, fixed) in [
        (names::secret::PG_USER, true),
        (names::secret::PG_PASSWORD, false),
        (names::secret::HTTP_USER, true),
        (names::secret::HTTP_PASSWORD, false),
    ] {
        if !there.contains_key(key) {
            let value = if fixed { USER.to_owned() } else { password()? };
            data.insert(key.to_owned(), json!(ByteString(value.into_bytes())));
        }
    }
    Ok(data)
}

fn password() -> Result<String, Error> {
    let mut bytes = [0_u8; LENGTH];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    // 256 is a multiple of 32: every letter is as likely.
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_and_never_the_same() {
        let (one, other) = (password().unwrap(), password().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), LENGTH);
        assert!(one.bytes().all(|byte| LETTERS.contains(&byte)));
    }

    #[test]
    fn two_users_are_drawn_and_nothing_else() {
        let drawn = data(&Map::new()).unwrap();
        let mut keys: Vec<_> = drawn.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["http-password", "http-user", "pg-password", "pg-user"]);
        let text = |key: &str| {
            let value: ByteString = serde_json::from_value(drawn[key].clone()).unwrap();
            String::from_utf8(value.0).unwrap()
        };
        assert_eq!((text("http-user"), text("pg-user")), (USER.to_owned(), USER.to_owned()));
        assert_ne!(text("http-password"), text("pg-password"));
    }

    #[test]
    fn what_is_there_is_kept() {
        let there = Map::from_iter([(names::secret::PG_PASSWORD.to_owned(), json!("eA=="))]);
        let missing = data(&there).unwrap();
        assert!(!missing.contains_key(names::secret::PG_PASSWORD));
        assert_eq!(missing.len(), 3);
        assert!(data(&missing.into_iter().chain(there).collect()).unwrap().is_empty());
    }
}
