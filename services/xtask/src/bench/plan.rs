//! The benches, as data: the program that measures, what it measures and what is aimed at.
//!
//! A bench is a program of the workspace that is called as `PROGRAM --slice product|anchor --seconds N` with
//! `SLIPWAY_TEST_STATE` in its environment, measures that long, and prints one JSON object: case → number.

use super::statistics::Goal;

/// One bench.
pub(super) struct Bench {
    /// Its number and name.
    pub(super) name: &'static str,
    /// The program, in the folder of release builds.
    pub(super) program: &'static str,
    /// What the numbers count.
    pub(super) unit: &'static str,
    /// What is aimed at, case by case.
    pub(super) cases: &'static [(&'static str, Goal)],
}

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "B4",
        program: "bench-request-latency",
        unit: "ms",
        // Counted from the answer of the API, and, which is stricter, from the sending of the request.
        cases: &[
            ("p50", Goal::AtMost(1.5)),
            ("p99", Goal::AtMost(2.5)),
            ("sent-p50", Goal::AtMost(1.5)),
            ("sent-p99", Goal::AtMost(2.5)),
        ],
    },
    Bench {
        name: "B5",
        program: "bench-status-latency",
        unit: "ms",
        cases: &[("p50", Goal::AtMost(1.5)), ("p99", Goal::AtMost(2.5))],
    },
    Bench {
        name: "B7a",
        program: "bench-create-throughput",
        unit: "tx/s",
        cases: &[("commits", Goal::AtLeast(0.6))],
    },
];

/// The benches of these names (in any case of letters); all of them when none is named.
pub(super) fn select(names: &[String]) -> anyhow::Result<Vec<&'static Bench>> {
    if names.is_empty() {
        return Ok(BENCHES.iter().collect());
    }
    let find = |name: &String| {
        let found = BENCHES.iter().find(|bench| bench.name.eq_ignore_ascii_case(name));
        let known: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        found.ok_or_else(|| anyhow::anyhow!("there is no bench '{name}'; there are {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_are_found_by_name() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            select(&wanted).map(|benches| benches.iter().map(|bench| bench.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).expect("all").len(), BENCHES.len());
        assert_eq!(names(&["b4"]).expect("one"), ["B4"]);
        assert!(names(&["B99"]).is_err());
    }
}
