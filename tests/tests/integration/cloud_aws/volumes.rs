//! Volumes: tokens, single attachment, growth, tags.

use cloud::{
    AttachmentState, ModificationState, NewVolume, Owner, Role, Select, Tags, Volume, VolumeChange,
    VolumeKind,
};
use serde_json::{Value, json};
use testkit::eventually;

use super::{Corner, DEADLINE, once_visible};
use crate::endpoint;

#[tokio::test]
async fn a_token_makes_one_volume() {
    let corner = Corner::new().await;
    let token = corner.token(Role::Volume, 1);
    let first = corner.create_volume().await;
    assert_eq!(corner.aws.create_volume(&corner.new_volume(), &token).await.unwrap().id, first);
    let larger = NewVolume { size_gib: 11, ..corner.new_volume() };
    let error = corner.aws.create_volume(&larger, &token).await.unwrap_err();
    assert_eq!(error.category(), "parameter_mismatch", "{error:?}");
    let found = corner.aws.describe_volumes(&Select::cluster(&corner.cluster)).await.unwrap();
    assert_eq!(found.len(), 1);
    corner.aws.delete_volume(&first).await.unwrap();
    // It is the answer for as long as it is there, and no other is made in its place.
    let spent = eventually(DEADLINE, "another answer than the volume", async || {
        let answer = corner.aws.create_volume(&corner.new_volume(), &token).await;
        answer.err().filter(|error| error.category() != "throttled")
    })
    .await;
    assert_eq!(spent.category(), "parameter_mismatch", "{spent:?}");
    assert!(spent.call().message.contains("already deleted"), "{spent:?}");
}

#[tokio::test]
async fn a_volume_is_on_one_machine_at_a_time() {
    let corner = Corner::new().await;
    let (first, second) = tokio::join!(corner.run_until_running(1), corner.run_until_running(2));
    let volume = corner.create_volume().await;
    let created = corner.volume(&volume).await.unwrap();
    assert_eq!((created.size_gib, created.kind.clone(), created.encrypted), (10, VolumeKind::Gp3, true));
    assert!(created.is_detached());

    corner.aws.attach_volume(&volume, &first, "/dev/sdf").await.unwrap();
    let attached = |volume: &Volume| {
        volume
            .live_attachments()
            .any(|one| one.state == AttachmentState::Attached && one.device == "/dev/sdf")
    };
    let seen = corner.until_volume(&volume, attached).await;
    assert_eq!((&seen.attachments[0].instance, seen.is_detached()), (&first, false));

    for instance in [&first, &second] {
        let error = corner.aws.attach_volume(&volume, instance, "/dev/sdg").await.unwrap_err();
        assert_eq!(error.category(), "in_use", "{error:?}");
    }
    assert_eq!(corner.aws.delete_volume(&volume).await.unwrap_err().category(), "in_use");
    // A caller who is wrong about where it is takes it from nobody.
    let error = corner.aws.detach_volume(&volume, &second).await.unwrap_err();
    assert!(["not_found", "incorrect_state", "invalid"].contains(&error.category()), "{error:?}");
    assert!(attached(&corner.volume(&volume).await.unwrap()));

    corner.aws.detach_volume(&volume, &first).await.unwrap();
    corner.until_volume(&volume, Volume::is_detached).await;
    let error = corner.aws.detach_volume(&volume, &first).await.unwrap_err();
    assert!(["not_found", "incorrect_state"].contains(&error.category()), "{error:?}");
    corner.aws.attach_volume(&volume, &second, "/dev/sdf").await.unwrap();
    corner.until_volume(&volume, attached).await;

    corner.end(&second).await;
    corner.end(&first).await;
    corner.until_volume(&volume, Volume::is_detached).await;
    corner.aws.delete_volume(&volume).await.unwrap();
    eventually(DEADLINE, "the volume gone", async || corner.volume(&volume).await.is_none().then_some(()))
        .await;
}

#[tokio::test]
async fn a_volume_grows_as_often_as_aws_lets_it() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    for size in 11..=14 {
        let change = VolumeChange { size_gib: Some(size), ..VolumeChange::default() };
        corner.aws.modify_volume(&volume, &change).await.unwrap();
        let volumes = [volume.clone()];
        let modified = eventually(DEADLINE, "the modification completed", async || {
            let found = corner.aws.describe_volume_modifications(&volumes).await.unwrap().pop()?;
            (found.state == ModificationState::Completed && found.leads_to(&change)).then_some(found)
        });
        assert!(!modified.await.state.is_under_way());
        corner.until_volume(&volume, |volume| volume.size_gib == size).await;
    }
    let once_more = VolumeChange { size_gib: Some(15), ..VolumeChange::default() };
    let error = corner.aws.modify_volume(&volume, &once_more).await.unwrap_err();
    assert_eq!(error.category(), "too_soon", "{error:?}");
    corner.aws.delete_volume(&volume).await.unwrap();
}

#[tokio::test]
async fn a_volume_that_is_still_changing_is_not_changed_again() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let change = |size| VolumeChange { size_gib: Some(size), ..VolumeChange::default() };
    // However long the second request takes to come.
    let held = json!({"kind": "stick", "transition": "volume-modifying", "contains": volume.as_str()});
    let stuck = endpoint::fault(&held).await;
    corner.aws.modify_volume(&volume, &change(11)).await.unwrap();
    let error = corner.aws.modify_volume(&volume, &change(12)).await.unwrap_err();
    assert_eq!(error.category(), "too_soon", "{error:?}");
    endpoint::control("DELETE", &format!("/faults/{stuck}"), &Value::Null).await;
    corner.aws.delete_volume(&volume).await.unwrap();
}

#[tokio::test]
async fn tags_are_added_and_others_stay() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let generation = Tags::new().with("questdb.io/generation", "7");
    once_visible(async || corner.aws.create_tags(&[volume.as_str()], &generation).await).await.unwrap();
    let seen = corner.volume(&volume).await.unwrap().tags;
    assert_eq!(Owner::parse(&seen).unwrap().unwrap().generation, Some(7));
    assert_eq!(seen.get("Name"), corner.new_volume().tags.get("Name"));
    corner.aws.delete_volume(&volume).await.unwrap();
}
