//! Asks what probes ask, within their time. A question that cannot be asked is a failure.

use std::time::Duration;

use tokio::net::TcpStream;

use super::probe::Question;

/// Asks one question of a pod at this address.
pub async fn ask(http: &reqwest::Client, address: &str, question: &Question, timeout: Duration) -> bool {
    let answer = async {
        match question {
            Question::Tcp { host, port } => {
                TcpStream::connect((host.as_deref().unwrap_or(address), *port)).await.is_ok()
            }
            Question::Http { host, port, path, headers } => {
                let host = host.as_deref().unwrap_or(address);
                get(http, &format!("http://{host}:{port}/{}", path.trim_start_matches('/')), headers).await
            }
        }
    };
    tokio::time::timeout(timeout, answer).await.unwrap_or(false)
}

async fn get(http: &reqwest::Client, url: &str, headers: &[(String, String)]) -> bool {
    let mut request = http.get(url).header("User-Agent", "kube-probe/slipway").header("Connection", "close");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match request.send().await {
        Ok(response) => (200..400).contains(&response.status().as_u16()),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn http() -> reqwest::Client {
        runtime::install_crypto();
        reqwest::Client::builder().no_proxy().build().unwrap()
    }

    async fn server(status: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn statuses_decide() {
        for (status, good) in [("200 OK", true), ("399 X", true), ("404 Not Found", false), ("500 X", false)]
        {
            let question = Question::Http {
                host: None,
                port: server(status).await,
                path: "/status".into(),
                headers: Vec::new(),
            };
            assert_eq!(ask(&http(), "127.0.0.1", &question, LONG).await, good, "{status}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_fails_and_an_open_one_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Nobody is at the first port, and nobody is given it.
        for (port, is_open) in [(listener.local_addr().unwrap().port(), true), (1, false)] {
            let question = Question::Tcp { host: None, port };
            assert_eq!(ask(&http(), "127.0.0.1", &question, LONG).await, is_open, "{port}");
        }
    }
}
