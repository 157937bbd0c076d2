//! Late operations by whose deadline not all was heard that was said: they come again in each round of each replica, so which they
//! are is asked for a whole page at once. Nothing is judged here, and nothing locked.

use domain::OperationId;
use store::{Due, Error, Heard, in_time};

use super::{Judge, Round};

impl Judge {
    /// Counts those of a page that cannot be judged yet, and gives the others.
    pub(super) async fn leave_unheard(&self, page: Vec<Due>, round: &mut Round) -> Result<Vec<Due>, Error> {
        let place = |due: &Due| (due.operation, self.hearing.of(due.database).partition);
        let asked: Vec<(OperationId, i32)> = page.iter().map(place).collect();
        let of = (self.hearing.topic.as_str(), self.hearing.partitions);
        let unheard = in_time(self.store.unheard(of, &asked)).await?;
        for heard in unheard.values() {
            self.count_unheard(*heard, round);
        }
        Ok(page.into_iter().filter(|due| !unheard.contains_key(&due.operation)).collect())
    }

    /// Counts one, and notes whether that has lasted for too long.
    pub(super) fn count_unheard(&self, heard: Heard, round: &mut Round) {
        round.unheard += 1;
        round.deaf |= heard.ago.is_none_or(|seconds| seconds > self.silence.as_secs_f64());
    }
}
