//! The cache: a directory outside the tree with one entry for each version of each server.
//!
//! ```text
//! <cache>/etcd-3.6.10/            an entry: complete, or not there
//! <cache>/etcd-3.6.10/installed   its stamp: what it was made from
//! <cache>/.partial/<key>.<pid>/   an entry in the making; never read
//! <cache>/.locks/<name>           see `lock`
//! <cache>/.logs/<key>.log         what the last attempt wrote
//! ```
//!
//! *Invariant:* an entry appears by one rename, after its content has been checked and is on disk. So whatever has the
//! name of an entry and its stamp is complete, and all may be deleted at any time: the next run makes it again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::Error;
use super::lock;

/// The stamp's file name inside an entry.
const STAMP: &str = "installed";
/// Longer than the slowest installation on a slow machine, so that reaching it means that something hangs.
const LOCK_DEADLINE: Duration = Duration::from_mins(45);

/// Where installed servers are kept.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// One entry of the cache: its name, what it is made from, and what must be in it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Name of the directory, with the version.
    pub(crate) key: String,
    /// The step in words, for people.
    pub(crate) step: String,
    /// Entries that must not be made at the same time share a lock.
    pub(crate) lock: String,
    /// Changes when the recipe changes although the version does not.
    pub(crate) stamp: String,
    /// Files without which the entry is of no use, relative to it.
    pub(crate) files: Vec<PathBuf>,
}

impl Cache {
    /// A cache at `root`, which need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The cache at `given`, or at the usual place below the home directory.
    pub fn locate(given: Option<PathBuf>) -> Result<Self, Error> {
        match given {
            Some(root) => Ok(Self { root }),
            None => std::env::home_dir()
                .map(|home| Self::at(home.join(".cache/slipway")))
                .ok_or(Error::LocateCache),
        }
    }

    /// The directory of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn directory(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    pub(crate) fn lock_file(&self, name: &str) -> PathBuf {
        self.root.join(".locks").join(name)
    }

    /// The log of an entry's last attempt, emptied for a new one.
    pub(crate) fn fresh_log(&self, key: &str) -> Result<PathBuf, Error> {
        let path = self.root.join(".logs").join(format!("{key}.log"));
        create_directory(path.parent().unwrap_or(&self.root))?;
        File::create(&path).map_err(|source| prepare(&path, source))?;
        Ok(path)
    }

    /// Whether the entry is there and complete. Costs a few looks at the file system and nothing else.
    pub(crate) fn is_ready(&self, entry: &Entry) -> bool {
        let directory = self.directory(&entry.key);
        fs::read_to_string(directory.join(STAMP)).is_ok_and(|stamp| stamp == entry.stamp)
            && missing_file(&directory, &entry.files).is_none()
    }

    /// Makes the entry unless it is there: `build` fills an empty directory, which then takes its place at once.
    ///
    /// Returns whether anything was made; another process may have made it while we waited for its lock.
    pub(crate) fn install(
        &self,
        entry: &Entry,
        waiting: &dyn Fn(&str),
        build: &dyn Fn(&Path) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let _lock = lock::acquire(&self.lock_file(&entry.lock), LOCK_DEADLINE, waiting)?;
        if self.is_ready(entry) {
            return Ok(false);
        }
        let partial = self.fresh_partial(&entry.key)?;
        let made = build(&partial).and_then(|()| self.publish(entry, &partial));
        if made.is_err() {
            // Best effort: what stays is removed by the next attempt, and is never read.
            let _ = fs::remove_dir_all(&partial);
        }
        made.map(|()| true)
    }

    /// An empty directory to build in. We hold the lock, so others of this entry were left by processes that died.
    fn fresh_partial(&self, key: &str) -> Result<PathBuf, Error> {
        let parent = self.root.join(".partial");
        create_directory(&parent)?;
        let path = parent.join(format!("{key}.{}", std::process::id()));
        remove_directory(&path)?;
        for name in names_in(&parent)? {
            let left_over = name.rsplit_once('.').is_some_and(|(stem, _)| stem == key);
            if left_over {
                // Best effort: a child of the dead process may still write there, which hinders nobody.
                let _ = fs::remove_dir_all(parent.join(name));
            }
        }
        create_directory(&path)?;
        Ok(path)
    }

    fn publish(&self, entry: &Entry, partial: &Path) -> Result<(), Error> {
        if let Some(path) = missing_file(partial, &entry.files) {
            return Err(Error::Incomplete { step: entry.step.clone(), path });
        }
        let stamp = partial.join(STAMP);
        fs::write(&stamp, &entry.stamp).map_err(|source| prepare(&stamp, source))?;
        flush(partial)?;
        let place = self.directory(&entry.key);
        self.clear(&entry.key)?;
        fs::rename(partial, &place).map_err(|source| prepare(&place, source))
    }

    /// Moves an outdated or damaged entry out of the way before it is deleted, so that nobody meets half of it.
    fn clear(&self, key: &str) -> Result<(), Error> {
        let place = self.directory(key);
        let name = format!("{key}.{}-old", std::process::id());
        let aside = self.root.join(".partial").join(name);
        match fs::rename(&place, &aside) {
            Ok(()) => remove_directory(&aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(prepare(&place, source)),
        }
    }
}

/// A short name for what something is made from. Stable across releases of the compiler, unlike the standard hasher.
/// (FNV-1a: it tells recipes apart; it does not protect against anybody.)
pub(crate) fn fingerprint(parts: &[&str]) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = parts
        .iter()
        .flat_map(|part| part.bytes().chain([0x1f]))
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

pub(crate) fn create_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|source| prepare(path, source))
}

pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| prepare(path, source))
}

fn remove_directory(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| prepare(path, source)),
    }
}

fn names_in(path: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(path).map_err(|source| prepare(path, source))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

fn missing_file(directory: &Path, files: &[PathBuf]) -> Option<PathBuf> {
    files.iter().map(|file| directory.join(file)).find(|file| !file.is_file())
}

/// Without this a power cut after the rename could leave a complete-looking entry of empty files.
fn flush(path: &Path) -> Result<(), Error> {
    let directory = File::open(path).map_err(|source| prepare(path, source))?;
    nix::unistd::syncfs(&directory).map_err(|errno| prepare(path, errno.into()))
}

fn prepare(path: &Path, source: io::Error) -> Error {
    Error::Prepare { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::install::scratch::Scratch;

    fn entry(stamp: &str) -> Entry {
        Entry {
            key: "thing-1.0".to_owned(),
            step: "thing 1.0".to_owned(),
            lock: "thing-1.0".to_owned(),
            stamp: stamp.to_owned(),
            files: vec![PathBuf::from("bin/thing")],
        }
    }

    fn fill(content: &'static str) -> impl Fn(&Path) -> Result<(), Error> {
        move |directory| {
            create_directory(&directory.join("bin"))?;
            write_file(&directory.join("bin/thing"), content)
        }
    }

    fn content(cache: &Cache) -> String {
        fs::read_to_string(cache.directory("thing-1.0").join("bin/thing")).unwrap()
    }

    fn partials(cache: &Cache) -> Vec<String> {
        names_in(&cache.root().join(".partial")).unwrap()
    }

    #[test]
    fn an_entry_is_made_once() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        assert!(!cache.is_ready(&entry("a")));
        assert!(cache.install(&entry("a"), &|_| {}, &fill("one")).unwrap());
        assert!(cache.is_ready(&entry("a")));
        assert!(!cache.install(&entry("a"), &|_| {}, &fill("two")).unwrap());
        assert_eq!(content(&cache), "one");
        assert!(partials(&cache).is_empty());
    }

    #[test]
    fn a_failed_build_leaves_no_entry_and_no_rubbish() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        let refused = cache.install(&entry("a"), &|_| {}, &|directory| {
            fill("half")(directory)?;
            Err(Error::LocateCache)
        });
        assert!(matches!(refused, Err(Error::LocateCache)));
        assert!(!cache.directory("thing-1.0").exists());
        assert!(partials(&cache).is_empty());
    }

    #[test]
    fn a_build_that_forgot_a_file_is_refused() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        let refused = cache.install(&entry("a"), &|_| {}, &|_| Ok(()));
        let Err(Error::Incomplete { path, .. }) = refused else {
            panic!("an empty entry was accepted: {refused:?}");
        };
        assert!(path.ends_with("bin/thing"));
        assert!(!cache.directory("thing-1.0").exists());
    }

    #[test]
    fn while_it_is_built_nothing_stands_at_its_place() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        cache
            .install(&entry("a"), &|_| {}, &|directory| {
                fill("one")(directory)?;
                assert!(!cache.is_ready(&entry("a")));
                assert!(!cache.directory("thing-1.0").exists());
                Ok(())
            })
            .unwrap();
        assert_eq!(content(&cache), "one");
    }

    #[test]
    fn what_a_killed_process_left_is_cleared_away() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        let parent = cache.root().join(".partial");
        fill("half")(&parent.join("thing-1.0.99999999")).unwrap();
        fill("other")(&parent.join("thing-1.0.1.5")).unwrap();
        cache
            .install(&entry("a"), &|_| {}, &|directory| {
                assert!(names_in(directory)?.is_empty());
                fill("one")(directory)
            })
            .unwrap();
        assert_eq!(partials(&cache), ["thing-1.0.1.5"], "only what is of this entry");
        assert_eq!(content(&cache), "one");
    }

    #[test]
    fn a_changed_recipe_or_a_lost_file_makes_it_again() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        cache.install(&entry("a"), &|_| {}, &fill("one")).unwrap();
        assert!(!cache.is_ready(&entry("b")));
        assert!(cache.install(&entry("b"), &|_| {}, &fill("two")).unwrap());
        assert_eq!(content(&cache), "two");

        fs::remove_file(cache.directory("thing-1.0").join("bin/thing")).unwrap();
        assert!(!cache.is_ready(&entry("b")));
        assert!(cache.install(&entry("b"), &|_| {}, &fill("three")).unwrap());
        assert_eq!(content(&cache), "three");
        assert!(partials(&cache).is_empty());
    }

    #[test]
    fn an_entry_without_a_stamp_is_not_taken_for_complete() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        fill("by hand")(&cache.directory("thing-1.0")).unwrap();
        assert!(!cache.is_ready(&entry("a")));
        assert!(cache.install(&entry("a"), &|_| {}, &fill("one")).unwrap());
        assert_eq!(content(&cache), "one");
    }

    #[test]
    fn of_many_at_once_one_builds_and_all_find_it() {
        let scratch = Scratch::new();
        let cache = Cache::at(scratch.path());
        let builds = AtomicUsize::new(0);
        let run = || {
            let build = |directory: &Path| {
                builds.fetch_add(1, Ordering::SeqCst);
                fill("one")(directory)
            };
            cache.install(&entry("a"), &|_| {}, &build).unwrap();
            assert!(cache.is_ready(&entry("a")));
        };
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(run)));
        });
        assert_eq!(builds.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_fingerprint_depends_on_every_part_and_their_borders() {
        assert_eq!(fingerprint(&[]), "cbf29ce484222325");
        let all = [
            fingerprint(&["ab", "c"]),
            fingerprint(&["a", "bc"]),
            fingerprint(&["abc"]),
            fingerprint(&["abc", ""]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one), "{one} stands for two");
        }
        assert_eq!(fingerprint(&["ab", "c"]), all[0]);
    }
}
