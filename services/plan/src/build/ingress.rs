//! Traefik's routes: one for HTTP by host, and one for each protocol over TCP by the host that TLS names.

use resources::names::{self, port};
use resources::{IngressSpec, RouteSpec, TlsSpec};
use serde_json::{Value, json};

use crate::{Kind, Manifest, Subject};

const API_VERSION: &str = "traefik.io/v1alpha1";

/// The routes that a wish asks for.
pub fn routes(subject: &Subject, host: &str, wish: &IngressSpec) -> Vec<Manifest> {
    let tls = wish.tls.as_ref().map(|tls| certificate(host, tls));
    let route = |kind: Kind, name: String, route: &RouteSpec, rule: Value| {
        let mut spec = json!({ "entryPoints": route.entry_points, "routes": [rule] });
        if let Some(tls) = &tls {
            spec["tls"] = tls.clone();
        }
        Manifest {
            kind,
            namespace: Some(subject.namespace.clone()),
            body: json!({ "apiVersion": API_VERSION, "kind": kind.as_str(), "metadata": subject.owned(&name), "spec": spec }),
            name,
            uid: None,
        }
    };
    let to = |port: u16| json!([{ "name": subject.name, "port": port }]);
    let http = wish.http.iter().map(|wish| {
        let rule = json!({ "kind": "Rule", "match": format!("Host(`{host}`)"), "services": to(port::HTTP) });
        route(Kind::IngressRoute, subject.name.clone(), wish, rule)
    });
    let tcp = [("pg", port::PG, &wish.pg), ("ilp", port::ILP, &wish.ilp)];
    let tcp = tcp.into_iter().filter_map(|(name, port, wish)| {
        let rule = json!({ "match": format!("HostSNI(`{host}`)"), "services": to(port) });
        Some(route(Kind::IngressRouteTcp, names::route(&subject.name, name), wish.as_ref()?, rule))
    });
    http.chain(tcp).collect()
}

fn certificate(host: &str, wish: &TlsSpec) -> Value {
    // Never empty: a missing certificate and none are not told apart otherwise.
    let mut tls = json!({ "domains": [{ "main": host }] });
    if let Some(secret) = &wish.secret_name {
        tls["secretName"] = json!(secret);
    }
    if let Some(resolver) = &wish.cert_resolver {
        tls["certResolver"] = json!(resolver);
    }
    tls
}
