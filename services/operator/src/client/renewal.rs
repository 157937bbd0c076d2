//! Clients of a kubeconfig that names a program for tokens, or the files of a client certificate. The program is asked here and not by the
//! library, which has no end for it (crate `kubeconfig`): for the first time before there are clients, and then beside them, so that no
//! call waits for it. The files are read again as often as that is looked at: the library would read them once.
//!
//! *Invariant:* what clients are made of changes underneath those that the rest of the operator has. Whether a token still counts, the
//! server alone says.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube::config::Kubeconfig;
use kube::core::Status;
use kubeconfig::Given;
use runtime::CancellationToken;
use runtime::backoff::{Backoff, Retry};
use runtime::health::Component;
use tower::{BoxError, Service};

use super::{Clients, Error};
use crate::clock::Clock;
use crate::count::Count;

/// How long the program may take. It is asked a minute before the end of what it gave, or after half of its time, and calls go by that
/// while it hangs.
const LIMIT: Duration = Duration::from_secs(15);
/// Between two looks at whether what it gave is still of use: a leader whose Lease the server refuses to renew has ten seconds.
const LOOK: Duration = Duration::from_secs(1);
/// What is added to that in a row in which nothing of use was given: to run the program costs more than all else that the operator does.
const FUTILE: Backoff = Backoff::new(LOOK, Duration::from_secs(15));

/// Asks the program again in time, and reads the files.
pub(crate) struct Renewal {
    kubeconfig: Kubeconfig,
    given: Given,
    /// What the clients were made of.
    source: Vec<u8>,
    current: Current,
    count: Count,
    clock: Clock,
}

/// What calls go by now. Clones share it.
#[derive(Clone)]
struct Current(Arc<Mutex<Access>>);

struct Access {
    made: Made,
    /// Why there is nothing newer, although something newer was asked for.
    trouble: Option<String>,
}

/// Clients of what the program gave.
#[derive(Clone)]
struct Made {
    clients: Clients,
    /// Whether the server has said that it does not know us by these.
    refused: Arc<AtomicBool>,
}

impl Renewal {
    /// Asks the program for the first time.
    pub(super) async fn begin(
        kubeconfig: Kubeconfig,
        (count, clock): (&Count, &Clock),
    ) -> Result<Self, Error> {
        let (mut given, mut filled) = (Given::default(), kubeconfig.clone());
        let mut source = content(&kubeconfig).await?;
        given.put_into((&mut source, &mut filled), false, LIMIT).await.map_err(Error::Token)?;
        let made = make(filled, count, clock).await?;
        let current = Current(Arc::new(Mutex::new(Access { made, trouble: None })));
        Ok(Self { kubeconfig, given, source, current, count: count.clone(), clock: clock.clone() })
    }

    /// Clients that stay the same whatever the program gives.
    pub(super) fn clients(&self) -> Clients {
        Clients {
            calls: self.current.client(|clients| &clients.calls),
            watches: self.current.client(|clients| &clients.watches),
        }
    }

    /// Asks the program whenever what it gave is of no use any more, until the operator stops; `told` is how that goes.
    pub(crate) async fn keep(mut self, told: Component, stop: CancellationToken) {
        told.set_ok();
        let (mut row, mut wait) = (FUTILE.start(), LOOK);
        while runtime::backoff::sleep(wait, &stop).await {
            let refused = self.is_refused();
            let renewed = tokio::select! {
                renewed = self.renew() => renewed,
                () = stop.cancelled() => return,
            };
            wait = pause(&mut row, renewed.is_ok() && !refused);
            told.set(renewed);
        }
    }

    /// Whether the server has said that it does not know us by what was given last.
    fn is_refused(&self) -> bool {
        self.current.lock().made.refused.load(Ordering::Relaxed)
    }

    /// Asks the program if what it gave is of no use any more. What goes wrong leaves the clients as they are: the server may take them.
    async fn renew(&mut self) -> Result<(), Error> {
        let renewed = self.newest().await;
        let mut access = self.current.lock();
        access.trouble = renewed.as_ref().err().map(|error| runtime::telemetry::chain(error));
        if let Ok(Some(made)) = &renewed {
            access.made = made.clone();
        }
        drop(access);
        renewed.map(drop)
    }

    /// Clients of what the program gives now, if that is something else.
    async fn newest(&mut self) -> Result<Option<Made>, Error> {
        let (mut source, mut kubeconfig) = (content(&self.kubeconfig).await?, self.kubeconfig.clone());
        let refused = self.current.lock().made.refused.swap(false, Ordering::Relaxed);
        let given = self.given.put_into((&mut source, &mut kubeconfig), refused, LIMIT).await;
        given.map_err(Error::Token)?;
        if source == self.source {
            return Ok(None);
        }
        match make(kubeconfig, &self.count, &self.clock).await {
            Ok(made) => {
                self.source = source;
                tracing::info!("another credential was given for the API server");
                Ok(Some(made))
            }
            Err(error) => {
                // Another one may be of more use.
                self.given = Given::default();
                Err(error)
            }
        }
    }
}

/// What stands in the files of the client certificate.
async fn content(kubeconfig: &Kubeconfig) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    for path in kubeconfig::files(kubeconfig) {
        let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let read = tokio::fs::read(&path).await;
        content.extend(read.map_err(|source| Error::File { name: name(), source })?);
        content.push(0);
    }
    Ok(content)
}

/// How long until the next look.
fn pause(row: &mut Retry, is_of_use: bool) -> Duration {
    if is_of_use {
        row.reset();
        return LOOK;
    }
    LOOK + row.next_delay()
}

async fn make(kubeconfig: Kubeconfig, count: &Count, clock: &Clock) -> Result<Made, Error> {
    let clients = super::both(super::load(kubeconfig).await?, count, clock)?;
    Ok(Made { clients, refused: Arc::default() })
}

impl Current {
    fn lock(&self) -> MutexGuard<'_, Access> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that goes by the newest one.
    fn client(&self, pick: fn(&Clients) -> &Client) -> Client {
        let namespace = pick(&self.lock().made.clients).default_namespace().to_owned();
        ClientBuilder::new(Newest { current: self.clone(), pick }, namespace).build()
    }
}

/// What stands for a client: each request goes by the newest one.
struct Newest {
    current: Current,
    pick: fn(&Clients) -> &Client,
}

impl Service<Request<Body>> for Newest {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (current, made) = (self.current.clone(), self.current.lock().made.clone());
        let client = (self.pick)(&made.clients).clone();
        Box::pin(async move {
            let answer = client.send(request).await?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                return Ok(answer);
            }
            made.refused.store(true, Ordering::Relaxed);
            let trouble = current.lock().trouble.clone();
            match trouble {
                Some(trouble) => Err(refusal(&trouble).into()),
                None => Ok(answer),
            }
        })
    }
}

/// The server's answer to what it does not take, as the library would read it, with why there is nothing else: the server says less.
fn refusal(trouble: &str) -> kube::Error {
    let told = format!("the API server refuses the credential: {trouble}");
    let status = Status::failure(&told, "Unauthorized").with_code(StatusCode::UNAUTHORIZED.as_u16());
    kube::Error::Api(status.boxed())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Where a server is that knows one token at a time.
    async fn server(good: Arc<Mutex<&'static str>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                answer(stream, &good).await;
            }
        });
        url
    }

    async fn answer(mut stream: TcpStream, good: &Mutex<&'static str>) {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0, "half a request");
        }
        let wanted = format!("Bearer {}\r\n", *good.lock().unwrap());
        let knows = String::from_utf8(asked).unwrap().contains(&wanted);
        let status = if knows { "200 OK" } else { "401 Unauthorized" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    /// A kubeconfig whose token is given by a line of a shell, which is told of a file.
    fn kubeconfig(server: &str, line: &str, file: &Path) -> Kubeconfig {
        let user = serde_json::json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", line, file.display().to_string()], "interactiveMode": "Never",
        }});
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "ours"}}],
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": user}],
        });
        Kubeconfig::from_yaml(&config.to_string()).unwrap()
    }

    /// Gives what is in the file, and fails without one.
    const LINE: &str = r#"token=$(cat "$0" 2>/dev/null) || { echo swordfish; echo swordfish >&2; exit 3; }
        printf '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s"}}' "$token""#;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("operator-{name}-{}", std::process::id()))
    }

    async fn begin(kubeconfig: Kubeconfig) -> Result<Renewal, Error> {
        let count = Count::new(&runtime::Metrics::default());
        Renewal::begin(kubeconfig, (&count, &Clock::default())).await
    }

    fn assert_hidden(error: &(dyn std::error::Error + 'static)) {
        let (told, shown) = (runtime::telemetry::chain(error), format!("{error:?}"));
        assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
        assert!(told.contains("exit status: 3") && told.contains("by hand"), "{told}");
    }

    async fn ask(client: &Client) -> kube::Result<StatusCode> {
        let request = Request::get("/version").body(Body::empty()).unwrap();
        client.send(request).await.map(|answer| answer.status())
    }

    #[tokio::test]
    async fn a_program_for_tokens_that_fails_is_not_repeated_in_the_error() {
        let nothing = file("no-token");
        let error = begin(kubeconfig("http://127.0.0.1:1", LINE, &nothing)).await.err().unwrap();
        assert_hidden(&error);
    }

    #[test]
    fn a_program_that_gives_nothing_of_use_is_asked_less_often() {
        let mut row = FUTILE.start();
        let all: Duration = (0..100).map(|_| pause(&mut row, false)).sum();
        assert!(all > Duration::from_mins(5), "{all:?}");
        assert_eq!(pause(&mut row, true), LOOK);
        assert!(pause(&mut row, false) <= 2 * LOOK, "another row");
    }

    #[tokio::test]
    async fn what_a_program_for_tokens_gives_next_is_what_calls_go_by() {
        let (good, token) = (Arc::new(Mutex::new("one")), file("next-token"));
        let server = server(Arc::clone(&good)).await;
        std::fs::write(&token, "one").unwrap();
        let mut renewal = begin(kubeconfig(&server, LINE, &token)).await.unwrap();
        let Clients { calls, watches } = renewal.clients();
        assert_eq!((calls.default_namespace(), watches.default_namespace()), ("ours", "ours"));
        assert_eq!(ask(&calls).await.unwrap(), StatusCode::OK);

        std::fs::write(&token, "two").unwrap();
        renewal.renew().await.unwrap();
        assert_eq!(ask(&watches).await.unwrap(), StatusCode::OK, "it is not asked without need");
        *good.lock().unwrap() = "two";
        assert_eq!(ask(&watches).await.unwrap(), StatusCode::UNAUTHORIZED);
        renewal.renew().await.unwrap();
        for client in [&calls, &watches] {
            assert_eq!(ask(client).await.unwrap(), StatusCode::OK);
        }
        std::fs::remove_file(&token).unwrap();
    }

    /// A client certificate and its key, of nobody.
    const IDENTITY: [&str; 2] = [
        "-----BEGIN CERTIFICATE-----\n\
        MIIBfjCCASOgAwIBAgIUMK9JiKslIVRU76iiSXnm/dAsWk0wCgYIKoZIzj0EAwIw\n\
        EzERMA8GA1UEAwwIb3BlcmF0b3IwIBcNMjYxMTI3MDIzNTAzWhgPMjEyNjExMDMw\n\
        MjM1MDNaMBMxETAPBgNVBAMMCG9wZXJhdG9yMFkwEwYHKoZIzj0CAQYIKoZIzj0D\n\
        AQcDQgAEFC4gD6eShNTMQHqM7JJ33jPqMAdKbCiWCwUUI4/hrcrVwYfNk5wVqBEE\n\
        8o2fCQ6KXZe0yQPOVu0whrrgPTQoUKNTMFEwHQYDVR0OBBYEFD0wO4wiXL/NUz/2\n\
        vUHextewsiBzMB8GA1UdIwQYMBaAFD0wO4wiXL/NUz/2vUHextewsiBzMA8GA1Ud\n\
        EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAMznL9DPb7jWmOYDVXEWix8P\n\
        hZv2309C0C/XRj4pnVC7AiEAviTFcL+UAzM+6D4u3dnXIUfDPcqrxZ+rEp3HwjyR\n\
        TbQ=\n\
        -----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg6G5UHW8Q4ezIY1yi\n\
        oA2Ohg5GaMGO4R7TUMpwNbrVgemhRANCAAQULiAPp5KE1MxAeozsknfeM+owB0ps\n\
        KJYLBRQjj+GtytXBh82TnBWoEQTyjZ8JDopdl7TJA85W7TCGuuA9NChQ\n\
        -----END PRIVATE KEY-----\n",
    ];

    #[tokio::test]
    async fn a_client_certificate_whose_files_change_is_read_again() {
        let files = ["certificate", "key"].map(file);
        for (path, text) in files.iter().zip(IDENTITY) {
            std::fs::write(path, text).unwrap();
        }
        let [certificate, key] = &files;
        let mut config = kubeconfig("http://127.0.0.1:1", LINE, certificate);
        let auth = config.auth_infos[0].auth_info.as_mut().unwrap();
        auth.exec = None;
        auth.client_certificate = Some(certificate.display().to_string());
        auth.client_key = Some(key.display().to_string());
        let mut renewal = begin(config).await.unwrap();
        assert!(renewal.newest().await.unwrap().is_none(), "nothing has changed");
        std::fs::write(certificate, format!("# the next one\n{}", IDENTITY[0])).unwrap();
        assert!(renewal.newest().await.unwrap().is_some());
        assert!(renewal.newest().await.unwrap().is_none());
        std::fs::remove_file(key).unwrap();
        let error = renewal.newest().await.err().unwrap();
        assert!(matches!(&error, Error::File { name, .. } if name.starts_with("operator-key-")), "{error}");
        std::fs::write(key, IDENTITY[1]).unwrap();
        assert!(renewal.newest().await.unwrap().is_none(), "it is as it was");
        for path in &files {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[tokio::test]
    async fn a_program_for_tokens_that_fails_later_is_named_in_the_error_of_a_refused_call() {
        let (good, token) = (Arc::new(Mutex::new("one")), file("old-token"));
        let server = server(Arc::clone(&good)).await;
        std::fs::write(&token, "one").unwrap();
        let mut renewal = begin(kubeconfig(&server, LINE, &token)).await.unwrap();
        let Clients { calls, watches } = renewal.clients();
        std::fs::remove_file(&token).unwrap();
        *good.lock().unwrap() = "two";
        assert_eq!(ask(&calls).await.unwrap(), StatusCode::UNAUTHORIZED);
        assert_hidden(&renewal.renew().await.unwrap_err());
        for client in [&calls, &watches] {
            let error = ask(client).await.unwrap_err();
            assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
            assert_hidden(&error);
        }
        // The server alone says whether a token still counts.
        *good.lock().unwrap() = "one";
        assert_eq!(ask(&calls).await.unwrap(), StatusCode::OK);
        std::fs::write(&token, "two").unwrap();
        *good.lock().unwrap() = "two";
        renewal.renew().await.unwrap();
        assert_eq!(ask(&calls).await.unwrap(), StatusCode::OK);
        std::fs::remove_file(&token).unwrap();
    }
}
