//! What runs before QuestDB does: it puts a link to server.conf where QuestDB looks for it. A single file of a ConfigMap that is
//! mounted over the disk would never change again; a folder beside it is kept up to date by the kubelet, and the link leads
//! there.

use serde_json::{Value, json};

use super::stateful_set::{ROOT, resources};
use crate::Validated;

/// The folder in which a pod is shown server.conf.
pub(super) const SHOWN: &str = "/etc/questdb/config";

/// Whatever is there goes: QuestDB's own default, an older link, or the file that an older mount left.
const LINK: &str = r#"mkdir -p "$ROOT/conf"
ln -sfn "$SHOWN/server.conf" "$ROOT/conf/server.conf"
"#;

/// The init container.
pub(super) fn linker(validated: &Validated) -> Value {
    json!({
        "name": "link-config",
        "image": validated.image,
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
        let before: [fn(&std::path::Path); 4] = [
            |_| {},
            |conf| {
                fs::remove_file(conf).unwrap();
                fs::write(conf, "QuestDB's own").unwrap();
            },
            |conf| {
                fs::remove_file(conf).unwrap();
                std::os::unix::fs::symlink("/nowhere", conf).unwrap();
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
        fs::remove_dir_all(root).unwrap();
    }
}
