//! Writes the files of a ConfigMap or Secret volume the way kubelet does: a new directory with all files, then one
//! rename of the link `..data`, so that a reader sees all old files or all new ones. Blocking.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::content::Files;

const DATA: &str = "..data";

/// Makes the directory hold exactly these files. Returns whether anything changed.
pub fn write(directory: &Path, files: &Files) -> io::Result<bool> {
    fs::create_dir_all(directory)?;
    let version = format!("..{}", fingerprint(files));
    let current = fs::read_link(directory.join(DATA)).ok();
    if current.as_deref() == Some(Path::new(&version)) {
        return Ok(false);
    }
    let target = directory.join(&version);
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    write_all(&target, files)?;
    let link = directory.join("..data_tmp");
    let _ = fs::remove_file(&link);
    symlink(&version, &link)?;
    // They lead through the link that is renamed: once that is there, nothing may be missing.
    link_names(directory, files)?;
    fs::rename(&link, directory.join(DATA))?;
    remove_stale(directory, &version, files)?;
    Ok(true)
}

fn write_all(target: &Path, files: &Files) -> io::Result<()> {
    fs::create_dir_all(target)?;
    fs::set_permissions(target, fs::Permissions::from_mode(0o755))?;
    for (path, file) in files {
        let path = target.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    Ok(())
}

/// The first part of each path, as a link into `..data`.
fn link_names(directory: &Path, files: &Files) -> io::Result<()> {
    for name in names(files) {
        let link = directory.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link)?;
        }
    }
    Ok(())
}

fn remove_stale(directory: &Path, version: &str, files: &Files) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name == DATA || name == version || names(files).any(|wanted| wanted == name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn names(files: &Files) -> impl Iterator<Item = &str> {
    files.keys().map(|path| path.split('/').next().unwrap_or(path))
}

fn fingerprint(files: &Files) -> String {
    let mut hash = Sha256::new();
    for (path, file) in files {
        hash.update(path.as_bytes());
        hash.update([0]);
        hash.update(file.mode.to_be_bytes());
        hash.update(file.bytes.len().to_be_bytes());
        hash.update(&file.bytes);
    }
    hex::encode(&hash.finalize()[..12])
}

#[cfg(test)]
mod tests {
    use super::super::content::File;
    use super::*;

    fn files(list: &[(&str, &str, u32)]) -> Files {
        let file = |(path, text, mode): &(&str, &str, u32)| {
            ((*path).to_owned(), File { bytes: text.as_bytes().to_vec(), mode: *mode })
        };
        list.iter().map(file).collect()
    }

    #[test]
    fn files_come_change_and_go_in_one_step() {
        let directory = std::env::temp_dir().join(format!("node-agent-writer-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        assert!(write(&directory, &files(&[("a", "1", 0o644), ("deep/b", "2", 0o400)])).unwrap());
        assert_eq!(fs::read_to_string(directory.join("deep/b")).unwrap(), "2");
        let mode = fs::metadata(directory.join("deep/b")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o400);
        let before = fs::read_link(directory.join(DATA)).unwrap();
        assert!(!write(&directory, &files(&[("a", "1", 0o644), ("deep/b", "2", 0o400)])).unwrap());
        assert_eq!(fs::read_link(directory.join(DATA)).unwrap(), before);

        assert!(write(&directory, &files(&[("a", "3", 0o644)])).unwrap());
        assert_eq!(fs::read_to_string(directory.join("a")).unwrap(), "3");
        assert!(!directory.join("deep").exists());
        let mut left: Vec<_> =
            fs::read_dir(&directory).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left.len(), 3, "{left:?}");
        fs::remove_dir_all(directory).unwrap();
    }
}
