//! Each illness of the proxy, against a server that repeats what it hears.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// How long something is waited for that must not come.
const SOON: Duration = Duration::from_millis(200);
/// How long something is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that repeats what it hears, behind a proxy.
async fn echo() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    Proxy::to(address).await.unwrap()
}

/// Says something and gives what comes back: nothing when the connection ends, `None` when nothing comes.
async fn say(stream: &mut TcpStream, word: &[u8]) -> Option<Vec<u8>> {
    say_within(PATIENCE, stream, word).await
}

async fn say_within(limit: Duration, stream: &mut TcpStream, word: &[u8]) -> Option<Vec<u8>> {
    if stream.write_all(word).await.is_err() {
        return Some(Vec::new());
    }
    let mut heard = vec![0; 64];
    let read = tokio::time::timeout(limit, stream.read(&mut heard)).await.ok()?;
    heard.truncate(read.unwrap_or(0));
    Some(heard)
}

#[tokio::test]
async fn it_passes_and_counts() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say(&mut stream, b"hello").await.unwrap(), b"hello");
    assert_eq!((proxy.connections(), proxy.bytes(), proxy.harmed()), (1, 10, 0));
}

#[tokio::test]
async fn held_bytes_come_when_it_passes_again() {
    let proxy = echo().await;
    let mut before = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say(&mut before, b"a").await.unwrap(), b"a");
    proxy.set(Mode::Hold);
    let mut after = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say_within(SOON, &mut before, b"b").await, None);
    assert_eq!(say_within(SOON, &mut after, b"c").await, None);
    crate::eventually(PATIENCE, "both to be held", async || (proxy.harmed() >= 2).then_some(())).await;
    proxy.set(Mode::Pass);
    assert_eq!(say(&mut before, b"").await.unwrap(), b"b");
    assert_eq!(say(&mut after, b"").await.unwrap(), b"c");
}

#[tokio::test]
async fn whoever_has_gone_is_held_no_longer() {
    let proxy = echo().await;
    proxy.set(Mode::Hold);
    let mut goes = TcpStream::connect(proxy.address()).await.unwrap();
    goes.write_all(b"a").await.unwrap();
    let mut stays = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say_within(SOON, &mut stays, b"b").await, None);
    let held = async |count: u64| {
        let what = format!("{count} to be held");
        crate::eventually(PATIENCE, &what, async || (proxy.at_the_door() == count).then_some(())).await;
    };
    held(2).await;
    drop(goes);
    held(1).await;
    proxy.set(Mode::Pass);
    assert_eq!(say(&mut stays, b"").await.unwrap(), b"b");
    assert_eq!((proxy.bytes(), proxy.at_the_door()), (2, 0));
}

#[tokio::test]
async fn a_cut_ends_old_and_new_connections() {
    let proxy = echo().await;
    let mut before = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say(&mut before, b"a").await.unwrap(), b"a");
    proxy.set(Mode::Cut);
    assert_eq!(say(&mut before, b"b").await.unwrap(), b"");
    let mut after = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say(&mut after, b"c").await.unwrap(), b"");
    proxy.set(Mode::Pass);
    let mut later = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say(&mut later, b"d").await.unwrap(), b"d");
    assert!(proxy.harmed() >= 2);
}

#[tokio::test]
async fn refused_means_that_nobody_is_there() {
    let proxy = echo().await;
    proxy.set(Mode::Refuse);
    crate::eventually(PATIENCE, "a refusal", async || {
        TcpStream::connect(proxy.address()).await.is_err().then_some(())
    })
    .await;
    proxy.set(Mode::Pass);
    crate::eventually(PATIENCE, "the server again", async || {
        let mut stream = TcpStream::connect(proxy.address()).await.ok()?;
        (say(&mut stream, b"a").await? == b"a").then_some(())
    })
    .await;
}

#[tokio::test]
async fn it_answers_in_the_servers_place() {
    let proxy = echo().await;
    proxy.set(Mode::Answer { status: 429, retry_after: 3 });
    let url = format!("http://{}/apis", proxy.address());
    let answer = crate::http().post(url).body("x".repeat(10_000)).send().await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "3");
    assert!(answer.text().await.unwrap().contains("\"code\":429"));
    assert_eq!(proxy.harmed(), 1);
}

#[tokio::test]
async fn a_server_that_goes_is_told_from_a_client_that_goes() {
    // Nobody else is given it once the server has gone.
    let listener = TcpListener::bind(crate::free_address().unwrap()).await.unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap()).await.unwrap();
    let lost = async |count: u64| {
        let what = format!("{count} to be lost");
        crate::eventually(PATIENCE, &what, async || (proxy.lost() == count).then_some(())).await;
    };
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    drop(client);
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0, "the server hears that the client is gone");
    assert_eq!(proxy.lost(), 0, "it was the client");
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    drop(server);
    lost(1).await;
    drop((client, listener));
    let _late = TcpStream::connect(proxy.address()).await.unwrap();
    lost(2).await;
}
