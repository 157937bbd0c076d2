//! From one QuestDB to another: the disk is copied first, what does not start is taken back, and is not tried again by itself.

use resources::names::condition;
use resources::{ChangeMeans, Phase, UpgradeResult, UpgradeStatus};

use super::model::World;
use super::operations::change;
use super::oracle::check_end;
use super::runner::{pass, settle};
use super::serving;
use crate::change::image_of_template;

fn wish_for(world: &mut World, version: &str) {
    change(world, |spec| version.clone_into(&mut spec.version));
}

fn image(world: &World) -> String {
    image_of_template(world.children.stateful_set.as_deref()).unwrap()
}

fn last(world: &World) -> UpgradeStatus {
    world.resource.status.as_ref().unwrap().last_upgrade.clone().unwrap()
}

fn told(world: &World, kind: &str) -> (String, String) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind).unwrap();
    (found.status.clone(), found.message.clone())
}

fn broken(version: &str) -> Vec<String> {
    vec![domain::catalogue::image_of(version)]
}

#[test]
fn the_disk_is_copied_before_the_new_image_is_started() {
    let mut world = serving();
    wish_for(&mut world, "9.4.0");
    let mut was_told = false;
    for _ in 0..super::ENOUGH {
        let status = world.resource.status.as_ref().unwrap();
        was_told |= status
            .pending
            .iter()
            .any(|found| (found.field.as_str(), found.means) == ("/spec/version", ChangeMeans::Restart));
        let planned = pass(&mut world, &mut 0, None, false);
        if image(&world).ends_with("9.4.0") {
            assert!(was_told, "told beforehand");
            let phase = world.snapshots[0].status.as_ref().and_then(|status| status.phase).unwrap();
            assert!(["Copying", "Succeeded"].contains(&phase.as_str()), "{phase:?}");
        } else {
            assert_eq!(told(&world, "Ready").0, "True", "nothing is touched before");
        }
        if planned.is_settled() {
            break;
        }
        world.tick();
    }
    check_end(&world, "upgraded");
    let last = last(&world);
    assert_eq!((last.from.as_str(), last.to.as_str()), ("questdb/questdb:9.3.4", "questdb/questdb:9.4.0"));
    assert_eq!((last.result, &last.snapshot), (UpgradeResult::Succeeded, &world.snapshots[0].metadata.name));
    assert_eq!(world.snapshots.len(), 1);
    assert_eq!(world.resource.status.as_ref().unwrap().version.as_deref(), Some("9.4.0"));
    assert_eq!(told(&world, condition::UPGRADE_IN_PROGRESS).0, "False");

    // One that served is not taken back for what happens later.
    world.broken = broken("9.4.0");
    world.children.pod = None;
    for _ in 0..12 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(image(&world).ends_with("9.4.0"));
}

#[test]
fn what_does_not_start_is_taken_back_and_tried_again_only_on_demand() {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    let check = |world: &World| {
        let last = last(world);
        assert_eq!(last.result, UpgradeResult::RolledBack);
        assert_eq!(last.reason.as_deref(), Some("it ended again and again, last with exit code 1"));
        let status = world.resource.status.as_ref().unwrap();
        assert_eq!((status.phase, status.version.as_deref()), (Some(Phase::Degraded), Some("9.3.4")));
        assert_eq!(
            (image(world).as_str(), told(world, "Ready").0.as_str() == "True"),
            ("questdb/questdb:9.3.4", true)
        );
        let (accepted, why) = told(world, condition::CONFIG_ACCEPTED);
        assert!(accepted == "False" && why.contains("exit code 1") && why.contains("restartNonce"), "{why}");
        assert_eq!(status.instruction.as_ref().unwrap().seq, 1, "the wish was not carried out");
    };
    check(&world);

    // Everything else of the spec goes on meanwhile, and a status that is lost changes nothing.
    change(&mut world, |spec| spec.config.clear());
    world.wipe();
    settle(&mut world, None, false);
    assert_eq!((image(&world).as_str(), world.snapshots.len()), ("questdb/questdb:9.3.4", 1));
    change(&mut world, |spec| spec.restart_nonce = Some("again".to_owned()));
    world.broken.clear();
    settle(&mut world, None, false);
    check_end(&world, "the second attempt");
    assert_eq!(
        (last(&world).result, world.snapshots.len()),
        (UpgradeResult::Succeeded, 2),
        "a copy of its own"
    );

    // Whoever gives up has nothing open.
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    wish_for(&mut world, "9.3.4");
    settle(&mut world, None, false);
    check_end(&world, "given up");
    assert_eq!(last(&world).result, UpgradeResult::RolledBack, "what happened stays told");
}

#[test]
fn without_a_copy_nothing_is_upgraded() {
    let mut world = serving();
    world.uncopied = true;
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    assert!(image(&world).ends_with("9.3.4"));
    let (accepted, why) = told(&world, condition::CONFIG_ACCEPTED);
    assert!(accepted == "False" && why.contains("copied") && told(&world, "Ready").0 == "True", "{why}");
    world.uncopied = false;
    world.snapshots.clear();
    settle(&mut world, None, false);
    check_end(&world, "the copy could be made");
    assert!(image(&world).ends_with("9.4.0"));
}

#[test]
fn an_older_major_version_never_gets_the_data() {
    let mut world = serving();
    wish_for(&mut world, "10.0.0");
    settle(&mut world, None, false);
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    assert!(
        image(&world).ends_with("10.0.0")
            && told(&world, condition::CONFIG_ACCEPTED).1.contains("cannot read")
    );
    assert_eq!(world.snapshots.len(), 1, "nothing is prepared for it");

    // Nor after a pause, of which only the status knows.
    change(&mut world, |spec| spec.run_state = resources::RunState::Paused);
    settle(&mut world, None, false);
    change(&mut world, |spec| spec.run_state = resources::RunState::Running);
    for _ in 0..20 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(world.children.pod.is_none() && told(&world, "Degraded").1.contains("cannot read"));
    wish_for(&mut world, "10.0.0");
    settle(&mut world, None, false);
    check_end(&world, "back to its own");
}
