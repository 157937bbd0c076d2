//! EC2 refuses what is asked of it while the database stands still.

use jiff::SignedDuration;
use resources::SnapshotPhase;

use super::walk::{run, succeeded};
use super::world::World;
use crate::snapshot::{Ground, Refused, Seen, Step, plan};

/// For how many passes EC2 refuses.
const REFUSED: usize = 150;

/// The reason of the last report.
fn reason(world: &World) -> Option<&str> {
    let ready = world.objects[0].status.as_ref()?.conditions.first()?;
    Some(&ready.reason)
}

/// The first that it refuses is the copy itself, or that it is marked.
#[test]
fn while_ec2_refuses_a_copy_the_database_goes_on() {
    for at in [3, 4] {
        let mut world = World::new(&["a"]);
        let (mut held, mut told) = (0, 0);
        for _ in 0..REFUSED {
            world.refuses |= world.steps.len() >= at;
            world.pass(0, None);
            world.check();
            held += usize::from(world.held_since.is_some());
            told += usize::from(reason(&world) == Some("CopyRefused"));
            world.tick();
        }
        assert!(held * 3 < REFUSED, "{held} of {REFUSED}: {:?}", world.steps);
        assert!(told * 2 > REFUSED, "{told} of {REFUSED}: {:?}", world.steps);
        world.refuses = false;
        run(&mut world, 0, |_, _| None);
        succeeded(&world);
    }
}

#[test]
fn what_ec2_refused_until_the_deadline_is_told_then() {
    let mut world = World::new(&["a"]);
    world.refuses = true;
    world.objects[0].spec.deadline_seconds = 300;
    run(&mut world, 0, |_, _| None);
    let told = world.objects[0].status.as_ref().unwrap();
    assert_eq!((told.phase, world.held_since), (Some(SnapshotPhase::Failed), None));
    let ready = &told.conditions[0];
    assert!(ready.message.ends_with("EC2 refused it: the quota is used up"), "{}", ready.message);
}

/// No QuestDB is left that could hold it up, nor one that another snapshot could hold.
#[test]
fn what_ec2_refused_of_a_last_copy_is_told_too() {
    let mut world = World::new(&["a"]);
    world.pass(0, None);
    world.now += SignedDuration::from_hours(2);
    let seen = world.seen(0);
    let disk = seen.ground.disk().unwrap().clone();
    let seen = Seen { ground: Ground::Ended { disk, number: 7 }, before: Some("b".to_owned()), ..seen };
    for (refused, expected) in
        [(Some("too many"), "EC2 refused it: too many"), (None, "EC2 did not show that it had begun")]
    {
        let refused = refused.map(|why| Refused { why: why.to_owned(), rests: true });
        let failed = plan(&world.objects[0], &Seen { refused, ..seen.clone() });
        assert_eq!((failed.step, failed.phase), (None, SnapshotPhase::Failed));
        assert!(failed.message.ends_with(expected), "{}", failed.message);
    }
}

#[test]
fn where_nothing_stands_still_ec2_is_asked_as_ever() {
    let mut world = World::new(&["a"]);
    world.stopped = Some(3);
    world.pass(0, None);
    let refused = Some(Refused { why: "too many".to_owned(), rests: true });
    let seen = Seen { refused, ..world.seen(0) };
    assert!(matches!(seen.ground, Ground::Stopped { .. }));
    assert!(matches!(plan(&world.objects[0], &seen).step, Some(Step::Begin(_))));
}
