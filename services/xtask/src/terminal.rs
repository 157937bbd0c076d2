//! Shows on the error stream what is being done: moving lines on a terminal, plain lines anywhere else.
//!
//! *Invariant:* finished steps are printed once and stay; only the block of running steps is drawn again.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sandbox::clock;
use sandbox::progress::Progress;

/// Longest line of the moving block: one that wraps could not be drawn over.
const WIDTH: usize = 100;
/// How often the moving block is drawn.
const REDRAW: Duration = Duration::from_millis(200);
/// Without a terminal, a step that takes this long says that it is still alive.
const STILL_ALIVE: Duration = Duration::from_secs(20);

/// Prints what was asked for on the output stream; a reader that went away is no error.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The person who waits.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    board: Arc<Mutex<Board>>,
}

#[derive(Debug)]
struct Board {
    moving: bool,
    running: Vec<Step>,
    drawn: usize,
}

#[derive(Debug)]
struct Step {
    name: String,
    since: Instant,
    note: String,
    told: Instant,
}

impl Terminal {
    /// Starts drawing; ends by itself when the last copy is dropped.
    pub(crate) fn start() -> Self {
        let moving = std::io::stderr().is_terminal();
        let board = Arc::new(Mutex::new(Board { moving, running: Vec::new(), drawn: 0 }));
        let watched = Arc::downgrade(&board);
        // Without the thread nothing moves, which is no reason to stop.
        let _ = thread::Builder::new().name("terminal".to_owned()).spawn(move || redraw(&watched));
        Self { board }
    }

    /// A line that stays.
    pub(crate) fn line(&self, text: &str) {
        self.with(|board| board.print(text));
    }

    /// Takes a step off the moving lines without a word.
    pub(crate) fn forget(&self, step: &str) {
        self.with(|board| board.running.retain(|running| running.name != step));
    }

    fn with(&self, work: impl FnOnce(&mut Board)) {
        // A panic elsewhere must not silence the rest.
        work(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Progress for Terminal {
    fn start(&self, step: &str) {
        let now = Instant::now();
        self.with(|board| {
            board.running.push(Step { name: step.to_owned(), since: now, note: String::new(), told: now });
            board.draw();
        });
    }

    fn note(&self, step: &str, text: &str) {
        self.with(|board| {
            if let Some(step) = board.running.iter_mut().find(|running| running.name == step) {
                text.clone_into(&mut step.note);
            }
        });
    }

    fn done(&self, step: &str, elapsed: Duration) {
        self.with(|board| {
            board.running.retain(|running| running.name != step);
            board.print(&format!("  ok    {step:<40} {}", clock::span(elapsed)));
        });
    }

    fn failed(&self, step: &str, log_tail: &str, hint: &str) {
        self.with(|board| {
            board.running.retain(|running| running.name != step);
            let indented: Vec<String> = log_tail.lines().map(|line| format!("        | {line}")).collect();
            board.print(&format!("  FAIL  {step}\n{}\n        {hint}", indented.join("\n")));
        });
    }
}

impl Board {
    fn print(&mut self, text: &str) {
        self.erase();
        // Nothing can be done for somebody who has closed the terminal.
        let _ = writeln!(std::io::stderr(), "{text}");
        self.draw();
    }

    fn erase(&mut self) {
        for _ in 0..self.drawn {
            let _ = write!(std::io::stderr(), "\x1b[1A\x1b[2K");
        }
        self.drawn = 0;
    }

    fn draw(&mut self) {
        if !self.moving {
            return;
        }
        self.erase();
        let lines: Vec<String> = self.running.iter().map(Step::line).collect();
        for line in &lines {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        self.drawn = lines.len();
        let _ = std::io::stderr().flush();
    }

    /// Without a terminal: a sign of life of what takes long.
    fn remind(&mut self) {
        let now = Instant::now();
        let mut lines = Vec::new();
        for step in &mut self.running {
            if now.duration_since(step.told) >= STILL_ALIVE {
                step.told = now;
                lines.push(step.line());
            }
        }
        for line in lines {
            self.print(&line);
        }
    }
}

impl Step {
    fn line(&self) -> String {
        let text =
            format!("  ...   {:<40} {:<10} {}", self.name, clock::span(self.since.elapsed()), self.note);
        text.trim_end().chars().take(WIDTH).collect()
    }
}

fn redraw(board: &Weak<Mutex<Board>>) {
    while let Some(board) = board.upgrade() {
        {
            let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
            if board.moving {
                board.draw();
            } else {
                board.remind();
            }
        }
        drop(board);
        thread::sleep(REDRAW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_step_fits_one_line() {
        let now = Instant::now();
        let step = Step { name: "kafka".to_owned(), since: now, note: "x".repeat(300), told: now };
        assert_eq!(step.line().chars().count(), WIDTH);
    }

    #[test]
    fn steps_come_and_go() {
        let terminal = Terminal::start();
        terminal.start("a");
        terminal.start("b");
        terminal.note("a", "hello");
        terminal.done("b", Duration::ZERO);
        terminal.with(|board| {
            let names: Vec<_> =
                board.running.iter().map(|step| (step.name.as_str(), step.note.as_str())).collect();
            assert_eq!(names, [("a", "hello")]);
        });
        terminal.failed("a", "line", "hint");
        terminal.with(|board| assert!(board.running.is_empty()));
    }
}
