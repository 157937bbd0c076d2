//! Places in a program at which a test can hold it or let it die. Compiled out of release builds: there a place costs
//! nothing and nothing can be armed.
//!
//! Tests in the same process use [`arm`]; a program of its own is told by the variable `SLIPWAY_FAILPOINTS`, entries
//! parted by `;`, each `NAME[/SUBJECT]=abort|hold[@N],FILE`: the place acts at its Nth passing (the first by default) of
//! that subject (any by default), and makes FILE just before, so that a test knows that its fault fired; `hold` goes on
//! as soon as FILE is gone again. `NAME/BEGINNING=each,FOLDER` dies at the first passing of each subject that begins like
//! this, and leaves a file of the subject's name: the next process passes that and dies at another.

use std::fmt::Display;

#[cfg(all(debug_assertions, for_release))]
compile_error!(
    "a release with debug assertions would have failpoints: whoever starts it could let it die anywhere"
);

#[cfg(debug_assertions)]
pub use points::{Action, Armed, arm};

/// Passes the place `name` about `subject`. Does nothing unless a test armed it.
pub async fn hit(name: &'static str, subject: impl Display) {
    #[cfg(debug_assertions)]
    points::hit(name, &subject).await;
    #[cfg(not(debug_assertions))]
    let _ = (name, subject);
}

/// Arms what the environment asks for. For the start of a program.
pub(crate) fn from_environment() {
    #[cfg(debug_assertions)]
    points::from_environment();
}

#[cfg(debug_assertions)]
mod points {
    use std::fmt::Display;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::sync::watch;

    use crate::lock;

    const VARIABLE: &str = "SLIPWAY_FAILPOINTS";
    /// How often it is looked whether the file of a held place is gone.
    const LOOK: Duration = Duration::from_millis(50);

    static POINTS: Mutex<Vec<Arc<Point>>> = Mutex::new(Vec::new());
    /// Whether there were ever points, so that passing costs one load where there are none.
    static ANY: AtomicBool = AtomicBool::new(false);

    /// What a place does to who passes it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Action {
        /// The process dies at once, without any cleaning up.
        Abort,
        /// The same, once for each subject that begins like the one it is told.
        Each,
        /// Whoever passes waits until released.
        Hold,
        /// Whoever passes panics. For tests in the same process.
        Panic,
    }

    /// Where, of whom, when, what.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Order {
        name: String,
        subject: Option<String>,
        action: Action,
        /// At which passing; 1 is the first.
        passing: u32,
        /// Its mark, or the folder of all of them.
        file: Option<PathBuf>,
    }

    #[derive(Debug)]
    struct Point {
        order: Order,
        passed: Mutex<u32>,
        fired: watch::Sender<bool>,
        released: watch::Sender<bool>,
    }

    /// An armed place: dropped, it is disarmed and lets go of whom it holds.
    #[derive(Debug)]
    pub struct Armed(Arc<Point>);

    impl Armed {
        /// Waits until somebody is held here.
        pub async fn fired(&self) {
            // The sender lives in the same point, so it cannot be gone.
            let _ = self.0.fired.subscribe().wait_for(|fired| *fired).await;
        }

        /// Lets go of whom it holds.
        pub fn release(&self) {
            self.0.released.send_replace(true);
        }
    }

    impl Drop for Armed {
        fn drop(&mut self) {
            self.release();
            lock(&POINTS).retain(|point| !Arc::ptr_eq(point, &self.0));
        }
    }

    /// Arms a place for its first passing by `subject`.
    pub fn arm(name: &str, subject: impl Display, action: Action) -> Armed {
        let (name, subject) = (name.to_owned(), Some(subject.to_string()));
        Armed(add(Order { name, subject, action, passing: 1, file: None }))
    }

    fn add(order: Order) -> Arc<Point> {
        let (fired, released) = (watch::Sender::new(false), watch::Sender::new(false));
        let point = Arc::new(Point { order, passed: Mutex::new(0), fired, released });
        lock(&POINTS).push(Arc::clone(&point));
        ANY.store(true, Ordering::Release);
        point
    }

    pub(super) async fn hit(name: &'static str, subject: &impl Display) {
        if !ANY.load(Ordering::Acquire) {
            return;
        }
        let subject = subject.to_string();
        let found = lock(&POINTS).iter().find(|point| point.is_met_by(name, &subject)).cloned();
        if let Some(point) = found {
            point.act(&subject).await;
        }
    }

    impl Order {
        /// Whether it is about this place and subject.
        fn means(&self, name: &str, subject: &str) -> bool {
            let is_one = |wanted: &String| match self.action {
                Action::Each => subject.starts_with(wanted.as_str()),
                _ => wanted == subject,
            };
            self.name == name && self.subject.as_ref().is_none_or(is_one)
        }

        /// The file that tells that somebody came by.
        fn mark(&self, subject: &str) -> Option<PathBuf> {
            let file = self.file.as_ref()?;
            Some(if self.action == Action::Each { file.join(subject) } else { file.clone() })
        }
    }

    impl Point {
        /// Counts a passing; whether it is the one.
        fn is_met_by(&self, name: &str, subject: &str) -> bool {
            let order = &self.order;
            if !order.means(name, subject) {
                return false;
            }
            if order.action == Action::Each {
                return order.mark(subject).is_some_and(|mark| !mark.exists());
            }
            let mut passed = lock(&self.passed);
            *passed = passed.saturating_add(1);
            *passed == order.passing
        }

        async fn act(&self, subject: &str) {
            tracing::warn!(failpoint = self.order.name, action = ?self.order.action, subject, "failpoint fired");
            let mark = self.order.mark(subject);
            if let Some(file) = &mark
                && let Err(error) = std::fs::write(file, self.order.name.as_bytes())
            {
                tracing::error!(failpoint = self.order.name, "cannot leave its mark: {error}");
            }
            self.fired.send_replace(true);
            match (self.order.action, &mark) {
                (Action::Abort | Action::Each, _) => std::process::abort(),
                (Action::Panic, _) => std::panic::resume_unwind(Box::new("a failpoint")),
                (Action::Hold, Some(file)) => until_gone(file).await,
                (Action::Hold, None) => {
                    let _ = self.released.subscribe().wait_for(|released| *released).await;
                }
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "not configuration: release builds do not have it")]
    pub(super) fn from_environment() {
        let Ok(text) = std::env::var(VARIABLE) else { return };
        for entry in text.split(';').filter(|entry| !entry.is_empty()) {
            if let Some(order) = parse(entry) {
                tracing::warn!(failpoint = order.name, "failpoint armed");
                add(order);
            } else {
                tracing::error!("{VARIABLE}: {entry:?} is not NAME[/SUBJECT]=abort|each|hold[@N],FILE");
            }
        }
    }

    async fn until_gone(file: &Path) {
        while file.exists() {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn parse(entry: &str) -> Option<Order> {
        let (place, what) = entry.split_once('=')?;
        let (what, file) = what.split_once(',')?;
        let (action, passing) = what.split_once('@').unwrap_or((what, "1"));
        let (name, subject) = place.split_once('/').map_or((place, None), |(name, of)| (name, Some(of)));
        let action = match action {
            "abort" => Action::Abort,
            "each" => Action::Each,
            "hold" => Action::Hold,
            _ => return None,
        };
        let (name, subject) = (name.to_owned(), subject.map(ToOwned::to_owned));
        Some(Order { name, subject, action, passing: passing.parse().ok()?, file: Some(file.into()) })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn orders_are_read() {
            let order = parse("drain.applied/some-id=hold@3,mark").unwrap();
            assert_eq!(order.name, "drain.applied");
            assert_eq!(order.subject.as_deref(), Some("some-id"));
            assert_eq!((order.action, order.passing), (Action::Hold, 3));
            assert_eq!(order.file, Some("mark".into()));
            let order = parse("here=abort,m").unwrap();
            assert_eq!((order.subject, order.action, order.passing), (None, Action::Abort, 1));
            for bad in ["", "here", "here=abort", "here=explode,m", "here=abort@x,m"] {
                assert_eq!(parse(bad), None, "{bad}");
            }
        }

        #[test]
        fn an_order_for_each_means_all_that_begin_alike_once() {
            let folder = std::env::temp_dir().join(format!("failpoint-{}", std::process::id()));
            std::fs::create_dir(&folder).unwrap();
            let order = parse(&format!("tests.kind/db:1:=each,{}", folder.display())).unwrap();
            assert_eq!(order.mark("db:1:Apply"), Some(folder.join("db:1:Apply")));
            let (fired, released) = (watch::Sender::new(false), watch::Sender::new(false));
            let point = Point { order, passed: Mutex::new(0), fired, released };
            let met = |subject: &str| point.is_met_by("tests.kind", subject);
            assert!(met("db:1:Apply") && met("db:1:Delete"));
            assert!(
                !met("db:11:Apply") && !met("other:1:Apply") && !point.is_met_by("tests.else", "db:1:Apply")
            );
            std::fs::write(folder.join("db:1:Apply"), "").unwrap();
            assert!(!met("db:1:Apply") && met("db:1:Delete"), "what left its mark is passed");
            std::fs::remove_dir_all(&folder).unwrap();
        }

        #[tokio::test]
        async fn an_armed_place_holds_its_subject_once_and_nobody_else() {
            let armed = arm("tests.place", "one", Action::Hold);
            hit("tests.place", &"two").await;
            hit("tests.other", &"one").await;
            let held = tokio::spawn(hit("tests.place", &"one"));
            armed.fired().await;
            assert!(!held.is_finished());
            hit("tests.place", &"one").await;
            armed.release();
            held.await.unwrap();
        }

        #[tokio::test]
        async fn a_dropped_place_lets_go() {
            let armed = arm("tests.dropped", 1, Action::Hold);
            let held = tokio::spawn(hit("tests.dropped", &1));
            armed.fired().await;
            drop(armed);
            held.await.unwrap();
            hit("tests.dropped", &1).await;
        }
    }
}
