//! One pass over one database: observe, validate, plan, apply, report.

use std::time::{Duration, Instant};

use cloud::Protection;
use domain::Violations;
use plan::{Failure, Observed, Part, Plan, Rehearsal, State, Subject, Unseen, Validated, Work};
use resources::{QuestDB, QuestDBStatus};

use crate::apply::{self, Written, kubernetes};
use crate::context::Context;
use crate::error::Error;
use crate::memory::waits;
use crate::slot::Slot;
use crate::turn::Next;
use crate::{identity, observe, report, shown};

/// Between two looks at what is tried again as soon as may be.
const AT_WORK: Duration = waits::FIRST;
/// After something was written: what was written shows soon.
const AFTER_WRITE: Duration = Duration::from_millis(400);
/// Between two looks at a namespace of which not everything can be seen yet.
const UNSEEN: Duration = Duration::from_secs(5);
/// The same when that lasts. Once everything is seen again, a look is asked for.
const UNSEEN_LONG: Duration = Duration::from_secs(20);
/// Between two looks at a disk that EBS copies a last time.
const COPYING: Duration = Duration::from_secs(5);
/// Between two looks at a disk that EC2 optimizes, for up to a day, and at tables that QuestDB has suspended.
const OPTIMIZING: Duration = Duration::from_mins(1);
/// Between two statuses that say no more than how far a new database is.
pub(crate) const PROGRESS: Duration = Duration::from_secs(3);
/// The same while passes still do something, one right after the other: where that led to is said by the first one that only waits.
/// Also while others wait long for their turns: they would wait the longer for each status that nobody needs.
const DOING: Duration = Duration::from_secs(20);
/// For how long the first status of a new database is kept back at most while passes still do something, or others wait long for their
/// turns: its disk is most often there by then, and told together with it.
const BEGINNING: Duration = Duration::from_secs(5);
/// Between two statuses of one that fails again in other words.
const REWORDED: Duration = Duration::from_secs(10);
/// Between two looks at a database of which no picture tells anything new: there is none, or it is older than what is known.
const UNTOLD: Duration = Duration::from_mins(5);
/// Between two looks at a database that nobody is to work on, of which is told what waits.
const SUSPENDED: Duration = Duration::from_mins(5);
/// Reason of the event that tells of a resource that is not seen as it was written.
pub(crate) const MISREAD: &str = "DefinitionMismatch";
/// How a pass is counted of which a part failed and the others went on.
const STEP: &str = "step";
/// Between two looks at what only a person can cure.
const BROKEN: Duration = Duration::from_secs(30);

/// One pass.
pub(crate) async fn pass(resource: &QuestDB, context: &Context) -> Result<Next, Error> {
    if let Some(what) = plan::misread(resource) {
        // Told beside it, because a report is a write to it, too.
        Box::pin(context.events.wrong(resource, MISREAD, what.clone())).await;
        Box::pin(shown::ask(context, resource, |shown| plan::misread(shown).is_none())).await;
        return Err(Error::Definition { what });
    }
    let namespace = resource.metadata.namespace.as_deref();
    let leaves = resource.metadata.deletion_timestamp.is_some();
    let watches = &context.watches;
    if let Some(unseen) = if leaves { watches.unseen_whole(namespace) } else { watches.unseen(namespace) } {
        // A part that is not shown to us would be taken for missing.
        let told = watches.told(namespace, unseen.clone());
        if let Some(status) = told.and_then(|told| plan::unseen(resource, &told, context.clock.now())) {
            let written = report::write(context, resource, status, None).await;
            note("could not say what is not seen", written);
        }
        return Ok(Next::Soon(until_seen(&unseen, runtime::backoff::random_share())));
    }
    let passed = Box::pin(look_and_act(resource, context)).await;
    if let Err(error) = &passed
        && error.is_right_refused()
    {
        let told = plan::denied(resource, &error.stable(), context.clock.now());
        // What broke the pass off is what is to be told of it.
        note("could not say what is denied", report::write(context, resource, told, None).await);
    }
    passed
}

/// When to look again after a write that may never show, because something of the namespace is not seen as it is now: sooner
/// would be to write the same again and again.
fn unshown(share: f64) -> Duration {
    UNSEEN_LONG + (UNSEEN_LONG / 2).mul_f64(share)
}

/// What could not be said changes nothing of what is done next.
fn note(what: &str, written: Result<(), Error>) {
    if let Err(error) = written {
        tracing::debug!(error = runtime::telemetry::chain(&error), "{what}");
    }
}

/// When to look again at what is not seen; `share` of what is left to chance, so that not all look at once.
pub(crate) fn until_seen(unseen: &Unseen, share: f64) -> Duration {
    match unseen {
        Unseen::Yet => UNSEEN + UNSEEN.mul_f64(share),
        Unseen::Broken(_) | Unseen::Refused(_) => unshown(share),
    }
}

/// What is seldom done, and asks much of others, is in a box of its own: what it remembers meanwhile is not to be carried around by
/// every pass.
async fn look_and_act(resource: &QuestDB, context: &Context) -> Result<Next, Error> {
    let suspended = plan::is_suspended(resource);
    if suspended && plan::lost_its_hold(resource) {
        // Nothing else is done meanwhile, but without it a deletion would not wait.
        Box::pin(kubernetes::hold(context, resource, None)).await?;
        return Ok(Next::Change);
    }
    let Some(subject) = Subject::of(resource, &context.settings) else {
        if suspended {
            return suspend(context, resource, None).await;
        }
        return Box::pin(identity::settle(context, resource)).await;
    };
    let named = (&subject, "spec.instruction.databaseId");
    if let Some(doubt) = identity::doubt(context, resource, named).await? {
        // Before anything is looked at: what another's database is like is nobody's business either.
        if suspended {
            return suspend(context, resource, None).await;
        }
        return Box::pin(identity::refuse(context, resource, &doubt)).await;
    }
    let in_force = || context.caches.in_force(&subject);
    let validated = match plan::validate_over(resource, subject.clone(), &context.settings, in_force) {
        Ok(validated) => validated,
        Err(violations) => return Box::pin(refuse(context, resource, &subject, &violations)).await,
    };
    let mut observed = observe::observe(context, resource, &validated).await?;
    let mut plan = plan::plan(resource, &validated, &observed, &context.settings);
    if let Some(found) = observe::protection(context, resource, (&validated, &observed), &plan).await? {
        observed.account.protection = Some(found);
        // One that is on changes nothing of the plan.
        if found != Protection::ON {
            plan = plan::plan(resource, &validated, &observed, &context.settings);
        }
    }
    let rehearsed = plan::rehearse(resource, &observed, &context.settings);
    if suspended {
        return suspend(context, resource, Some((&plan, rehearsed))).await;
    }
    let written = apply::apply(context, resource, &validated, &plan).await;
    let next = next(context, (&validated, &observed), &plan, &written);
    if written.released {
        return Ok(next);
    }
    let (done, now) = ((&plan, &written.applied), context.clock.now());
    let mut status = plan::status(resource, &validated, &observed, done, now);
    rehearsed.tell(&mut status);
    let busy = written.acted() || context.work.was_behind();
    if let Some(later) = keep_back(context, resource, &status, (next, busy)) {
        return Ok(later);
    }
    report::write(context, resource, status, written.resource_version.as_deref()).await?;
    Ok(next)
}

/// Tells what cannot be carried out of a spec, and does nothing else.
async fn refuse(
    context: &Context,
    resource: &QuestDB,
    subject: &Subject,
    violations: &Violations,
) -> Result<Next, Error> {
    let seen = context.caches.children(subject);
    let in_force = || context.caches.in_force(subject);
    let mut status = plan::refused(resource, &seen, violations, context.clock.now());
    plan::rehearse_refused(resource, violations, &context.settings, in_force).tell(&mut status);
    report::write(context, resource, status, None).await?;
    Ok(Next::Rest(slot(context, resource).within(context.resync)))
}

/// The next look, if what is to be said of a database waits until then. Whose it is is remembered as long as nothing was said of it.
fn keep_back(
    context: &Context,
    resource: &QuestDB,
    status: &QuestDBStatus,
    (next, busy): (Next, bool),
) -> Option<Next> {
    let uid = resource.metadata.uid.as_deref().unwrap_or_default();
    let (before, waits) = (resource.status.as_ref(), |spacing| context.memories.report_waits(uid, spacing));
    if before.is_none() {
        context.memories.begins(uid);
    }
    if let Some(later) = said_later((next, busy), (before, status), waits) {
        if before.is_none() {
            context.memories.keeps_back(uid, status.database_id.as_ref());
        }
        return Some(later);
    }
    is_said_in_other_words(next, (before, status), || waits(REWORDED).is_some()).then_some(next)
}

/// Whether a pass that failed has only other words for what was said a moment ago. A status that is written asks for a look at
/// once: what fails in other words each time (a text of a webhook's, say) would be tried again and again without a pause.
fn is_said_in_other_words(
    next: Next,
    (before, status): (Option<&QuestDBStatus>, &QuestDBStatus),
    lately: impl FnOnce() -> bool,
) -> bool {
    let same = || before.is_some_and(|before| plan::is_reworded(before, status));
    matches!(next, Next::Failed { .. } | Next::Overtaken(_)) && lately() && same()
}

/// The next look, if what is to be said of this one can wait until then. `busy` says whether something was done, or is to be done for
/// others first; `waits`, for how long statuses that keep such a distance wait for the next one.
fn said_later(
    (next, busy): (Next, bool),
    (before, status): (Option<&QuestDBStatus>, &QuestDBStatus),
    waits: impl FnOnce(Duration) -> Option<Duration>,
) -> Option<Next> {
    // Who looks again only much later says now what there is to say.
    let (Next::Soon(delay) | Next::Overtaken(delay)) = next else { return None };
    let (soon, spacing) = if busy { (waits::CROWDED, DOING) } else { (PROGRESS, PROGRESS) };
    if delay > soon {
        return None;
    }
    let spacing = match before {
        // Nor is it looked at sooner for what is said already.
        Some(before) => (before != status && plan::can_wait(before, status)).then_some(spacing),
        None => (busy && plan::only_begins(status)).then_some(BEGINNING),
    };
    let left = waits(spacing?)?;
    if matches!(next, Next::Overtaken(_)) {
        return Some(next);
    }
    // Not before what was written shows, or it would be written again.
    Some(Next::Soon(delay.min(left.max(AFTER_WRITE))))
}

/// Says what waits and does nothing; the end of the annotation is seen at once.
async fn suspend(
    context: &Context,
    resource: &QuestDB,
    planned: Option<(&Plan, Rehearsal)>,
) -> Result<Next, Error> {
    let mut status = plan::suspended(resource, planned.as_ref().map(|(plan, _)| *plan), context.clock.now());
    planned.map(|(_, rehearsed)| rehearsed).unwrap_or_default().tell(&mut status);
    report::write(context, resource, status, None).await?;
    Ok(Next::Rest(slot(context, resource).within(SUSPENDED.min(context.resync))))
}

/// The slot of a database now.
fn slot<'a>(context: &Context, resource: &'a QuestDB) -> Slot<'a> {
    Slot::of(resource.metadata.uid.as_deref().unwrap_or_default(), &context.memories)
}

/// When to look again after a pass.
fn next(
    context: &Context,
    (validated, observed): (&Validated, &Observed),
    plan: &Plan,
    written: &Written,
) -> Next {
    let uid = &validated.subject.uid;
    if !written.failed_now.is_empty() {
        // One that may heal by itself is tried as if it were alone.
        let lasting = written.failed_now.iter().all(|failure| failure.lasting);
        let delay = context.memories.failed(uid, lasting);
        // Without a rule of the firewall nobody comes in, and without a tag nothing is found: it is put right as soon as it may be.
        let waits = context.contention.waits(uid, Instant::now());
        let delay = waits.map_or(delay, |waits| delay.min(waits));
        return failed(&written.failed_now, delay, written.category.unwrap_or(STEP));
    }
    if written.released {
        return Next::Change;
    }
    context.memories.agreed(uid, if plan.is_settled() { Vec::new() } else { plan.agreed.clone() });
    let work = plan::work(validated, observed);
    let acted = written.acted();
    if acted || plan.is_settled() {
        context.memories.waits.forget(uid);
    }
    if plan.is_settled() {
        // Nor does any tell that somebody has let the firewall be.
        let fought = !written.applied.contended.is_empty();
        let untold = observed.dns.untold || observed.account.untold || fought;
        let withheld = !observed.secrets.unreadable.is_empty() || !plan.hosts_taken.is_empty();
        let suspended = observed.suspended_tables.as_ref().is_some_and(|tables| !tables.is_empty());
        let lasts = suspended || matches!(work, Work::Optimizing | Work::Untold);
        let doubt = Doubt { withheld, untold, lasts };
        return at_rest(&doubt, context.resync, &Slot::of(uid, &context.memories));
    }
    // A part that rests keeps its own time.
    let rests = |part| written.applied.holds_back(part);
    let waiting = plan.progress.iter().filter_map(|progress| match &progress.state {
        State::Running(text) if !rests(progress.part) => Some((progress.part, text.as_str())),
        _ => None,
    });
    let waiting: Vec<(Part, &str)> = waiting.collect();
    let together = |pause| waits::together(pause, context.memories.led_for());
    let only_for = |part| waiting.iter().all(|(waiting, _)| *waiting == part);
    let rest = || context.memories.rests_for(uid, validated.generation, &observed.memory.resting);
    Next::Soon(match (acted, !waiting.is_empty()) {
        (true, _) if context.watches.unseen_whole(Some(&validated.subject.namespace)).is_some() => {
            unshown(runtime::backoff::random_share())
        }
        (true, _) => AFTER_WRITE,
        (false, true) if only_for(Part::LastCopy) => together(COPYING),
        (false, true) if only_for(Part::Tuning) && is_long(work) => together(OPTIMIZING.min(context.resync)),
        (false, true) => while_waiting(context, validated, &waiting, rest()),
        (false, false) if written.applied.failures.is_empty() => together(BROKEN),
        (false, false) => rest().unwrap_or(BROKEN).clamp(AT_WORK, BROKEN),
    })
}

/// The next look after failures. Nobody has to hear of a pass in which others were only quicker.
fn failed(failures: &[Failure], delay: Duration, category: &'static str) -> Next {
    if failures.iter().all(|failure| failure.overtaken) {
        return Next::Overtaken(delay);
    }
    Next::Failed { delay, lasting: failures.iter().all(|failure| failure.lasting), category }
}

/// Whether what EC2 does with a disk takes long, or is not told to who asks often.
const fn is_long(work: Work) -> bool {
    matches!(work, Work::Holding | Work::GivenUp | Work::Untold)
}

/// When to look again at one that only waits, for these parts. That one of them is done may be told by nothing else; where others wait
/// for their turns meanwhile, it is noticed later. A part that `rests` beside them is tried again in its time.
fn while_waiting(
    context: &Context,
    validated: &Validated,
    parts: &[(Part, &str)],
    rests: Option<Duration>,
) -> Duration {
    let (memories, uid) = (&context.memories, &validated.subject.uid);
    let waited = memories.waits.lasted(uid, validated.generation, parts, Instant::now());
    let pause = waits::pause(waited, context.work.is_behind(), context.resync, memories.led_for());
    rests.map_or(pause, |rests| pause.min(rests)).max(AT_WORK)
}

/// What could not be seen of a database as it should be, and what nobody tells of.
struct Doubt {
    /// A Secret that cannot be read now, or a host that another database has.
    withheld: bool,
    /// What a picture would tell of it that all share.
    untold: bool,
    /// How far EC2 is with its disk, which is as it should be, or what it does with it at all; or until when QuestDB has suspended tables.
    lasts: bool,
}

fn at_rest(doubt: &Doubt, resync: Duration, slot: &Slot<'_>) -> Next {
    match doubt {
        Doubt { withheld: true, .. } => Next::Soon(BROKEN.min(resync)),
        Doubt { lasts: true, .. } => Next::Rest(slot.within(OPTIMIZING.min(resync))),
        Doubt { untold: true, .. } => Next::Rest(slot.within(UNTOLD.min(resync))),
        Doubt { .. } => Next::Rest(slot.within(resync)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn what_could_not_be_seen_of_one_at_rest_is_looked_at_soon() {
        let second = Duration::from_secs(1);
        let slot = Slot { uid: "0b3c3f5e", now: HOUR };
        let check = |[withheld, untold, lasts]: [bool; 3], resync, expected| {
            assert_eq!(at_rest(&Doubt { withheld, untold, lasts }, resync, &slot), expected);
        };
        check([false, false, false], HOUR, Next::Rest(slot.within(HOUR)));
        check([false, true, false], HOUR, Next::Rest(slot.within(UNTOLD)));
        check([true, false, false], HOUR, Next::Soon(BROKEN));
        check([true, true, true], HOUR, Next::Soon(BROKEN));
        check([false, true, false], second, Next::Rest(slot.within(second)));
        check([true, false, false], second, Next::Soon(second));
        check([false, true, true], HOUR, Next::Rest(slot.within(OPTIMIZING)));
        check([false, false, true], second, Next::Rest(slot.within(second)));
    }

    #[test]
    fn what_fails_in_other_words_is_said_after_a_pause_and_all_else_at_once() {
        let failed = Next::Failed { delay: Duration::from_secs(1), lasting: false, category: STEP };
        let said = |state: &str, message: &str| -> QuestDBStatus {
            let step = serde_json::json!({ "name": "config", "state": state, "message": message });
            serde_json::from_value(serde_json::json!({ "steps": [step] })).unwrap()
        };
        let before = said("Failed", "one");
        let check =
            |next: Next, before: Option<&QuestDBStatus>, (state, message): (&str, &str), lately, waits| {
                let found = is_said_in_other_words(next, (before, &said(state, message)), || lately);
                assert_eq!(found, waits, "{next:?} {state} {message} {lately}");
            };
        check(failed, Some(&before), ("Failed", "other"), true, true);
        check(failed, Some(&before), ("Failed", "other"), false, false);
        check(failed, Some(&before), ("Running", "other"), true, false);
        check(failed, None, ("Failed", "other"), true, false);
        check(Next::Soon(AT_WORK), Some(&before), ("Failed", "other"), true, false);
    }

    #[test]
    fn a_pass_has_failed_where_somebody_was_not_only_quicker() {
        let failure = |lasting: bool, overtaken: bool| Failure {
            part: Part::Pod,
            message: String::new(),
            lasting,
            outdated: None,
            overtaken,
        };
        let [quicker, passing, lasting] = [(false, true), (false, false), (true, false)]
            .map(|(lasting, overtaken)| failure(lasting, overtaken));
        let next = |failures: &[&Failure]| {
            let failures: Vec<Failure> = failures.iter().copied().cloned().collect();
            failed(&failures, AFTER_WRITE, STEP)
        };
        let expected = |lasting: bool| Next::Failed { delay: AFTER_WRITE, lasting, category: STEP };
        assert_eq!(next(&[&quicker, &quicker]), Next::Overtaken(AFTER_WRITE));
        assert_eq!(next(&[&quicker, &lasting]), expected(false));
        assert_eq!(next(&[&passing]), expected(false));
        assert_eq!(next(&[&lasting]), expected(true));
    }

    #[test]
    fn how_far_a_new_database_is_waits_for_what_comes_next_and_longer_while_something_is_done() {
        let seconds = Duration::from_secs;
        let status = |text: &str| -> QuestDBStatus { serde_json::from_str(text).unwrap() };
        let before = status(r#"{"phase": "Provisioning"}"#);
        let further = status(r#"{"phase": "Provisioning", "credentialsSecret": "a"}"#);
        let news = status(r#"{"phase": "Provisioning", "version": "9.3.4"}"#);
        let soon = Next::Soon(AFTER_WRITE);
        // So long after the last status.
        let check = |next: Next, acted: bool, after: &QuestDBStatus, since: u64, expected: Option<Next>| {
            let waits =
                |spacing: Duration| spacing.checked_sub(seconds(since)).filter(|left| !left.is_zero());
            let found = said_later((next, acted), (Some(&before), after), waits);
            assert_eq!(found, expected, "{next:?} {acted} {since}");
        };
        check(soon, false, &further, 0, Some(soon));
        check(soon, false, &further, 2, Some(soon));
        check(soon, false, &further, 3, None);
        check(soon, true, &further, 3, Some(soon));
        check(soon, true, &further, 19, Some(soon));
        check(soon, true, &further, 20, None);
        check(Next::Soon(PROGRESS), false, &further, 2, Some(Next::Soon(seconds(1))));
        check(Next::Soon(PROGRESS), false, &further, 0, Some(Next::Soon(PROGRESS)));
        check(soon, true, &news, 0, None);
        check(Next::Soon(PROGRESS), false, &before, 2, None);
        // So long waits whoever only waits while there is much to do for others.
        check(Next::Soon(seconds(4)), true, &further, 0, Some(Next::Soon(seconds(4))));
        check(Next::Soon(seconds(4)), false, &further, 0, None);
        check(Next::Soon(seconds(5)), true, &further, 0, None);
        let overtaken = Next::Overtaken(seconds(1));
        check(overtaken, false, &further, 0, Some(overtaken));
        check(overtaken, false, &news, 0, None);
        check(Next::Failed { delay: AFTER_WRITE, lasting: false, category: STEP }, true, &further, 0, None);
    }

    #[test]
    fn that_a_database_is_being_made_waits_for_its_disk_while_something_is_done() {
        let seconds = Duration::from_secs;
        let soon = Next::Soon(AFTER_WRITE);
        // So long after its first pass.
        let check = |next: Next, acted: bool, status: &str, since: u64, expected: Option<Next>| {
            let status = serde_json::from_str(status).unwrap();
            let waits =
                |spacing: Duration| spacing.checked_sub(seconds(since)).filter(|left| !left.is_zero());
            assert_eq!(
                said_later((next, acted), (None, &status), waits),
                expected,
                "{next:?} {acted} {since}"
            );
        };
        let begins = r#"{"phase": "Provisioning", "databaseId": "a"}"#;
        let disk =
            r#"{"phase": "Provisioning", "volume": {"id": "vol-1", "sizeGib": 1, "state": "creating"}}"#;
        check(soon, true, begins, 0, Some(soon));
        check(soon, true, begins, 4, Some(soon));
        check(Next::Soon(seconds(4)), true, begins, 3, Some(Next::Soon(seconds(2))));
        check(soon, true, begins, 5, None);
        check(soon, false, begins, 0, None);
        check(soon, true, disk, 0, None);
        check(soon, true, r#"{"phase": "Pending"}"#, 0, None);
        check(Next::Failed { delay: AFTER_WRITE, lasting: false, category: STEP }, true, begins, 0, None);
    }

    #[test]
    fn what_is_not_seen_is_looked_at_at_different_times_and_seldom_when_it_lasts() {
        let text = || "why".to_owned();
        for (unseen, least, most) in
            [(Unseen::Yet, 5, 10), (Unseen::Broken(text()), 20, 30), (Unseen::Refused(text()), 20, 30)]
        {
            let at = |share| until_seen(&unseen, share).as_secs();
            assert_eq!((at(0.0), at(1.0)), (least, most), "{unseen:?}");
        }
    }
}
