//! Files made of `ConfigMaps`, Secrets and facts about the pod. Pure: objects in, file names and bytes out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, Volume};

use super::environment::pod_field;
use super::intent::{Unsupported, unsupported};

/// Default mode of files, as in Kubernetes.
const DEFAULT_MODE: u32 = 0o644;

/// One object whose keys become files.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A ConfigMap.
    ConfigMap(Reference),
    /// A Secret.
    Secret(Reference),
    /// Facts about the pod itself.
    Downward {
        /// Path and field of each.
        items: Vec<(String, String)>,
        /// Mode of the files.
        mode: u32,
    },
}

/// Which object, and which of its keys go where.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Name of the object.
    pub name: String,
    /// Keys to paths; all keys under their own names if `None`.
    pub items: Option<Vec<KeyToPath>>,
    /// Mode of the files that name none.
    pub mode: u32,
    /// Whether the object may be missing.
    pub optional: bool,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its mode.
    pub mode: u32,
}

/// Files by relative path.
pub type Files = BTreeMap<String, File>;

/// Where objects are looked up.
pub trait Objects {
    /// A ConfigMap of the pod's namespace.
    fn config_map(&self, name: &str) -> Option<ConfigMap>;
    /// A Secret of the pod's namespace.
    fn secret(&self, name: &str) -> Option<Secret>;
}

/// Something the pod needs is not there (yet).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The object.
    #[error("{kind} {name:?} not found")]
    Object {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A key of it.
    #[error("{kind} {name:?} has no key {key:?}")]
    Key {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
}

/// The sources of a volume, or `None` if it is not made of objects.
pub fn sources(volume: &Volume) -> Result<Option<Vec<Source>>, Unsupported> {
    if let Some(source) = &volume.config_map {
        let reference = reference(&source.name, source.items.as_ref(), source.default_mode, source.optional);
        return Ok(Some(vec![Source::ConfigMap(reference)]));
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.clone().unwrap_or_default();
        let reference = reference(&name, source.items.as_ref(), source.default_mode, source.optional);
        return Ok(Some(vec![Source::Secret(reference)]));
    }
    if let Some(source) = &volume.downward_api {
        return Ok(Some(vec![downward(source.items.as_deref().unwrap_or_default(), source.default_mode)?]));
    }
    let Some(projected) = &volume.projected else { return Ok(None) };
    let mode = projected.default_mode;
    let mut sources = Vec::new();
    // The volume that the admission plugin ServiceAccount adds: no process here talks to the API server, so it stays
    // empty rather than holding a credential.
    let token = projected.sources.iter().flatten().any(|source| source.service_account_token.is_some());
    for source in projected.sources.iter().flatten().filter(|_| !token) {
        if let Some(map) = &source.config_map {
            sources.push(Source::ConfigMap(reference(&map.name, map.items.as_ref(), mode, map.optional)));
        } else if let Some(secret) = &source.secret {
            let reference = reference(&secret.name, secret.items.as_ref(), mode, secret.optional);
            sources.push(Source::Secret(reference));
        } else if let Some(facts) = &source.downward_api {
            sources.push(downward(facts.items.as_deref().unwrap_or_default(), mode)?);
        } else {
            return unsupported(format!("a source of the projected volume {}", volume.name));
        }
    }
    Ok(Some(sources))
}

/// All files of a volume; a later source wins over an earlier one.
pub fn files(sources: &[Source], pod: &Pod, objects: &dyn Objects) -> Result<Files, Missing> {
    let mut files = Files::new();
    for source in sources {
        match source {
            Source::ConfigMap(reference) => {
                let found = objects.config_map(&reference.name).map(|map| config_map_bytes(&map));
                add("ConfigMap", reference, found, &mut files)?;
            }
            Source::Secret(reference) => {
                let found = objects.secret(&reference.name).map(|secret| secret_bytes(&secret));
                add("Secret", reference, found, &mut files)?;
            }
            Source::Downward { items, mode } => {
                for (path, field) in items {
                    let bytes = pod_field(pod, field, None).unwrap_or_default().into_bytes();
                    files.insert(path.clone(), File { bytes, mode: *mode });
                }
            }
        }
    }
    Ok(files)
}

/// Text and binary keys of a ConfigMap.
pub fn config_map_bytes(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
    text.chain(binary).collect()
}

/// Keys of a Secret, decoded.
pub fn secret_bytes(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

fn add(
    kind: &'static str,
    reference: &Reference,
    found: Option<BTreeMap<String, Vec<u8>>>,
    files: &mut Files,
) -> Result<(), Missing> {
    let Reference { name, items, mode, optional } = reference;
    let Some(mut data) = found else {
        if *optional {
            return Ok(());
        }
        return Err(Missing::Object { kind, name: name.clone() });
    };
    let Some(items) = items else {
        files.extend(data.into_iter().map(|(key, bytes)| (key, File { bytes, mode: *mode })));
        return Ok(());
    };
    for item in items {
        let mode = item.mode.map_or(*mode, mode_bits);
        match data.remove(&item.key) {
            Some(bytes) => {
                files.insert(item.path.clone(), File { bytes, mode });
            }
            None if *optional => {}
            None => return Err(Missing::Key { kind, name: name.clone(), key: item.key.clone() }),
        }
    }
    Ok(())
}

fn reference(
    name: &str,
    items: Option<&Vec<KeyToPath>>,
    mode: Option<i32>,
    optional: Option<bool>,
) -> Reference {
    Reference {
        name: name.to_owned(),
        items: items.filter(|items| !items.is_empty()).cloned(),
        mode: mode.map_or(DEFAULT_MODE, mode_bits),
        optional: optional == Some(true),
    }
}

fn downward(items: &[DownwardAPIVolumeFile], mode: Option<i32>) -> Result<Source, Unsupported> {
    let mut known = Vec::new();
    for item in items {
        match &item.field_ref {
            Some(field) => known.push((item.path.clone(), field.field_path.clone())),
            None => return unsupported("resourceFieldRef in a volume"),
        }
    }
    Ok(Source::Downward { items: known, mode: mode.map_or(DEFAULT_MODE, mode_bits) })
}

fn mode_bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(DEFAULT_MODE) & 0o777
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::ByteString;

    use super::*;
    use crate::fixture;

    /// Objects in memory.
    #[derive(Default)]
    pub(crate) struct Fixed(pub(crate) Vec<ConfigMap>, pub(crate) Vec<Secret>);

    impl Objects for Fixed {
        fn config_map(&self, name: &str) -> Option<ConfigMap> {
            self.0.iter().find(|map| map.metadata.name.as_deref() == Some(name)).cloned()
        }
        fn secret(&self, name: &str) -> Option<Secret> {
            self.1.iter().find(|secret| secret.metadata.name.as_deref() == Some(name)).cloned()
        }
    }

    pub(crate) fn secret(name: &str, data: &[(&str, &str)]) -> Secret {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        let mut secret = Secret { data: Some(data.collect()), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        secret
    }

    pub(crate) fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut map = ConfigMap { data: Some(data.collect()), ..ConfigMap::default() };
        map.metadata.name = Some(name.to_owned());
        map
    }

    fn of(volume: serde_json::Value, objects: &Fixed) -> Result<Vec<(String, String, u32)>, Missing> {
        let volume: Volume = serde_json::from_value(volume).unwrap();
        let sources = sources(&volume).unwrap().unwrap();
        let files = files(&sources, &fixture::pod(), objects)?;
        let plain = |(path, file): (String, File)| (path, String::from_utf8(file.bytes).unwrap(), file.mode);
        Ok(files.into_iter().map(plain).collect())
    }

    #[test]
    fn keys_become_files() {
        let objects = Fixed(vec![config_map("c", &[("server.conf", "a=b"), ("x", "y")])], Vec::new());
        let all = of(serde_json::json!({"name": "v", "configMap": {"name": "c"}}), &objects).unwrap();
        assert_eq!(all, [("server.conf".into(), "a=b".into(), 0o644), ("x".into(), "y".into(), 0o644)]);
        let some = serde_json::json!({"name": "v", "configMap": {"name": "c",
            "items": [{"key": "x", "path": "deep/z", "mode": 256}]}});
        assert_eq!(of(some, &objects).unwrap(), [("deep/z".into(), "y".into(), 0o400)]);
    }

    #[test]
    fn what_is_missing_is_named_unless_optional() {
        let objects = Fixed(Vec::new(), vec![secret("s", &[("a", "b")])]);
        let gone = serde_json::json!({"name": "v", "secret": {"secretName": "t"}});
        assert_eq!(of(gone, &objects), Err(Missing::Object { kind: "Secret", name: "t".into() }));
        let optional = serde_json::json!({"name": "v", "secret": {"secretName": "t", "optional": true}});
        assert_eq!(of(optional, &objects), Ok(Vec::new()));
        let key = serde_json::json!({"name": "v", "secret": {"secretName": "s", "items": [{"key": "q", "path": "q"}]}});
        assert_eq!(
            of(key, &objects),
            Err(Missing::Key { kind: "Secret", name: "s".into(), key: "q".into() })
        );
    }

    #[test]
    fn projected_sources_lie_in_one_directory() {
        let objects = Fixed(vec![config_map("c", &[("a", "1")])], vec![secret("s", &[("b", "2")])]);
        let volume = serde_json::json!({"name": "v", "projected": {"defaultMode": 288, "sources": [
            {"configMap": {"name": "c"}}, {"secret": {"name": "s"}},
            {"downwardAPI": {"items": [{"path": "me", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}});
        let files = of(volume, &objects).unwrap();
        let expected = [("a", "1"), ("b", "2"), ("me", "db-0")];
        assert_eq!(files, expected.map(|(path, text)| (path.to_owned(), text.to_owned(), 0o440)));
    }
}
