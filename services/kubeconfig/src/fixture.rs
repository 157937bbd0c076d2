//! A kubeconfig that names a program for tokens.

use kube::config::Kubeconfig;
use serde_json::{Value, json};

/// A line of a shell as the program; `more` stands beside it under exec.
pub(crate) fn kubeconfig(line: &str, more: &Value) -> Kubeconfig {
    let mut exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", line],
        "env": [{"name": "TOKEN", "value": "swordfish"}], "interactiveMode": "Never",
    });
    exec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let cluster = json!({"server": "https://127.0.0.1:1", "certificate-authority-data": "b25l"});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"exec": exec}}],
    });
    Kubeconfig::from_yaml(&config.to_string()).unwrap()
}
