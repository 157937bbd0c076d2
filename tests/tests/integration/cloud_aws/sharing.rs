//! Describes: what is absent, and how many requests many questions cost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::cloud_aws::Settings;
use cloud::{
    Batching, ClusterView, Error, InstanceId, Lookup, ResourceKind, SecurityGroupId, Select, VolumeId,
};
use serde_json::json;

use testkit::eventually;

use super::{Corner, DEADLINE, Fault};

#[tokio::test]
async fn what_is_not_there_is_absent_from_a_describe_and_not_found_by_a_change() {
    let corner = Corner::new().await;
    let (instance, volume) = (InstanceId::new("i-0123456789abcdef0"), VolumeId::new("vol-0123456789abcdef0"));
    let group = SecurityGroupId::new("sg-0123456789abcdef0");
    assert_eq!(corner.instance(&instance).await, None);
    assert_eq!(corner.volume(&volume).await, None);
    assert!(
        corner.aws.describe_volume_modifications(std::slice::from_ref(&volume)).await.unwrap().is_empty()
    );
    assert!(corner.aws.describe_security_groups(&Select::one(group.clone())).await.unwrap().is_empty());
    assert_eq!(corner.aws.find_security_group(&corner.vpc, "no-such-group").await.unwrap(), None);
    assert!(corner.aws.describe_instances(&Select::cluster(&corner.cluster)).await.unwrap().is_empty());

    let check = |error: Error, kind| assert!(error.is_not_found(kind), "{error:?}");
    check(corner.aws.terminate_instance(&instance).await.unwrap_err(), ResourceKind::Instance);
    check(corner.aws.stop_instance(&instance).await.unwrap_err(), ResourceKind::Instance);
    check(corner.aws.describe_protection(&instance).await.unwrap_err(), ResourceKind::Instance);
    check(corner.aws.delete_volume(&volume).await.unwrap_err(), ResourceKind::Volume);
    check(corner.aws.delete_security_group(&group).await.unwrap_err(), ResourceKind::SecurityGroup);
    check(corner.aws.list_records(&"ZNOSUCHZONE".into(), "a").await.unwrap_err(), ResourceKind::HostedZone);
}

#[tokio::test]
async fn a_batch_with_a_stale_id_still_answers_for_the_others() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let both = Select::Ids(vec![VolumeId::new("vol-0123456789abcdef0"), volume.clone()]);
    let found = corner.aws.describe_volumes(&both).await.unwrap();
    assert_eq!(found.iter().map(|found| &found.id).collect::<Vec<_>>(), [&volume]);
    corner.aws.delete_volume(&volume).await.unwrap();
}

#[tokio::test]
async fn many_questions_are_few_requests() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let before = corner.called("DescribeVolumes");
    let lookup = lookup(&corner);
    let ids: Vec<_> = (0..299).map(|number| VolumeId::new(format!("vol-{number:017x}"))).collect();
    let questions = ids.iter().chain([&volume]).map(|id| lookup.volume(id));
    let answers = futures::future::join_all(questions).await;
    let found: Vec<_> = answers.into_iter().filter_map(Result::unwrap).map(|found| found.id).collect();
    assert_eq!(found, std::slice::from_ref(&volume));
    assert_eq!(corner.called("DescribeVolumes") - before, 3);
    corner.aws.delete_volume(&volume).await.unwrap();
}

#[tokio::test]
async fn what_databases_have_is_asked_for_together() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let before = ["DescribeVolumes", "DescribeInstances"].map(|call| corner.called(call));
    let lookup = lookup(&corner);
    let names: Vec<String> = (0..20).map(|number| format!("db{number}")).collect();
    let disks = futures::future::join_all(names.iter().map(|name| lookup.disks_of(name))).await;
    for (name, disks) in names.iter().zip(disks) {
        let found: Vec<_> = disks.unwrap().into_iter().map(|one| one.id).collect();
        let expected = if name == "db1" { std::slice::from_ref(&volume) } else { &[] };
        assert_eq!(found, expected, "{name}");
    }
    let machines = futures::future::join_all(names.iter().map(|name| lookup.machines_of(name))).await;
    assert!(machines.into_iter().all(|machines| machines.unwrap().is_empty()));
    let asked = ["DescribeVolumes", "DescribeInstances"].map(|call| corner.called(call));
    assert_eq!(asked, before.map(|before| before + 1));

    // Nothing of it is known to who asks later.
    corner.aws.delete_volume(&volume).await.unwrap();
    eventually(DEADLINE, "a look without the volume", async || {
        lookup.disks_of("db1").await.unwrap().is_empty().then_some(())
    })
    .await;
}

fn lookup(corner: &Corner) -> Lookup {
    let batching = Batching { window: Duration::from_millis(200), ..Batching::default() };
    Lookup::new(&corner.aws, &corner.cluster, batching)
}

#[tokio::test]
async fn one_picture_serves_all_who_ask_at_once() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let view = ClusterView::new(Arc::clone(&corner.aws), &corner.cluster, DEADLINE);
    let before = corner.called("DescribeVolumes");
    let asking = (0..1000).map(|_| view.at_most(Duration::from_mins(1)));
    let pictures = futures::future::join_all(asking).await;
    for picture in pictures {
        let picture = picture.unwrap();
        assert_eq!(picture.volumes("db1").iter().map(|one| &one.id).collect::<Vec<_>>(), [&volume]);
        assert_eq!(picture.databases().into_iter().collect::<HashSet<_>>(), HashSet::from(["db1"]));
    }
    assert_eq!(corner.called("DescribeVolumes") - before, 1);

    // Who wants to see his own last write gets a picture that was begun after it.
    corner.aws.delete_volume(&volume).await.unwrap();
    eventually(DEADLINE, "a picture without the volume", async || {
        let picture = view.taken_after(Instant::now()).await.unwrap();
        picture.volumes("db1").is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn pictures_of_everything_are_not_taken_right_after_each_other() {
    let corner = Corner::new().await;
    let view = ClusterView::new(Arc::clone(&corner.aws), &corner.cluster, DEADLINE);
    let (before, began) = (corner.called("DescribeVolumes"), Instant::now());
    for _ in 0..11 {
        let moment = Instant::now();
        assert!(view.taken_after(moment).await.unwrap().as_of() >= moment, "it shows the past");
    }
    assert_eq!(corner.called("DescribeVolumes") - before, 11);
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_picture_that_cannot_be_taken_fails_once_for_all_who_wait() {
    let corner = Corner::with(|settings| Settings { attempts: 1, ..settings }).await;
    let view = ClusterView::new(Arc::clone(&corner.aws), &corner.cluster, DEADLINE);
    let contains = corner.cluster.as_str();
    let fault =
        json!({"kind": "fail", "action": "DescribeVolumes", "code": "InternalError", "contains": contains});
    let fault = Fault::new(fault).await;
    let asking = (0..100).map(|_| view.at_most(Duration::from_mins(1)));
    let pictures = futures::future::join_all(asking).await;
    assert!(pictures.iter().all(|picture| picture.as_ref().is_err_and(Error::outcome_unknown)));
    assert_eq!(corner.called("DescribeVolumes"), 1);
    fault.end().await;
    view.at_most(Duration::from_mins(1)).await.unwrap();
}

#[tokio::test]
async fn pictures_of_a_few_databases_travel_together_and_leave_the_others_out() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let view = ClusterView::new(Arc::clone(&corner.aws), &corner.cluster, DEADLINE);
    let before = corner.called("DescribeVolumes");
    let names: Vec<String> = (0..20).map(|number| format!("db{number}")).collect();
    let now = Instant::now();
    let pictures = futures::future::join_all(names.iter().map(|name| view.of(name, now))).await;
    for (name, picture) in names.iter().zip(pictures) {
        let picture = picture.unwrap();
        let found: Vec<_> = picture.volumes.iter().map(|one| &one.id).collect();
        assert_eq!(found, if name == "db1" { vec![&volume] } else { Vec::new() }, "{name}");
        assert!(picture.as_of >= now);
    }
    assert_eq!(corner.called("DescribeVolumes") - before, 1);

    // What was seen a moment ago serves until somebody wrote; a whole picture serves too.
    view.of("db1", now).await.unwrap();
    assert_eq!(corner.called("DescribeVolumes") - before, 1);
    corner.aws.delete_volume(&volume).await.unwrap();
    eventually(DEADLINE, "a picture without the volume", async || {
        view.of("db1", Instant::now()).await.unwrap().volumes.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn where_many_are_worked_on_one_whole_picture_serves_them() {
    let corner = Corner::new().await;
    let view = ClusterView::new(Arc::clone(&corner.aws), &corner.cluster, DEADLINE);
    let before = corner.called("DescribeVolumes");
    let names: Vec<String> = (0..300).map(|number| format!("db{number}")).collect();
    let now = Instant::now();
    let pictures = futures::future::join_all(names.iter().map(|name| view.of(name, now))).await;
    assert!(pictures.iter().all(Result::is_ok));
    let asked = corner.called("DescribeVolumes") - before;
    assert!(asked <= 2, "the first of them together, all others by the whole picture: {asked}");

    // Whoever has to see more than that asks together, by whichever picture.
    let (before, now) = (corner.called("DescribeVolumes"), Instant::now());
    let pictures = futures::future::join_all(names[..20].iter().map(|name| view.of(name, now))).await;
    assert!(pictures.into_iter().all(|picture| picture.unwrap().as_of >= now), "it shows the past");
    let asked = corner.called("DescribeVolumes") - before;
    assert!(asked <= 2, "together, by a picture of just them or of everything: {asked}");

    // A moment after everything was looked at, for whoever came too late for that it is not looked at again.
    eventually(DEADLINE, "pictures of just those who ask", async || {
        view.taken_after(Instant::now()).await.unwrap();
        let now = Instant::now();
        let pictures = futures::future::join_all(names.iter().map(|name| view.of(name, now))).await;
        assert!(pictures.into_iter().all(|picture| picture.unwrap().as_of >= now), "it shows the past");
        let whole = view.at_most(Duration::from_mins(1)).await.unwrap();
        (whole.as_of() < now).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_changed_between_two_pictures_is_told_by_database() {
    let corner = Corner::new().await;
    let view = ClusterView::new(Arc::clone(&corner.aws), &corner.cluster, DEADLINE);
    let before = view.taken_after(Instant::now()).await.unwrap();
    assert!(before.changed_since(&before).is_empty());
    let volume = corner.create_volume().await;
    let changed = eventually(DEADLINE, "a picture with the volume", async || {
        let after = view.taken_after(Instant::now()).await.unwrap();
        Some(after.changed_since(&before)).filter(|changed| !changed.is_empty())
    })
    .await;
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["db1"]);
    corner.aws.delete_volume(&volume).await.unwrap();
}
