//! Who may write what: the admission policies and the rights of both programs.

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use resources::QuestDB;
use serde_json::json;

use super::rig::{Rig, apply, refusal};

#[tokio::test]
async fn only_the_provisioner_writes_a_managed_spec() {
    let rig = Rig::new().await;
    let status = refusal(apply(&rig.as_admin(), &rig.managed("mine", 1)).await);
    assert!(status.code == 403 && status.message.contains("slipway-managed-spec"), "{status:?}");
    rig.provision(&rig.managed("mine", 1)).await.unwrap();
    for api in [rig.as_admin(), rig.as_operator()] {
        let change = json!({ "spec": { "instruction": { "seq": 9 } } });
        let status = refusal(api.patch("mine", &PatchParams::default(), &Patch::Merge(&change)).await);
        assert_eq!(status.code, 403, "{status:?}");
        let mark = json!({ "metadata": { "annotations": { "note": "of a person" } } });
        api.patch("mine", &PatchParams::default(), &Patch::Merge(&mark)).await.unwrap();
    }
    rig.end().await;
}

#[tokio::test]
async fn what_people_write_themselves_stays_theirs() {
    let rig = Rig::new().await;
    let mut plain = rig.managed("plain", 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    let made = apply(&rig.as_admin(), &plain).await.unwrap();
    assert_eq!(made.spec.version, domain::catalogue::DEFAULT_VERSION, "defaults are filled in");
    plain["spec"]["storage"]["sizeGib"] = json!(30);
    apply(&rig.as_admin(), &plain).await.unwrap();
    rig.as_admin().delete("plain", &DeleteParams::default()).await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn a_managed_resource_goes_only_once_its_database_is_gone() {
    let rig = Rig::new().await;
    rig.provision(&rig.managed("tomb", 1)).await.unwrap();
    let refused = rig.as_admin().delete("tomb", &DeleteParams::default()).await.map(|_| unreachable());
    let status = refusal(refused);
    assert!(status.code == 403 && status.message.contains("slipway-managed-delete"), "{status:?}");
    let phase = json!({ "status": { "phase": "Deleted" } });
    rig.as_admin().patch_status("tomb", &PatchParams::default(), &Patch::Merge(&phase)).await.unwrap();
    rig.as_admin().delete("tomb", &DeleteParams::default()).await.unwrap();
    rig.end().await;
}

fn unreachable() -> QuestDB {
    panic!("a managed resource was deleted before its database was gone")
}

#[tokio::test]
async fn what_is_protected_is_neither_removed_nor_deleted_nor_purged() {
    let rig = Rig::new().await;
    let mut plain = rig.managed("safe", 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    plain["spec"]["deletionProtection"] = json!(true);
    for run_state in ["Deleted", "Purged"] {
        let mut both = plain.clone();
        both["spec"]["runState"] = json!(run_state);
        let status = refusal(apply(&rig.as_admin(), &both).await);
        assert!(status.code == 422 && status.message.contains("exclude each other"), "{status:?}");
    }
    apply(&rig.as_admin(), &plain).await.unwrap();
    let change = |spec: serde_json::Value| {
        let api = rig.as_admin();
        let change = json!({ "spec": spec });
        async move { api.patch("safe", &PatchParams::default(), &Patch::Merge(&change)).await }
    };
    for run_state in ["Deleted", "Purged"] {
        let status = refusal(change(json!({ "runState": run_state })).await);
        assert!(status.code == 422 && status.message.contains("exclude each other"), "{status:?}");
    }
    for delete in [DeleteParams::default(), DeleteParams::foreground(), DeleteParams::orphan()] {
        let refused = rig.as_admin().delete("safe", &delete).await.map(|_| unreachable());
        let status = refusal(refused);
        assert!(status.code == 403 && status.message.contains("slipway-protected-delete"), "{status:?}");
    }
    change(json!({ "deletionProtection": false })).await.unwrap();
    change(json!({ "runState": "Deleted" })).await.unwrap();
    let status = refusal(change(json!({ "deletionProtection": true })).await);
    assert!(status.code == 422 && status.message.contains("exclude each other"), "{status:?}");
    rig.as_admin().delete("safe", &DeleteParams::default()).await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn what_was_carried_out_never_goes_back() {
    let rig = Rig::new().await;
    rig.provision(&rig.managed("status", 7)).await.unwrap();
    let carried = |seq: i64| json!({ "status": { "instruction": { "id": "i", "epoch": 1, "seq": seq, "render": 1, "hash": "h" } } });
    let api = rig.as_admin();
    let write = |seq: i64| {
        let (api, body) = (api.clone(), carried(seq));
        async move { api.patch_status("status", &PatchParams::default(), &Patch::Merge(&body)).await }
    };
    write(6).await.unwrap();
    write(7).await.unwrap();
    let status = refusal(write(6).await);
    assert!(status.code == 422 && status.message.contains("status.instruction cannot go back"), "{status:?}");
    rig.end().await;
}

#[tokio::test]
async fn each_program_has_its_own_rights_and_no_others() {
    let rig = Rig::new().await;
    let code = |error: kube::Error| match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    };
    let secrets: Api<Secret> = Api::namespaced(rig.provisioner.clone(), &rig.namespace);
    assert_eq!(code(secrets.list(&ListParams::default()).await.unwrap_err()), 403);
    let questdbs: Api<QuestDB> = Api::namespaced(rig.provisioner.clone(), &rig.namespace);
    // It removes tombstones, one at a time; what lives the policy keeps from it as from everybody.
    let (all, which) = (DeleteParams::default(), ListParams::default());
    assert_eq!(code(questdbs.delete_collection(&all, &which).await.map(|_| ()).unwrap_err()), 403);
    rig.provision(&rig.managed("living", 1)).await.unwrap();
    let refused = refusal(questdbs.delete("living", &all).await.map(|_| unreachable()));
    assert!(refused.code == 403 && refused.message.contains("slipway-managed-delete"), "{refused:?}");
    let body = json!({ "status": { "phase": "Ready" } });
    let status = questdbs.patch_status("any", &PatchParams::default(), &Patch::Merge(&body)).await;
    assert_eq!(code(status.unwrap_err()), 403);
    let namespaces: Api<Namespace> = Api::all(rig.operator.clone());
    assert_eq!(code(namespaces.list(&ListParams::default()).await.unwrap_err()), 403);
    let mut object: QuestDB = serde_json::from_value(rig.managed("no", 1)).unwrap();
    object.meta_mut().managed_fields = None;
    let made = rig.as_operator().create(&PostParams::default(), &object).await;
    assert_eq!(code(made.unwrap_err()), 403);
    // It replaces a status that it has seen, and nothing less.
    let status =
        rig.as_operator().patch_status("living", &PatchParams::default(), &Patch::Merge(&body)).await;
    assert_eq!(code(status.unwrap_err()), 403);
    let mut seen = rig.as_admin().get("living").await.unwrap();
    seen.status = serde_json::from_value(body["status"].clone()).unwrap();
    rig.as_operator().replace_status("living", &PostParams::default(), &seen).await.unwrap();
    rig.end().await;
}
