//! For tests: a server on the loopback address that gives prepared answers, one a connection, and keeps what it was asked.

use std::time::Duration;

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Client;
use crate::cli::Cli;
use crate::connection::{Connection, parse};
use crate::output::Output;

/// The longest that any of these tests may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A server at work.
pub(crate) struct Scripted {
    address: String,
    task: JoinHandle<Vec<String>>,
}

impl Scripted {
    /// Gives these answers in this order. An empty one closes the connection without a word.
    pub(crate) async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                asked.push(request(&mut stream).await);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            asked
        });
        Self { address, task }
    }

    /// A way to it that is open for so long.
    pub(crate) fn client(&self, time: Duration) -> Client {
        client(&self.address, time)
    }

    /// What it was asked, once it has given all its answers.
    pub(crate) async fn asked(self) -> Vec<String> {
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap()
    }
}

/// A way to an address.
pub(crate) fn client(address: &str, time: Duration) -> Client {
    runtime::install_crypto();
    let connection = Connection {
        url: parse(address).unwrap(),
        token: Some("swordfish".into()),
        tenant: Some("acme".to_owned()),
    };
    let output = Output::new(&Cli::parse_from(["slipway", "--quiet", "version"]).global);
    Client::new(connection, Instant::now() + time, output).unwrap()
}

/// One request, with its body.
async fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4_096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

/// An answer with a status line, headers and a body.
pub(crate) fn answer(status: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().map(|header| [header, "\r\n"].concat()).collect();
    format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The beginning of a stream of events that ends when the connection does.
pub(crate) fn stream(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{events}")
}

/// A header of a request.
pub(crate) fn header(request: &str, name: &str) -> Option<String> {
    request.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then(|| value.to_owned())
    })
}
