//! DNS records: taken once, changed whole, deleted exactly.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use ::cloud_aws::Settings;
use cloud::{
    DnsChangeState, DnsRecord, Gathering, RecordChange, RecordKind, ResourceKind, Within, ZoneWriter,
};
use testkit::eventually;

use super::{Corner, DEADLINE, once_unthrottled};

#[tokio::test]
async fn a_record_is_created_once_changed_listed_and_deleted_exactly() {
    let corner = Corner::new().await;
    let (zone, name) = (&corner.hosted_zone, corner.name("db1"));
    let a = |last| DnsRecord::a(&name, 60, Ipv4Addr::new(10, 0, 0, last));
    let owner = DnsRecord::txt(&name, 300, "heritage=slipway,owner=\"db1\"");
    let change = async |changes: &[RecordChange]| {
        once_unthrottled(async || corner.aws.change_records(zone, changes).await).await
    };

    let created = change(&[RecordChange::Create(a(1)), RecordChange::Create(owner.clone())]).await.unwrap();
    eventually(DEADLINE, "the change in sync", async || {
        let state = corner.aws.get_change(&created.id).await.unwrap().state;
        (state == DnsChangeState::InSync).then_some(())
    })
    .await;
    let mut listed = corner.aws.list_records(zone, &name.to_uppercase()).await.unwrap();
    listed.sort_by(|one, other| one.kind.cmp(&other.kind));
    assert_eq!(listed, [a(1), owner.clone()]);
    assert_eq!(listed[1].texts(), ["heritage=slipway,owner=\"db1\""]);

    let error = change(&[RecordChange::Create(a(2))]).await.unwrap_err();
    assert_eq!(error.category(), "already_exists", "{error:?}");
    change(&[RecordChange::Upsert(a(2))]).await.unwrap();
    let error = change(&[RecordChange::Delete(a(1)), RecordChange::Delete(owner.clone())]).await.unwrap_err();
    assert_eq!(error.category(), "incorrect_state", "{error:?}");
    assert_eq!(corner.aws.list_records(zone, &name).await.unwrap().len(), 2, "all or none");

    let listed = corner.aws.list_records(zone, &name).await.unwrap();
    change(&listed.into_iter().map(RecordChange::Delete).collect::<Vec<_>>()).await.unwrap();
    assert!(corner.aws.list_records(zone, &name).await.unwrap().is_empty());
    let error = change(&[RecordChange::Delete(a(2))]).await.unwrap_err();
    assert!(error.is_not_found(ResourceKind::Record), "{error:?}");
}

#[tokio::test]
async fn names_that_only_begin_alike_are_not_listed() {
    let corner = Corner::new().await;
    let zone = &corner.hosted_zone;
    let names = ["*.x", "a.x", "x"].map(|label| corner.name(label));
    let records = names.each_ref().map(|name| DnsRecord::cname(name, 60, "target.example.com"));
    let creates: Vec<_> = records.iter().cloned().map(RecordChange::Create).collect();
    once_unthrottled(async || corner.aws.change_records(zone, &creates).await).await.unwrap();
    for (name, record) in names.iter().zip(&records) {
        let listed = corner.aws.list_records(zone, name).await.unwrap();
        assert_eq!(listed, std::slice::from_ref(record));
        assert_eq!(listed[0].kind, RecordKind::Cname);
    }
    let deletes: Vec<_> = records.into_iter().map(RecordChange::Delete).collect();
    once_unthrottled(async || corner.aws.change_records(zone, &deletes).await).await.unwrap();
}

#[tokio::test]
async fn the_records_of_many_databases_take_few_requests() {
    // Other tests change the same zone meanwhile: more patience than usual.
    let corner = Corner::with(|settings| Settings { attempts: 8, ..settings }).await;
    let always: Within = Box::new(|request| request);
    let writer = ZoneWriter::new(&corner.aws, corner.hosted_zone.clone(), Gathering::default(), always);
    let names: Vec<_> = (0..60).map(|number| corner.name(&format!("many{number}"))).collect();
    let record = |name: &String| DnsRecord::a(name, 60, Ipv4Addr::new(10, 0, 0, 1));
    let taken = RecordChange::Create(record(&names[0]));
    once_unthrottled(async || writer.change(vec![taken.clone()]).await).await.unwrap();

    let before = corner.called("ChangeResourceRecordSets");
    let others = &names[1..];
    let creates =
        others.iter().map(|name| vec![RecordChange::Create(record(name)), RecordChange::Create(owner(name))]);
    let made = futures::future::join_all(creates.map(|changes| writer.change(changes))).await;
    let ids: HashSet<_> = made.into_iter().map(|made| made.unwrap().id).collect();
    assert_eq!((ids.len(), corner.called("ChangeResourceRecordSets") - before), (1, 1));

    // All ask for the same change: one question at a time.
    let id = ids.into_iter().next().unwrap();
    eventually(DEADLINE, "the change in sync", async || {
        let before = corner.called("GetChange");
        let states = futures::future::join_all((0..60).map(|_| writer.state(&id))).await;
        assert_eq!(corner.called("GetChange") - before, 1);
        states.into_iter().all(|state| state.unwrap().unwrap().state == DnsChangeState::InSync).then_some(())
    })
    .await;

    let mine = vec![RecordChange::Delete(record(&names[1])), RecordChange::Delete(owner(&names[1]))];
    let again = vec![taken];
    let (gone, refused) = tokio::join!(writer.change(mine), writer.change(again));
    assert_eq!(refused.unwrap_err().category(), "already_exists");
    gone.unwrap();
    assert!(corner.aws.list_records(&corner.hosted_zone, &names[1]).await.unwrap().is_empty());
    let deletes = names[2..].iter().flat_map(|name| [record(name), owner(name)]).chain([record(&names[0])]);
    let deletes: Vec<_> = deletes.map(RecordChange::Delete).collect();
    once_unthrottled(async || corner.aws.change_records(&corner.hosted_zone, &deletes).await).await.unwrap();
}

fn owner(name: &String) -> DnsRecord {
    DnsRecord::txt(&format!("_owner.{name}"), 300, "heritage=slipway")
}
