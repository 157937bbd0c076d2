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
