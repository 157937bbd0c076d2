//! What runs before QuestDB does on a disk that was made from a copy: has it restored, once in the life of the disk.
//!
//! *Invariant:* what a checkpoint held is not gone back to over anything that was written since. A copy of a disk that is stopped is
//! restored in one case only: the disk was itself to be restored, at a start that never came. Whether it came, the disk that was copied
//! says by itself, in its marker, which is in the copy: written before QuestDB first opened it. What is known of the database
//! besides is old, or may be lost, and is never enough.

use cloud::{Volume, VolumeSnapshot, key};
use serde_json::{Value, json};

use super::stateful_set::{ROOT, resources};
use crate::{Validated, pod};

/// A disk that was made from a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    disk: String,
    held: Held,
}

/// Whether a checkpoint held the database when the copy was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    Yes,
    /// It was stopped: what lies on the disk as a checkpoint is an older one that nobody released.
    No,
    /// It was stopped, and is not known to have had its own disk restored before: unless its marker names one of these disks, what lies
    /// there is restored now.
    Unless(String),
    /// Others took the copy: what lies on the disk tells.
    Unknown,
}

impl Copied {
    /// By what EC2 says of the disk and its tags.
    pub fn of(volume: &Volume) -> Option<Self> {
        volume.snapshot.as_ref()?;
        let held = match volume.tags.get(key::BASIS).and_then(|basis| basis.split(':').next()) {
            Some("stopped") => before(volume).map_or(Held::No, Held::Unless),
            Some(_) => Held::Yes,
            // It may have been taken off.
            None => before(volume).map_or(Held::Unknown, Held::Unless),
        };
        Some(Self { disk: volume.id.to_string(), held })
    }

    /// What a copy of the disk says by its tag `questdb.io/unrestored`, taken while nothing has the disk, and nothing is known to have
    /// had it restored.
    pub(crate) fn unrestored(&self) -> Option<String> {
        let disks = match &self.held {
            Held::Yes | Held::Unknown => self.disk.clone(),
            Held::No => return None,
            Held::Unless(before) => format!("{before} {}", self.disk),
        };
        // Whether one that is left out was restored nobody would look for.
        (disks.len() <= MOST).then_some(disks)
    }
}

/// How many characters the disks of a tag may take: with the copy EC2 takes 256.
const MOST: usize = 200;

/// The disks before this one of which one may have been restored. The tags of a disk are copied together with it by others, a backup
/// service for one: they count for the disk that was made with them.
fn before(volume: &Volume) -> Option<String> {
    let (copy, disks) = volume.tags.get(key::UNRESTORED)?.split_once(' ')?;
    (volume.snapshot.as_deref() == Some(copy)).then(|| disks.to_owned())
}

/// What a disk says by its tag `questdb.io/unrestored` that is made from this copy, if the copy has the tag of its own: the last of the
/// disks is the one that the request for it was made of.
pub(super) fn handed_on(copy: &VolumeSnapshot) -> Option<String> {
    let disks = copy.tags.get(key::UNRESTORED)?;
    let is_its_own = disks.rsplit(' ').next() == copy.tags.get(key::VOLUME);
    is_its_own.then(|| format!("{} {disks}", copy.id))
}

/// The marker names the disk: the copy of a disk that was itself restored has the marker of another. With nothing to restore
/// QuestDB would refuse to start. When it is done, QuestDB removes first the checkpoint and then `_restore`; ended between the
/// two, it would never start again, so that the next pod takes `_restore` away.
const RESTORE: &str = r#"marker="$ROOT/.slipway-restored"
if [ -e "$ROOT/_restore" ] && [ ! -d "$ROOT/.checkpoint/db" ]; then rm "$ROOT/_restore"; fi
if [ "$(cat "$marker" 2>/dev/null)" = "$DISK" ]; then exit 0; fi
if [ "$HELD" != no ] && [ -d "$ROOT/.checkpoint/db" ]; then touch "$ROOT/_restore"; fi
sync
printf %s "$DISK" > "$marker.new"
mv "$marker.new" "$marker"
sync
"#;

/// Comes first where the copy is of a disk that was stopped and not known to have been restored: its marker decides. Of one that cannot
/// be read nothing is concluded, and the pod does not start.
const UNLESS: &str = r#"if [ -e "$ROOT/.slipway-restored" ]; then
  found="$(cat "$ROOT/.slipway-restored")"
  case " $BEFORE " in *" $found "*) HELD=no ;; esac
fi
"#;

/// What runs, with the disks that a marker may name.
fn script(before: Option<&str>) -> String {
    // All others are left as they are: what comes into a template shows as something that waits for a restart.
    let unless = if before.is_some() { UNLESS } else { "" };
    format!("{unless}{RESTORE}")
}

/// The init container.
pub(super) fn restorer(validated: &Validated, copied: &Copied) -> Value {
    let (held, before) = match &copied.held {
        Held::Yes => ("yes", None),
        Held::No => ("no", None),
        Held::Unless(before) => ("yes", Some(before.as_str())),
        Held::Unknown => ("unknown", None),
    };
    let told = [("ROOT", ROOT), ("DISK", copied.disk.as_str()), ("HELD", held)];
    let told = told.into_iter().chain(before.map(|before| ("BEFORE", before)));
    let env: Vec<Value> = told.map(|(name, value)| json!({ "name": name, "value": value })).collect();
    json!({
        "name": pod::RESTORE,
        "image": validated.container_image(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-ec", script(before)],
        "env": env,
        "resources": resources(validated),
        "securityContext": super::overlay::security(),
        "volumeMounts": [{ "name": "data", "mountPath": ROOT }],
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    struct Root(PathBuf);

    impl Root {
        /// A disk with these files.
        fn with(name: &str, files: &[&str]) -> Self {
            let path = std::env::temp_dir().join(format!("slipway-restorer-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            for file in files {
                let file = path.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
            Self(path)
        }

        fn run(&self, script: &str, held: &str) {
            assert!(self.run_after(script, held, ""));
        }

        /// The same with the disks that a marker may name; whether it ended well.
        fn run_after(&self, script: &str, held: &str, before: &str) -> bool {
            let root = self.0.to_str().unwrap();
            let told = [("ROOT", root), ("DISK", "vol-1"), ("HELD", held), ("BEFORE", before)];
            Command::new("/bin/sh").args(["-ec", script]).envs(told).status().unwrap().success()
        }

        fn has(&self, file: &str) -> bool {
            Path::new(&self.0).join(file).exists()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const CHECKPOINT: &str = ".checkpoint/db/x";

    #[test]
    fn what_was_held_is_restored_and_nothing_else_is() {
        for (name, files, held, expected) in [
            ("held", vec![CHECKPOINT], "yes", true),
            ("others", vec![CHECKPOINT], "unknown", true),
            ("stopped", vec![CHECKPOINT], "no", false),
            ("plain", vec!["db/x"], "yes", false),
            ("half", vec!["_restore"], "yes", false),
            ("underway", vec![CHECKPOINT, "_restore"], "no", true),
        ] {
            let root = Root::with(name, &files);
            root.run(RESTORE, held);
            assert_eq!((root.has("_restore"), root.has(".slipway-restored")), (expected, true), "{name}");
        }
    }

    #[test]
    fn it_is_asked_for_once_for_each_disk() {
        let root = Root::with("once", &[CHECKPOINT]);
        fs::write(root.0.join(".slipway-restored"), "vol-9").unwrap();
        root.run(RESTORE, "yes");
        assert!(root.has("_restore"), "the marker is of the disk that was copied");
        // QuestDB has restored it; a person holds it later, and the pod is made again.
        fs::remove_file(root.0.join("_restore")).unwrap();
        root.run(RESTORE, "yes");
        assert!(!root.has("_restore"), "it would go back to an older state");
    }

    #[test]
    fn a_kill_after_any_line_is_made_good() {
        let lines: Vec<&str> = RESTORE.lines().collect();
        for count in 1..=lines.len() {
            let root = Root::with(&format!("kill-{count}"), &[CHECKPOINT]);
            root.run(&lines[..count].join("\n"), "yes");
            root.run(RESTORE, "yes");
            assert!(root.has("_restore") && root.has(".slipway-restored"), "after {count} lines");
        }
    }

    /// Disk 8 was made from a copy of disk 7, and that from a copy of disk 6, which a checkpoint held.
    #[test]
    fn a_copy_of_a_disk_is_restored_where_the_disk_itself_never_was() {
        let before = "vol-7 vol-8";
        let script = script(Some(before));
        for (name, marker, files, expected) in [
            ("untouched", None, vec![CHECKPOINT], true),
            ("of-the-first", Some("vol-6"), vec![CHECKPOINT], true),
            ("alike", Some("vol-"), vec![CHECKPOINT], true),
            ("restored", Some("vol-8"), vec![CHECKPOINT], false),
            ("restored-before", Some("vol-7"), vec![CHECKPOINT], false),
            ("nothing-there", None, vec!["db/x"], false),
        ] {
            let root = Root::with(&format!("never-{name}"), &files);
            if let Some(marker) = marker {
                fs::write(root.0.join(".slipway-restored"), marker).unwrap();
            }
            assert!(root.run_after(&script, "yes", before), "{name}");
            assert_eq!(root.has("_restore"), expected, "{name}");
            assert_eq!(fs::read_to_string(root.0.join(".slipway-restored")).unwrap(), "vol-1", "{name}");
            // QuestDB is through, and the pod is made again.
            let _ = fs::remove_file(root.0.join("_restore"));
            assert!(root.run_after(&script, "yes", before), "{name}");
            assert!(!root.has("_restore"), "{name}: once in the life of the disk");
        }
    }

    /// A machine that loses power may leave a marker without its content: nothing was started after it.
    #[test]
    fn a_kill_after_any_line_changes_nothing_of_what_the_marker_decides() {
        // Nothing is lost with the power of this machine, and to write out all of its disks takes long.
        let fast = |lines: &str| format!("sync() {{ :; }}\n{UNLESS}{lines}");
        let lines: Vec<&str> = RESTORE.lines().collect();
        let markers = [("torn", "", true), ("other", "vol-6", true), ("it", "vol-7", false)];
        for (name, marker, expected) in markers {
            for count in 1..=lines.len() {
                let root = Root::with(&format!("unless-{name}-{count}"), &[CHECKPOINT]);
                let path = root.0.join(".slipway-restored");
                fs::write(&path, marker).unwrap();
                let ends_well = |lines: &str| root.run_after(&fast(lines), "yes", "vol-7");
                assert!(ends_well(&lines[..count].join("\n")) && ends_well(RESTORE), "{name}, {count}");
                assert_eq!(root.has("_restore"), expected, "{name}, after {count} lines");
                assert_eq!(fs::read_to_string(path).unwrap(), "vol-1", "{name}, after {count} lines");
            }
        }
    }

    #[test]
    fn nothing_is_gone_back_over_where_the_marker_cannot_be_read() {
        // Even whoever may read everything reads no folder as a file.
        let root = Root::with("unread", &[CHECKPOINT, ".slipway-restored/x"]);
        assert!(!root.run_after(&script(Some("vol-8")), "yes", "vol-8"));
        assert!(!root.has("_restore"));
    }

    #[test]
    fn who_needs_no_marker_of_before_runs_what_was_always_run() {
        assert_eq!(script(None), RESTORE);
    }

    /// A disk that was made from this copy, which has these tags.
    fn made(tags: &[(&str, &str)], copy: &str) -> Copied {
        let tags = tags.iter().copied().collect();
        let volume = Volume { snapshot: Some(copy.to_owned()), tags, ..crate::fixture::volume(50) };
        Copied::of(&volume).unwrap()
    }

    #[test]
    fn what_a_disk_says_of_those_before_it_counts_for_the_copy_it_was_made_from() {
        let (stopped, unrestored) = ((key::BASIS, "stopped:u:3"), (key::UNRESTORED, "snap-1 vol-7 vol-8"));
        let held = |tags: &[(&str, &str)], copy: &str| made(tags, copy).held;
        assert_eq!(held(&[stopped, unrestored], "snap-1"), Held::Unless("vol-7 vol-8".to_owned()));
        assert_eq!(
            held(&[unrestored], "snap-1"),
            Held::Unless("vol-7 vol-8".to_owned()),
            "that was taken off"
        );
        assert_eq!(held(&[stopped, unrestored], "snap-2"), Held::No, "others made it with the tags of one");
        assert_eq!(held(&[stopped, (key::UNRESTORED, "snap-1")], "snap-1"), Held::No, "it names no disk");
        assert_eq!(held(&[(key::BASIS, "checkpoint:1"), unrestored], "snap-1"), Held::Yes);
    }

    #[test]
    fn a_pod_is_told_of_the_disks_before_its_own() {
        let wish = crate::fixture::validated(&crate::fixture::resource(1));
        let told = |unrestored: &str| {
            let copied = made(&[(key::BASIS, "stopped:u:3"), (key::UNRESTORED, unrestored)], "snap-1");
            let container = restorer(&wish, &copied);
            (container["command"][2].clone(), container["env"].clone())
        };
        let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
        let (runs, env) = told("snap-1 vol-7 vol-8");
        assert_eq!(runs, json!(format!("{UNLESS}{RESTORE}")));
        assert_eq!((&env[2], &env[3]), (&variable("HELD", "yes"), &variable("BEFORE", "vol-7 vol-8")));
        let (runs, env) = told("snap-2 vol-7 vol-8");
        assert_eq!(runs, json!(RESTORE), "it is of another disk");
        assert_eq!((&env[2], &env[3]), (&variable("HELD", "no"), &Value::Null));
    }

    #[test]
    fn a_copy_hands_on_what_it_says_of_itself() {
        let handed = |of: Option<&str>| {
            let tags = cloud::Tags::new().with(key::UNRESTORED, "vol-7 vol-8");
            handed_on(&VolumeSnapshot {
                id: cloud::SnapshotId::new("snap-1"),
                state: cloud::SnapshotState::Completed,
                volume: cloud::VolumeId::new("vol-ffffffff"),
                size_gib: 50,
                progress: None,
                message: None,
                encrypted: true,
                tags: of.map_or_else(|| tags.clone(), |of| tags.clone().with(key::VOLUME, of)),
                started_at: None,
            })
        };
        assert_eq!(handed(Some("vol-8")).as_deref(), Some("snap-1 vol-7 vol-8"));
        assert_eq!(handed(Some("vol-9")), None, "it is of a later disk");
        assert_eq!(handed(None), None, "others copied a disk with its tags");
    }

    #[test]
    fn all_disks_that_may_have_been_restored_are_named_or_none_is() {
        let named = |tags: &[(&str, &str)]| made(tags, "snap-1").unrestored();
        assert_eq!(named(&[(key::BASIS, "checkpoint:1")]).as_deref(), Some("vol-1"));
        assert_eq!(named(&[]).as_deref(), Some("vol-1"), "others took the copy");
        assert_eq!(named(&[(key::BASIS, "stopped:u:3")]), None);
        let after = |before: &str| {
            let unrestored = format!("snap-1 {before}");
            named(&[(key::BASIS, "stopped:u:3"), (key::UNRESTORED, unrestored.as_str())])
        };
        assert_eq!(after("vol-7 vol-8").as_deref(), Some("vol-7 vol-8 vol-1"));
        let many = ["vol-0123456789abcdef0"; 9].join(" ");
        assert_eq!(after(&many), None, "EC2 does not take more");
    }

    #[test]
    fn how_it_was_taken_is_read_from_its_tags() {
        let volume = |basis: Option<&str>, snapshot: Option<&str>| {
            let mut volume = crate::fixture::volume(50);
            volume.snapshot = snapshot.map(str::to_owned);
            volume.tags =
                basis.map_or_else(cloud::Tags::new, |basis| cloud::Tags::new().with(key::BASIS, basis));
            Copied::of(&volume).map(|copied| copied.held)
        };
        assert_eq!(volume(Some("stopped:u:3"), Some("snap-1")), Some(Held::No));
        assert_eq!(volume(Some(&crate::last_copy::basis(3)), Some("snap-1")), Some(Held::No), "a last copy");
        assert_eq!(volume(Some("checkpoint:1"), Some("snap-1")), Some(Held::Yes));
        assert_eq!(volume(None, Some("snap-1")), Some(Held::Unknown));
        assert_eq!(volume(Some("checkpoint:1"), None), None);
    }
}
