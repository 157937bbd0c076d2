//! An operator whose kubeconfig names a program for tokens: it gives other ones, fails and hangs, and nobody starts anything anew.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use resources::Phase;
use serde_json::json;
use testkit::{Spawned, eventually, unique};

use super::rig::{PATIENCE, Rig};
use super::subject::Subject;
use crate::front::{Act, Front, Seen};
use crate::tokens::{HANGS, HANGS_LATER, PROGRAM, hung, living, with_program};

/// A kubeconfig that leads to a front, with a shell for the token that is told of a file.
fn kubeconfig(front: &Front, line: &str, file: &Path) -> PathBuf {
    let path = front.kubeconfig(&testkit::scratch());
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, with_program(&config, &["-c", line, &file.display().to_string()])).unwrap();
    path
}

/// Waits until the log has so many lines that tell this of the credentials.
async fn told(operator: &Spawned, what: &str, times: usize) {
    eventually(PATIENCE, &format!("{what:?} to be told {times} times"), async || {
        let log = operator.log();
        let lines = log.lines().filter(|line| line.contains("\"credentials\"") && line.contains(what));
        (lines.count() >= times).then_some(())
    })
    .await;
}

/// Another wish, which takes writes, is carried out.
async fn works(subject: &mut Subject, cidr: &str) {
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": [cidr] })).await;
    subject.carried_out(Phase::Ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_token_is_taken_up_without_a_restart() {
    let mut subject = Subject::new(&unique("token")).await;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let good = Arc::new(Mutex::new("swordfish-1"));
    let wanted = Arc::clone(&good);
    // Whoever loses the lease ends: that is not what is tested.
    front.set(move |seen: &Seen| {
        let wanted = format!("Bearer {}", wanted.lock().unwrap());
        let is_known = seen.authorization == wanted || seen.is_of_lease();
        if is_known { Act::Pass } else { Act::Answer(401, None) }
    });
    let token = testkit::scratch().join(unique("token"));
    std::fs::write(&token, "swordfish-1").unwrap();
    let operator = subject.rig.spawn((&lease, &kubeconfig(&front, PROGRAM, &token)), &[], &[]);
    subject.serving().await;
    std::fs::write(&token, "swordfish-2").unwrap();
    *good.lock().unwrap() = "swordfish-2";
    works(&mut subject, "10.9.0.0/16").await;
    // It breaks while it is needed.
    std::fs::remove_file(&token).unwrap();
    *good.lock().unwrap() = "swordfish-3";
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.10.0.0/16"] })).await;
    told(&operator, "exit status: 3", 1).await;
    std::fs::write(&token, "swordfish-3").unwrap();
    subject.carried_out(Phase::Ready).await;
    assert!(front.harmed() > 0, "no token was refused");
    subject.purge().await;
    let log = operator.log();
    assert!(!log.contains("swordfish"), "{log}");
    operator.terminate(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_for_tokens_that_hangs_is_ended_and_holds_nothing_up() {
    let mut subject = Subject::new(&unique("hangs")).await;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    front.set(|seen| if seen.authorization == "Bearer one" { Act::Pass } else { Act::Answer(401, None) });
    let file = testkit::scratch().join(unique("numbers"));
    let operator = subject.rig.spawn((&lease, &kubeconfig(&front, HANGS_LATER, &file)), &[], &[]);
    subject.serving().await;
    std::fs::write(&file, "").unwrap();
    hung(&file, 1).await;
    // The server takes what was given before.
    works(&mut subject, "10.9.0.0/16").await;
    told(&operator, "gave nothing within 15s", 1).await;
    let numbers = hung(&file, 2).await;
    let one = async || (living(&numbers) <= 2).then_some(());
    eventually(PATIENCE, "the end of all but one shell and its child", one).await;
    std::fs::remove_file(&file).unwrap();
    told(&operator, "component works", 2).await;
    eventually(PATIENCE, "the end of all", async || (living(&numbers) == 0).then_some(())).await;
    works(&mut subject, "10.10.0.0/16").await;
    subject.purge().await;
    // It ends although it waits.
    std::fs::write(&file, "").unwrap();
    let last = hung(&file, 1).await;
    operator.terminate(PATIENCE).await.unwrap();
    eventually(PATIENCE, "the end of the last", async || (living(&last) == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_gets_no_token_at_its_start_and_says_why() {
    let rig = Rig::new().await;
    let lease = rig.lease().await;
    let front = Front::before(&rig.rights(&lease).await).await;
    let nothing = testkit::scratch().join(unique("nothing"));
    for (line, expected) in [(HANGS, "gave nothing within 15s"), (PROGRAM, "exit status: 3")] {
        let operator = rig.spawn((&lease, &kubeconfig(&front, line, &nothing)), &[], &[]);
        let (well, log) = operator.end(PATIENCE).await.unwrap();
        assert!(!well && log.contains(expected) && !log.contains("swordfish"), "{log}");
    }
    assert_eq!(front.seen(|_| true).len(), 0, "nobody asks without a token");
    rig.end().await;
}
