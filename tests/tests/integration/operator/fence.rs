//! The fence, as the API server keeps it.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use resources::fence;
use serde_json::{Value, json};

use super::rig::{Rig, refusal};

#[tokio::test]
async fn a_spec_only_moves_forward() {
    let rig = Rig::new().await;
    let at = |seq: i64| rig.managed("forward", seq);
    let first = rig.provision(&at(5)).await.unwrap();
    let again = rig.provision(&at(5)).await.unwrap();
    assert_eq!(
        again.metadata.resource_version, first.metadata.resource_version,
        "the same again changes nothing"
    );
    assert!(rig.provision(&at(6)).await.is_ok());

    let mut other_content = at(6);
    other_content["spec"]["storage"]["sizeGib"] = json!(21);
    let mut lower_render = at(6);
    lower_render["spec"]["instruction"]["render"] = json!(0);
    let mut without = at(7);
    without["spec"].as_object_mut().unwrap().remove("instruction");
    for refused in [at(5), at(4), other_content, lower_render, without] {
        let status = refusal(rig.provision(&refused).await);
        assert_eq!(status.code, 422, "{status:?}");
        let causes = status.details.unwrap().causes;
        let holder = causes.iter().find_map(|cause| fence::holder(&cause.message)).unwrap();
        assert_eq!((holder.epoch, holder.seq, holder.hash.as_str()), (1, 6, "h6"));
        assert!(causes.iter().any(|cause| cause.reason == "FieldValueForbidden" && cause.field == "spec"));
    }
    let mut higher_render = at(6);
    higher_render["spec"]["instruction"]["render"] = json!(2);
    assert!(rig.provision(&higher_render).await.is_ok());
    rig.end().await;
}

#[tokio::test]
async fn other_ways_of_writing_meet_the_same_fence() {
    let rig = Rig::new().await;
    rig.provision(&rig.managed("merged", 5)).await.unwrap();
    let api = Api::<resources::QuestDB>::namespaced(rig.provisioner.clone(), &rig.namespace);
    let merge = |body: Value| {
        let api = api.clone();
        async move { api.patch("merged", &PatchParams::default(), &Patch::Merge(&body)).await }
    };
    for body in [
        json!({ "spec": { "instruction": null } }),
        json!({ "spec": null }),
        json!({ "spec": { "version": "9.9.9" } }),
        json!({ "spec": { "instruction": { "seq": 4 } } }),
    ] {
        let status = refusal(merge(body.clone()).await);
        assert_eq!(status.code, 422, "{body}: {status:?}");
    }
    rig.end().await;
}

#[tokio::test]
async fn a_size_that_nobody_carries_out_goes_back_to_no_less_than_the_disk_has() {
    let rig = Rig::new().await;
    let at = |seq: i64, size: u32| {
        let mut object = rig.managed("resized", seq);
        object["spec"]["storage"]["sizeGib"] = json!(size);
        object
    };
    let refused = async |object: &Value| {
        let status = refusal(rig.provision(object).await);
        let causes = status.details.unwrap().causes;
        let [cause] = &causes[..] else { panic!("{causes:?}") };
        assert!(cause.message.contains("can only grow"), "{cause:?}");
        assert_eq!(cause.field, "spec.storage.sizeGib");
    };
    let disk = |size: u32| json!({ "volume": { "id": "vol-1", "sizeGib": size, "state": "in-use" } });
    let told = async |size: u32| {
        let status = Patch::Merge(json!({ "status": disk(size) }));
        rig.as_admin().patch_status("resized", &PatchParams::default(), &status).await.unwrap();
    };

    rig.provision(&at(1, 5_000)).await.unwrap();
    refused(&at(2, 500)).await;
    // Who writes the spec has no say in what the disk has.
    let mut claimed = at(2, 500);
    claimed["status"] = disk(50);
    refused(&claimed).await;

    told(50).await;
    refused(&at(2, 49)).await;
    for (seq, size) in [(2, 500), (3, 50), (4, 50), (5, 5_000)] {
        assert!(rig.provision(&at(seq, size)).await.is_ok(), "{size}");
    }
    told(60).await;
    refused(&at(6, 59)).await;
    assert!(rig.provision(&at(6, 60)).await.is_ok());
    // An older wish is taken no more than before.
    let status = refusal(rig.provision(&at(5, 5_000)).await);
    assert!(status.message.contains("slipway-fence 1/6/"), "{status:?}");
    rig.end().await;
}

#[tokio::test]
async fn a_field_that_no_schema_has_is_refused() {
    let rig = Rig::new().await;
    let mut unknown = rig.managed("nonsense", 1);
    unknown["spec"]["colour"] = json!("blue");
    let status = refusal(rig.provision(&unknown).await);
    assert!(status.message.contains("field not declared in schema"), "{status:?}");

    // Nor is it dropped for who wants no warnings of the API server, as the operator when it applies.
    let parameters = PatchParams::apply("somebody").force().validation_ignore();
    let databases = Api::<resources::QuestDB>::namespaced(rig.provisioner.clone(), &rig.namespace);
    let status = refusal(databases.patch("nonsense", &parameters, &Patch::Apply(&unknown)).await);
    assert!(status.message.contains("field not declared in schema"), "{status:?}");
    let services = Api::<Service>::namespaced(rig.admin.clone(), &rig.namespace);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "nonsense" },
        "spec": { "clusterIP": "None", "colour": "blue" },
    });
    let status = refusal(services.patch("nonsense", &parameters, &Patch::Apply(&service)).await);
    assert!(
        status.message.ends_with(", Kind=Service): .spec.colour: field not declared in schema"),
        "{status:?}"
    );

    // By these words, and by nothing else, the operator knows what lacks which fields. Of those beside each other one is named.
    unknown["spec"].as_object_mut().unwrap().remove("colour");
    for part in ["instruction", "storage"] {
        unknown["spec"][part]["colour"] = json!("blue");
    }
    let status = refusal(rig.provision(&unknown).await);
    let (head, fields) = status.message.split_once('\n').unwrap();
    let object = format!("{}/nonsense; crd.questdb.io/v1, Kind=QuestDB", rig.namespace);
    assert_eq!(head, format!("failed to create typed patch object ({object}): errors:"));
    let mut fields: Vec<&str> = fields.lines().collect();
    fields.sort_unstable();
    let lacking = |part: &str| format!("  .spec.{part}.colour: field not declared in schema");
    assert_eq!(fields, [lacking("instruction"), lacking("storage")]);
    rig.end().await;
}
