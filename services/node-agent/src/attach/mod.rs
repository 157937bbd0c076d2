//! `VolumeAttachments` of EBS become attachments of EC2, as the external attacher and the EBS driver do together.
//!
//! *Invariant:* the finalizer and the instance's id are on the object before `AttachVolume` is called, so that whatever
//! was attached can be detached when the Node is long gone; the finalizer goes only when EC2 says the volume is not
//! attached there.

mod decide;
mod work;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::VolumeAttachment;
use runtime::Backoff;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use decide::{Need, device, need};
pub use work::{Error, Progress};

use crate::context::Context;

/// Attachments worked on at once.
const CONCURRENCY: usize = 16;
/// Longest time between two looks at all attachments.
const PERIOD: Duration = Duration::from_secs(5);
/// Time between two looks at an attachment that EC2 is working on.
const PROGRESS: Duration = Duration::from_millis(500);
/// Pause after an error.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Shared by the tasks of all attachments.
#[derive(Clone)]
pub struct Attacher {
    context: Arc<Context>,
    /// Held from choosing a device name to `AttachVolume`'s answer, so that no name is chosen twice.
    devices: Arc<Mutex<()>>,
    slots: Arc<Semaphore>,
}

impl Attacher {
    /// With the agent's clients.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, devices: Arc::default(), slots: Arc::new(Semaphore::new(CONCURRENCY)) }
    }

    /// Until told to stop. `changed` wakes it when the cache of attachments changes.
    pub async fn run(self, changed: Arc<Notify>, stop: CancellationToken) {
        let mut tasks: JoinSet<String> = JoinSet::new();
        let mut working: HashSet<String> = HashSet::new();
        loop {
            let mut in_need = self.in_need();
            in_need.retain(|uid, _| working.insert(uid.clone()));
            for (uid, attachment) in in_need {
                tasks.spawn(self.clone().work_on(attachment, uid, stop.clone()));
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed.notified() => {}
                () = tokio::time::sleep(PERIOD) => {}
                Some(done) = tasks.join_next() => match done {
                    Ok(uid) => { working.remove(&uid); }
                    Err(error) if error.is_cancelled() => {}
                    // Nobody knows whose task it was: look at all of them again.
                    Err(error) => {
                        tracing::error!(%error, "the task of an attachment failed");
                        working.clear();
                        tasks.abort_all();
                    }
                },
            }
        }
    }

    /// Those that need something, by uid.
    fn in_need(&self) -> HashMap<String, Arc<VolumeAttachment>> {
        let all = self.context.caches.attachments.state().into_iter();
        let in_need = all.filter(|attachment| need(attachment) != Need::Nothing);
        in_need.filter_map(|attachment| Some((attachment.metadata.uid.clone()?, attachment))).collect()
    }

    async fn work_on(
        self,
        attachment: Arc<VolumeAttachment>,
        uid: String,
        stop: CancellationToken,
    ) -> String {
        self.settle(attachment, &stop).await;
        uid
    }

    /// Works on one attachment until it needs nothing more.
    async fn settle(&self, first: Arc<VolumeAttachment>, stop: &CancellationToken) {
        let mut retry = BACKOFF.start();
        let mut attachment = Some(first);
        while let Some(current) = attachment {
            let Ok(slot) = self.slots.acquire().await else { return };
            let name = current.metadata.name.as_deref().unwrap_or_default();
            let outcome = self.step(&current).await;
            drop(slot);
            let wait = match outcome {
                Ok(Progress::Done) => return,
                Ok(Progress::Later) => {
                    retry.reset();
                    PROGRESS
                }
                Ok(Progress::Aside) => PERIOD,
                Err(error) => {
                    tracing::warn!(attachment.name = name, "{}", crate::api::chain(&error));
                    self.report_error(&current, &error).await;
                    // Jitter may choose nearly nothing; an error deserves some pause.
                    retry.next_delay().max(PROGRESS)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            attachment = self.latest(&current);
        }
    }

    /// The object as the cache has it now, unless it is gone or another.
    fn latest(&self, attachment: &VolumeAttachment) -> Option<Arc<VolumeAttachment>> {
        self.context.caches.attachments.find(|other| other.metadata.uid == attachment.metadata.uid)
    }
}
