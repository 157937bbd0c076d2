//! The benches, as data: what the bench program is told to measure, and what is aimed at.
//!
//! The program is called as `slipway-bench MEASURES --slice product|anchor --seconds N` with `SLIPWAY_TEST_STATE` in its
//! environment, measures that long, and prints one JSON object: case → number.
//!
//! What is counted and does not vary is no bench. That a create costs at most 1.3 times the requests that it needs, beside at most five
//! statuses that each tell something new, and its redelivery none (B8), shows
//! `a_create_writes_everything_once_and_asks_nothing_and_a_redelivery_costs_nothing`, and of two hundred at once, with all that is
//! said meanwhile, B8r; that a look at what is as it should be costs none, and that what is foreign costs neither requests nor memory
//! (B11), show
//! `a_fleet_at_rest_asks_for_nothing_and_what_is_foreign_is_not_even_noticed` and, of all namespaces,
//! `a_database_at_rest_costs_nothing_in_a_cluster_full_of_what_is_foreign`.

use super::statistics::Goal::{self, AtLeast, AtMost};

/// One bench.
pub(super) struct Bench {
    /// Its number and name.
    pub(super) name: &'static str,
    /// What the program calls it.
    pub(super) measures: &'static str,
    /// What is aimed at, case by case.
    pub(super) cases: &'static [Case],
    /// Pairs of slices beyond which nothing is learned: rows that take minutes, or that hardly vary.
    pub(super) most_pairs: u32,
    /// Whether a pair is measured before those that count: servers that compile themselves while they run are slow at first.
    pub(super) warm_up: bool,
    /// Whether the Java program is needed.
    pub(super) java: bool,
    /// Whether the operator is needed, which takes minutes to compile.
    pub(super) operator: bool,
}

/// One number of a bench.
pub(super) struct Case {
    /// Its name.
    pub(super) name: &'static str,
    /// What it counts.
    pub(super) unit: &'static str,
    /// What is aimed at.
    pub(super) goal: Goal,
    /// Whether each slice has to reach it, so that the worst one is judged and not their middle.
    pub(super) each: bool,
}

const fn case(name: &'static str, unit: &'static str, goal: Goal) -> Case {
    Case { name, unit, goal, each: false }
}

/// A number of which a promise speaks without exception, such as that memory never grows beyond its bound.
const fn each(name: &'static str, unit: &'static str, goal: Goal) -> Case {
    Case { each: true, ..case(name, unit, goal) }
}

/// A bench without peculiarities.
const fn bench(name: &'static str, measures: &'static str, cases: &'static [Case]) -> Bench {
    Bench { name, measures, cases, most_pairs: u32::MAX, warm_up: false, java: false, operator: false }
}

/// A bench of the operator, which hardly varies and takes its time.
const fn operator(name: &'static str, measures: &'static str, cases: &'static [Case]) -> Bench {
    Bench { operator: true, most_pairs: 3, ..bench(name, measures, cases) }
}

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        most_pairs: 5,
        warm_up: true,
        ..bench(
            "B1",
            "apply-saturation",
            // The product's own processor time is set against that of the cluster's servers.
            &[case("applies", "1/s", AtLeast(0.85)), case("cpu", "ms", AtMost(0.15))],
        )
    },
    bench(
        "B2",
        "engine",
        &[
            // Against a bare loop that does the same work, and, which is stricter, against what no program can exceed.
            case("10ms", "1/s", AtLeast(0.95)),
            case("50ms", "1/s", AtLeast(0.95)),
            case("100ms", "1/s", AtLeast(0.95)),
            case("10ms-formula", "1/s", AtLeast(0.95)),
            case("50ms-formula", "1/s", AtLeast(0.95)),
            case("100ms-formula", "1/s", AtLeast(0.95)),
        ],
    ),
    Bench {
        java: true,
        ..bench(
            "B2p",
            "parallel",
            &[
                case("10-keys", "1/s", AtLeast(1.0)),
                case("20-keys", "1/s", AtLeast(1.0)),
                case("50-keys", "1/s", AtLeast(1.0)),
                case("100-keys", "1/s", AtLeast(1.0)),
                case("1000-keys", "1/s", AtLeast(1.0)),
                case("10000-keys", "1/s", AtLeast(1.0)),
                case("cpu", "s", AtMost(0.333)),
                case("memory", "MB", AtMost(0.2)),
            ],
        )
    },
    Bench {
        java: true,
        most_pairs: 3,
        ..bench(
            "B2q",
            "parallel-few-keys",
            &[
                case("1-keys", "1/s", AtLeast(1.0)),
                case("2-keys", "1/s", AtLeast(1.0)),
                case("5-keys", "1/s", AtLeast(1.0)),
                // What its threads sleep too long is no merit of ours: beyond this the rows say nothing.
                case("work", "ms", AtLeast(0.9)),
                case("cpu", "s", AtMost(0.333)),
                case("memory", "MB", AtMost(0.2)),
            ],
        )
    },
    bench(
        "B3",
        "partitions",
        &[
            case("4-partitions", "1/s", AtLeast(0.9)),
            case("16-partitions", "1/s", AtLeast(0.9)),
            case("64-partitions", "1/s", AtLeast(0.9)),
        ],
    ),
    bench(
        "B4",
        "request-latency",
        // Counted from the answer of the API, and, which is stricter, from the sending of the request.
        &[
            case("p50", "ms", AtMost(1.5)),
            case("p99", "ms", AtMost(2.5)),
            case("sent-p50", "ms", AtMost(1.5)),
            case("sent-p99", "ms", AtMost(2.5)),
        ],
    ),
    bench("B5", "status-latency", &[case("p50", "ms", AtMost(1.5)), case("p99", "ms", AtMost(2.5))]),
    bench(
        "B6",
        "gossip-ingest",
        &[
            case("rows", "1/s", AtLeast(0.5)),
            case("events", "1/s", AtLeast(1.0)),
            // Of a database with an open operation each.
            case("open", "1/s", AtLeast(0.5)),
        ],
    ),
    bench("B7a", "create-throughput", &[case("commits", "tx/s", AtLeast(0.6))]),
    bench("B7b", "relay-drain", &[case("drain", "1/s", AtLeast(0.7))]),
    Bench { most_pairs: 5, ..bench("B9", "cost-growth", &[case("cpu", "ms", AtMost(1.2))]) },
    Bench {
        most_pairs: 5,
        ..bench(
            "B9b",
            "backend-cost",
            &[
                case("relay", "ms", AtMost(1.2)),
                case("sink", "ms", AtMost(1.2)),
                case("mint", "ms", AtMost(1.2)),
            ],
        )
    },
    operator(
        "B8r",
        "creation-rate",
        &[
            // Against three quarters of the bare rate, which is that of the same writes, with the same bodies and in the same order, by a
            // loop that knows nothing; or against what is promised, if that is less. A loop that applies resources alone (B1) is no
            // measure: its writes are others, which cost the API server less than those that make a database.
            case("writes", "1/s", AtLeast(1.0)),
            // For each database, against those that are needed.
            case("requests", "writes", AtMost(1.3)),
            case("memory", "of allowed", AtMost(1.0)),
        ],
    ),
    operator("B9o", "pass-cost", &[case("cpu", "ms", AtMost(1.2))]),
    operator("B10", "idle", &[case("requests", "1/s", AtMost(1.2)), case("cpu", "ms/s", AtMost(1.2))]),
    operator("B11", "cache-memory", &[case("growth", "MB", AtMost(2.5)), case("total", "MB", AtMost(1.0))]),
    operator("B11s", "serving-memory", &[case("memory", "of allowed", AtMost(1.0))]),
    operator("B12", "cold-start", &[case("start", "ms", AtMost(2.0))]),
    Bench {
        most_pairs: 3,
        ..bench(
            "B11b",
            "backlog-memory",
            &[
                each("provisioner", "MB", AtMost(1.0)),
                each("sink", "MB", AtMost(1.0)),
                each("relay", "MB", AtMost(1.0)),
            ],
        )
    },
    // The slowest of all events against what is promised: half a second from its commit to both replicas' streams.
    bench("B16", "streams", &[each("max", "ms", AtMost(1.0))]),
    bench("B15", "blast-radius", &[case("applies", "1/s", AtLeast(0.95)), case("p99", "ms", AtMost(1.2))]),
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

    #[test]
    fn what_is_promised_without_exception_is_judged_by_the_worst_slice() {
        let cases = BENCHES.iter().flat_map(|bench| bench.cases.iter().map(move |case| (bench.name, case)));
        let each: Vec<(&str, &str)> =
            cases.filter(|(_, case)| case.each).map(|(bench, case)| (bench, case.name)).collect();
        assert_eq!(each, [("B11b", "provisioner"), ("B11b", "sink"), ("B11b", "relay"), ("B16", "max")]);
    }

    #[test]
    fn names_are_unique() {
        for (index, bench) in BENCHES.iter().enumerate() {
            assert!(BENCHES[..index].iter().all(|other| other.name != bench.name), "{}", bench.name);
            assert!(bench.most_pairs >= 3, "{}: nothing can be said of fewer than three pairs", bench.name);
        }
    }
}
