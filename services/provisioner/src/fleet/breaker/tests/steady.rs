//! The breaker before a server that was away, and then fails a part of its calls, probes too, for ten minutes. By a clock of its
//! own, and with a chance that is the same in every run.

use super::*;

/// How long a call takes that is answered, and how often calls are wanted at most.
const TICK: Duration = Duration::from_millis(100);
/// Ten minutes.
const TICKS: u32 = 6_000;
/// How long a call takes that is not.
const DEADLINE: u32 = 100;

/// Fails so many of a hundred calls.
struct Server {
    percent: u64,
    random: u64,
    /// Whether these are not answered at all.
    hangs: bool,
}

impl Server {
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn answer(&mut self) -> Answer {
        match (self.next() % 100 < self.percent, self.hangs) {
            (true, true) => late(),
            (true, false) => sick(),
            (false, _) => Answer::Well,
        }
    }

    fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() % 101).unwrap()) / 100.0
    }
}

/// How many want to call at once, and how often.
#[derive(Debug, Clone, Copy)]
struct Demand {
    at_once: usize,
    every: u32,
}

const DEMANDS: [Demand; 3] = [
    Demand { at_once: 1, every: 10 },
    Demand { at_once: 1, every: 1 },
    // More than are let through at once on trial.
    Demand { at_once: 12, every: 1 },
];

#[derive(Debug, Default)]
struct Seen {
    calls: usize,
    /// Ticks at which it was open.
    open: u32,
    most_on_trial: usize,
}

/// A call under way, and when it ends.
struct Call {
    ticket: Ticket,
    answer: Answer,
    end: u32,
}

impl Call {
    fn new(ticket: Ticket, answer: Answer, tick: u32) -> Self {
        let takes = if matches!(answer, Answer::Late(_)) { DEADLINE } else { 1 };
        Self { ticket, answer, end: tick + takes }
    }
}

fn ten_minutes(mut server: Server, demand: Demand) -> Seen {
    let mut scene = Scene::new();
    for second in 0..SILENT {
        scene.call(f64::from(second), &silent());
    }
    assert_eq!(scene.breaker.phase(), Phase::Open);
    let (mut shown, mut running) = (Seen::default(), Vec::<Call>::new());
    for tick in 0..TICKS {
        let now = scene.at(f64::from(SILENT)) + TICK * tick;
        for call in running.extract_if(.., |call| call.end <= tick) {
            scene.breaker.leave(call.ticket, &call.answer, now, server.share());
        }
        if scene.breaker.probe_due(now) == Some(Duration::ZERO) {
            let answer = server.answer();
            scene.breaker.probed(&answer, now, now, server.share());
        }
        while tick.is_multiple_of(demand.every)
            && running.len() < demand.at_once
            && let Ok(ticket) = scene.breaker.enter(now)
        {
            running.push(Call::new(ticket, server.answer(), tick));
            shown.calls += 1;
        }
        match scene.breaker.phase() {
            Phase::Open => shown.open += 1,
            Phase::Trial => shown.most_on_trial = shown.most_on_trial.max(running.len()),
            Phase::Closed | Phase::Resting => {}
        }
    }
    shown
}

/// A server that does more well than not is used nearly all the time, and one that does not is left alone.
#[test]
fn a_steady_minority_of_errors_does_not_park_a_cluster_and_a_majority_does() {
    // Of a hundred calls so many fail; of the time, it may be open for so much, in percent, and must be; calls, at most.
    let table = [
        (10, 0..=5, usize::MAX),
        (20, 0..=10, usize::MAX),
        (30, 0..=15, usize::MAX),
        (40, 0..=30, usize::MAX),
        (70, 70..=100, 300),
        (90, 95..=100, 60),
        (100, 99..=100, 0),
    ];
    for (percent, open, most) in table {
        for (demand, seed) in DEMANDS.into_iter().flat_map(|demand| (1..=8).map(move |seed| (demand, seed))) {
            let seen = ten_minutes(Server { percent, random: seed, hangs: false }, demand);
            let case = format!("{percent} % fail, {demand:?}, {seed}: {seen:?}");
            assert!(open.contains(&(seen.open * 100 / TICKS)), "{case}");
            assert!(seen.calls <= most, "{case}");
            assert!(seen.most_on_trial <= ENOUGH as usize, "{case}");
        }
    }
}

/// Of twelve calls at once one is always answered meanwhile, where one in five is: no silence tells, only the share does.
#[test]
fn a_server_that_does_not_answer_most_calls_is_left_alone_and_one_that_answers_most_is_used() {
    // Of a hundred calls so many hang; of the time, it may be open for so much, in percent, and must be; calls, at most.
    let table = [
        (10, 0..=5, usize::MAX),
        (20, 0..=10, usize::MAX),
        (30, 0..=15, usize::MAX),
        (80, 50..=100, 200),
        (90, 60..=100, 100),
    ];
    let [.., demand] = DEMANDS;
    for (percent, open, most) in table {
        for seed in 1..=8 {
            let seen = ten_minutes(Server { percent, random: seed, hangs: true }, demand);
            let case = format!("{percent} % hang, {seed}: {seen:?}");
            assert!(open.contains(&(seen.open * 100 / TICKS)), "{case}");
            assert!(seen.calls <= most, "{case}");
        }
    }
}
