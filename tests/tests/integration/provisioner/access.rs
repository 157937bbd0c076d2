//! Credentials that change, and what is said while they are of no use: nothing is lost, nothing is poison, and nobody
//! starts anything anew.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::eventually;
use wire::OutcomeKind;

use super::bulkhead::metric;
use super::healing::OFTEN;
use super::rig::{PATIENCE, Rig, kubeconfig};
use crate::front::{Act, Front, Seen};

/// What is promised from a token in its file to the last instruction that waited for it.
const RENEWED: Duration = Duration::from_mins(1);

/// The kubeconfig of `bare` with the token in a file.
fn with_token_file(server: &str) -> String {
    let mut config: Value = serde_json::from_str(&kubeconfig(server)).unwrap();
    config["users"][0]["user"] = json!({ "tokenFile": "token" });
    config.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_expired_parks_until_the_file_has_a_new_one() {
    let rig = Rig::new().await;
    let front = Front::of(testkit::bare_cluster()).await;
    let good = Arc::new(Mutex::new("one"));
    let wanted = Arc::clone(&good);
    front.set(move |seen: &Seen| {
        let wanted = format!("Bearer {}", wanted.lock().unwrap());
        if seen.authorization == wanted { Act::Pass } else { Act::Answer(401, None) }
    });
    rig.write_credentials("token", "one");
    rig.write_credentials("bare.kubeconfig", &with_token_file(front.url()));
    let running = rig.start(&[]);
    let first = rig.instruction(1);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Applied).await;
    *good.lock().unwrap() = "two";
    let late: Vec<_> = (0..60).map(|_| rig.instruction(1)).collect();
    for instruction in &late {
        rig.publish(instruction).await;
    }
    for instruction in &late {
        assert_eq!(rig.outcome(instruction, OutcomeKind::Parked).await.code, "credentials");
    }
    assert!(front.harmed() > 0);
    // As many as are under way at once learn it for themselves, sixteen by default, and then a probe now and then.
    assert!(front.applies() < 40, "a server that does not know us is left alone: {}", front.applies());
    // With the end of a line behind it, as an editor leaves it.
    rig.write_credentials("token", "two\n");
    let renewed = Instant::now();
    for instruction in &late {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    let renewed = renewed.elapsed();
    assert!(renewed <= RENEWED, "the last one waited for {renewed:?}");
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    // A token that is gone or empty for a moment does not stop what works.
    rig.write_credentials("token", "");
    let last = rig.instruction(1);
    rig.publish(&last).await;
    rig.outcome(&last, OutcomeKind::Applied).await;
    running.stop().await;
}

/// The watch stays open all the while: it began with the token that was there then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_listed_by_the_token_of_the_moment() {
    let rig = Rig::new().await;
    let front = Front::of(testkit::bare_cluster()).await;
    rig.write_credentials("token", "one");
    rig.write_credentials("bare.kubeconfig", &with_token_file(front.url()));
    let running = rig.start(&OFTEN[..2]);
    let listed_by = async |token: &str| {
        let by = format!("Bearer {token}");
        let listed = || front.seen(|seen| seen.asks_for_a_version() && seen.authorization == by).len();
        eventually(PATIENCE, &by, async || (listed() >= 2).then_some(())).await;
    };
    listed_by("one").await;
    rig.write_credentials("token", "two");
    listed_by("two").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_was_replaced_is_believed_without_a_restart() {
    let rig = Rig::new().await;
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"])
        .args(["-keyout", "/dev/null", "-out"])
        .arg(rig.credentials.join("ca.crt"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut config: Value = serde_json::from_str(&kubeconfig(&testkit::bare_cluster().server)).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    let authority = std::fs::read_to_string(cluster["certificate-authority"].as_str().unwrap()).unwrap();
    cluster["certificate-authority"] = json!("ca.crt");
    rig.write_credentials("bare.kubeconfig", &config.to_string());
    let running = rig.start(&[]);
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    assert_eq!(rig.outcome(&instruction, OutcomeKind::Parked).await.code, "unreachable");
    rig.write_credentials("ca.crt", &authority);
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_are_missing_at_first_are_waited_for() {
    let rig = Rig::new().await;
    std::fs::remove_file(rig.credentials.join("bare.kubeconfig")).unwrap();
    let running = rig.start(&[]);
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    let outcome = rig.outcome(&instruction, OutcomeKind::Parked).await;
    assert!(outcome.code == "credentials" && outcome.message.contains("bare.kubeconfig"), "{outcome:?}");
    rig.good_credentials();
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    metric(&running, "provisioner_cluster_up{cluster=\"bare\"} 1").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_may_not_be_made_parks_its_own_databases_only() {
    let rig = Rig::new().await;
    let front = Front::of(testkit::bare_cluster()).await;
    rig.credentials_at("bare", front.url());
    // What is parked is parked for what the server says, however long a busy one takes to say it.
    let running = rig.start(&["--call-timeout", "50"]);
    let open = rig.instruction(1);
    rig.publish(&open).await;
    rig.outcome(&open, OutcomeKind::Applied).await;
    front.set(|seen| if seen.is_namespace() { Act::Answer(403, None) } else { Act::Pass });
    let mut closed = rig.instruction(1);
    closed.tenant = testkit::unique("t").parse().unwrap();
    rig.publish(&closed).await;
    assert_eq!(rig.outcome(&closed, OutcomeKind::Parked).await.code, "forbidden");
    assert!(front.harmed() > 0);
    let next = rig.instruction(1);
    rig.publish(&next).await;
    rig.outcome(&next, OutcomeKind::Applied).await;
    let tries = "select attempts > 0 from parked_instructions where code = 'forbidden'";
    eventually(PATIENCE, "another try", async || {
        (testkit::query(&rig.database_url, tries).await.unwrap() == "t").then_some(())
    })
    .await;
    front.release();
    rig.outcome(&closed, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}
