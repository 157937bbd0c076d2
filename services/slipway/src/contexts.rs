//! The file of contexts: addresses and tokens of several installations. It is made readable by its owner only, and refused
//! when others can read it. It never shows a token.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cli::Global;
use crate::error::Error;

/// All contexts. No `Debug`: it holds tokens.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one that is used when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// By name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// An installation and who one is there. No `Debug`: it holds a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Address of its API.
    pub api_url: String,
    /// Bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Tenant to act for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Where the file is.
pub fn path(global: &Global) -> Result<PathBuf, Error> {
    let home = || global.home.as_ref().map(|home| home.join(".config"));
    // The XDG rules ask to ignore a path that is not absolute.
    let absolute = global.config_home.clone().filter(|path| path.is_absolute());
    absolute
        .or_else(home)
        .map(|path| path.join("slipway").join("contexts.json"))
        .ok_or_else(|| Error::usage("neither XDG_CONFIG_HOME nor HOME says where contexts are kept"))
}

/// Reads the file; none is an empty one.
pub fn load(path: &Path) -> Result<Contexts, Error> {
    let failed = |source| Error::File { action: "read", path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
        Err(error) => return Err(failed(error)),
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::OpenToOthers { path: path.to_owned(), mode });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Malformed { path: path.to_owned(), reason: error.to_string() })
}

/// Writes the file whole or not at all.
pub fn save(path: &Path, contexts: &Contexts) -> Result<(), Error> {
    let failed = |source| Error::File { action: "write", path: path.to_owned(), source };
    let text = serde_json::to_string_pretty(contexts).map_err(|error| Error::Render(Box::new(error)))?;
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let draft = directory.join(format!(".contexts.{}", Uuid::now_v7().simple()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, path));
    written.map_err(|error| {
        // The draft holds a token: not to be left behind. That it may be gone already is all the better.
        let _ = fs::remove_file(&draft);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own that goes away with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("slipway-contexts-{}", Uuid::now_v7().simple()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn contexts() -> Contexts {
        let dev =
            Context { api_url: "http://127.0.0.1:1".to_owned(), token: Some("t".to_owned()), tenant: None };
        Contexts { current: Some("dev".to_owned()), contexts: BTreeMap::from([("dev".to_owned(), dev)]) }
    }

    #[test]
    fn what_is_saved_is_loaded_and_private() {
        let directory = Directory::new();
        let path = directory.0.join("slipway/contexts.json");
        assert!(load(&path).unwrap() == Contexts::default());
        save(&path, &contexts()).unwrap();
        save(&path, &contexts()).unwrap();
        assert!(load(&path).unwrap() == contexts());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = Directory::new();
        let path = directory.0.join("contexts.json");
        save(&path, &contexts()).unwrap();
        for mode in [0o640, 0o604, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = load(&path).err().unwrap();
            assert!(matches!(error, Error::OpenToOthers { mode: seen, .. } if seen == mode), "{error}");
        }
    }

    #[test]
    fn nonsense_is_told_without_its_content() {
        let directory = Directory::new();
        let path = directory.0.join("contexts.json");
        save(&path, &contexts()).unwrap();
        fs::write(&path, r#"{"contexts":{"dev":{"api_url":"u","token":"swordfish","colour":"red"}}}"#)
            .unwrap();
        let error = load(&path).err().unwrap().explain();
        assert!(error.contains("unknown field `colour`"), "{error}");
        assert!(!error.contains("swordfish"), "{error}");
    }
}
