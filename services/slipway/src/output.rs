//! Where words go: data to standard output, progress and hints to standard error. The only module that writes to either.

use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use wire::http::Unreadable;

use crate::cli::{Format, Global};
use crate::error::Error;

/// How this run speaks.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// How to print data.
    pub format: Format,
    /// Whether colours are wanted and understood on standard error.
    pub colour: bool,
    quiet: bool,
    verbose: bool,
}

impl Output {
    /// As the command line asks.
    pub fn new(global: &Global) -> Self {
        Self {
            format: global.output,
            colour: !global.no_color && std::io::stderr().is_terminal(),
            quiet: global.quiet,
            verbose: global.verbose,
        }
    }

    /// Whether progress may be drawn over itself.
    pub fn live(&self) -> bool {
        !self.quiet && !self.verbose && std::io::stderr().is_terminal()
    }

    /// Prints data.
    pub fn data(&self, text: &str) -> Result<(), Error> {
        match self.more(text) {
            // Whoever reads has seen enough, like `head`.
            Err(Error::Unread) => Ok(()),
            printed => printed,
        }
    }

    /// Prints more of what goes on for as long as somebody reads it.
    pub fn more(&self, text: &str) -> Result<(), Error> {
        print(&mut std::io::stdout().lock(), text)
    }

    /// Prints a value in the format asked for; `table` gets whether more columns are wanted.
    pub fn show<T: Serialize>(
        &self,
        value: &T,
        table: impl FnOnce(bool) -> String,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Error> {
        self.data(&self.form(value, table, names)?)
    }

    /// A value in the format asked for.
    pub fn form<T: Serialize>(
        &self,
        value: &T,
        table: impl FnOnce(bool) -> String,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<String, Error> {
        form(self.format, value, table, names)
    }

    /// Says something to whoever watches, such as a finished step.
    pub fn progress(&self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }

    /// Says what can be done next.
    pub fn hint(&self, text: &str) {
        if !self.quiet {
            tell(&self.paint(Colour::Faint, text));
        }
    }

    /// Says something that must not be missed.
    pub fn warn(&self, text: &str) {
        tell(&format!("{} {text}", self.paint(Colour::Yellow, "warning:")));
    }

    /// Says of which rows of a list the API cannot read all; `what` comes before the name of the database.
    pub fn warn_unreadable(&self, what: &str, rows: &[Unreadable]) {
        for row in rows {
            self.warn(&format!("{what} {} cannot be shown: {}", row.name, row.detail));
        }
    }

    /// Says what only the curious want to know.
    pub fn trace(&self, text: &str) {
        if self.verbose {
            tell(&self.paint(Colour::Faint, text));
        }
    }

    /// Says what went wrong.
    pub fn complain(&self, error: &Error) {
        tell(&format!("{} {}", self.paint(Colour::Red, "error:"), error.explain()));
    }

    /// A text in a colour, where colours are wanted.
    pub fn paint(&self, colour: Colour, text: &str) -> String {
        if self.colour { format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code()) } else { text.to_owned() }
    }

    /// Asks a question on the terminal. Answers how long somebody took to agree; no answer is a no.
    pub async fn confirm(&self, question: &str) -> Result<Option<Duration>, Error> {
        let mut stderr = std::io::stderr();
        write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush()).map_err(Error::Start)?;
        let asked = Instant::now();
        let answer = typed(|line| std::io::stdin().read_line(line)).await.map_err(Error::Start)?;
        let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        Ok(agreed.then(|| asked.elapsed()))
    }
}

/// The colours in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Went well.
    Green,
    /// Went wrong.
    Red,
    /// Deserves a look.
    Yellow,
    /// By the way.
    Faint,
}

impl Colour {
    const fn code(self) -> &'static str {
        match self {
            Self::Green => "32",
            Self::Red => "31",
            Self::Yellow => "33",
            Self::Faint => "2",
        }
    }
}

/// A value in a format.
fn form<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce(bool) -> String,
    names: impl FnOnce() -> Vec<String>,
) -> Result<String, Error> {
    match format {
        Format::Table => Ok(table(false)),
        Format::Wide => Ok(table(true)),
        Format::Json => serde_json::to_string_pretty(value).map_err(|error| Error::Render(Box::new(error))),
        Format::Yaml => serde_saphyr::to_string(value).map_err(|error| Error::Render(Box::new(error))),
        Format::Name => Ok(names().join("\n")),
    }
}

/// A line that a person types, who takes their time: on a thread of its own, so that an interrupt is heeded meanwhile, and
/// none of the runtime's, because that would wait for it at its end.
async fn typed(
    read: impl FnOnce(&mut String) -> std::io::Result<usize> + Send + 'static,
) -> std::io::Result<String> {
    let (say, said) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = read(&mut line).map(|_| line);
        // Nobody listens any more where the command was interrupted.
        let _ = say.send(read);
    });
    said.await.unwrap_or_else(|_| Ok(String::new()))
}

/// Writes a text and ends its last line.
fn print(to: &mut impl Write, text: &str) -> Result<(), Error> {
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    write!(to, "{text}{newline}").and_then(|()| to.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::Unread,
        _ => Error::Render(Box::new(error)),
    })
}

fn tell(text: &str) {
    // Nobody is left to be told when standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_form() {
        let value = serde_json::json!({"name": "trades", "size": 50});
        let shown = |format| {
            form(format, &value, |wide| format!("wide={wide}"), || vec!["a".into(), "b".into()]).unwrap()
        };
        assert_eq!(shown(Format::Table), "wide=false");
        assert_eq!(shown(Format::Wide), "wide=true");
        assert_eq!(shown(Format::Json), "{\n  \"name\": \"trades\",\n  \"size\": 50\n}");
        assert_eq!(shown(Format::Yaml).trim_end(), "name: trades\nsize: 50");
        assert_eq!(shown(Format::Name), "a\nb");
    }

    #[tokio::test]
    async fn what_somebody_types_is_heard_and_an_interrupt_is_not_kept_waiting_for_it() {
        let heard = typed(|line| {
            line.push_str("yes\n");
            Ok(line.len())
        });
        assert_eq!(heard.await.unwrap(), "yes\n");
        let (_terminal, nothing) = std::sync::mpsc::channel::<()>();
        let silent = typed(move |_| {
            // Nobody types: this ends with the test.
            let _ = nothing.recv_timeout(Duration::from_secs(30));
            Ok(0)
        });
        tokio::select! {
            biased;
            _ = silent => panic!("nothing else was heeded meanwhile"),
            () = std::future::ready(()) => {}
        }
    }

    #[test]
    fn whoever_reads_no_more_is_told_from_a_disk_that_is_full() {
        struct Broken(ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut written = Vec::new();
        print(&mut written, "a").and_then(|()| print(&mut written, "b\n")).unwrap();
        assert_eq!(written, b"a\nb\n");
        assert!(matches!(print(&mut Broken(ErrorKind::BrokenPipe), "a"), Err(Error::Unread)));
        assert!(matches!(print(&mut Broken(ErrorKind::StorageFull), "a"), Err(Error::Render(_))));
    }

    #[test]
    fn colours_only_where_wanted() {
        let plain = Output { format: Format::Table, colour: false, quiet: false, verbose: false };
        assert_eq!(plain.paint(Colour::Red, "x"), "x");
        assert_eq!(Output { colour: true, ..plain }.paint(Colour::Red, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
