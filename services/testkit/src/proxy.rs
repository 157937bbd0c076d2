//! A TCP proxy in the test's own process that falls ill on demand: it slows, holds, cuts, refuses, or answers for the
//! server.
//!
//! It counts what it did to whom, so that a test can tell whether its fault fired. Bytes only: it never changes any.

mod answer;
mod upstream;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Interest, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use upstream::Upstream;

/// Bytes that are carried at once.
const CHUNK: usize = 16 * 1_024;
/// How often the port is asked for again after it was given up.
const AGAIN: Duration = Duration::from_millis(20);
/// How often it is looked whether somebody who is held at the door is still there.
const LOOK: Duration = Duration::from_secs(1);

/// What the proxy does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Carries everything.
    Pass,
    /// Carries everything, each piece so much later.
    Slow(Duration),
    /// Takes connections and bytes, and is silent: a black hole. What was held goes on when it passes again, but for new
    /// connections that nobody waits for any more: in an hour, thousands.
    Hold,
    /// Ends every connection, and new ones at once.
    Cut,
    /// Nobody is at the port.
    Refuse,
    /// Ends every connection and answers each HTTP request of new ones with this status, asking for this many seconds of
    /// patience. Only of use where the proxy speaks plain HTTP in front.
    Answer {
        /// Such as 429 or 503.
        status: u16,
        /// The header `Retry-After`.
        retry_after: u64,
    },
}

/// A port of its own that leads to a server. Gone when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    bytes: AtomicU64,
    harmed: AtomicU64,
    at_the_door: AtomicU64,
    lost: AtomicU64,
}

impl Counts {
    fn harm(&self) {
        self.harmed.fetch_add(1, Ordering::Relaxed);
    }

    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Proxy {
    /// Leads to a server and carries its bytes as they are.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn to(server: SocketAddr) -> anyhow::Result<Self> {
        Self::start(Upstream::Plain(server)).await
    }

    /// Leads to the API server of a kubeconfig. In front it speaks plain HTTP, so that it can answer for the server.
    ///
    /// # Errors
    /// When the kubeconfig is of no use or no port is free.
    pub async fn of_api_server(kubeconfig: &Path) -> anyhow::Result<Self> {
        Self::start(Upstream::of_kubeconfig(kubeconfig).await?).await
    }

    async fn start(upstream: Upstream) -> anyhow::Result<Self> {
        // Nobody else is given it while the door is shut.
        let address = crate::free_address()?;
        let listener = TcpListener::bind(address).await.context("a port for a proxy")?;
        let proxy = Self { address, mode: watch::Sender::new(Mode::Pass), counts: Arc::default() };
        let door =
            Door { address, upstream, mode: proxy.mode.subscribe(), counts: Arc::clone(&proxy.counts) };
        tokio::spawn(door.keep(listener));
        Ok(proxy)
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Does this from now on, to open connections too.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Bytes carried so far, both ways.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// How often a connection or a piece of one was slowed, held, cut or answered: more than before means that a fault
    /// fired.
    pub fn harmed(&self) -> u64 {
        self.counts.harmed.load(Ordering::Relaxed)
    }

    /// How often the server ended a connection, or was not there for a new one: more than before means that a fault of the
    /// server itself was met.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// New connections that are held now.
    pub fn at_the_door(&self) -> u64 {
        self.counts.at_the_door.load(Ordering::Relaxed)
    }
}

/// The listening side.
struct Door {
    address: SocketAddr,
    upstream: Upstream,
    mode: watch::Receiver<Mode>,
    counts: Arc<Counts>,
}

impl Door {
    /// Takes connections until the proxy is dropped.
    async fn keep(mut self, listener: TcpListener) {
        let mut open = Some(listener);
        loop {
            if *self.mode.borrow_and_update() == Mode::Refuse {
                open = None;
            } else if open.is_none() {
                open = TcpListener::bind(self.address).await.ok();
            }
            let changed = match &open {
                Some(listener) => tokio::select! {
                    taken = listener.accept() => {
                        if let Ok((inner, _)) = taken {
                            self.carry(inner);
                        }
                        continue;
                    }
                    changed = self.mode.changed() => changed,
                },
                None if *self.mode.borrow() == Mode::Refuse => self.mode.changed().await,
                None => {
                    tokio::time::sleep(AGAIN).await;
                    Ok(())
                }
            };
            if changed.is_err() {
                return;
            }
        }
    }

    fn carry(&self, inner: TcpStream) {
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        let line = Line {
            upstream: self.upstream.clone(),
            mode: self.mode.clone(),
            counts: Arc::clone(&self.counts),
        };
        tokio::spawn(line.run(inner));
    }
}

/// One connection.
struct Line {
    upstream: Upstream,
    mode: watch::Receiver<Mode>,
    counts: Arc<Counts>,
}

impl Line {
    async fn run(mut self, inner: TcpStream) {
        let _ = inner.set_nodelay(true);
        let now = self.mode.borrow_and_update().clone();
        match now {
            Mode::Pass | Mode::Slow(_) => {}
            Mode::Hold => {
                self.counts.harm();
                if !self.outwaits(&inner).await {
                    return;
                }
            }
            Mode::Cut | Mode::Refuse => return self.counts.harm(),
            Mode::Answer { status, retry_after } => {
                self.counts.harm();
                return answer::answer(inner, status, retry_after).await;
            }
        }
        match self.upstream.clone() {
            Upstream::Plain(server) => match TcpStream::connect(server).await {
                Ok(outer) => {
                    let _ = outer.set_nodelay(true);
                    self.join(inner, outer).await;
                }
                Err(_) => self.counts.lose(),
            },
            Upstream::Tls(server) => match server.connect().await {
                Ok(outer) => self.join(inner, outer).await,
                Err(_) => self.counts.lose(),
            },
        }
    }

    /// Whether a new client is still there when it is held no more.
    async fn outwaits(&mut self, client: &TcpStream) -> bool {
        self.counts.at_the_door.fetch_add(1, Ordering::Relaxed);
        let stays = loop {
            let passes = self.mode.wait_for(|mode| *mode != Mode::Hold);
            // What is answered must not live on: it keeps the mode from being changed.
            match tokio::time::timeout(LOOK, passes).await.map(|passes| passes.is_ok()) {
                Ok(passes) => break passes,
                Err(_) if has_gone(client) => break false,
                Err(_) => {}
            }
        };
        self.counts.at_the_door.fetch_sub(1, Ordering::Relaxed);
        stays
    }

    /// Carries both ways until one side ends or the proxy turns against open connections.
    async fn join(&mut self, inner: TcpStream, outer: impl AsyncRead + AsyncWrite + Unpin) {
        let ((from_inner, to_inner), (from_outer, to_outer)) = (split(inner), split(outer));
        let counts = Arc::clone(&self.counts);
        let out = pump(from_inner, to_outer, self.mode.clone(), &counts);
        let back = pump(from_outer, to_inner, self.mode.clone(), &counts);
        let ends = |mode: &Mode| matches!(mode, Mode::Cut | Mode::Refuse | Mode::Answer { .. });
        tokio::select! {
            _ = out => {}
            ended = back => {
                // An error may be the client's, who has gone.
                if ended.is_ok() {
                    counts.lose();
                }
            }
            turned = self.mode.wait_for(ends) => {
                if turned.is_ok() {
                    counts.harm();
                }
            }
        }
    }
}

/// Whether a client has closed, whatever it sent before.
fn has_gone(client: &TcpStream) -> bool {
    let ready = client.ready(Interest::READABLE).now_or_never();
    matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mode: watch::Receiver<Mode>,
    counts: &Counts,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let now = mode.borrow_and_update().clone();
        if now != Mode::Pass {
            counts.harm();
        }
        if let Mode::Slow(pause) = now {
            tokio::time::sleep(pause).await;
        }
        if mode.wait_for(|mode| *mode != Mode::Hold).await.is_err() {
            return Ok(());
        }
        to.write_all(&chunk[..count]).await?;
        to.flush().await?;
        counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
