//! The least that can ask an HTTP server: one connection, one request at a time. A load must not take the processors that
//! it is meant to load; a whole client takes a third of what the server does.

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that stays open.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    /// What begins every request.
    head: String,
    input: Vec<u8>,
}

impl Line {
    /// Connects; `headers` come with every request.
    pub(crate) async fn open(address: &str, request: &str, headers: &[(&str, &str)]) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        let mut head = format!("{request} HTTP/1.1\r\nhost: {address}\r\n");
        for (name, value) in headers {
            head.extend([*name, ": ", *value, "\r\n"]);
        }
        Ok(Self { stream, head, input: Vec::new() })
    }

    /// Sends a request with one more header and a body; answers with the status, once all of the answer is here.
    pub(crate) async fn ask(&mut self, (name, value): (&str, &str), body: &str) -> anyhow::Result<u16> {
        let length = body.len();
        let text = format!("{}{name}: {value}\r\ncontent-length: {length}\r\n\r\n{body}", self.head);
        self.stream.write_all(text.as_bytes()).await?;
        self.input.clear();
        loop {
            if let Some(status) = whole(&self.input)? {
                return Ok(status);
            }
            ensure!(self.stream.read_buf(&mut self.input).await? > 0, "the server hung up");
        }
    }
}

/// The status of an answer that is here in whole.
fn whole(input: &[u8]) -> anyhow::Result<Option<u16>> {
    let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&input[..end]).context("the head of an answer is text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|word| word.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok());
    let (status, length) =
        (status.context("an answer has a status")?, length.context("an answer has a length")?);
    Ok((input.len() >= end + 4 + length).then_some(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_when_all_of_it_is_here() {
        let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nabc";
        for length in 0..answer.len() {
            assert_eq!(whole(&answer[..length]).unwrap(), None, "{length} bytes");
        }
        assert_eq!(whole(answer).unwrap(), Some(202));
        assert!(whole(b"HTTP/1.1 202 Accepted\r\n\r\n").is_err(), "nobody knows where it ends");
    }
}
