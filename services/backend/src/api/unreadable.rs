//! Rows of lists that cannot be read: shown as far as they can be, counted each time, and logged once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use store::{Listed, UnreadableRow};
use uuid::Uuid;
use wire::http::Unreadable;

use super::Api;

/// Most rows that are remembered; one that is forgotten is logged again.
const MOST: usize = 10_000;

/// Rows that were logged.
#[derive(Debug, Clone, Default)]
pub(super) struct Told(Arc<Mutex<BTreeSet<Uuid>>>);

impl Told {
    /// Whether nobody has told of this one yet.
    fn is_news(&self, id: Uuid) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST {
            told.clear();
        }
        told.insert(id)
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
                if api.0.told.is_news(shown.id) {
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

fn shown(row: UnreadableRow) -> Unreadable {
    let UnreadableRow { id, database, name, tenant, position, error } = row;
    let detail = match error {
        store::Error::Corrupt { what, .. } => what,
        other => runtime::telemetry::chain(&other),
    };
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
        let news = |number| told.is_news(Uuid::from_u128(number));
        assert_eq!([news(1), news(2), news(1)], [true, true, false]);
        for number in 2..=MOST {
            news(number as u128);
        }
        assert!(news(1), "what is remembered is bounded");
    }
}
