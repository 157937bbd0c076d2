//! `/v1/clusters`: the registry, for those who run the fleet.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use domain::id::TENANT_LENGTH;
use domain::{Cluster, ClusterId, ClusterState, Rule, Violation, Violations};
use serde_json::json;
use store::Registered;
use wire::http::{self, ClusterList, Problem, RegisterCluster, UpdateCluster};

use super::auth::Caller;
use super::body::Body;
use super::failure::Failure;
use super::{Api, present, unreadable};

/// What stands for the tenant in a template of namespaces.
const TENANT: &str = "{tenant}";
/// Most characters of a namespace's name.
const NAMESPACE_LENGTH: usize = 63;

/// Register a cluster
///
/// Or change its registration, one that cannot be read included; a repetition changes nothing. Databases are placed there
/// while it is `active`. Without `state` a registered cluster stays as open or closed as it is.
#[utoipa::path(
    put,
    path = "/v1/clusters/{id}",
    tag = "clusters",
    operation_id = "register_cluster",
    request_body = RegisterCluster,
    params(("id" = String, Path, description = "Identity of the cluster: an RFC 1123 label of at most 40 characters")),
    responses(
        (status = 200, description = "Its registration, changed or not", body = http::Cluster),
        (status = 201, description = "Registered", body = http::Cluster),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A rule is broken", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn register(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    body: Body,
) -> Result<(StatusCode, Json<http::Cluster>), Failure> {
    caller.require_sre()?;
    let wish: RegisterCluster = body.parse()?;
    let (cluster, state) = validate(&text, wish).map_err(|violations| Failure::invalid(&violations))?;
    let mut transaction = api.store().begin().await?;
    let registered = transaction.put_cluster(&cluster, state).await?;
    keep_place(&registered, &cluster)?;
    let is_new = registered.is_new;
    if is_new {
        leave_room(&cluster)?;
    }
    let detail = json!({"region": cluster.region, "state": registered.state, "new": is_new});
    transaction.audit(&caller.entry("clusters.register", cluster.id.to_string(), detail)).await?;
    transaction.commit().await?;
    tracing::info!(cluster.name = %cluster.id, cluster.new = is_new, "cluster registered");
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(show(&api, &cluster.id).await?)))
}

/// Open or close a cluster for new databases
///
/// A closed one keeps its databases; a request for a new one that finds no open cluster in its region is refused with the
/// code `region_closed`.
#[utoipa::path(
    patch,
    path = "/v1/clusters/{id}",
    tag = "clusters",
    operation_id = "update_cluster",
    request_body = UpdateCluster,
    params(("id" = String, Path, description = "Identity of the cluster")),
    responses(
        (status = 200, description = "The cluster, changed or not", body = http::Cluster),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A rule is broken", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn update(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    body: Body,
) -> Result<Json<http::Cluster>, Failure> {
    caller.require_sre()?;
    let id: ClusterId = text.parse().map_err(|_| Failure::not_found("cluster"))?;
    let wish: UpdateCluster = body.parse()?;
    let state = state(&wish.state).map_err(Failure::violation)?;
    let mut transaction = api.store().begin().await?;
    let before = transaction.set_cluster_state(&id, state).await?;
    let before = before.ok_or_else(|| Failure::not_found("cluster"))?;
    let detail = json!({"state": state.as_str(), "before": before.as_str()});
    transaction.audit(&caller.entry("clusters.update", id.to_string(), detail)).await?;
    transaction.commit().await?;
    tracing::info!(cluster.name = %id, cluster.state = %state, cluster.before = %before, "cluster changed");
    Ok(Json(show(&api, &id).await?))
}

/// Show a cluster
#[utoipa::path(
    get,
    path = "/v1/clusters/{id}",
    tag = "clusters",
    operation_id = "get_cluster",
    params(("id" = String, Path, description = "Identity of the cluster")),
    responses(
        (status = 200, description = "The cluster", body = http::Cluster),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Json<http::Cluster>, Failure> {
    caller.require_sre()?;
    let id = text.parse().map_err(|_| Failure::not_found("cluster"))?;
    Ok(Json(show(&api, &id).await?))
}

/// List clusters
///
/// One that cannot be read is in `unreadable`, and hides no other.
#[utoipa::path(
    get,
    path = "/v1/clusters",
    tag = "clusters",
    operation_id = "list_clusters",
    responses((status = 200, description = "All clusters", body = ClusterList))
)]
pub(crate) async fn list(State(api): State<Api>, caller: Caller) -> Result<Json<ClusterList>, Failure> {
    caller.require_sre()?;
    let counts = api.store().database_counts().await?;
    let registry = api.store().clusters().await?;
    let unreadable = unreadable::clusters(&api, registry.unreadable);
    let clusters = registry
        .clusters
        .into_iter()
        .map(|record| {
            let databases = counts.get(record.cluster.id.as_str()).copied().unwrap_or_default();
            present::cluster(record, databases)
        })
        .collect();
    Ok(Json(ClusterList { clusters, unreadable }))
}

async fn show(api: &Api, id: &ClusterId) -> Result<http::Cluster, Failure> {
    let record = api.store().cluster(id).await?.ok_or_else(|| Failure::not_found("cluster"))?;
    let databases = api.store().database_counts().await?.get(id.as_str()).copied().unwrap_or_default();
    Ok(present::cluster(record, databases))
}

fn state(text: &str) -> Result<ClusterState, Violation> {
    ClusterState::parse(text).ok_or_else(|| {
        let words: Vec<&str> = ClusterState::ALL.iter().map(|state| state.as_str()).collect();
        Violation::new("/state", Rule::Unknown, format!("must be one of: {}", words.join(", ")))
    })
}

/// The cluster, and the state that it is to have: where none is asked for, it is open only if it is new.
fn validate(id: &str, wish: RegisterCluster) -> Result<(Cluster, Option<ClusterState>), Violations> {
    let mut wrong = Violations::default();
    let id = id.parse::<ClusterId>();
    let id = wrong.keep(id.map_err(|error| Violation::new("path:id", Rule::Format, error.to_string())));
    let state = wrong.keep(wish.state.as_deref().map(state).transpose());
    for (pointer, text) in [
        ("/region", &wish.region),
        ("/account", &wish.account),
        ("/hosted_zone_id", &wish.hosted_zone_id),
        ("/dns_suffix", &wish.dns_suffix),
    ] {
        if !is_word(text) {
            wrong.push(Violation::new(pointer, Rule::Format, "must be 1 to 200 characters without spaces"));
        }
    }
    if wish.zones.is_empty() {
        wrong.push(Violation::new("/zones", Rule::Required, "name at least one zone with its subnet"));
    }
    if wish.zones.iter().any(|(zone, subnet)| !is_word(zone) || !is_word(subnet)) {
        let detail = "a zone and its subnet have 1 to 200 characters without spaces each";
        wrong.push(Violation::new("/zones", Rule::Format, detail));
    }
    if !is_template(&wish.namespace_template) {
        let detail = "must hold {tenant}, for tenants share no namespace, and lower-case letters, digits and '-', as the name of a \
                      namespace has them";
        wrong.push(Violation::new("/namespace_template", Rule::Format, detail));
    }
    if !is_reference(&wish.credentials) {
        let detail = "must be a reference such as file:eu-west-1.kubeconfig: a file's name, without a path";
        wrong.push(Violation::new("/credentials", Rule::Format, detail));
    }
    match (id, state) {
        (Some(id), Some(state)) if wrong.0.is_empty() => {
            let cluster = Cluster {
                id,
                region: wish.region,
                account: wish.account,
                zones: wish.zones,
                hosted_zone_id: wish.hosted_zone_id,
                dns_suffix: wish.dns_suffix,
                namespace_template: wish.namespace_template,
                state: state.unwrap_or(ClusterState::Active),
                credentials: wish.credentials,
            };
            Ok((cluster, state))
        }
        _ => Err(wrong),
    }
}

fn is_word(text: &str) -> bool {
    (1..=200).contains(&text.len()) && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Whether a template makes names of namespaces, each of one tenant.
fn is_template(text: &str) -> bool {
    let name = text.replace(TENANT, "t");
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.contains(TENANT) && name.bytes().all(good) && !name.starts_with('-') && !name.ends_with('-')
}

/// A new template has room for every tenant: the first one with a long name would find out else, and it is for ever.
fn leave_room(cluster: &Cluster) -> Result<(), Failure> {
    let longest = cluster.namespace_template.replace(TENANT, &"t".repeat(TENANT_LENGTH));
    if longest.len() <= NAMESPACE_LENGTH {
        return Ok(());
    }
    let detail = format!(
        "must leave room for {TENANT_LENGTH} characters of a tenant in the {NAMESPACE_LENGTH} of a namespace's name"
    );
    Err(Failure::violation(Violation::new("/namespace_template", Rule::Range, detail)))
}

/// A reference names a file in a directory that only the provisioner knows: it must not lead out of it.
fn is_reference(text: &str) -> bool {
    let Some(name) = text.strip_prefix("file:") else { return false };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=200).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('.')
}

/// Databases stay in their cluster for life, and in their namespace of it, where their next states look for them; and a cluster stays
/// in its region.
fn keep_place(known: &Registered, wish: &Cluster) -> Result<(), Failure> {
    for (pointer, stays, asked) in [
        ("/region", &known.region, &wish.region),
        ("/namespace_template", &known.namespace_template, &wish.namespace_template),
    ] {
        if stays != asked {
            let detail = format!("is {stays} for ever: register another cluster");
            return Err(Failure::violation(Violation::new(pointer, Rule::Immutable, detail)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn good() -> RegisterCluster {
        RegisterCluster {
            region: "eu-west-1".to_owned(),
            account: "123456789012".to_owned(),
            zones: BTreeMap::from([("eu-west-1a".to_owned(), "subnet-1".to_owned())]),
            hosted_zone_id: "Z1".to_owned(),
            dns_suffix: "eu-west-1.example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: Some("draining".to_owned()),
            credentials: "file:eu-west-1.kubeconfig".to_owned(),
        }
    }

    #[test]
    fn a_good_registration_is_taken() {
        let (cluster, state) = validate("eu-west-1", good()).unwrap();
        assert_eq!((cluster.state, state), (ClusterState::Draining, Some(ClusterState::Draining)));
    }

    #[test]
    fn a_registration_without_a_state_asks_for_none_and_opens_a_new_cluster() {
        let (cluster, state) = validate("eu-west-1", RegisterCluster { state: None, ..good() }).unwrap();
        assert_eq!((cluster.state, state), (ClusterState::Active, None));
    }

    #[test]
    fn every_broken_field_is_named() {
        type Break = fn(&mut RegisterCluster);
        let table: &[(Break, &str)] = &[
            (|c| c.region.clear(), "/region"),
            (|c| "a b".clone_into(&mut c.hosted_zone_id), "/hosted_zone_id"),
            (|c| c.dns_suffix.clear(), "/dns_suffix"),
            (|c| c.zones.clear(), "/zones"),
            (|c| drop(c.zones.insert("eu-west-1b".to_owned(), "\0".to_owned())), "/zones"),
            (|c| "1234\0".clone_into(&mut c.account), "/account"),
            (|c| "shared".clone_into(&mut c.namespace_template), "/namespace_template"),
            (|c| "QDB-{tenant}".clone_into(&mut c.namespace_template), "/namespace_template"),
            (|c| "{tenant}-".clone_into(&mut c.namespace_template), "/namespace_template"),
            (|c| c.state = Some("asleep".to_owned()), "/state"),
            (|c| "file:../../etc/passwd".clone_into(&mut c.credentials), "/credentials"),
            (|c| "apiVersion: v1".clone_into(&mut c.credentials), "/credentials"),
        ];
        for (break_it, pointer) in table {
            let mut wish = good();
            break_it(&mut wish);
            let wrong = validate("eu-west-1", wish).unwrap_err();
            assert_eq!(
                wrong.0.iter().map(|violation| violation.pointer.as_str()).collect::<Vec<_>>(),
                [*pointer]
            );
        }
        assert_eq!(validate("EU", good()).unwrap_err().0[0].pointer, "path:id");
    }

    #[test]
    fn a_template_has_room_for_the_longest_tenant() {
        let room = |before: usize| {
            let template = format!("{}{TENANT}", "x".repeat(before));
            let cluster = validate("eu-west-1", RegisterCluster { namespace_template: template, ..good() });
            leave_room(&cluster.unwrap().0)
        };
        assert!(room(23).is_ok());
        assert_eq!(room(24).unwrap_err().problem.errors[0].rule, "range");
    }

    #[test]
    fn references_do_not_leave_their_directory() {
        for bad in
            ["file:", "file:/etc/passwd", "file:..", "file:.hidden", "file:a/b", "env:X", "eu.kubeconfig"]
        {
            assert!(!is_reference(bad), "{bad}");
        }
    }
}
