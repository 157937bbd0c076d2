//! What is said of a database afterwards: a status made of what was observed and done, never of what was merely intended.
//!
//! Messages name what is waited for or what to do and never a moving number, so that a status that means the same is the
//! same and is not written again.

pub(crate) mod conditions;
#[cfg(test)]
pub(crate) mod documented;
mod last_copy;
mod moving;
mod name;
mod parts;
mod patience;
mod phase;
mod reach;
mod references;
pub(crate) mod resizing;
mod untouched;
mod upgrade;

use cloud::DnsChange;
use domain::Violations;
use jiff::Timestamp;
use resources::names::{self, condition};
use resources::{InstructionStatus, QuestDB, QuestDBStatus};

pub(crate) use last_copy::are_copies_outdated;
pub(crate) use moving::TABLES_SUSPENDED;
pub use patience::{can_wait, is_reworded, only_begins};

use crate::change;
use crate::planner::{await_key, is_named};
use crate::{Action, Children, Goal, Kind, Led, Observed, Part, Plan, State, Step, Unseen, Validated};

/// What became of a plan.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// Whether anything was written, so that a fresh look is worth its price.
    pub wrote: bool,
    /// The steps that failed, in order; those that need their parts were not tried.
    pub failures: Vec<Failure>,
    /// Fields of ours that somebody else writes again and again, and that were left as they are: which, and who.
    pub contended: Vec<String>,
    /// What the API server does not let us do: which verb, on what, and what to do about it.
    pub denied: Vec<String>,
    /// The DNS change that was made, and which name it leads where.
    pub dns: Option<(DnsChange, Option<Led>)>,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Part of the step.
    pub part: Part,
    /// What went wrong and what to do.
    pub message: String,
    /// Whether only a person or another wish cures it.
    pub lasting: bool,
    /// The kind of object of which the cluster's definition lacks a field that was to be written.
    pub outdated: Option<Kind>,
    /// Whether somebody was only quicker: to people nothing failed, and the next look decides anew.
    pub overtaken: bool,
}

impl Failure {
    /// Whether it is one of a single object of which the others of its part need nothing.
    fn is_apart(&self) -> bool {
        (matches!(self.part, Part::Reach | Part::Tags) || self.part.keeps_machines()) && self.lasting
    }

    /// Whether a step of this part is not to be tried after it.
    fn holds_back(&self, part: Part) -> bool {
        let waits = |open: Part| part.depends_on(open);
        let needs = part.depends_on(self.part) || self.leaves_open().is_some_and(waits);
        needs && !self.is_apart()
    }

    /// What waits for the answer where none has come yet: rules that are to give way to others, and a restart for a key.
    fn leaves_open(&self) -> Option<Part> {
        match self.part {
            Part::Rules | Part::FurtherRules if !self.lasting => Some(Part::SecurityGroup),
            Part::Keys if !self.lasting => Some(Part::Credentials),
            _ => None,
        }
    }
}

impl Applied {
    /// Whether a step of this part is not to be tried after what failed.
    pub fn holds_back(&self, part: Part) -> bool {
        self.failures.iter().any(|failure| failure.holds_back(part))
    }

    /// Whether this step is not to be tried after what failed. Who is allowed is let in, and everybody else kept out, whatever is refused
    /// of the firewall beside that; and a way in that nobody asks for any more goes, whatever becomes of others.
    pub fn skips(&self, action: &Action) -> bool {
        let is_of_rules = matches!(action.step, Step::AuthorizeIngress { .. } | Step::RevokeIngress { .. });
        let goes = matches!(action.step, Step::Delete(_));
        let counts = |failure: &&Failure| {
            let is_beside = is_of_rules && failure.lasting || goes && failure.part == Part::Reach;
            !is_beside
        };
        self.failures.iter().filter(counts).any(|failure| failure.holds_back(action.part))
    }

    /// What failed in a part.
    pub(crate) fn failure(&self, part: Part) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.part == part && !failure.overtaken)
    }

    /// In what of a part somebody was quicker.
    pub(crate) fn overtaken(&self, part: Part) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.part == part && failure.overtaken)
    }
}

/// The status after a pass.
pub fn status(
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
    (plan, applied): (&Plan, &Applied),
    now: Timestamp,
) -> QuestDBStatus {
    let mut status = resource.status.clone().unwrap_or_default();
    let outcome = Outcome { validated, observed, plan, applied };
    status.database_id = Some(validated.subject.database.clone());
    status.observed_generation = Some(validated.generation);
    status.steps = parts::steps(&status.steps, &outcome, now);
    status.pending = change::pending(resource, plan.changes.clone(), now);
    parts::facts(&mut status, resource, &outcome);
    conditions::set(&mut status, resource, &outcome, now);
    status.phase = Some(phase::phase(&status, &outcome));
    if outcome.is_carried_out()
        && let Some(instruction) = &validated.instruction
    {
        status.instruction = Some(InstructionStatus {
            id: instruction.id.clone(),
            epoch: instruction.epoch,
            seq: instruction.seq,
            render: instruction.render,
            hash: instruction.hash.clone(),
        });
    }
    status
}

/// The status of a resource whose identity was found or minted: it says no more than that. Nothing was touched.
pub fn identified(resource: &QuestDB, database: &str) -> QuestDBStatus {
    let status = resource.status.clone().unwrap_or_default();
    let phase = status.phase.or(Some(resources::Phase::Pending));
    QuestDBStatus { database_id: Some(database.to_owned()), phase, ..status }
}

/// The status of a resource in a namespace of which not everything can be seen: that nothing is decided, and why. `why` says
/// what to do where that is known.
pub fn unseen(resource: &QuestDB, why: &Unseen, now: Timestamp) -> Option<QuestDBStatus> {
    let mut status = resource.status.clone().unwrap_or_default();
    let word = match why {
        // It comes by itself: there is nothing to say.
        Unseen::Yet => return None,
        Unseen::Broken(text) => ("Broken", text.as_str()),
        Unseen::Refused(text) => ("Refused", text.as_str()),
    };
    status.phase = status.phase.or(Some(resources::Phase::Pending));
    conditions::hide(&mut status, word, resource.metadata.generation.unwrap_or_default(), now);
    Some(status)
}

/// Whether the last report says how this very spec is carried out. One of a spec that was only seen, because nobody is to work on it
/// or may, has its generation as well, and all else in it is of the spec before: so condition `Ready` counts too.
pub fn is_judged(resource: &QuestDB) -> bool {
    let Some(status) = &resource.status else { return false };
    let ready = status.conditions.iter().find(|found| found.type_ == condition::READY);
    let ready = ready.and_then(|ready| ready.observed_generation);
    let is_this = |generation: Option<i64>| generation == resource.metadata.generation;
    is_this(status.observed_generation) && (ready.is_none() || is_this(ready))
}

/// The status of a resource whose pass broke off because the API server does not let us do something, or AWS not look at it;
/// nothing else is said anew.
pub fn denied(resource: &QuestDB, what: &str, now: Timestamp) -> QuestDBStatus {
    let (mut status, generation) = of_this(resource, now);
    conditions::deny(&mut status, what, generation, now);
    status
}

/// The status of a resource of which it is not clear which database it stands for. Nothing was touched.
pub fn unidentified(resource: &QuestDB, what: &str, now: Timestamp) -> QuestDBStatus {
    let (mut status, generation) = of_this(resource, now);
    status.phase = Some(resources::Phase::Degraded);
    conditions::contest(&mut status, what, generation, now);
    status
}

/// Whether nothing is to be done for a resource, because its annotation says so.
pub fn is_suspended(resource: &QuestDB) -> bool {
    let annotations = resource.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(names::PAUSE_RECONCILE))
        .is_some_and(|word| word == "true")
}

/// The status of a resource for which nothing is done: what waits, and nothing else than before. Without a plan it is not
/// even known yet which database it stands for.
pub fn suspended(resource: &QuestDB, plan: Option<&Plan>, now: Timestamp) -> QuestDBStatus {
    let (mut status, generation) = of_this(resource, now);
    let changes = plan.map_or_else(Vec::new, |plan| plan.changes.clone());
    status.pending = change::pending(resource, changes, now);
    let mut text = format!("nothing is done until the annotation {} is taken off", names::PAUSE_RECONCILE);
    if resource.metadata.deletion_timestamp.is_some() {
        text.push_str("; the deletion waits for that too");
    }
    let waits: Vec<&str> =
        plan.iter().flat_map(|plan| &plan.actions).map(|action| action.reason.as_str()).collect();
    if !waits.is_empty() {
        text = format!("{text}; meanwhile: {}", waits.join("; "));
    }
    conditions::suspend(&mut status, &text, generation, now);
    last_copy::suspend(&mut status, resource, plan, now);
    status
}

/// The status of a wish that cannot be carried out. Nothing was touched; whether the database serves is judged by what is seen
/// of it. What else was said is of the wish before, and keeps its generation.
pub fn refused(
    resource: &QuestDB,
    seen: &Children,
    violations: &Violations,
    now: Timestamp,
) -> QuestDBStatus {
    let (mut status, generation) = of_this(resource, now);
    untouched::judge(&mut status, seen, generation, now);
    conditions::refuse(&mut status, &violations.to_string(), generation, now);
    status.phase = Some(resources::Phase::Degraded);
    status
}

/// What was said before, as a report on the spec of now in a namespace that can be seen, and the generation of that spec.
fn of_this(resource: &QuestDB, now: Timestamp) -> (QuestDBStatus, i64) {
    let mut status = resource.status.clone().unwrap_or_default();
    let generation = resource.metadata.generation.unwrap_or_default();
    status.observed_generation = Some(generation);
    conditions::show(&mut status, generation, now);
    (status, generation)
}

/// Everything that a report rests on.
pub(crate) struct Outcome<'a> {
    pub(crate) validated: &'a Validated,
    pub(crate) observed: &'a Observed,
    pub(crate) plan: &'a Plan,
    pub(crate) applied: &'a Applied,
}

impl Outcome<'_> {
    pub(crate) fn is_settled(&self) -> bool {
        self.plan.is_settled() && self.applied.failures.is_empty()
    }

    /// Whether all that was wished for is done. What somebody made of its machines beside that is others' doing: who made the wish need not
    /// wait for them, nor have it taken back.
    fn is_carried_out(&self) -> bool {
        let is_theirs = Part::keeps_machines;
        let are_done =
            self.plan.progress.iter().all(|done| done.state == State::Done || is_theirs(done.part));
        are_done
            && self.plan.actions.iter().all(|action| is_theirs(action.part))
            && self.applied.failures.iter().all(|failure| is_theirs(failure.part))
    }

    /// Whether a name is to lead to the database.
    pub(crate) fn is_named(&self) -> bool {
        is_named(self.validated, &self.observed.children)
    }

    pub(crate) fn is_done(&self, part: Part) -> bool {
        self.plan.state(part) == Some(&State::Done)
    }

    /// Whether QuestDB answers on its machine: the plan leaves what answers there alone, or its pod is as intended.
    pub(crate) fn serves(&self) -> bool {
        self.plan.serves || self.is_done(Part::Pod)
    }

    /// The first part that is not as intended, with its text.
    pub(crate) fn first_open(&self) -> Option<(Part, String)> {
        self.first_open_of(|_| true)
    }

    /// The same of what goes on by itself, be it that it waits: what is refused waits for another wish.
    pub(crate) fn first_going(&self) -> Option<(Part, String)> {
        self.first_open_of(|part| !self.is_refused(part))
    }

    /// The first part that goes on although others heal by no waiting, with its text: only without what a database serves without does
    /// anything go on for it.
    pub(crate) fn first_going_beside(&self) -> Option<(Part, String)> {
        let broken: Vec<Part> = self.broken().map(|(part, _)| part).collect();
        if self.validated.goal != Goal::Serve || !broken.iter().all(|part| part.is_beside()) {
            return None;
        }
        let failures = &self.applied.failures;
        let waits = |part: Part| {
            broken.iter().any(|broken| part.may_wait_for(*broken)) || self.awaits_denied_key(part)
        };
        let goes_on = |failure: &&Failure| !failure.lasting && !waits(failure.part);
        let tried_again =
            failures.iter().find(goes_on).map(|failure| (failure.part, failure.message.clone()));
        let is_held = |part: Part| {
            let failed = failures.iter().any(|failure| failure.part == part);
            failed || self.applied.holds_back(part) || waits(part)
        };
        let under_way = || {
            let mut progress = self.plan.progress.iter();
            progress.find_map(|progress| match &progress.state {
                State::Running(text) if !is_held(progress.part) => Some((progress.part, text.clone())),
                _ => None,
            })
        };
        tried_again.or_else(under_way)
    }

    /// All parts that do not heal by themselves, each with its text.
    fn broken(&self) -> impl Iterator<Item = (Part, &str)> {
        let lasting = self.applied.failures.iter().filter(|failure| failure.lasting);
        let of_plan = self.plan.progress.iter().filter_map(|progress| match &progress.state {
            State::Broken(text) | State::Conflict(text) => Some((progress.part, text.as_str())),
            State::Done | State::Pending | State::Running(_) | State::Refused(_) => None,
        });
        lasting.map(|failure| (failure.part, failure.message.as_str())).chain(of_plan)
    }

    /// Whether a part waits for a key that may not be handed out. One that is denied is not kept in mind as refused, so that other
    /// credentials wait for it, and so do a restart, a pod that is to be made, and a move before there is one.
    fn awaits_denied_key(&self, part: Part) -> bool {
        let waits = match part {
            Part::Credentials | Part::Pod => true,
            Part::Candidate => self.observed.children.pod.is_none(),
            _ => false,
        };
        let is_lasting = || self.applied.failure(Part::Keys).is_some_and(|failure| failure.lasting);
        waits && !self.applied.denied.is_empty() && is_lasting() && await_key(self.plan)
    }

    /// The same of what stands between the database and its readiness: it serves with a disk that is still too
    /// small, without a monitor, and with what is refused as it was before.
    pub(crate) fn first_missing(&self) -> Option<(Part, String)> {
        let stands = |part| self.is_refused(part) && self.applied.failure(part).is_none();
        self.first_open_of(|part| !part.is_beside() && !stands(part))
    }

    fn is_refused(&self, part: Part) -> bool {
        matches!(self.plan.state(part), Some(State::Refused(_)))
    }

    fn first_open_of(&self, counts: impl Fn(Part) -> bool) -> Option<(Part, String)> {
        if let Some(failure) = self.applied.failures.iter().find(|failure| counts(failure.part)) {
            return Some((failure.part, failure.message.clone()));
        }
        self.plan.progress.iter().filter(|progress| counts(progress.part)).find_map(|progress| {
            let text = match &progress.state {
                State::Done | State::Pending => return None,
                State::Running(text) | State::Broken(text) | State::Conflict(text) | State::Refused(text) => {
                    text
                }
            };
            Some((progress.part, text.clone()))
        })
    }

    /// The first part that does not heal by itself, with its text. What a database serves without may be refused for as long as it is
    /// asked for: it hides nothing that the database lacks.
    pub(crate) fn first_broken(&self) -> Option<(Part, String)> {
        let serves = self.validated.goal == Goal::Serve;
        let is_needed = |part: Part| !(serves && part.is_beside());
        self.first_broken_of(is_needed).or_else(|| self.first_broken_of(|_| true))
    }

    fn first_broken_of(&self, counts: impl Fn(Part) -> bool) -> Option<(Part, String)> {
        self.broken().find(|(part, _)| counts(*part)).map(|(part, text)| (part, text.to_owned()))
    }

    pub(crate) fn first_refused(&self) -> Option<(Part, String)> {
        self.plan.progress.iter().find_map(|progress| match &progress.state {
            State::Refused(text) => Some((progress.part, text.clone())),
            State::Done | State::Pending | State::Running(_) | State::Broken(_) | State::Conflict(_) => None,
        })
    }
}
