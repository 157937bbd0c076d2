//! A way to the library's mock brokers that can lie about them, as a broker does that has just started: the cluster has
//! topics, and no brokers.

use std::collections::HashMap;
use std::io::{Read as _, Result, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::lock;

/// Number of the question for metadata.
const METADATA: i16 = 3;
/// What metadata of a topic says while nobody leads it.
const LEADER_NOT_AVAILABLE: i16 = 5;

/// Stands before one mock broker, and says of it that it is here.
pub(crate) struct Liar {
    pub(crate) address: String,
    way: Arc<Way>,
}

struct Way {
    server: String,
    /// What answers say of where the broker is, and what they are to say.
    real: Vec<u8>,
    ours: Vec<u8>,
    lying: AtomicBool,
    lies: AtomicUsize,
}

impl Liar {
    pub(crate) fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let way = Arc::new(Way {
            server: server.to_owned(),
            real: place(server),
            ours: place(&address),
            lying: AtomicBool::new(false),
            lies: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&way);
        // Ends with the test's process.
        thread::spawn(move || listener.incoming().flatten().for_each(|client| lead(&accepting, client)));
        Self { address, way }
    }

    /// From now on there are no brokers, or there are.
    pub(crate) fn lie(&self, lying: bool) {
        self.way.lying.store(lying, Ordering::SeqCst);
    }

    /// How often it was said that there are none.
    pub(crate) fn lies(&self) -> usize {
        self.way.lies.load(Ordering::SeqCst)
    }
}

/// Connects somebody with the broker.
fn lead(way: &Arc<Way>, client: TcpStream) {
    let Ok(server) = TcpStream::connect(&way.server) else { return };
    let (way, asked) = (Arc::clone(way), Arc::<Mutex<HashMap<i32, (i16, i16)>>>::default());
    let (asking, from, to) = (Arc::clone(&asked), client.try_clone(), server.try_clone());
    thread::spawn(move || requests(&asking, from?, to?));
    thread::spawn(move || answers(&way, &asked, server, client));
}

/// How answers write a host and its port.
fn place(address: &str) -> Vec<u8> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let port: i32 = port.parse().unwrap();
    [host.as_bytes(), &port.to_be_bytes()].concat()
}

fn requests(
    asked: &Mutex<HashMap<i32, (i16, i16)>>,
    mut client: TcpStream,
    mut server: TcpStream,
) -> Result<()> {
    loop {
        let frame = read(&mut client)?;
        let short = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
        lock(asked).insert(correlation(&frame[4..]), (short(0), short(2)));
        write(&mut server, &frame)?;
    }
}

fn answers(
    way: &Way,
    asked: &Mutex<HashMap<i32, (i16, i16)>>,
    mut server: TcpStream,
    mut client: TcpStream,
) -> Result<()> {
    loop {
        let mut frame = read(&mut server)?;
        let number = correlation(&frame);
        let question = lock(asked).remove(&number);
        if let Some((METADATA, version)) = question
            && way.lying.load(Ordering::SeqCst)
        {
            frame = no_brokers(number, version);
            way.lies.fetch_add(1, Ordering::SeqCst);
        }
        let len = way.real.len();
        while let Some(at) = frame.windows(len).position(|part| part == way.real) {
            frame[at..at + len].copy_from_slice(&way.ours);
        }
        write(&mut client, &frame)?;
    }
}

fn correlation(frame: &[u8]) -> i32 {
    i32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
}

/// The answer that knows one topic and no broker, as versions 9 to 12 write it.
fn no_brokers(number: i32, version: i16) -> Vec<u8> {
    assert!((9..=12).contains(&version), "metadata of version {version}");
    let topic = b"t";
    let mut answer = number.to_be_bytes().to_vec();
    // No tagged fields, no throttling, no brokers, no name of the cluster, no controller, one topic.
    answer.extend([0, 0, 0, 0, 0, 1, 0]);
    answer.extend((-1_i32).to_be_bytes());
    answer.push(2);
    answer.extend(LEADER_NOT_AVAILABLE.to_be_bytes());
    answer.push(u8::try_from(topic.len() + 1).unwrap());
    answer.extend(topic);
    if version >= 10 {
        answer.extend([0; 16]);
    }
    // Not internal, no partitions, no word of what is allowed, no tagged fields.
    answer.extend([0, 1]);
    answer.extend(i32::MIN.to_be_bytes());
    answer.push(0);
    if version <= 10 {
        answer.extend(i32::MIN.to_be_bytes());
    }
    answer.push(0);
    answer
}

fn read(from: &mut TcpStream) -> Result<Vec<u8>> {
    let mut size = [0; 4];
    from.read_exact(&mut size)?;
    let mut frame = vec![0; u32::from_be_bytes(size) as usize];
    from.read_exact(&mut frame)?;
    Ok(frame)
}

fn write(to: &mut TcpStream, frame: &[u8]) -> Result<()> {
    to.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes())?;
    to.write_all(frame)
}
