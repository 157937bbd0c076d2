//! Questions to databases that no pass waits for: which WAL tables QuestDB has suspended. An answer that is news asks for a look; where
//! none comes, all is as it was.
//!
//! *Invariant:* a database at rest costs the API server nothing by them, but for its credentials, once for each pod and each process that
//! leads: whoever opens a pod's door with them keeps them in memory until another pod takes its place.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::runtime::reflector::ObjectRef;
use plan::{Subject, SuspendedTables};
use runtime::CancellationToken;
use tokio::sync::mpsc::Receiver;

use crate::context::Context;
use crate::database::{self, Door};
use crate::error::Error;
use crate::memory::tables::pause;
use crate::queue::Queue;

/// Between two questions while tables are suspended.
pub(crate) const OFTEN: Duration = Duration::from_mins(1);
/// Questions that wait. One for which there is no place is asked at a later look.
pub(crate) const WAITING: usize = 256;
/// Questions under way: who does not answer holds few others up.
const AT_ONCE: usize = 16;

/// Of one pod.
pub(crate) struct Question {
    pub(crate) subject: Subject,
    /// Its uid.
    pub(crate) pod: String,
    pub(crate) address: IpAddr,
    /// Whether the last report tells of tables that are suspended.
    pub(crate) told: bool,
}

/// Asks until stopped.
pub(crate) async fn ask_all(
    context: &Context,
    queue: &Queue,
    questions: Receiver<Question>,
    stop: &CancellationToken,
) {
    let questions = futures::stream::unfold(questions, |mut questions| async move {
        let question = questions.recv().await?;
        Some((question, questions))
    });
    let all = questions.for_each_concurrent(AT_ONCE, |question| ask(context, queue, question));
    tokio::select! {
        () = all => {}
        () = stop.cancelled() => {}
    }
}

async fn ask(context: &Context, queue: &Queue, question: Question) {
    let answer = answer(context, &question).await;
    match answer {
        Ok(Some(tables)) => {
            let Question { subject, pod, told, .. } = question;
            let often = Instant::now() + pause(OFTEN.min(context.resync));
            if context.memories.tables.answered(&subject.uid, &pod, tables, (often, told)) {
                queue.ask(ObjectRef::new(&subject.name).within(&subject.namespace)).await;
            }
        }
        Ok(None) => {}
        Err(error) => {
            let error = runtime::telemetry::chain(&error);
            let Subject { namespace, name, .. } = &question.subject;
            tracing::debug!(error, "it is not known which tables of {namespace}/{name} are suspended");
        }
    }
}

/// What a pod says; none where its Secret has no credentials.
async fn answer(context: &Context, question: &Question) -> Result<Option<SuspendedTables>, Error> {
    let Question { subject, pod, address, .. } = question;
    let known = &context.memories.tables;
    let door = match known.door(&subject.uid, pod).filter(|door| door.address == *address) {
        Some(door) => Some(door),
        None => Door::of(context, subject, *address).await?.map(Arc::new),
    };
    let Some(door) = door else { return Ok(None) };
    let answer = context.databases.suspended(&door).await;
    let is_shut = matches!(answer, Err(database::Error::Denied { .. }));
    known.entered(&subject.uid, pod, (!is_shut).then_some(door));
    answer.map(Some).map_err(Error::database("ask QuestDB which tables are suspended"))
}
