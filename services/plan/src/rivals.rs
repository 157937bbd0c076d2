//! Other databases whose routes match the host of this one's: Traefik would send what comes in for it to either of them.
//!
//! *Invariant:* who has a route keeps it, and nobody makes one beside it. Where there is none yet the older resource goes first,
//! so that of any number of databases that ask for one host exactly one has it.

use std::sync::Arc;

use kube::core::DynamicObject;
use resources::{IngressSpec, QuestDB, RouteSpec, names};
use serde_json::Value;

use crate::reach::host;
use crate::{Goal, Kind, Manifest, Settings, Validated};

/// A route to the host of this database's that another one has, or asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Resource of that database.
    name: String,
    host: String,
    entry_points: Vec<String>,
    /// It is there.
    is_there: bool,
    /// Its resource is older than this one's.
    is_older: bool,
}

/// What stands against a route.
pub(crate) struct Contested {
    /// In words that stay the same.
    pub(crate) text: String,
    /// The route is not to be made, or not to be changed, for it.
    pub(crate) yields: bool,
}

/// By what databases of one host are found: the host that a resource names, or what stands before the suffix in the one that it
/// gets. A hint: whose host it is says [`rivals()`].
pub fn host_key(resource: &QuestDB) -> Option<String> {
    match &resource.spec.network.ingress.as_ref()?.host {
        Some(host) => Some(cloud::normalise_name(host)),
        None => {
            Some(format!("{}.{}", resource.metadata.name.as_ref()?, resource.metadata.namespace.as_ref()?))
        }
    }
}

/// The keys of whoever may have the host of this database's routes.
pub fn host_keys(validated: &Validated, settings: &Settings) -> Vec<String> {
    let Some((host, _)) = &validated.reach.ingress else { return Vec::new() };
    let suffix = format!(".{}", cloud::normalise_name(&settings.neighbours.ingress_suffix));
    let stem = host.strip_suffix(&suffix).map(str::to_owned);
    [host.clone()].into_iter().chain(stem).collect()
}

/// The routes of others to the host of this database's. `route` shows one that is there, by kind and name.
pub fn rivals(
    (resource, validated): (&QuestDB, &Validated),
    others: &[Arc<QuestDB>],
    settings: &Settings,
    route: impl Fn(Kind, &str) -> Option<Arc<DynamicObject>>,
) -> Vec<Rival> {
    let Some((ours, _)) = &validated.reach.ingress else { return Vec::new() };
    let mut found = Vec::new();
    for other in others.iter().filter(|other| other.metadata.uid != resource.metadata.uid) {
        // Who is paused comes back; who goes gives back what it has.
        let claims = matches!(Goal::of(other), Goal::Serve | Goal::Pause);
        let Some(((namespace, name), ingress)) = place(other).zip(other.spec.network.ingress.as_ref()) else {
            continue;
        };
        let is_same =
            namespace == validated.subject.namespace && host(ingress, (namespace, name), settings) == *ours;
        if !claims || !is_same {
            continue;
        }
        let is_older = age(other) < age(resource);
        let rival = |entry_points: Vec<String>, is_there| Rival {
            name: name.to_owned(),
            host: ours.clone(),
            entry_points,
            is_there,
            is_older,
        };
        for (kind, route_name, wish) in routes_of(name, ingress) {
            let there = route(kind, &route_name).filter(|there| leads_to(&there.data, ours));
            found.extend(there.map(|there| rival(entry_points(&there.data), true)));
            found.extend(wish.map(|wish| rival(wish.entry_points.clone(), false)));
        }
    }
    found
}

/// What stands against a route of ours that is asked for in a field; `found` is what there is of it.
pub(crate) fn contested(
    (manifest, field): (&Manifest, &str),
    found: Option<&DynamicObject>,
    rivals: &[Rival],
) -> Option<Contested> {
    let wanted = entry_points(&manifest.body);
    let judge = |rival: &Rival| {
        let shared = |point: &&String| rival.entry_points.contains(point);
        let contested: Vec<&str> = wanted.iter().filter(shared).map(String::as_str).collect();
        if contested.is_empty() || !leads_to(&manifest.body, &rival.host) {
            return None;
        }
        let has = found.filter(|found| leads_to(&found.data, &rival.host));
        let has = has.map(|found| entry_points(&found.data)).unwrap_or_default();
        let is_ours = contested.iter().all(|point| has.iter().any(|has| has == point));
        let yields = !is_ours && (rival.is_there || rival.is_older);
        (yields || rival.is_there).then(|| told(rival, field, &contested.join(", "), yields))
    };
    // What keeps a route from being made says more than what shares its host.
    rivals.iter().filter_map(judge).min_by_key(|contested| !contested.yields)
}

fn told(rival: &Rival, field: &str, points: &str, yields: bool) -> Contested {
    let Rival { name, host, .. } = rival;
    let text = match (yields, rival.is_there) {
        (true, true) => format!(
            "{field} asks for {host} at {points}, which QuestDB {name} has: nothing is made or changed for it until that one \
             gives it back, or the spec names another host or entry point"
        ),
        (true, false) => format!(
            "{field} asks for {host} at {points}, and so does QuestDB {name}, which is older: nothing is made or changed for \
             it until that one asks for something else, or the spec names another host or entry point"
        ),
        (false, _) => format!(
            "{field}: {host} at {points} leads to QuestDB {name} as well, so that what comes in goes to either of both: name \
             another host or entry point in one of them"
        ),
    };
    Contested { text, yields }
}

/// The routes that a database may have, and what is asked of each.
fn routes_of<'a>(name: &str, ingress: &'a IngressSpec) -> [(Kind, String, Option<&'a RouteSpec>); 3] {
    [
        (Kind::IngressRoute, name.to_owned(), ingress.http.as_ref()),
        (Kind::IngressRouteTcp, names::route_pg(name), ingress.pg.as_ref()),
        (Kind::IngressRouteTcp, names::route_ilp(name), ingress.ilp.as_ref()),
    ]
}

/// The order of those who have nothing yet.
fn age(resource: &QuestDB) -> (Option<jiff::Timestamp>, Option<&String>) {
    let metadata = &resource.metadata;
    (metadata.creation_timestamp.as_ref().map(|made| made.0), metadata.name.as_ref())
}

fn place(resource: &QuestDB) -> Option<(&str, &str)> {
    resource.metadata.namespace.as_deref().zip(resource.metadata.name.as_deref())
}

/// Whether a route matches a host.
fn leads_to(route: &Value, host: &str) -> bool {
    let rule = route.pointer("/spec/routes/0/match").and_then(Value::as_str);
    rule.is_some_and(|rule| rule.contains(&format!("`{host}`")))
}

fn entry_points(route: &Value) -> Vec<String> {
    let points = route.pointer("/spec/entryPoints").and_then(Value::as_array);
    points.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{resource, settings, validated};

    fn asking(host: Option<&str>) -> QuestDB {
        let mut asking = resource(1);
        let host = host.map(str::to_owned);
        asking.spec.network.ingress = Some(IngressSpec { host, ..IngressSpec::default() });
        asking
    }

    #[test]
    fn whoever_may_have_the_host_is_found_by_one_of_its_keys() {
        let (by_name, by_word) = (asking(None), asking(Some("Trades-33445566.qdb-acme.apps.example.com")));
        let other = asking(Some("quotes.qdb-acme.apps.example.com"));
        for one in [&by_name, &by_word] {
            let keys = host_keys(&validated(one), &settings());
            let is_found = |other: &QuestDB| keys.contains(&host_key(other).unwrap());
            assert!(is_found(&by_name) && is_found(&by_word) && !is_found(&other), "{keys:?}");
        }
        assert_eq!(host_key(&resource(1)), None);
        assert_eq!(host_keys(&validated(&resource(1)), &settings()), Vec::<String>::new());
    }
}
