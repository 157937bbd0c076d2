//! Keys that are drawn while the wish for them changes: nobody but the operator's own Secret knows of a private half that was handed
//! out, so it knows before.

use resources::{RunState, names};

use super::credentials::{NAME, in_force, wishing, written};
use super::credentials_lost::forget_sources;
use super::model::{Refusal, World};
use super::operations::{Operation, become_, end_machine, on_the_way, operation, remove, serving_plain};
use super::oracle::check_end;
use super::reach::condition;
use super::runner::{ENOUGH, Trouble, pass, settle, troubles};
use super::serving;

/// What the API server answers where the namespace may have no further Secret.
pub(super) const NO_SECRET: Refusal = "there is no room for a Secret";

/// All of them.
pub(super) const KEYS: &[Operation] = &[
    operation("keys are drawn", serving, wish_for_keys),
    operation("keys are taken back while they are drawn", half_drawn, |world| wishing(world, &[])),
    operation("purge while keys are drawn", half_drawn, |world| become_(world, RunState::Purged)),
    operation("remove while keys are drawn", half_drawn_plain, remove),
];

fn wish_for_keys(world: &mut World) {
    wishing(world, &["first", "second"]);
}

/// Both were handed out, and nobody has noted where.
fn half_drawn() -> World {
    on_the_way(serving(), wish_for_keys, are_handed_out)
}

fn half_drawn_plain() -> World {
    on_the_way(serving_plain(), wish_for_keys, are_handed_out)
}

fn are_handed_out(world: &World) -> bool {
    ["first", "second"].iter().all(|id| is_handed_out(world, id))
}

fn is_handed_out(world: &World, id: &str) -> bool {
    let name = names::drawn_key(NAME, id);
    world.secrets.iter().any(|found| found.metadata.name.as_ref() == Some(&name))
}

/// The world after the pass in which a trouble came.
fn met(mut world: World, trouble: Trouble) -> World {
    let mut taken = 0;
    for _ in 0..ENOUGH {
        pass(&mut world, &mut taken, Some(trouble), false);
        world.tick();
        if taken > trouble.at {
            return world;
        }
    }
    panic!("it did not come: {trouble:?}");
}

/// A word for it, and what it does.
type Turn = (&'static str, fn(&mut World));

const TURNS: [Turn; 3] = [
    ("to no key", |world| wishing(world, &[])),
    ("to one of them", |world| wishing(world, &["first"])),
    ("to an end", |world| become_(world, RunState::Purged)),
];

#[test]
fn a_key_that_cannot_be_handed_out_holds_up_neither_the_end_of_another_nor_a_pod() {
    let mut world = serving();
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    assert!(in_force(&world, names::secret::ILP_KEYS).is_some());
    world.full.secrets = true;
    wishing(&mut world, &["second"]);
    let passes = |world: &mut World| {
        for _ in 0..ENOUGH {
            pass(world, &mut 0, None, false);
            world.tick();
        }
    };
    passes(&mut world);
    assert_eq!((in_force(&world, names::secret::ILP_KEYS), is_handed_out(&world, "first")), (None, false));
    let told = |world: &World, kind: &str| condition(world, kind).map(|(status, _)| status.to_owned());
    assert_eq!(
        [told(&world, "Ready"), told(&world, "Degraded")],
        [Some("True".to_owned()), Some("True".to_owned())]
    );
    end_machine(&mut world, 0);
    passes(&mut world);
    assert_eq!((world.instances.len(), told(&world, "Ready").as_deref()), (2, Some("True")));

    world.full.secrets = false;
    settle(&mut world, None, false);
    check_end(&world, "there is room for a Secret");
    assert!(in_force(&world, names::secret::ILP_KEYS).is_some() && is_handed_out(&world, "second"));
}

#[test]
fn a_key_that_nobody_asks_for_any_more_is_gone_whenever_that_is_said() {
    let start = || {
        let mut world = serving();
        wish_for_keys(&mut world);
        world
    };
    let steps = settle(&mut start(), None, false);
    assert!(steps > 4, "{steps}");
    for trouble in troubles(steps) {
        for (way, turn) in TURNS {
            let what = format!("keys are drawn, turned {way} after {trouble:?}");
            let mut world = met(start(), trouble);
            turn(&mut world);
            settle(&mut world, None, false);
            check_end(&world, &what);
        }
    }
}

#[test]
fn a_key_that_nobody_has_a_note_of_goes_with_its_database() {
    type Start = fn() -> World;
    let ends: [(Start, Turn); 2] = [
        (half_drawn, ("purged", |world| become_(world, RunState::Purged))),
        (half_drawn_plain, ("removed", remove)),
    ];
    for (start, (what, end)) in ends {
        let mut world = start();
        forget_sources(&mut world);
        wishing(&mut world, &[]);
        end(&mut world);
        settle(&mut world, None, false);
        check_end(&world, what);
        assert!(!is_handed_out(&world, "first") && !is_handed_out(&world, "second"), "{what}");
    }
}

#[test]
fn a_key_that_is_about_to_be_drawn_is_not_in_force() {
    let world = half_drawn();
    let own = world.children.secret.as_ref().unwrap();
    let noted = &own.metadata.annotations.as_ref().unwrap()[names::secret::TAKEN_FROM];
    assert_eq!(noted, r#"{"begun":["first","second"]}"#);
    let set = world.children.stateful_set.as_ref().unwrap();
    assert!(!set.metadata.annotations.as_ref().unwrap().contains_key(names::secret::DRAWN));
    assert_eq!(written(&world, "ilp-keys"), None);
}

/// What somebody else made under the name of a key is neither taken over nor taken away.
#[test]
fn a_secret_of_somebody_else_stays_when_its_name_is_asked_for_no_more() {
    let mut world = half_drawn();
    let name = names::drawn_key(NAME, "second");
    world.give(&name, None, &[("auth.json", "{}")]);
    let theirs = world.secrets.iter_mut().find(|found| found.metadata.name.as_ref() == Some(&name));
    theirs.unwrap().metadata.annotations = None;
    wishing(&mut world, &[]);
    settle(&mut world, None, false);
    check_end(&world, "somebody else's");
    assert!(is_handed_out(&world, "second") && !is_handed_out(&world, "first"));
    let own = world.children.secret.as_ref().unwrap();
    assert_eq!(own.metadata.annotations.as_ref().unwrap()[names::secret::TAKEN_FROM], "{}");
}
