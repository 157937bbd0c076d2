//! A wall clock that is wrong: programs that are started with it see it so, and it jumps while they run. What measures lengths
//! of time stays as it is, as it does when somebody sets the clock of a machine.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// A library that is loaded before the system's own and moves the wall clock of its process by what a file says, at every
/// reading. What measures lengths of time stays as it is, as it does when somebody sets the clock of a machine.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
static volatile long long *skew;
static int (*real)(clockid_t, struct timespec *);
static int (*wait)(cnd_t *, mtx_t *, const struct timespec *);
__attribute__((constructor)) static void begin(void) {
    real = dlsym(RTLD_NEXT, "clock_gettime");
    wait = dlsym(RTLD_NEXT, "cnd_timedwait");
    int file = open(getenv("CLOCK_SKEW"), O_RDONLY);
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof *skew, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) abort();
    skew = map;
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real) begin();
    int result = real(clock, at);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += *skew;
    return result;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
int timespec_get(struct timespec *at, int base) {
    return clock_gettime(CLOCK_REALTIME, at) ? 0 : base;
}
int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until) {
    // The system compares with its own clock, which is not moved.
    struct timespec moved = *until;
    moved.tv_sec -= *skew;
    return wait(cond, mutex, &moved);
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The wall clock of some programs.
#[derive(Debug)]
pub struct WrongClock {
    library: PathBuf,
    file: PathBuf,
}

impl WrongClock {
    /// One that is right so far, under a name that is its own in a folder.
    ///
    /// # Errors
    /// When the library cannot be made, for want of a C compiler say.
    pub fn new(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let [source, library] = ["c", "so"].map(|end| folder.join(format!("{name}.clock.{end}")));
        std::fs::write(&source, LIBRARY).with_context(|| format!("writing {}", source.display()))?;
        let made = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .context("starting the C compiler")?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let clock = Self { library, file: folder.join(format!("{name}.skew")) };
        std::fs::write(&clock.file, 0_i64.to_ne_bytes())?;
        Ok(clock)
    }

    /// From now on it is wrong by so many seconds.
    ///
    /// # Errors
    /// When its file is gone.
    pub fn jump(&self, seconds: i64) -> anyhow::Result<()> {
        // In place: the programs look at these very bytes.
        let file = std::fs::OpenOptions::new().write(true).open(&self.file)?;
        Ok(file.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }

    /// What a program is started with to have it.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCK_SKEW", &self.file)]
    }
}
