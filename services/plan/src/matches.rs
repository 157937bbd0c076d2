//! Whether an object already is what we intend: our fields, as observed. A hash of the intention alone would miss what
//! somebody edited by hand.

use serde_json::Value;

/// Whether everything `intended` says is so in `observed`. Maps may hold more (defaults, other owners' fields), lists may
/// not, and an empty map, list, text or null is the same as its absence, because the API server drops those.
pub fn covers(observed: &Value, intended: &Value) -> bool {
    match (observed, intended) {
        (Value::Object(observed), Value::Object(intended)) => intended.iter().all(|(key, value)| {
            observed.get(key).map_or_else(|| is_empty(value), |found| covers(found, value))
        }),
        (Value::Array(observed), Value::Array(intended)) => {
            observed.len() == intended.len()
                && observed.iter().zip(intended).all(|(observed, intended)| covers(observed, intended))
        }
        (Value::Number(observed), Value::Number(intended)) => observed.as_f64() == intended.as_f64(),
        (observed, intended) => observed == intended,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_fields_decide() {
        let check = |observed: Value, intended: Value, expected: bool| {
            assert_eq!(covers(&observed, &intended), expected, "{observed} {intended}");
        };
        check(json!({"a": 1, "b": 2}), json!({"a": 1}), true);
        check(json!({"a": 1}), json!({"a": 2}), false);
        check(json!({}), json!({"a": 1}), false);
        check(json!({}), json!({"a": {}, "b": [], "c": null, "d": ""}), true);
        check(json!({"l": [{"a": 1, "d": 0}]}), json!({"l": [{"a": 1}]}), true);
        check(json!({"l": [1, 2]}), json!({"l": [1]}), false);
        check(json!({"l": [2, 1]}), json!({"l": [1, 2]}), false);
        check(json!({"a": 1.0}), json!({"a": 1}), true);
        check(json!("x"), json!("x"), true);
    }
}
