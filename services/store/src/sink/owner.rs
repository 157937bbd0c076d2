//! The databases that a batch is about, as they were minted, and what is believed of them. Beside the two questions pure.

use std::collections::BTreeMap;

use domain::{ClusterId, Position};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::observations::Standing;
use crate::unclaimed::UnclaimedCode;
use crate::{Error, Observation};

/// The question for databases by identity.
macro_rules! owners {
    ($lock:literal) => {
        concat!(
            "select d.id, d.cluster_id, d.epoch, d.seq, d.content_hash, d.provisioned, \
             exists (select from operations o where o.database_id = d.id and o.ended_at is null) as busy \
             from databases d where d.id = any($1) order by d.id",
            $lock
        )
    };
}

/// A database as it was minted.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Owner {
    pub(super) id: Uuid,
    pub(super) cluster_id: String,
    epoch: i64,
    seq: i64,
    content_hash: String,
    /// Whether a volume of it was seen before.
    pub(super) provisioned: bool,
    /// Whether any operation of it had not ended when its row was asked for. One that was minted since then is told of by
    /// nothing in this batch: its instruction was not published yet.
    pub(super) busy: bool,
}

/// What a cluster has of what was minted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ours {
    /// The position that the custom resource holds.
    pub(super) held: Option<Position>,
    /// The position that was carried out in full.
    pub(super) carried_out: Option<Position>,
}

impl Owner {
    /// Its newest position.
    pub(super) const fn minted(&self) -> Position {
        Position { epoch: self.epoch, seq: self.seq }
    }

    /// What a cluster has of what was minted here. What never was says nothing of it: rows were lost, and their positions may
    /// be given again. What is not told is believed to be ours, unless the resource holds what is not.
    pub(super) fn ours(&self, now: &Standing) -> Ours {
        let held = now.held();
        let foreign = self.is_foreign(held, &now.content_hash, now.minted_hash.as_deref());
        let held = (!foreign).then_some(held);
        let carried_out = now.carried_out().filter(|carried| match &now.carried_hash {
            Some(content) => !self.is_foreign(*carried, content, now.minted_carried_hash.as_deref()),
            None => held.is_some(),
        });
        Ours { held, carried_out }
    }

    /// Whether some content at a position was never minted here: the position is a later one, or other content was minted
    /// there. What is not known differs from nothing.
    fn is_foreign(&self, position: Position, content: &str, minted: Option<&str>) -> bool {
        let minted = if position == self.minted() { Some(self.content_hash.as_str()) } else { minted };
        let other = |minted: &str| !content.is_empty() && content != minted;
        position > self.minted() || minted.is_some_and(other)
    }
}

/// Databases as they are now, locked until the transaction ends.
pub(super) async fn lock(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<BTreeMap<Uuid, Owner>, Error> {
    ask(connection, owners!(" for no key update of d"), ids).await
}

/// Databases as they are at this moment, and may not be at the next one.
pub(super) async fn glance(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<BTreeMap<Uuid, Owner>, Error> {
    ask(connection, owners!(""), ids).await
}

async fn ask(
    connection: &mut PgConnection,
    question: &'static str,
    ids: &[Uuid],
) -> Result<BTreeMap<Uuid, Owner>, Error> {
    let rows: Result<Vec<Owner>, _> = sqlx::query_as(question).bind(ids).fetch_all(connection).await;
    Ok(rows.map_err(Error::from_sqlx)?.into_iter().map(|row| (row.id, row)).collect())
}

/// Why a cluster is not believed at all about a database.
pub(super) fn stranger(owner: Option<&Owner>, cluster: &ClusterId) -> Option<UnclaimedCode> {
    let Some(owner) = owner else { return Some(UnclaimedCode::UnknownDatabase) };
    (owner.cluster_id != cluster.as_str()).then_some(UnclaimedCode::OtherCluster)
}

/// Why an observation is not simply believed.
pub(super) fn doubt(owner: Option<&Owner>, seen: &Observation) -> Option<UnclaimedCode> {
    let Some(owner) = owner else { return stranger(None, &seen.cluster) };
    if let Some(code) = stranger(Some(owner), &seen.cluster) {
        return Some(code);
    }
    let minted = owner.minted();
    if seen.position > minted {
        return Some(UnclaimedCode::Ahead);
    }
    let other =
        seen.position == minted && !seen.content_hash.is_empty() && seen.content_hash != owner.content_hash;
    other.then_some(UnclaimedCode::Content)
}

/// Whether an observation changes nothing but what is believed of its database.
pub(super) fn is_plain(owner: Option<&Owner>, seen: &Observation) -> bool {
    let settled = |owner: &Owner| !owner.busy && (owner.provisioned || !seen.volume);
    doubt(owner, seen).is_none() && owner.is_some_and(settled)
}

#[cfg(test)]
mod tests {
    use domain::DatabaseId;
    use jiff::Timestamp;

    use super::*;

    fn owner(cluster: &str, seq: i64, content_hash: &str) -> Owner {
        let (cluster_id, content_hash) = (cluster.to_owned(), content_hash.to_owned());
        Owner { id: Uuid::nil(), cluster_id, epoch: 1, seq, content_hash, provisioned: false, busy: true }
    }

    fn seen(cluster: &str, seq: i64, content_hash: &str) -> Observation {
        Observation {
            database: DatabaseId::new(Uuid::nil()),
            cluster: cluster.parse().unwrap(),
            position: Position { epoch: 1, seq },
            term: 1,
            resource_version: 1,
            present: true,
            content_hash: content_hash.to_owned(),
            phase: String::new(),
            carried_out: None,
            volume: false,
            steps: Vec::new(),
            body: serde_json::Value::Null.into(),
            body_schema: 1,
            said_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// What is held at 1/`held`, and carried out at 1/`carried`, each with its content.
    fn standing((held, content): (i64, &str), (carried, done): (i64, Option<&str>)) -> Standing {
        Standing {
            database_id: Uuid::nil(),
            epoch: 1,
            seq: held,
            carried_epoch: 1,
            carried_seq: carried,
            content_hash: content.to_owned(),
            carried_hash: done.map(str::to_owned),
            // Each content was minted by the name of its position, and nothing is there of the first any more.
            minted_hash: (held > 1).then(|| held.to_string()),
            minted_carried_hash: (carried > 1).then(|| carried.to_string()),
        }
    }

    #[test]
    fn what_was_never_minted_is_not_ours() {
        let table = [
            // held, carried out; what is ours of them
            ((1, "y"), (1, None), (Some(1), Some(1))),
            ((1, "y"), (1, Some("y")), (Some(1), Some(1))),
            ((3, "3"), (3, Some("3")), (Some(3), Some(3))),
            ((3, ""), (3, None), (Some(3), Some(3))),
            ((3, "y"), (3, None), (None, None)),
            ((4, "3"), (4, Some("3")), (None, None)),
            // Rows were lost, and more than one was minted since.
            ((2, "y"), (2, Some("y")), (None, None)),
            ((2, "y"), (2, None), (None, None)),
            ((3, "3"), (2, Some("y")), (Some(3), None)),
            ((3, "3"), (2, Some("2")), (Some(3), Some(2))),
            ((3, "3"), (2, None), (Some(3), Some(2))),
            // What was carried out before them stays so.
            ((4, "y"), (2, Some("2")), (None, Some(2))),
            ((4, "y"), (2, None), (None, None)),
        ];
        for (held, carried, ours) in table {
            let now = standing(held, carried);
            let Ours { held, carried_out } = owner("a", 3, "3").ours(&now);
            assert_eq!((held.map(|at| at.seq), carried_out.map(|at| at.seq)), ours, "{now:?}");
        }
    }

    #[test]
    fn only_what_moves_nothing_else_is_plain() {
        let settled = || Owner { busy: false, ..owner("a", 1, "") };
        let with_volume = || Observation { volume: true, ..seen("a", 1, "") };
        let table = [
            (Some(settled()), seen("a", 1, ""), true),
            (Some(Owner { busy: true, ..settled() }), seen("a", 1, ""), false),
            (Some(settled()), with_volume(), false),
            (Some(Owner { provisioned: true, ..settled() }), with_volume(), true),
            (Some(settled()), seen("b", 1, ""), false),
            (Some(settled()), seen("a", 2, ""), false),
            (None, seen("a", 1, ""), false),
        ];
        for (owner, seen, plain) in table {
            assert_eq!(is_plain(owner.as_ref(), &seen), plain, "{owner:?} {seen:?}");
        }
    }

    #[test]
    fn clusters_are_believed_about_their_own_databases_only() {
        let table = [
            (None, seen("a", 1, ""), Some(UnclaimedCode::UnknownDatabase)),
            (Some(owner("b", 1, "")), seen("a", 1, ""), Some(UnclaimedCode::OtherCluster)),
            (Some(owner("a", 1, "x")), seen("a", 2, "y"), Some(UnclaimedCode::Ahead)),
            (Some(owner("a", 2, "x")), seen("a", 2, "y"), Some(UnclaimedCode::Content)),
            (Some(owner("a", 2, "x")), seen("a", 2, "x"), None),
            (Some(owner("a", 2, "x")), seen("a", 2, ""), None),
            (Some(owner("a", 2, "x")), seen("a", 1, "y"), None),
        ];
        for (owner, seen, expected) in table {
            assert_eq!(doubt(owner.as_ref(), &seen), expected, "{seen:?}");
        }
    }
}
