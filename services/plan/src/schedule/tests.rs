//! The table of schedules: clocks and their zones, missed times, overlap, retention.

mod failed;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn clock(schedule: &str, zone: &str) -> Clock {
    Clock::new(schedule, zone, at("2026-01-01T00:00:00Z")).unwrap()
}

fn schedule(spec: &Value) -> QuestDBSnapshotSchedule {
    let mut whole = json!({ "database": "trades", "schedule": "0 * * * *" });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshotSchedule",
        "metadata": { "name": "hourly", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": whole,
    }))
    .unwrap()
}

/// A snapshot of the schedule for a time, in a phase.
fn made(schedule: &QuestDBSnapshotSchedule, time: &str, phase: Option<SnapshotPhase>) -> QuestDBSnapshot {
    let mut made = snapshot(schedule, at(time));
    made.status = Some(resources::QuestDBSnapshotStatus { phase, ..Default::default() });
    made
}

fn decide(schedule: &QuestDBSnapshotSchedule, own: &[QuestDBSnapshot], now: &str) -> Due {
    let clock = clock(&schedule.spec.schedule, &schedule.spec.time_zone);
    due(schedule, &clock, &own.iter().collect::<Vec<_>>(), at(now))
}

const SUCCEEDED: Option<SnapshotPhase> = Some(SnapshotPhase::Succeeded);
const FAILED_: Option<SnapshotPhase> = Some(SnapshotPhase::Failed);

#[test]
fn a_clock_keeps_to_its_zone() {
    let check = |schedule: &str, zone: &str, after: &str, expect: &str| {
        assert_eq!(clock(schedule, zone).after(at(after)), Some(at(expect)), "{schedule} {zone} {after}");
    };
    check("0 3 * * *", "UTC", "2026-06-01T00:00:00Z", "2026-06-01T03:00:00Z");
    check("0 3 * * *", "Europe/Berlin", "2026-06-01T00:00:00Z", "2026-06-01T01:00:00Z");
    check("0 3 * * *", "Europe/Berlin", "2026-01-10T00:00:00Z", "2026-01-10T02:00:00Z");
    check("15 14 L * *", "UTC", "2026-02-01T00:00:00Z", "2026-02-28T14:15:00Z");
    check("0 0 * * 1#1", "UTC", "2026-06-02T00:00:00Z", "2026-07-06T00:00:00Z");
}

/// Clocks go forward on 29 March 2026 at 02:00 and back on 25 October 2026 at 03:00.
#[test]
fn a_day_has_one_time_however_long_it_is() {
    let daily = clock("30 2 * * *", "Europe/Berlin");
    let mut seen = Vec::new();
    let mut moment = at("2026-03-28T00:00:00Z");
    for _ in 0..3 {
        moment = daily.after(moment).unwrap();
        seen.push(moment.to_string());
    }
    // 02:30 does not exist on the 29th: the first moment after the gap stands for it.
    assert_eq!(seen, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    let mut seen = Vec::new();
    let mut moment = at("2026-10-24T12:00:00Z");
    for _ in 0..2 {
        moment = daily.after(moment).unwrap();
        seen.push(moment.to_string());
    }
    // 02:30 comes twice on the 25th and counts once.
    assert_eq!(seen, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
}

/// Snapshots are made for the time that came last: it is none that was not to come, on whatever day.
#[test]
fn the_time_that_came_last_is_the_one_that_was_to_come() {
    const HOURS: i64 = 72;
    for (schedule, day) in [
        ("30 2 * * *", "2026-03-28"),
        ("30 2 * * *", "2026-10-24"),
        ("30 2,14 * * *", "2026-03-28"),
        ("30 2,14 * * *", "2026-10-24"),
        ("0 * * * *", "2026-03-28"),
        ("0 * * * *", "2026-10-24"),
    ] {
        let clock = clock(schedule, "Europe/Berlin");
        let begin = at(&format!("{day}T00:00:00Z"));
        let end = begin.checked_add(SignedDuration::from_hours(HOURS)).unwrap();
        let times = std::iter::successors(clock.after(begin), |time| clock.after(*time));
        let times: Vec<_> = times.take_while(|time| *time <= end).collect();
        for minutes in (0..HOURS * 60).step_by(10) {
            let now = begin.checked_add(SignedDuration::from_mins(minutes)).unwrap();
            // Before the first of them another one came.
            let Some(last) = times.iter().rfind(|time| **time <= now) else { continue };
            assert_eq!(clock.until(now), Some(*last), "{schedule} {now}");
        }
    }
}

#[test]
fn each_of_several_times_of_a_day_comes_once_too() {
    let twice = clock("30 2,14 * * *", "Europe/Berlin");
    for (before, expected) in [
        ("2026-03-28T20:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z", "2026-03-30T00:30:00Z"]),
        ("2026-10-24T20:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-25T13:30:00Z", "2026-10-26T01:30:00Z"]),
    ] {
        let mut moment = at(before);
        for expected in expected {
            moment = twice.after(moment).unwrap();
            assert_eq!(moment, at(expected), "{before}");
        }
    }
    // What counts through the day goes on counting.
    let hourly = clock("0 * * * *", "Europe/Berlin");
    assert_eq!(hourly.after(at("2026-10-25T00:00:00Z")), Some(at("2026-10-25T01:00:00Z")));
}

#[test]
fn what_cannot_be_followed_says_why() {
    let now = at("2026-01-01T00:00:00Z");
    let check = |schedule: &str, zone: &str, expect: &str| {
        let said = Clock::new(schedule, zone, now).unwrap_err().to_string();
        assert!(said.contains(expect), "{said}");
    };
    check("0 3 * *", "UTC", "spec.schedule \"0 3 * *\" is not a schedule of five fields");
    check("0 0 3 * * *", "UTC", "is not a schedule of five fields");
    check("61 3 * * *", "UTC", "is not a schedule of five fields");
    check("0 0 31 2 *", "UTC", "never comes");
    check("0 3 * * *", "Mars/Olympus", "spec.timeZone \"Mars/Olympus\" is not a time zone");
}

#[test]
fn a_time_is_made_once() {
    let schedule = schedule(&json!({}));
    let first = decide(&schedule, &[], "2026-01-01T05:00:00Z");
    assert_eq!(first.create, Some(at("2026-01-01T05:00:00Z")));
    assert_eq!(first.next, Some(at("2026-01-01T06:00:00Z")));
    let own = [made(&schedule, "2026-01-01T05:00:00Z", SUCCEEDED)];
    assert_eq!(own[0].metadata.name.as_deref(), Some("hourly-202601010500"));
    assert_eq!(decide(&schedule, &own, "2026-01-01T05:59:59Z").create, None);
    assert_eq!(decide(&schedule, &own, "2026-01-01T06:00:00Z").create, Some(at("2026-01-01T06:00:00Z")));
}

/// The same object as one reads it who does not know a word of it.
fn unread(object: &QuestDBSnapshot) -> QuestDBSnapshot {
    let mut shown = serde_json::to_value(object).unwrap();
    shown["spec"]["deletionPolicy"] = json!("Archive");
    *serde_json::from_value::<resources::Seen<QuestDBSnapshot>>(shown).unwrap().marked()
}

#[test]
fn one_that_cannot_be_read_holds_nothing_up_and_is_neither_counted_nor_removed() {
    let schedule = schedule(&json!({ "retention": { "keepLast": 1 } }));
    let times = ["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"];
    let [old, middle, new] = times.map(|time| made(&schedule, time, SUCCEEDED));
    let own = [unread(&old), middle, unread(&new)];
    let found = decide(&schedule, &own, "2026-01-01T05:30:00Z");
    assert_eq!(found.remove, Vec::<String>::new(), "the newest that can be read stays");
    let own = [unread(&made(&schedule, times[2], Some(SnapshotPhase::Pending)))];
    let found = decide(&schedule, &own, "2026-01-01T06:00:00Z");
    assert_eq!((found.create, found.held_back), (Some(at("2026-01-01T06:00:00Z")), None));
}

#[test]
fn one_whose_copy_is_gone_is_neither_counted_nor_removed() {
    let schedule = schedule(&json!({ "retention": { "keepLast": 1 } }));
    let [old, new] =
        ["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z"].map(|time| made(&schedule, time, SUCCEEDED));
    let now = "2026-01-01T04:30:00Z";
    assert_eq!(decide(&schedule, &[old.clone(), new.clone()], now).remove, ["hourly-202601010300"]);
    let status_without = Some(crate::snapshot::looked_after(&new, false, at(now)));
    let gone = QuestDBSnapshot { status: status_without, ..new };
    let due = decide(&schedule, &[old.clone(), gone.clone()], now);
    assert_eq!(due.remove, Vec::<String>::new(), "the last that is there stays");
    assert_eq!(status(&schedule, &[&old, &gone], Ok(&due), at(now)).kept, Some(1));
}

#[test]
fn the_time_before_a_schedule_was_made_is_not_its_own() {
    let mut young = schedule(&json!({}));
    young.metadata.creation_timestamp = Some(Time(at("2026-01-01T05:00:01Z")));
    assert_eq!(decide(&young, &[], "2026-01-01T05:30:00Z").create, None);
}

#[test]
fn one_that_is_made_again_goes_on_with_the_snapshots_that_are_there() {
    let mut again = schedule(&json!({}));
    let own = [made(&again, "2026-01-01T02:00:00Z", SUCCEEDED)];
    again.metadata.creation_timestamp = Some(Time(at("2026-01-03T10:20:00Z")));
    assert_eq!(decide(&again, &own, "2026-01-03T10:30:00Z").create, Some(at("2026-01-03T10:00:00Z")));
    assert_eq!(decide(&again, &[], "2026-01-03T10:30:00Z").create, None);
}

#[test]
fn missed_times_are_one() {
    let mut schedule = schedule(&json!({}));
    let last_time = Some(Time(at("2026-01-01T02:00:00Z")));
    schedule.status =
        Some(QuestDBSnapshotScheduleStatus { last_time, ..QuestDBSnapshotScheduleStatus::default() });
    let late = decide(&schedule, &[], "2026-01-03T10:20:00Z");
    assert_eq!((late.create, late.considered), (Some(at("2026-01-03T10:00:00Z")), late.create));
}

#[test]
fn a_wiped_status_makes_no_time_anew() {
    let schedule = schedule(&json!({}));
    let own = [made(&schedule, "2026-01-01T05:00:00Z", SUCCEEDED)];
    assert_eq!(schedule.status, None);
    assert_eq!(decide(&schedule, &own, "2026-01-01T05:30:00Z").create, None);
}

/// A clock that was a year ahead when it was looked at, and is right again.
#[test]
fn a_time_that_lies_ahead_was_not_dealt_with() {
    let mut schedule = schedule(&json!({}));
    let mut dealt_with = |time: &str| {
        let last_time = Some(Time(at(time)));
        let status = QuestDBSnapshotScheduleStatus { last_time, ..Default::default() };
        schedule.status = Some(status);
        schedule.clone()
    };
    let now = "2026-01-03T10:20:00Z";
    let ahead = dealt_with("2027-01-03T10:00:00Z");
    let due = decide(&ahead, &[], now);
    assert_eq!(due.create, Some(at("2026-01-03T10:00:00Z")));
    let told = status(&ahead, &[], Ok(&due), at(now));
    assert_eq!(told.last_time, due.create.map(Time), "the status is right again");
    let made =
        [made(&ahead, "2027-01-03T10:00:00Z", SUCCEEDED), made(&ahead, "2026-01-03T09:00:00Z", SUCCEEDED)];
    assert_eq!(decide(&dealt_with("2026-01-03T09:00:00Z"), &made, now).create, due.create);
    // Two clocks are never quite the same, and what one of them had made is not made anew by the other.
    assert_eq!(decide(&dealt_with("2026-01-03T10:00:00Z"), &[], "2026-01-03T09:59:00Z").create, None);
}

#[test]
fn a_clock_that_is_ahead_makes_no_copy_too_old() {
    let schedule =
        schedule(&json!({ "schedule": "0 3 * * *", "retention": { "keepLast": 99, "maxAgeHours": 72 } }));
    let own: Vec<_> = (1..=9)
        .map(|day| {
            let time = format!("2026-01-{day:02}T03:00:00Z");
            let mut one = made(&schedule, &time, SUCCEEDED);
            one.metadata.creation_timestamp = Some(Time(at(&time)));
            one
        })
        .collect();
    let check = |own: &[QuestDBSnapshot], now: &str, removed: usize| {
        assert_eq!(decide(&schedule, own, now).remove.len(), removed, "{now}");
    };
    check(&own, "2026-01-09T04:00:00Z", 6);
    check(&own, "2026-01-10T02:59:00Z", 6);
    check(&own, "2026-01-10T03:00:01Z", 7);
    // That of the tenth was not made: whatever the clock says, it is no more than a day later.
    check(&own, "2027-01-09T04:00:00Z", 7);
    check(&own[..3], "2027-01-09T04:00:00Z", 1);
    // An API server that is a little behind dates it before its time, and the next one is that of the tenth all the same.
    let mut behind = own;
    behind[8].metadata.creation_timestamp = Some(Time(at("2026-01-09T02:59:00Z")));
    check(&behind, "2027-01-09T04:00:00Z", 7);
}

#[test]
fn what_is_too_late_is_let_pass_and_said() {
    let schedule = schedule(&json!({ "startingDeadlineSeconds": 600 }));
    let late = decide(&schedule, &[], "2026-01-01T05:10:01Z");
    assert_eq!((late.create, late.considered), (None, Some(at("2026-01-01T05:00:00Z"))));
    assert!(late.let_pass && late.held_back.unwrap().contains("was let pass"));
    assert!(decide(&schedule, &[], "2026-01-01T05:10:00Z").create.is_some());
}

#[test]
fn one_is_finished_before_the_next_begins() {
    let schedule = schedule(&json!({}));
    for phase in
        [None, Some(SnapshotPhase::Pending), Some(SnapshotPhase::Checkpointing), Some(SnapshotPhase::Copying)]
    {
        let own = [made(&schedule, "2026-01-01T05:00:00Z", phase)];
        let due = decide(&schedule, &own, "2026-01-01T07:10:00Z");
        assert_eq!((due.create, due.considered), (None, Some(at("2026-01-01T05:00:00Z"))), "{phase:?}");
        assert!(!due.let_pass && due.held_back.unwrap().contains("hourly-202601010500 is not finished"));
    }
    for phase in [SUCCEEDED, FAILED_] {
        let own = [made(&schedule, "2026-01-01T05:00:00Z", phase)];
        assert_eq!(decide(&schedule, &own, "2026-01-01T07:10:00Z").create, Some(at("2026-01-01T07:00:00Z")));
    }
}

#[test]
fn suspended_it_does_nothing_and_makes_up_for_nothing() {
    let suspended = schedule(&json!({ "suspend": true, "retention": { "keepLast": 1 } }));
    let own: Vec<_> =
        ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"].map(|time| made(&suspended, time, SUCCEEDED)).into();
    let due = decide(&suspended, &own, "2026-01-01T09:30:00Z");
    assert_eq!((due.create, due.remove.len()), (None, 0));
    let mut resumed = schedule(&json!({}));
    resumed.status = Some(status(&suspended, &[], Ok(&due), at("2026-01-01T09:30:00Z")));
    assert_eq!(decide(&resumed, &own, "2026-01-01T09:40:00Z").create, None);
    assert_eq!(decide(&resumed, &own, "2026-01-01T10:00:00Z").create, Some(at("2026-01-01T10:00:00Z")));
}

#[test]
fn only_what_succeeded_counts_and_the_newest_of_it_stays() {
    let keep = |keep: u16, age: Option<u32>| {
        let age = age.map_or(Value::Null, Value::from);
        schedule(&json!({ "retention": { "keepLast": keep, "maxAgeHours": age } }))
    };
    let check =
        |schedule: &QuestDBSnapshotSchedule, own: &[(&str, Option<SnapshotPhase>)], expect: &[&str]| {
            let own: Vec<_> = own
                .iter()
                .map(|(hour, phase)| made(schedule, &format!("2026-01-01T{hour}:00:00Z"), *phase))
                .collect();
            let removed = decide(schedule, &own, "2026-01-01T23:30:00Z").remove;
            let hours: Vec<_> = removed.iter().map(|name| &name[name.len() - 4..name.len() - 2]).collect();
            assert_eq!(hours, expect);
        };
    let all = |hours: &[&'static str]| hours.iter().map(|hour| (*hour, SUCCEEDED)).collect::<Vec<_>>();
    check(&keep(2, None), &all(&["01", "02", "03", "04"]), &["02", "01"]);
    check(&keep(2, None), &[("01", SUCCEEDED), ("02", SUCCEEDED), ("03", FAILED_), ("04", FAILED_)], &[]);
    check(&keep(1, None), &[("01", SUCCEEDED), ("02", Some(SnapshotPhase::Copying))], &[]);
    // Too old, all of them: the newest stays.
    check(&keep(7, Some(1)), &all(&["01", "02", "03"]), &["02", "01"]);
    let failed = ["01", "02", "03", "04", "05"].map(|hour| (hour, FAILED_));
    check(&keep(1, None), &failed, &["02", "01"]);
}

#[test]
fn a_database_made_again_under_its_name_takes_no_copies_of_the_one_before() {
    let schedule = schedule(&json!({ "retention": { "keepLast": 1 } }));
    let of = |hour: &str, database: &str| {
        let mut one = made(&schedule, &format!("2026-01-01T{hour}:00:00Z"), SUCCEEDED);
        one.status.as_mut().unwrap().database_id = Some(database.to_owned());
        one
    };
    let own = [of("01", "before"), of("02", "before"), of("03", "now"), of("04", "now")];
    let removed = decide(&schedule, &own, "2026-01-01T23:30:00Z").remove;
    let expect: Vec<_> = [&own[0], &own[2]].map(|one| one.metadata.name.clone().unwrap()).into();
    assert_eq!(removed.iter().collect::<BTreeSet<_>>(), expect.iter().collect());
}

#[test]
fn the_status_tells_what_is_next() {
    let schedule = schedule(&json!({}));
    let now = at("2026-01-01T05:00:00Z");
    let due = decide(&schedule, &[], "2026-01-01T05:00:00Z");
    let told = status(&schedule, &[], Ok(&due), now);
    assert_eq!(told.last_snapshot.as_deref(), Some("hourly-202601010500"));
    assert_eq!(told.next_time, Some(Time(at("2026-01-01T06:00:00Z"))));
    assert_eq!((told.conditions[0].status.as_str(), told.kept), ("True", Some(0)));
    let own = [made(&schedule, "2026-01-01T05:00:00Z", SUCCEEDED)];
    let due = decide(&schedule, &own, "2026-01-01T05:00:00Z");
    let heir = status(&schedule, &[&own[0]], Ok(&due), now);
    assert_eq!(
        (due.create, heir.last_snapshot),
        (None, told.last_snapshot),
        "its maker ended before it said so"
    );
    let wrong = Error::Never { text: "x".to_owned() };
    let told = status(&schedule, &[], Err(&wrong), now);
    assert_eq!((told.conditions[0].status.as_str(), told.next_time), ("False", None));
}

fn phases() -> impl Strategy<Value = Option<SnapshotPhase>> {
    prop_oneof![Just(SUCCEEDED), Just(FAILED_), Just(Some(SnapshotPhase::Copying)), Just(None)]
}

proptest! {
    #[test]
    fn retention_never_takes_the_last_good_one(
        phases in proptest::collection::vec(phases(), 0..24), keep in 1_u16..5, age in proptest::option::of(1_u32..30),
        later in 0_i64..400,
    ) {
        let age = age.map_or(Value::Null, Value::from);
        let schedule = schedule(&json!({ "retention": { "keepLast": keep, "maxAgeHours": age } }));
        let own: Vec<_> = phases.iter().enumerate().map(|(hour, phase)| {
            made(&schedule, &format!("2026-01-01T{hour:02}:00:00Z"), *phase)
        }).collect();
        let now = at("2026-01-02T00:30:00Z").checked_add(SignedDuration::from_hours(later)).unwrap();
        let removed = decide(&schedule, &own, &now.to_string()).remove;
        let of = |wanted: Option<SnapshotPhase>| own.iter().filter(move |one| phase(one) == wanted);
        let is_removed = |one: &QuestDBSnapshot| removed.iter().any(|name| Some(name) == one.metadata.name.as_ref());
        prop_assert!(of(SUCCEEDED).next_back().is_none_or(|newest| !is_removed(newest)));
        prop_assert!(of(SUCCEEDED).filter(|one| !is_removed(one)).count() <= usize::from(keep));
        prop_assert!(of(Some(SnapshotPhase::Copying)).chain(of(None)).all(|one| !is_removed(one)));
    }

    #[test]
    fn the_time_made_is_never_in_the_future_and_never_twice(minutes in 0_i64..100_000, step in 1_i64..3_000) {
        let schedule = schedule(&json!({ "schedule": "*/7 * * * *", "timeZone": "America/New_York" }));
        let start = at("2026-01-01T00:00:00Z");
        let mut own = Vec::new();
        for n in 0..4 {
            let now = start.checked_add(SignedDuration::from_mins(minutes + n * step)).unwrap();
            let due = decide(&schedule, &own, &now.to_string());
            if let Some(time) = due.create {
                prop_assert!(time <= now);
                own.push(made(&schedule, &time.to_string(), SUCCEEDED));
            }
        }
        let mut names: Vec<_> = own.iter().map(|one| one.metadata.name.clone()).collect();
        names.dedup();
        prop_assert_eq!(names.len(), own.len());
    }
}

#[test]
fn a_copy_is_awaited_until_the_database_that_names_it_has_a_disk() {
    let mut snapshot = made(&schedule(&json!({})), "2026-06-01T01:00:00Z", SUCCEEDED);
    snapshot.status.as_mut().unwrap().snapshot_id = Some("snap-1".to_owned());
    let name = snapshot.metadata.name.clone().unwrap();
    let database = |namespace: &str, storage: &Value, status: &Value| -> resources::QuestDB {
        let mut spec = json!({ "version": "9.3.4", "storage": { "sizeGib": 50 } });
        spec["storage"].as_object_mut().unwrap().extend(storage.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": "new", "namespace": namespace }, "spec": spec, "status": status,
        }))
        .unwrap()
    };
    let by_name = json!({ "source": { "snapshot": name } });
    let by_id = json!({ "source": { "snapshotId": "snap-1" } });
    let disk = json!({ "volume": { "id": "vol-1", "sizeGib": 50, "state": "creating" } });
    for (namespace, storage, status, expected) in [
        ("ns", &by_name, &json!({}), true),
        ("ns", &by_id, &json!({}), true),
        ("other", &by_id, &json!({}), true),
        ("other", &by_name, &json!({}), false),
        ("ns", &by_name, &disk, false),
        ("ns", &by_id, &disk, false),
        ("ns", &json!({ "source": { "snapshot": name }, "provisioned": true }), &json!({}), false),
        ("ns", &json!({ "source": { "snapshot": "another" } }), &json!({}), false),
        ("ns", &json!({ "source": { "snapshotId": "snap-2" } }), &json!({}), false),
        ("ns", &json!({ "source": { "volumeId": "vol-1" } }), &json!({}), false),
        ("ns", &json!({}), &json!({}), false),
    ] {
        let database = database(namespace, storage, status);
        assert_eq!(is_awaited(&snapshot, &database), expected, "{namespace} {storage} {status}");
    }
    let mut deleted = database("ns", &by_name, &json!({}));
    deleted.spec.run_state = resources::RunState::Deleted;
    assert!(!is_awaited(&snapshot, &deleted));
    let unfinished = made(&schedule(&json!({})), "2026-06-01T02:00:00Z", None);
    assert!(!is_awaited(&unfinished, &database("ns", &json!({}), &json!({}))), "nothing is named");
}
