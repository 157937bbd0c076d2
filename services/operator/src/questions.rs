//! Questions to databases that no pass waits for: which WAL tables QuestDB has suspended. An answer that is news asks for a look; where
//! none comes, all is as it was.
//!
//! *Invariant:* a database at rest costs the API server nothing by them, but for its credentials, once for each pod and each process that
//! leads: whoever opens a pod's door with them keeps them in memory until another pod takes its place. A Secret that was changed is read
//! once more, when the pod does not accept what it had before. *Invariant:* credentials go to where the pod was seen a moment ago, and to
//! nobody once this process leads no more; while the watch of pods is silent, which one that works seldom is, a look tells where.

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
/// For how long a pod is taken to be where it was seen last. About once a minute an API server tells a watch how far it is, as long as any
/// pod of the cluster changes now and then. Somebody who has the address of a pod sooner than that a look would hardly tell either: for
/// most of a minute a pod is shown as before whose machine has ended.
const LATELY: Duration = Duration::from_secs(75);

/// Of one pod.
pub(crate) struct Question {
    pub(crate) subject: Subject,
    /// Its uid.
    pub(crate) pod: String,
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
    // It ends with leadership, whose loss is no error of the database.
    let Some(answer) = context.leadership.while_leading(answer(context, &question)).await else { return };
    match answer {
        Ok(Some(tables)) => {
            let Question { subject, pod, told } = question;
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

/// What a pod says; none where it is not there any more, or its Secret has no credentials.
async fn answer(context: &Context, question: &Question) -> Result<Option<SuspendedTables>, Error> {
    let Question { subject, pod, .. } = question;
    let known = &context.memories.tables;
    let Some(address) = address(context, question).await? else { return Ok(None) };
    let door = match known.door(&subject.uid, pod).filter(|door| door.address == address) {
        Some(door) => Some(door),
        None => Door::of(context, subject, address).await?.map(Arc::new),
    };
    let Some(door) = door else { return Ok(None) };
    let answer = context.databases.suspended(&door).await;
    let version = context.caches.version_of_credentials(subject);
    let opens = !is_outdated(&answer, &door, version.as_deref());
    known.entered(&subject.uid, pod, opens.then_some(door));
    answer.map(Some).map_err(Error::database("ask QuestDB which tables are suspended"))
}

/// Whether the Secret, which has this version by now, is to be read again: what it had before was refused. What it has still is tried
/// another time, and costs the API server nothing.
fn is_outdated<T>(answer: &Result<T, database::Error>, door: &Door, version: Option<&str>) -> bool {
    matches!(answer, Err(database::Error::Denied { .. })) && door.version.as_deref() != version
}

/// Where a pod is: as it is seen, where its watch was heard a moment ago, and otherwise by a look.
async fn address(
    context: &Context,
    Question { subject, pod, .. }: &Question,
) -> Result<Option<IpAddr>, Error> {
    if context.caches.hears_pods(&subject.namespace, LATELY) {
        return Ok(context.caches.address(subject, pod));
    }
    database::address_now(context, subject, pod).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_that_are_refused_are_read_again_once_the_secret_is_another_one() {
        let door = Door::played("");
        let denied = || Err(database::Error::Denied { address: door.address });
        let refused = || Err(database::Error::Refused { message: "no".to_owned() });
        for (answer, version, expected) in [
            (denied(), Some("1"), false),
            (denied(), Some("2"), true),
            (denied(), None, true),
            // What opens the pod does so whatever the Secret has by now: the pod reads that only when it starts again.
            (Ok(()), Some("2"), false),
            (refused(), Some("2"), false),
        ] {
            assert_eq!(is_outdated(&answer, &door, version), expected, "{answer:?} {version:?}");
        }
    }
}
