//! What is there only for some databases, or only in EC2, as recorded: what restores a disk, keys that are handed out and heeded,
//! orders of copies, the route of the line protocol, and what a machine is told.

use cloud::{SecurityGroupId, key};
use resources::{IngressSpec, RouteSpec, TlsSpec, names};
use serde_json::{Value, json};

use crate::build::{
    Copied, drawn_key, give_time, launch, routes, security_group, snapshot_order, stateful_set,
};
use crate::fixture::{resource, settings, subject, validated, volume, with};
use crate::{Manifest, Settings, Validated, build, pod};

#[test]
fn a_key_is_handed_out_in_a_secret_as_recorded() {
    insta::assert_yaml_snapshot!("drawn_key", drawn_key(&subject(), "laptop").body);
}

#[test]
fn a_pod_with_every_credential_is_as_recorded() {
    let mut wish = validated(&resource(1));
    (wish.keyring.readonly, wish.keyring.ilp) = (true, true);
    let body = stateful_set(&wish, "qdb-33445566-g1", None).body;
    let questdb = &body["spec"]["template"]["spec"]["containers"][0];
    let differs = json!({ "env": questdb["env"], "ports": questdb["ports"] });
    insta::assert_yaml_snapshot!("pod_with_every_credential", differs);
}

/// A pod has another address than its machine, to which the database's name leads.
#[test]
fn clients_come_in_at_the_address_of_the_machine() {
    let mut wish = validated(&resource(1));
    wish.keyring.ilp = true;
    let body = stateful_set(&wish, "qdb-33445566-g1", None).body;
    let ports = body["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
    let ports: Vec<Value> =
        ports.iter().map(|port| json!([port["containerPort"], port["hostPort"]])).collect();
    // Metrics are for pods alone.
    assert_eq!(ports, [json!([9000, 9000]), json!([8812, 8812]), json!([9009, 9009]), json!([9003, null])]);
}

/// What a namespace under the Pod Security Standard `baseline` allows.
#[test]
fn a_pod_that_is_to_take_no_ports_of_its_machine_listens_on_the_same() {
    let mut wish = validated(&resource(1));
    wish.keyring.ilp = true;
    let of = |wish: &Validated| {
        let body = stateful_set(wish, "qdb-33445566-g1", None).body;
        body["spec"]["template"]["spec"]["containers"][0]["ports"].clone()
    };
    let mut before = of(&wish);
    for port in before.as_array_mut().unwrap() {
        port.as_object_mut().unwrap().remove("hostPort");
    }
    let (checksum, rules) = (build::checksum(&wish, "n"), build::security_group_rules(&wish, &settings()));
    let policy = build::network_policy(&wish, &settings()).body;
    wish.reach.host_ports = false;
    assert_eq!(of(&wish), before);
    assert_ne!(build::checksum(&wish, "n"), checksum, "it takes a restart");
    // A pod may have an address on its machine's own interface: who may come in is the same.
    assert_eq!(build::security_group_rules(&wish, &settings()), rules);
    assert_eq!(build::network_policy(&wish, &settings()).body, policy);
}

#[test]
fn an_order_of_a_copy_is_as_recorded() {
    let order = snapshot_order(&subject(), "trades-33445566-last", (names::snapshot::LAST_COPY, "3"));
    insta::assert_yaml_snapshot!("snapshot_order", order.body);
}

#[test]
fn the_route_of_the_line_protocol_is_as_recorded() {
    let wish = IngressSpec {
        host: None,
        http: None,
        pg: None,
        ilp: Some(RouteSpec { entry_points: vec!["questdb".to_owned()] }),
        tls: Some(TlsSpec { secret_name: None, cert_resolver: Some("letsencrypt".to_owned()) }),
    };
    let routes = routes(&subject(), "trades.example.com", &wish, true);
    let [route] = &routes[..] else { panic!("not one route: {routes:?}") };
    insta::assert_yaml_snapshot!("route_of_line_protocol", route.body);
}

#[test]
fn what_restores_a_disk_is_as_recorded() {
    let mut disk = volume(50);
    disk.snapshot = Some("snap-1".to_owned());
    disk.tags = disk.tags.with(key::BASIS, "checkpoint:1");
    let copied = Copied::of(&disk);
    let mut body = stateful_set(&validated(&resource(1)), "qdb-33445566-g1", copied.as_ref()).body;
    let first = body["spec"]["template"]["spec"]["initContainers"].take();
    let mut first = first.as_array().unwrap().iter();
    let mut restorer = first.find(|container| container["name"] == pod::RESTORE).unwrap().clone();
    // What it runs is tried by its own tests, on real folders.
    let command = restorer.as_object_mut().unwrap().remove("command").unwrap();
    assert_eq!(command.as_array().unwrap()[..2], [json!("/bin/sh"), json!("-ec")]);
    insta::assert_yaml_snapshot!("restorer", restorer);
}

#[test]
fn a_second_pod_of_a_database_does_not_start_on_the_machine_of_the_first() {
    let body = stateful_set(&validated(&resource(1)), "n", None).body;
    let template = &body["spec"]["template"];
    let apart =
        &template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
    let labels = apart["labelSelector"]["matchLabels"].as_object().unwrap();
    assert_eq!(labels[names::LABEL_DATABASE], subject().database.as_str(), "of this database alone");
    for (key, value) in labels {
        assert_eq!(template["metadata"]["labels"][key], *value, "every pod of it has {key}, older ones too");
    }
}

/// It may rewrite the disk. Once it serves the template is as before, and the pod that was made of the other is none the less current.
#[test]
fn the_start_of_another_version_has_half_a_day_and_makes_no_other_template() {
    let chosen = |period: u32, failures: u32| {
        let startup =
            json!({ "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": period });
        with("/spec/pod", json!({ "probes": { "startup": startup } }))
    };
    let day = 24 * 3_600;
    for (resource, usual, least) in
        [(resource(1), 600, day / 2), (chosen(2, 30), 60, day / 2), (chosen(60, 1_440), day, day)]
    {
        let before = stateful_set(&validated(&resource), "n", None);
        let mut after = before.clone();
        give_time(&mut after);
        let seconds = |set: &Manifest| {
            let probe = &set.body["spec"]["template"]["spec"]["containers"][0]["startupProbe"];
            probe["periodSeconds"].as_u64().unwrap() * probe["failureThreshold"].as_u64().unwrap()
        };
        assert_eq!((seconds(&before), seconds(&after)), (usual, least));
        let timeout = |set: &Manifest| {
            set.body["spec"]["template"]["spec"]["containers"][0]["startupProbe"]["timeoutSeconds"].clone()
        };
        assert_eq!(timeout(&after), timeout(&before));
        let told = |set: &Manifest| set.body["spec"]["template"]["metadata"].clone();
        assert_eq!(told(&after), told(&before));
    }
}

#[test]
fn another_repository_is_another_template_and_no_reason_for_a_restart() {
    let mut disk = volume(50);
    disk.snapshot = Some("snap-1".to_owned());
    let copied = Copied::of(&disk);
    let wish = validated(&resource(1));
    let mirrored = Validated { repository: "mirror:5000/questdb".parse().unwrap(), ..wish.clone() };
    let template = |wish: &Validated| {
        let mut body = stateful_set(wish, "n", copied.as_ref()).body;
        body["spec"]["template"].take()
    };
    let (before, after) = (template(&wish), template(&mirrored));
    let of = |list: &str| after["spec"][list].as_array().unwrap().iter().map(|found| found["image"].clone());
    let images: Vec<Value> = of("initContainers").chain(of("containers")).collect();
    assert_eq!(images, vec![json!("mirror:5000/questdb:9.3.4"); 3], "whatever runs in the pod by itself");
    check_restarts_nobody(&before, &after);
}

/// Two templates differ, and by nothing for which a pod is restarted.
fn check_restarts_nobody(before: &Value, after: &Value) {
    for (key, stays) in [(names::CHECKSUM, true), (names::RUNNING, true), (names::TEMPLATE, false)] {
        let [before, after] = [before, after].map(|template| &template["metadata"]["annotations"][key]);
        assert_eq!(before == after, stays, "{key}");
    }
}

#[test]
fn a_secret_of_the_cluster_is_another_template_and_no_reason_for_a_restart() {
    let own =
        validated(&with("/spec/pod", json!({ "imagePullSecrets": [{ "name": "own" }, { "name": "both" }] })));
    for (wish, expected) in
        [(validated(&resource(1)), &["both", "mirror"][..]), (own, &["own", "both", "mirror"][..])]
    {
        let of_cluster = ["both", "mirror", "mirror"].map(str::to_owned).to_vec();
        let given = Validated { image_pull_secrets: of_cluster, ..wish.clone() };
        let [before, after] = [&wish, &given].map(|wish| {
            let mut body = stateful_set(wish, "n", None).body;
            body["spec"]["template"].take()
        });
        let expected: Vec<Value> = expected.iter().map(|name| json!({ "name": name })).collect();
        assert_eq!(after["spec"]["imagePullSecrets"], json!(expected));
        check_restarts_nobody(&before, &after);
    }
}

#[test]
fn a_machine_and_its_firewall_are_asked_for_as_recorded() {
    let (wish, settings) = (validated(&resource(1)), settings());
    let launch = launch(&wish, &settings, &SecurityGroupId::new("sg-1"), 3, "eu-west-1a");
    assert!(launch.instance_profile.is_none(), "the machine has no rights in AWS");
    let given = Settings { instance_profile: Some("kubelet".to_owned()), ..settings.clone() };
    let given = crate::build::launch(&wish, &given, &SecurityGroupId::new("sg-1"), 3, "eu-west-1a");
    assert_eq!(given.instance_profile.as_deref(), Some("kubelet"));
    assert_ne!(given.fingerprint(), launch.fingerprint(), "under one token it would be refused");
    let told: Value = serde_json::from_str(launch.user_data.expose()).unwrap();
    let tags = |tags: &cloud::Tags| {
        let pairs = tags.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        pairs.collect::<std::collections::BTreeMap<_, _>>()
    };
    let group = security_group(&wish.subject, &settings);
    let asked = json!({
        "machine": {
            "image": launch.image,
            "instanceType": launch.instance_type,
            "subnet": launch.subnet,
            "securityGroups": launch.security_groups.iter().map(SecurityGroupId::as_str).collect::<Vec<_>>(),
            "userData": told,
            "tags": tags(&launch.tags),
        },
        "firewall": {
            "name": group.name,
            "vpc": group.vpc,
            "description": group.description,
            "tags": tags(&group.tags),
        },
    });
    insta::assert_yaml_snapshot!("machine", asked);
}
