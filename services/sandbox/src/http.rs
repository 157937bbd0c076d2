//! A plain HTTP/1.1 client for loopback: readiness checks and the few calls that set a stack up.
//!
//! One request a connection, no TLS, no redirects. Every call has a deadline. Not for talking to anything remote.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

/// Longest answer that is read.
const MOST_BYTES: u64 = 8 * 1024 * 1024;

/// A request to a server on loopback.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST`, …
    pub method: &'a str,
    /// Port on 127.0.0.1.
    pub port: u16,
    /// Path with query.
    pub path: &'a str,
    /// Further headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body; sent as JSON when not empty.
    pub body: &'a str,
}

/// What the server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

/// A GET without body.
pub fn get(port: u16, path: &str, limit: Duration) -> anyhow::Result<Answer> {
    send(Request { method: "GET", port, path, headers: &[], body: "" }, limit)
}

/// Sends a request and reads the whole answer.
pub fn send(request: Request<'_>, limit: Duration) -> anyhow::Result<Answer> {
    let address = SocketAddr::from(([127, 0, 0, 1], request.port));
    let mut stream =
        TcpStream::connect_timeout(&address, limit).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(encode(request).as_bytes()).context("sending the request")?;
    let mut bytes = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut bytes).context("reading the answer")?;
    parse(&bytes)
}

fn encode(request: Request<'_>) -> String {
    let Request { method, port, path, headers, body } = request;
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
    for (name, value) in headers {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text.push_str("Content-Type: application/json\r\n");
    }
    let _ = write!(text, "Content-Length: {}\r\n\r\n{body}", body.len());
    text
}

fn parse(bytes: &[u8]) -> anyhow::Result<Answer> {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("the answer has no end of headers")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status =
        head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).context("no status code")?;
    let raw = &bytes[end + 4..];
    let chunked = head.lines().any(|line| line.starts_with("transfer-encoding:") && line.contains("chunked"));
    let body = if chunked { join_chunks(raw)? } else { raw.to_vec() };
    Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
}

fn join_chunks(mut rest: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").context("a chunk has no size line")?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
            .with_context(|| format!("'{line}' is not the size of a chunk"))?;
        if size == 0 {
            return Ok(body);
        }
        let start = end + 2;
        if rest.len() < start + size + 2 {
            bail!("the answer ends inside a chunk");
        }
        body.extend_from_slice(&rest[start..start + size]);
        rest = &rest[start + size + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_plain_and_in_chunks() {
        let plain = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(plain).expect("whole"), Answer { status: 202, body: "{}".to_owned() });
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).expect("whole").body, "abcde");
    }

    #[test]
    fn broken_answers_are_refused() {
        for bytes in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        ] {
            assert!(parse(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_body_is_sent_as_json_with_its_length() {
        let headers = [("Authorization", "Bearer a")];
        let text = encode(Request { method: "POST", port: 1, path: "/v1", headers: &headers, body: "{}" });
        assert!(text.starts_with("POST /v1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"), "{text}");
        assert!(text.ends_with(
            "Authorization: Bearer a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        ));
    }
}
