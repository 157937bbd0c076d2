//! Looks once whether a program is ready. Never waits longer than its bound, never changes anything.

use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::http;
use crate::stack::Check;

/// How long one look may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether the check succeeds now.
pub(super) fn look(check: &Check) -> bool {
    match check {
        Check::Running => true,
        Check::Tcp { port } => {
            TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], *port)), LIMIT).is_ok()
        }
        Check::Http { port, path } => http::get(*port, path, LIMIT).is_ok_and(|answer| answer.status < 400),
        Check::Command { command } => succeeds(command),
        Check::File { path } => path.exists(),
    }
}

fn succeeds(command: &[String]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = spawned else { return false };
    let deadline = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => {
                // Killed and reaped: a look that hangs must not leave a process behind.
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn command(words: &[&str]) -> Check {
        Check::Command { command: words.iter().map(ToString::to_string).collect() }
    }

    /// Whether one of three looks succeeds: a busy machine may stand still for longer than one may take.
    fn look_thrice(check: &Check) -> bool {
        (0..3).any(|_| look(check))
    }

    #[test]
    fn each_kind_of_check_can_succeed_and_fail() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        assert!(look(&Check::Running));
        assert!(look(&Check::Tcp { port }));
        assert!(look_thrice(&command(&["true"])));
        assert!(look(&Check::File { path: "/proc/self/stat".into() }));
        // Nobody is at the first port, and nobody is given it.
        assert!(!look(&Check::Tcp { port: 1 }));
        assert!(!look(&command(&["false"])));
        assert!(!look(&command(&["no-such-program-anywhere"])));
        assert!(!look(&command(&[])));
        assert!(!look(&Check::File { path: "/proc/self/no-such-file".into() }));
    }

    #[test]
    fn http_is_judged_by_its_status() {
        for (status, expect) in
            [("200 OK", true), ("404 Not Found", false), ("503 Service Unavailable", false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = listener.local_addr().expect("bound").port();
            thread::spawn(move || {
                listener.incoming().for_each(|stream| answer(stream.expect("a caller"), status));
            });
            assert_eq!(look_thrice(&Check::Http { port, path: "/readyz".to_owned() }), expect, "{status}");
        }
    }

    fn answer(mut stream: TcpStream, status: &str) {
        let heard = stream.read(&mut [0; 512]);
        assert!(heard.is_ok_and(|count| count > 0), "a request");
        // Whoever waited for too long has gone.
        let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    }
}
