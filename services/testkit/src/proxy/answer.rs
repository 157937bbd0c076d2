//! One HTTP answer in a server's place. Understands as much of HTTP as that takes.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest head of a request.
const HEAD: usize = 64 * 1_024;
/// How long a request may take to come in.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a request and answers it as an API server that cannot now. Then the connection ends.
pub(super) async fn answer(mut client: TcpStream, status: u16, retry_after: u64) {
    let exchange = async {
        if read_request(&mut client).await? {
            client.write_all(response(status, retry_after).as_bytes()).await?;
            client.shutdown().await?;
        }
        std::io::Result::Ok(())
    };
    // A client that went away, or was too slow to ask, is told nothing.
    let _ = tokio::time::timeout(PATIENCE, exchange).await;
}

/// Reads head and body; an unread body would turn the answer into a reset. False when the client went away.
async fn read_request(client: &mut TcpStream) -> std::io::Result<bool> {
    let mut read = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        if let Some(end) = whole(&read)
            && read.len() >= end
        {
            return Ok(true);
        }
        let count = client.read(&mut chunk).await?;
        if count == 0 || read.len() > HEAD * 16 {
            return Ok(false);
        }
        read.extend_from_slice(&chunk[..count]);
    }
}

/// Where the request ends, once its head is there.
fn whole(read: &[u8]) -> Option<usize> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Some(head + length.unwrap_or(0))
}

fn response(status: u16, retry_after: u64) -> String {
    let reason = if status == 429 { "TooManyRequests" } else { "ServiceUnavailable" };
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"not now: a proxy says so","reason":"{reason}","details":{{"retryAfterSeconds":{retry_after}}},"code":{status}}}"#
    );
    format!(
        "HTTP/1.1 {status} {reason}\r\nRetry-After: {retry_after}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_body() {
        assert_eq!(whole(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(whole(b"GET / HTTP/1.1\r\n\r\n"), Some(18));
        let posted = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe";
        assert_eq!(whole(posted), Some(posted.len() + 3));
    }
}
