//! The variables of a container: `env`, `envFrom`, `valueFrom` and `$(OTHER)` references. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource, Pod};

use super::content::{Missing, Objects, config_map_bytes, secret_bytes};

/// Why variables cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An object or key is not there.
    #[error("cannot set variable {name}")]
    Find {
        /// The variable, or the prefix of several.
        name: String,
        /// What is not there.
        #[source]
        source: Missing,
    },
    /// A source the agent does not know.
    #[error("the source of variable {name} is not supported")]
    Unsupported {
        /// The variable.
        name: String,
    },
    /// A secret that is no text.
    #[error("the value of variable {name} is not text")]
    NotText {
        /// The variable.
        name: String,
    },
}

/// Address of pod and node, known before the pod's status is.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// `status.podIP` and `status.hostIP`.
    pub address: String,
}

/// All variables, later definitions winning.
pub fn resolve(
    env: &[EnvVar],
    env_from: &[EnvFromSource],
    pod: &Pod,
    addresses: &Addresses,
    objects: &dyn Objects,
) -> Result<BTreeMap<String, String>, Error> {
    let mut resolved = BTreeMap::new();
    for source in env_from {
        add_all(source, objects, &mut resolved)?;
    }
    for variable in env {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &resolved)),
            (None, Some(from)) => value_from(&variable.name, from, pod, addresses, objects)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            resolved.insert(variable.name.clone(), value);
        }
    }
    Ok(resolved)
}

/// A field of the pod as the downward API names it.
pub fn pod_field(pod: &Pod, path: &str, addresses: Option<&Addresses>) -> Option<String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let mapped = |map: &Option<BTreeMap<String, String>>, rest: &str| {
        let key = rest.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default())
    };
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" | "status.hostIP" | "status.podIPs" | "status.hostIPs" => {
            addresses.map(|addresses| addresses.address.clone())
        }
        _ => match path.strip_prefix("metadata.labels") {
            Some(rest) => mapped(&metadata.labels, rest),
            None => mapped(&metadata.annotations, path.strip_prefix("metadata.annotations")?),
        },
    }
}

/// `$(NAME)` becomes the value of a variable defined before, `$$` becomes `$`, anything else stays.
pub fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('$') {
            result.push('$');
            rest = after;
            continue;
        }
        let name = tail.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        if let Some((name, after)) = name
            && let Some(value) = known.get(name)
        {
            result.push_str(value);
            rest = after;
        } else {
            result.push('$');
            rest = tail;
        }
    }
    result.push_str(rest);
    result
}

fn value_from(
    name: &str,
    from: &EnvVarSource,
    pod: &Pod,
    addresses: &Addresses,
    objects: &dyn Objects,
) -> Result<Option<String>, Error> {
    if let Some(field) = &from.field_ref {
        return match pod_field(pod, &field.field_path, Some(addresses)) {
            Some(value) => Ok(Some(value)),
            None => Err(Error::Unsupported { name: name.to_owned() }),
        };
    }
    let (kind, object, key, optional, data) = if let Some(key) = &from.secret_key_ref {
        let data = objects.secret(&key.name).map(|secret| secret_bytes(&secret));
        ("Secret", &key.name, &key.key, key.optional, data)
    } else if let Some(key) = &from.config_map_key_ref {
        let data = objects.config_map(&key.name).map(|map| config_map_bytes(&map));
        ("ConfigMap", &key.name, &key.key, key.optional, data)
    } else {
        return Err(Error::Unsupported { name: name.to_owned() });
    };
    let missing = match data {
        None => Missing::Object { kind, name: object.clone() },
        Some(mut data) => match data.remove(key) {
            Some(bytes) => return text(name, bytes).map(Some),
            None => Missing::Key { kind, name: object.clone(), key: key.clone() },
        },
    };
    if optional == Some(true) {
        return Ok(None);
    }
    Err(Error::Find { name: name.to_owned(), source: missing })
}

fn add_all(
    source: &EnvFromSource,
    objects: &dyn Objects,
    resolved: &mut BTreeMap<String, String>,
) -> Result<(), Error> {
    let prefix = source.prefix.clone().unwrap_or_default();
    let (kind, object, optional, data) = if let Some(secret) = &source.secret_ref {
        let data = objects.secret(&secret.name).map(|secret| secret_bytes(&secret));
        ("Secret", &secret.name, secret.optional, data)
    } else if let Some(map) = &source.config_map_ref {
        let data = objects.config_map(&map.name).map(|map| config_map_bytes(&map));
        ("ConfigMap", &map.name, map.optional, data)
    } else {
        return Err(Error::Unsupported { name: prefix });
    };
    match data {
        Some(data) => {
            for (key, bytes) in data {
                let name = format!("{prefix}{key}");
                let value = text(&name, bytes)?;
                resolved.insert(name, value);
            }
            Ok(())
        }
        None if optional == Some(true) => Ok(()),
        None => Err(Error::Find { name: prefix, source: Missing::Object { kind, name: object.clone() } }),
    }
}

fn text(name: &str, bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|_| Error::NotText { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::content::tests::{Fixed, config_map, secret};
    use super::*;
    use crate::fixture;

    fn env(json: serde_json::Value) -> Result<BTreeMap<String, String>, Error> {
        let env: Vec<EnvVar> = serde_json::from_value(json).unwrap();
        let objects =
            Fixed(vec![config_map("c", &[("k", "v")])], vec![secret("login", &[("user", "admin")])]);
        let addresses = Addresses { address: "10.250.0.9".into() };
        resolve(&env, &[], &fixture::pod(), &addresses, &objects)
    }

    #[test]
    fn every_source_is_resolved() {
        let all = env(serde_json::json!([
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)-$(C)-$$(A)"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "USER", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}},
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "NO", "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": true}}}
        ]))
        .unwrap();
        let expected = [
            ("A", "1"),
            ("APP", "questdb"),
            ("B", "1-$(C)-$(A)"),
            ("IP", "10.250.0.9"),
            ("K", "v"),
            ("ME", "db-0"),
            ("USER", "admin"),
        ];
        assert_eq!(all, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn missing_and_unknown_sources_are_errors() {
        let missing = env(serde_json::json!([
            {"name": "X", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]));
        assert!(matches!(missing, Err(Error::Find { source: Missing::Key { .. }, .. })));
        let unknown = env(serde_json::json!([
            {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]));
        assert_eq!(unknown, Err(Error::Unsupported { name: "X".into() }));
    }

    #[test]
    fn whole_objects_come_with_a_prefix() {
        let from: Vec<EnvFromSource> =
            serde_json::from_value(serde_json::json!([{"prefix": "P_", "secretRef": {"name": "login"}}]))
                .unwrap();
        let objects = Fixed(Vec::new(), vec![secret("login", &[("user", "admin")])]);
        let addresses = Addresses { address: String::new() };
        let all = resolve(&[], &from, &fixture::pod(), &addresses, &objects).unwrap();
        assert_eq!(all, BTreeMap::from([("P_user".to_owned(), "admin".to_owned())]));
    }
}
