//! A database without a process, which some snapshot owes a release.

use super::super::ground::stopped_with;
use super::*;

/// Of a database whose disk is destroyed the resource may be there for long.
#[test]
fn who_owes_a_release_to_a_database_that_is_stopped_is_free_whatever_became_of_its_disk() {
    let volume = |state: VolumeState| Volume { state, ..fixture::disk(Tags::new()) };
    let (database, subject) = (changed(value("Purged", "Deleted"), |_| {}), subject());
    let free = volume(VolumeState::Available);
    let disk = as_found(&free, &database, &subject);
    let found = |volume: Volume| Ok(Ok((disk.clone(), volume)));
    let gone = || Ok(Err("QuestDB trades has 0 volumes".to_owned()));
    let failed = || Err(Error::Stale { what: "EC2 does not answer".to_owned() });
    let look = |found, owes| stopped_with(found, (&database, &subject), owes);
    let is_stopped = |ground: &Ground| matches!(ground, Ground::Stopped { wish, .. } if wish == "u:3");
    for owes in [false, true] {
        let look = look(found(free.clone()), owes).unwrap();
        assert!(is_stopped(&look.ground) && look.blind.is_none(), "{owes}");
    }
    for found in [found(volume(VolumeState::InUse)), gone()] {
        let look = look(found, true).unwrap();
        assert!(is_stopped(&look.ground) && look.blind.is_some(), "nothing new may rest on it");
    }
    let told = look(failed(), true).unwrap();
    assert!(is_stopped(&told.ground) && told.blind.is_some());
    let told = look(gone(), false).unwrap();
    assert!(matches!(told.ground, Ground::Unclear(why) if why.contains("0 volumes")));
    assert!(matches!(look(found(volume(VolumeState::InUse)), false).unwrap().ground, Ground::Unclear(_)));
    assert!(look(failed(), false).is_err());
}
