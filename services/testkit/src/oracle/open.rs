//! What is not done yet, place by place.

use std::time::Duration;

use anyhow::Context as _;

use super::Oracle;
use crate::query;

const ASK: Duration = Duration::from_secs(10);

/// What Postgres knows to be open, counted by name.
const OPEN: &str = "
    select 'unpublished databases', count(*) from databases where unpublished
    union all select 'open operations', count(*) from operations where ended_at is null
    union all select 'parked instructions', count(*) from parked_instructions
    union all select 'databases that were not observed as they should be', count(*)
        from databases d left join observations o on o.database_id = d.id
        where (o.epoch, o.seq) is distinct from (d.epoch, d.seq) or o.content_hash is distinct from d.content_hash
        or (o.carried_epoch, o.carried_seq) is distinct from (d.epoch, d.seq)";

/// The same, row by row and all that is known of each: for whoever reads that it did not settle.
const DETAILS: &str = "
    select 'operation', to_jsonb(o) from operations o where ended_at is null
    union all select 'parked', to_jsonb(p) - 'desired' from parked_instructions p
    union all select 'database', (to_jsonb(d) - 'desired') || jsonb_build_object('observation', to_jsonb(o) - 'body')
        from databases d left join observations o on o.database_id = d.id
        where d.unpublished or (o.epoch, o.seq) is distinct from (d.epoch, d.seq)
        or o.content_hash is distinct from d.content_hash
        or (o.carried_epoch, o.carried_seq) is distinct from (d.epoch, d.seq)
    limit 6";

impl Oracle<'_> {
    /// What Postgres knows of whatever is open; and what its witness saw last of each resource in question.
    pub(super) async fn details(&self) -> String {
        let rows = query(self.database, DETAILS).await.unwrap_or_else(|error| format!("{error:#}"));
        let seen = rows.lines().filter_map(|row| {
            let body: serde_json::Value = serde_json::from_str(row.strip_prefix("database|")?).ok()?;
            let id = body["id"].as_str()?;
            Some(format!("the cluster showed of {id}: {:?}", self.watched.states(id).last()))
        });
        let mut told: Vec<String> = std::iter::once(rows.clone()).chain(seen).collect();
        for unread in [self.unread_instructions().await, self.unread_gossip().await] {
            told.extend(unread.unwrap_or_else(|error| vec![format!("{error:#}")]));
        }
        told.join("\n")
    }

    /// What is open: empty once everything has settled.
    pub(super) async fn open(&self) -> anyhow::Result<Vec<String>> {
        let rows = query(self.database, OPEN).await?;
        let counts = rows.lines().filter(|row| !row.ends_with("|0"));
        let mut open: Vec<String> = counts.map(ToOwned::to_owned).collect();
        if open.is_empty() {
            open.extend(self.unread_instructions().await?);
            open.extend(self.unread_gossip().await?);
        }
        Ok(open)
    }

    /// Partitions of instructions whose offset was not committed up to the end.
    async fn unread_instructions(&self) -> anyhow::Result<Vec<String>> {
        let committed =
            bus::groups::committed(self.connection, self.group, self.instructions, self.partitions, ASK)
                .await?;
        let mut behind = Vec::new();
        for (partition, end) in self.ends(self.instructions).await? {
            let at = committed.get(&partition).copied().unwrap_or(0);
            if at < end {
                behind.push(format!("instructions/{partition}: {at} of {end} committed"));
            }
        }
        Ok(behind)
    }

    /// Partitions of gossip that the sink has not taken in up to the end.
    async fn unread_gossip(&self) -> anyhow::Result<Vec<String>> {
        let statement = format!(
            "select kafka_partition, next_offset from consumer_offsets where topic = '{}'",
            self.gossip
        );
        let rows = query(self.database, &statement).await?;
        let mut behind = Vec::new();
        for (partition, end) in self.ends(self.gossip).await? {
            let row = rows.lines().find_map(|row| row.strip_prefix(&format!("{partition}|")));
            let at: i64 = row.map_or(Ok(0), str::parse).context("an offset")?;
            if at < end {
                behind.push(format!("gossip/{partition}: {at} of {end} taken in"));
            }
        }
        Ok(behind)
    }

    async fn ends(&self, topic: &str) -> anyhow::Result<Vec<(i32, i64)>> {
        let admin = bus::Admin::new(self.connection)?;
        let mut ends = Vec::new();
        for partition in 0..self.partitions {
            ends.push((partition, admin.end_offset(topic, partition, ASK).await?));
        }
        Ok(ends)
    }
}
