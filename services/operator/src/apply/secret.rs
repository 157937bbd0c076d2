//! Credentials: drawn once and kept, or taken over from Secrets that others made. *Invariant:* what is there is overwritten
//! only over the version that was read, and no password is ever logged.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::core::DynamicObject;
use plan::secrets::{Cause, Hidden, NewCredentials, Revision};
use plan::{Kind, Manifest};
use resources::names;
use serde_json::{Map, Value, json};

use super::Pass;
use super::contention::{Repair, returns};
use super::kubernetes::{check_ours, dynamic};
use crate::error::Error;
use crate::write;

/// User names that QuestDB's own tools expect.
const USER: &str = "admin";
/// Letters of a password: no two that look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Letters in a password: 160 bits.
const LENGTH: usize = 32;

/// Creates the Secret, or fills in the keys that an existing one lacks. Whether it was there as we know it all along, and was not seen
/// yet.
pub(super) async fn create(pass: &Pass<'_>, manifest: &Manifest) -> Result<bool, Error> {
    let context = pass.context;
    let api = dynamic(context, manifest.kind, manifest.namespace.as_deref());
    if manifest.uid.is_none() {
        let mut body = manifest.body.clone();
        let revision = revision()?;
        body["data"] = Value::Object(with_copy(&revision, data(&Map::new())?));
        body["metadata"]["annotations"][names::secret::REVISION] = json!(revision);
        let object: DynamicObject = serde_json::from_value(body)
            .map_err(|error| Error::kubernetes("build the Secret")(kube::Error::SerdeError(error)))?;
        match context.call("create the Secret", api.create(&write::parameters(), &object)).await {
            // One of its name is there: perhaps ours, without the labels by which it is found.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
            Ok(_) => {
                returns::came_back(pass, manifest);
                return Ok(false);
            }
        }
    }
    let Some(found) = check_ours(pass, &api, manifest).await? else {
        return Err(Error::Stale { what: format!("{} is not there any more", manifest.name) });
    };
    let repair =
        if manifest.uid.is_some() { Some(begin_marks(pass, &api, manifest, &found).await?) } else { None };
    let mut there = found.data.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut missing = data(&there)?;
    if found.clone().try_parse::<Secret>().is_ok_and(|found| plan::secrets::is_changed(&found)) {
        // What was taken out is known: the next look puts it right.
        missing.clear();
    }
    // Labels and mark too: it may be here because somebody took them off.
    let mut metadata = manifest.body["metadata"].clone();
    metadata["resourceVersion"] = json!(found.metadata.resource_version);
    if !missing.is_empty() {
        // QuestDB knows another value, if any, and what was taken over may be what was lost.
        let revision = revision()?;
        there.extend(missing.clone());
        let copied = with_copy(&revision, there).remove(names::secret::WRITTEN);
        missing.extend(copied.map(|copy| (names::secret::WRITTEN.to_owned(), copy)));
        metadata["annotations"][names::secret::REVISION] = json!(revision);
        metadata["annotations"][names::secret::TAKEN_FROM] = Value::Null;
    }
    let body = json!({ "metadata": metadata, "data": missing });
    write::merge(context, &api, &manifest.name, "complete the Secret", &body).await?;
    let is_hidden = !pass.validated.subject.owns(found.metadata.labels.as_ref());
    if let Some(repair) = repair {
        repair.done(pass);
    } else if is_hidden {
        returns::came_back(pass, manifest);
    }
    Ok(manifest.uid.is_none() && !is_hidden)
}

/// What the Secret is known by is not fought over either. It is of one intention with the values, so that the two count together.
async fn begin_marks(
    pass: &Pass<'_>,
    api: &Api<DynamicObject>,
    manifest: &Manifest,
    found: &DynamicObject,
) -> Result<Repair, Error> {
    let marks = Manifest { body: json!({ "metadata": manifest.body["metadata"] }), ..manifest.clone() };
    let annotations = found.metadata.annotations.as_ref();
    let revision = annotations.and_then(|annotations| annotations.get(names::secret::REVISION));
    Repair::of(pass, api, &marks, revision.map_or("", String::as_str)).await
}

/// Takes the Secret, as it was seen, from the resource, or from who would take it away with that.
pub(super) async fn keep(pass: &Pass<'_>, manifest: &Manifest) -> Result<(), Error> {
    let api = dynamic(pass.context, manifest.kind, manifest.namespace.as_deref());
    let mut metadata = manifest.body["metadata"].clone();
    metadata["uid"] = json!(manifest.uid);
    let body = json!({ "metadata": metadata });
    write::merge(pass.context, &api, &manifest.name, "keep the Secret", &body).await.map(drop)
}

/// Writes other values, the former ones, or where the same come from by now, over the Secret as it was read.
pub(super) async fn set(pass: &Pass<'_>, new: &NewCredentials) -> Result<(), Error> {
    let api = dynamic(pass.context, Kind::Secret, Some(&new.namespace));
    let revision = match &new.revision {
        Revision::Another => Some(revision()?),
        Revision::Same(revision) => revision.clone(),
    };
    let text = |value: &Hidden| json!(ByteString(value.expose().to_vec()));
    let mut data: Map<String, Value> = new
        .values
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_ref().map_or(Value::Null, text)))
        .collect();
    data.insert(names::secret::WRITTEN.to_owned(), json!(new.copy(revision.as_deref())));
    let mut body =
        json!({ "metadata": { "annotations": { names::secret::REVISION: revision } }, "data": data });
    if let Some(taken) = &new.taken {
        body["metadata"]["annotations"][names::secret::TAKEN_FROM] = json!(taken);
    }
    let repair = match new.cause {
        Cause::Given => None,
        Cause::Unheld | Cause::Changed => Some(begin(pass, &api, new, &body).await?),
    };
    body["metadata"]["uid"] = json!(new.over.uid);
    body["metadata"]["resourceVersion"] = json!(new.over.version);
    write::merge(pass.context, &api, &new.over.name, "write the credentials", &body).await?;
    if let Some(repair) = repair {
        repair.done(pass);
    }
    Ok(())
}

/// What is written although nobody gave anything else is not fought over.
async fn begin(
    pass: &Pass<'_>,
    api: &Api<DynamicObject>,
    new: &NewCredentials,
    body: &Value,
) -> Result<Repair, Error> {
    let manifest = Manifest {
        kind: Kind::Secret,
        namespace: Some(new.namespace.clone()),
        name: new.over.name.clone(),
        body: body.clone(),
        uid: Some(new.over.uid.clone()),
    };
    let revision = body["metadata"]["annotations"][names::secret::REVISION].as_str().unwrap_or_default();
    Repair::of(pass, api, &manifest, revision).await
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

/// The same with the copy by which they are put right.
fn with_copy(revision: &str, mut data: Map<String, Value>) -> Map<String, Value> {
    let bytes = |value: &Value| serde_json::from_value::<ByteString>(value.clone()).ok();
    let values = data.iter().filter_map(|(key, value)| Some((key.clone(), bytes(value)?)));
    let copy = plan::secrets::copy(Some(revision), values);
    data.insert(names::secret::WRITTEN.to_owned(), json!(copy));
    data
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
    fn what_is_drawn_is_written_with_its_copy() {
        let data = with_copy("r", data(&Map::new()).unwrap());
        let secret = |revision: &str| -> Secret {
            let annotations = json!({ names::secret::REVISION: revision });
            serde_json::from_value(json!({ "metadata": { "annotations": annotations }, "data": data }))
                .unwrap()
        };
        let mut found = secret("r");
        plan::secrets::judge(&mut found);
        assert!(!found.metadata.annotations.unwrap().contains_key(plan::secrets::IN_DOUBT));
        assert!(plan::secrets::is_changed(&secret("s")), "it belongs to one revision");
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
