//! Loops that must come round: each says so, and is stuck when it has not for too long.
//!
//! A loop that *ends* is not seen here (its entry goes with its heartbeat): that is the task list's business.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lock;
use crate::telemetry::millis;

/// The loops of a program. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Liveness(Arc<Mutex<BTreeMap<String, Weak<Pulse>>>>);

#[derive(Debug)]
struct Pulse {
    last: Mutex<Instant>,
    limit: Duration,
}

/// What a loop holds and beats once a round. The loop is forgotten when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<Pulse>);

/// A loop as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loop {
    /// Its name.
    pub name: String,
    /// Time since it last came round.
    pub age: Duration,
    /// How long a round may take.
    pub limit: Duration,
}

impl Liveness {
    /// Registers a loop whose rounds take less than `limit`, idle waits included. It counts as beating now. The same
    /// name again replaces the entry.
    pub fn heartbeat(&self, name: impl Into<String>, limit: Duration) -> Heartbeat {
        let pulse = Arc::new(Pulse { last: Mutex::new(Instant::now()), limit });
        lock(&self.0).insert(name.into(), Arc::downgrade(&pulse));
        Heartbeat(pulse)
    }

    /// All loops as they are at `now`.
    pub fn loops(&self, now: Instant) -> Vec<Loop> {
        let mut loops = lock(&self.0);
        loops.retain(|_, pulse| pulse.strong_count() > 0);
        loops
            .iter()
            .filter_map(|(name, pulse)| pulse.upgrade().map(|pulse| (name, pulse)))
            .map(|(name, pulse)| Loop {
                name: name.clone(),
                age: now.saturating_duration_since(*lock(&pulse.last)),
                limit: pulse.limit,
            })
            .collect()
    }

    /// Whether every loop came round in time.
    pub fn is_alive(&self, now: Instant) -> bool {
        !self.loops(now).iter().any(Loop::is_stuck)
    }

    /// The answer of `/healthz`: what is stuck comes by name.
    pub fn to_json(&self, now: Instant) -> Value {
        let loops = self.loops(now);
        let stuck = loops.iter().filter(|l| l.is_stuck()).map(|l| l.name.as_str()).collect::<Vec<_>>();
        let all = loops
            .iter()
            .map(|l| json!({ "name": l.name, "age_ms": millis(l.age), "limit_ms": millis(l.limit) }))
            .collect::<Vec<_>>();
        json!({ "alive": stuck.is_empty(), "stuck": stuck, "loops": all })
    }
}

impl Loop {
    /// Whether it has not come round for too long.
    pub fn is_stuck(&self) -> bool {
        self.age > self.limit
    }
}

impl Heartbeat {
    /// The loop came round.
    pub fn beat(&self) {
        *lock(&self.0.last) = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_loop_is_stuck_when_its_limit_has_passed() {
        let liveness = Liveness::default();
        let _relay = liveness.heartbeat("relay", LIMIT);
        let now = Instant::now();
        assert!(liveness.is_alive(now));
        let later = now + LIMIT + Duration::from_secs(1);
        assert!(!liveness.is_alive(later));
        assert_eq!(liveness.to_json(later)["stuck"], json!(["relay"]));
        assert_eq!(liveness.to_json(later)["alive"], false);
    }

    #[test]
    fn a_beat_begins_a_new_round() {
        let liveness = Liveness::default();
        let relay = liveness.heartbeat("relay", LIMIT);
        let age = |now| liveness.loops(now)[0].age;
        let before = Instant::now() + Duration::from_secs(5);
        let old = age(before);
        // The clock is only ever read, so what a beat changes is seen from one fixed moment.
        while age(before) >= old {
            relay.beat();
        }
        assert!(age(before) < old);
    }

    #[test]
    fn only_the_stuck_one_is_named() {
        let liveness = Liveness::default();
        let _quick = liveness.heartbeat("quick", Duration::from_millis(1));
        let _slow = liveness.heartbeat("slow", Duration::from_hours(1));
        let answer = liveness.to_json(Instant::now() + Duration::from_secs(1));
        assert_eq!(answer["stuck"], json!(["quick"]));
        assert_eq!(answer["loops"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_dropped_heartbeat_is_forgotten() {
        let liveness = Liveness::default();
        let first = liveness.heartbeat("relay", LIMIT);
        let second = first.clone();
        drop(first);
        assert_eq!(liveness.loops(Instant::now()).len(), 1);
        drop(second);
        assert!(liveness.is_alive(Instant::now() + LIMIT * 2));
    }
}
