//! The rights that the operator itself prints, granted on a real API server, and its service account's way there.

use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use resources::{QuestDB, names};
use serde_json::{Value, json};
use testkit::{bare_cluster, eventually, unique};
use tokio::process::Command;

use super::rig::PATIENCE;
use crate::support::stack;

/// What the program prints for an operator of these namespaces that lives in `home`.
async fn printed(namespaces: &[&str], home: &str) -> Vec<DynamicObject> {
    let mut command = Command::new(stack().programs.join(names::OPERATOR));
    command.args(["rbac", "--operator-namespace", home]);
    for namespace in namespaces {
        command.args(["--namespace", namespace]);
    }
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// Applies it, as somebody with kubectl would.
pub(super) async fn apply(admin: &Client, namespaces: &[&str], home: &str) {
    write(admin, printed(namespaces, home).await).await;
}

/// Applies what concerns one namespace, and of that only the rules that are kept; they may be changed by the way.
pub(super) async fn apply_in_part(
    admin: &Client,
    namespace: &str,
    home: &str,
    keeps: impl Fn(&mut Value) -> bool,
) {
    let mut objects = printed(&[namespace], home).await;
    objects.retain(|object| object.metadata.namespace.as_deref() == Some(namespace));
    for role in &mut objects {
        if let Some(rules) = role.data.get_mut("rules").and_then(Value::as_array_mut) {
            rules.retain_mut(&keeps);
        }
    }
    write(admin, objects).await;
}

/// Whether a rule is about this group.
pub(super) fn is_of(rule: &Value, group: &str) -> bool {
    rule["apiGroups"] == json!([group])
}

async fn write(admin: &Client, objects: Vec<DynamicObject>) {
    for object in objects {
        let types = object.types.clone().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
            None => Api::all_with(admin.clone(), &resource),
        };
        let name = object.metadata.name.clone().unwrap();
        let parameters = PatchParams::apply("slipway-tests").force();
        api.patch(&name, &parameters, &Patch::Apply(&object)).await.unwrap();
    }
}

/// The same, and a kubeconfig with a token of the operator's service account, once the rights are heeded.
pub(super) async fn grant(admin: &Client, namespaces: &[&str], home: &str) -> PathBuf {
    grant_at(&bare_cluster().kubeconfig, admin, namespaces, home).await
}

/// The same at another API server, to which `like` is the administrator's way.
pub(super) async fn grant_at(like: &Path, admin: &Client, namespaces: &[&str], home: &str) -> PathBuf {
    apply(admin, namespaces, home).await;
    let kubeconfig = kubeconfig(like, &token(admin, home, names::OPERATOR).await);
    let client = testkit::client(&kubeconfig).await.unwrap();
    // The API server hears of roles and of bindings, of namespaces and of the cluster, each by itself.
    let (nodes, leases): (Api<Node>, Api<Lease>) =
        (Api::all(client.clone()), Api::namespaced(client.clone(), home));
    eventually(PATIENCE, "the rights in the cluster and to the Lease to be heeded", async || {
        nodes.list_metadata(&ListParams::default()).await.ok()?;
        leases.get_opt(names::OPERATOR).await.ok().map(drop)
    })
    .await;
    for namespace in namespaces {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        eventually(PATIENCE, "the rights to be heeded", async || {
            secrets.list_metadata(&ListParams::default()).await.ok().map(drop)
        })
        .await;
    }
    kubeconfig
}

/// The way to the API server of a person who may do this with databases of a namespace, and nothing else.
pub(super) async fn person(admin: &Client, namespace: &str, verbs: &[&str]) -> PathBuf {
    let name = unique("person");
    let metadata = json!({ "name": name, "namespace": namespace });
    let group = "rbac.authorization.k8s.io";
    let objects = json!([
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata },
        {
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{ "apiGroups": ["crd.questdb.io"], "resources": ["questdbs"], "verbs": verbs }],
        },
        {
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": group, "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        },
    ]);
    write(admin, serde_json::from_value(objects).unwrap()).await;
    let kubeconfig = kubeconfig(&bare_cluster().kubeconfig, &token(admin, namespace, &name).await);
    let databases: Api<QuestDB> = Api::namespaced(testkit::client(&kubeconfig).await.unwrap(), namespace);
    eventually(PATIENCE, "the rights to be heeded", async || {
        databases.get_opt("nobody").await.ok().map(drop)
    })
    .await;
    kubeconfig
}

async fn token(admin: &Client, home: &str, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), home);
    let spec = TokenRequestSpec { expiration_seconds: Some(3_600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    answer.unwrap().status.unwrap().token
}

/// A way to an API server by a token alone.
fn kubeconfig(like: &Path, token: &str) -> PathBuf {
    let admin = Kubeconfig::read_from(like).unwrap();
    let cluster = admin.clusters.into_iter().find_map(|named| named.cluster).unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "operator",
        "clusters": [{ "name": "bare", "cluster": cluster }],
        "users": [{ "name": "operator", "user": { "token": token } }],
        "contexts": [{ "name": "operator", "context": { "cluster": "bare", "user": "operator" } }],
    });
    let path: &Path = &testkit::scratch();
    let path = path.join(unique("kubeconfig"));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}
