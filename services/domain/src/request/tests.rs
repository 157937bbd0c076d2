//! What may be wished of a database, and what of it is refused.

use super::*;
use crate::catalogue::{InstanceTypes, Versions};

fn good() -> Create {
    Create { name: "trades".to_owned(), region: "eu-west-1".to_owned(), change: Change::default() }
}

fn offer() -> Offer {
    Offer::default()
}

/// A disk of which nobody told anything.
const UNTOLD: Disk = Disk { has: None, asked: None, changing: false };

fn desired() -> Desired {
    let cluster = Cluster {
        id: "eu-west-1".parse().unwrap(),
        region: "eu-west-1".to_owned(),
        account: "0".to_owned(),
        zones: BTreeMap::new(),
        hosted_zone_id: "Z".to_owned(),
        dns_suffix: "eu.example.com".to_owned(),
        namespace_template: "qdb-{tenant}".to_owned(),
        state: crate::ClusterState::Active,
        credentials: "file:x".to_owned(),
    };
    good().validate(&offer()).unwrap().place(DatabaseId::mint(), &cluster)
}

#[test]
fn a_name_and_a_region_are_enough() {
    let desired = desired();
    assert_eq!(desired.storage.size_gib, catalogue::DEFAULT_SIZE_GIB);
    assert!(
        desired.network.hostname.starts_with("trades-")
            && desired.network.hostname.ends_with(".eu.example.com")
    );
    assert!(!desired.storage.provisioned);
}

/// One broken field of a good request, and what is said of it.
type Case = (fn(&mut Create), &'static str, Rule);

#[test]
fn every_broken_field_is_named() {
    let cases: &[Case] = &[
        (|c| c.name = "Bad_Name".to_owned(), "/name", Rule::Format),
        (|c| c.region.clear(), "/region", Rule::Required),
        (|c| c.change.version = Some("1.0".to_owned()), "/version", Rule::Unknown),
        (|c| c.change.instance_type = Some("t2.nano".to_owned()), "/compute/instance_type", Rule::Unknown),
        (|c| c.change.size_gib = Some(1), "/storage/size_gib", Rule::Range),
        (|c| c.change.size_gib = Some(-5), "/storage/size_gib", Rule::Range),
        (|c| c.change.size_gib = Some(i64::MAX), "/storage/size_gib", Rule::Range),
        (|c| c.change.iops = Some(100), "/storage/iops", Rule::Range),
        (|c| c.change.throughput = Some(9_999), "/storage/throughput", Rule::Range),
        (|c| c.change.volume_type = Some("st1".to_owned()), "/storage/type", Rule::Unknown),
        (|c| c.change.deletion_policy = Some("burn".to_owned()), "/storage/deletion_policy", Rule::Unknown),
        (|c| (c.change.size_gib, c.change.iops) = (Some(10), Some(5_001)), "/storage/iops", Rule::Range),
        (|c| c.change.throughput = Some(751), "/storage/throughput", Rule::Range),
        (
            |c| (c.change.volume_type, c.change.iops) = (Some("io2".to_owned()), Some(50_001)),
            "/storage/iops",
            Rule::Range,
        ),
        (|c| c.change.exposure = Some("world".to_owned()), "/network/exposure", Rule::Unknown),
        (|c| c.change.on_failure = Some("pray".to_owned()), "/on_failure", Rule::Unknown),
        (
            |c| c.change.allowed_cidrs = Some(vec!["10.0.0.1/8".to_owned()]),
            "/network/allowed_cidrs/0",
            Rule::Format,
        ),
        (
            |c| c.change.config = Some(BTreeMap::from([("pg.password".to_owned(), "x".to_owned())])),
            "/config/pg.password",
            Rule::Conflict,
        ),
        (
            |c| c.change.config = Some(BTreeMap::from([("telemetry.enabled".to_owned(), "true".to_owned())])),
            "/config/telemetry.enabled",
            Rule::Conflict,
        ),
        (
            |c| c.change.config = Some(BTreeMap::from([("A b".to_owned(), "x".to_owned())])),
            "/config/A b",
            Rule::Format,
        ),
        (
            |c| c.change.config = Some(BTreeMap::from([("a.b".to_owned(), "x\ny".to_owned())])),
            "/config/a.b",
            Rule::Format,
        ),
    ];
    for (break_it, pointer, rule) in cases {
        let mut create = good();
        break_it(&mut create);
        let wrong = create.validate(&offer()).unwrap_err();
        assert_eq!(wrong.0.len(), 1, "{wrong}");
        assert_eq!((wrong.0[0].pointer.as_str(), wrong.0[0].rule), (*pointer, *rule), "{wrong}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let mut create = good();
    create.name = "-".to_owned();
    create.change.size_gib = Some(0);
    assert_eq!(create.validate(&offer()).unwrap_err().0.len(), 2);
}

/// As `SHOW PARAMETERS` of QuestDB has them.
#[test]
fn a_key_of_questdb_may_have_capitals() {
    for key in ["shared.worker.haltOnError", "http.busy.retry.initialWaitQueueSize", "http.keep-alive.max"] {
        let config = BTreeMap::from([(key.to_owned(), "1".to_owned())]);
        let change = Change { config: Some(config), ..Change::default() };
        assert!(Create { change, ..good() }.validate(&offer()).is_ok(), "{key}");
    }
}

#[test]
fn sizes_only_grow() {
    let current = desired();
    let shrink = Change { size_gib: Some(20), ..Change::default() };
    assert_eq!(shrink.apply(&current, UNTOLD, &offer()).unwrap_err().0[0].rule, Rule::Shrinks);
    let grow = Change { size_gib: Some(100), ..Change::default() };
    assert_eq!(grow.apply(&current, UNTOLD, &offer()).unwrap().storage.size_gib, 100);
}

#[test]
fn a_size_that_is_not_carried_out_is_taken_back_and_the_least_one_is_named() {
    let mut current = desired();
    current.storage.size_gib = 5_000;
    let told = Disk { has: Some(60), asked: Some(5_000), changing: false };
    let getting = |asked| Disk { asked: Some(asked), changing: true, ..told };
    for (disk, size, refused) in [
        (UNTOLD, 4_999, Some("can only grow: it is 5000 GiB now")),
        (UNTOLD, 5_000, None),
        (told, 59, Some("can be taken back to no less than 60 GiB, which the disk has or is being given")),
        (told, 60, None),
        (told, 500, None),
        (told, 5_001, None),
        (getting(5_000), 500, Some("can only grow: it is 5000 GiB now")),
        (
            getting(80),
            79,
            Some("can be taken back to no less than 80 GiB, which the disk has or is being given"),
        ),
        (getting(80), 80, None),
    ] {
        let change = Change { size_gib: Some(size), ..Change::default() };
        let wrong = change.apply(&current, disk, &offer()).map(|next| {
            assert_eq!(i64::from(next.storage.size_gib), size, "{disk:?}");
        });
        let wrong = wrong.err().map(|mut wrong| wrong.0.remove(0)).map(|one| (one.rule, one.detail));
        assert_eq!(wrong, refused.map(|detail| (Rule::Shrinks, detail.to_owned())), "{size}, {disk:?}");
        let other = Change { iops: Some(4_000), ..Change::default() };
        assert_eq!(other.apply(&current, disk, &offer()).unwrap().storage.size_gib, 5_000, "it stays");
    }
}

#[test]
fn a_disk_that_was_allowed_once_is_in_the_way_of_no_other_change() {
    let mut current = desired();
    current.storage.throughput = 2_000;
    assert!(
        Change { config: Some(BTreeMap::new()), ..Change::default() }
            .apply(&current, UNTOLD, &offer())
            .is_ok()
    );
    assert!(Change { iops: Some(8_000), ..Change::default() }.apply(&current, UNTOLD, &offer()).is_ok());
    let slower =
        Change { iops: Some(7_999), ..Change::default() }.apply(&current, UNTOLD, &offer()).unwrap_err();
    assert_eq!(slower.0[0].pointer, "/storage/throughput");
}

#[test]
fn a_living_database_may_have_another_machine_and_version_but_no_older_major_one() {
    let mut current = desired();
    let machine = Change { instance_type: Some("m7i.xlarge".to_owned()), ..Change::default() };
    assert_eq!(machine.apply(&current, UNTOLD, &offer()).unwrap().compute.instance_type, "m7i.xlarge");
    let older = Change { version: Some("9.3.4".to_owned()), ..Change::default() };
    for (now, expected) in [("9.3.5", None), ("10.0.1", Some(("/version".to_owned(), Rule::Conflict)))] {
        current.version = now.to_owned();
        let wrong = older.apply(&current, UNTOLD, &offer()).err().map(|mut wrong| wrong.0.remove(0));
        assert_eq!(wrong.map(|wrong| (wrong.pointer, wrong.rule)), expected, "from {now}");
    }
}

#[test]
fn a_machine_is_one_of_those_on_offer_or_the_one_that_is_there() {
    let types: InstanceTypes = "m7i.xlarge,r8i.2xlarge:65536:8".parse().unwrap();
    let offer = Offer::new(Versions::default(), catalogue::DEFAULT_VERSION, types).unwrap();
    let wish = |kind: Option<&str>| Change { instance_type: kind.map(str::to_owned), ..Change::default() };
    let told = |wrong: &Violations| {
        let [wrong] = wrong.0.as_slice() else { panic!("{wrong}") };
        assert_eq!((wrong.pointer.as_str(), wrong.rule), ("/compute/instance_type", Rule::Unknown));
        assert_eq!(wrong.detail, "must be one of: m7i.xlarge, r8i.2xlarge");
    };
    let current = desired();
    assert_eq!(current.compute.instance_type, "m7i.large");
    for (kind, new, changed) in [
        (None, false, true),
        (Some("m7i.large"), false, true),
        (Some("m7i.xlarge"), true, true),
        (Some("r8i.2xlarge"), true, true),
        (Some("m7i.2xlarge"), false, false),
    ] {
        let create = Create { change: wish(kind), ..good() }.validate(&offer);
        assert_eq!(create.is_ok(), new, "{kind:?}");
        if let Some(wrong) = create.err() {
            told(&wrong);
        }
        let change = wish(kind).apply(&current, UNTOLD, &offer);
        assert_eq!(change.is_ok(), changed, "{kind:?}");
        if let Some(wrong) = change.err() {
            told(&wrong);
        }
    }
}

#[test]
fn a_version_is_one_of_those_on_offer_or_the_one_that_is_there() {
    let offer = Offer::new("9.3.5,9.4.0".parse().unwrap(), "9.4.0", InstanceTypes::default()).unwrap();
    let wish = |version: Option<&str>| Change { version: version.map(str::to_owned), ..Change::default() };
    let told = |wrong: Violations| {
        let [wrong] = wrong.0.as_slice() else { panic!("{wrong}") };
        assert_eq!((wrong.pointer.as_str(), wrong.rule), ("/version", Rule::Unknown));
        wrong.detail.clone()
    };
    let refused = || Err("must be one of: 9.3.5, 9.4.0".to_owned());
    let current = desired();
    assert_eq!(current.version, "9.3.4");
    for (version, new, changed) in [
        (None, Ok("9.4.0"), Ok("9.3.4")),
        (Some("9.3.4"), refused(), Ok("9.3.4")),
        (Some("9.3.5"), Ok("9.3.5"), Ok("9.3.5")),
        (Some("9.4.1"), refused(), refused()),
        (Some(""), refused(), refused()),
    ] {
        let create = Create { change: wish(version), ..good() }.validate(&offer);
        let create = create.map(|valid| valid.fields.version).map_err(told);
        assert_eq!(create, new.map(str::to_owned), "{version:?}");
        let change =
            wish(version).apply(&current, UNTOLD, &offer).map(|desired| desired.version).map_err(told);
        assert_eq!(change, changed.map(str::to_owned), "{version:?}");
    }
}

#[test]
fn a_protection_is_put_on_and_off_and_stays_otherwise() {
    let change = |deletion_protection| Change { deletion_protection, ..Change::default() };
    let mut current = desired();
    assert!(!current.deletion_protection, "only who asks for it has it");
    for (wish, expected) in [(Some(true), true), (None, true), (Some(false), false), (None, false)] {
        current = change(wish).apply(&current, UNTOLD, &offer()).unwrap();
        assert_eq!(current.deletion_protection, expected, "{wish:?}");
    }
}

#[test]
fn an_empty_change_changes_nothing() {
    let current = desired();
    assert_eq!(Change::default().apply(&current, UNTOLD, &offer()).unwrap(), current);
}

#[test]
fn the_deleted_do_not_change() {
    let mut current = desired();
    current.run_state = RunState::Deleted;
    assert_eq!(Change::default().apply(&current, UNTOLD, &offer()).unwrap_err().0[0].rule, Rule::Conflict);
}

#[test]
fn a_public_database_names_who_may_come_in() {
    let lists = |cidrs: &[&str]| cidrs.iter().map(|cidr| (*cidr).to_owned()).collect::<Vec<String>>();
    let wish = |exposure: Option<&str>, cidrs: Option<&[&str]>| Change {
        exposure: exposure.map(str::to_owned),
        allowed_cidrs: cidrs.map(lists),
        ..Change::default()
    };
    let told = |wrong: Violations| {
        let [wrong] = wrong.0.as_slice() else { panic!("{wrong}") };
        (wrong.pointer.clone(), wrong.rule)
    };
    let refused = Err(("/network/allowed_cidrs".to_owned(), Rule::Required));
    let (internal, mut public) = (desired(), desired());
    public.network.exposure = Exposure::Public;
    public.network.allowed_cidrs = lists(&["10.0.0.0/8"]);
    let none: &[&str] = &[];
    for (current, change, good) in [
        (&internal, wish(Some("public"), None), false),
        (&internal, wish(Some("public"), Some(none)), false),
        (&internal, wish(Some("public"), Some(&["0.0.0.0/0"])), true),
        (&internal, wish(None, Some(none)), true),
        (&public, wish(None, Some(none)), false),
        (&public, wish(Some("internal"), Some(none)), true),
        (&public, wish(Some("public"), None), true),
    ] {
        let expected = if good { Ok(()) } else { refused.clone() };
        assert_eq!(change.apply(current, UNTOLD, &offer()).map(drop).map_err(told), expected, "{change:?}");
    }
    let create = Create { change: wish(Some("public"), None), ..good() };
    assert_eq!(create.validate(&offer()).map(drop).map_err(told), refused);
    // As it could be asked for once.
    public.network.allowed_cidrs.clear();
    assert!(Change { size_gib: Some(100), ..Change::default() }.apply(&public, UNTOLD, &offer()).is_ok());
}

#[test]
fn a_key_that_belongs_to_slipway_by_now_may_stay_and_not_change() {
    let mut current = desired();
    current.config.insert("pg.user.of.before".to_owned(), "7".to_owned());
    let change = |key: &str, value: &str| {
        let mut config = current.config.clone();
        config.insert(key.to_owned(), value.to_owned());
        let change = Change { config: Some(config), ..Change::default() };
        change.apply(&current, UNTOLD, &offer()).map_err(|wrong| wrong.0[0].pointer.clone())
    };
    let kept = change("cairo.other", "1").unwrap();
    assert_eq!(kept.config.get("pg.user.of.before").map(String::as_str), Some("7"));
    for (key, value) in [("pg.user.of.before", "8"), ("pg.user.other", "7"), ("telemetry.enabled", "true")] {
        assert_eq!(change(key, value).unwrap_err(), format!("/config/{key}"));
    }
    assert!(change("telemetry.enabled", "false").is_ok(), "it is so");
}
