//! What runs before QuestDB does on a disk that was made from a copy: has it restored, once in the life of the disk.

use cloud::{Volume, key};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Yes,
    /// It was stopped: what lies on the disk as a checkpoint is an older one that nobody released.
    No,
    /// Others took the copy: what lies on the disk tells.
    Unknown,
}

impl Copied {
    /// By what EC2 says of the disk and its tags.
    pub fn of(volume: &Volume) -> Option<Self> {
        volume.snapshot.as_ref()?;
        let held = match volume.tags.get(key::BASIS).and_then(|basis| basis.split(':').next()) {
            Some("stopped") => Held::No,
            Some(_) => Held::Yes,
            None => Held::Unknown,
        };
        Some(Self { disk: volume.id.to_string(), held })
    }
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

/// The init container.
pub(super) fn restorer(validated: &Validated, copied: &Copied) -> Value {
    let held = match copied.held {
        Held::Yes => "yes",
        Held::No => "no",
        Held::Unknown => "unknown",
    };
    json!({
        "name": pod::RESTORE,
        "image": validated.container_image(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-ec", RESTORE],
        "env": [
            { "name": "ROOT", "value": ROOT },
            { "name": "DISK", "value": copied.disk },
            { "name": "HELD", "value": held },
        ],
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
            let run = Command::new("/bin/sh")
                .args(["-ec", script])
                .envs([("ROOT", self.0.to_str().unwrap()), ("DISK", "vol-1"), ("HELD", held)])
                .status();
            assert!(run.unwrap().success());
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
