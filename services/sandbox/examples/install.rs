//! Installs what the local stack runs on, and tells what it does on standard error.
//!
//! ```text
//! cargo run -p sandbox --example install -- CACHE [packages|etcd|kubernetes|questdb|kafka|aws …]
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sandbox::install::{Cache, Component, Release, ensure};
use sandbox::progress::Progress;

struct Lines;

impl Progress for Lines {
    fn start(&self, step: &str) {
        eprintln!("{step}: begins");
    }

    fn note(&self, step: &str, text: &str) {
        eprintln!("{step}: {text}");
    }

    fn done(&self, step: &str, elapsed: Duration) {
        eprintln!("{step}: done in {:.1} s", elapsed.as_secs_f64());
    }

    fn failed(&self, step: &str, log_tail: &str, hint: &str) {
        eprintln!("{step}: failed\n{log_tail}\ntry: {hint}");
    }
}

fn component(name: &str) -> Option<Component> {
    match name {
        "packages" => Some(Component::SystemPackages),
        "etcd" => Some(Component::Etcd),
        "kubernetes" => Some(Component::Kubernetes(Release::Usual)),
        "questdb" => Some(Component::QuestDb),
        "older-questdb" => Some(Component::OlderQuestDb),
        "kafka" => Some(Component::Kafka),
        "aws" => Some(Component::AwsEndpoint),
        _ => None,
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(cache) = arguments.next() else {
        eprintln!("usage: install CACHE [packages|etcd|kubernetes|questdb|kafka|aws ...]");
        return ExitCode::from(2);
    };
    let mut chosen: Vec<Component> = Vec::new();
    for name in arguments {
        let Some(component) = component(&name) else {
            eprintln!("there is no component {name}");
            return ExitCode::from(2);
        };
        chosen.push(component);
    }
    if chosen.is_empty() {
        chosen.extend(Component::ALL);
    }
    let since = Instant::now();
    match ensure(&Cache::at(cache), &chosen, &Lines) {
        Ok(installed) => {
            eprintln!("{installed:?}\nin {:?}", since.elapsed());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
