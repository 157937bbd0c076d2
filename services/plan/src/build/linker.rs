//! What runs before QuestDB does: it puts a link to server.conf where QuestDB looks for it. A single file of a ConfigMap that is
//! mounted over the disk would never change again; a folder beside it is kept up to date by the kubelet, and the link leads
//! there.

use serde_json::{Value, json};

use super::stateful_set::{ROOT, resources};
use crate::Validated;
use crate::pod::LINK_CONFIG;

/// The folder in which a pod is shown server.conf.
pub(super) const SHOWN: &str = "/etc/questdb/config";

/// Whatever is there goes: QuestDB's own default, an older link, or the file that an older mount left. A folder that was made
/// for such a mount, on an empty disk, belongs to somebody else: it is put aside, because QuestDB writes there.
const LINK: &str = r#"if [ -e "$ROOT/conf" ] && [ ! -w "$ROOT/conf" ]; then mv "$ROOT/conf" "$ROOT/conf.$(date +%s)"; fi
mkdir -p "$ROOT/conf"
if [ "$(readlink "$ROOT/conf/server.conf")" = "$SHOWN/server.conf" ]; then exit 0; fi
ln -sfn "$SHOWN/server.conf" "$ROOT/conf/server.conf"
"#;

/// The init container.
pub(super) fn linker(validated: &Validated) -> Value {
    json!({
        "name": LINK_CONFIG,
        "image": validated.container_image(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-ec", LINK],
        "env": [{ "name": "ROOT", "value": ROOT }, { "name": "SHOWN", "value": SHOWN }],
        "resources": resources(validated),
        "securityContext": super::overlay::security(),
        "volumeMounts": [{ "name": "data", "mountPath": ROOT }],
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_link_is_put_over_whatever_is_there() {
        let root = std::env::temp_dir().join(format!("link-config-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let shown = root.join("shown");
        fs::create_dir_all(&shown).unwrap();
        fs::write(shown.join("server.conf"), "ours").unwrap();
        let conf = root.join("conf/server.conf");
        let before: [fn(&std::path::Path); 5] = [
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
            let mut script = Command::new("/bin/sh");
            let script = script.args(["-ec", LINK]).env("ROOT", &root).env("SHOWN", &shown);
            assert!(script.status().unwrap().success());
            assert_eq!(fs::read_to_string(&conf).unwrap(), "ours");
            assert!(conf.symlink_metadata().unwrap().is_symlink());
        }
        for entry in fs::read_dir(&root).unwrap() {
            fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::remove_dir_all(root).unwrap();
    }
}
