//! Definitions that lack a field of what is to be written: told by a reason of their own, and in the way of nothing else.

use resources::names::{condition, reason};
use resources::{Phase, QuestDBStatus};

use super::model::World;
use super::reach::{OTHERS, wanting};
use super::{check_serving, settle};
use crate::fixture::{settings, validated};
use crate::{Applied, Failure, Kind, Part, plan, status};

const TEXT: &str = "the definition does not know spec.colour";

fn failure(part: Part, outdated: Option<Kind>) -> Failure {
    Failure { part, message: TEXT.to_owned(), lasting: true, outdated, overtaken: false }
}

/// What is said after a pass with these failures.
pub(super) fn told(world: &World, failures: Vec<Failure>) -> QuestDBStatus {
    let (resource, observed) = (&world.resource, world.look());
    let wish = validated(resource);
    let planned = plan(resource, &wish, &observed, &settings());
    let applied = Applied { failures, ..Applied::default() };
    status(resource, &wish, &observed, (&planned, &applied), world.now)
}

fn said<'a>(status: &'a QuestDBStatus, kind: &str) -> (&'a str, &'a str, &'a str) {
    let found = status.conditions.iter().find(|found| found.type_ == kind).unwrap();
    (&found.status, &found.reason, &found.message)
}

#[test]
fn a_definition_that_lacks_a_field_is_told_by_its_own_reason_until_it_has_it() {
    let mut world = wanting(&OTHERS);
    settle(&mut world, None, false);
    let known = ("True", "Known");
    for (part, kind, integrations) in [
        (Part::Reach, Kind::IngressRoute, ("False", reason::OLD_DEFINITION)),
        (Part::Reach, Kind::PodDisruptionBudget, known),
        (Part::Config, Kind::Service, known),
    ] {
        let status = told(&world, vec![failure(part, Some(kind))]);
        let text = format!("{part}: {TEXT}");
        assert_eq!(said(&status, condition::DEGRADED), ("True", reason::OLD_DEFINITION, &*text));
        assert_eq!(said(&status, condition::PROGRESSING), ("False", reason::OLD_DEFINITION, &*text));
        let (found, why, _) = said(&status, condition::INTEGRATIONS_READY);
        assert_eq!((found, why), integrations, "{kind:?}");
        assert_eq!((status.phase, said(&status, condition::READY).0), (Some(Phase::Degraded), "True"));
        world.resource.status = Some(status);
    }
    // Each that is refused is named.
    let routes = [Kind::IngressRoute, Kind::IngressRouteTcp].map(|kind| failure(Part::Reach, Some(kind)));
    let status = told(&world, Vec::from(routes));
    assert_eq!(said(&status, condition::INTEGRATIONS_READY).2, format!("{TEXT}; {TEXT}"));
    // Any other failure has the name of its part.
    let status = told(&world, vec![failure(Part::Reach, None)]);
    assert_eq!(said(&status, condition::DEGRADED).1, "Reach");
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(said(world.resource.status.as_ref().unwrap(), condition::INTEGRATIONS_READY).0, "True");
}

#[test]
fn an_object_that_nobody_waits_for_and_that_is_refused_holds_back_no_other() {
    let check = |part: Part, outdated: Option<Kind>, held: &[Part]| {
        let applied = Applied { failures: vec![failure(part, outdated)], ..Applied::default() };
        let machines = [Part::MachineGroups, Part::MachineMetadata];
        let all = [Part::Reach, Part::Tags, Part::Config, Part::Pod, Part::Dns].into_iter().chain(machines);
        let found: Vec<Part> = all.filter(|part| applied.holds_back(*part)).collect();
        assert_eq!(found, held, "{part} {outdated:?}");
    };
    check(Part::Reach, Some(Kind::IngressRoute), &[]);
    check(Part::Reach, None, &[]);
    check(Part::Tags, None, &[]);
    check(Part::MachineGroups, None, &[]);
    check(Part::MachineMetadata, None, &[]);
    check(Part::Config, Some(Kind::Service), &[Part::Config, Part::Pod, Part::Dns]);
    let passing = Failure { lasting: false, ..failure(Part::Reach, None) };
    let applied = Applied { failures: vec![passing], ..Applied::default() };
    assert!(
        applied.holds_back(Part::Reach),
        "what may be done in a moment is not asked for once for each object"
    );
}
