//! Whether every promise of the API was kept: in Postgres, and in exactly one resource a database.

use std::collections::BTreeMap;

use anyhow::Context as _;
use kube::api::{Api, ListParams};
use resources::{QuestDB, RunState};

use super::Oracle;
use crate::load::{Entry, Ledger};
use crate::query;

/// A database as its row has it.
#[derive(Debug)]
struct Row {
    position: (i64, i64),
    hash: String,
    size_gib: i64,
    deleted: bool,
}

impl Oracle<'_> {
    /// Promises of the ledger that were not kept, and what is there without one.
    pub(super) async fn kept(&self, ledger: &Ledger) -> anyhow::Result<Vec<String>> {
        let rows = self.rows().await?;
        let ends = self.ends_of_operations().await?;
        let api: Api<QuestDB> = Api::namespaced(self.client.clone(), self.namespace);
        let resources = api.list(&ListParams::default()).await.context("listing resources")?.items;
        let mut wrong = Vec::new();
        for (id, entry) in &ledger.databases {
            match rows.get(id) {
                Some(row) => wrong.extend(row.broken(entry).map(|what| format!("{id}: {what}"))),
                None => wrong.push(format!("{id}: accepted, and no row is there")),
            }
            let lost = entry.changes.iter().filter(|change| !ends.contains_key(&change.operation));
            wrong.extend(lost.map(|change| format!("{id}: operation {} is lost", change.operation)));
            let bad = entry.changes.iter().filter(|change| {
                ends.get(&change.operation).is_some_and(|end| end != "succeeded" && end != "superseded")
            });
            wrong.extend(bad.map(|change| format!("{id}: operation {} did not succeed", change.operation)));
        }
        for (id, row) in &rows {
            let found = resources.iter().filter(|resource| is_of(resource, id)).collect::<Vec<_>>();
            match found.as_slice() {
                [resource] => wrong.extend(row.differs(resource).map(|what| format!("{id}: {what}"))),
                others => wrong.push(format!("{id} has {} resources", others.len())),
            }
        }
        let orphans = resources.iter().filter(|resource| !rows.keys().any(|id| is_of(resource, id)));
        wrong.extend(
            orphans.map(|resource| format!("a resource without a row: {:?}", resource.metadata.name)),
        );
        Ok(wrong)
    }

    async fn rows(&self) -> anyhow::Result<BTreeMap<String, Row>> {
        let text = query(
            self.database,
            "select id, epoch, seq, content_hash, desired #>> '{storage,size_gib}', deleted_at is not null from databases",
        )
        .await?;
        text.lines().map(|line| row(line).with_context(|| format!("reading {line}"))).collect()
    }

    /// How each operation ended.
    async fn ends_of_operations(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let text = query(self.database, "select id, state from operations").await?;
        let pairs = text.lines().filter_map(|line| line.split_once('|'));
        Ok(pairs.map(|(id, state)| (id.to_owned(), state.to_owned())).collect())
    }
}

fn row(line: &str) -> anyhow::Result<(String, Row)> {
    let fields: Vec<&str> = line.split('|').collect();
    let [id, epoch, seq, hash, size, deleted] = fields.as_slice() else {
        anyhow::bail!("six fields expected")
    };
    let row = Row {
        position: (epoch.parse()?, seq.parse()?),
        hash: (*hash).to_owned(),
        size_gib: size.parse().context("the size")?,
        deleted: *deleted == "t",
    };
    Ok(((*id).to_owned(), row))
}

fn is_of(resource: &QuestDB, id: &str) -> bool {
    resource.spec.instruction.as_ref().is_some_and(|instruction| instruction.database_id == id)
}

impl Row {
    /// How it breaks what was promised.
    fn broken(&self, entry: &Entry) -> Option<String> {
        if self.position < entry.position {
            return Some(format!("accepted at {:?}, and the row is at {:?}", entry.position, self.position));
        }
        let promised = (entry.size_gib, entry.deleted);
        ((self.size_gib, self.deleted) != promised)
            .then(|| format!("promised {promised:?}, and it is {self:?}"))
    }

    /// How its resource differs from it.
    fn differs(&self, resource: &QuestDB) -> Option<String> {
        let instruction = resource.spec.instruction.as_ref()?;
        let deleted = matches!(resource.spec.run_state, RunState::Deleted | RunState::Purged);
        let size = i64::from(resource.spec.storage.size_gib);
        let held = ((instruction.epoch, instruction.seq), instruction.hash.as_str(), size, deleted);
        let wanted = (self.position, self.hash.as_str(), self.size_gib, self.deleted);
        (held != wanted).then(|| format!("the row says {wanted:?}, the resource {held:?}"))
    }
}
