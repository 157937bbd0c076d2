//! The control side of the AWS endpoint: faults and the journal of calls.

#![cfg(test)]

use serde_json::Value;

use crate::support::stack;

/// The number of the latest call.
pub(crate) async fn serial() -> u64 {
    // Without the calls: there are thousands.
    let answer = control("GET", "/journal?action=None", &Value::Null).await;
    answer["latest"].as_u64().unwrap()
}

/// Switches a fault on; its id.
pub(crate) async fn fault(fault: &Value) -> String {
    let answer = control("POST", "/faults", fault).await;
    answer["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Switches a fault off. One that never fired proves nothing.
pub(crate) async fn end_fault(id: &str) {
    let ended = control("DELETE", &format!("/faults/{id}"), &Value::Null).await;
    assert!(ended["fired"].as_u64().is_some_and(|fired| fired > 0), "it never fired: {ended}");
}

/// A request to the endpoint's control API.
pub(crate) async fn control(method: &str, path: &str, body: &Value) -> Value {
    let control = stack().aws_control_url.as_deref().expect("an endpoint with the strict layer");
    let request = testkit::http().request(method.parse().unwrap(), format!("{control}{path}"));
    let request = if body.is_null() { request } else { request.json(body) };
    request.send().await.unwrap().json().await.unwrap()
}
