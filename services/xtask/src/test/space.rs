//! Whether the disk has room for a run. Linkers, databases and brokers die of a full one in ways that name anything else.

use std::path::Path;
use std::process::Command;

/// What a run fills at most, in MB: programs with what debuggers need of them, and the data of servers.
const FILLED: u64 = 10_000;
/// With less left at the end, in MB, what failed may have failed for want of room.
const FULL: u64 = 1_000;

/// What to know before a run that fills this folder.
pub(super) fn before(folder: &Path) -> Option<String> {
    warning(free(folder)?, folder)
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
             {place}/*/incremental, which is built again"
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
    fn only_a_disk_that_is_short_is_spoken_of() {
        let folder = Path::new("/target");
        assert_eq!((warning(FILLED, folder), reason(FULL, folder)), (None, None));
        let said = warning(FILLED - 1, folder).unwrap();
        assert!(said.starts_with("9999 MB are left on the disk of /target"), "{said}");
        assert!(reason(FULL - 1, folder).unwrap().starts_with("999 MB"));
    }
}
