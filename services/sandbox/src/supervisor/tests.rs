//! The supervisor's loop with real processes: small shell commands stand in for servers.

use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::record::Record;
use super::{Phase, ProgramStatus, Request, Status, ask, record, run};
use crate::process::{self, Process, STACK_MARKER};
use crate::stack::{Check, Layout, Program, Programs};

/// Nothing here should take a fraction of it, unless the machine stands still.
const LIMIT: Duration = Duration::from_mins(2);

/// A stack of shell commands in a folder of its own, with a supervisor in a thread.
struct Scene {
    layout: Layout,
    stack: String,
    supervisor: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let stack = format!("unit-{name}-{}", std::process::id());
        let state = std::env::temp_dir().join(&stack);
        let layout = Layout::new(&state, &state);
        for folder in layout.folders() {
            std::fs::create_dir_all(folder).expect("made");
        }
        Self { layout, stack, supervisor: None }
    }

    fn program(&self, name: &str, script: &str) -> Program {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let mut program = Program::new(name, command, self.layout.state());
        program.ready = Check::File { path: self.file(&format!("{name}.ready")) };
        program.stop.grace = 2;
        program
    }

    /// A script that says it is ready and then waits to be ended.
    fn server(&self, name: &str) -> Program {
        let ready = self.file(&format!("{name}.ready"));
        self.program(name, &format!("touch {}; exec sleep 600", ready.display()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.layout.state().join(name)
    }

    fn define(&self, programs: Vec<Program>) {
        Programs { stack: self.stack.clone(), programs }.write(&self.layout).expect("written");
    }

    fn start(&mut self, programs: Vec<Program>) {
        self.define(programs);
        let layout = self.layout.clone();
        self.supervisor = Some(thread::spawn(move || run::run(layout)));
    }

    /// Asks until the condition holds.
    fn until(&self, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = ask(&self.layout, &Request::Status);
            match &status {
                Ok(status) if holds(status) => return status.clone(),
                _ => assert!(Instant::now() < deadline, "{what}: {status:?}"),
            }
            thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn until_program(&self, name: &str, holds: impl Fn(&ProgramStatus) -> bool) -> ProgramStatus {
        let status = self.until(name, |status| status.program(name).is_some_and(&holds));
        status.program(name).cloned().expect("it was there")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            let asked = ask(&self.layout, &Request::Stop);
            if asked.is_ok() {
                supervisor.join().expect("the loop does not panic").expect("the loop ends well");
                assert_eq!(process::of_stack(&self.stack), [], "nothing outlives an ordered stop");
            }
        }
        let _ = std::fs::remove_dir_all(self.layout.state());
    }
}

#[test]
fn programs_start_after_what_they_need_and_end_before_it() {
    let mut scene = Scene::new("order");
    let first = scene.server("first");
    let second = scene.server("second").after(&["first"]);
    scene.start(vec![second, first]);
    scene.until("both are ready", |status| status.all_ready(["first", "second"]));
    ask(&scene.layout, &Request::Stop).expect("it answers");
    let supervisor = scene.supervisor.take().expect("it runs");
    supervisor.join().expect("no panic").expect("it ends well");
    let events = std::fs::read_to_string(scene.layout.events_file()).expect("written");
    let at = |text: &str| events.find(text).unwrap_or_else(|| panic!("'{text}' is not in\n{events}"));
    assert!(at("first ready") < at("second started"));
    assert!(at("second stopped") < at("first is asked to end"));
    assert_eq!(process::of_stack(&scene.stack), []);
}

#[test]
fn what_dies_comes_back_and_what_keeps_dying_is_told() {
    let mut scene = Scene::new("deaths");
    let server = scene.server("server");
    let broken = scene.program("broken", "echo no good; exit 3");
    scene.start(vec![server, broken]);
    let before = scene.until_program("server", |program| program.phase == Phase::Ready);
    ask(&scene.layout, &Request::Signal { name: "server".to_owned(), signal: 9 }).expect("it answers");
    let after =
        scene.until_program("server", |program| program.restarts == 1 && program.phase == Phase::Ready);
    assert_ne!(after.pid, before.pid);
    assert_eq!(after.last_exit.as_deref(), Some("signal: 9 (SIGKILL)"));
    let broken = scene.until_program("broken", |program| program.failures >= 2);
    assert_eq!(broken.last_exit.as_deref(), Some("exit status: 3"));
    let log = std::fs::read_to_string(scene.layout.log("broken")).expect("written");
    assert!(log.starts_with("no good\nno good\n"), "{log}");
}

#[test]
fn a_held_program_stays_down_until_it_is_started() {
    let mut scene = Scene::new("hold");
    let server = scene.server("server");
    let dependent = scene.server("dependent").after(&["server"]);
    scene.start(vec![server, dependent]);
    scene.until("both are ready", |status| status.all_ready(["server", "dependent"]));
    ask(&scene.layout, &Request::Hold { name: "server".to_owned() }).expect("it answers");
    let status = scene.until("it is held", |status| {
        status.program("server").is_some_and(|program| program.phase == Phase::Stopped)
    });
    assert!(status.all_ready(["dependent"]), "a fault spares those that depend on it");
    ask(&scene.layout, &Request::Start { name: "server".to_owned() }).expect("it answers");
    scene.until("both are ready again", |status| status.all_ready(["server", "dependent"]));
    assert!(ask(&scene.layout, &Request::Hold { name: "nobody".to_owned() }).is_err());
}

#[test]
fn a_new_definition_restarts_only_what_differs() {
    let mut scene = Scene::new("apply");
    let (same, changed, gone) = (scene.server("same"), scene.server("changed"), scene.server("gone"));
    scene.start(vec![same.clone(), changed.clone(), gone]);
    let before = scene.until("all are ready", |status| status.all_ready(["same", "changed", "gone"]));
    let changed = changed.env(&[("A", "b".to_owned())]);
    let added = scene.server("added");
    scene.define(vec![same, changed, added]);
    ask(&scene.layout, &Request::Apply).expect("it answers");
    let pid = |status: &Status, name: &str| status.program(name).and_then(|program| program.pid);
    let after = scene.until("the new definition runs", |status| {
        status.all_ready(["same", "changed", "added"])
            && status.program("gone").is_none()
            && pid(status, "changed") != pid(&before, "changed")
    });
    assert_eq!(pid(&after, "same"), pid(&before, "same"));
}

#[test]
fn what_an_earlier_supervisor_left_running_is_adopted() {
    let mut scene = Scene::new("adopt");
    let server = scene.server("server");
    let mut left = Command::new("sh")
        .args(&server.command[1..])
        .env(STACK_MARKER, &scene.stack)
        .spawn()
        .expect("started");
    let process = Process::of_pid(left.id().cast_signed()).expect("it runs");
    record::write(&scene.layout, &Record { process, program: server.clone() }).expect("written");
    scene.start(vec![server]);
    let adopted = scene.until_program("server", |program| program.phase == Phase::Ready);
    assert_eq!((adopted.pid, adopted.restarts), (Some(process.pid), 0));
    ask(&scene.layout, &Request::Stop).expect("it answers");
    // Here we are its parent and have to reap it; otherwise that is init's work.
    left.wait().expect("it ends");
    scene.supervisor.take().expect("it runs").join().expect("no panic").expect("it ends well");
}
