//! Programs whose wall clocks are ten minutes wrong, each another way, and jump while they work: nothing is decided by them.

#![cfg(test)]

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use testkit::{Spawned, eventually};

use crate::rig::{PATIENCE, Rig};

/// Ten minutes.
const SKEW: i64 = 600;

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
struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    fn new(folder: &Path, name: &str) -> Self {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        if !library.exists() {
            std::fs::write(&source, LIBRARY).unwrap();
            let made = std::process::Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-o"])
                .args([&library, &source])
                .arg("-ldl")
                .output()
                .unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        let clock = Self { library, file: folder.join(format!("{name}.skew")) };
        std::fs::write(&clock.file, 0_i64.to_ne_bytes()).unwrap();
        clock
    }

    /// From now on it is wrong by so many seconds.
    fn jump(&self, seconds: i64) {
        // In place: the programs look at these very bytes.
        let file = std::fs::OpenOptions::new().write(true).open(&self.file).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCK_SKEW", &self.file)]
    }
}

impl Rig {
    /// Waits until something was said at a time that is wrong by about this.
    async fn said_at(&self, skew: i64) {
        let near = format!(
            "select count(*) from observations where abs(extract(epoch from said_at - received_at) - {skew}) < 60"
        );
        let what = format!("something said by a clock that is wrong by {skew} s");
        eventually(PATIENCE, &what, async || (self.ask(&near).await != "0").then_some(())).await;
    }

    async fn wrong(&self, program: &str, clock: &Clock) -> Spawned {
        let started = match program {
            "provisioner" => self.provisioner_by(&clock.environment()),
            roles => self.backend_by(roles, &clock.environment()),
        };
        started.ready().await;
        started
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_wrong_and_jump_decide_nothing() {
    let rig = Rig::new().await;
    let [early, late] = ["early", "late"].map(|name| Clock::new(&rig.folder, name));
    early.jump(-SKEW);
    late.jump(SKEW);
    let mut programs = vec![
        rig.wrong("api,relay,sink", &late).await,
        rig.wrong("relay,sink", &early).await,
        rig.wrong("provisioner", &early).await,
    ];
    let load = rig.load(121);
    load.goes_on(40).await;
    rig.said_at(-SKEW).await;
    // The other one speaks for the clusters now, and is late; then the clock of either jumps, there and back.
    programs.pop().unwrap().kill().await.unwrap();
    programs.push(rig.wrong("provisioner", &late).await);
    rig.said_at(SKEW).await;
    for (a, b) in [(SKEW, -SKEW), (0, SKEW), (-SKEW, 0)] {
        early.jump(a);
        late.jump(b);
        load.goes_on(30).await;
        rig.said_at(b).await;
        rig.recovery().await;
    }
    for program in &mut programs {
        program.lives().unwrap();
    }
    rig.proven(load, &[]).await;
}
