//! A request for a checkpoint whose answer is lost, and which QuestDB carries out only once the database was let go.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use resources::SnapshotPhase;
use resources::names::port;
use resources::names::snapshot::RELEASE_OWED;
use testkit::{Failpoint, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::super::rig::PATIENCE;
use super::{Stage, api, settled, take};

/// How a request for a checkpoint begins.
const ASKS: &[u8] = b"GET /exec?query=CHECKPOINT+CREATE";

/// Stands before a QuestDB and keeps the first request for a checkpoint to itself, whose connection ends; the rest is passed on.
struct Lossy {
    address: IpAddr,
    lost: Arc<OnceLock<Vec<u8>>>,
    task: AbortHandle,
}

impl Lossy {
    async fn before(questdb: IpAddr) -> Self {
        let IpAddr::V4(questdb) = questdb else { panic!("{questdb} is none of the test's own") };
        let [_, _, process, place] = questdb.octets();
        let address = IpAddr::V4(Ipv4Addr::new(127, 80, process, place));
        let questdb = SocketAddr::from((questdb, port::HTTP));
        let listener = TcpListener::bind((address, port::HTTP)).await.unwrap();
        let lost = Arc::<OnceLock<Vec<u8>>>::default();
        let of_all = Arc::clone(&lost);
        let accepts = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                tokio::spawn(pass(inner, questdb, Arc::clone(&of_all)));
            }
        });
        Self { address, lost, task: accepts.abort_handle() }
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut inner: TcpStream, to: SocketAddr, lost: Arc<OnceLock<Vec<u8>>>) -> std::io::Result<()> {
    let mut outer = TcpStream::connect(to).await?;
    let (mut from_inner, mut to_inner) = inner.split();
    let (mut from_outer, mut to_outer) = outer.split();
    let asks = async {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let count = from_inner.read(&mut buffer).await?;
            let asked = &buffer[..count];
            if asked.is_empty() || (asked.starts_with(ASKS) && lost.set(asked.to_vec()).is_ok()) {
                return Ok::<(), std::io::Error>(());
            }
            to_outer.write_all(asked).await?;
        }
    };
    tokio::select! {
        done = asks => done,
        done = tokio::io::copy(&mut from_outer, &mut to_inner) => done.map(drop),
    }
}

/// Whether a request tells QuestDB how long it may take, which QuestDB would keep for what others ask.
fn is_limited(request: &str) -> bool {
    let mut names = request.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name);
    names.any(|name| name.eq_ignore_ascii_case("Statement-Timeout"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_begins_after_the_release_is_released_too() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let lossy = Lossy::before(stage.questdb.address).await;
    stage.is_at(lossy.address).await;
    let place = Failpoint::hold("operator.snapshot.after", "ReleaseCheckpoint", &testkit::scratch());
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    // For as long as this test may take.
    let patient = [("SLIPWAY_QUESTDB_LAG", "10m")];
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[&place], &patient);
    take(subject, "late", "Retain").await;
    place.fired().await;
    let lost = lossy.lost.get().expect("it was answered at once");
    assert!(!is_limited(&String::from_utf8_lossy(lost)));
    assert_eq!(stage.questdb.held_since().await, None);
    // The first request is carried out only now.
    stage.questdb.sql("CHECKPOINT CREATE").await;
    place.release().unwrap();
    eventually(PATIENCE, "the release of what came late", async || {
        stage.questdb.held_since().await.is_none().then_some(())
    })
    .await;
    let late = api(subject).get("late").await.unwrap();
    assert!(late.metadata.finalizers.unwrap().iter().any(|one| one == RELEASE_OWED), "more may come");
    drop(operator);
    let heir = stage.operator(&[]).await;
    let done = settled(subject, "late", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    stage.end(heir).await;
}
