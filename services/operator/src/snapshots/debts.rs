//! Databases that are let go although the rest of a pass does not, or may not, see to it.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::snapshot::{self, Checkpoint, Debt, Step};
use resources::QuestDBSnapshot;

use super::ground::{self, Look};
use super::{AFTER_STEP, Snapshots, act, pace};
use crate::error::Error;
use crate::turn::Next;

impl Snapshots {
    /// Releases a checkpoint that this process has made, where another one that leads, or led a moment ago, has struck the debt; when to
    /// look again, or nothing once it holds the database no more.
    pub(super) async fn take_back(
        &self,
        resource: &QuestDBSnapshot,
        made: Timestamp,
    ) -> Result<Option<Duration>, Error> {
        let look = ground::look(self, resource, true).await?;
        match snapshot::debt_struck(&look.ground, made) {
            Debt::Due => {
                let note = "the checkpoint that was made for it is released: nothing says any more that its release is owed";
                self.release(resource, &look, note).await?;
                Ok(Some(AFTER_STEP))
            }
            Debt::Unclear(why) => {
                self.waits_to_release(resource, &why).await;
                Ok(Some(pace::until_clear(resource, self.context.clock.now())))
            }
            Debt::Void | Debt::Early => {
                self.checkpoints.forget(resource.metadata.uid.as_deref().unwrap_or_default());
                Ok(None)
            }
        }
    }

    /// Lets the database go that is held for one which cannot be read in whole, once that is overdue. `what` says why nothing else is
    /// done for it: it is not written to, so its debt stays written down.
    pub(super) async fn let_go(&self, resource: &QuestDBSnapshot, what: String) -> Result<Next, Error> {
        let uid = resource.metadata.uid.as_deref().unwrap_or_default();
        let looked = Instant::now();
        // Once it was seen that nothing holds the database under this debt, nothing comes to hold it.
        let is_free = self.checkpoints.known(uid, looked).checkpoint == Checkpoint::Unmade;
        let now = self.context.clock.now();
        if is_free || !snapshot::is_overdue(resource, now) {
            return Err(Error::Definition { what });
        }
        let look = ground::look(self, resource, snapshot::owes(resource)).await?;
        self.heard(uid, &look.ground);
        match snapshot::debt(resource, &look.ground, self.checkpoints.known(uid, looked), now) {
            Debt::Due => {
                let note =
                    "its time is over: the checkpoint under which its database may be held is released";
                self.release(resource, &look, note).await?;
                Ok(Next::Soon(AFTER_STEP))
            }
            Debt::Void => {
                self.checkpoints.unmade(uid);
                Err(Error::Definition { what })
            }
            Debt::Early => Err(Error::Definition { what }),
            Debt::Unclear(why) => {
                let note = self.waits_to_release(resource, &why).await;
                Err(Error::Definition { what: format!("{what}; {note}") })
            }
        }
    }

    /// Releases the checkpoint that may hold the database, and says on the object why.
    async fn release(&self, resource: &QuestDBSnapshot, look: &Look, note: &str) -> Result<(), Error> {
        act::carry_out(self, resource, &Step::Release, look.door.as_ref()).await?;
        self.context.events.done(resource, "Released", note.to_owned()).await;
        Ok(())
    }

    /// Says on the object that nobody knows whether the database is held, and `why`; what it says.
    async fn waits_to_release(&self, resource: &QuestDBSnapshot, why: &str) -> String {
        let note = format!("the database may still be held, and is let go once it answers: {why}");
        self.context.events.wrong(resource, "ReleaseOwed", note.clone()).await;
        note
    }
}
