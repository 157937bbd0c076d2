//! Table `cluster_observers`: who speaks for a cluster, and under which term. Only the database's clock counts.

use std::time::Duration;

use domain::ClusterId;

use crate::{Error, Store};

/// The right to speak for a cluster; what is said under a higher term outranks what was said under a lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub i64);

/// Terms that may have been lost at most. Whoever can write gossip could else drive a cluster's term to where no next one is.
const MOST_LOST: i64 = 1_000_000;

/// Puts the terms of clusters above what was heard under a higher one: 1 by how much that may be higher.
// The highest of each cluster lies at the end of an index: what was said of all that there ever was is not walked over.
pub const RAISE: &str = "update cluster_observers o set term = heard.term + 1 from (select c.cluster_id, greatest( \
     (select max(s.term) from observations s where s.cluster_id = c.cluster_id), \
     (select max(u.term) from unclaimed u where u.cluster_id = c.cluster_id)) as term from cluster_observers c) heard \
     where heard.cluster_id = o.cluster_id and heard.term > o.term and heard.term - o.term <= $1 \
     returning o.cluster_id";

impl Store {
    /// Takes the cluster if nobody else holds it. Gives the term, or `None` while another holds it. Whoever takes it again has
    /// another term, too: it does not know any more what it saw, and the cluster may have been restored meanwhile. Under the
    /// same term what it sees then would lose by its older resource versions, and what it does not see would not be missed.
    pub async fn observe_cluster(
        &self,
        cluster: &ClusterId,
        holder: &str,
        duration: Duration,
    ) -> Result<Option<Term>, Error> {
        let term: Option<i64> = sqlx::query_scalar(
            "insert into cluster_observers as t (cluster_id, holder, term, expires_at) \
             values ($1, $2, 1, clock_timestamp() + make_interval(secs => $3)) \
             on conflict (cluster_id) do update set holder = excluded.holder, expires_at = excluded.expires_at, \
             term = t.term + 1 \
             where t.holder = excluded.holder or t.expires_at <= clock_timestamp() \
             returning term",
        )
        .bind(cluster.as_str())
        .bind(holder)
        .bind(duration.as_secs_f64())
        .fetch_optional(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(term.map(Term))
    }

    /// Holds the cluster for longer. `false` means it is lost: stop speaking for it.
    pub async fn renew_observer(
        &self,
        cluster: &ClusterId,
        holder: &str,
        term: Term,
        duration: Duration,
    ) -> Result<bool, Error> {
        let done = sqlx::query(
            "update cluster_observers set expires_at = clock_timestamp() + make_interval(secs => $4) \
             where cluster_id = $1 and holder = $2 and term = $3 and expires_at > clock_timestamp()",
        )
        .bind(cluster.as_str())
        .bind(holder)
        .bind(term.0)
        .bind(duration.as_secs_f64())
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }

    /// Begins a new term while holding the cluster, because it was restored from a backup: what its resource versions were is no
    /// measure any more of what they are.
    pub async fn next_term(
        &self,
        cluster: &ClusterId,
        holder: &str,
        term: Term,
    ) -> Result<Option<Term>, Error> {
        let next: Option<i64> = sqlx::query_scalar(
            "update cluster_observers set term = term + 1 \
             where cluster_id = $1 and holder = $2 and term = $3 and expires_at > clock_timestamp() returning term",
        )
        .bind(cluster.as_str())
        .bind(holder)
        .bind(term.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(next.map(Term))
    }

    /// Puts the terms of clusters above what was already heard under a higher one, which is only so when rows were lost: what
    /// observers say from then on would be taken for older than what is believed, and none of it would arrive. Whoever speaks
    /// for such a cluster loses it, and speaks again under the new term. Says of which clusters.
    pub async fn raise_terms(&self) -> Result<Vec<String>, Error> {
        sqlx::query_scalar(RAISE).bind(MOST_LOST).fetch_all(&self.pool).await.map_err(Error::from_sqlx)
    }

    /// Notes that the cluster let itself be listed, how many databases it has, and that under this term all was told that there was so
    /// long ago: it is confirmed up to then, and what changed since may still have to be seen or told. `false` means that the cluster
    /// is lost.
    ///
    /// Only from then on is it believed that what was not told is not there.
    pub async fn note_listed(
        &self,
        cluster: &ClusterId,
        holder: &str,
        term: Term,
        (databases, ago): (u64, Duration),
    ) -> Result<bool, Error> {
        let done = sqlx::query(
            "update cluster_observers set confirmed_at = clock_timestamp() - make_interval(secs => $5), \
             listed_term = term, listed_databases = $4, \
             listed_at = case when listed_term = term then listed_at else clock_timestamp() end \
             where cluster_id = $1 and holder = $2 and term = $3 and expires_at > clock_timestamp()",
        )
        .bind(cluster.as_str())
        .bind(holder)
        .bind(term.0)
        .bind(i64::try_from(databases).unwrap_or(i64::MAX))
        .bind(ago.as_secs_f64())
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }

    /// Gives the cluster back, so that the next observer need not wait.
    pub async fn release_observer(&self, cluster: &ClusterId, holder: &str, term: Term) -> Result<(), Error> {
        sqlx::query(
            "update cluster_observers set expires_at = clock_timestamp() \
             where cluster_id = $1 and holder = $2 and term = $3",
        )
        .bind(cluster.as_str())
        .bind(holder)
        .bind(term.0)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(())
    }
}
