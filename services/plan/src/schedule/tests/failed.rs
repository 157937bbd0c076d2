//! What is said of a schedule whose pass could not do all that was due.

use super::*;

#[test]
fn what_could_not_be_done_is_told_until_it_can_and_its_time_waits() {
    let mut schedule = schedule(&json!({}));
    schedule.metadata.generation = Some(3);
    let now = at("2026-01-01T05:00:00Z");
    let due = decide(&schedule, &[], "2026-01-01T05:00:00Z");
    schedule.status = Some(failed(&schedule, &[], &due, "make a snapshot: forbidden", now));
    let told = schedule.status.clone().unwrap();
    let ready = &told.conditions[0];
    assert_eq!(
        (ready.type_.as_str(), ready.status.as_str(), ready.reason.as_str()),
        ("Ready", "False", "Failed")
    );
    let words = "the snapshot for 2026-01-01T05:00:00Z could not be made";
    assert!(
        ready.message.starts_with(words) && ready.message.ends_with(": make a snapshot: forbidden"),
        "{ready:?}"
    );
    assert_eq!((ready.observed_generation, told.observed_generation), (Some(3), Some(3)));
    assert_eq!((told.last_time, told.last_snapshot), (None, None));
    let again = decide(&schedule, &[], "2026-01-01T05:10:00Z");
    assert_eq!(again.create, due.create, "its time is not let pass");
    let later = at("2026-01-01T05:10:00Z");
    assert_eq!(
        failed(&schedule, &[], &again, "make a snapshot: forbidden", later),
        schedule.status.clone().unwrap()
    );
    let after = status(&schedule, &[], Ok(&again), later);
    assert_eq!(
        (after.conditions[0].status.as_str(), after.conditions[0].reason.as_str()),
        ("True", "Scheduled")
    );
    assert_eq!(after.conditions.len(), 1);
}

#[test]
fn what_was_made_is_noted_although_something_else_could_not_be_done() {
    let schedule = schedule(&json!({ "startingDeadlineSeconds": 600 }));
    // One that is let pass is noted by the pass that tells of it; before the first there is nothing to note.
    for (time, is_made) in [("05:00", true), ("05:00", false), ("05:30", false), ("00:30", false)] {
        let now = format!("2026-01-01T{time}:00Z");
        let mut due = decide(&schedule, &[], &now);
        due.create = due.create.filter(|_| !is_made);
        let told = failed(&schedule, &[], &due, "remove a snapshot: forbidden", at(&now));
        assert_eq!(told.last_time, is_made.then(|| Time(at(&now))), "{time}");
    }
    let (now, own) = ("2026-01-01T05:05:00Z", [made(&schedule, "2026-01-01T05:00:00Z", SUCCEEDED)]);
    let told = failed(&schedule, &[&own[0]], &decide(&schedule, &own, now), "forbidden", at(now));
    assert_eq!(told.last_snapshot.as_deref(), Some("hourly-202601010500"));
}

#[test]
fn what_could_not_be_removed_is_told_and_everything_else_is_as_it_is() {
    let schedule = schedule(&json!({ "startingDeadlineSeconds": 600, "retention": { "keepLast": 1 } }));
    let times = ["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z"];
    let [old, new] = times.map(|time| made(&schedule, time, SUCCEEDED));
    let own = [&old, &new];
    for now in ["2026-01-01T04:30:00Z", "2026-01-01T05:00:00Z", "2026-01-01T05:30:00Z"] {
        let due = decide(&schedule, &[old.clone(), new.clone()], now);
        let why = "QuestDBSnapshot hourly-202601010300: forbidden";
        let told = unremoved(&schedule, &own, &due, why, at(now));
        let ready = &told.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Failed"), "{now}");
        assert!(ready.message.starts_with("snapshots that retention does not keep"), "{}", ready.message);
        assert!(ready.message.ends_with(why), "{}", ready.message);
        // One that was made or let pass is noted.
        let plain = status(&schedule, &own, Ok(&due), at(now));
        assert_eq!(
            QuestDBSnapshotScheduleStatus { conditions: plain.conditions.clone(), ..told.clone() },
            plain
        );
        let mut again = schedule.clone();
        again.status = Some(told.clone());
        let later = at(now) + SignedDuration::from_mins(1);
        assert_eq!(unremoved(&again, &own, &due, why, later), told, "it is said once");
    }
}
