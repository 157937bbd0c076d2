//! Things in EC2 that somebody else changes again and again, and that are put right on all the same, each as a whole and at a bounded
//! rate: neither who comes into a machine nor what something is found by can be left to the other, and all databases share what the
//! account may write.

use std::time::Instant;

use super::{Contention, Object, SHOWN, of, told_of};
use crate::apply::Pass;
use crate::error::Error;

/// Fields of one thing in EC2 that are put right at once; each thing has its own turn.
pub(super) struct Paced {
    pub(super) object: Object,
    /// Under another one all of it counts anew.
    pub(super) intention: String,
    pub(super) fields: Vec<String>,
}

/// Has something put right by `work`; an error tells that it is fought over, if all of it has to wait.
pub(super) async fn unless_fought(
    pass: &Pass<'_>,
    paced: Paced,
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let (contention, kind) = (&pass.context.contention, paced.object.1);
    if let Some(what) = paced.held(contention, Instant::now()) {
        return Err(Error::Contended { what });
    }
    work.await?;
    if paced.put_right(contention, Instant::now()) {
        pass.context.measures.contended(kind);
    }
    Ok(())
}

impl Paced {
    /// Why they are not put right now: all of them are fought over, and their turn has not come.
    pub(super) fn held(&self, contention: &Contention, now: Instant) -> Option<String> {
        let Self { object, intention, fields } = self;
        let all = contention.lock();
        let repairs = all.get(object).filter(|repairs| repairs.intention == *intention)?;
        let waits = repairs.turn(now).is_some() && fields.iter().all(|field| repairs.is_fought(field));
        if waits { told_of(object, repairs) } else { None }
    }

    /// They were put right. Whether one of them turned out to be fought over by that.
    pub(super) fn put_right(self, contention: &Contention, now: Instant) -> bool {
        let Self { object, intention, fields } = self;
        let mut all = contention.recent(now);
        let known = all.get(&object).filter(|repairs| repairs.intention == intention);
        if known.is_some_and(|repairs| now.duration_since(repairs.last) < SHOWN) {
            return false;
        }
        of(&mut all, object, &intention, now).count(fields.into_iter(), now)
    }
}
