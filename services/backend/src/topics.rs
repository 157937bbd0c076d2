//! The two topics: made where they are missing, checked where they are there.

use std::time::Duration;

use bus::{Admin, Connection, TopicSettings};
use runtime::{Backoff, CancellationToken, Program};
use tokio::sync::watch;

use crate::args::Kafka;

/// Patience with the brokers.
const LIMIT: Duration = Duration::from_secs(20);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// How to reach Kafka under a name.
pub fn connection(kafka: &Kafka, client: &str) -> Connection {
    let (properties, file) = (kafka.kafka_properties.clone(), kafka.kafka_properties_file.clone());
    Connection { properties, file, ..Connection::new(&kafka.kafka_bootstrap, client) }
}

/// Makes the topics that are missing and checks the partition counts of the others. Gives the names of the new ones.
pub async fn ensure(kafka: &Kafka, replication: i32) -> Result<Vec<String>, bus::Error> {
    let topic = |name: &str| TopicSettings::new(name, kafka.topic_partitions, replication);
    let topics = [topic(&kafka.instructions_topic), topic(&kafka.gossip_topic)];
    Admin::new(&connection(kafka, "slipway-topics"))?.ensure_topics(&topics, LIMIT).await
}

/// Waits until a topic is there with as many partitions as this program is told: with another number, keys would stand in
/// other partitions than everybody expects. `false` when `stop` came first.
pub async fn wait(kafka: &Kafka, topic: &str, stop: &CancellationToken) -> Result<bool, bus::Error> {
    let admin = Admin::new(&connection(kafka, "slipway-topics"))?;
    let mut retry = BACKOFF.start();
    loop {
        let Err(error) = admin.check_partitions(topic, kafka.topic_partitions, LIMIT).await else {
            return Ok(true);
        };
        tracing::warn!(
            reason = runtime::telemetry::chain(&error),
            kafka.topic = topic,
            "waiting for the topic"
        );
        if !retry.wait(stop).await {
            return Ok(false);
        }
    }
}

/// Notes whether a topic has as many partitions as this program is told, by how the question ended. What the brokers do not
/// answer changes nothing.
pub(crate) fn note_count(counted: &watch::Sender<bool>, error: Option<&bus::Error>) {
    let now = match error {
        None => true,
        Some(bus::Error::PartitionCount { .. }) => false,
        Some(_) => return,
    };
    let changed = counted.send_if_modified(|known| std::mem::replace(known, now) != now);
    if let Some(error) = error.filter(|_| changed) {
        tracing::error!(
            reason = runtime::telemetry::chain(error),
            "nothing is published until the topic and all programs count alike"
        );
    } else if changed {
        tracing::info!("the topic has as many partitions as this program is told: publishing goes on");
    }
}

/// Between two questions how long records are kept.
const RETENTION_EVERY: Duration = Duration::from_mins(5);
/// What a tombstone outlives the last record by: brokers look for old files every few minutes.
const MARGIN: Duration = Duration::from_hours(1);

/// How long tombstones have to stay, asked of the brokers now and then: longer than any instruction may still be found on its
/// topic, whoever made that, and no shorter than `configured`. Nothing until they have answered once. It falls only with a
/// restart: files that were filled before somebody made them shorter are still there.
pub fn watch_retention(
    program: &Program,
    kafka: &Kafka,
    configured: Duration,
) -> Result<watch::Receiver<Option<Duration>>, bus::Error> {
    let admin = Admin::new(&connection(kafka, "slipway-retention"))?;
    let (tell, told) = watch::channel(None);
    let component = program.health.readiness.informative("tombstones");
    component.set_failing("not asked yet how long the topic keeps records: no tombstone goes");
    let (topic, stop) = (kafka.instructions_topic.clone(), program.stop());
    program.tasks.spawn("retention", async move {
        let mut retry = BACKOFF.start();
        while let Some(found) = stop.run_until_cancelled(admin.kept_for(&topic, LIMIT)).await {
            let went_on = match found {
                Ok(found) => {
                    tell.send_modify(|known| *known = Some(next(*known, stay(found, configured))));
                    match complaint(&topic, found, configured) {
                        None => component.set_ok(),
                        Some(text) => component.set_failing(text),
                    }
                    retry.reset();
                    runtime::backoff::sleep(RETENTION_EVERY, &stop).await
                }
                Err(error) => {
                    let reason = runtime::telemetry::chain(&error);
                    component.set_failing(unknown(&topic, tell.borrow().is_some(), &reason));
                    retry.wait(&stop).await
                }
            };
            if !went_on {
                return;
            }
        }
    });
    Ok(told)
}

/// What holds from now on. Where records were kept for ever nobody waits for the end of that.
fn next(known: Option<Duration>, found: Duration) -> Duration {
    known.filter(|known| *known != Duration::MAX).map_or(found, |known| known.max(found))
}

fn unknown(topic: &str, known_before: bool, reason: &str) -> String {
    let meanwhile =
        if known_before { "what was known goes on to hold" } else { "until it is, no tombstone goes" };
    format!("how long {topic} keeps records is not known now; {meanwhile}: {reason}")
}

/// How long tombstones stay, by how long the topic keeps records; `None` is for ever.
fn stay(found: Option<Duration>, configured: Duration) -> Duration {
    found.map_or(Duration::MAX, |found| configured.max(found.saturating_add(MARGIN)))
}

/// What somebody should know of that.
fn complaint(topic: &str, found: Option<Duration>, configured: Duration) -> Option<String> {
    let hours = |time: Duration| time.as_secs().div_ceil(3_600);
    match found {
        None => Some(format!(
            "{topic} keeps records for ever, so no tombstone of a purged database ever goes: give the topic cleanup.policy=delete \
             and a retention.ms"
        )),
        Some(found) if stay(Some(found), configured) > configured => Some(format!(
            "{topic} keeps records for up to {} h (retention.ms and segment.ms), so tombstones of purged databases stay {} h and \
             not the {} h of SLIPWAY_TOMBSTONE_RETENTION: set that to as much, also for that long after you make either shorter",
            hours(found),
            hours(stay(Some(found), configured)),
            hours(configured)
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn tombstones_outlive_every_record() {
        assert_eq!(stay(Some(168 * HOUR), 192 * HOUR), 192 * HOUR);
        assert_eq!(stay(Some(191 * HOUR), 192 * HOUR), 192 * HOUR);
        assert_eq!(stay(Some(192 * HOUR), 192 * HOUR), 193 * HOUR);
        assert_eq!(stay(None, 192 * HOUR), Duration::MAX);
        assert_eq!(stay(Some(Duration::MAX), HOUR), Duration::MAX);
    }

    #[test]
    fn a_bound_does_not_fall_while_old_files_may_be_there() {
        assert_eq!(next(None, HOUR), HOUR);
        assert_eq!(next(Some(2 * HOUR), HOUR), 2 * HOUR);
        assert_eq!(next(Some(HOUR), 2 * HOUR), 2 * HOUR);
        assert_eq!(next(Some(Duration::MAX), HOUR), HOUR);
    }

    #[test]
    fn what_is_not_known_is_told_with_what_holds_meanwhile() {
        assert!(unknown("t", false, "denied").ends_with("until it is, no tombstone goes: denied"));
        assert!(unknown("t", true, "denied").ends_with("what was known goes on to hold: denied"));
    }

    #[test]
    fn only_what_differs_from_what_was_asked_for_is_told() {
        assert_eq!(complaint("t", Some(180 * HOUR), 192 * HOUR), None);
        let longer = complaint("t", Some(336 * HOUR), 192 * HOUR).unwrap();
        assert!(
            longer.contains("up to 336 h") && longer.contains("stay 337 h and not the 192 h"),
            "{longer}"
        );
        assert!(complaint("t", None, HOUR).unwrap().contains("for ever"));
    }
}
