//! Steps as they move: spinners on a terminal, plain lines elsewhere. What an event means is decided by the pure
//! [`Steps`]; it asks nobody anything.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use wire::http::OperationEvent;
use wire::http::operation::Step;

use crate::output::{Colour, Output};
use crate::render::text::{clean, took};

/// What an event changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A step began.
    Began {
        /// Its name.
        step: String,
        /// What it waits for.
        message: String,
    },
    /// A step that is under way waits for something else.
    Waits {
        /// Its name.
        step: String,
        /// What it waits for.
        message: String,
    },
    /// A step is done.
    Done {
        /// Its name.
        step: String,
        /// How long it took, where that is known.
        took: Option<Duration>,
    },
    /// A step failed; it may be tried again.
    Failed {
        /// Its name.
        step: String,
        /// Why.
        message: String,
    },
}

/// The steps of an operation as far as they are known. Pure.
#[derive(Debug, Default)]
pub struct Steps {
    known: BTreeMap<String, (String, String)>,
}

impl Steps {
    /// Takes an event; answers what it changed, if anything.
    pub fn apply(&mut self, event: &OperationEvent) -> Option<Change> {
        let step = event.step.as_ref()?;
        let now = (step.state.clone(), step.message.clone());
        let before = self.known.insert(step.name.clone(), now.clone());
        if before.as_ref() == Some(&now) {
            return None;
        }
        let was_running = before.is_some_and(|(state, _)| state == "running");
        let (name, message) = (clean(&step.name), clean(&step.message));
        match step.state.as_str() {
            "running" if was_running => Some(Change::Waits { step: name, message }),
            "running" => Some(Change::Began { step: name, message }),
            "succeeded" => Some(Change::Done { step: name, took: length(step) }),
            "failed" => Some(Change::Failed { step: name, message }),
            _ => None,
        }
    }
}

/// How long a step took.
pub fn length(step: &Step) -> Option<Duration> {
    let (started, ended) = (step.started_at?, step.ended_at?);
    Duration::try_from(ended.duration_since(started)).ok()
}

/// Shows the steps of an operation.
#[derive(Debug)]
pub struct Display {
    output: Output,
    steps: Steps,
    live: Option<MultiProgress>,
    spinners: BTreeMap<String, ProgressBar>,
}

impl Display {
    /// Nothing yet.
    pub fn new(output: Output) -> Self {
        let live = output.live().then(MultiProgress::new);
        Self { output, steps: Steps::default(), live, spinners: BTreeMap::new() }
    }

    /// Shows what an event changed.
    pub fn event(&mut self, event: &OperationEvent) {
        let Some(change) = self.steps.apply(event) else { return };
        if let Some(live) = self.live.clone() {
            self.spin(&live, &change);
        }
        if let Some(line) = line(&change, self.live.is_some(), self.output) {
            // A terminal that cannot be drawn on is no reason to stop.
            match &self.live {
                Some(live) => live.suspend(|| self.output.progress(&line)),
                None => self.output.progress(&line),
            }
        }
    }

    fn spin(&mut self, live: &MultiProgress, change: &Change) {
        match change {
            Change::Began { step, message } | Change::Waits { step, message } => {
                let spinner = self.spinners.entry(step.clone()).or_insert_with(|| spinner(live));
                spinner.set_message(if message.is_empty() {
                    step.clone()
                } else {
                    format!("{step}: {message}")
                });
            }
            Change::Done { step, .. } | Change::Failed { step, .. } => {
                if let Some(spinner) = self.spinners.remove(step) {
                    spinner.finish_and_clear();
                }
            }
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        for spinner in self.spinners.values() {
            spinner.finish_and_clear();
        }
    }
}

fn spinner(live: &MultiProgress) -> ProgressBar {
    let spinner = live.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

/// The line of a change. Where spinners turn, they show what goes on.
fn line(change: &Change, live: bool, output: Output) -> Option<String> {
    let with = |step: &str, message: &str| {
        if message.is_empty() { step.to_owned() } else { format!("{step}: {message}") }
    };
    match change {
        Change::Began { step, message } => (!live).then(|| format!("► {}", with(step, message))),
        Change::Waits { .. } => None,
        Change::Done { step, took: length } => {
            let mark = output.paint(Colour::Green, "✔");
            let length = length.map(|length| format!(" {}", took(length))).unwrap_or_default();
            Some(format!("{mark} {step}{length}"))
        }
        Change::Failed { step, message } => {
            Some(format!("{} {}", output.paint(Colour::Red, "✗"), with(step, message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn event(name: &str, state: &str, message: &str, seconds: Option<i64>) -> OperationEvent {
        let start = jiff::Timestamp::from_second(1_000).unwrap();
        let step = Step {
            name: name.to_owned(),
            state: state.to_owned(),
            message: message.to_owned(),
            started_at: Some(start),
            ended_at: seconds.map(|seconds| start + jiff::SignedDuration::from_secs(seconds)),
        };
        OperationEvent {
            number: 1,
            kind: "step".to_owned(),
            state: "running".to_owned(),
            step: Some(step),
            error: None,
            at: start,
        }
    }

    #[test]
    fn a_run_in_plain_lines() {
        let output = Output::new(&Cli::parse_from(["slipway", "--no-color", "version"]).global);
        let events = [
            event("volume", "pending", "", None),
            event("volume", "running", "being made", None),
            event("volume", "running", "being made", None),
            event("volume", "running", "attaching", None),
            event("volume", "succeeded", "", Some(2)),
            event("volume", "succeeded", "", Some(2)),
            event("dns", "running", "", None),
            event("dns", "failed", "throttled", None),
            event("dns", "running", "", None),
            event("dns", "succeeded", "", Some(75)),
        ];
        let mut steps = Steps::default();
        let lines: Vec<String> = events
            .iter()
            .filter_map(|event| steps.apply(event))
            .filter_map(|change| line(&change, false, output))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        ► volume: being made
        ✔ volume 2.0s
        ► dns
        ✗ dns: throttled
        ► dns
        ✔ dns 1m15s
        ");
    }

    #[test]
    fn events_without_a_step_change_no_step() {
        let mut state = event("x", "running", "", None);
        state.step = None;
        assert_eq!(Steps::default().apply(&state), None);
    }

    #[test]
    fn times_that_run_backwards_have_no_length() {
        let mut odd = event("x", "succeeded", "", Some(-5));
        assert_eq!(length(odd.step.as_ref().unwrap()), None);
        odd.step.as_mut().unwrap().ended_at = None;
        assert_eq!(length(odd.step.as_ref().unwrap()), None);
    }
}
