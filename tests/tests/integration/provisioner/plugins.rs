//! Credentials by way of a program that a kubeconfig names: it fails, its tokens run out, and nobody starts anything anew.

use std::process::Command;
use std::sync::{Arc, Mutex};

use domain::ClusterState;
use testkit::eventually;
use wire::OutcomeKind;

use super::rig::{PATIENCE, Rig, kubeconfig};
use crate::front::{Act, Front, Seen};
use crate::tokens::{HANGS, HANGS_LATER, PROGRAM, hung, living, with_program};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_for_tokens_that_fails_parks_until_it_works_again() {
    let rig = Rig::new().await;
    let front = Front::of(testkit::bare_cluster()).await;
    let good = Arc::new(Mutex::new("one"));
    let wanted = Arc::clone(&good);
    front.set(move |seen: &Seen| {
        let wanted = format!("Bearer {}", wanted.lock().unwrap());
        if seen.authorization == wanted { Act::Pass } else { Act::Answer(401, None) }
    });
    let file = rig.credentials.join("token-of-the-program");
    let config = with_program(&kubeconfig(front.url()), &["-c", PROGRAM, &file.display().to_string()]);
    rig.write_credentials("bare.kubeconfig", &config);
    let running = rig.start(&[]);
    let early = rig.instruction(1);
    rig.publish(&early).await;
    let outcome = rig.outcome(&early, OutcomeKind::Parked).await;
    assert_eq!(outcome.code, "credentials", "{outcome:?}");
    assert_eq!(front.applies(), 0, "nobody asks without a token");
    rig.write_credentials("token-of-the-program", "one");
    rig.outcome(&early, OutcomeKind::Applied).await;
    // Another token counts from now on, and the program knows it: it is asked because the server refuses the one before.
    *good.lock().unwrap() = "two";
    rig.write_credentials("token-of-the-program", "two");
    let second = rig.instruction(1);
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Applied).await;
    // It breaks while it is needed.
    std::fs::remove_file(&file).unwrap();
    *good.lock().unwrap() = "three";
    let late = rig.instruction(1);
    rig.publish(&late).await;
    assert_eq!(rig.outcome(&late, OutcomeKind::Parked).await.code, "credentials");
    rig.write_credentials("token-of-the-program", "three");
    rig.outcome(&late, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_for_tokens_that_hangs_holds_up_neither_other_clusters_nor_the_end() {
    let rig = Rig::new().await;
    let server = &testkit::bare_cluster().server;
    rig.write_credentials("bare.kubeconfig", &with_program(&kubeconfig(server), &["-c", HANGS]));
    rig.credentials_at("well", server);
    rig.register_as("well", ClusterState::Active).await;
    // Longer than anything is waited for here.
    let mut process = rig.start_process_failing_at("", &["--call-timeout", "120"]);
    let held = rig.instruction(1);
    let mut well = rig.instruction(1);
    well.cluster = "well".parse().unwrap();
    for instruction in [&held, &well] {
        rig.publish(instruction).await;
    }
    rig.outcome(&well, OutcomeKind::Applied).await;
    assert_eq!(rig.outcome(&held, OutcomeKind::Parked).await.code, "credentials");
    let number = process.id().unwrap().to_string();
    let asked = Command::new("sh").args(["-c", "kill -TERM $0", &number]).status().unwrap();
    assert!(asked.success(), "{asked}");
    let ended = tokio::time::timeout(PATIENCE, process.wait()).await.expect("it ends").unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_for_tokens_that_hangs_later_is_run_once_at_a_time_and_ended() {
    let rig = Rig::new().await;
    let front = Front::of(testkit::bare_cluster()).await;
    front.set(|seen| if seen.authorization == "Bearer one" { Act::Pass } else { Act::Answer(401, None) });
    let file = rig.credentials.join("numbers");
    let config = with_program(&kubeconfig(front.url()), &["-c", HANGS_LATER, &file.display().to_string()]);
    rig.write_credentials("bare.kubeconfig", &config);
    rig.credentials_at("well", &testkit::bare_cluster().server);
    rig.register_as("well", ClusterState::Active).await;
    let running = rig.start(&["--call-timeout", "3"]);
    let early = rig.instruction(1);
    rig.publish(&early).await;
    rig.outcome(&early, OutcomeKind::Applied).await;
    rig.write_credentials("numbers", "");
    // The first of them was given up.
    hung(&file, 2).await;
    let late: Vec<_> = (0..20).map(|_| rig.instruction(1)).collect();
    let mut well = rig.instruction(1);
    well.cluster = "well".parse().unwrap();
    for instruction in late.iter().chain([&well]) {
        rig.publish(instruction).await;
    }
    for instruction in &late {
        let outcome = rig.outcome(instruction, OutcomeKind::Parked).await;
        let reason = outcome.message.contains("gave nothing within 3s");
        assert!(outcome.code == "credentials" && reason, "{outcome:?}");
    }
    rig.outcome(&well, OutcomeKind::Applied).await;
    let numbers = hung(&file, 4).await;
    let ended = async || (living(&numbers) <= 2).then_some(());
    eventually(PATIENCE, "the end of all but one shell and its child", ended).await;
    std::fs::remove_file(&file).unwrap();
    for instruction in &late {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
    eventually(PATIENCE, "the end of all", async || (living(&numbers) == 0).then_some(())).await;
}
