//! How a database is reached within its cluster: made, put right, taken away again, and never in the way of anything else.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSpec, Taint};
use resources::names::condition;
use resources::{
    ChangeMeans, CredentialsSpec, IlpSpec, IngressSpec, MonitorKind, MonitorSpec, NetworkSpec, Phase,
    RouteSpec, RunState, ServiceSpec, ServiceType, TlsSpec,
};
use serde_json::{Value, json};

use super::credentials::watched;
use super::model::World;
use super::operations::end_machine;
use super::{check_serving, pass, phase, serving, settle, troubles, wish};
use crate::fixture::resource;
use crate::{Children, Kind, Step, Unseen};

pub(super) const OTHERS: [Kind; 4] =
    [Kind::ServiceMonitor, Kind::PodMonitor, Kind::IngressRoute, Kind::IngressRouteTcp];

/// The API server's part for the kinds of this file.
pub(super) fn write(children: &mut Children, kind: Kind, name: &str, body: &Value) {
    match kind {
        Kind::NetworkPolicy => {
            children.network_policy = Some(Arc::new(serde_json::from_value(body.clone()).unwrap()));
        }
        Kind::PodDisruptionBudget => {
            children.disruption_budget = Some(Arc::new(serde_json::from_value(body.clone()).unwrap()));
        }
        kind => {
            assert!(children.served.contains(&kind), "{} is written and not known", kind.as_str());
            delete(children, kind, name);
            children.others.push((kind, Arc::new(serde_json::from_value(body.clone()).unwrap())));
        }
    }
}

/// Its part when they are deleted.
pub(super) fn delete(children: &mut Children, kind: Kind, name: &str) {
    match kind {
        Kind::NetworkPolicy => children.network_policy = None,
        Kind::PodDisruptionBudget => children.disruption_budget = None,
        kind => {
            children
                .others
                .retain(|(other, found)| *other != kind || found.metadata.name.as_deref() != Some(name));
        }
    }
}

fn everything(network: &mut NetworkSpec) {
    let entry = |name: &str| Some(RouteSpec { entry_points: vec![name.to_owned()] });
    network.allowed_namespaces = vec!["apps".to_owned()];
    network.ingress = Some(IngressSpec {
        host: None,
        http: entry("websecure"),
        pg: entry("postgres"),
        ilp: None,
        tls: Some(TlsSpec::default()),
    });
    network.monitor = Some(MonitorSpec { kind: MonitorKind::ServiceMonitor, ..MonitorSpec::default() });
    network.service = Some(ServiceSpec { service_type: ServiceType::LoadBalancer, ..ServiceSpec::default() });
}

pub(super) fn wanting(served: &[Kind]) -> World {
    let mut resource = resource(1);
    everything(&mut resource.spec.network);
    let mut world = World::new(resource);
    world.children.served = served.iter().copied().collect();
    world
}

pub(super) fn condition<'a>(world: &'a World, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind)?;
    Some((found.status.as_str(), found.message.as_str()))
}

pub(super) fn kinds(world: &World) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = world.children.others.iter().map(|(kind, _)| *kind).collect();
    kinds.sort();
    kinds
}

#[test]
fn every_step_may_fail_once_with_everything_asked_for() {
    let steps = settle(&mut wanting(&OTHERS), None, false);
    for trouble in troubles(steps) {
        let mut world = wanting(&OTHERS);
        settle(&mut world, Some(trouble), false);
        check_serving(&world, Some(trouble));
        assert_eq!(kinds(&world), [Kind::ServiceMonitor, Kind::IngressRoute, Kind::IngressRouteTcp]);
        assert_eq!(pass(&mut world, &mut 0, None, false).actions, []);
    }
}

#[test]
fn a_way_to_the_line_protocol_waits_for_a_key_that_is_asked_for_and_is_told_of_without() {
    let wanting = |drawn: &[&str]| {
        let mut resource = resource(1);
        let ilp = Some(RouteSpec { entry_points: vec!["questdb".to_owned()] });
        resource.spec.network.ingress = Some(IngressSpec { ilp, ..IngressSpec::default() });
        let drawn: Vec<String> = drawn.iter().map(|id| (*id).to_owned()).collect();
        if !drawn.is_empty() {
            let ilp = Some(IlpSpec { secret_name: None, drawn });
            resource.spec.credentials = Some(CredentialsSpec { ilp, ..CredentialsSpec::default() });
        }
        let mut world = World::new(resource);
        world.children.served = OTHERS.into_iter().collect();
        world
    };
    let mut world = wanting(&["first"]);
    watched(&mut world, |world, _| assert_eq!(condition(world, condition::CREDENTIALS_ACCEPTED), None));
    assert_eq!(kinds(&world), [Kind::IngressRouteTcp]);

    let mut world = wanting(&[]);
    settle(&mut world, None, false);
    let (status, text) = condition(&world, condition::CREDENTIALS_ACCEPTED).unwrap();
    assert!(status == "False" && text.ends_with("shut without a key"), "{text}");
    assert_eq!(condition(&world, condition::DEGRADED), Some(("True", text)));
    let pending = &world.resource.status.as_ref().unwrap().pending;
    let pending: Vec<_> = pending.iter().map(|found| (found.field.as_str(), found.means)).collect();
    assert_eq!(pending, [("/spec/network/ingress", ChangeMeans::Refused)]);
}

#[test]
fn where_a_load_balancer_answers_is_told_while_one_is_asked_for_and_nothing_waits_for_it() {
    let mut world = wanting(&OTHERS);
    settle(&mut world, None, false);
    let told = |world: &World| world.resource.status.as_ref().unwrap().load_balancer.clone();
    assert_eq!((phase(&world), told(&world)), (Some(Phase::Ready), Vec::new()));
    // What its controller, and the API server for it, write beside what is ours.
    let service = Arc::make_mut(world.children.service.as_mut().unwrap());
    let ingress = json!([{ "hostname": "lb.example.com" }, { "ip": "10.9.9.9" }, {}]);
    service.status = serde_json::from_value(json!({ "loadBalancer": { "ingress": ingress } })).unwrap();
    service.metadata.finalizers = Some(vec!["service.kubernetes.io/load-balancer-cleanup".to_owned()]);
    let spec = service.spec.get_or_insert_default();
    spec.health_check_node_port = Some(31_000);
    spec.ports.iter_mut().flatten().for_each(|port| port.node_port = Some(30_000));
    assert_eq!(pass(&mut world, &mut 0, None, false).actions, []);
    assert_eq!(
        (phase(&world), told(&world).join(" ")),
        (Some(Phase::Ready), "lb.example.com 10.9.9.9".to_owned())
    );

    wish(&mut world, 2, |spec| spec.network.service = None);
    settle(&mut world, None, false);
    assert_eq!(told(&world), Vec::<String>::new());
}

#[test]
fn nothing_starts_before_the_rules_about_who_may_come_in() {
    let mut world = World::new(resource(1));
    world.read_only_for = Some(Kind::NetworkPolicy);
    for _ in 0..super::ENOUGH {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(world.children.stateful_set.is_none() && world.children.pod.is_none());
    assert!(world.children.config.is_some(), "what needs no rules goes on");
    world.read_only_for = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn what_runs_serves_on_while_its_rules_cannot_be_written() {
    let mut world = serving();
    world.children.network_policy = None;
    world.children.disruption_budget = None;
    world.read_only_for = Some(Kind::NetworkPolicy);
    pass(&mut world, &mut 0, None, false);
    assert_eq!(condition(&world, condition::READY).unwrap().0, "True");
    assert_ne!(phase(&world), Some(Phase::Ready), "what is missing is told");
    world.read_only_for = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

/// A quota has no load balancer left, say, or the webhook of whoever makes those does not answer.
#[test]
fn a_service_that_cannot_be_changed_keeps_no_database_from_its_next_machine() {
    let mut world = serving();
    let load_balancer = ServiceSpec { service_type: ServiceType::LoadBalancer, ..ServiceSpec::default() };
    wish(&mut world, 2, |spec| spec.network.service = Some(load_balancer));
    world.read_only_for = Some(Kind::Service);
    end_machine(&mut world, 0);
    for _ in 0..super::ENOUGH {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!((world.instances.len(), condition(&world, condition::READY).unwrap().0), (2, "True"));
    assert_ne!(phase(&world), Some(Phase::Ready), "what is not done is told");
    world.read_only_for = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn a_route_that_is_not_asked_for_any_more_goes_whatever_else_cannot_be_written() {
    let mut world = wanting(&OTHERS);
    settle(&mut world, None, false);
    assert!(kinds(&world).contains(&Kind::IngressRoute));
    world.children.disruption_budget = None;
    world.read_only_for = Some(Kind::PodDisruptionBudget);
    wish(&mut world, 2, |spec| spec.network.ingress = None);
    pass(&mut world, &mut 0, None, false);
    assert_eq!(kinds(&world), [Kind::ServiceMonitor]);
    world.read_only_for = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn a_kind_that_the_cluster_does_not_know_is_told_and_holds_nothing_up() {
    let mut world = wanting(&[Kind::IngressRoute]);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(kinds(&world), [Kind::IngressRoute]);
    let (status, text) = condition(&world, condition::INTEGRATIONS_READY).unwrap();
    assert_eq!(status, "False");
    assert!(text.contains("ServiceMonitor") && text.contains("IngressRouteTCP"), "{text}");
    assert!(!text.contains("kind IngressRoute,"), "{text}");
    world.children.served = OTHERS.into_iter().collect();
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(kinds(&world), [Kind::ServiceMonitor, Kind::IngressRoute, Kind::IngressRouteTcp]);
    assert_eq!(condition(&world, condition::INTEGRATIONS_READY).unwrap().0, "True");
}

/// Of each kind that is asked for, whether it is seen or why not: what is made, and what is said.
#[test]
fn a_kind_that_is_not_shown_is_neither_made_nor_taken_away_and_is_told() {
    let refused = || Some(Unseen::Refused("grant it".to_owned()));
    let broken = || Some(Unseen::Broken("it broke".to_owned()));
    for (unseen, said) in [
        (None, Some(("KindMissing", "install its definition"))),
        (Some(Unseen::Yet), None),
        (broken(), Some(("KindUnseen", "it broke"))),
        (refused(), Some(("KindDenied", "grant it"))),
    ] {
        let mut world = wanting(&[Kind::IngressRoute, Kind::IngressRouteTcp]);
        world.children.unseen.extend(unseen.map(|unseen| (Kind::ServiceMonitor, unseen)));
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(kinds(&world), [Kind::IngressRoute, Kind::IngressRouteTcp], "{said:?}");
        let conditions = &world.resource.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|found| found.type_ == condition::INTEGRATIONS_READY);
        let Some((reason, what)) = said else {
            assert!(found.is_none(), "{found:?}");
            continue;
        };
        let found = found.unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", reason));
        assert!(found.message.contains("spec.network.monitor"), "{}", found.message);
        assert!(
            found.message.contains("kind ServiceMonitor") && found.message.contains(what),
            "{}",
            found.message
        );
    }
}

#[test]
fn what_was_said_of_a_kind_holds_until_it_is_known_better() {
    let mut world = wanting(&OTHERS);
    settle(&mut world, None, false);
    let before = world.resource.status.clone();
    let all = world.children.others.clone();
    for unseen in [Unseen::Yet, Unseen::Refused("grant it".to_owned())] {
        let yet = unseen == Unseen::Yet;
        world.children.served.clear();
        world.children.others.clear();
        world.children.unseen = OTHERS.map(|kind| (kind, unseen.clone())).into();
        let planned = pass(&mut world, &mut 0, None, false);
        assert_eq!(planned.actions, []);
        assert_eq!(world.resource.status == before, yet, "only what is known is told");
    }
    (world.children.served, world.children.others) = (OTHERS.into(), all);
    assert_eq!(pass(&mut world, &mut 0, None, false).actions, [], "they are there all the time");
    assert_eq!(condition(&world, condition::INTEGRATIONS_READY).unwrap().0, "True");
}

#[test]
fn what_is_not_asked_for_any_more_goes() {
    let mut world = wanting(&OTHERS);
    settle(&mut world, None, false);
    wish(&mut world, 2, |spec| {
        spec.network.ingress = None;
        spec.network.monitor = Some(MonitorSpec { kind: MonitorKind::PodMonitor, ..MonitorSpec::default() });
        spec.network.network_policy = Some(false);
        spec.network.disruption_budget = Some(false);
        spec.network.service = None;
    });
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(kinds(&world), [Kind::PodMonitor]);
    assert!(world.children.network_policy.is_none() && world.children.disruption_budget.is_none());
    wish(&mut world, 3, |spec| spec.run_state = RunState::Deleted);
    settle(&mut world, None, false);
    assert_eq!(kinds(&world), []);
    wish(&mut world, 4, |spec| {
        spec.run_state = RunState::Running;
        spec.network.network_policy = None;
        spec.network.disruption_budget = None;
    });
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(world.children.network_policy.is_some() && world.children.disruption_budget.is_some());
}

#[test]
fn every_step_of_taking_it_away_may_fail_once() {
    let less = |world: &mut World| {
        wish(world, 2, |spec| {
            spec.network = NetworkSpec {
                network_policy: Some(false),
                disruption_budget: Some(false),
                hostname: spec.network.hostname.clone(),
                ..NetworkSpec::default()
            };
        });
    };
    let served = || {
        let mut world = wanting(&OTHERS);
        settle(&mut world, None, false);
        less(&mut world);
        world
    };
    let steps = settle(&mut served(), None, false);
    assert!(steps >= 5, "{steps}");
    // Without trouble each step runs twice.
    for trouble in troubles(steps).map(Some).chain([None]) {
        let mut world = served();
        settle(&mut world, trouble, trouble.is_none());
        check_serving(&world, trouble);
        assert_eq!(kinds(&world), []);
    }
}

#[test]
fn another_hand_does_not_widen_who_may_come_in() {
    type Edit = fn(&mut Value);
    let edits: [Edit; 4] = [
        |value| {
            value["spec"]["ingress"][0]["from"]
                .as_array_mut()
                .unwrap()
                .push(json!({ "ipBlock": { "cidr": "::/0" } }));
        },
        |value| value["spec"]["ingress"][0]["ports"][0]["endPort"] = json!(65_535),
        |value| {
            let port = json!({ "port": 22, "protocol": "TCP" });
            value["spec"]["ingress"][0]["ports"].as_array_mut().unwrap().push(port);
        },
        |value| value["spec"]["egress"] = json!([{}]),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut world = serving();
        let mut value = serde_json::to_value(world.children.network_policy.as_deref()).unwrap();
        edit(&mut value);
        world.children.network_policy = Some(Arc::new(serde_json::from_value(value).unwrap()));
        let planned = pass(&mut world, &mut 0, None, false);
        let steps: Vec<&Step> = planned.actions.iter().map(|action| &action.step).collect();
        let right =
            |step: &Step| matches!(step, Step::Apply(manifest) if manifest.kind == Kind::NetworkPolicy);
        assert!(steps.len() == 1 && right(steps[0]), "edit {number}: {steps:?}");
    }
}

#[test]
fn a_cordoned_node_is_told_and_keeps_what_runs_until_the_next_machine_is_ready() {
    let mut world = serving();
    let pod = |world: &World| world.children.pod.as_ref().unwrap().metadata.uid.clone();
    let before = pod(&world);
    assert_eq!(condition(&world, condition::NODE_CORDONED), None);
    let set = |world: &mut World, unschedulable: bool, taints: Option<Vec<Taint>>| {
        let node = Arc::make_mut(&mut world.children.nodes[0]);
        let spec: &mut NodeSpec = node.spec.as_mut().unwrap();
        (spec.unschedulable, spec.taints) = (Some(unschedulable), taints);
    };
    let go = |world: &mut World| {
        let planned = pass(world, &mut 0, None, false);
        assert!(!planned.actions.iter().any(|action| matches!(&action.step, Step::Delete(_))));
        world.tick();
    };
    // A restart is left to the move: QuestDB would stay down.
    set(&mut world, true, None);
    wish(&mut world, 2, |spec| spec.restart_nonce = Some("again".to_owned()));
    (0..2).for_each(|_| go(&mut world));
    let (status, text) = condition(&world, condition::NODE_CORDONED).unwrap();
    assert!(status == "True" && text.contains("moves to another machine"), "{text}");
    let (status, text) = condition(&world, condition::MOVING).unwrap();
    assert!(status == "True" && text.contains("generation 2"), "{text}");
    assert_eq!(condition(&world, "Ready").unwrap().0, "True");
    // Another word for the same.
    let leaving =
        serde_json::from_value(json!({ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" })).unwrap();
    set(&mut world, false, Some(vec![leaving]));
    go(&mut world);
    assert_eq!(
        (condition(&world, condition::NODE_CORDONED).unwrap().0, pod(&world)),
        ("True", before.clone())
    );
    // Nobody wants it any more.
    set(&mut world, false, None);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_ne!(pod(&world), before, "the restart came");
    assert_eq!(condition(&world, condition::NODE_CORDONED).unwrap().0, "False");
    assert_eq!(condition(&world, condition::MOVING).unwrap().0, "False");
    let running = world.instances.iter().find(|found| !found.state.is_ending()).unwrap();
    assert_eq!(running.tags.get(cloud::key::GENERATION), Some("1"), "it stayed where it was");
}
