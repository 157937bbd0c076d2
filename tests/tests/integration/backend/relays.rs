//! Relays in any number, and what stands in their way: a lock, a damaged row, a record that is too large, a silent broker.

use std::collections::BTreeMap;
use std::time::Duration;

use ::backend::metrics::Metrics;
use ::backend::relay::{Error, Relay, Step};
use ::bus::{Connection, Producer};
use serde_json::json;
use testkit::postgres::Session;
use testkit::{Mode, Proxy, Spawned, eventually, stack};
use wire::Instruction;

use super::road::{LIMIT, Road, id};
use super::{App, PATIENCE, text};
use crate::support::{counted, damage};

/// What waits to be published.
async fn waiting(app: &App) -> i64 {
    app.store.backlog().await.unwrap().databases
}

/// Changes a database to be of this size.
async fn grow(app: &App, database: &str, size: u32) {
    let seq = app.ask(&format!("select epoch || '-' || seq from databases where id = '{database}'")).await;
    let answer = app.patch(database, &format!("\"{seq}\""), &json!({"storage": {"size_gib": size}})).await;
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[tokio::test]
async fn any_number_of_relays_end_with_the_newest_state_of_each() {
    let road = Road::crowded().await;
    let health = runtime::Health::new();
    for number in 0..4 {
        let heartbeat = health.liveness.heartbeat(format!("relay {number}"), LIMIT);
        tokio::spawn(road.relay().run(heartbeat, counted(), road.stop.clone()));
    }
    let mut made = Vec::new();
    for number in 0..5 {
        made.push(text(&road.app.created(&format!("db-{number}")).await["database"]["id"]).to_owned());
    }
    for size in 101..110 {
        for database in &made {
            grow(&road.app, database, size).await;
        }
    }
    eventually(PATIENCE, "all published", async || (waiting(&road.app).await == 0).then_some(())).await;
    let newest = eventually(PATIENCE, "the newest of each in the log", async || {
        let mut newest: BTreeMap<String, i64> = BTreeMap::new();
        for record in road.records(1).await {
            let instruction = Instruction::decode(record.payload.as_deref().unwrap()).unwrap();
            let (seq, size) = (instruction.position.seq, instruction.desired.storage.size_gib);
            assert!(seq == 1 || i64::from(size) == 99 + seq, "the state at {seq} is of size {size}");
            let seq = newest.entry(instruction.database.to_string()).or_default();
            *seq = instruction.position.seq.max(*seq);
        }
        (newest.len() == 5 && newest.values().all(|seq| *seq == 10)).then_some(newest)
    })
    .await;
    assert!(made.iter().all(|database| newest.contains_key(database)));
}

#[tokio::test]
async fn a_lock_on_one_database_holds_up_no_other_and_repeats_nothing() {
    let road = Road::new().await;
    let (held, free) = (road.app.created("held").await, road.app.created("free").await);
    let mut long = Session::open(&road.app.url).await.unwrap();
    // A long transaction with a snapshot of its own and a lock, as of a person or a backup.
    let lock = format!("select 1 from databases where id = '{}' for update", id(&held));
    assert_eq!(long.run(&format!("begin isolation level repeatable read; {lock}")).await.unwrap(), "1");
    let relay = road.relay();
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 2, more: false });
    assert_eq!(waiting(&road.app).await, 1, "the free one is marked, the held one waits");
    for _ in 0..3 {
        relay.step().await.unwrap();
    }
    let later = road.app.created("later").await;
    relay.step().await.unwrap();
    assert_eq!(waiting(&road.app).await, 1);
    assert_eq!(road.records(3).await.len(), 3, "what was sent and could not be marked is not sent again");
    long.run("commit").await.unwrap();
    relay.step().await.unwrap();
    assert_eq!(waiting(&road.app).await, 0);
    assert_eq!(relay.step().await.unwrap(), Step::Idle);
    let keys: Vec<_> =
        road.records(3).await.iter().map(|record| record.key_text().unwrap().to_owned()).collect();
    assert_eq!(keys.len(), 3);
    for made in [&held, &free, &later] {
        assert!(keys.contains(&id(made).to_string()));
    }
}

#[tokio::test]
async fn damaged_rows_are_set_aside_until_the_next_change() {
    let road = Road::new().await;
    let (broken, mangled) = (road.app.created("broken").await, road.app.created("mangled").await);
    let newer = road.app.created("newer").await;
    for (made, damage) in
        [(&broken, "operation_kind = 'nonsense'"), (&mangled, "desired = desired - 'version'")]
    {
        road.app.ask(&format!("update instructions set {damage} where database_id = '{}'", id(made))).await;
    }
    for table in ["instructions", "databases"] {
        let column = if table == "databases" { "id" } else { "database_id" };
        road.app
            .ask(&format!("update {table} set desired_schema = 99 where {column} = '{}'", id(&newer)))
            .await;
    }
    let good = road.app.created("good").await;
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!(road.records(1).await[0].key_text(), Some(id(&good).to_string().as_str()));
    let backlog = road.app.store.backlog().await.unwrap();
    assert_eq!(
        (backlog.databases, backlog.set_aside, backlog.newer),
        (0, 2, 1),
        "none of them shuts the gate"
    );
    assert!(backlog.oldest_seconds.abs() < f64::EPSILON, "nothing waits: {backlog:?}");
    let aside =
        "select code, seq, message like '%nonsense%', message like '%version%' from unpublishable order by 3";
    assert_eq!(road.app.ask(aside).await, "unreadable|1|f|t\nunreadable|1|t|f");
    assert_eq!(road.relay().step().await.unwrap(), Step::Idle, "they are tried no more");
    grow(&road.app, &id(&broken).to_string(), 200).await;
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!(road.records(2).await[1].key_text(), Some(id(&broken).to_string().as_str()));
}

/// What lies apart of its row on the disk is damaged: Postgres fails at whatever asks for it, alone or together with others.
#[tokio::test]
async fn a_state_that_postgres_fails_at_holds_up_no_other_and_is_set_aside_if_that_lasts() {
    let road = Road::new().await;
    let app = &road.app;
    let [first, broken, last] = [app.created("a").await, app.created("b").await, app.created("c").await];
    app.ask(&damage("instructions", ("database_id", "desired"), &[id(&broken)])).await;
    let registry = runtime::Metrics::default();
    let (topic, doorbell, metrics) =
        (road.instructions.clone(), app.doorbell.clone(), Metrics::new(&registry));
    let producer = road.producer_of(&road.connection).await;
    let relay = Relay::new(app.store.clone(), producer, topic, doorbell, metrics).patient(LIMIT);
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 2, more: false });
    let records = road.records(2).await;
    let keys: Vec<_> = records.iter().map(|record| record.key_text().unwrap().to_owned()).collect();
    assert!([&first, &last].iter().all(|made| keys.contains(&id(made).to_string())), "{keys:?}");
    let backlog = app.store.backlog().await.unwrap();
    assert_eq!((backlog.databases, backlog.set_aside), (1, 0), "it may come to an end");
    let told = registry.encode().unwrap();
    assert!(told.contains("rows_unreadable_total{table=\"instructions\"} 1"), "{told}");
    // To whoever does not wait whether it lasts, it has.
    let hasty = road.relay().bearing_damage_for(Duration::ZERO);
    assert_eq!(hasty.step().await.unwrap(), Step::Idle);
    let backlog = app.store.backlog().await.unwrap();
    assert_eq!((backlog.databases, backlog.set_aside), (0, 1), "it shuts no gate");
    let aside = "select database_id, code, message like '%missing chunk%' from unpublishable";
    assert_eq!(app.ask(aside).await, format!("{}|unreadable|t", id(&broken)));
    assert_eq!(road.relay().step().await.unwrap(), Step::Idle, "it is tried no more");
}

/// Copies of the one database there is, as many as are wanted, minted one after the other.
async fn copies(app: &App, count: u32) {
    for text in [
        format!(
            "insert into databases (id, tenant_id, cluster_id, name, desired, desired_schema, content_hash, epoch, seq, minted_at) \
             select gen_random_uuid(), tenant_id, cluster_id, 'copy-' || n, desired, desired_schema, content_hash, 1, 1, \
             minted_at + n * interval '1 millisecond' from databases, generate_series(1, {count}) n"
        ),
        "insert into operations (id, tenant_id, database_id, kind, epoch, seq, state, actor) \
         select id, tenant_id, id, 'create', 1, 1, 'pending', 'test' from databases where name like 'copy-%'"
            .to_owned(),
        "insert into instructions (id, database_id, epoch, seq, operation_id, operation_kind, desired, desired_schema, \
         content_hash, actor, minted_at) select id, id, 1, 1, id, 'create', desired, desired_schema, content_hash, 'test', \
         minted_at from databases where name like 'copy-%'"
            .to_owned(),
    ] {
        app.ask(&text).await;
    }
}

#[tokio::test]
async fn what_is_read_ahead_is_sent_once_and_does_not_hide_what_was_minted_meanwhile() {
    let road = Road::new().await;
    let app = &road.app;
    app.created("trades").await;
    copies(app, 599).await;
    let mut long = Session::open(&app.url).await.unwrap();
    let lock = "begin; select 1 from databases order by minted_at limit 1 for update";
    assert_eq!(long.run(lock).await.unwrap(), "1");
    let relay = road.relay();
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 500, more: true });
    assert_eq!(waiting(app).await, 101, "one is locked");
    // Nobody looked at it while it was locked; it is marked now, and not sent again.
    long.run("rollback").await.unwrap();
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 101, more: false });
    assert_eq!(relay.step().await.unwrap(), Step::Idle);
    assert_eq!(road.records(600).await.len(), 600, "each once");

    app.ask("update databases set published_epoch = 0, published_seq = 0").await;
    let relay = road.relay();
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 500, more: true });
    let last = app.ask("select id from databases where unpublished order by minted_at desc limit 1").await;
    grow(app, &last, 200).await;
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 100, more: false }, "as it was read");
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 1, more: false });
    let records = road.records(1_201).await;
    assert_eq!(records.len(), 1_201);
    let newest = Instruction::decode(
        records.iter().rfind(|one| one.key_text() == Some(&last)).unwrap().payload.as_deref().unwrap(),
    );
    assert_eq!(newest.unwrap().desired.storage.size_gib, 200);
}

#[tokio::test]
async fn a_record_that_is_too_large_is_set_aside_and_blocks_nobody() {
    let road = Road::new().await;
    let small = road.app.created("small").await;
    let config: BTreeMap<String, String> =
        (0..40).map(|number| (format!("a.b{number}"), "x".repeat(100))).collect();
    let wish = json!({"name": "large", "region": "eu-west-1", "config": config});
    let large = road.app.create(&road.app.acme, &wish).await;
    assert_eq!(large.status, 202, "{large:?}");
    let mut connection = road.connection.clone();
    connection.properties.push(("message.max.bytes".to_owned(), "2000".to_owned()));
    let relay = road.relay_with(road.producer_of(&connection).await);
    let mut long = Session::open(&road.app.url).await.unwrap();
    let lock = "begin; select 1 from databases where name = 'large' for update";
    assert_eq!(long.run(lock).await.unwrap(), "1");
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 2, more: false });
    assert_eq!(road.records(1).await[0].key_text(), Some(id(&small).to_string().as_str()));
    assert_eq!(road.app.store.backlog().await.unwrap().set_aside, 0, "whoever holds it is not waited for");
    long.run("rollback").await.unwrap();
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!(
        road.app.ask("select code, message from unpublishable").await.split('|').next(),
        Some("too_large")
    );
    let backlog = road.app.store.backlog().await.unwrap();
    assert_eq!((backlog.databases, backlog.set_aside), (0, 1));
    assert_eq!(relay.step().await.unwrap(), Step::Idle);
    let (large, empty) = (text(&large.body["database"]["id"]), json!({"config": {}}));
    assert_eq!(road.app.patch(large, "\"1-1\"", &empty).await.status, 202);
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!(road.app.store.backlog().await.unwrap().set_aside, 0);
}

#[tokio::test]
async fn what_brokers_find_too_large_goes_alone_and_is_not_waited_for() {
    let road = Road::new().await;
    let app = &road.app;
    let (small, large) = (app.created("small").await, app.created("large").await);
    let actor = "update instructions set actor = repeat('x', 2000000)";
    app.ask(&format!("{actor} where database_id = '{}'", id(&large))).await;
    // The library takes it, and whatever waits in one batch with it.
    let mut connection = road.connection.clone();
    for name in ["message.max.bytes", "batch.size"] {
        connection.properties.push((name.to_owned(), "5000000".to_owned()));
    }
    let relay = road.relay_with(road.producer_of(&connection).await);
    let aside = async || app.store.backlog().await.unwrap().set_aside;
    relay.step().await.unwrap();
    assert_eq!(aside().await, 0, "the others of its batch may be to blame");
    eventually(PATIENCE, "it is set aside", async || {
        // The first word may be that the batch before was refused.
        let _ = relay.step().await;
        (aside().await == 1 && waiting(app).await == 0).then_some(())
    })
    .await;
    assert_eq!(app.ask("select code from unpublishable").await, "too_large");
    let records = road.records(1).await;
    assert!(records.iter().all(|record| record.key_text() == Some(id(&small).to_string().as_str())));
    grow(app, &id(&large).to_string(), 200).await;
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!((aside().await, waiting(app).await), (0, 0), "the next state is smaller");
}

#[tokio::test]
async fn a_broker_that_answers_too_late_leaves_the_row_to_be_sent_again() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    // The library's own broker, whose answers take longer than anybody waits.
    let mut connection = Connection::new("", "test");
    for (name, value) in [
        ("test.mock.num.brokers", "1"),
        ("test.mock.broker.rtt", "4000"),
        ("delivery.timeout.ms", "600"),
        ("request.timeout.ms", "500"),
    ] {
        connection.properties.push((name.to_owned(), value.to_owned()));
    }
    let late = road.relay_with(Producer::new(&connection).unwrap());
    let error = late.step().await.unwrap_err();
    let Error::Publish { failed: 1, count: 1, source } = &error else { panic!("{error:?}") };
    assert!(matches!(source, ::bus::Error::Unknown { .. }), "{source:?}");
    assert_eq!(waiting(&road.app).await, 1, "nobody knows, so it is not marked");
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!(road.records(1).await[0].key_text(), made["database"]["id"].as_str());
}

#[tokio::test]
async fn a_relay_that_slept_marks_nothing_that_was_overtaken() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    let sleeper = road.app.store.unpublished(10).await.unwrap().instructions.remove(0);
    grow(&road.app, &id(&made).to_string(), 200).await;
    // It wakes after its record went out, before anybody published the newer state.
    assert_eq!(road.app.store.mark(&[(sleeper.database, sleeper.position)]).await.unwrap().len(), 0);
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!(road.app.store.mark(&[(sleeper.database, sleeper.position)]).await.unwrap().len(), 0);
    assert_eq!(road.app.ask("select published_seq from databases").await, "2");
}

#[tokio::test]
async fn what_waits_is_shown_and_sent_while_kafka_gives_no_word_on_something() {
    let road = Road::new().await;
    let app = &road.app;
    app.created("first").await;
    let registry = runtime::Metrics::default();
    let mut connection = Connection::new("127.0.0.1:1", "test");
    // However long the test takes, Kafka has not said its last word.
    connection.properties.push(("delivery.timeout.ms".to_owned(), "600000".to_owned()));
    let nowhere = Producer::new(&connection).unwrap();
    let metrics = Metrics::new(&registry);
    let (topic, doorbell) = (road.instructions.clone(), app.doorbell.clone());
    let relay = Relay::new(app.store.clone(), nowhere.clone(), topic, doorbell, metrics.clone());
    let heartbeat = runtime::Health::new().liveness.heartbeat("relay", LIMIT);
    tokio::spawn(relay.run(heartbeat, counted(), road.stop.clone()));
    eventually(PATIENCE, "a record on its way", async || (nowhere.in_flight() == 1).then_some(())).await;
    app.created("second").await;
    eventually(PATIENCE, "the next beside it", async || (nowhere.in_flight() == 2).then_some(())).await;
    eventually(PATIENCE, "both in the metric", async || {
        registry.encode().ok()?.contains("outbox_pending 2").then_some(())
    })
    .await;
    assert_eq!(metrics.publish_failures.get(), 0, "the word on the first is still waited for");
}

/// To the brokers by way of a proxy that holds what is said to them, until it is told to pass it on.
async fn held_up() -> (Proxy, Producer) {
    let proxy = Proxy::to(stack().kafka_bootstrap.parse().unwrap()).await.unwrap();
    proxy.set(Mode::Hold);
    let producer = Producer::new(&Connection::new(proxy.address().to_string(), "test")).unwrap();
    (proxy, producer)
}

#[tokio::test]
async fn what_is_heard_of_late_is_marked_before_anything_is_read() {
    let road = Road::new().await;
    let app = &road.app;
    app.created("first").await;
    let (proxy, producer) = held_up().await;
    let relay = road.usual_relay(producer);
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 0, more: false });
    proxy.set(Mode::Pass);
    let last = eventually(PATIENCE, "it is marked", async || {
        let step = relay.step().await.unwrap();
        (waiting(app).await == 0).then_some(step)
    })
    .await;
    assert_eq!(
        last,
        Step::Idle,
        "it was read once more, and what a portion has no room for would be sent again"
    );
    assert_eq!(app.metrics.published.get(), 1);
}

#[tokio::test]
async fn brokers_that_say_nothing_hold_up_no_round_and_what_they_take_is_sent_once_and_marked() {
    let road = Road::new().await;
    let app = &road.app;
    let first = app.created("first").await;
    let (proxy, producer) = held_up().await;
    let relay = road.usual_relay(producer.clone());
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 0, more: false });
    assert_eq!(relay.step().await.unwrap(), Step::Idle, "what is in doubt is not sent again");
    app.created("second").await;
    // What is minted meanwhile waits for the word on what was sent before it.
    grow(app, &id(&first).to_string(), 200).await;
    assert_eq!(relay.step().await.unwrap(), Step::Published { count: 0, more: false });
    assert_eq!((producer.in_flight(), app.metrics.in_doubt.get()), (2, 2));
    proxy.set(Mode::Pass);
    eventually(PATIENCE, "all marked", async || {
        relay.step().await.unwrap();
        (waiting(app).await == 0).then_some(())
    })
    .await;
    assert_eq!(app.metrics.published.get(), 3, "each state once");
    assert_eq!(app.metrics.in_doubt.get(), 0);
    let marked = "select string_agg(published_seq::text, ' ' order by name) from databases";
    assert_eq!(app.ask(marked).await, "2 1");
}

#[tokio::test]
async fn a_topic_that_gets_more_partitions_gets_nothing_until_everybody_counts_alike() {
    let road = Road::new().await;
    let folder = testkit::scratch();
    let start = |partitions: &str| {
        let arguments = [
            ["serve", "--roles=relay"],
            ["--database-url", &road.app.url],
            ["--kafka-bootstrap", &road.connection.bootstrap],
            ["--instructions-topic", &road.instructions],
            ["--gossip-topic", &road.gossip],
            ["--topic-partitions", partitions],
        ];
        let arguments: Vec<String> = arguments.iter().flatten().map(ToString::to_string).collect();
        Spawned::start("slipway-backend", &arguments, &folder).unwrap()
    };
    let published = async || {
        eventually(PATIENCE, "all published", async || (waiting(&road.app).await == 0).then_some(())).await;
    };
    let relay = start("2");
    relay.ready().await;
    road.app.created("before").await;
    published().await;
    crate::bus::grow(&road.instructions, 3).await;
    let said = "nothing is published until";
    eventually(2 * PATIENCE, "the fault to be noticed", async || relay.log().contains(said).then_some(()))
        .await;
    let told = async || (!relay.is_ready().await).then_some(());
    eventually(PATIENCE, "a relay that is not ready", told).await;
    road.app.created("after").await;
    // Longer than many rounds take.
    eventually(PATIENCE, "what waits to be old", async || {
        (road.app.store.backlog().await.unwrap().oldest_seconds > 3.0).then_some(())
    })
    .await;
    assert_eq!(waiting(&road.app).await, 1);
    relay.terminate(LIMIT).await.unwrap();
    let relay = start("3");
    published().await;
    relay.terminate(LIMIT).await.unwrap();
}

/// A body may have 64 KiB; a state that fills it is published with the broker's and the producer's own limits.
#[tokio::test]
async fn the_largest_state_that_is_accepted_is_published() {
    let road = Road::new().await;
    let length = domain::catalogue::CONFIG_VALUE_LENGTH;
    let of = |keys: usize| {
        let key = |number: usize| format!("a.{number:0>126}");
        let config: BTreeMap<String, String> =
            (0..keys).map(|number| (key(number), "x".repeat(length))).collect();
        json!({"name": "large", "region": "eu-west-1", "config": config})
    };
    let answer = road.app.create(&road.app.acme, &of(57)).await;
    assert!(answer.status.is_client_error(), "{answer:?}");
    let answer = road.app.create(&road.app.acme, &of(56)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 1, more: false });
    let payload = road.records(1).await.remove(0).payload.unwrap();
    assert!(payload.len() > 56 * (length + 128), "{} bytes", payload.len());
    assert_eq!(Instruction::decode(&payload).unwrap().desired.config.len(), 56);
}
