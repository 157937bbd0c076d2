//! The last machine of a row that did not join, or whose Node was not ready, is left for people to look at. Who finds out what machines
//! lack puts it right in what they are launched with, and may have no right to terminate any.

use cloud::InstanceState;

use super::check_serving;
use super::model::World;
use super::operations::change;
use super::oracle::check_moment;
use super::runner::pass_under;
use super::unjoined::{fresh, machines, passes, sick, until_ended};
use crate::Settings;
use crate::fixture::settings;

/// Something that is put right: the type and image of the next machine, what the operator is told, and what is asked for.
type Cure = (&'static str, Settings, fn(&mut World));

fn cures() -> [Cure; 2] {
    let other_image = Settings { node_image: "ami-2".to_owned(), ..settings() };
    [
        ("m7i.xlarge ami-1", settings(), |world| {
            change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
        }),
        ("m7i.large ami-2", other_image, |_| {}),
    ]
}

/// The third of a row is left as it is.
fn left(mut world: World) -> World {
    for number in 0..2 {
        until_ended(&mut world, number);
    }
    passes(&mut world, 200);
    assert_eq!(machines(&world)[2], ("3", InstanceState::Running));
    world
}

#[test]
fn it_is_replaced_once_machines_are_launched_otherwise() {
    for (expected, told, cure) in cures() {
        for start in [fresh(9), sick(9)] {
            let mut world = left(start);
            (world.strangers, world.unready) = (0, 0);
            cure(&mut world);
            for _ in 0..30 {
                pass_under(&told, &mut world, &mut 0, (None, false));
                world.tick();
                check_moment(&world, expected);
            }
            check_serving(&world, None);
            let ended = |generation| (generation, InstanceState::Terminated);
            let all = [ended("1"), ended("2"), ended("3"), ("4", InstanceState::Running)];
            assert_eq!(machines(&world), all, "{expected}");
            let last = &world.instances[3];
            assert_eq!(format!("{} {}", last.instance_type, last.image), expected);
        }
    }
}

/// A machine that may join after all is worth more than none.
#[test]
fn it_stays_where_no_other_can_be_launched() {
    for start in [fresh(9), sick(9)] {
        let mut world = left(start);
        let mut told = settings();
        told.zones.remove(&world.volumes[0].zone).unwrap();
        for _ in 0..30 {
            pass_under(&told, &mut world, &mut 0, (None, false));
            world.tick();
        }
        assert_eq!(machines(&world).last(), Some(&("3", InstanceState::Running)));
    }
}
