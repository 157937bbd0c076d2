//! The files of a client certificate. The library reads them once, when a client is made: whoever renews them is not heard of
//! otherwise. They are read elsewhere.

use std::path::PathBuf;

use kube::config::Kubeconfig;

use crate::program::current;

/// The files that a client of the current context is made of, where a client certificate or its key is among them; none where it has
/// none, or where they stand in the kubeconfig itself.
pub fn files(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let Some((cluster, _, auth)) = current(kubeconfig) else { return Vec::new() };
    let certificate = auth.client_certificate.as_ref().filter(|_| auth.client_certificate_data.is_none());
    let key = auth.client_key.as_ref().filter(|_| auth.client_key_data.is_none());
    if certificate.is_none() && key.is_none() {
        return Vec::new();
    }
    let authority = cluster.certificate_authority.as_ref();
    let authority = authority.filter(|_| cluster.certificate_authority_data.is_none());
    [certificate, key, authority].into_iter().flatten().map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(cluster: &Value, user: &Value) -> Vec<String> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": cluster}],
            "users": [{"name": "b", "user": {"client-certificate": "other"}}, {"name": "a", "user": user}],
        });
        let kubeconfig = Kubeconfig::from_yaml(&config.to_string()).unwrap();
        files(&kubeconfig).into_iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_files_of_a_client_certificate_are_those_of_the_current_context_that_are_read() {
        let server = json!({"server": "https://127.0.0.1:1"});
        let with_file = json!({"server": "https://127.0.0.1:1", "certificate-authority": "ca"});
        let check = |cluster: &Value, user: &Value, expected: &[&str]| {
            assert_eq!(named(cluster, user), expected, "{user}");
        };
        let both = json!({"client-certificate": "crt", "client-key": "key"});
        check(&server, &both, &["crt", "key"]);
        check(&with_file, &both, &["crt", "key", "ca"]);
        check(&with_file, &json!({"token": "a"}), &[]);
        check(&with_file, &json!({"client-certificate-data": "b25l", "client-key-data": "b25l"}), &[]);
        check(&server, &json!({"client-certificate": "crt", "client-key-data": "b25l"}), &["crt"]);
    }
}
