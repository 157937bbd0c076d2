//! Values for unit tests: a machine, settings and a pod like the operator makes them. Not compiled otherwise.

use std::time::Duration;

use cloud::{Instance, InstanceId, InstanceState, Tags, Volume, VolumeKind, VolumeState};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::manifest::Machine;
use crate::settings::{Mode, Network, Settings};
use crate::user_data;

pub(crate) fn settings() -> Settings {
    Settings {
        cluster: "eu".into(),
        region: "eu-west-1".into(),
        stack: "t1".into(),
        mode: Mode::Process,
        network: Network::Namespace,
        data_dir: "/data".into(),
        questdb_lib: Some("/cache/questdb-9.3.0/lib".into()),
        java: "/usr/bin/java".into(),
        heap: "256m".into(),
        node_network: "10.250.0.0/16".into(),
        poll: Duration::from_secs(1),
        lease_renewal: Duration::from_secs(10),
        crash_back_off: (Duration::from_secs(1), Duration::from_mins(5)),
        kubelet_version: "v1.34.4".into(),
        control_url: None,
        snapshots_dir: None,
    }
}

pub(crate) fn instance(id: &str, state: InstanceState) -> Instance {
    Instance {
        id: InstanceId::from(id),
        state,
        state_reason: None,
        zone: "eu-west-1a".into(),
        subnet: None,
        vpc: None,
        private_ip: Some("10.250.0.9".parse().unwrap()),
        instance_type: "m7i.large".into(),
        image: "ami-1".into(),
        security_groups: Vec::new(),
        metadata_guarded: Some(true),
        tags: Tags::default(),
        client_token: None,
        protection: None,
        launched_at: None,
    }
}

pub(crate) fn volume(id: &str) -> Volume {
    Volume {
        id: id.into(),
        state: VolumeState::InUse,
        zone: "z".into(),
        size_gib: 1,
        kind: VolumeKind::Gp3,
        iops: None,
        throughput: None,
        encrypted: false,
        snapshot: None,
        attachments: Vec::new(),
        tags: Tags::default(),
        created_at: None,
    }
}

pub(crate) fn machine(id: &str, node: &str) -> Machine {
    Machine { instance: instance(id, InstanceState::Running), intent: user_data::named(node).unwrap() }
}

/// What prepares the disk of a database that is made from a copy.
pub(crate) fn init_container() -> Container {
    serde_json::from_value(serde_json::json!({
        "name": "restore",
        "image": "questdb/questdb:9.3.0",
        "command": ["/bin/sh", "-ec", "touch \"$ROOT/x\""],
        "env": [{"name": "ROOT", "value": "/var/lib/questdb"}],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/questdb"}]
    }))
    .unwrap()
}

pub(crate) fn pod() -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "db-0", "namespace": "qdb-t", "uid": "u-1", "labels": {"app": "questdb"}},
        "spec": {
            "nodeName": "qdb-1-g1",
            "terminationGracePeriodSeconds": 60,
            "securityContext": {"runAsUser": 10001, "fsGroup": 10001},
            "containers": [{
                "name": "questdb",
                "image": "questdb/questdb:9.3.0",
                "ports": [{"name": "http", "containerPort": 9000}, {"name": "min", "containerPort": 9003}],
                "env": [
                    {"name": "QDB_HTTP_BIND_TO", "value": "0.0.0.0:9000"},
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "QDB_PG_USER", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}
                ],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/var/lib/questdb"},
                    {"name": "config", "mountPath": "/var/lib/questdb/conf/server.conf", "subPath": "server.conf"},
                    {"name": "login", "mountPath": "/etc/questdb/secrets", "readOnly": true}
                ],
                "readinessProbe": {"httpGet": {"path": "/status", "port": "min"}, "periodSeconds": 2},
                "livenessProbe": {"tcpSocket": {"port": 9000}, "failureThreshold": 5, "initialDelaySeconds": 7}
            }],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                {"name": "config", "configMap": {"name": "db-config"}},
                {"name": "login", "secret": {"secretName": "login", "defaultMode": 256}}
            ]
        }
    }))
    .unwrap()
}
