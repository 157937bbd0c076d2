//! Every case of the fence, by the same rules that the API server runs.

use serde_json::{Value, json};

use super::*;
use crate::{QuestDB, QuestDBSpec};

fn spec(epoch: i64, seq: i64, render: i64) -> Value {
    json!({
        "instruction": {
            "id": "i", "databaseId": "0192f3a4-5b6c-7d8e-9f00-112233445566",
            "epoch": epoch, "seq": seq, "render": render, "hash": "h",
        },
        "runState": "Running",
        "version": "9.3.4",
        "compute": { "instanceType": "m7i.large" },
        "storage": { "sizeGib": 50, "type": "gp3", "iops": 3000, "throughput": 125, "provisioned": false, "deletionPolicy": "Retain" },
        "network": { "exposure": "Internal" },
    })
}

fn with(mut spec: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    spec.pointer_mut(parent).unwrap()[key] = value;
    spec
}

fn without(mut spec: Value, key: &str) -> Value {
    spec.as_object_mut().unwrap().remove(key);
    spec
}

/// `Ok` when the write passes, else the messages of all rules that refuse it.
fn write(new: &Value, old: &Value) -> Result<(), String> {
    QuestDBSpec::validate_cel(new, Some(old)).map_err(|errors| {
        let texts: Vec<String> = errors.into_vec().into_iter().map(|error| error.message).collect();
        texts.join("; ")
    })
}

#[test]
fn forward_passes() {
    let old = spec(2, 5, 3);
    for new in [spec(2, 6, 3), spec(2, 6, 0), spec(3, 1, 0), spec(2, 5, 4)] {
        assert_eq!(write(&new, &old), Ok(()), "{new}");
    }
}

#[test]
fn what_is_protected_is_never_deleted_whatever_was_there_before() {
    let wish = |seq: i64, run_state: &str, protection: Option<bool>| {
        let mut spec = with(spec(1, seq, 1), "/runState", json!(run_state));
        if let Some(protection) = protection {
            spec["deletionProtection"] = json!(protection);
        }
        spec
    };
    let states = ["Running", "Paused", "Deleted", "Purged"];
    let before = [None, Some(false), Some(true)];
    for (from, to) in states.iter().flat_map(|from| states.map(|to| (*from, to))) {
        for (was, is) in before.iter().flat_map(|was| before.map(|is| (*was, is))) {
            // What is purged stays so, by a rule of its own.
            if from == "Purged" && to != "Purged" {
                continue;
            }
            let (old, new) = (wish(1, from, was), wish(2, to, is));
            let refused = is == Some(true) && ["Deleted", "Purged"].contains(&to);
            let said = write(&new, &old);
            assert_eq!(said.is_err(), refused, "{from} {was:?} to {to} {is:?}: {said:?}");
            if refused {
                assert!(said.unwrap_err().contains("set spec.deletionProtection to false first"));
            }
            let made = QuestDBSpec::validate_cel(&new, None);
            assert_eq!(made.is_err(), refused, "made as {to} {is:?}: {made:?}");
        }
    }
}

#[test]
fn a_source_is_one_thing_and_stays_it() {
    let source = |source: Value| with(spec(1, 1, 1), "/storage/source", source);
    let next = |mut spec: Value| {
        spec["instruction"]["seq"] = json!(2);
        spec
    };
    let snapshot = source(json!({ "snapshot": "nightly" }));
    assert_eq!(write(&next(snapshot.clone()), &snapshot), Ok(()));
    let others = [
        json!({ "snapshot": "weekly" }),
        json!({ "snapshotId": "snap-0123456789abcdef0" }),
        json!({ "snapshot": "nightly", "volumeId": "vol-0123456789abcdef0" }),
        json!({}),
    ];
    for other in others {
        assert!(write(&next(source(other.clone())), &snapshot).is_err(), "{other}");
    }
    for (new, old) in [(spec(1, 2, 1), &snapshot), (next(snapshot.clone()), &spec(1, 1, 1))] {
        assert!(write(&new, old).unwrap_err().contains("spec.storage.source is immutable"));
    }
    for (given, good) in [
        (json!({}), false),
        (json!({ "snapshot": "a" }), true),
        (json!({ "snapshotId": "snap-01234567" }), true),
        (json!({ "volumeId": "vol-01234567" }), true),
        (json!({ "snapshot": "a", "snapshotId": "snap-01234567" }), false),
    ] {
        let answer = crate::StorageSource::validate_cel(&given, None);
        assert_eq!(answer.is_ok(), good, "{given}: {answer:?}");
    }
}

#[test]
fn the_same_again_passes() {
    assert_eq!(write(&spec(2, 5, 3), &spec(2, 5, 3)), Ok(()));
}

#[test]
fn backward_is_refused_and_names_the_holder() {
    let old = spec(2, 5, 3);
    for new in [spec(2, 4, 9), spec(1, 99, 9), spec(2, 5, 2)] {
        let refusal = write(&new, &old).unwrap_err();
        assert_eq!(holder(&refusal).map(|holder| (holder.epoch, holder.seq)), Some((2, 5)), "{refusal}");
    }
}

#[test]
fn the_same_position_with_other_content_is_refused() {
    let old = spec(2, 5, 3);
    let other_content = with(spec(2, 5, 3), "/version", json!("9.9.9"));
    let other_hash = with(spec(2, 5, 3), "/instruction/hash", json!("x"));
    for new in [other_content, other_hash] {
        assert!(write(&new, &old).is_err(), "{new}");
    }
}

#[test]
fn leaving_the_instruction_out_is_refused() {
    assert!(write(&without(spec(2, 5, 3), "instruction"), &spec(2, 5, 3)).is_err());
}

#[test]
fn a_plain_resource_can_be_adopted_and_changed() {
    let plain = without(spec(1, 1, 1), "instruction");
    assert_eq!(write(&spec(1, 1, 1), &plain), Ok(()));
    assert_eq!(write(&with(plain.clone(), "/version", json!("9.9.9")), &plain), Ok(()));
}

#[test]
fn a_resource_serves_one_database_for_life() {
    let other = with(spec(2, 6, 3), "/instruction/databaseId", json!("0192f3a4-5b6c-7d8e-9f00-ffffffffffff"));
    assert!(write(&other, &spec(2, 5, 3)).unwrap_err().contains("databaseId is immutable"));
}

#[test]
fn the_zone_is_immutable_and_so_is_its_absence() {
    let none = spec(1, 2, 0);
    let zoned = |zone: &str, seq| with(spec(1, seq, 0), "/zone", json!(zone));
    assert_eq!(write(&zoned("a", 3), &zoned("a", 2)), Ok(()));
    for (new, old) in
        [(zoned("b", 3), zoned("a", 2)), (zoned("a", 3), none.clone()), (spec(1, 3, 0), zoned("a", 2))]
    {
        assert!(write(&new, &old).unwrap_err().contains("spec.zone is immutable"), "{new}");
    }
}

#[test]
fn a_size_grows_or_goes_back_to_no_less_than_the_disk_has() {
    let disk = |size: u32| json!({ "volume": { "id": "vol-1", "sizeGib": size, "state": "in-use" } });
    let sized = |size: u32, seq: i64, has: Option<u32>| {
        let mut found = resource(&has.map_or_else(|| json!({}), disk));
        found.spec.instruction.as_mut().unwrap().seq = seq;
        found.spec.storage.size_gib = size;
        found
    };
    for (from, to, has, taken) in [
        (50, 51, None, true),
        (50, 50, None, true),
        (50, 49, None, false),
        (50, 5_000, Some(50), true),
        (50, 49, Some(50), false),
        (5_000, 500, None, false),
        (5_000, 500, Some(50), true),
        (5_000, 50, Some(50), true),
        (5_000, 49, Some(50), false),
        (5_000, 500, Some(5_000), false),
    ] {
        let said = sized(to, 6, has).validate_cel_update(&sized(from, 5, has));
        let said = said.map_err(|errors| format!("{errors:?}"));
        assert_eq!(said.is_ok(), taken, "{from} to {to}, and the disk has {has:?}: {said:?}");
        assert!(said.err().is_none_or(|text| text.contains("can only grow")));
    }
}

#[test]
fn what_ebs_would_refuse_is_refused_by_the_rules_of_the_catalogue() {
    let numbers = [2_999_u32, 3_000, 5_000, 5_001, 10_000, 10_001, 80_000, 80_001, 99, 100, 256_000];
    for limits in domain::catalogue::VOLUMES {
        for size in [10, 160, 16_384] {
            for (iops, throughput) in
                numbers.iter().flat_map(|iops| [125, 1_250, 2_000].map(|most| (*iops, most)))
            {
                let storage = json!({ "sizeGib": size, "type": limits.name, "iops": iops, "throughput": throughput,
                    "provisioned": false, "deletionPolicy": "Retain" });
                let passes = crate::StorageSpec::validate_cel(&storage, None).is_ok();
                assert_eq!(passes, limits.refusals(size, iops, throughput).is_empty(), "{storage}");
            }
        }
    }
}

#[test]
fn what_was_provisioned_stays_so() {
    let provisioned = |value: bool, seq| with(spec(1, seq, 0), "/storage/provisioned", json!(value));
    assert_eq!(write(&provisioned(true, 3), &provisioned(false, 2)), Ok(()));
    assert!(
        write(&provisioned(false, 3), &provisioned(true, 2)).unwrap_err().contains("cannot be taken back")
    );
}

#[test]
fn purged_is_final() {
    let state = |value: &str, seq| with(spec(1, seq, 0), "/runState", json!(value));
    assert_eq!(write(&state("Running", 3), &state("Deleted", 2)), Ok(()));
    assert!(write(&state("Running", 3), &state("Purged", 2)).unwrap_err().contains("Purged is final"));
}

fn resource(status: &Value) -> QuestDB {
    serde_json::from_value(json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB", "metadata": { "name": "a" },
        "spec": spec(2, 5, 3), "status": status,
    }))
    .unwrap()
}

#[test]
fn the_instruction_in_status_never_goes_back() {
    let at = |epoch: i64, seq: i64| {
        resource(
            &json!({ "instruction": { "id": "i", "epoch": epoch, "seq": seq, "render": 1, "hash": "h" } }),
        )
    };
    let check = |new: &QuestDB, old: &QuestDB| new.validate_cel_update(old).is_ok();
    assert!(check(&at(2, 5), &at(2, 5)));
    assert!(check(&at(2, 6), &at(2, 5)));
    assert!(check(&at(3, 1), &at(2, 5)));
    assert!(!check(&at(2, 4), &at(2, 5)));
    assert!(!check(&at(1, 9), &at(2, 5)));
    assert!(!check(&resource(&json!({})), &at(2, 5)));
    assert!(check(&at(1, 1), &resource(&json!({}))));
}

#[test]
fn the_identity_is_noted_once_and_for_good() {
    const OURS: &str = "0192f3a4-5b6c-7d8e-9f00-112233445566";
    const OTHER: &str = "0192f3a4-5b6c-7d8e-9f00-ffffffffffff";
    let noted = |id: &str, managed: bool| {
        let mut found = resource(&json!({ "databaseId": id }));
        if !managed {
            found.spec.instruction = None;
        }
        found
    };
    let check =
        |new: &QuestDB, old: &QuestDB| new.validate_cel_update(old).map_err(|errors| format!("{errors:?}"));
    assert_eq!(check(&noted(OURS, true), &resource(&json!({}))), Ok(()));
    assert_eq!(check(&noted(OURS, true), &noted(OURS, false)), Ok(()), "managed from now on");
    assert_eq!(check(&noted(OTHER, false), &noted(OTHER, false)), Ok(()));
    for wrong in [noted(OTHER, false), resource(&json!({}))] {
        assert!(check(&wrong, &noted(OURS, false)).unwrap_err().contains("status.databaseId is immutable"));
    }
    assert!(check(&noted(OTHER, true), &noted(OTHER, false)).unwrap_err().contains("another resource"));
}

#[test]
fn only_the_fence_is_read_as_a_holder() {
    for fence in ["Forbidden: slipway-fence 2/5/abc", "slipway-fence 2/5/abc"] {
        assert_eq!(holder(fence), Some(Holder { epoch: 2, seq: 5, hash: "abc".to_owned() }), "{fence}");
    }
    for other in [
        "",
        "spec.zone is immutable",
        "slipway-fence x/1/h",
        "slipway-fence 1",
        "Invalid value: \"slipway-fence 2/5/abc\": no",
        "Forbidden: of 'slipway-fence 2/5/abc'",
    ] {
        assert_eq!(holder(other), None, "{other}");
    }
}
