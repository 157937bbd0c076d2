//! Probes: what they ask, and what a series of answers means. Pure: asking is `prober`'s work, time is a parameter.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, ContainerPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::intent::{Unsupported, unsupported};

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// An HTTP GET answered with 200 to 399.
    Http {
        /// Another address than the pod's.
        host: Option<String>,
        /// Port.
        port: u16,
        /// Path with query.
        path: String,
        /// Extra headers.
        headers: Vec<(String, String)>,
    },
    /// A connection that is accepted.
    Tcp {
        /// Another address than the pod's.
        host: Option<String>,
        /// Port.
        port: u16,
    },
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What it asks.
    pub question: Question,
    /// Pause after the start.
    pub initial_delay: Duration,
    /// Pause between questions.
    pub period: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Successes in a row that count as good.
    pub success_threshold: u32,
    /// Failures in a row that count as bad.
    pub failure_threshold: u32,
}

/// What a probe's answers amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not enough answers.
    Unknown,
    /// Good.
    Good,
    /// Bad.
    Bad,
}

/// A probe and its answers so far, for one run of the process.
#[derive(Clone, Debug)]
pub struct Series {
    probe: Probe,
    due: Timestamp,
    in_a_row: u32,
    last: Option<bool>,
    verdict: Verdict,
}

impl Series {
    /// From the start of the process (or from the end of the startup probe).
    pub fn new(probe: Probe, started: Timestamp) -> Self {
        let due = later(started, probe.initial_delay);
        Self { probe, due, in_a_row: 0, last: None, verdict: Verdict::Unknown }
    }

    /// The probe.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// When to ask next.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// What the answers amount to.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Takes an answer in.
    pub fn answer(&mut self, good: bool, now: Timestamp) {
        self.in_a_row = if self.last == Some(good) { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = Some(good);
        self.due = later(now, self.probe.period);
        let needed = if good { self.probe.success_threshold } else { self.probe.failure_threshold };
        if self.in_a_row >= needed {
            self.verdict = if good { Verdict::Good } else { Verdict::Bad };
        }
    }
}

/// All probes of one run.
#[derive(Clone, Debug)]
pub struct Probes {
    /// While it is unknown the others wait.
    pub startup: Option<Series>,
    /// Traffic.
    pub readiness: Option<Series>,
    /// Life.
    pub liveness: Option<Series>,
}

impl Probes {
    /// For a process that started then.
    pub fn new(
        startup: Option<Probe>,
        readiness: Option<Probe>,
        liveness: Option<Probe>,
        started: Timestamp,
    ) -> Self {
        let series = |probe: Option<Probe>| probe.map(|probe| Series::new(probe, started));
        Self { startup: series(startup), readiness: series(readiness), liveness: series(liveness) }
    }

    /// Whether the container counts as started.
    pub fn started(&self) -> bool {
        self.startup.as_ref().is_none_or(|series| series.verdict() == Verdict::Good)
    }

    /// Whether it may get traffic.
    pub fn ready(&self) -> bool {
        self.started() && self.readiness.as_ref().is_none_or(|series| series.verdict() == Verdict::Good)
    }

    /// The probe that condemns the process, if one does.
    pub fn condemned(&self) -> Option<&'static str> {
        let bad =
            |series: &Option<Series>| matches!(series, Some(series) if series.verdict() == Verdict::Bad);
        if bad(&self.startup) {
            return Some("startup");
        }
        (self.started() && bad(&self.liveness)).then_some("liveness")
    }

    /// Takes all probes to be content until they say otherwise: for a process that was ready before this agent came.
    pub fn assume_good(&mut self) {
        for series in self.startup.iter_mut().chain(&mut self.readiness).chain(&mut self.liveness) {
            series.verdict = Verdict::Good;
        }
    }

    /// Those that may ask now.
    pub fn active(&mut self) -> Vec<&mut Series> {
        if self.started() {
            self.readiness.iter_mut().chain(self.liveness.iter_mut()).collect()
        } else {
            self.startup.iter_mut().collect()
        }
    }
}

/// Reads a probe of the API. Named ports are looked up among the container's.
pub fn parse(probe: &core::Probe, ports: &[ContainerPort]) -> Result<Probe, Unsupported> {
    let question = if let Some(get) = &probe.http_get {
        if get.scheme.as_deref().is_some_and(|scheme| !scheme.eq_ignore_ascii_case("http")) {
            return unsupported("probes over HTTPS");
        }
        let headers = get.http_headers.iter().flatten();
        Question::Http {
            host: get.host.clone().filter(|host| !host.is_empty()),
            port: port(&get.port, ports)?,
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            headers: headers.map(|header| (header.name.clone(), header.value.clone())).collect(),
        }
    } else if let Some(tcp) = &probe.tcp_socket {
        let host = tcp.host.clone().filter(|host| !host.is_empty());
        Question::Tcp { host, port: port(&tcp.port, ports)? }
    } else {
        return unsupported("exec and gRPC probes");
    };
    let seconds = |value: Option<i32>, default: u64| {
        Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
    };
    let count = |value: Option<i32>, default: u32| {
        value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
    };
    Ok(Probe {
        question,
        initial_delay: seconds(probe.initial_delay_seconds, 0),
        period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
        timeout: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
        success_threshold: count(probe.success_threshold, 1),
        failure_threshold: count(probe.failure_threshold, 3),
    })
}

fn port(port: &IntOrString, ports: &[ContainerPort]) -> Result<u16, Unsupported> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => name.parse().ok().or_else(|| {
            ports.iter().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
        }),
    };
    match number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0) {
        Some(number) => Ok(number),
        None => unsupported(format!("a probe of port {port:?}")),
    }
}

pub(crate) fn later(time: Timestamp, pause: Duration) -> Timestamp {
    time.saturating_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(success: u32, failure: u32) -> Probe {
        Probe {
            question: Question::Tcp { host: None, port: 1 },
            initial_delay: Duration::from_secs(5),
            period: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            success_threshold: success,
            failure_threshold: failure,
        }
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn thresholds_count_answers_in_a_row() {
        let check = |answers: &str, expected: Verdict| {
            let mut series = Series::new(probe(2, 3), second(0));
            for (at, answer) in answers.chars().enumerate() {
                series.answer(answer == '+', second(i64::try_from(at).unwrap()));
            }
            assert_eq!(series.verdict(), expected, "{answers}");
        };
        check("", Verdict::Unknown);
        check("+", Verdict::Unknown);
        check("+-+-", Verdict::Unknown);
        check("++", Verdict::Good);
        check("++--", Verdict::Good);
        check("++---", Verdict::Bad);
        check("++---+", Verdict::Bad);
        check("++---++", Verdict::Good);
    }

    #[test]
    fn the_first_question_waits_and_the_next_keep_the_period() {
        let mut series = Series::new(probe(1, 1), second(100));
        assert_eq!(series.due(), second(105));
        series.answer(true, second(106));
        assert_eq!(series.due(), second(108));
    }

    #[test]
    fn nothing_is_asked_before_the_startup_probe_is_good() {
        let mut probes = Probes::new(Some(probe(1, 2)), Some(probe(1, 1)), Some(probe(1, 1)), second(0));
        assert_eq!(probes.active().len(), 1);
        assert!(!probes.started() && !probes.ready());
        probes.startup.as_mut().unwrap().answer(true, second(1));
        assert_eq!(probes.active().len(), 2);
        assert!(probes.started() && !probes.ready());
        probes.readiness.as_mut().unwrap().answer(true, second(2));
        assert!(probes.ready());
        assert_eq!(probes.condemned(), None);
        probes.liveness.as_mut().unwrap().answer(false, second(3));
        assert_eq!(probes.condemned(), Some("liveness"));
    }

    #[test]
    fn a_startup_probe_can_condemn() {
        let mut probes = Probes::new(Some(probe(1, 2)), None, None, second(0));
        probes.startup.as_mut().unwrap().answer(false, second(1));
        assert_eq!(probes.condemned(), None);
        probes.startup.as_mut().unwrap().answer(false, second(2));
        assert_eq!(probes.condemned(), Some("startup"));
    }

    #[test]
    fn named_ports_are_looked_up() {
        let ports =
            [ContainerPort { name: Some("min".into()), container_port: 9003, ..ContainerPort::default() }];
        let check = |json: serde_json::Value, expected: Option<u16>| {
            let probe: core::Probe =
                serde_json::from_value(serde_json::json!({"tcpSocket": {"port": json}})).unwrap();
            let port = parse(&probe, &ports).ok().map(|probe| match probe.question {
                Question::Tcp { port, .. } | Question::Http { port, .. } => port,
            });
            assert_eq!(port, expected);
        };
        check(serde_json::json!("min"), Some(9003));
        check(serde_json::json!(80), Some(80));
        check(serde_json::json!("8080"), Some(8080));
        check(serde_json::json!("other"), None);
        check(serde_json::json!(70_000), None);
    }

    #[test]
    fn exec_probes_are_refused() {
        let probe: core::Probe =
            serde_json::from_value(serde_json::json!({"exec": {"command": ["x"]}})).unwrap();
        assert!(parse(&probe, &[]).is_err());
    }
}
