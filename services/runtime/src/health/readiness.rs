//! The components a program depends on, each with its state, the reason and since when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::lock;

/// Why a component is failing before anybody looked.
const NOT_CHECKED: &str = "not checked yet";

/// The components of a program. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Components);

type Components = Arc<Mutex<BTreeMap<String, ComponentReport>>>;

/// How a component is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It works.
    Ok,
    /// It does not, for this reason.
    Failing(String),
}

/// What is known of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentReport {
    /// How it is.
    pub state: State,
    /// Since when it is so (a new reason does not begin anew).
    pub since: Timestamp,
    /// Whether the program is unready without it.
    pub required: bool,
}

/// One component, to report its state.
#[derive(Debug, Clone)]
pub struct Component {
    name: String,
    components: Components,
}

impl Readiness {
    /// A component without which the program is not ready; failing until it is said to work.
    pub fn component(&self, name: impl Into<String>) -> Component {
        self.register(name.into(), true)
    }

    /// A component that is shown but does not decide, such as one cluster of many: one sick thing hurts only itself.
    pub fn informative(&self, name: impl Into<String>) -> Component {
        self.register(name.into(), false)
    }

    /// Forgets a component; handles to it then do nothing.
    pub fn remove(&self, name: &str) {
        lock(&self.0).remove(name);
    }

    /// Whether all required components work.
    pub fn is_ready(&self) -> bool {
        lock(&self.0).values().all(|component| !component.required || component.state == State::Ok)
    }

    /// All components by name.
    pub fn report(&self) -> BTreeMap<String, ComponentReport> {
        lock(&self.0).clone()
    }

    /// The answer of `/readyz`: what is not ready comes by name and with its reason.
    pub fn to_json(&self) -> Value {
        let components = self.report();
        let ready = components.values().all(|component| !component.required || component.state == State::Ok);
        let failing = components
            .iter()
            .filter(|(_, component)| component.required && component.state != State::Ok)
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>();
        let all = components.iter().map(|(name, component)| component.to_json(name)).collect::<Vec<_>>();
        json!({ "ready": ready, "failing": failing, "components": all })
    }

    fn register(&self, name: String, required: bool) -> Component {
        let unknown = || ComponentReport {
            state: State::Failing(NOT_CHECKED.to_owned()),
            since: Timestamp::now(),
            required,
        };
        lock(&self.0).entry(name.clone()).or_insert_with(unknown).required = required;
        Component { name, components: Arc::clone(&self.0) }
    }
}

impl ComponentReport {
    fn to_json(&self, name: &str) -> Value {
        let (state, reason) = match &self.state {
            State::Ok => ("ok", None),
            State::Failing(reason) => ("failing", Some(reason)),
        };
        let since = format!("{:.3}", self.since);
        json!({ "name": name, "state": state, "reason": reason, "since": since, "required": self.required })
    }
}

impl Component {
    /// It works.
    pub fn set_ok(&self) {
        self.set(State::Ok);
    }

    /// It does not work, for this reason.
    pub fn set_failing(&self, reason: impl Into<String>) {
        self.set(State::Failing(reason.into()));
    }

    /// Records the result of a check; the error's text becomes the reason.
    pub fn set<T: Into<State>>(&self, state: T) {
        let state = state.into();
        let mut components = lock(&self.components);
        let Some(component) = components.get_mut(&self.name) else { return };
        let turned = (state == State::Ok) != (component.state == State::Ok);
        if turned {
            component.since = Timestamp::now();
        }
        component.state = state.clone();
        drop(components);
        match (turned, state) {
            (true, State::Ok) => tracing::info!(component.name = %self.name, "component works"),
            (true, State::Failing(reason)) => {
                tracing::warn!(component.name = %self.name, reason, "component does not work");
            }
            (false, _) => {}
        }
    }
}

impl<T, E: std::error::Error + 'static> From<Result<T, E>> for State {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(|error| Self::Failing(crate::telemetry::chain(&error)), |_| Self::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_components_is_ready() {
        assert!(Readiness::default().is_ready());
    }

    #[test]
    fn a_component_fails_until_it_is_said_to_work() {
        let readiness = Readiness::default();
        let postgres = readiness.component("postgres");
        assert_eq!(readiness.report()["postgres"].state, State::Failing("not checked yet".to_owned()));
        assert!(!readiness.is_ready());
        postgres.set_ok();
        assert!(readiness.is_ready());
        postgres.set_failing("connection refused");
        assert!(!readiness.is_ready());
    }

    #[test]
    fn the_answer_names_what_is_not_ready_and_why() {
        let readiness = Readiness::default();
        readiness.component("kafka").set_ok();
        readiness.component("postgres").set_failing("connection refused");
        readiness.informative("cluster eu-west-1").set_failing("breaker open");
        let answer = readiness.to_json();
        assert_eq!(answer["ready"], false);
        assert_eq!(answer["failing"], json!(["postgres"]));
        let names =
            answer["components"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect::<Vec<_>>();
        assert_eq!(names, ["cluster eu-west-1", "kafka", "postgres"]);
        assert_eq!(answer["components"][1]["reason"], Value::Null);
        assert_eq!(answer["components"][2]["reason"], "connection refused");
        assert!(answer["components"][2]["since"].as_str().unwrap().parse::<Timestamp>().is_ok());
    }

    #[test]
    fn an_informative_component_does_not_decide() {
        let readiness = Readiness::default();
        readiness.informative("cluster eu-west-1").set_failing("breaker open");
        assert!(readiness.is_ready());
        assert_eq!(readiness.to_json()["ready"], true);
    }

    #[test]
    fn since_moves_only_when_the_state_turns() {
        let readiness = Readiness::default();
        let kafka = readiness.component("kafka");
        let since = || readiness.report()["kafka"].since;
        let began = since();
        kafka.set_failing("no broker");
        assert_eq!(since(), began);
        kafka.set_ok();
        let turned = since();
        assert!(turned >= began);
        kafka.set_ok();
        assert_eq!(since(), turned);
    }

    #[test]
    fn the_same_name_is_the_same_component() {
        let readiness = Readiness::default();
        let first = readiness.component("postgres");
        readiness.component("postgres").set_ok();
        assert!(readiness.is_ready());
        first.set_failing("gone");
        assert_eq!(readiness.report().len(), 1);
        assert!(!readiness.is_ready());
    }

    #[test]
    fn a_removed_component_does_not_come_back() {
        let readiness = Readiness::default();
        let cluster = readiness.component("cluster us-east-1");
        readiness.remove("cluster us-east-1");
        cluster.set_failing("unreachable");
        assert!(readiness.is_ready());
    }

    #[test]
    fn a_check_sets_the_state_by_its_result() {
        let readiness = Readiness::default();
        let kafka = readiness.component("kafka");
        kafka.set(Err::<(), _>(std::io::Error::other("no broker")));
        assert_eq!(readiness.report()["kafka"].state, State::Failing("no broker".to_owned()));
        kafka.set(Ok::<_, std::io::Error>(3));
        assert!(readiness.is_ready());
    }

    #[test]
    fn a_turn_is_logged_once() {
        let lines = crate::telemetry::test_support::logged("info", || {
            let kafka = Readiness::default().component("kafka");
            kafka.set_ok();
            kafka.set_ok();
            kafka.set_failing("no broker");
            kafka.set_failing("still no broker");
        });
        let messages = lines.iter().map(|line| line["message"].clone()).collect::<Vec<_>>();
        assert_eq!(messages, ["component works", "component does not work"]);
        assert_eq!(lines[1]["component.name"], "kafka");
        assert_eq!(lines[1]["reason"], "no broker");
    }
}
