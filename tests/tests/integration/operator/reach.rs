//! How a database is reached within its cluster: rules, budget, Services, and kinds that a cluster may lack.

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use resources::names::{self, condition};
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{Spawned, eventually, unique};

use super::foreign::{DEFINING, Kind, definition};
use super::others::Others;
use super::quiet::{asked, assert_quiet, rounds, until_quiet};
use super::rig::{PATIENCE, apply, refusal};
use super::subject::Subject;
use crate::front::Front;

fn found<'a>(resource: &'a QuestDB, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = &resource.status.as_ref()?.conditions;
    let found = conditions.iter().find(|found| found.type_ == kind)?;
    Some((found.status.as_str(), found.message.as_str()))
}

async fn told(subject: &Subject, kind: &str, status: &str) -> String {
    told_of(subject, kind, status, &[]).await
}

/// The message of a condition that has this status and names all of `words`.
async fn told_of(subject: &Subject, kind: &str, status: &str, words: &[&str]) -> String {
    let api = subject.rig.as_admin();
    eventually(PATIENCE, &format!("{kind} to be {status} because of {words:?}"), async || {
        let resource = api.get(&subject.name).await.ok()?;
        let (said, message) = found(&resource, kind)?;
        (said == status && words.iter().all(|word| message.contains(word))).then(|| message.to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_comes_in_unasked_and_no_drain_stops_a_database() {
    let mut subject = Subject::new(&unique("reach")).await;
    let (client, namespace) = (subject.rig.admin.clone(), subject.rig.namespace.clone());
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), &namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &namespace);
    let guard = names::guard(&subject.name);
    let (policy, budget) = of_a_user(&subject.name);
    let policy = policies.create(&PostParams::default(), &policy).await.unwrap();
    let budget = budgets.create(&PostParams::default(), &budget).await.unwrap();
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let intended = policies.get(&guard).await.unwrap().spec.unwrap();
    assert!(intended.egress.as_ref().is_none_or(Vec::is_empty));

    // Another hand lets everybody in, by a manager of its own.
    let somebody = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    let open = json!({ "spec": { "ingress": [{}], "egress": [{}] } });
    policies.patch(&guard, &somebody, &Patch::Merge(&open)).await.unwrap();
    eventually(PATIENCE, "the rules to come back", async || {
        (policies.get(&guard).await.ok()?.spec? == intended).then_some(())
    })
    .await;

    let before = budgets.get(&guard).await.unwrap().metadata.uid;
    budgets.delete(&guard, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the budget to come back", async || {
        let found = budgets.get_opt(&guard).await.unwrap()?;
        (found.metadata.uid != before).then_some(())
    })
    .await;

    // What a drain does: cordon, then evict.
    let nodes: Api<Node> = Api::all(client.clone());
    let resource = subject.rig.as_admin().get(&subject.name).await.unwrap();
    let node = resource.status.unwrap().node.unwrap().name.unwrap();
    nodes.cordon(&node).await.unwrap();
    // The API server asks no budget about a pod that never ran.
    let running = json!({ "status": { "phase": "Running" } });
    let pod = names::pod(&subject.name);
    subject.pods().patch_status(&pod, &PatchParams::default(), &Patch::Strategic(&running)).await.unwrap();
    let refused = subject.pods().evict(&pod, &EvictParams::default()).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429), "{refused:?}");
    let text = told(&subject, condition::NODE_CORDONED, "True").await;
    assert!(text.contains(&node) && text.contains("moves to another machine"), "{text}");
    nodes.uncordon(&node).await.unwrap();
    told(&subject, condition::NODE_CORDONED, "False").await;

    subject.wish(|spec| spec["network"] = json!({ "networkPolicy": false, "disruptionBudget": false })).await;
    subject.carried_out(Phase::Ready).await;
    assert!(policies.get_opt(&guard).await.unwrap().is_none());
    assert!(budgets.get_opt(&guard).await.unwrap().is_none());
    subject.purge().await;
    assert_eq!(policies.get(&subject.name).await.unwrap(), policy, "a user's own was touched");
    assert_eq!(budgets.get(&subject.name).await.unwrap().spec, budget.spec, "a user's own was touched");
}

/// A policy and a budget that users have under the name of their database, about something else.
fn of_a_user(name: &str) -> (NetworkPolicy, PodDisruptionBudget) {
    let (metadata, labels) = (json!({ "name": name }), json!({ "matchLabels": { "app": "theirs" } }));
    let policy = json!({ "metadata": metadata, "spec": { "podSelector": labels } });
    let budget = json!({ "metadata": metadata, "spec": { "minAvailable": 1, "selector": labels } });
    (serde_json::from_value(policy).unwrap(), serde_json::from_value(budget).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_follow_their_type_and_annotations_there_and_back() {
    let mut subject = Subject::new(&unique("service")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let services: Api<Service> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let network = json!({
        // As people write it: from 1.36 on Kubernetes itself refuses bits behind the prefix.
        "allowedCidrs": ["10.9.8.7/16"],
        "service": {
            "type": "LoadBalancer",
            "annotations": { "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal" },
            "headlessAnnotations": { "example.com/a": "1" },
        },
    });
    subject.wish(|spec| spec["network"] = network).await;
    subject.carried_out(Phase::Ready).await;
    let service = services.get(&subject.name).await.unwrap();
    let annotations = service.metadata.annotations.unwrap();
    assert!(annotations.contains_key("service.beta.kubernetes.io/aws-load-balancer-scheme"));
    let spec = service.spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(spec.load_balancer_source_ranges, Some(vec!["10.9.0.0/16".to_owned()]));
    assert!(spec.ports.unwrap().iter().all(|port| port.port != 9003));

    subject.wish(|spec| spec["network"] = json!({ "service": {} })).await;
    subject.carried_out(Phase::Ready).await;
    let service = services.get(&subject.name).await.unwrap();
    let annotations = service.metadata.annotations.unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [names::APPLIED, names::RESOURCE]);
    let spec = service.spec.unwrap();
    assert_eq!((spec.type_.as_deref(), spec.external_traffic_policy), (Some("ClusterIP"), None));
    assert!(spec.ports.unwrap().iter().all(|port| port.node_port.is_none()));

    let mut open = subject.rig.managed("open", 1);
    open["spec"]["network"] = json!({ "service": { "type": "LoadBalancer" } });
    open["spec"].as_object_mut().unwrap().remove("instruction");
    let refused = refusal(apply(&subject.rig.as_admin(), &open).await);
    assert!(refused.message.contains("whom the load balancer"), "{refused:?}");
    open["spec"]["network"] = json!({ "ingress": { "pg": { "entryPoints": ["postgres"] } } });
    let refused = refusal(apply(&subject.rig.as_admin(), &open).await);
    assert!(refused.message.contains("everything that comes in"), "{refused:?}");
    subject.purge().await;
}

/// The API server judges the pod by the namespace's standard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_without_host_ports_is_let_into_a_restricted_namespace_and_its_services_are_told() {
    let mut subject = Subject::new(&unique("portless")).await;
    let namespaces: Api<Namespace> = Api::all(subject.rig.admin.clone());
    let namespace = subject.rig.namespace.clone();
    let enforce = async |standard: &str| {
        let labels = json!({ "pod-security.kubernetes.io/enforce": standard });
        let change = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        namespaces.patch(&namespace, &PatchParams::default(), &change).await.unwrap();
    };
    enforce("restricted").await;
    let _others = Others::of(&subject.rig);
    let _operator = subject.rig.start().await;
    subject.wish(|spec| spec["network"] = json!({ "hostPorts": false })).await;
    let status = subject.carried_out(Phase::Ready).await.status.unwrap();
    let told = status.endpoints.unwrap();
    assert_eq!(told.http, format!("http://{}.{namespace}.svc:9000", subject.name));
    assert_eq!(told.min, format!("http://{}.{namespace}.svc:9003", names::headless(&subject.name)));
    assert_eq!(status.dns, None);
    let name = subject.rig.hostname(&subject.name);
    assert_eq!(subject.rig.records(&name).await, []);

    enforce("privileged").await;
    subject.wish(|spec| spec["network"] = json!({})).await;
    let status = subject.carried_out(Phase::Ready).await.status.unwrap();
    assert_eq!(status.endpoints.unwrap().http, format!("http://{name}:9000"));
    assert_eq!(status.dns.unwrap().address, status.node.unwrap().ip);
    assert_eq!(subject.rig.records(&name).await.len(), 2);

    subject.wish(|spec| spec["network"] = json!({ "hostPorts": false })).await;
    let status = subject.carried_out(Phase::Ready).await.status.unwrap();
    assert_eq!((status.endpoints.unwrap().http, status.dns), (told.http, None));
    assert_eq!(subject.rig.records(&name).await, []);
    subject.purge_with_others().await;
}

/// Keeps a Service until its load balancer is gone.
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Where one answers.
const BALANCER: &str = "internal-1.elb.eu-west-1.amazonaws.com";

/// The cluster's controller of load balancers has made one; the Service as it is then.
async fn balance(services: &Api<Service>, name: &str) -> Service {
    let controller =
        PatchParams { field_manager: Some("cloud-controller-manager".to_owned()), ..PatchParams::default() };
    let held = json!({ "metadata": { "finalizers": [CLEANUP] } });
    services.patch(name, &controller, &Patch::Merge(&held)).await.unwrap();
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": BALANCER }] } } });
    services.patch_status(name, &controller, &Patch::Merge(&status)).await.unwrap()
}

/// What of a Service is its controller's, or was given to it by the API server.
fn of_controller(service: &Service) -> Value {
    let spec = service.spec.as_ref().unwrap();
    let ports: Vec<_> = spec.ports.iter().flatten().map(|port| port.node_port).collect();
    assert!(ports.iter().all(Option::is_some) && spec.health_check_node_port.is_some(), "{spec:?}");
    json!([ports, spec.health_check_node_port, service.metadata.finalizers, service.status])
}

/// The API server gives the Service its ports, and the test stands in for the cloud.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_is_told_and_left_to_its_controller_and_waited_for_at_the_end() {
    let mut subject = Subject::new(&unique("balanced")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    let network = |note: &str| {
        let service = json!({ "type": "LoadBalancer", "annotations": { "example.com/a": note } });
        json!({ "allowedCidrs": ["10.9.0.0/16"], "service": service })
    };
    subject.wish(|spec| spec["network"] = network("1")).await;
    subject.carried_out(Phase::Ready).await;
    let services: Api<Service> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let given = balance(&services, &subject.name).await;
    let found = eventually(PATIENCE, "a word about the load balancer", async || {
        let found = subject.rig.as_admin().get(&subject.name).await.ok()?;
        (found.status.as_ref()?.load_balancer == [BALANCER]).then_some(found)
    })
    .await;
    // The name leads to the machine all the same.
    let status = found.status.unwrap();
    assert_eq!((status.phase, status.dns.unwrap().address), (Some(Phase::Ready), status.node.unwrap().ip));

    until_quiet((&operator, &front), 8.0).await;
    let before = asked(&front).len();
    rounds(&operator, 8.0).await;
    assert_quiet(&front, before, "a settled database costs requests");
    let after = services.get(&subject.name).await.unwrap();
    assert_eq!(after.metadata.resource_version, given.metadata.resource_version, "nothing is written to it");

    // Ours changes, and theirs stays.
    subject.wish(|spec| spec["network"] = network("2")).await;
    subject.carried_out(Phase::Ready).await;
    let changed = services.get(&subject.name).await.unwrap();
    assert_eq!(changed.metadata.annotations.as_ref().unwrap()["example.com/a"], "2");
    assert_eq!(of_controller(&changed), of_controller(&given));

    subject.wish_purged().await;
    let headless = names::headless(&subject.name);
    eventually(PATIENCE, "all but the Service to be gone", async || {
        let is_going = services.get(&subject.name).await.ok()?.metadata.deletion_timestamp.is_some();
        (is_going && services.get_opt(&headless).await.ok()?.is_none()).then_some(())
    })
    .await;
    assert!(subject.rig.instances().await.is_empty(), "machine and disk wait for nothing");
    assert!(subject.rig.volumes().await.iter().all(|volume| volume.state.is_ending()));
    let held = subject.rig.as_admin().get(&subject.name).await.unwrap().status.unwrap();
    assert_eq!(held.phase, Some(Phase::Deleting), "its load balancer is still there");
    let let_go = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    services.patch(&subject.name, &PatchParams::default(), &let_go).await.unwrap();
    subject.carried_out(Phase::Deleted).await;
    subject.rig.end().await;
}

/// Kinds of others.
const DEFINITIONS: [Kind; 2] = [
    ("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"),
    ("traefik.io", "v1alpha1", "ingressroutetcps", "IngressRouteTCP"),
];

async fn uninstall(definitions: &Api<CustomResourceDefinition>) {
    for (group, _, plural, _) in DEFINITIONS {
        let name = format!("{plural}.{group}");
        let _ = definitions.delete(&name, &DeleteParams::default()).await;
        eventually(PATIENCE, &format!("the end of {name}"), async || {
            definitions.get_opt(&name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
}

/// The definition of a kind from before it had a field, by the place of that in its schema.
fn without(kind: Kind, (parent, field): (&str, &str)) -> CustomResourceDefinition {
    let mut definition = serde_json::to_value(definition(kind)).unwrap();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    let version = versions.iter_mut().find(|version| version["name"] == kind.1).unwrap();
    let schema = version.pointer_mut(&format!("/schema/openAPIV3Schema/properties{parent}")).unwrap();
    schema.as_object_mut().unwrap().remove(field).unwrap();
    serde_json::from_value(definition).unwrap()
}

/// Of both kinds there is first one that lacks a field which the operator writes, and then the whole one.
async fn define_older_and_then_whole(
    subject: &Subject,
    operator: &Spawned,
    definitions: &Api<CustomResourceDefinition>,
) {
    let older = [
        ("/spec/properties/endpoints/items/properties", "scheme"),
        ("/spec/properties/tls/properties", "domains"),
    ];
    for (kind, field) in DEFINITIONS.into_iter().zip(older) {
        definitions.create(&PostParams::default(), &without(kind, field)).await.unwrap();
    }
    let place = format!("{}/{}", subject.rig.namespace, subject.name);
    let monitor = format!("does not know spec.endpoints[0].scheme of ServiceMonitor {place}: ");
    let route = format!("does not know spec.tls.domains of IngressRouteTCP {place}");
    // Both are told, although the one is refused before the other.
    told_of(subject, condition::INTEGRATIONS_READY, "False", &[&monitor, &route, "network.monitor"]).await;
    let status = subject.rig.as_admin().get(&subject.name).await.unwrap().status.unwrap();
    let reason = |kind: &str| {
        let found = status.conditions.iter().find(|found| found.type_ == kind).unwrap();
        (found.status.as_str(), found.reason.as_str())
    };
    for (kind, status) in [(condition::INTEGRATIONS_READY, "False"), (condition::DEGRADED, "True")] {
        assert_eq!(reason(kind), (status, names::reason::OLD_DEFINITION), "{kind}");
    }
    assert_eq!(reason(condition::READY).0, "True", "what serves goes on");
    let (metric, counted) = ("slipway_operator_pass_failures_total", "category=\"old_definition\"");
    eventually(PATIENCE, "the failure to be counted", async || {
        (operator.metric(metric, counted).await >= 1.0).then_some(())
    })
    .await;
    let parameters = PatchParams::apply("slipway-tests").force();
    for kind in DEFINITIONS {
        let whole = definition(kind);
        let name = whole.metadata.name.clone().unwrap();
        definitions.patch(&name, &parameters, &Patch::Apply(&whole)).await.unwrap();
    }
}

/// Another hand has something else scraped, or nothing.
async fn a_monitor_comes_back(monitors: &Api<DynamicObject>, name: &str, wanted: &Value) {
    let change = json!({ "spec": { "selector": { "matchLabels": { "app": "theirs" } }, "endpoints": [] } });
    monitors.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    eventually(PATIENCE, "the monitor to be put right", async || {
        let found = monitors.get(name).await.ok()?.data["spec"].clone();
        // A label more to look for is its maker's.
        (found["endpoints"] == wanted["endpoints"]).then_some(())
    })
    .await;
}

async fn is_made_again(api: &Api<DynamicObject>, name: &str) {
    let before = api.get(name).await.unwrap().metadata.uid;
    api.delete(name, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, &format!("{name} to come back"), async || {
        let found = api.get_opt(name).await.unwrap()?;
        (found.metadata.uid != before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_comes_later_is_used_without_a_restart_and_may_go_again() {
    let _defining = DEFINING.lock().await;
    let mut subject = Subject::new(&unique("kinds")).await;
    let client = subject.rig.admin.clone();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    uninstall(&definitions).await;
    let lease = subject.rig.lease().await;
    let operator = subject.rig.spawn((&lease, &subject.rig.rights(&lease).await), &[], &[]);
    subject.serving().await;
    let network = json!({
        "monitor": { "labels": { "release": "prometheus" } },
        "ingress": { "pg": { "entryPoints": ["postgres"] }, "tls": {} },
    });
    let wanted = network.clone();
    subject.wish(|spec| spec["network"] = wanted).await;
    // Nothing else waits for it: the wish counts as carried out.
    subject.carried_out(Phase::Ready).await;
    told_of(&subject, condition::INTEGRATIONS_READY, "False", &["ServiceMonitor", "IngressRouteTCP"]).await;

    define_older_and_then_whole(&subject, &operator, &definitions).await;
    told(&subject, condition::INTEGRATIONS_READY, "True").await;
    let api = |(group, version, plural, kind): Kind| -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Api::namespaced_with(client.clone(), &subject.rig.namespace, &resource)
    };
    let (monitors, routes) = (api(DEFINITIONS[0]), api(DEFINITIONS[1]));
    let monitor =
        eventually(PATIENCE, "the monitor", async || monitors.get_opt(&subject.name).await.ok()?).await;
    assert_eq!(monitor.metadata.labels.unwrap()["release"], "prometheus");
    let name = names::route_pg(&subject.name);
    let route = eventually(PATIENCE, "the route", async || routes.get_opt(&name).await.ok()?).await;
    let host = route.data.pointer("/spec/routes/0/match").and_then(Value::as_str).unwrap().to_owned();
    assert!(host.starts_with(&format!("HostSNI(`{}.{}.", subject.name, subject.rig.namespace)), "{host}");

    let change = json!({ "spec": { "routes": [] } });
    routes.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    eventually(PATIENCE, "the route to be put right", async || {
        let route = routes.get(&name).await.ok()?;
        (route.data.pointer("/spec/routes/0/match").and_then(Value::as_str) == Some(host.as_str()))
            .then_some(())
    })
    .await;

    let wanted = monitor.data["spec"].clone();
    a_monitor_comes_back(&monitors, &subject.name, &wanted).await;
    for (api, name) in [(&monitors, &subject.name), (&routes, &name)] {
        is_made_again(api, name).await;
    }

    uninstall(&definitions).await;
    // Each kind is looked for by itself: one may be missed before the other.
    told_of(&subject, condition::INTEGRATIONS_READY, "False", &["ServiceMonitor", "IngressRouteTCP"]).await;
    subject.wish(|_| {}).await;
    subject.carried_out(Phase::Ready).await;
    subject.purge().await;
}
