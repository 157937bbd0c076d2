//! The client against an endpoint that answers as it is told: what becomes of answers that are late, lost, garbled or
//! refused, and what is logged on the way. How a real endpoint behaves is tested elsewhere, against one.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cloud::{
    ClientToken, Cloud as _, Error, Instance, Launch, Protection, Rate, Rates, RecordChange, Role,
    SecurityGroupId, Select, Tags, UserData,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::{Aws, Credentials, Settings, Timeouts};

/// What the endpoint does with one request.
#[derive(Clone, Debug)]
enum Act {
    Answer(u16, &'static str, String),
    HangUp,
    Sleep,
}

/// Plays its acts in order, the last of them for ever, and keeps what it was asked.
struct Endpoint {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Endpoint {
    async fn playing(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(play(stream, acts.clone(), Arc::clone(&kept)));
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn play(mut stream: TcpStream, acts: Vec<Act>, asked: Arc<Mutex<Vec<String>>>) {
    let request = read(&mut stream).await;
    let number = {
        let mut asked = asked.lock().unwrap();
        asked.push(request);
        asked.len() - 1
    };
    match acts.get(number).or_else(|| acts.last()) {
        Some(Act::Answer(status, headers, body)) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
        Some(Act::Sleep) => std::future::pending().await,
        Some(Act::HangUp) | None => {}
    }
}

async fn read(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if count == 0 || body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

fn settings(endpoint: &Endpoint) -> Settings {
    Settings {
        endpoint: Some(endpoint.url.clone()),
        credentials: Credentials::Fixed { key_id: "key".into(), secret: "very-secret-key".into() },
        ..Settings::new("eu-west-1")
    }
}

/// Answers, and at most one attempt.
async fn once(acts: Vec<Act>) -> (Aws, Endpoint) {
    let endpoint = Endpoint::playing(acts).await;
    let aws = Aws::connect(Settings { attempts: 1, ..settings(&endpoint) }).await;
    (aws, endpoint)
}

fn ok(body: impl Into<String>) -> Act {
    Act::Answer(200, "", body.into())
}

fn refusal(status: u16, code: &str) -> Act {
    refusal_with("retry-after: 3\r\nx-amzn-requestid: r-77\r\n", status, code)
}

fn refusal_with(headers: &'static str, status: u16, code: &str) -> Act {
    let error = format!("<Error><Code>{code}</Code><Message>words</Message></Error>");
    let body = format!("<Response><Errors>{error}</Errors></Response>");
    Act::Answer(status, headers, body)
}

const LAUNCHED: &str = "<RunInstancesResponse><instancesSet><item><instanceId>i-1</instanceId>\
    <instanceState><name>pending</name></instanceState><instanceType>m6i.large</instanceType>\
    <placement><availabilityZone>eu-west-1a</availabilityZone></placement></item></instancesSet></RunInstancesResponse>";

fn launch() -> Launch {
    Launch {
        image: "ami-1".into(),
        instance_type: "m6i.large".into(),
        subnet: "subnet-1".into(),
        security_groups: vec!["sg-1".into()],
        user_data: UserData::new("{\"password\": \"hunter2\"}"),
        instance_profile: None,
        protection: Protection::ON,
        tags: Tags::new().named("db1"),
    }
}

fn token() -> ClientToken {
    ClientToken::new("eu", "db1", Role::Instance, 1)
}

async fn run(aws: &Aws) -> Result<Instance, Error> {
    aws.run_instance(&launch(), &token()).await
}

#[tokio::test]
async fn every_attempt_of_a_launch_carries_the_same_token() {
    let acts = vec![Act::HangUp, refusal(500, "InternalError"), ok(LAUNCHED)];
    let endpoint = Endpoint::playing(acts).await;
    let launched = run(&Aws::connect(settings(&endpoint)).await).await.unwrap();
    assert_eq!(launched.id.as_str(), "i-1");
    let asked = endpoint.asked();
    let ours = format!("ClientToken={}", token());
    assert_eq!(asked.iter().filter(|request| request.contains(&ours)).count(), 3, "{asked:?}");
}

#[tokio::test]
async fn a_lost_answer_is_an_unknown_outcome() {
    let (aws, _endpoint) = once(vec![Act::HangUp]).await;
    let error = run(&aws).await.unwrap_err();
    assert_eq!((error.category(), error.outcome_unknown()), ("unavailable", true), "{error:?}");
}

#[tokio::test]
async fn a_late_answer_is_an_unknown_outcome_and_the_deadline_holds() {
    // Less than an attempt takes by itself. A machine that stands still for a moment does so in one of them.
    const LESS: Duration = Duration::from_secs(8);
    let endpoint = Endpoint::playing(vec![Act::Sleep]).await;
    let mut took: Vec<Duration> = Vec::new();
    while took.last().is_none_or(|last| *last >= LESS) {
        assert!(took.len() < 3, "{took:?}");
        let timeouts = Timeouts {
            connect: Duration::from_secs(1),
            attempt: Duration::from_millis(150),
            operation: Duration::from_millis(250),
        };
        let aws = Aws::connect(Settings { timeouts, ..settings(&endpoint) }).await;
        let started = Instant::now();
        let error = run(&aws).await.unwrap_err();
        assert_eq!((error.category(), error.outcome_unknown()), ("timeout", true), "{error:?}");
        took.push(started.elapsed());
    }
}

#[tokio::test]
async fn a_garbled_answer_is_an_unknown_outcome() {
    for body in ["<RunInstancesResponse><inst", "not xml at all"] {
        let (aws, _endpoint) = once(vec![ok(body)]).await;
        let error = run(&aws).await.unwrap_err();
        assert!(error.outcome_unknown(), "{body}: {error:?}");
    }
    // Well-formed, and without what it must have.
    let (aws, _endpoint) = once(vec![ok(LAUNCHED.replace("<name>pending</name>", ""))]).await;
    assert_eq!(run(&aws).await.unwrap_err().category(), "unreadable");
}

#[tokio::test]
async fn nobody_listening_is_unavailable() {
    let endpoint = Endpoint { url: "http://127.0.0.1:1".to_owned(), asked: Arc::default() };
    let error = run(&Aws::connect(settings(&endpoint)).await).await.unwrap_err();
    assert_eq!(error.category(), "unavailable", "{error:?}");
}

#[tokio::test]
async fn a_throttle_is_passed_on_and_slows_us_down() {
    let (aws, _endpoint) = once(vec![refusal(503, "RequestLimitExceeded"), ok(LAUNCHED)]).await;
    let error = run(&aws).await.unwrap_err();
    assert!(
        matches!(error, Error::Throttled { retry_after: Some(after), .. } if after.as_secs() == 3),
        "{error:?}"
    );
    assert_eq!(error.call().request_id.as_deref(), Some("r-77"));
    // Our own bucket is then empty for as long: who may not wait for that is refused before anything is sent.
    let refused = refusal_with("retry-after: 50\r\n", 503, "RequestLimitExceeded");
    let hasty = Settings {
        attempts: 1,
        longest_wait: Duration::ZERO,
        ..settings(&Endpoint::playing(vec![refused]).await)
    };
    let hasty = Aws::connect(hasty).await;
    assert_eq!(run(&hasty).await.unwrap_err().call().code.as_deref(), Some("RequestLimitExceeded"));
    assert_eq!(run(&hasty).await.unwrap_err().call().code, None);
}

/// What an endpoint says whose clock is elsewhere than ours, and what it refuses for that.
const FAR: &str = "date: Tue, 01 Jan 2030 00:00:00 GMT\r\n";

fn untimely(status: u16, code: &str, words: &str) -> Act {
    let error = format!("<Error><Code>{code}</Code><Message>{words}</Message></Error>");
    Act::Answer(status, FAR, format!("<Response><Errors>{error}</Errors></Response>"))
}

/// At which time a request says that it was signed.
fn signed_at(request: &str) -> &str {
    let header = request.lines().find_map(|line| line.strip_prefix("x-amz-date: "));
    header.unwrap_or_else(|| panic!("no time in {request}"))
}

#[tokio::test]
async fn what_is_refused_for_its_time_is_told_as_that_and_the_next_is_signed_by_the_time_of_aws() {
    let (aws, endpoint) = once(vec![untimely(400, "RequestExpired", "words"), ok(LAUNCHED)]).await;
    let error = run(&aws).await.unwrap_err();
    assert_eq!((error.category(), error.outcome_unknown()), ("wrong_time", false), "{error:?}");
    assert_eq!(error.disposition(), cloud::Disposition::Retry);
    run(&aws).await.unwrap();
    let asked = endpoint.asked();
    assert!(!signed_at(&asked[0]).starts_with("20300101T00"), "the fault did not fire: {}", asked[0]);
    assert!(signed_at(&asked[1]).starts_with("20300101T00"), "{}", asked[1]);
}

/// Within one call, where a signature is refused: nobody above has to know.
#[tokio::test]
async fn a_signature_that_is_refused_for_its_time_is_made_anew_by_the_time_of_aws() {
    let words = "Signature expired: 20260101T000000Z is now earlier than 20300101T000000Z";
    for code in ["SignatureDoesNotMatch", "AuthFailure"] {
        let endpoint = Endpoint::playing(vec![untimely(403, code, words), ok(LAUNCHED)]).await;
        run(&Aws::connect(settings(&endpoint)).await).await.unwrap();
        let asked = endpoint.asked();
        assert_eq!(asked.len(), 2, "{code}");
        assert!(signed_at(&asked[1]).starts_with("20300101T00"), "{code}: {}", asked[1]);
    }
}

#[tokio::test]
async fn our_own_rate_holds_requests_back() {
    let endpoint = Endpoint::playing(vec![ok(LAUNCHED)]).await;
    let rates = Rates { launch: Rate::new(2, 0.01), ..Rates::default() };
    let told = Arc::<Mutex<Vec<&'static str>>>::default();
    let heard = Arc::clone(&told);
    let aws = Aws::connect(Settings {
        rates,
        longest_wait: Duration::from_millis(100),
        on_call: Some(Arc::new(move |report| heard.lock().unwrap().push(report.category))),
        ..settings(&endpoint)
    });
    let aws = aws.await;
    for _ in 0..2 {
        run(&aws).await.unwrap();
    }
    let error = run(&aws).await.unwrap_err();
    assert_eq!((error.category(), error.outcome_unknown()), ("throttled", false));
    assert_eq!(endpoint.asked().len(), 2);
    assert_eq!(*told.lock().unwrap(), ["ok", "ok", "throttled"]);
}

#[tokio::test]
async fn pages_are_followed_to_the_last() {
    let page = |id: &str, next: &str| {
        let volume = format!(
            "<item><volumeId>{id}</volumeId><status>available</status><size>1</size><volumeType>gp3</volumeType>\
            <availabilityZone>eu-west-1a</availabilityZone></item>"
        );
        let next = format!("<nextToken>{next}</nextToken>");
        ok(format!(
            "<DescribeVolumesResponse><volumeSet>{volume}</volumeSet>{next}</DescribeVolumesResponse>"
        ))
    };
    let (aws, endpoint) = once(vec![page("vol-1", "more"), page("vol-2", "")]).await;
    let found = aws.describe_volumes(&Select::cluster("eu")).await.unwrap();
    assert_eq!(found.iter().map(|volume| volume.id.as_str()).collect::<Vec<_>>(), ["vol-1", "vol-2"]);
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].contains("NextToken=more") && !asked[0].contains("NextToken"), "{asked:?}");
}

#[tokio::test]
async fn a_failed_page_fails_the_whole_describe() {
    let first = "<DescribeVolumesResponse><volumeSet/><nextToken>more</nextToken></DescribeVolumesResponse>";
    let (aws, _endpoint) = once(vec![ok(first), refusal(500, "InternalError")]).await;
    let error = aws.describe_volumes(&Select::cluster("eu")).await.unwrap_err();
    assert_eq!(error.category(), "unavailable");
}

#[tokio::test]
async fn the_groups_of_a_machine_are_set_by_the_first_of_its_interfaces() {
    let interface = |id: &str, index: u8| {
        format!(
            "<item><networkInterfaceId>{id}</networkInterfaceId>\
            <attachment><deviceIndex>{index}</deviceIndex></attachment></item>"
        )
    };
    let described = |interfaces: &str| {
        ok(format!(
            "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId>\
            <networkInterfaceSet>{interfaces}</networkInterfaceSet></item></instancesSet></item></reservationSet>\
            </DescribeInstancesResponse>"
        ))
    };
    let several = described(&[interface("eni-2", 1), interface("eni-1", 0)].concat());
    let done = "<ModifyNetworkInterfaceAttributeResponse><return>true</return>\
        </ModifyNetworkInterfaceAttributeResponse>";
    let groups = ["sg-1", "sg-2"].map(SecurityGroupId::from);
    let (aws, endpoint) = once(vec![several, ok(done)]).await;
    aws.set_security_groups(&"i-1".into(), &groups).await.unwrap();
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for field in ["NetworkInterfaceId=eni-1", "SecurityGroupId.1=sg-1", "SecurityGroupId.2=sg-2"] {
        assert!(asked[1].contains(field), "{field}: {}", asked[1]);
    }
    // A machine that has ended has none.
    let (aws, endpoint) = once(vec![described("")]).await;
    let error = aws.set_security_groups(&"i-1".into(), &groups).await.unwrap_err();
    assert_eq!((error.category(), endpoint.asked().len()), ("unreadable", 1), "{error:?}");
}

#[tokio::test]
async fn what_is_wrong_with_a_batch_of_records_is_read_from_its_list() {
    // Both forms in which Route 53 words it.
    let words = "Tried to delete resource record set [name='a.', type='A'] but it was not found";
    let list =
        format!("<InvalidChangeBatch><Messages><Message>{words}</Message></Messages></InvalidChangeBatch>");
    let code = "<Type>Sender</Type><Code>InvalidChangeBatch</Code>";
    let plain = format!("<ErrorResponse><Error>{code}<Message>[{words}]</Message></Error></ErrorResponse>");
    for body in [list, plain] {
        let (aws, _endpoint) = once(vec![Act::Answer(400, "", body.clone())]).await;
        let record = cloud::DnsRecord::a("a", 60, std::net::Ipv4Addr::LOCALHOST);
        let error = aws.change_records(&"Z".into(), &[RecordChange::Delete(record)]).await.unwrap_err();
        assert!(error.is_not_found(cloud::ResourceKind::Record), "{body}: {error:?}");
    }
}

/// Everything that anybody logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn neither_user_data_nor_keys_are_ever_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // A second one: while there is only one, `tracing` asks whichever subscriber the thread has that comes by a line first.
    let _beside = tracing::Dispatch::new(tracing_subscriber::registry());
    let (aws, endpoint) = once(vec![refusal(503, "RequestLimitExceeded")]).await;
    let guard = tracing::subscriber::set_default(subscriber);
    let error = run(&aws).await.unwrap_err();
    tracing::info!(?error, launch = ?launch(), settings = ?settings(&endpoint), ?aws, "all that we could print");
    drop(guard);
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    // It did log: otherwise its silence would prove nothing.
    assert!(text.contains("TRACE") && text.contains("called AWS"), "{text}");
    let encoded = "eyJwYXNzd29yZCI6ICJodW50ZXIyIn0";
    assert!(endpoint.asked()[0].contains(encoded), "{:?}", endpoint.asked());
    for secret in ["hunter2", encoded, "very-secret-key"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
