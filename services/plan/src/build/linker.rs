//! What runs before QuestDB does: it puts a link to server.conf where QuestDB looks for it. A single file of a ConfigMap that is
//! mounted over the disk would never change again; a folder beside it is kept up to date by the kubelet, and the link leads
//! there.
//!
//! *Invariant:* QuestDB does not begin on an empty disk that its pod says to have served from: it would answer as if nothing were
//! missing. Nor does it on one that somebody brought and that has its tables elsewhere than it looks for them.

use resources::names;
use serde_json::{Value, json};

use super::stateful_set::{ROOT, resources};
use crate::Validated;
use crate::pod::LINK_CONFIG;

/// The folder in which a pod is shown server.conf.
pub(super) const SHOWN: &str = "/etc/questdb/config";

/// Whoever mounts a disk as the folder of tables alone, as the questdb-operator and QuestDB's Helm chart once did, leaves them at its
/// top, and with them the files that list them. Where the folder has such files too, QuestDB has begun there before: that goes on. So
/// does a restore, which takes them out of the folder first, and puts them back.
const HOLDS_TABLES: &str = r#"has_tables() {
  for found in "$1"/tables.d.*; do
    if [ -e "$found" ]; then return 0; fi
  done
  return 1
}
if [ ! -e "$ROOT/_restore" ] && has_tables "$ROOT" && ! has_tables "$ROOT/db"; then
  echo "QuestDB's tables lie at the top of the disk, and are looked for in its folder db: all of it is to be moved there" >&2
  exit 65
fi
"#;

/// Whatever QuestDB has served from has something in its folder of tables, be it without a table; a disk that is being restored may not
/// have it yet. What cannot be read is not called empty.
const HOLDS_DATA: &str = r#"if [ -n "$SERVED_FROM" ] && [ -x "$ROOT" ] && [ ! -e "$ROOT/_restore" ]; then
  if [ ! -e "$ROOT/db" ] || { found="$(ls -A "$ROOT/db")" && [ -z "$found" ]; }; then
    echo "QuestDB has served from $SERVED_FROM, and $ROOT/db holds nothing: it is not started on an empty disk" >&2
    exit 66
  fi
fi
"#;

/// Whatever is there goes: QuestDB's own default, an older link, or the file that an older mount left. A folder that was made
/// for such a mount, on an empty disk, belongs to somebody else: it is put aside, because QuestDB writes there.
const LINK: &str = r#"if [ -e "$ROOT/conf" ] && [ ! -w "$ROOT/conf" ]; then mv "$ROOT/conf" "$ROOT/conf.$(date +%s)"; fi
mkdir -p "$ROOT/conf"
if [ "$(readlink "$ROOT/conf/server.conf")" = "$SHOWN/server.conf" ]; then exit 0; fi
ln -sfn "$SHOWN/server.conf" "$ROOT/conf/server.conf"
"#;

/// The init container.
pub(super) fn linker(validated: &Validated) -> Value {
    let told = format!("metadata.annotations['{}']", names::SERVED_FROM);
    json!({
        "name": LINK_CONFIG,
        "image": validated.container_image(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-ec", script(is_brought(validated))],
        "env": [
            { "name": "ROOT", "value": ROOT },
            { "name": "SHOWN", "value": SHOWN },
            // Not its value: what a pod is told is no other way of making it.
            { "name": "SERVED_FROM", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": told } } },
        ],
        "resources": resources(validated),
        "securityContext": super::overlay::security(),
        "volumeMounts": [{ "name": "data", "mountPath": ROOT }],
    })
}

/// Whether somebody brought the disk, or what it is a copy of: any other has been the root of QuestDB from its first moment on.
fn is_brought(validated: &Validated) -> bool {
    let source = validated.storage.source.as_ref();
    source.is_some_and(|source| source.volume_id.is_some() || source.snapshot_id.is_some())
}

/// What runs, on a disk that somebody may have brought.
fn script(is_brought: bool) -> String {
    // All others are left as they are: what comes into a template shows as something that waits for a restart.
    let tables = if is_brought { HOLDS_TABLES } else { "" };
    format!("{tables}{HOLDS_DATA}{LINK}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::fixture::{validated, with};
    use crate::pod::{EMPTIED, MISPLACED};

    /// Runs it on a root, beside which server.conf is shown; its exit code.
    fn run(root: &Path, served_from: &str) -> Option<i32> {
        run_by(root, served_from, None)
    }

    /// The same with no other programs than those of a folder.
    fn run_by(root: &Path, served_from: &str, programs: Option<&Path>) -> Option<i32> {
        let mut command = Command::new("/bin/sh");
        let command = command.args(["-ec", script(true).as_str()]).env("SERVED_FROM", served_from);
        let command = command.env("ROOT", root).env("SHOWN", root.join("shown"));
        let command = command.envs(programs.map(|programs| ("PATH", programs)));
        command.output().unwrap().status.code()
    }

    /// Makes a file, or a folder where the name ends with a slash.
    fn put(root: &Path, file: &str) {
        let path = root.join(file);
        let folder = if file.ends_with('/') { &path } else { path.parent().unwrap() };
        fs::create_dir_all(folder).unwrap();
        if !file.ends_with('/') {
            fs::write(path, "").unwrap();
        }
    }

    #[test]
    fn questdb_does_not_begin_on_an_empty_disk_that_it_has_served_from() {
        let root = std::env::temp_dir().join(format!("link-emptied-{}", std::process::id()));
        let refused = Some(EMPTIED);
        for (files, served, expected) in [
            (&[][..], "vol-1", refused),
            (&["lost+found/"], "vol-1", refused),
            (&["db/", "conf/server.conf"], "vol-1", refused),
            (&[".slipway-restored", ".checkpoint/db/x"], "vol-1", refused),
            (&["db/tables.d.0"], "vol-1", Some(0)),
            (&["db/.hidden"], "vol-1", Some(0)),
            (&["_restore"], "vol-1", Some(0)),
            (&[], "", Some(0)),
            (&["db/"], "", Some(0)),
        ] {
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            for file in files {
                put(&root, file);
            }
            assert_eq!(run(&root, served), expected, "{files:?} {served}");
            let is_linked = root.join("conf/server.conf").is_symlink();
            assert_eq!(is_linked, expected == Some(0), "{files:?} {served}: it is left as it is");
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_not_called_empty() {
        let root = std::env::temp_dir().join(format!("link-unread-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        put(&root, "db/");
        put(&root, "file");
        let unread = run_by(&root, "vol-1", Some(&root.join("none")));
        assert_eq!(unread, Some(127), "the link fails for the same reason: neither program is found");
        assert_eq!(run(&root, "vol-1"), Some(EMPTIED), "it is empty");
        assert_eq!(run(&root.join("file"), "vol-1"), Some(1), "nobody may look into it, and no link is made");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn questdb_does_not_begin_beside_tables_that_it_does_not_look_for() {
        let root = std::env::temp_dir().join(format!("link-brought-{}", std::process::id()));
        let refused = Some(MISPLACED);
        for (files, expected) in [
            (&["tables.d.0", "_tab_index.d", "trades~1/_meta"][..], refused),
            (&["tables.d.12", "lost+found/", "db/"], refused),
            // A table may be called so.
            (&["tables.d.0", "db/_meta"], refused),
            // It has begun beside them already.
            (&["tables.d.0", "db/tables.d.0"], Some(0)),
            // So it had on the disk that this is a copy of, and a restore of it was ended half-way.
            (&["tables.d.0", "_restore", ".checkpoint/db/tables.d.0", "db/trades~1/_meta"], Some(0)),
            (&["db/tables.d.0", "conf/server.conf"], Some(0)),
            (&[".checkpoint/db/tables.d.0"], Some(0)),
            (&["lost+found/"], Some(0)),
        ] {
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            for file in files {
                put(&root, file);
            }
            assert_eq!(run(&root, ""), expected, "{files:?}");
            let is_linked = root.join("conf/server.conf").is_symlink();
            assert_eq!(is_linked, expected == Some(0), "{files:?}: it is left as it is");
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn only_a_disk_that_somebody_brought_is_looked_into_for_tables() {
        for (source, expected) in [
            (Value::Null, false),
            (json!({ "snapshot": "nightly" }), false),
            (json!({ "snapshotId": "snap-0123456789abcdef0" }), true),
            (json!({ "volumeId": "vol-0123456789abcdef0" }), true),
        ] {
            let container = linker(&validated(&with("/spec/storage/source", source.clone())));
            let script = container["command"][2].as_str().unwrap();
            assert_eq!(script.contains(HOLDS_TABLES), expected, "{source}");
        }
    }

    #[test]
    fn the_link_is_put_over_whatever_is_there() {
        let root = std::env::temp_dir().join(format!("link-config-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let shown = root.join("shown");
        fs::create_dir_all(&shown).unwrap();
        fs::write(shown.join("server.conf"), "ours").unwrap();
        let conf = root.join("conf/server.conf");
        let before: [fn(&Path); 5] = [
            |_| {},
            |conf| {
                fs::remove_file(conf).unwrap();
                fs::write(conf, "QuestDB's own").unwrap();
            },
            |conf| {
                fs::remove_file(conf).unwrap();
                std::os::unix::fs::symlink("/nowhere", conf).unwrap();
            },
            |conf| {
                // As the runtime makes it on an empty disk, seen by somebody who may not write there.
                fs::set_permissions(conf.parent().unwrap(), fs::Permissions::from_mode(0o555)).unwrap();
            },
            |_| {},
        ];
        for before in before {
            before(&conf);
            assert_eq!(run(&root, ""), Some(0));
            assert_eq!(fs::read_to_string(&conf).unwrap(), "ours");
            assert!(conf.symlink_metadata().unwrap().is_symlink());
        }
        for entry in fs::read_dir(&root).unwrap() {
            fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::remove_dir_all(root).unwrap();
    }
}
