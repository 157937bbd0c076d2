//! Passes over the model as the operator makes them, and what goes wrong in them.

use std::mem;

use cloud::Protection;
use resources::names::condition;
use resources::{QuestDB, QuestDBStatus};

use super::model::{Lost, Refusal, Renamed, World};
use crate::fixture::{settings, validated};
use crate::report::documented;
use crate::{
    Applied, Children, Failure, Observed, Part, Plan, Settings, State, Step, Subject, Validated, is_believed,
    machine_to_check, plan, rests_on_all, status, validate,
};

impl World {
    /// What speaks against the identity, by what there is.
    fn doubt(&self) -> Option<String> {
        let standing = crate::Standing {
            holders: &[],
            persistent_volumes: &self.children.persistent_volumes,
            nodes: &self.children.nodes,
            volumes: &self.volumes,
            instances: &self.instances,
        };
        crate::doubt(&validated(&self.resource).subject, "the instruction", &standing)
    }

    /// Somebody takes the status away. The identity of a resource that people wrote comes back before anything is done; that of
    /// an instruction is not believed until it was checked again.
    pub(super) fn wipe(&mut self) {
        let database_id = self.resource.status.take().and_then(|status| status.database_id);
        let database_id = database_id.filter(|_| self.resource.spec.instruction.is_none());
        self.resource.status =
            database_id.map(|id| QuestDBStatus { database_id: Some(id), ..QuestDBStatus::default() });
        self.touch();
    }
}

/// Passes after which an end must have been reached.
pub(super) const ENOUGH: usize = 80;

/// What goes wrong, at which of all steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    pub(super) at: usize,
    pub(super) lost: Lost,
    /// The process dies with it: nothing is reported.
    pub(super) crash: bool,
}

/// Every trouble that so many steps can meet.
pub(super) fn troubles(steps: usize) -> impl Iterator<Item = Trouble> {
    (0..steps).flat_map(troubles_at)
}

/// Every trouble that one step can meet. To die before a step is to die after the one before it.
pub(super) fn troubles_at(at: usize) -> impl Iterator<Item = Trouble> {
    let kinds = [(Lost::Request, false), (Lost::Request, true), (Lost::Answer, false), (Lost::Answer, true)];
    let differs = move |(lost, crash): &(Lost, bool)| at == 0 || *lost == Lost::Answer || !*crash;
    kinds.into_iter().filter(differs).map(move |(lost, crash)| Trouble { at, lost, crash })
}

/// One pass; the number of steps begun so far goes up.
pub(super) fn pass(world: &mut World, taken: &mut usize, trouble: Option<Trouble>, twice: bool) -> Plan {
    pass_under(&settings(), world, taken, (trouble, twice))
}

/// The same of an operator with other settings.
pub(super) fn pass_under(
    settings: &Settings,
    world: &mut World,
    taken: &mut usize,
    (trouble, twice): (Option<Trouble>, bool),
) -> Plan {
    if world.wiped > 0 {
        world.wiped -= 1;
        world.wipe();
    }
    let (seen, mut observed) = world.see();
    if !is_believed(&seen) {
        assert_eq!(world.doubt(), None, "what was made for it is its own, whatever was lost");
    }
    let validated = validate(&seen, Subject::of(&seen, settings).unwrap(), settings).unwrap();
    let planned = intend(settings, world, (&seen, &validated), &mut observed);
    let mut applied = Applied::default();
    // The version that our own last write gave it, else the one that was seen.
    let mut version = seen.metadata.resource_version.clone();
    for action in &planned.actions {
        if applied.skips(action) {
            continue;
        }
        let fails = trouble.filter(|trouble| trouble.at == *taken);
        *taken += 1;
        let mut done = match fails {
            Some(Trouble { lost: Lost::Request, .. }) => Err("lost"),
            Some(Trouble { lost: Lost::Half, .. }) => world.half_do(&action.step),
            _ => carry_out(world, &action.step, &seen, twice),
        };
        if let Some(trouble) = fails {
            if trouble.crash {
                world.memory = crate::Memory::default();
                return planned;
            }
            done = Err("lost");
        }
        let writes_resource = action.step.writes_resource();
        keep_in_mind(world, action.part, done.as_ref().err());
        match done {
            Ok(renamed) => {
                applied.wrote = true;
                applied.dns = renamed.or(applied.dns);
                if writes_resource {
                    version.clone_from(&world.resource.metadata.resource_version);
                }
            }
            Err(message) => {
                applied.failures.push(failure(action.part, message));
                if writes_resource {
                    break;
                }
            }
        }
    }
    if !world.released {
        let told = status(&seen, &validated, &observed, (&planned, &applied), world.now);
        check_generations(&told);
        documented::check(&told);
        world.report(version.as_ref(), told);
    }
    planned
}

/// The plan of a pass, of which is checked what holds of every plan.
fn intend(
    settings: &Settings,
    world: &World,
    (seen, validated): (&QuestDB, &Validated),
    observed: &mut Observed,
) -> Plan {
    let mut planned = plan(seen, validated, observed, settings);
    if let Some(instance) = machine_to_check(seen, validated, observed, &planned) {
        let found = world.protection(&instance.id);
        observed.account.protection = Some(found);
        let before = mem::replace(&mut planned, plan(seen, validated, observed, settings));
        assert!(found != Protection::ON || before == planned, "who finds it on need not plan again");
    }
    check_secret(&planned);
    check_unlooked(settings, (seen, validated), observed, &planned);
    planned
}

/// What may be unknown, so that what was said of a wish before holds until it is known better.
const MAY_BE_UNKNOWN: [&str; 3] =
    [condition::CREDENTIALS_ACCEPTED, condition::REFERENCES_FOUND, condition::INTEGRATIONS_READY];

/// Whatever is judged is said of the wish that was looked at, or who waits for that would wait for ever.
fn check_generations(told: &QuestDBStatus) {
    for found in told.conditions.iter().filter(|found| !MAY_BE_UNKNOWN.contains(&found.type_.as_str())) {
        assert_eq!(found.observed_generation, told.observed_generation, "{found:?}");
    }
}

/// Nothing is decided or said by what nobody looks at.
fn check_unlooked(
    settings: &Settings,
    (seen, validated): (&QuestDB, &Validated),
    observed: &Observed,
    planned: &Plan,
) {
    if rests_on_all(seen, validated) {
        return;
    }
    let children = Children { config: None, claim: None, ..observed.children.clone() };
    let less = Observed { children, ..observed.clone() };
    assert_eq!(plan(seen, validated, &less, settings), *planned);
    let applied = Applied::default();
    let told = |observed: &Observed| status(seen, validated, observed, (planned, &applied), observed.at);
    assert_eq!(told(&less), told(observed));
}

/// Whatever is written into the own Secret is written over the version that was seen: a second write would be refused.
fn check_secret(planned: &Plan) {
    let writes =
        |step: &&Step| matches!(step, Step::CreateSecret(_) | Step::KeepSecret(_) | Step::SetCredentials(_));
    let steps = planned.actions.iter().map(|action| &action.step);
    assert!(steps.filter(writes).count() < 2, "{:?}", planned.actions);
}

fn carry_out(
    world: &mut World,
    step: &Step,
    seen: &resources::QuestDB,
    twice: bool,
) -> Result<Renamed, Refusal> {
    let first = world.apply(step, seen);
    if !twice {
        return first;
    }
    // The second time it may be refused, because it is done.
    let seen = if first.is_ok() && step.writes_resource() { world.resource.clone() } else { seen.clone() };
    world.apply(step, &seen).or(first)
}

/// What the other side answers that it will answer again.
fn is_refusal(message: &str) -> bool {
    let refusals = [
        super::firewall::TOO_MANY,
        super::keys::NO_SECRET,
        super::machine_groups::FIXED,
        super::machine_metadata::FIXED,
    ];
    refusals.contains(&message)
}

/// What the operator remembers of parts that nothing waits for once they are refused.
fn keep_in_mind(world: &mut World, part: Part, error: Option<&Refusal>) {
    if [Part::Rules, Part::FurtherRules, Part::Keys].contains(&part) {
        let refused = &mut world.memory.refused;
        refused.retain(|known| *known != part);
        refused.extend(error.filter(|error| is_refusal(error)).map(|_| part));
    }
}

fn failure(part: Part, message: &str) -> Failure {
    let lasting = is_refusal(message);
    Failure { part, message: message.to_owned(), lasting, outdated: None, overtaken: false }
}

/// Passes until nothing is left to do; the number of steps taken.
pub(super) fn settle(world: &mut World, trouble: Option<Trouble>, twice: bool) -> usize {
    settle_after(world, 0, trouble, twice)
}

/// The same after so many steps.
pub(super) fn settle_after(
    world: &mut World,
    mut taken: usize,
    trouble: Option<Trouble>,
    twice: bool,
) -> usize {
    for _ in 0..ENOUGH {
        let plain = world.is_plain_to_see();
        let planned = pass(world, &mut taken, trouble, twice);
        if world.released || (plain && rests(&planned) && stays(world)) {
            return taken;
        }
        world.tick();
    }
    panic!("not settled after {ENOUGH} passes ({trouble:?}): {}", waits(world));
}

/// Whether another look finds nothing either: at rest more is looked at.
fn stays(world: &World) -> bool {
    world.wiped > 0 || rests(&pass(&mut world.clone(), &mut 0, None, false))
}

/// A run without trouble.
#[derive(Default)]
pub(super) struct Run {
    /// Its steps in order: of which part, what, and why.
    pub(super) steps: Vec<String>,
    /// Every world in which a pass began, and how many steps were taken before it.
    pub(super) passes: Vec<(usize, World)>,
}

/// The same, written down.
pub(super) fn record(world: &mut World) -> Run {
    let (mut taken, mut run) = (0, Run::default());
    for _ in 0..ENOUGH {
        run.passes.push((taken, world.clone()));
        let planned = pass(world, &mut taken, None, false);
        let more = planned.actions.iter().take(taken - run.steps.len());
        run.steps
            .extend(more.map(|action| format!("{} {}: {}", action.part, action.step.name(), action.reason)));
        if rests(&planned) || world.released {
            return run;
        }
        world.tick();
    }
    panic!("not settled after {ENOUGH} passes: {}", waits(world));
}

/// What a database waits for, for whoever reads why a test failed.
fn waits(world: &World) -> String {
    let steps = world.resource.status.iter().flat_map(|status| &status.steps);
    let open = steps.filter(|step| step.ended_at.is_none());
    let open: Vec<String> =
        open.map(|step| format!("{}: {:?} {:?}", step.name, step.state, step.message)).collect();
    let machines =
        world.instances.iter().map(|found| format!("{} {} {}", found.id, found.state, found.instance_type));
    format!(
        "{}; machines {}; annotations {:?}",
        open.join("; "),
        machines.collect::<Vec<_>>().join(", "),
        world.resource.metadata.annotations
    )
}

/// Whether nothing is left to do or to wait for; what was refused waits for people.
fn rests(planned: &Plan) -> bool {
    let ended = |state: &State| matches!(state, State::Done | State::Refused(_));
    planned.actions.is_empty() && planned.progress.iter().all(|progress| ended(&progress.state))
}
