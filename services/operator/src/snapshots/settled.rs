//! Looking at the copies of a snapshot that has come to its end.

use std::time::{Duration, Instant};

use plan::snapshot::{self, Step};
use resources::QuestDBSnapshot;

use super::copies::There;
use super::{AFTER_STEP, Snapshots, act, pace};
use crate::error::Error;
use crate::slot::Slot;
use crate::turn::Next;

impl Snapshots {
    /// When one is looked at again that has come to its end.
    pub(super) fn after_end(&self, resource: &QuestDBSnapshot) -> Next {
        let uid = resource.metadata.uid.as_deref().unwrap_or_default();
        let left = self.memories.until_shown(uid, Instant::now(), self.context.ec2_lag);
        left.filter(|_| self.begun.is_unseen(uid)).map_or(Next::Change, Next::Soon)
    }

    /// Looks once whether a copy that this process had begun is one too many, where another one that leads, or led a moment ago, has seen
    /// its own through. What was said of the snapshot stays said.
    pub(super) async fn look_beside(
        &self,
        resource: &QuestDBSnapshot,
        looked: Instant,
    ) -> Result<Next, Error> {
        let uid = resource.metadata.uid.as_deref().unwrap_or_default();
        if let Some(left) = self.memories.until_shown(uid, looked, self.context.ec2_lag) {
            return Ok(Next::Soon(left));
        }
        let copies = self.copies.of(resource).await?;
        let Some(surplus) = snapshot::surplus(resource, &copies) else {
            self.begun.seen(uid);
            return self.look_after(resource).await;
        };
        act::carry_out(self, resource, &Step::Discard(surplus), None).await?;
        Ok(Next::Soon(AFTER_STEP))
    }

    /// Looks once a round whether a copy that was whole is still there: who destroys one in EC2 tells nobody here.
    pub(super) async fn look_after(&self, resource: &QuestDBSnapshot) -> Result<Next, Error> {
        let Some((copy, since)) = snapshot::whole_copy(resource) else { return Ok(Next::Change) };
        let (round, now) = (self.context.resync, self.context.clock.now());
        let uid = resource.metadata.uid.as_deref().unwrap_or_default();
        let next = Next::Rest(Slot::of(uid, &self.memories).within(round));
        // A list may be as old as half a round, and must not be from before the copy was seen whole.
        let whole_for = since.map(|since| Duration::try_from(now.duration_since(since)).unwrap_or_default());
        if whole_for.is_some_and(|whole_for| whole_for < round) {
            return Ok(next);
        }
        let is_there = match self.copies.has(&copy, round / 2).await {
            There::Known(is_there) => is_there,
            There::Untold => return Ok(next),
            There::UnderWay => return Ok(Next::Soon(pace::after_list())),
        };
        let was_gone = snapshot::is_gone(resource);
        if !is_there && !was_gone && self.may_be_elsewhere().await {
            return Ok(next);
        }
        let status = snapshot::looked_after(resource, is_there, now);
        self.report(resource, &status).await?;
        if !is_there && !was_gone {
            let note = status.message().unwrap_or_default().to_owned();
            self.context.events.wrong(resource, snapshot::COPY_GONE, note).await;
        }
        Ok(next)
    }

    /// Whether what EC2 does not show may be in the account that is not asked.
    async fn may_be_elsewhere(&self) -> bool {
        let found = crate::observe::other_account(&self.context).await;
        let what = found.unwrap_or_else(|error| Some(error.stable()));
        if let Some(what) = &what {
            tracing::warn!(error = what, "no copy is taken for gone");
        }
        what.is_some()
    }
}
