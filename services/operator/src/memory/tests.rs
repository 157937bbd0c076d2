//! What is remembered of databases, until when, and when it counts for nothing any more.

use kube::core::ObjectMeta;

use super::*;

#[test]
fn what_was_written_over_is_no_more_until_what_was_written_should_show() {
    let memories = Memories::default();
    let seen = |uid: &str, version: &str| {
        let [uid, resource_version] = [uid, version].map(|text| Some(text.to_owned()));
        ObjectMeta { uid, resource_version, ..ObjectMeta::default() }
    };
    for (over, stored) in [("1", Some("2")), ("2", Some("3")), ("3", Some("3")), ("3", None)] {
        memories.overtook(&seen("a", over), stored);
    }
    let overtaken = |uid: &str| ["1", "2", "3"].map(|version| memories.is_overtaken(&seen(uid, version)));
    assert_eq!((overtaken("a"), overtaken("b")), ([true, true, false], [false; 3]));
    let long_ago = Instant::now().checked_sub(UNSHOWN).unwrap();
    memories.lock().get_mut("a").unwrap().brought[0].1 = long_ago;
    assert_eq!(overtaken("a"), [false, true, false]);
}

#[test]
fn what_was_brought_about_may_show_later() {
    let memories = Memories::default();
    assert!(!memories.may_show_later("a", "volume"));
    memories.brought("a", "volume".to_owned());
    memories.brought("a", "machine 1".to_owned());
    assert!(memories.may_show_later("a", "volume") && memories.may_show_later("a", "machine 1"));
    assert!(!memories.may_show_later("a", "machine 2") && !memories.may_show_later("b", "volume"));
    let long_ago = Instant::now().checked_sub(UNSHOWN).unwrap();
    memories.lock().get_mut("a").unwrap().brought[0].1 = long_ago;
    assert!(!memories.may_show_later("a", "volume") && memories.may_show_later("a", "machine 1"));
    memories.brought("a", "machine 2".to_owned());
    assert_eq!(memories.lock()["a"].brought.len(), 2, "what is over is forgotten");
}

#[test]
fn a_report_is_kept_back_only_for_so_long_after_another() {
    let memories = Memories::default();
    let hour = Duration::from_hours(1);
    assert_eq!(memories.report_waits("a", hour), None, "nobody knows of another");
    memories.reported("a");
    assert!(memories.report_waits("a", hour).is_some_and(|left| left <= hour));
    assert_eq!(memories.report_waits("a", Duration::ZERO), None);
    assert_eq!(memories.report_waits("b", hour), None);
}

#[test]
fn whose_a_database_is_of_which_nothing_was_said_is_known_until_something_is() {
    let memories = Memories::default();
    let hour = Duration::from_hours(1);
    let database = "d".to_owned();
    memories.begins("a");
    assert_eq!(memories.unsaid("a"), None, "nothing is kept back yet");
    memories.keeps_back("a", Some(&database));
    assert_eq!((memories.unsaid("a"), memories.unsaid("b")), (Some(database), None));
    let waits = memories.report_waits("a", hour);
    memories.begins("a");
    assert!(memories.report_waits("a", hour) <= waits, "its first pass was the first one");
    memories.reported("a");
    assert_eq!(memories.unsaid("a"), None);
    memories.keeps_back("a", None);
    assert_eq!(memories.unsaid("a"), None);
}

#[test]
fn what_was_found_as_intended_is_known_for_a_moment_and_not_of_a_database_at_rest() {
    let memories = Memories::default();
    let [uid, resource_version] = ["u", "1"].map(|text| Some(text.to_owned()));
    let object = ObjectMeta { uid, resource_version, ..ObjectMeta::default() };
    let agreed: Vec<_> = Agreement::of(&object, (&[0; 32], None)).into_iter().collect();
    assert_eq!(agreed.len(), 1);
    let known = || memories.recall("a", 1).agreed;
    memories.agreed("a", Vec::new());
    assert!(memories.is_empty());
    memories.agreed("a", agreed.clone());
    assert_eq!((known(), memories.recall("b", 1).agreed), (agreed.clone(), Vec::new()));
    memories.agreed("a", Vec::new());
    assert_eq!(known(), Vec::new());
    memories.agreed("a", agreed.clone());
    memories.retain(|_| true);
    assert!(!memories.is_empty());
    let long_ago = Instant::now().checked_sub(AGREED).unwrap();
    memories.lock().get_mut("a").unwrap().agreed.as_mut().unwrap().0 = long_ago;
    memories.agreed("a", agreed.clone());
    assert_eq!(known(), Vec::new(), "what is found by what was known does not last the longer for it");
    memories.agreed("a", agreed.clone());
    assert_eq!(known(), agreed);
    memories.lock().get_mut("a").unwrap().agreed.as_mut().unwrap().0 = long_ago;
    memories.retain(|_| true);
    assert!(memories.is_empty());
}

#[test]
fn nothing_is_kept_of_a_database_once_it_makes_no_difference() {
    let memories = Memories::default();
    let long_ago = Instant::now().checked_sub(Duration::from_hours(2)).unwrap();
    let all = |_: &str| true;
    let kept = |change: &dyn Fn(&mut Entry)| {
        let mut entry = Entry::default();
        change(&mut entry);
        memories.lock().insert("a".to_owned(), entry);
        memories.retain(all);
        !memories.is_empty()
    };
    assert!(!kept(&|_| {}));
    for (at, expected) in [(Instant::now(), true), (long_ago, false)] {
        assert_eq!(kept(&|entry| entry.wrote = Some(at)), expected);
        assert_eq!(kept(&|entry| entry.asked = Some(at)), expected);
        assert_eq!(kept(&|entry| entry.reported = Some(at)), expected);
        assert_eq!(kept(&|entry| entry.brought.push(("volume".to_owned(), at))), expected);
        let exhausted = (Role::Volume, "zone".to_owned(), at + EXHAUSTED);
        assert_eq!(kept(&|entry| entry.exhausted.push(exhausted.clone())), expected);
    }
    assert!(kept(&|entry| entry.spent = Some(1)));
    assert!(kept(&|entry| entry.failures = 1));
    assert!(kept(&|entry| entry.overtaken = [((Part::Pod, "set".to_owned()), 1)].into()));
    assert!(kept(&|entry| entry.unsaid = Some("d".to_owned())));
    assert!(kept(&|entry| {
        let nothing = (Vec::new(), Vec::new(), Vec::new());
        let (instances, volumes, security_groups) = nothing;
        entry.seen = Some(Arc::new(Holdings { as_of: long_ago, instances, volumes, security_groups }));
    }));
    assert!(kept(&|entry| {
        let failure = failure(true);
        entry.held.push(Held { generation: 1, until: long_ago, attempts: 1, failure });
    }));
    memories.retain(|_| false);
    assert!(memories.is_empty());
}

fn failure(lasting: bool) -> Failure {
    Failure { part: Part::Tuning, message: "no".to_owned(), lasting, outdated: None, overtaken: false }
}

#[test]
fn what_rests_is_not_tried_before_its_time_unless_the_wish_changes() {
    let memories = Memories::default();
    assert_eq!(memories.held("a", 1, Part::Tuning), None);
    let said = memories.hold("a", 1, failure(false), true);
    assert!(said.message.starts_with("no; tried again after 2"), "{}", said.message);
    assert_eq!(memories.held("a", 1, Part::Tuning), Some(said));
    assert_eq!(memories.held("a", 1, Part::Config), None);
    assert_eq!(memories.held("a", 2, Part::Tuning), None, "another wish may be accepted at once");
    let resting = |generation| memories.recall("a", generation).resting;
    assert_eq!((resting(1), resting(2)), (vec![Part::Tuning], Vec::new()));
    let left = |generation| memories.rests_for("a", generation, &[Part::Tuning]);
    assert!(left(1).unwrap() > RATIONED / 2);
    // Once its time has come it is tried again by itself.
    memories.lock().get_mut("a").unwrap().held[0].until = Instant::now();
    assert_eq!((memories.held("a", 1, Part::Tuning), resting(1)), (None, Vec::new()));
    assert_eq!(left(1), Some(Duration::ZERO));
    memories.hold("a", 2, failure(true), false);
    assert!(left(2).unwrap() <= Duration::from_secs(15));
    memories.went_well("a", Part::Config);
    assert!(memories.held("a", 2, Part::Tuning).is_some());
    memories.went_well("a", Part::Tuning);
    assert_eq!((memories.held("a", 2, Part::Tuning), left(2)), (None, None));
}

#[test]
fn what_was_refused_is_known_to_be_until_it_goes_well_or_the_wish_changes() {
    let memories = Memories::default();
    let refused = |generation| memories.recall("a", generation).refused;
    memories.hold("a", 1, failure(false), false);
    assert_eq!(refused(1), [], "it may be done the next time");
    memories.hold("a", 1, failure(true), false);
    // Also while it is tried again: what went on without it does not wait for it then.
    memories.lock().get_mut("a").unwrap().held[0].until = Instant::now();
    let known = memories.recall("a", 1);
    assert_eq!((known.resting, known.refused), (Vec::new(), vec![Part::Tuning]));
    assert_eq!(refused(2), []);
    memories.went_well("a", Part::Tuning);
    assert_eq!(refused(1), []);
}

#[test]
fn what_rested_under_another_wish_has_nobody_look_sooner() {
    let memories = Memories::default();
    let left = |generation| memories.rests_for("a", generation, &[Part::Tuning]);
    memories.hold("a", 1, failure(false), false);
    assert!(left(1).unwrap() <= Duration::from_secs(1));
    assert_eq!(left(2), None, "nothing has failed under this one");
    memories.hold("a", 2, Failure { part: Part::Candidate, ..failure(false) }, true);
    assert!(left(2).unwrap() > RATIONED / 2);
    // Of two that rest under one wish the first counts.
    memories.hold("a", 2, failure(false), false);
    assert!(left(2).unwrap() <= Duration::from_secs(1));
    assert!(memories.held("a", 2, Part::Candidate).is_some());
}

#[test]
fn what_no_plan_tries_any_more_has_nobody_look_sooner() {
    let memories = Memories::default();
    memories.hold("a", 1, failure(false), true);
    memories.lock().get_mut("a").unwrap().held[0].until = Instant::now();
    assert_eq!(memories.rests_for("a", 1, &[]), None, "it had come before the pass, which did not try it");
    let ended = memories.rests_for("a", 1, &[Part::Tuning]);
    assert_eq!(ended, Some(Duration::ZERO), "its time came during the pass, and the next one tries it");
    // Another one that failed beside it keeps its own time.
    memories.hold("a", 1, Failure { part: Part::Candidate, ..failure(false) }, true);
    assert!(memories.rests_for("a", 1, &[]).unwrap() > RATIONED / 2);
}

#[test]
fn what_was_seen_is_not_unseen() {
    let (memories, began) = (Memories::default(), Instant::now());
    let at = |second| {
        let as_of = began + Duration::from_secs(second);
        let (instances, volumes, security_groups) = (Vec::new(), Vec::new(), Vec::new());
        Arc::new(Holdings { as_of, instances, volumes, security_groups })
    };
    let newest = |second, at_rest| {
        let found = memories.newest("a", at(second), at_rest);
        found.as_of.duration_since(began).as_secs()
    };
    assert_eq!((newest(5, false), memories.seen_at("a")), (5, Some(at(5).as_of)));
    assert_eq!((newest(3, true), newest(4, false)), (5, 5), "the past, for one at rest and one at work");
    assert_eq!((newest(6, true), memories.seen_at("a")), (6, None), "what all share needs no second place");
    assert_eq!(memories.newest("b", at(1), true).as_of, at(1).as_of);
    assert!(!memories.lock().contains_key("b"), "nothing is kept of one at rest");
}

#[test]
fn the_time_of_the_next_attempt_is_told() {
    let now: Timestamp = "2026-01-01T23:59:59.4Z".parse().unwrap();
    assert_eq!(told("no", now, RATIONED), "no; tried again after 2026-01-02T00:04:59Z");
}

#[test]
fn failures_wait_longer_each_time_and_success_forgets() {
    let memories = Memories::default();
    let first = memories.failed("a", false);
    for _ in 0..10 {
        memories.failed("a", false);
    }
    assert!(memories.failed("a", false) > first);
    assert!(memories.failed("b", false) <= Duration::from_secs(1));
    memories.succeeded("a");
    assert!(memories.failed("a", false) <= Duration::from_secs(1));
}

#[test]
fn who_is_quicker_once_in_a_while_does_not_go_on() {
    let memories = Memories::default();
    let goes_on = |uid: &str, object: &str| memories.overtaken(uid, Part::Pod, object.to_owned());
    let five = |object: &str| (0..5).all(|_| !goes_on("a", object));
    assert!(five("set") && goes_on("a", "set") && goes_on("a", "set"));
    assert!(!goes_on("a", "other") && !goes_on("b", "set"), "each by itself");
    memories.went_well("a", Part::Config);
    assert!(goes_on("a", "set"));
    memories.went_well("a", Part::Pod);
    assert!(five("set") && goes_on("a", "set"));
    memories.succeeded("a");
    assert!(five("set"), "a pass has come through");
}

#[test]
fn a_look_shows_all_only_some_time_after_the_last_create_and_the_take_over() {
    let lag = Duration::from_secs(30);
    let memories = Memories::default();
    let later = |seconds| Instant::now() + Duration::from_secs(seconds);
    assert!(!memories.shows_all("a", later(90), lag), "before it leads nothing is known");
    memories.take_over();
    let took_over = *memories.took_over.get().unwrap();
    assert!(!memories.shows_all("a", took_over + lag / 2, lag));
    assert!(memories.shows_all("a", took_over + lag, lag));
    memories.asked("a");
    let asked = memories.lock()["a"].asked.unwrap();
    assert!(!memories.shows_all("a", asked + lag.saturating_sub(Duration::from_nanos(1)), lag));
    assert!(memories.shows_all("a", asked + lag, lag));
    assert_eq!(memories.until_shown("a", asked + lag / 4, lag), Some(lag * 3 / 4));
    assert_eq!(memories.until_shown("a", asked + lag, lag), None);
    assert!(!memories.shows_all("a", took_over, Duration::ZERO), "a look from before the create");
    memories.take_over();
    assert_eq!(memories.took_over.get(), Some(&took_over), "it is taken over once");
}

#[test]
fn a_zone_is_passed_over_until_the_machine_there_can_be_given_up_and_others_are_tried() {
    for lag in [Duration::ZERO, Duration::from_secs(30), Duration::from_mins(10)] {
        let memories = Memories::default();
        memories.take_over();
        memories.asked("a");
        memories.exhausted("a", (Role::Volume, "eu-west-1a"), lag);
        let until = memories.lock()["a"].exhausted[0].2;
        // Then it is left for another zone, and that for a third: each takes as long, and a machine some minutes to come.
        let left = until.checked_sub(Duration::from_mins(9) + lag * 2).unwrap();
        assert!(memories.shows_all("a", left, lag), "{lag:?}");
    }
}

#[test]
fn what_was_learnt_is_recalled_until_the_resource_is_gone() {
    let memories = Memories::default();
    memories.spent("a", 3);
    for (role, zone) in [
        (Role::Instance, "eu-west-1a"),
        (Role::Instance, "eu-west-1a"),
        (Role::Volume, "eu-west-1a"),
        (Role::Volume, "eu-west-1b"),
    ] {
        memories.exhausted("a", (role, zone), Duration::ZERO);
    }
    let zones = |of: &[&str]| of.iter().map(|zone| (*zone).to_owned()).collect();
    let expected = Memory {
        spent: Some(3),
        exhausted_zones: zones(&["eu-west-1a"]),
        zones_without_volumes: zones(&["eu-west-1a", "eu-west-1b"]),
        ..Memory::default()
    };
    assert_eq!(memories.recall("a", 1), expected);
    assert!(!memories.is_empty());
    memories.retain(|uid| uid != "a");
    assert_eq!(memories.recall("a", 1), Memory::default());
    assert!(memories.is_empty());
}

#[test]
fn of_one_that_is_gone_nothing_is_remembered_and_of_others_everything_is() {
    let (memories, now) = (Memories::default(), Instant::now());
    for uid in ["a", "b"] {
        memories.spent(uid, 3);
        memories.waits.lasted(uid, 1, &[(Part::Volume, "attached")], now);
        memories.taken.stands(uid, looks::Question::Change("c".to_owned()), Vec::new(), (now, 0.0));
    }
    memories.forget("a");
    assert_eq!(memories.recall("a", 1), Memory::default());
    assert_eq!(memories.recall("b", 1).spent, Some(3));
    memories.forget("b");
    assert!(memories.is_empty());
}
