//! Values for unit tests: a cluster's settings and resources as people and the provisioner write them.

use std::collections::BTreeMap;

use cloud::{Instance, InstanceId, InstanceState, Role, Volume, VolumeId, VolumeKind, VolumeState};
use domain::catalogue::{InstanceTypes, Repository};
use resources::{QuestDB, QuestDBStatus, names};
use serde_json::{Value, json};

use crate::{Neighbours, Settings, Subject, Validated, validate};

pub(crate) const DATABASE: &str = "0192f3a4-5b6c-7d8e-9f00-112233445566";

pub(crate) fn settings() -> Settings {
    Settings {
        cluster: "eu-west-1".to_owned(),
        hosted_zone: "Z1".to_owned(),
        dns_suffix: "eu.example.com".to_owned(),
        vpc: "vpc-1".to_owned(),
        zones: BTreeMap::from([
            ("eu-west-1a".to_owned(), "subnet-a".to_owned()),
            ("eu-west-1b".to_owned(), "subnet-b".to_owned()),
        ]),
        node_image: "ami-1".to_owned(),
        instance_profile: None,
        versions: "9.3.4,9.3.5,9.4.0,9.4.1,10.0.0,10.0.1,10.0.2".parse().unwrap(),
        questdb_image: Repository::default(),
        image_pull_secrets: Vec::new(),
        instance_types: InstanceTypes::default(),
        neighbours: Neighbours {
            operator_namespace: "slipway-system".to_owned(),
            operator_cidrs: Vec::new(),
            scraper_namespaces: vec!["monitoring".to_owned()],
            ingress_namespaces: vec!["traefik".to_owned()],
            ingress_suffix: "apps.example.com".to_owned(),
            cluster_cidrs: Vec::new(),
        },
    }
}

pub(crate) fn value(seq: i64) -> Value {
    json!({
        "apiVersion": "crd.questdb.io/v1",
        "kind": "QuestDB",
        "metadata": { "name": "trades-33445566", "namespace": "qdb-acme", "uid": "uid-1", "generation": seq,
            "resourceVersion": "1" },
        "spec": {
            "instruction": { "id": "i-1", "databaseId": DATABASE, "epoch": 1, "seq": seq, "render": 1, "hash": "h" },
            "runState": "Running",
            "version": "9.3.4",
            "compute": { "instanceType": "m7i.large" },
            "storage": { "sizeGib": 50, "type": "gp3", "iops": 3000, "throughput": 125, "provisioned": false,
                "deletionPolicy": "Retain" },
            "config": { "cairo.max.uncommitted.rows": "1000" },
            "network": { "hostname": "trades-33445566.eu.example.com", "allowedCidrs": ["10.0.0.0/8"],
                "exposure": "Internal" },
        },
    })
}

pub(crate) fn resource(seq: i64) -> QuestDB {
    serde_json::from_value(value(seq)).unwrap()
}

pub(crate) fn with(pointer: &str, new: Value) -> QuestDB {
    let mut value = value(1);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[key] = new;
    serde_json::from_value(value).unwrap()
}

pub(crate) fn subject() -> Subject {
    Subject::of(&resource(1), &settings()).unwrap()
}

pub(crate) fn validated(resource: &QuestDB) -> Validated {
    validate(resource, Subject::of(resource, &settings()).unwrap(), &settings()).unwrap()
}

/// The same as people write it, with an identity that was minted for it.
pub(crate) fn plain() -> QuestDB {
    let mut plain = resource(1);
    plain.spec.instruction = None;
    let annotations = plain.metadata.annotations.get_or_insert_default();
    annotations.insert(names::ADOPTED_ID.to_owned(), DATABASE.to_owned());
    plain.status = Some(QuestDBStatus { database_id: Some(DATABASE.to_owned()), ..QuestDBStatus::default() });
    plain
}

pub(crate) fn volume(size_gib: u32) -> Volume {
    Volume {
        id: VolumeId::new("vol-1"),
        state: VolumeState::Available,
        zone: "eu-west-1a".to_owned(),
        size_gib,
        kind: VolumeKind::Gp3,
        iops: Some(3_000),
        throughput: Some(125),
        encrypted: true,
        snapshot: None,
        attachments: Vec::new(),
        tags: subject().owner(Role::Volume).tags(),
        created_at: None,
    }
}

pub(crate) fn instance() -> Instance {
    Instance {
        id: InstanceId::new("i-1"),
        state: InstanceState::Running,
        state_reason: None,
        zone: "eu-west-1a".to_owned(),
        subnet: None,
        vpc: None,
        private_ip: None,
        instance_type: "m7i.large".to_owned(),
        image: "ami-1".to_owned(),
        security_groups: Vec::new(),
        metadata_guarded: Some(true),
        tags: subject().owner(Role::Instance).tags(),
        client_token: None,
        protection: None,
        launched_at: None,
    }
}
