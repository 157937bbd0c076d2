//! The objects as recorded: a change of any of them is seen in review.

mod reach;
mod rest;

use cloud::SecurityGroupId;

use super::*;
use crate::fixture::{resource, settings, subject, validated, volume};

#[test]
fn the_manifests_are_as_recorded() {
    let wish = validated(&resource(1));
    let subject = subject();
    insta::assert_yaml_snapshot!("config_map", config_map(&wish).body);
    insta::assert_yaml_snapshot!("secret", secret(&subject).body);
    insta::assert_yaml_snapshot!("service", service(&wish).body);
    insta::assert_yaml_snapshot!("headless", headless(&wish).body);
    insta::assert_yaml_snapshot!("persistent_volume", persistent_volume(&subject, &volume(50)).body);
    insta::assert_yaml_snapshot!("claim", claim(&subject, &volume(50)).body);
    insta::assert_yaml_snapshot!("stateful_set", stateful_set(&wish, "qdb-33445566-g1", None).body);
}

#[test]
fn a_machine_is_protected_tagged_and_told_who_it_is() {
    let wish = validated(&resource(1));
    let launch = launch(&wish, &settings(), &SecurityGroupId::new("sg-1"), 3, "eu-west-1a");
    assert_eq!(launch.protection, cloud::Protection::ON);
    assert_eq!(launch.subnet, "subnet-a");
    assert_eq!(launch.tags.get(cloud::key::GENERATION), Some("3"));
    let data: serde_json::Value = serde_json::from_str(launch.user_data.expose()).unwrap();
    assert_eq!(data["nodeName"], "qdb-33445566-g3");
    assert_eq!(data["taints"][0]["value"], "33445566");
}

#[test]
fn sizes_are_spelt_as_kubernetes_spells_them() {
    for (size, expected) in [(50, "50Gi"), (1_000, "1000Gi"), (1_024, "1Ti"), (16_384, "16Ti")] {
        let body = persistent_volume(&subject(), &volume(size)).body;
        assert_eq!(body.pointer("/spec/capacity/storage").unwrap(), expected);
    }
}

#[test]
fn only_what_needs_a_restart_changes_the_checksum() {
    let wish = validated(&resource(1));
    let before = checksum(&wish, "n");
    let mut other = wish.clone();
    other.storage.size_gib = 99;
    other.allowed_cidrs.clear();
    assert_eq!(checksum(&other, "n"), before);
    other.restart_nonce = Some("again".to_owned());
    assert_ne!(checksum(&other, "n"), before);
    assert_ne!(checksum(&wish, "m"), before);
}

#[test]
fn our_keys_win_and_values_stay_one_line() {
    let mut wish = validated(&resource(1));
    wish.config.insert("metrics.enabled".to_owned(), "false".to_owned());
    wish.config.insert("a.path".to_owned(), " c:\\x".to_owned());
    wish.config.insert("instance.name".to_owned(), "Börse 𝄞".to_owned());
    let text = server_conf(&wish);
    assert!(text.contains("instance.name=B\\u00f6rse \\ud834\\udd1e\n"), "{text}");
    assert!(text.contains("metrics.enabled=true\n") && text.contains("a.path=\\ c:\\\\x\n"), "{text}");
}
