//! Lives that are led less often: databases that nobody but people with `kubectl` looks after, under each policy of deletion;
//! copies by a schedule; changes that cost no other machine; a version that does not start; and disks that were there before their
//! database.

use resources::Phase;
use serde_json::{Value, json};

use super::super::others::BROKEN_VERSION;
use super::life::{Act, Turn};
use super::origin::Source;
use super::sweep::{Least, Road};
use super::{KEPT, LEAST, PORTLESS, SERVING, turn_of, wish};

/// How many GiB a disk has that was there before.
const FOUND_GIB: u32 = 12;
/// A key that is read again.
const LIVE: &str = "http.net.connection.limit";

pub(super) fn all() -> Vec<Road> {
    vec![kept_by_hand(), copied_by_hand(), tuned(), taken_back(), found(Source::Disk), found(Source::Copy)]
}

/// A resource that is made by hand and deleted, made again and deleted: the disk is kept, found again and destroyed.
fn kept_by_hand() -> Road {
    let make = turn_of("make", Act::Make("Retain"), Phase::Ready, LEAST[0]);
    let keep = turn_of("keep", Act::Delete, Phase::Deleted, Least { api: 8, aws: 3, kinds: 8 });
    let again = turn_of("make again", Act::Make("Delete"), Phase::Ready, Least { api: 8, aws: 3, kinds: 5 });
    let destroy = turn_of("destroy", Act::Delete, Phase::Deleted, LEAST[5]);
    let turns = vec![make, Turn { left: KEPT, ..keep }, again, destroy];
    Road { ending: turns.len(), turns, questdb: false, source: None }
}

/// A resource that is made by hand, copied by a schedule, and deleted with a last copy.
fn copied_by_hand() -> Road {
    let make = turn_of("make", Act::Make("Snapshot"), Phase::Ready, Least { kinds: 0, ..LEAST[0] });
    let schedule = turn_of("schedule", Act::Schedule, Phase::Ready, Least { api: 8, aws: 0, kinds: 0 });
    let destroy = turn_of("destroy with a copy", Act::Delete, Phase::Deleted, LEAST[5]);
    let turns = vec![make, Turn { copies: 1, ..schedule }, Turn { copies: 1, ..destroy }];
    Road { ending: turns.len(), turns, questdb: true, source: None }
}

/// What can change while the machine stays, there and back: read again, restarted, online; keys that are drawn and taken back; no
/// ports of the machine, and another name.
fn tuned() -> Road {
    let tune = wish("tune", changed, Phase::Ready, Least { api: 6, aws: 2, kinds: 6 });
    let turns = vec![
        wish("create", |_| {}, Phase::Ready, Least { kinds: 0, ..LEAST[0] }),
        wish("reload", reloaded, Phase::Ready, Least { api: 4, aws: 0, kinds: 3 }),
        Turn { left: PORTLESS, ..tune },
        wish("restart", restarted, Phase::Ready, Least { api: 5, aws: 1, kinds: 5 }),
        wish("rename", renamed, Phase::Ready, Least { api: 2, aws: 2, kinds: 2 }),
        wish("purge", purged, Phase::Deleted, LEAST[5]),
    ];
    Road { turns, ending: 1, questdb: true, source: None }
}

fn reloaded(spec: &mut Value) {
    spec["config"] = json!({ LIVE: "80" });
}

fn changed(spec: &mut Value) {
    reloaded(spec);
    faster(spec);
    spec["network"] = json!({
        "allowedCidrs": ["10.9.0.0/16"], "egress": { "cidrs": ["10.8.0.0/16"] }, "hostPorts": false,
        "service": { "annotations": { "example.com/a": "1" } },
    });
    spec["pod"] = json!({
        "labels": { "team": "trading" }, "env": [{ "name": "TZ", "value": "UTC" }],
        "resources": { "cpu": "1", "memory": "4096Mi" },
    });
    spec["credentials"] = json!({ "ilp": { "drawn": ["first"] } });
}

/// All of that is taken back but the disk, and QuestDB is to start anew.
fn restarted(spec: &mut Value) {
    faster(spec);
    spec["restartNonce"] = json!("once");
}

/// Which name it is, is known to whoever leads the life.
fn renamed(spec: &mut Value) {
    restarted(spec);
    spec["network"]["hostname"] = json!("");
}

fn purged(spec: &mut Value) {
    renamed(spec);
    spec["runState"] = json!("Purged");
}

fn faster(spec: &mut Value) {
    spec["storage"]["type"] = json!("gp3");
    spec["storage"]["iops"] = json!(6_000);
    spec["storage"]["throughput"] = json!(500);
}

/// A version that does not start, until somebody asks for the one before it.
fn taken_back() -> Road {
    let fail = turn_of("fail", Act::Fail(broken), Phase::Degraded, Least { api: 6, aws: 0, kinds: 3 });
    let turns = vec![
        wish("create", |_| {}, Phase::Ready, Least { kinds: 0, ..LEAST[0] }),
        Turn { copies: 1, left: SERVING, ..fail },
        wish("take back", |_| {}, Phase::Ready, Least { api: 1, aws: 0, kinds: 1 }),
        wish("purge", |spec| spec["runState"] = json!("Purged"), Phase::Deleted, LEAST[5]),
    ];
    Road { turns, ending: 1, questdb: true, source: None }
}

fn broken(spec: &mut Value) {
    spec["version"] = json!(BROKEN_VERSION);
}

/// A database whose first disk is not empty.
fn found(source: Source) -> Road {
    let word = match source {
        Source::Copy => "restore",
        Source::Disk => "adopt",
    };
    let turns = vec![
        wish(word, as_large, Phase::Ready, Least { api: 8, aws: 4, kinds: 10 }),
        wish("purge", as_large_and_purged, Phase::Deleted, LEAST[5]),
    ];
    Road { turns, ending: 1, questdb: false, source: Some(source) }
}

fn as_large(spec: &mut Value) {
    spec["storage"]["sizeGib"] = json!(FOUND_GIB);
}

fn as_large_and_purged(spec: &mut Value) {
    as_large(spec);
    spec["runState"] = json!("Purged");
}
