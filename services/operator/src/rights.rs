//! What the operator may do in its cluster, for each scope: the one place from which `deploy/rbac/operator.yaml` and what
//! `slipway-operator rbac` prints are made. Whoever begins to ask the API server for something else says so here.
//!
//! *Invariant:* no wildcard. *Invariant:* what lies in namespaces is granted only in those that are looked after, and in the
//! whole cluster only to whoever looks after all of them.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::scope::{self, Scope};
use resources::names;

/// Namespace of the operator that is installed as the manifests have it.
const HOME: &str = "slipway-system";
/// The kinds of Kubernetes' rules of access.
const RULES: &str = "rbac.authorization.k8s.io";

/// What is made, kept and taken away: server-side apply needs `create` and `patch`.
const KEPT: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// What others make.
const FOUND: &[&str] = &["get", "list", "watch", "patch", "delete"];

/// What may be done with some kinds of a group.
struct Right {
    group: &'static str,
    kinds: &'static [&'static str],
    verbs: &'static [&'static str],
}

/// What lies in namespaces.
const NAMESPACED: &[Right] = &[
    // One is read by itself before a name is taken out of service, and before a disk is destroyed.
    Right { group: names::GROUP, kinds: &["questdbs"], verbs: &["get", "list", "watch", "patch"] },
    Right { group: names::GROUP, kinds: &["questdbsnapshots"], verbs: KEPT },
    Right { group: names::GROUP, kinds: &["questdbsnapshotschedules"], verbs: &["list", "watch"] },
    // A status is replaced as a whole, over what the watch showed.
    Right {
        group: names::GROUP,
        kinds: &["questdbs/status", "questdbsnapshots/status", "questdbsnapshotschedules/status"],
        verbs: &["update"],
    },
    Right { group: "", kinds: &["secrets", "configmaps", "services", "persistentvolumeclaims"], verbs: KEPT },
    Right { group: "apps", kinds: &["statefulsets"], verbs: KEPT },
    Right { group: "", kinds: &["pods"], verbs: FOUND },
    // One that a spec names, by its metadata: without it no pod is made.
    Right { group: "", kinds: &["serviceaccounts"], verbs: &["list", "watch"] },
    Right { group: "networking.k8s.io", kinds: &["networkpolicies"], verbs: KEPT },
    Right { group: "policy", kinds: &["poddisruptionbudgets"], verbs: KEPT },
    // Where the cluster has them; rights to what is not there harm nobody.
    Right { group: "monitoring.coreos.com", kinds: &["servicemonitors", "podmonitors"], verbs: KEPT },
    Right { group: "traefik.io", kinds: &["ingressroutes", "ingressroutetcps"], verbs: KEPT },
    Right { group: "events.k8s.io", kinds: &["events"], verbs: &["create", "patch"] },
];

/// What is the cluster's own.
const CLUSTERED: &[Right] = &[
    Right { group: "", kinds: &["persistentvolumes"], verbs: KEPT },
    Right { group: "", kinds: &["nodes"], verbs: FOUND },
    Right { group: "storage.k8s.io", kinds: &["volumeattachments"], verbs: &["list", "watch"] },
    Right { group: "scheduling.k8s.io", kinds: &["priorityclasses"], verbs: &["list", "watch"] },
];

/// Prints the rights that the operator needs, for kubectl apply
#[derive(Debug, clap::Parser)]
#[command(name = "rbac")]
pub struct Rights {
    /// A namespace whose databases are looked after; all namespaces when none is named
    #[arg(long, value_delimiter = ',', value_parser = runtime::Trimmed(scope::name), value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// Namespace of the operator itself, of its service account and of its Lease
    #[arg(long, default_value = HOME, value_parser = scope::name, value_name = "NAMESPACE")]
    operator_namespace: String,
}

impl Rights {
    /// The objects as YAML.
    ///
    /// # Errors
    /// Never: they are texts and lists of texts.
    pub fn print(&self) -> Result<String, serde_saphyr::ser::Error> {
        let scope = Scope::of(&self.namespace);
        let mut text = heading(&scope);
        for object in objects(&scope, &self.operator_namespace) {
            text.push_str("---\n");
            text.push_str(serde_saphyr::to_string(&object)?.trim_end());
            text.push('\n');
        }
        Ok(text)
    }
}

/// The command that grants what an operator needs that looks after these namespaces and lives in `home`.
pub(crate) fn command(scope: &Scope, home: &str) -> String {
    let mut text = "slipway-operator rbac".to_owned();
    for namespace in scope.places().into_iter().flatten() {
        text.push_str(" --namespace ");
        text.push_str(&namespace);
    }
    if home != HOME {
        text.push_str(" --operator-namespace ");
        text.push_str(home);
    }
    text.push_str(" | kubectl apply -f -");
    text
}

fn heading(scope: &Scope) -> String {
    let why = match scope {
        Scope::All => {
            "What the operator may do in its cluster when it looks after all namespaces. Secrets are readable in every one,\n\
             # because namespaces are made after this role, and because RBAC has no word for metadata alone. The operator lists in\n\
             # full only those with its label; of others it sees metadata, and reads one in full only when a database names it or\n\
             # it names a database."
        }
        Scope::Only(_) => {
            "What the operator may do in its cluster when it looks after some namespaces. In no other one it may read or write\n\
             # anything; Nodes, PersistentVolumes, VolumeAttachments and PriorityClasses lie in none."
        }
    };
    format!("# {why}\n# Printed by 'slipway-operator rbac', which prints it for other namespaces too.\n")
}

/// The operator's identity, and all that it may do.
fn objects(scope: &Scope, home: &str) -> Vec<Value> {
    let account = Account { home };
    let mut objects = vec![account.namespace(), account.service_account()];
    let mut clustered = Vec::new();
    match scope {
        Scope::All => clustered.extend(NAMESPACED),
        Scope::Only(namespaces) => {
            for namespace in namespaces {
                objects.extend(account.role(namespace, &account.name(), &rules(NAMESPACED)));
            }
        }
    }
    clustered.extend(CLUSTERED);
    objects.extend(account.cluster_role(&rules(clustered)));
    objects.extend(account.role(home, &format!("{}-leader", names::OPERATOR), &leader()));
    objects
}

/// Who gets the rights.
struct Account<'a> {
    home: &'a str,
}

impl Account<'_> {
    fn namespace(&self) -> Value {
        let labels = json!({ "app.kubernetes.io/part-of": "slipway" });
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.home, "labels": labels } })
    }

    fn service_account(&self) -> Value {
        let metadata = json!({ "name": names::OPERATOR, "namespace": self.home });
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })
    }

    /// Of its roles: of two operators in one cluster, each has its own.
    fn name(&self) -> String {
        match self.home {
            HOME => names::OPERATOR.to_owned(),
            elsewhere => format!("{}.{elsewhere}", names::OPERATOR),
        }
    }

    fn cluster_role(&self, rules: &Value) -> [Value; 2] {
        self.granted(("ClusterRole", &json!({ "name": self.name() })), rules)
    }

    fn role(&self, namespace: &str, name: &str, rules: &Value) -> [Value; 2] {
        self.granted(("Role", &json!({ "name": name, "namespace": namespace })), rules)
    }

    /// A role and that the operator has it.
    fn granted(&self, (kind, metadata): (&str, &Value), rules: &Value) -> [Value; 2] {
        let version = format!("{RULES}/v1");
        let role = json!({ "apiGroup": RULES, "kind": kind, "name": metadata["name"] });
        let operator = json!({ "kind": "ServiceAccount", "name": names::OPERATOR, "namespace": self.home });
        [
            json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules }),
            json!({
                "apiVersion": version,
                "kind": format!("{kind}Binding"),
                "metadata": metadata,
                "roleRef": role,
                "subjects": [operator],
            }),
        ]
    }
}

fn rules<'a>(rights: impl IntoIterator<Item = &'a Right>) -> Value {
    let rule =
        |right: &Right| json!({ "apiGroups": [right.group], "resources": right.kinds, "verbs": right.verbs });
    rights.into_iter().map(rule).collect()
}

/// The one Lease that says who leads.
fn leader() -> Value {
    let lease = |names: Value, verbs: &[&str]| {
        let mut rule =
            json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs });
        if !names.is_null() {
            rule["resourceNames"] = names;
        }
        rule
    };
    // What is to be made has no name yet.
    json!([lease(Value::Null, &["create"]), lease(json!([names::OPERATOR]), &["get", "update"])])
}
