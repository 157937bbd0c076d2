//! A lock between processes: an advisory lock on a file, waited for with a deadline.
//!
//! The kernel lets go of it when its holder ends, however it ends, so a lock is never left behind. The file itself stays;
//! it holds the id of the process that took the lock last, for the messages of those who wait.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::error::Error;

/// How often a waiting process looks again. Nobody notices so short a wait after minutes of building.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock at `path`. `waiting` is told once, with the holder's process id, if somebody else has it.
pub(crate) fn acquire(path: &Path, deadline: Duration, waiting: &dyn Fn(&str)) -> Result<Lock, Error> {
    let since = Instant::now();
    let mut told = false;
    loop {
        if let Some(lock) = attempt(path).map_err(|source| prepare(path, source))? {
            return Ok(lock);
        }
        let holder = holder(path);
        if since.elapsed() >= deadline {
            return Err(Error::Lock { path: path.to_owned(), holder, waited: deadline });
        }
        if !told {
            waiting(&holder);
            told = true;
        }
        thread::sleep(LOOK_AGAIN.min(deadline));
    }
}

fn attempt(path: &Path) -> io::Result<Option<Lock>> {
    let file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The cache may be deleted at any time, even between two of our looks.
            fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new(".")))?;
            open(path)?
        }
        other => other?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    if !is_still_at(&file, path)? {
        return Ok(None);
    }
    let mut file = file;
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(Some(Lock { _file: file }))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Somebody may have deleted the file and others may by now lock a new one of that name: ours then protects nothing.
fn is_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok(there.ino() == ours.ino() && there.dev() == ours.dev()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn holder(path: &Path) -> String {
    fs::read_to_string(path).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

fn prepare(path: &Path, source: io::Error) -> Error {
    Error::Prepare { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::install::scratch::Scratch;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn only_one_holds_it_at_a_time() {
        let scratch = Scratch::new();
        let path = scratch.path().join("locks/thing");
        let inside = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let enter = || {
            let lock = acquire(&path, LONG, &|_| {}).unwrap();
            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(lock);
        };
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(enter)));
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn gives_up_at_the_deadline_and_names_the_holder() {
        let scratch = Scratch::new();
        let path = scratch.path().join("thing");
        let held = acquire(&path, LONG, &|_| {}).unwrap();
        let told = AtomicUsize::new(0);
        let refused = acquire(&path, Duration::from_millis(1), &|holder| {
            assert_eq!(holder, std::process::id().to_string());
            told.fetch_add(1, Ordering::SeqCst);
        });
        let Err(Error::Lock { holder, .. }) = refused else {
            panic!("the lock was given twice: {refused:?}");
        };
        assert_eq!(holder, std::process::id().to_string());
        assert_eq!(told.load(Ordering::SeqCst), 1);
        drop(held);
        acquire(&path, Duration::ZERO, &|_| {}).unwrap();
    }

    #[test]
    fn a_lock_whose_file_was_deleted_does_not_hinder_the_next() {
        let scratch = Scratch::new();
        let path = scratch.path().join("locks/thing");
        let old = acquire(&path, LONG, &|_| {}).unwrap();
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        let new = acquire(&path, Duration::ZERO, &|_| {}).unwrap();
        drop(old);
        assert!(acquire(&path, Duration::ZERO, &|_| {}).is_err(), "the new one is held by nobody else");
        drop(new);
        acquire(&path, Duration::ZERO, &|_| {}).unwrap();
    }

    #[test]
    fn a_file_that_was_replaced_is_not_the_one_that_was_opened() {
        let scratch = Scratch::new();
        let path = scratch.path().join("thing");
        let file = open(&path).unwrap();
        assert!(is_still_at(&file, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_still_at(&file, &path).unwrap());
        fs::write(&path, "").unwrap();
        assert!(!is_still_at(&file, &path).unwrap());
    }
}
