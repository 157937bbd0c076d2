//! Conditions: each says what is so, since when, and if not, what is waited for and what to do.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use resources::names::reason::NAMESPACE_UNSEEN;
use resources::names::{self, condition};
use resources::{QuestDB, QuestDBStatus};

use super::{Outcome, last_copy, moving, name, reach, references, resizing, upgrade};
use crate::few::few;
use crate::planner::other_than_asked_for;
use crate::{Elsewhere, Goal, Part, State, tables};

/// Status, reason, message.
pub(crate) type Word = (&'static str, String, String);

pub(super) fn set(status: &mut QuestDBStatus, resource: &QuestDB, outcome: &Outcome<'_>, now: Timestamp) {
    let words = [
        (condition::CONFIG_ACCEPTED, Some(accepted(outcome))),
        (condition::READY, Some(ready(outcome))),
        (condition::PROGRESSING, Some(progressing(outcome))),
        (condition::DEGRADED, Some(degraded(status, outcome, now))),
        (condition::PAUSED, Some(paused(outcome))),
        (condition::NODE_HEALTHY, Some(node(outcome))),
        (condition::DNS_READY, Some(name::condition(status, outcome))),
        (condition::VOLUME_RESIZING, resizing::told(status, outcome)),
        (condition::CONFLICT, conflict(status, outcome)),
        (condition::CONTENDED, contended(status, outcome)),
        (condition::ACCESS_DENIED, denied(status, outcome)),
        (condition::RECONCILE_PAUSED, resumed(status)),
        (condition::NAMESPACE_SEEN, seen(status)),
        (condition::UPGRADE_IN_PROGRESS, upgrade::upgrading(status, outcome)),
        (condition::MOVING, moving::moving(status, outcome)),
        (condition::NODE_CORDONED, reach::cordoned(status, resource, outcome)),
        (condition::INTEGRATIONS_READY, reach::integrations(status, outcome)),
        (condition::CREDENTIALS_ACCEPTED, credentials(status, outcome)),
        (condition::REFERENCES_FOUND, references::found(status, outcome)),
        (condition::LAST_COPY, last_copy::copied(status, outcome)),
        (condition::DELETION_HELD, last_copy::held_back(status, outcome)),
    ];
    for (kind, word) in words {
        if let Some(word) = word {
            put(&mut status.conditions, kind, word, (outcome.validated.generation, now));
        }
    }
}

/// The conditions of a resource in a namespace that cannot be seen.
pub(super) fn hide(
    status: &mut QuestDBStatus,
    (reason, what): (&str, &str),
    generation: i64,
    now: Timestamp,
) {
    let text = format!("nothing is decided for this database meanwhile: {what}");
    let at = (generation, now);
    put(&mut status.conditions, condition::NAMESPACE_SEEN, no(reason, &text), at);
    put(&mut status.conditions, condition::DEGRADED, yes(NAMESPACE_UNSEEN, &text), at);
    put(&mut status.conditions, condition::PROGRESSING, no(NAMESPACE_UNSEEN, &text), at);
}

/// The condition of a resource for which something may not be done.
pub(super) fn deny(status: &mut QuestDBStatus, what: &str, generation: i64, now: Timestamp) {
    put(&mut status.conditions, condition::ACCESS_DENIED, yes("Denied", what), (generation, now));
}

/// The end of what was said while the namespace could not be seen.
pub(super) fn show(status: &mut QuestDBStatus, generation: i64, now: Timestamp) {
    // They are said anew by the next report that knows them.
    status.conditions.retain(|found| found.reason != NAMESPACE_UNSEEN);
    if let Some(word) = seen(status) {
        put(&mut status.conditions, condition::NAMESPACE_SEEN, word, (generation, now));
    }
}

fn seen(status: &QuestDBStatus) -> Option<Word> {
    let known = is_known(status, condition::NAMESPACE_SEEN);
    known.then(|| yes("Seen", "everything that belongs to this database can be seen"))
}

/// Reason of the conditions while the spec as a whole is refused.
pub(crate) const INVALID: &str = "Invalid";
/// Reason of condition `ConfigAccepted` while a key of server.conf is left out that QuestDB does not know.
pub(crate) const KEY_UNKNOWN: &str = "KeyUnknown";

/// Reasons for which a database that is not to serve is not ready.
pub(super) const PAUSED: &str = "Paused";
pub(super) const DELETED: &str = "Deleted";

/// The conditions of a wish that cannot be carried out, but for those about the database itself.
pub(super) fn refuse(status: &mut QuestDBStatus, what: &str, generation: i64, now: Timestamp) {
    let text = format!("{what}. Nothing was changed: correct the spec");
    let at = (generation, now);
    put(&mut status.conditions, condition::CONFIG_ACCEPTED, no(INVALID, &text), at);
    put(&mut status.conditions, condition::DEGRADED, yes(INVALID, &text), at);
    put(&mut status.conditions, condition::PROGRESSING, no(INVALID, "the spec cannot be carried out"), at);
}

/// The conditions of a resource that nobody knows the database of.
pub(super) fn contest(status: &mut QuestDBStatus, what: &str, generation: i64, now: Timestamp) {
    let at = (generation, now);
    for kind in [condition::CONFLICT, condition::DEGRADED] {
        put(&mut status.conditions, kind, yes("Identity", what), at);
    }
    for kind in [condition::PROGRESSING, condition::READY] {
        put(&mut status.conditions, kind, no("Identity", "it is not clear which database this is"), at);
    }
}

/// The condition of a resource for which nothing is done.
pub(super) fn suspend(status: &mut QuestDBStatus, what: &str, generation: i64, now: Timestamp) {
    put(&mut status.conditions, condition::RECONCILE_PAUSED, yes("Annotated", what), (generation, now));
}

fn resumed(status: &QuestDBStatus) -> Option<Word> {
    let known = is_known(status, condition::RECONCILE_PAUSED);
    known.then(|| no("Resumed", "the resource is looked after"))
}

pub(crate) fn yes(reason: &str, message: &str) -> Word {
    ("True", reason.to_owned(), message.to_owned())
}

pub(crate) fn no(reason: &str, message: &str) -> Word {
    ("False", reason.to_owned(), message.to_owned())
}

pub(super) fn said<'a>(status: &'a QuestDBStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|found| found.type_ == kind)
}

/// Whether a condition is told already: some are only told once there was something to say.
pub(super) fn is_known(status: &QuestDBStatus, kind: &str) -> bool {
    said(status, kind).is_some()
}

/// What was said last of a condition, where that is so still: it is said of this wish, too.
pub(super) fn as_said(status: &QuestDBStatus, kind: &str) -> Option<Word> {
    let found = said(status, kind)?;
    let word = ["True", "False"].into_iter().find(|word| *word == found.status).unwrap_or("Unknown");
    Some((word, found.reason.clone(), found.message.clone()))
}

pub(crate) fn put(
    conditions: &mut Vec<Condition>,
    kind: &str,
    (status, reason, message): Word,
    (generation, now): (i64, Timestamp),
) {
    let observed_generation = Some(generation);
    let Some(found) = conditions.iter_mut().find(|found| found.type_ == kind) else {
        let (type_, status, last_transition_time) = (kind.to_owned(), status.to_owned(), Time(now));
        conditions.push(Condition {
            type_,
            status,
            reason,
            message,
            observed_generation,
            last_transition_time,
        });
        return;
    };
    // Nearly always it says what it said before, and most of it stays where it is.
    if found.status != status || !moving::goes_on(&found.reason, &reason) {
        found.last_transition_time = Time(now);
        status.clone_into(&mut found.status);
    }
    (found.reason, found.message, found.observed_generation) = (reason, message, observed_generation);
}

fn accepted(outcome: &Outcome<'_>) -> Word {
    match outcome.first_refused() {
        Some((Part::Upgrade, text)) => no("UpgradeRefused", &text),
        Some((Part::Rename, text)) => no("NameTaken", &text),
        Some((Part::Config, text)) => no(KEY_UNKNOWN, &text),
        Some((part, text)) => no(&reason(part), &text),
        None => yes("Valid", &carried_out(outcome)),
    }
}

/// What is said of a spec that is carried out, and of what in it is not as it would be of a new database.
fn carried_out(outcome: &Outcome<'_>) -> String {
    let Outcome { validated, observed, .. } = *outcome;
    let kept = (!validated.kept.is_empty()).then(|| {
        let fields = validated.kept.join(", ");
        format!("these fields stay as they are, and would be refused if they were new: {fields}")
    });
    let mut words = vec!["the spec can be carried out".to_owned()];
    words.extend(kept.into_iter().chain(other_than_asked_for(validated, observed)));
    words.join("; ")
}

fn ready(outcome: &Outcome<'_>) -> Word {
    match outcome.validated.goal {
        Goal::Serve => {}
        Goal::Pause => return no(PAUSED, "the database is paused"),
        Goal::Retire | Goal::Purge => return no(DELETED, "the database is deleted"),
    }
    // A wish that was refused leaves what serves as it is, and so does one that waits.
    let stands = |part| matches!(outcome.plan.state(part), Some(State::Done | State::Refused(_)));
    let serves = outcome.plan.serves || stands(Part::Pod);
    let named = outcome.is_named();
    if serves && stands(Part::Node) && (!named || stands(Part::Dns)) {
        return serving(named);
    }
    if let Some(elsewhere) = outcome.plan.serves_on {
        // Clients come in, whatever is still missing where it goes.
        let at = match elsewhere {
            Elsewhere::Leaving => "on the machine that it is about to leave",
            Elsewhere::Untold => "where it is, and is left alone for now",
        };
        return yes("Serving", &format!("{}, {at}", answers(named)));
    }
    match outcome.first_missing() {
        Some((part, text)) => no(&cause(outcome, part), &format!("{part}: {text}")),
        None => no("Waiting", "nothing is known yet"),
    }
}

/// Of a database that has a name, or that clients come to by its Services alone.
pub(super) fn serving(named: bool) -> Word {
    yes("Serving", answers(named))
}

const fn answers(named: bool) -> &'static str {
    if named { "QuestDB answers its probes and its name" } else { "QuestDB answers its probes" }
}

/// As the phase has it, in a form that can be waited for.
fn paused(outcome: &Outcome<'_>) -> Word {
    match outcome.validated.goal {
        Goal::Pause if outcome.is_settled() => stopped(),
        Goal::Pause => match outcome.first_open() {
            Some((part, text)) => no("Pausing", &format!("{part}: {text}")),
            None => no("Pausing", "steps are being taken"),
        },
        Goal::Serve => no("Running", "the database is to run"),
        Goal::Retire | Goal::Purge => no(DELETED, "the database is deleted"),
    }
}

pub(super) fn stopped() -> Word {
    yes("Stopped", "no machine runs for it; its disk, claim, name and credentials stay")
}

fn progressing(outcome: &Outcome<'_>) -> Word {
    if outcome.is_settled() {
        return no("Settled", "nothing is left to do");
    }
    let broken = outcome.first_broken();
    let going = match broken {
        Some(_) => outcome.first_going_beside(),
        None => outcome.first_going(),
    };
    match (going, broken.or_else(|| outcome.first_refused())) {
        (Some((part, text)), _) => yes(&cause(outcome, part), &format!("{part}: {text}")),
        // Who waits for the end of an edit is not to wait for another one.
        (None, Some((part, text))) => no(&cause(outcome, part), &format!("{part}: {text}")),
        (None, None) => yes("Working", "steps are being taken"),
    }
}

fn degraded(status: &QuestDBStatus, outcome: &Outcome<'_>, now: Timestamp) -> Word {
    let Some((part, text)) = outcome.first_broken().or_else(|| outcome.first_refused()) else {
        return moving::beside(status, outcome, now);
    };
    // That nobody comes in with what the Secret has nothing else says, nor that nobody sees what some tables take.
    let locked_out = outcome.plan.locked_out.as_ref().map(|text| format!("; {text}"));
    let tables = tables::told_beside(status, outcome, now);
    let others = [locked_out, tables].map(Option::unwrap_or_default).concat();
    yes(&cause(outcome, part), &format!("{part}: {text}{others}"))
}

fn conflict(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let found = outcome.plan.progress.iter().find_map(|progress| match &progress.state {
        State::Conflict(text) => Some(yes(&reason(progress.part), text)),
        _ => None,
    });
    let known = is_known(status, condition::CONFLICT);
    found.or_else(|| known.then(|| no("Resolved", "nothing that we need belongs to somebody else")))
}

fn contended(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    if !outcome.applied.contended.is_empty() {
        return Some(yes("TwoWriters", &few(&outcome.applied.contended, "; ")));
    }
    let known = is_known(status, condition::CONTENDED);
    known.then(|| no("Resolved", "nobody else writes fields of ours"))
}

/// What the API server does not let us do, or AWS not look at. Said once there was something to say.
fn denied(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    if !outcome.applied.denied.is_empty() {
        return Some(yes("Denied", &few(&outcome.applied.denied, "; ")));
    }
    let known = is_known(status, condition::ACCESS_DENIED);
    let text = "the API server lets the operator do what it has to do, and AWS lets it look at the database";
    known.then(|| no("Allowed", text))
}

/// What stands against taking over a Secret. Said once there was something to say.
fn credentials(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    if let Some(text) = &outcome.plan.problems {
        return Some(no("Refused", text));
    }
    let known = is_known(status, condition::CREDENTIALS_ACCEPTED);
    let serves = outcome.validated.goal == Goal::Serve;
    (known && serves).then(|| yes("Accepted", "nothing stands against the Secrets that are given"))
}

fn node(outcome: &Outcome<'_>) -> Word {
    let is_judged = outcome.plan.state(Part::Node) != Some(&State::Pending);
    if !is_judged && outcome.plan.serves_on == Some(Elsewhere::Untold) {
        // It serves on one that is ready, whichever that is.
        return yes("NodeReady", "as asked for");
    }
    moving::late(outcome, Part::Node).unwrap_or_else(|| of_part(outcome, Part::Node, "NodeReady"))
}

pub(super) fn of_part(outcome: &Outcome<'_>, part: Part, good: &str) -> Word {
    match outcome.plan.state(part) {
        Some(State::Done) => yes(good, "as asked for"),
        Some(State::Running(text)) => no("Waiting", text),
        Some(State::Broken(text)) => no("Broken", text),
        Some(State::Refused(text)) => yes(good, text),
        Some(State::Conflict(text)) => no("Conflict", text),
        Some(State::Pending) => no("Pending", "something before it is not done"),
        None => no("NotWanted", "not asked for now"),
    }
}

/// The reason of what is said of a part: a failure that others look for has its own, whatever part it is of.
fn cause(outcome: &Outcome<'_>, part: Part) -> String {
    match outcome.applied.failure(part) {
        Some(failure) if failure.outdated.is_some() => names::reason::OLD_DEFINITION.to_owned(),
        _ => reason(part),
    }
}

/// A part's name as a reason: `security-group` becomes `SecurityGroup`.
pub(super) fn reason(part: Part) -> String {
    part.as_str().split('-').fold(String::new(), |text, word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        text + &first.into_iter().chain(letters).collect::<String>()
    })
}
