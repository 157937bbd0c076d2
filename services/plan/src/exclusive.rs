//! Fields that exclude each other: where one of several ways is chosen (the source of a variable or of a volume, what a probe
//! asks), what somebody writes beside ours leaves no place for it. The API server refuses both together, but one older than 1.34
//! takes them in the template of a StatefulSet, and then no pod can be made of that.
//!
//! *Invariant:* nothing that the API server fills in by itself is another way: who finds one finds somebody's doing.

use serde_json::Value;

/// The fields of a part, as observed, that exclude what we write there. `field` is where the part is, or the list that has it.
pub(crate) fn excluding<'a>(field: &str, observed: &'a Value, intended: &Value) -> Vec<&'a str> {
    let (Value::Object(seen), Value::Object(wanted)) = (observed, intended) else { return Vec::new() };
    // Where another way is chosen by a type, what stands beside that is no field too many.
    let is_ours = seen.get("type") == wanted.get("type");
    if !is_ours || !wanted.keys().any(|name| is_way(field, name)) {
        return Vec::new();
    }
    let others = seen.iter().filter(|(name, _)| is_way(field, name) && !wanted.contains_key(*name));
    others.filter(|(_, value)| is_there(value)).map(|(name, _)| name.as_str()).collect()
}

/// Whether a field of a part is a way of which it has one.
fn is_way(field: &str, name: &str) -> bool {
    match field {
        "env" => matches!(name, "value" | "valueFrom"),
        "valueFrom" => true,
        "volumes" => name != "name",
        "startupProbe" | "readinessProbe" | "livenessProbe" => {
            matches!(name, "httpGet" | "tcpSocket" | "exec" | "grpc")
        }
        // Our types, `OnDelete` and `RuntimeDefault`, have nothing beside them.
        "updateStrategy" => matches!(name, "type" | "rollingUpdate"),
        "seccompProfile" => matches!(name, "type" | "localhostProfile"),
        _ => false,
    }
}

/// Whether a field counts for the API server. An empty map does: it is a volume that begins empty.
fn is_there(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_way_excludes_ours_and_nothing_else_does() {
        let (from, port) = (json!({ "fieldRef": { "fieldPath": "a" } }), json!({ "port": 1 }));
        let secret = json!({ "secretKeyRef": { "name": "a", "key": "b" } });
        let table = [
            ("env", json!({ "name": "A", "value": "1" }), "valueFrom", from.clone()),
            ("env", json!({ "name": "A", "value": "" }), "valueFrom", from.clone()),
            ("env", json!({ "name": "A", "valueFrom": secret }), "value", json!("1")),
            ("valueFrom", secret, "configMapKeyRef", json!({ "name": "a", "key": "b" })),
            ("valueFrom", from, "resourceFieldRef", json!({ "resource": "limits.cpu" })),
            ("volumes", json!({ "name": "a", "configMap": { "name": "b" } }), "emptyDir", json!({})),
            ("volumes", json!({ "name": "a", "emptyDir": { "sizeLimit": "1Mi" } }), "hostPath", json!({})),
            ("startupProbe", json!({ "httpGet": port, "periodSeconds": 1 }), "tcpSocket", port.clone()),
            ("readinessProbe", json!({ "httpGet": port }), "grpc", port.clone()),
            ("livenessProbe", json!({ "httpGet": port }), "exec", json!({ "command": ["a"] })),
            ("updateStrategy", json!({ "type": "OnDelete" }), "rollingUpdate", json!({ "partition": 0 })),
            ("seccompProfile", json!({ "type": "RuntimeDefault" }), "localhostProfile", json!("a")),
        ];
        for (field, ours, other, theirs) in table {
            let with = |value: Value| {
                let mut observed = ours.clone();
                observed[other] = value;
                observed
            };
            let both = with(theirs);
            assert_eq!(excluding(field, &both, &ours), [other], "{field} {ours}");
            // What is absent or empty, and what the API server fills in.
            assert_eq!(excluding(field, &with(Value::Null), &ours), [""; 0], "{field} {ours}");
            assert_eq!(excluding(field, &with(json!("")), &ours), [""; 0], "{field} {ours}");
            let mut filled = ours.clone();
            if field != "valueFrom" && field != "volumes" {
                filled["failureThreshold"] = json!(3);
            }
            assert_eq!(excluding(field, &filled, &ours), [""; 0], "{field} {ours}");
            // Where nothing is chosen nothing is excluded, nor by what we write ourselves.
            assert_eq!(excluding(field, &both, &both), [""; 0], "{field} {ours}");
            assert_eq!(excluding(field, &both, &json!({})), [""; 0], "{field} {ours}");
            assert_eq!(excluding("labels", &both, &ours), [""; 0], "{field} {ours}");
        }
        let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
        assert_eq!(excluding("updateStrategy", &rolling, &json!({ "type": "OnDelete" })), [""; 0]);
    }
}
