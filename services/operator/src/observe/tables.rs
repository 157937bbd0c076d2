//! Which WAL tables QuestDB has suspended, as far as it has said so by now.
//!
//! *Invariant:* no pass waits for that or sends a request for it: what is to be asked is asked beside all passes (`questions`).

use std::time::{Duration, Instant};

use plan::{Goal, Observed, SuspendedTables, Validated};
use resources::QuestDB;

use crate::context::Context;
use crate::database::address;
use crate::memory::tables::pause;
use crate::questions::{OFTEN, Question};

/// What the pod of a database said last; has it asked where that is due.
pub(super) fn suspended(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
) -> Option<SuspendedTables> {
    let (tables, subject) = (&context.memories.tables, &validated.subject);
    let pod = observed.children.pod.as_deref().filter(|_| validated.goal == Goal::Serve);
    let Some((pod, uid)) = pod.and_then(|pod| Some((pod, pod.metadata.uid.as_deref()?))) else {
        tables.forget(&subject.uid);
        return None;
    };
    tables.sees(&subject.uid, uid);
    if plan::pod_serves(pod) && address(pod).is_some() && !plan::is_suspended(resource) {
        let (now, told) = (Instant::now(), plan::tells_of_tables(resource));
        // Of what another process has told it is soon to be known whether it is so still.
        let first = if told { Duration::ZERO } else { pause(OFTEN.min(context.resync)) };
        if tables.is_to_ask(&subject.uid, uid, (now, first))
            && let Ok(place) = context.questions.try_reserve()
        {
            tables.put_off(&subject.uid, uid, now + pause(context.resync));
            place.send(Question { subject: subject.clone(), pod: uid.to_owned(), told });
        }
    }
    tables.known(&subject.uid, uid)
}
