//! The breaker by tables, and under a server that flaps.

mod steady;

use super::record::{SICK, SILENT};
use super::trial::ENOUGH;
use super::*;

fn trouble(code: &'static str) -> Trouble {
    Trouble::of_cluster(code, "why")
}

fn silent() -> Answer {
    Answer::Silent(trouble(code::UNREACHABLE))
}

fn sick() -> Answer {
    Answer::Sick(trouble(code::UNAVAILABLE))
}

fn late() -> Answer {
    Answer::Late(trouble(code::UNREACHABLE))
}

struct Scene {
    breaker: Breaker,
    start: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { breaker: Breaker::default(), start: Instant::now() }
    }

    fn at(&self, second: f64) -> Instant {
        self.start + Duration::from_secs_f64(second)
    }

    /// A call that takes no time.
    fn call(&mut self, second: f64, answer: &Answer) {
        let now = self.at(second);
        let ticket = self.breaker.enter(now).unwrap();
        self.breaker.leave(ticket, answer, now, 1.0);
    }

    fn probe(&mut self, second: f64, answer: &Answer) {
        let now = self.at(second);
        self.breaker.probed(answer, now, now, 1.0);
    }

    fn refused(&mut self, second: f64) -> Refusal {
        let now = self.at(second);
        self.breaker.enter(now).unwrap_err()
    }
}

#[test]
fn it_opens_after_failures_in_a_row() {
    for (answer, count) in [(silent(), SILENT), (sick(), SICK)] {
        let mut scene = Scene::new();
        for round in 1..count {
            scene.call(f64::from(round), &answer);
        }
        for _ in 1..count {
            scene.call(10.0, &Answer::Well);
        }
        for round in 1..count {
            scene.call(10.0 + f64::from(round), &answer);
        }
        assert_eq!(scene.breaker.phase(), Phase::Closed, "{answer:?}");
        scene.call(30.0, &answer);
        assert_eq!(scene.breaker.phase(), Phase::Open, "{answer:?}");
    }
}

#[test]
fn a_burst_counts_once() {
    let mut scene = Scene::new();
    for _ in 0..100 {
        scene.call(1.0, &silent());
        scene.call(1.0, &sick());
    }
    assert_eq!(scene.breaker.phase(), Phase::Closed);
}

#[test]
fn a_deadline_of_silence_opens_it_at_once_but_not_one_slow_call_among_others() {
    let mut scene = Scene::new();
    let slow = scene.breaker.enter(scene.at(0.0)).unwrap();
    scene.call(1.0, &Answer::Well);
    scene.breaker.leave(slow, &late(), scene.at(10.0), 1.0);
    assert_eq!(scene.breaker.phase(), Phase::Closed, "another call was answered meanwhile");
    let slow = scene.breaker.enter(scene.at(11.0)).unwrap();
    scene.breaker.leave(slow, &late(), scene.at(21.0), 1.0);
    assert_eq!(scene.breaker.phase(), Phase::Open);
}

#[test]
fn a_stranger_is_told_so_until_new_credentials_come() {
    let mut scene = Scene::new();
    scene.call(0.0, &Answer::Stranger(trouble(code::CREDENTIALS)));
    let refusal = scene.refused(0.1);
    assert_eq!((refusal.trouble.code, refusal.after), (code::CREDENTIALS, None));
    scene.probe(1.0, &Answer::Stranger(trouble(code::CREDENTIALS)));
    assert!(scene.breaker.probe_due(scene.at(1.0)).unwrap() > Duration::from_secs(4));
    scene.breaker.look_again(scene.at(2.0));
    assert_eq!(scene.breaker.probe_due(scene.at(2.0)), Some(Duration::ZERO));
    scene.probe(2.0, &Answer::Well);
    assert_eq!(scene.breaker.phase(), Phase::Trial);
}

#[test]
fn while_open_nothing_goes_out_and_then_a_few_at_a_time() {
    let mut scene = Scene::new();
    for second in 0..3 {
        scene.call(f64::from(second), &silent());
    }
    scene.probe(2.1, &Answer::Well);
    assert_eq!(scene.breaker.phase(), Phase::Open, "not so soon");
    assert_eq!(scene.refused(30.0).after, None);
    assert_eq!(scene.breaker.room(100, scene.at(30.0)), 0);
    scene.probe(31.0, &silent());
    scene.probe(38.0, &Answer::Well);
    let now = scene.at(38.0);
    let mut most = 0;
    let mut won = 0;
    while scene.breaker.phase() == Phase::Trial {
        let mut tickets = Vec::new();
        while scene.breaker.phase() == Phase::Trial
            && let Ok(ticket) = scene.breaker.enter(now)
        {
            tickets.push(ticket);
            assert!(tickets.len() <= won + 1, "one more for each that went well");
        }
        assert_eq!(scene.refused(38.0).after, Some(TURN));
        most = most.max(tickets.len());
        won += tickets.len();
        for ticket in tickets {
            scene.breaker.leave(ticket, &Answer::Well, now, 1.0);
        }
    }
    assert_eq!(scene.breaker.phase(), Phase::Closed);
    assert!(most <= ENOUGH as usize, "{most}");
    assert_eq!(scene.breaker.room(100, now), 100);
}

/// A trial from its beginning: `+` went well, `-` did not.
#[test]
fn on_trial_what_goes_wrong_is_weighed_against_what_goes_well() {
    let table = [
        ("-", Phase::Open, 0),
        ("+", Phase::Trial, 2),
        ("+-", Phase::Trial, 1),
        ("+--", Phase::Open, 0),
        ("++++-", Phase::Trial, 4),
        ("++-++---", Phase::Trial, 1),
        ("++-++----", Phase::Open, 0),
        ("+++++++-", Phase::Trial, 7),
        ("+++++++-+++++++", Phase::Trial, 8),
        ("+++++++-++++++++", Phase::Closed, 100),
        ("++++++++", Phase::Closed, 100),
        // However long it did well before, it is found out as soon.
        ("+++++++-+++++++-+++++++-+++++++-------", Phase::Trial, 1),
        ("+++++++-+++++++-+++++++-+++++++--------", Phase::Open, 0),
    ];
    for (calls, phase, room) in table {
        for wrong in [sick(), silent()] {
            let mut scene = Scene::new();
            scene.call(0.0, &Answer::Stranger(trouble(code::CREDENTIALS)));
            scene.probe(5.0, &Answer::Well);
            let answer = |call| if call == '+' { &Answer::Well } else { &wrong };
            for call in calls.chars() {
                scene.call(5.0, answer(call));
            }
            let found = (scene.breaker.phase(), scene.breaker.room(100, scene.at(5.0)));
            assert_eq!(found, (phase, room), "{calls} {wrong:?}");
        }
    }
}

/// A server on trial of which all but the last of the calls that it needs went well, at the second 5.
fn nearly_won() -> Scene {
    let mut scene = Scene::new();
    scene.call(0.0, &Answer::Stranger(trouble(code::CREDENTIALS)));
    scene.probe(5.0, &Answer::Well);
    for _ in 1..ENOUGH {
        scene.call(5.0, &Answer::Well);
    }
    scene
}

#[test]
fn on_trial_one_that_is_late_while_nothing_is_answered_or_does_not_know_us_is_enough() {
    for answer in [late(), Answer::Stranger(trouble(code::CREDENTIALS))] {
        let mut scene = nearly_won();
        let call = scene.breaker.enter(scene.at(6.0)).unwrap();
        scene.breaker.leave(call, &answer, scene.at(16.0), 1.0);
        assert_eq!(scene.breaker.phase(), Phase::Open, "{answer:?}");
        let mut scene = nearly_won();
        scene.breaker.probed(&answer, scene.at(6.0), scene.at(16.0), 1.0);
        assert_eq!(scene.breaker.phase(), Phase::Open, "a probe: {answer:?}");
    }
}

#[test]
fn on_trial_a_slow_call_among_others_and_a_probe_without_an_answer_weigh_as_much_as_any_failure() {
    let fail: [fn(&mut Scene); 3] = [
        |scene| {
            let slow = scene.breaker.enter(scene.at(5.0)).unwrap();
            scene.breaker.leave(slow, &late(), scene.at(15.0), 1.0);
        },
        |scene| scene.breaker.probed(&late(), scene.at(5.0), scene.at(15.0), 1.0),
        |scene| scene.probe(15.0, &silent()),
    ];
    for (index, fail) in fail.into_iter().enumerate() {
        let mut scene = nearly_won();
        for room in (1..ENOUGH).rev() {
            fail(&mut scene);
            let found = (scene.breaker.phase(), scene.breaker.room(100, scene.at(15.0)));
            assert_eq!(found, (Phase::Trial, room), "{index}");
        }
        fail(&mut scene);
        assert_eq!(scene.breaker.phase(), Phase::Open, "{index}");
    }
}

#[test]
fn a_call_given_up_makes_room_and_proves_nothing() {
    let mut scene = Scene::new();
    scene.call(0.0, &Answer::Stranger(trouble(code::CREDENTIALS)));
    scene.probe(5.0, &Answer::Well);
    let ticket = scene.breaker.enter(scene.at(5.0)).unwrap();
    assert_eq!(scene.breaker.room(9, scene.at(5.0)), 0);
    scene.breaker.abandon(ticket);
    assert_eq!(scene.breaker.room(9, scene.at(5.0)), 1);
    assert_eq!(scene.breaker.phase(), Phase::Trial);
}

#[test]
fn an_answer_of_another_time_moves_nothing() {
    let mut scene = Scene::new();
    let old = scene.breaker.enter(scene.at(0.0)).unwrap();
    let older = scene.breaker.enter(scene.at(0.0)).unwrap();
    scene.call(0.0, &Answer::Stranger(trouble(code::CREDENTIALS)));
    scene.breaker.leave(old, &Answer::Well, scene.at(1.0), 1.0);
    assert_eq!(scene.breaker.phase(), Phase::Open);
    scene.probe(6.0, &Answer::Well);
    scene.breaker.leave(older, &late(), scene.at(9.0), 1.0);
    assert_eq!(scene.breaker.phase(), Phase::Trial);
}

#[test]
fn patience_is_given_but_not_for_ever() {
    for (asked, given) in [(7, 7), (1, 1), (86_400, 60)] {
        let mut scene = Scene::new();
        scene.breaker.rest(Duration::from_secs(asked), scene.at(0.0), 0.0);
        assert_eq!(scene.breaker.phase(), Phase::Resting);
        let refusal = scene.refused(0.0);
        assert_eq!(
            (refusal.trouble.code, refusal.after),
            (code::THROTTLED, Some(Duration::from_secs(given)))
        );
        let almost = Duration::from_secs(given).as_secs_f64() - 0.1;
        scene.refused(almost);
        scene.call(almost + 0.1, &Answer::Well);
        assert_eq!(scene.breaker.phase(), Phase::Trial, "then on trial");
    }
}

#[test]
fn a_longer_rest_stays_and_an_open_one_is_not_shortened() {
    let mut scene = Scene::new();
    scene.breaker.rest(Duration::from_secs(20), scene.at(0.0), 0.0);
    scene.breaker.rest(Duration::from_secs(1), scene.at(0.0), 0.0);
    assert_eq!(scene.refused(0.0).after, Some(Duration::from_secs(20)));
    let mut scene = Scene::new();
    scene.call(0.0, &Answer::Stranger(trouble(code::CREDENTIALS)));
    scene.breaker.rest(Duration::from_secs(30), scene.at(0.0), 0.0);
    assert_eq!(scene.breaker.phase(), Phase::Open);
    scene.probe(29.0, &Answer::Well);
    assert_eq!(scene.breaker.phase(), Phase::Open);
}

/// The server answers probes and fails work, or asks for patience, for ten minutes, while a thousand want to call every
/// tenth of a second.
#[test]
fn a_server_that_flaps_is_asked_ever_more_seldom_and_never_by_many() {
    for (answer, most) in [(sick(), 80_u32), (silent(), 80), (late(), 80)] {
        let mut scene = Scene::new();
        let (mut calls, mut late_calls) = (0, 0);
        for tick in 0..6_000_u32 {
            let second = f64::from(tick) / 10.0;
            let now = scene.at(second);
            let mut tickets = Vec::new();
            while tickets.len() < 32
                && let Ok(ticket) = scene.breaker.enter(now)
            {
                tickets.push(ticket);
            }
            calls += if tick > 600 { u32::try_from(tickets.len()).unwrap() } else { 0 };
            late_calls += u32::from(tick > 600 && tickets.len() > 1);
            for ticket in tickets {
                scene.breaker.leave(ticket, &answer, now, 0.5);
            }
            if scene.breaker.probe_due(now) == Some(Duration::ZERO) {
                scene.breaker.probed(&Answer::Well, now, now, 0.5);
            }
        }
        assert!(calls <= most, "{answer:?}: {calls} calls in nine minutes");
        assert_eq!(late_calls, 0, "{answer:?}: never many at once");
        // Well again: it is found out soon.
        let mut second = 600.0;
        while scene.breaker.phase() != Phase::Closed {
            let now = scene.at(second);
            if scene.breaker.probe_due(now) == Some(Duration::ZERO) {
                scene.breaker.probed(&Answer::Well, now, now, 0.5);
            }
            if let Ok(ticket) = scene.breaker.enter(now) {
                scene.breaker.leave(ticket, &Answer::Well, now, 0.5);
            }
            second += 0.1;
            assert!(second < 620.0, "{answer:?}: still not closed");
        }
    }
}

#[test]
fn a_server_that_was_well_for_long_starts_with_a_clean_record() {
    let mut scene = Scene::new();
    let stranger = Answer::Stranger(trouble(code::CREDENTIALS));
    scene.call(0.0, &stranger);
    assert_eq!(scene.breaker.probe_due(scene.at(0.0)), Some(Duration::from_secs(1)));
    for (second, stay) in [(20.0, 2), (40.0, 4), (200.0, 1)] {
        scene.probe(second, &Answer::Well);
        for _ in 0..ENOUGH {
            scene.call(second, &Answer::Well);
        }
        assert_eq!(scene.breaker.phase(), Phase::Closed);
        let failed = if stay == 1 { second + 61.0 } else { second + 1.0 };
        scene.call(failed, &stranger);
        assert_eq!(scene.breaker.probe_due(scene.at(failed)), Some(Duration::from_secs(stay)), "{second}");
    }
}
