//! Rows of lists that cannot be read: shown as far as they can be, counted each time, and logged once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use store::{Listed, UnreadableRow};
use wire::http::{Unreadable, UnreadableCluster};

use super::Api;

/// Most rows that are remembered; one that is forgotten is logged again.
const MOST: usize = 10_000;

/// Rows that were logged.
#[derive(Debug, Clone, Default)]
pub(super) struct Told(Arc<Mutex<BTreeSet<String>>>);

impl Told {
    /// Whether nobody has told of this one yet.
    fn is_news(&self, id: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST {
            told.clear();
        }
        told.insert(id.to_owned())
    }
}

/// The rows of a table by whether they can be read, each as its readers see it.
pub(super) fn sorted<T, B>(
    api: &Api,
    table: &'static str,
    rows: Vec<Listed<T>>,
    present: impl Fn(T) -> B,
) -> (Vec<B>, Vec<Unreadable>) {
    let (mut bodies, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match row {
            Ok(row) => bodies.push(present(row)),
            Err(row) => {
                api.metrics().unreadable(table);
                let shown = shown(*row);
                if api.0.told.is_news(&shown.id.to_string()) {
                    tracing::warn!(
                        db.id = %shown.database_id,
                        table,
                        row = %shown.id,
                        reason = shown.detail,
                        "a row cannot be read: lists show it as unreadable"
                    );
                }
                unreadable.push(shown);
            }
        }
    }
    (bodies, unreadable)
}

/// Clusters that cannot be read, as readers of the registry see them.
pub(super) fn clusters(api: &Api, rows: Vec<store::UnreadableCluster>) -> Vec<UnreadableCluster> {
    let shown = |row: store::UnreadableCluster| {
        api.metrics().unreadable("clusters");
        let store::UnreadableCluster { id, region, error } = row;
        let detail = detail(error);
        if api.0.told.is_news(&id) {
            tracing::warn!(
                cluster.name = id,
                reason = detail,
                "a cluster cannot be read: nothing is placed there, and it is shown as unreadable"
            );
        }
        UnreadableCluster { id, region, detail }
    };
    rows.into_iter().map(shown).collect()
}

fn detail(error: store::Error) -> String {
    match error {
        store::Error::Corrupt { what, .. } => what,
        other => runtime::telemetry::chain(&other),
    }
}

fn shown(row: UnreadableRow) -> Unreadable {
    let UnreadableRow { id, database, name, tenant, position, error } = row;
    let detail = detail(error);
    Unreadable {
        id,
        database_id: database.uuid(),
        name,
        tenant,
        epoch: position.epoch,
        seq: position.seq,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_news_once() {
        let told = Told::default();
        let news = |number: usize| told.is_news(&number.to_string());
        assert_eq!([news(1), news(2), news(1)], [true, true, false]);
        for number in 2..=MOST {
            news(number);
        }
        assert!(news(1), "what is remembered is bounded");
    }
}
