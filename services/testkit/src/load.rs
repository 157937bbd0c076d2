//! Users at work: databases created, changed and deleted through the API by seeded choices, and a ledger of every change
//! that the API accepted.
//!
//! Each user has databases of its own and speaks of each in order, so that the ledger knows what should be. A request
//! that got no answer is asked about until it is known whether it was accepted: the ledger never guesses.

mod ledger;
mod user;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::task::JoinHandle;

pub use ledger::{Entry, Ledger, percentile};

use crate::{Console, Random, Readers};
use user::User;

/// How long the load may stand still.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);
/// Where it goes on for long, so many are accepted within that patience, again and again.
const STEP: usize = 10;

/// How much is asked for.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides every choice.
    pub seed: u64,
    /// Users at once.
    pub users: u64,
    /// Most databases of one user, living and deleted.
    pub databases: usize,
    /// Regions to choose from.
    pub regions: Vec<String>,
    /// Pause of a user between two requests.
    pub pause: Duration,
    /// How often in a hundred choices a database is deleted.
    pub deletes: u64,
    /// For how long a user asks again that is not answered.
    pub patience: Duration,
    /// Who follows the operation of each accepted change.
    pub readers: Option<Readers>,
}

impl Plan {
    /// Some users who are never idle for long; a test sets what it cares about.
    pub fn new(seed: u64, regions: &[&str]) -> Self {
        Self {
            seed,
            users: 6,
            databases: 8,
            regions: regions.iter().map(ToString::to_string).collect(),
            pause: Duration::from_millis(60),
            deletes: 12,
            patience: Duration::from_mins(3),
            readers: None,
        }
    }

    /// The same in a test whose fault lasts so long: users outwait it. At full length they have more databases and delete few of
    /// them, or each would soon have one left and none to add.
    #[must_use]
    pub fn during(self, fault: Duration) -> Self {
        let patience = self.patience + fault;
        if crate::at_full_length() {
            Self { databases: 60, deletes: 1, patience, ..self }
        } else {
            Self { patience, ..self }
        }
    }
}

/// Load that runs until it is stopped.
#[derive(Debug)]
pub struct Load {
    users: Vec<JoinHandle<anyhow::Result<Ledger>>>,
    shared: Arc<Shared>,
}

/// What the users of a load have in common.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    accepted: AtomicUsize,
    unanswered: AtomicUsize,
    /// What last kept each user from being answered, and when: told when the load does not go on.
    troubles: Mutex<BTreeMap<u64, (Instant, String)>>,
}

impl Shared {
    fn trouble(&self, user: u64, said: String) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(user, (Instant::now(), said));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, String)>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn troubles(&self) -> Vec<String> {
        let troubles = self.lock();
        let told = troubles
            .iter()
            .map(|(user, (when, said))| format!("user {user}, {:?} ago: {said}", when.elapsed()));
        told.collect()
    }
}

impl Load {
    /// Starts the users.
    pub fn start(console: &Console, plan: &Plan) -> Self {
        let shared = Arc::new(Shared::default());
        let users = (0..plan.users).map(|number| {
            // Any odd factor: the users' choices must only not be each other's.
            let random = Random::new(plan.seed.wrapping_mul(31).wrapping_add(number));
            let user = User::new(number, console.clone(), plan.clone(), random, Arc::clone(&shared));
            tokio::spawn(user.work())
        });
        Self { users: users.collect(), shared: Arc::clone(&shared) }
    }

    /// Changes accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How often a user got no answer, or one that says to come again: more than before means that users met a fault.
    pub fn unanswered(&self) -> usize {
        self.shared.unanswered.load(Ordering::Relaxed)
    }

    /// Waits until so many more were accepted: the load goes on, whatever was done meanwhile.
    ///
    /// # Panics
    /// When it does not: the message says what last kept each user.
    pub async fn goes_on(&self, more: usize) {
        let (begun, wanted) = (Instant::now(), self.accepted() + more);
        while self.accepted() < wanted {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} of {more} more changes were not accepted within {PATIENCE:?}: {:#?}",
                wanted - self.accepted(),
                self.shared.troubles()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits so long and until so many were accepted at least. However long that is, it never stops going on.
    ///
    /// # Panics
    /// When it does.
    pub async fn goes_on_for(&self, time: Duration, least: usize) {
        let begun = Instant::now();
        self.goes_on(least).await;
        while begun.elapsed() < time {
            self.goes_on(STEP).await;
        }
    }

    /// Ends it; gives what was accepted.
    ///
    /// # Errors
    /// When the API refused something, or could not be asked what became of a request.
    pub async fn stop(self) -> anyhow::Result<Ledger> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut whole = Ledger::default();
        for user in self.users {
            whole.merge(user.await.context("a user of the load")??);
        }
        Ok(whole)
    }
}
