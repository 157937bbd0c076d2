//! Traefik's routes: one for HTTP by host, and one for the Postgres protocol by the host that TLS names.
//!
//! One for the line protocol over TCP is there only while QuestDB listens for it, which takes a key.

use resources::names::{self, port};
use resources::{IngressSpec, RouteSpec, TlsSpec};
use serde_json::{Value, json};

use crate::{Kind, Manifest, Subject};

const API_VERSION: &str = "traefik.io/v1alpha1";

/// The routes that a wish asks for, of a database that `listens` for the line protocol over TCP or does not.
pub fn routes(subject: &Subject, host: &str, wish: &IngressSpec, listens: bool) -> Vec<Manifest> {
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
    let pg = wish.pg.iter().map(|wish| {
        let rule = json!({ "match": format!("HostSNI(`{host}`)"), "services": to(port::PG) });
        route(Kind::IngressRouteTcp, names::route_pg(&subject.name), wish, rule)
    });
    let ilp = wish.ilp.iter().filter(|_| listens).map(|wish| {
        let rule = json!({ "match": format!("HostSNI(`{host}`)"), "services": to(port::ILP) });
        route(Kind::IngressRouteTcp, names::route_ilp(&subject.name), wish, rule)
    });
    http.chain(pg).chain(ilp).collect()
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
