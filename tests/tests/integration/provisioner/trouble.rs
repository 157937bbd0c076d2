//! Records that cannot be understood, clusters that cannot take them, resources that are wrong.

use domain::{ClusterState, Position};
use testkit::eventually;
use wire::OutcomeKind;

use super::rig::{PATIENCE, Rig, name};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_is_kept_and_the_partition_goes_on() {
    let rig = Rig::new().await;
    let good = rig.instruction(3);
    rig.publish_bytes("no-such-key", vec![0xff, 0xfe, 0x00]).await;
    rig.publish_bytes(&domain::DatabaseId::mint().to_string(), good.encode()).await;
    rig.publish_bytes("", good.encode()).await;
    rig.publish_bytes(&good.key(), vec![0x08, 99, 0x10, 99]).await;
    rig.publish(&good).await;
    let running = rig.start(&[]);
    rig.outcome(&good, OutcomeKind::Applied).await;
    rig.count(
        "select string_agg(code, ',' order by kafka_offset) from dead_letters",
        "undecodable,key_mismatch,null_key,reader_too_old",
    )
    .await;
    rig.count("select encode(payload, 'hex') from dead_letters where code = 'undecodable'", "fffe00").await;
    rig.count(
        "select count(*) from dead_letters where message <> '' and headers::text like '%traceparent%'",
        "4",
    )
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_resource_is_refused_and_an_unknown_cluster_may_be_known_later() {
    let rig = Rig::new().await;
    let mut lost = rig.instruction(1);
    lost.cluster = "nowhere".parse().unwrap();
    let mut invalid = rig.instruction(1);
    invalid.desired.version = "9".repeat(33);
    let running = rig.start(&[]);
    rig.publish(&invalid).await;
    let outcome = rig.outcome(&invalid, OutcomeKind::Refused).await;
    assert_eq!(outcome.code, "invalid");
    assert!(outcome.message.contains("spec.version"), "{}", outcome.message);
    rig.publish(&lost).await;
    let outcome = rig.outcome(&lost, OutcomeKind::Parked).await;
    assert_eq!(outcome.code, "unknown_cluster", "its operation goes on until its deadline");
    rig.count(
        "select string_agg(code, ',' order by kafka_offset) from dead_letters",
        "invalid,unknown_cluster",
    )
    .await;
    let mut cured = invalid.clone();
    cured.position = Position { epoch: 1, seq: 2 };
    cured.desired.version = "9.3.4".to_owned();
    rig.publish(&cured).await;
    rig.outcome(&cured, OutcomeKind::Applied).await;
    running.stop().await;
}

/// The registry was read a moment ago, and then the cluster was registered: the old reading decides nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_registered_a_moment_ago_is_known() {
    let rig = Rig::new().await;
    let mut early = rig.instruction(1);
    early.cluster = "late".parse().unwrap();
    let running = rig.start(&[]);
    rig.publish(&early).await;
    rig.outcome(&early, OutcomeKind::Parked).await;
    rig.credentials_at("late", &testkit::bare_cluster().server);
    rig.register_as("late", ClusterState::Active).await;
    let mut good = rig.instruction(1);
    good.cluster = "late".parse().unwrap();
    rig.publish(&good).await;
    rig.outcome(&good, OutcomeKind::Applied).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_cluster_parks_the_newest_and_drains_it_when_back() {
    let rig = Rig::new().await;
    rig.credentials_of_nobody();
    let running = rig.start(&["--call-timeout", "2"]);
    let first = rig.instruction(1);
    rig.publish(&first).await;
    let outcome = rig.outcome(&first, OutcomeKind::Parked).await;
    assert_eq!(outcome.code, "unreachable");
    let mut second = first.clone();
    second.position = Position { epoch: 1, seq: 2 };
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Parked).await;
    rig.publish(&first).await;
    rig.count(
        "select string_agg(epoch || '/' || seq || ' ' || code, ',') from parked_instructions",
        "1/2 unreachable",
    )
    .await;
    let cluster_is_failing = || {
        let report = running.health.readiness.report();
        report.get("cluster/bare").is_some_and(|cluster| cluster.state != runtime::health::State::Ok)
    };
    eventually(PATIENCE, "a program that is ready beside a cluster that is told as failing", async || {
        (cluster_is_failing() && running.health.readiness.is_ready()).then_some(())
    })
    .await;
    rig.good_credentials();
    rig.outcome(&second, OutcomeKind::Applied).await;
    assert_eq!(rig.resource(&first, 2).await.spec.instruction.map(|stamp| stamp.seq), Some(2));
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_out_of_service_parks_until_it_is_back() {
    let rig = Rig::new().await;
    rig.keep_observers().await;
    rig.register(ClusterState::Disabled).await;
    let running = rig.start(&[]);
    rig.count("select count(*) from cluster_observers", "1").await;
    let term = testkit::query(&rig.database_url, "select term from cluster_observers").await.unwrap();
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    let outcome = rig.outcome(&instruction, OutcomeKind::Parked).await;
    assert_eq!(outcome.code, "disabled");
    assert!(rig.api().get_opt(&name(&instruction)).await.unwrap().is_none());
    rig.register(ClusterState::Draining).await;
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    let seen = rig.observation(&instruction, "what was applied", |seen| seen.present).await;
    assert_eq!(seen.term.to_string(), term, "who observes the cluster goes on, whatever its state");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_hangs_hurts_only_itself() {
    const SICK: usize = 60;
    let rig = Rig::new().await;
    // It takes connections and requests, because the system does, and never says a word. By TLS it would be given up sooner, while
    // it is connected to.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    rig.credentials_at("hung", &format!("http://{}", silent.local_addr().unwrap()));
    rig.register_as("hung", ClusterState::Active).await;
    let sick: Vec<_> = (0..SICK)
        .map(|_| {
            let mut instruction = rig.instruction(1);
            instruction.cluster = "hung".parse().unwrap();
            instruction
        })
        .collect();
    let well: Vec<_> = (0..20).map(|_| rig.instruction(1)).collect();
    let running = rig.start(&["--call-timeout", "150", "--concurrency", "24", "--cluster-concurrency", "16"]);
    // Until its credentials are read the sick would be parked for the lack of them; whoever comes has them.
    let (came, _) = tokio::time::timeout(PATIENCE, silent.accept()).await.expect("somebody comes").unwrap();
    for instruction in sick.iter().chain(&well) {
        rig.publish(instruction).await;
    }
    for instruction in &well {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    let parked = sick.iter().filter(|instruction| !rig.heard.about(instruction.database).is_empty()).count();
    assert_eq!(parked, 0, "the well were done before the sick were given up");
    // Now it hangs up on everybody.
    drop(came);
    tokio::spawn(async move { while silent.accept().await.is_ok() {} });
    for instruction in &sick {
        assert_eq!(rig.outcome(instruction, OutcomeKind::Parked).await.code, "unreachable");
    }
    rig.count("select count(*) from parked_instructions where cluster_id = 'hung'", &SICK.to_string()).await;
    running.stop().await;
}
