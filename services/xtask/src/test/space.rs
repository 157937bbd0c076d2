//! Whether the disk has room for a run. Linkers, databases and brokers die of a full one in ways that name anything else.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use sandbox::supervisor;

/// What a run fills at most, in MB: programs with what debuggers need of them, and the data of servers.
const FILLED: u64 = 20_000;
/// With less left at the end, in MB, what failed may have failed for want of room.
const FULL: u64 = 1_000;

/// The folders of a target folder's two profiles.
const PROFILES: [&str; 2] = ["debug", "release"];
/// Where the compiler keeps, for each checkout and each state of a crate anew, what lets it build faster the next time.
/// Nothing but this grows without end, and all of it is built again.
const KEPT_BY_COMPILER: &str = "incremental";
/// The file that cargo holds locked while it builds a profile.
const BUILD_LOCK: &str = ".cargo-lock";

/// Makes room for a run that fills this target folder where its disk is short, and says what was done and what to know.
pub(super) fn before(folder: &Path) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(found) = free(folder)
        && found < FILLED
    {
        for profile in PROFILES {
            match cleared(&folder.join(profile)) {
                Ok(None) => {}
                Ok(Some(deleted)) => said.push(format!(
                    "{found} MB were left on the disk of {}: deleted {deleted}, which is built again",
                    folder.display()
                )),
                Err(error) => said.push(format!("{error:#}")),
            }
        }
        said.extend(free(folder).and_then(|left| warning(left, folder)));
    }
    said
}

/// Deletes what the compiler keeps of a profile, unless a build is using it; what was deleted.
fn cleared(profile: &Path) -> anyhow::Result<Option<String>> {
    let kept = profile.join(KEPT_BY_COMPILER);
    if !kept.exists() {
        return Ok(None);
    }
    // Held until the end: a build that begins meanwhile waits for it.
    let Some(_lock) = supervisor::try_lock(&profile.join(BUILD_LOCK))? else {
        return Ok(None);
    };
    fs::remove_dir_all(&kept).with_context(|| format!("deleting {}", kept.display()))?;
    Ok(Some(kept.display().to_string()))
}

/// What to know when something has failed.
pub(super) fn after(folder: &Path) -> Option<String> {
    reason(free(folder)?, folder)
}

fn warning(free: u64, folder: &Path) -> Option<String> {
    let place = folder.display();
    (free < FILLED).then(|| {
        format!(
            "{free} MB are left on the disk of {place}, and a run may fill {FILLED}: where it is short, delete \
             {place}, which is built again"
        )
    })
}

fn reason(free: u64, folder: &Path) -> Option<String> {
    let place = folder.display();
    (free < FULL)
        .then(|| format!("{free} MB are left on the disk of {place}: what failed may have failed of it"))
}

/// MB that are left on a folder's disk; none where nobody can say.
fn free(folder: &Path) -> Option<u64> {
    let asked = Command::new("df").args(["--output=avail", "--block-size=MB"]).arg(folder).output().ok()?;
    parsed(&String::from_utf8(asked.stdout).ok()?)
}

fn parsed(output: &str) -> Option<u64> {
    output.lines().nth(1)?.trim().trim_end_matches("MB").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_df_says_is_understood() {
        assert_eq!(parsed("  Avail\n26012MB\n"), Some(26_012));
        assert_eq!(parsed("df: no such file\n"), None);
        assert!(free(Path::new("/")).is_some());
        assert_eq!(free(Path::new("/nowhere")), None);
    }

    #[test]
    fn what_the_compiler_keeps_is_deleted_unless_a_build_uses_it() {
        let folder = std::env::temp_dir().join(format!("slipway-target-{}", std::process::id()));
        let (kept, program) = (folder.join("incremental"), folder.join("program"));
        assert_eq!(cleared(&folder).unwrap(), None);
        fs::create_dir_all(kept.join("crate/state")).unwrap();
        fs::write(&program, "").unwrap();
        let build = supervisor::try_lock(&folder.join(".cargo-lock")).unwrap().unwrap();
        assert_eq!(cleared(&folder).unwrap(), None);
        assert!(kept.exists());
        drop(build);
        assert_eq!(cleared(&folder).unwrap(), Some(kept.display().to_string()));
        assert!(!kept.exists() && program.exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_a_disk_that_is_short_is_spoken_of() {
        let folder = Path::new("/target");
        assert_eq!((warning(FILLED, folder), reason(FULL, folder)), (None, None));
        let said = warning(FILLED - 1, folder).unwrap();
        assert!(said.starts_with("19999 MB are left on the disk of /target"), "{said}");
        assert!(reason(FULL - 1, folder).unwrap().starts_with("999 MB"));
    }
}
