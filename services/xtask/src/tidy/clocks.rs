//! Wall clocks: who may look at one, and what for. Nothing is decided by them, because they are wrong and jump: lengths of time are
//! measured by what only goes on, and what others dated is compared with their own clocks.

use super::{Kind, Rule, Source};

/// Programs and rooms in which something is decided that cannot be undone.
const DECIDING: &[&str] = &["store", "backend", "provisioner", "operator", "kubeconfig"];

/// Who looks at this machine's own, and what for.
const LOOKING: &[(&str, &str)] = &[
    ("services/operator/src/clock.rs", "before the API server has said what time it is"),
    ("services/operator/src/lease.rs", "the Lease tells people when it was renewed"),
    ("services/operator/src/memory.rs", "a message tells people when AWS is asked again"),
    (
        "services/provisioner/src/gossip.rs",
        "what is said says when; position, term and version come before that",
    ),
    (
        "services/kubeconfig/src/given.rs",
        "a token's own end: another one is asked for before; a server that refuses it has that done at any time",
    ),
    (
        "services/provisioner/src/fleet/member.rs",
        "the same, where no other one was given: it is told so instead of asking the server",
    ),
    ("services/provisioner/src/drain.rs", "a line of the log says how long something waited"),
    ("services/provisioner/src/work.rs", "a row that is not written yet: Postgres dates it"),
    ("services/provisioner/src/work/about.rs", "a row that is not written yet: Postgres dates it"),
    ("services/backend/src/relay/record.rs", "how many bytes a time takes"),
    ("services/store/src/sink.rs", "a histogram shows how long operations take"),
];

const NAMES: &[&str] = &["Timestamp::now", "SystemTime::now", "Zoned::now"];

pub(super) const RULES: &[Rule] = &[Rule {
    reason: "a wall clock is wrong and jumps: whoever looks at one is in a table that says what for, and decides nothing by it",
    check: looked_at,
}];

fn looked_at(source: &Source) -> Vec<(usize, String)> {
    let decides = source.kind == Kind::Rust
        && source.path.contains("/src/")
        && source.crate_name().is_some_and(|name| DECIDING.contains(&name));
    if !decides || LOOKING.iter().any(|(path, _)| *path == source.path) {
        return Vec::new();
    }
    let looks = source.code().filter(|(_, line)| NAMES.iter().any(|name| line.contains(*name)));
    looks.map(|(number, _)| (number, "a wall clock: take the time from who dated it".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_at_a_wall_clock_is_in_the_table() {
        for line in ["let now = Timestamp::now();", "let now = std::time::SystemTime::now();"] {
            for (path, expected) in [
                ("services/operator/src/reconcile.rs", 1),
                ("services/store/src/parked.rs", 1),
                ("services/operator/src/clock.rs", 0),
                ("services/slipway/src/session.rs", 0),
                ("tests/tests/integration/operator/rig.rs", 0),
            ] {
                let found = looked_at(&Source::new(path, format!("{line}\n")));
                assert_eq!(found.len(), expected, "{path}: {line}");
            }
        }
        let measured = Source::new("services/operator/src/reconcile.rs", "let now = Instant::now();\n");
        assert_eq!(looked_at(&measured), []);
    }

    #[test]
    fn nobody_is_in_the_table_who_does_not_look() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        for (path, _) in LOOKING {
            let text = std::fs::read_to_string(format!("{root}/{path}")).unwrap_or_default();
            let source = Source::new(*path, text);
            let looks = source.code().any(|(_, line)| NAMES.iter().any(|name| line.contains(*name)));
            assert!(looks, "{path} does not look at a wall clock any more");
        }
    }
}
