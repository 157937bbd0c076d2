//! The first content of a disk: nothing, or what the snapshot holds that EC2 says the volume was made from.
//!
//! *Invariant:* a volume's directory appears whole or not at all, and what is in it is never filled over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cloud::Volume;
use jiff::Timestamp;

use super::volumes::disk_dir;

/// Makes the directory of a volume if there is none. Only for the one pod that holds the volume.
pub async fn prepare(data_dir: &Path, snapshots: Option<&Path>, volume: &Volume) -> io::Result<()> {
    let disk = disk_dir(data_dir, &volume.id);
    if disk.is_dir() {
        return Ok(());
    }
    let Some(parent) = disk.parent() else { return Err(io::Error::other("the disk has no parent")) };
    fs::create_dir_all(parent)?;
    match source(snapshots, volume) {
        Some(source) => fill(&source, &disk, parent).await,
        None => fs::create_dir(&disk),
    }
}

fn source(snapshots: Option<&Path>, volume: &Volume) -> Option<PathBuf> {
    let snapshot = volume.snapshot.as_deref()?;
    let held = snapshots.map(|snapshots| snapshots.join(snapshot)).filter(|held| held.is_dir());
    if held.is_none() {
        tracing::warn!(volume.id = %volume.id, snapshot.id = snapshot, "what the snapshot holds is not here: the disk is empty");
    }
    held
}

/// Under another name until it is whole: an agent that was killed meanwhile begins anew.
async fn fill(source: &Path, disk: &Path, parent: &Path) -> io::Result<()> {
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".new-{name}.");
    for entry in fs::read_dir(parent)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    // A name of its own, because a copy that outlived its agent may still write to the last one.
    let temporary = parent.join(format!("{prefix}{}", Timestamp::now().as_nanosecond()));
    let copy = tokio::process::Command::new("cp")
        .args(["--archive", "--reflink=auto", "--no-target-directory"])
        .args([source, &temporary])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    if !copy.status.success() {
        let words = String::from_utf8_lossy(&copy.stderr).lines().next().unwrap_or("cp failed").to_owned();
        return Err(io::Error::other(words));
    }
    fs::rename(&temporary, disk)?;
    tracing::info!(path = %disk.display(), source = %source.display(), "a disk begins with what a snapshot holds");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    use super::*;
    use crate::fixture;

    struct Site {
        base: PathBuf,
    }

    impl Site {
        fn new(name: &str) -> Self {
            let base = std::env::temp_dir().join(format!("node-agent-filling-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&base);
            fs::create_dir_all(base.join("snapshots/snap-1/db")).unwrap();
            fs::write(base.join("snapshots/snap-1/db/x"), "kept").unwrap();
            Self { base }
        }

        async fn prepare(&self, snapshot: Option<&str>) -> io::Result<PathBuf> {
            let volume = cloud::Volume { snapshot: snapshot.map(str::to_owned), ..fixture::volume("vol-1") };
            prepare(&self.base.join("data"), Some(&self.base.join("snapshots")), &volume).await?;
            Ok(self.base.join("data/volumes/vol-1"))
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.base);
        }
    }

    fn count(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[tokio::test]
    async fn a_disk_begins_with_what_the_snapshot_holds_and_is_left_alone_then() {
        let site = Site::new("whole");
        let held = site.base.join("snapshots/snap-1");
        fs::set_permissions(held.join("db"), fs::Permissions::from_mode(0o2770)).unwrap();
        let privileged = nix::unistd::geteuid().is_root();
        if privileged {
            chown(held.join("db/x"), Some(10001), Some(10002)).unwrap();
        }
        let disk = site.prepare(Some("snap-1")).await.unwrap();
        assert_eq!(fs::read_to_string(disk.join("db/x")).unwrap(), "kept");
        assert_eq!(fs::metadata(disk.join("db")).unwrap().permissions().mode() & 0o7777, 0o2770);
        if privileged {
            let owner = fs::metadata(disk.join("db/x")).unwrap();
            assert_eq!((owner.uid(), owner.gid()), (10001, 10002));
        }
        fs::write(disk.join("db/x"), "changed").unwrap();
        site.prepare(Some("snap-1")).await.unwrap();
        assert_eq!(fs::read_to_string(disk.join("db/x")).unwrap(), "changed");
        assert_eq!(fs::read_to_string(held.join("db/x")).unwrap(), "kept");
    }

    #[tokio::test]
    async fn what_a_killed_agent_left_is_made_good() {
        let site = Site::new("killed");
        let volumes = site.base.join("data/volumes");
        fs::create_dir_all(volumes.join(".new-vol-1.5/db")).unwrap();
        fs::create_dir_all(volumes.join(".new-vol-12.5/db")).unwrap();
        let disk = site.prepare(Some("snap-1")).await.unwrap();
        assert_eq!(fs::read_to_string(disk.join("db/x")).unwrap(), "kept");
        // That of another volume may be on its way.
        assert!(!volumes.join(".new-vol-1.5").exists() && volumes.join(".new-vol-12.5").exists());
        assert_eq!(count(&volumes), 2);
    }

    #[tokio::test]
    async fn what_is_there_is_never_filled_over() {
        let site = Site::new("over");
        let disk = site.prepare(None).await.unwrap();
        fs::write(disk.join("own"), "").unwrap();
        let volumes = site.base.join("data/volumes");
        fill(&site.base.join("snapshots/snap-1"), &disk, &volumes).await.unwrap_err();
        assert_eq!(count(&disk), 1);
    }

    #[tokio::test]
    async fn a_copy_that_fails_leaves_no_disk() {
        let site = Site::new("failed");
        let volumes = site.base.join("data/volumes");
        fs::create_dir_all(&volumes).unwrap();
        let disk = volumes.join("vol-1");
        let error = fill(&site.base.join("nowhere"), &disk, &volumes).await.unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
        assert!(!disk.exists());
        assert_eq!(site.prepare(Some("snap-1")).await.unwrap(), disk);
        assert_eq!(fs::read_to_string(disk.join("db/x")).unwrap(), "kept");
    }

    #[tokio::test]
    async fn without_a_snapshot_a_disk_is_empty() {
        for snapshot in [None, Some("snap-unknown")] {
            let site = Site::new("empty");
            assert_eq!(count(&site.prepare(snapshot).await.unwrap()), 0, "{snapshot:?}");
        }
    }
}
