//! What can be wished of a database, as flags, and as the body of a request. Pure; the API judges the values.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Map, Value, json};
use wire::http::database::{ComputeWish, NetworkWish, StorageWish};
use wire::http::{CreateDatabase, UpdateDatabase};

use crate::cli::pair;
use crate::error::Error;

/// Wishes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(super) struct Wishes {
    /// Version of the database
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// EC2 instance type, such as m7i.large; another one for a living database is a move, which stops it for a short time
    #[arg(long, value_name = "TYPE")]
    instance_type: Option<String>,
    /// Size of the volume in GiB; it grows, or is taken back to no less than the disk has
    #[arg(long, value_name = "GIB")]
    size_gib: Option<i64>,
    /// EBS volume type, such as gp3
    #[arg(long, value_name = "TYPE")]
    volume_type: Option<String>,
    /// I/O operations a second
    #[arg(long, value_name = "N")]
    iops: Option<i64>,
    /// Throughput in MiB/s
    #[arg(long, value_name = "MIB/S")]
    throughput: Option<i64>,
    /// A key of server.conf; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    config: Vec<(String, String)>,
    /// A range of addresses that may connect; may be repeated
    #[arg(long, value_name = "CIDR")]
    allow_cidr: Vec<String>,
    /// Who can reach it: internal or public
    #[arg(long, value_name = "EXPOSURE")]
    exposure: Option<String>,
    /// What becomes of the volume on delete: retain, snapshot (destroyed once a last copy of it is complete) or delete
    #[arg(long, value_name = "POLICY")]
    deletion_policy: Option<String>,
    /// Nobody may delete it from now on
    #[arg(long, conflicts_with = "no_deletion_protection")]
    deletion_protection: bool,
    /// It may be deleted again
    #[arg(long)]
    no_deletion_protection: bool,
    /// What to do if this fails for good: revert or keep [default: revert]
    #[arg(long, value_name = "WAY")]
    on_failure: Option<String>,
}

impl Wishes {
    /// The body that asks for a database.
    pub(super) fn create(self, name: String, region: String) -> CreateDatabase {
        let UpdateDatabase { version, compute, storage, config, network, deletion_protection, on_failure } =
            self.update(&BTreeMap::new(), &[]);
        CreateDatabase {
            name,
            region,
            version,
            compute,
            storage,
            config,
            network,
            deletion_protection,
            on_failure,
        }
    }

    /// The body that asks for a change. The API takes all keys of server.conf or none: keys that are not named keep their
    /// present values, those to be unset go.
    pub(super) fn update(self, present: &BTreeMap<String, String>, unset: &[String]) -> UpdateDatabase {
        let Self {
            version,
            instance_type,
            size_gib,
            volume_type,
            iops,
            throughput,
            config,
            allow_cidr,
            exposure,
            deletion_policy,
            deletion_protection,
            no_deletion_protection,
            on_failure,
        } = self;
        let compute = ComputeWish { instance_type };
        let storage = StorageWish { size_gib, volume_type, iops, throughput, deletion_policy };
        let network = NetworkWish { allowed_cidrs: some(allow_cidr), exposure };
        UpdateDatabase {
            version,
            compute: wished(compute),
            storage: wished(storage),
            config: keys(config, present, unset),
            network: wished(network),
            deletion_protection: (deletion_protection || no_deletion_protection)
                .then_some(deletion_protection),
            on_failure,
        }
    }
}

impl Wishes {
    /// The same as a merge patch of the custom resource's spec.
    pub(super) fn patch(self, unset: &[String]) -> Result<Value, Error> {
        if self.on_failure.is_some() {
            let message = "--on-failure is for the API alone, and no field of the resource".to_owned();
            return Err(Error::Usage { message, hint: "leave it out".to_owned() });
        }
        let UpdateDatabase { version, compute, storage, network, deletion_protection, .. } =
            self.clone().update(&BTreeMap::new(), &[]);
        let compute = compute.map(|wish| fields([("instanceType", json!(wish.instance_type))]));
        let storage = storage.map(|wish| {
            fields([
                ("sizeGib", json!(wish.size_gib)),
                ("type", json!(wish.volume_type)),
                ("iops", json!(wish.iops)),
                ("throughput", json!(wish.throughput)),
                ("deletionPolicy", json!(wish.deletion_policy.as_deref().map(capital))),
            ])
        });
        let network = network.map(|wish| {
            fields([
                ("allowedCidrs", json!(wish.allowed_cidrs)),
                ("exposure", json!(wish.exposure.as_deref().map(capital))),
            ])
        });
        let mut patch = fields([
            ("version", json!(version)),
            ("compute", json!(compute)),
            ("storage", json!(storage)),
            ("network", json!(network)),
            ("deletionProtection", json!(deletion_protection)),
        ]);
        // Of keys a merge patch takes out what is null, and leaves what it does not name.
        let gone = unset.iter().map(|key| (key.clone(), Value::Null));
        let config: Map<String, Value> =
            gone.chain(self.config.into_iter().map(|(key, value)| (key, json!(value)))).collect();
        if !config.is_empty() {
            patch.insert("config".to_owned(), Value::Object(config));
        }
        Ok(Value::Object(patch))
    }
}

/// An object of what is there.
fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A word as Kubernetes writes it: the API says `retain`, the resource `Retain`.
fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn keys(
    set: Vec<(String, String)>,
    present: &BTreeMap<String, String>,
    unset: &[String],
) -> Option<BTreeMap<String, String>> {
    if set.is_empty() && unset.is_empty() {
        return None;
    }
    let mut keys = present.clone();
    keys.retain(|key, _| !unset.contains(key));
    keys.extend(set);
    Some(keys)
}

/// A group of wishes, unless it is empty.
fn wished<T: Default + PartialEq>(group: T) -> Option<T> {
    (group != T::default()).then_some(group)
}

fn some(list: Vec<String>) -> Option<Vec<String>> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        wishes: Wishes,
    }

    fn wishes(arguments: &[&str]) -> Wishes {
        Line::parse_from([&["x"], arguments].concat()).wishes
    }

    #[test]
    fn nothing_wished_is_nothing_sent() {
        let body = wishes(&[]).create("a".to_owned(), "r".to_owned());
        assert_eq!(serde_json::to_string(&body).unwrap(), r#"{"name":"a","region":"r"}"#);
        assert_eq!(wishes(&[]).update(&BTreeMap::new(), &[]), UpdateDatabase::default());
    }

    #[test]
    fn every_wish_is_sent() {
        let all = wishes(&[
            "--version=9.3.4",
            "--instance-type=m7i.large",
            "--size-gib=50",
            "--volume-type=gp3",
            "--iops=3000",
            "--throughput=125",
            "--config=a=1",
            "--config=b=x=y",
            "--allow-cidr=10.0.0.0/8",
            "--allow-cidr=::/0",
            "--exposure=public",
            "--deletion-policy=delete",
            "--deletion-protection",
            "--on-failure=keep",
        ]);
        insta::assert_json_snapshot!(all.create("trades".to_owned(), "eu-west-1".to_owned()));
    }

    #[test]
    fn a_protection_is_put_on_or_off_and_not_both() {
        let wished = |flags: &[&str]| wishes(flags).update(&BTreeMap::new(), &[]).deletion_protection;
        assert_eq!(wished(&[]), None);
        assert_eq!(wished(&["--deletion-protection"]), Some(true));
        assert_eq!(wished(&["--no-deletion-protection"]), Some(false));
        let both = ["x", "--deletion-protection", "--no-deletion-protection"];
        assert!(Line::try_parse_from(both).is_err());
    }

    #[test]
    fn keys_are_merged_with_those_that_are_there() {
        let present = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let body = wishes(&["--config=b=3", "--config=c=4"]).update(&present, &["a".to_owned()]);
        let expected = [("b", "3"), ("c", "4")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(body.config, Some(BTreeMap::from(expected)));
        assert_eq!(wishes(&[]).update(&present, &[]).config, None);
    }

    #[test]
    fn wishes_are_a_patch_of_the_spec_too() {
        let patch = |flags: &[&str], unset: &[&str]| {
            let unset: Vec<String> = unset.iter().map(|key| (*key).to_owned()).collect();
            wishes(flags).patch(&unset).unwrap()
        };
        assert_eq!(patch(&[], &[]), json!({}));
        let all = patch(
            &[
                "--version=9.3.4",
                "--instance-type=m7i.large",
                "--size-gib=50",
                "--volume-type=gp3",
                "--iops=3000",
                "--throughput=125",
                "--config=a=1",
                "--allow-cidr=10.0.0.0/8",
                "--exposure=public",
                "--deletion-policy=snapshot",
                "--no-deletion-protection",
            ],
            &["b"],
        );
        let expected = json!({
            "version": "9.3.4",
            "compute": { "instanceType": "m7i.large" },
            "storage": {
                "sizeGib": 50, "type": "gp3", "iops": 3000, "throughput": 125, "deletionPolicy": "Snapshot",
            },
            "config": { "a": "1", "b": null },
            "network": { "allowedCidrs": ["10.0.0.0/8"], "exposure": "Public" },
            "deletionProtection": false,
        });
        assert_eq!(all, expected);
        assert_eq!(
            patch(&["--config=a=1"], &["a"]),
            json!({ "config": { "a": "1" } }),
            "as an update has it"
        );
        assert!(wishes(&["--on-failure=keep"]).patch(&[]).is_err());
    }
}
