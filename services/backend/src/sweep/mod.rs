//! The sweep: everything is compared again. What a cluster does not show although it was minted long enough ago is sent
//! again; what it shows although it was never minted is outranked; what is gone for good is taken out of it.
//!
//! Any number of replicas take turns, by the database's clock. *Invariant:* what is sent again or minted again in one
//! turn is bounded for all replicas together. *Invariant:* this only mints again and has tombstones of purged databases
//! removed: databases that nobody knows are shown to people and left alone. *Invariant:* a database that cannot be repaired
//! holds up no other. *Invariant:* a turn that fails or is cut off holds up nothing that lies behind: the next one goes on there.
//!
//! Other content at an equal position is reported and left: on the database with since when, among what is unclaimed, and in
//! the metric of what differs. Two hands wrote one position, or two versions of a program compute one hash differently;
//! from here the two look alike, and minting for the second would go round in a circle, each time above the last, with
//! nothing that would ever end it. The first needs no sweep: whoever asked for the state that lost is told so by the
//! refusal, the operation fails at once, and the way back is minted above both. What is left is for people (`on_failure:
//! keep`, a hash that changed), and the next change outranks it.

pub mod decide;
mod place;
mod repair;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use domain::{ClusterId, ClusterState, DatabaseId, Position, RunState};
use runtime::health::Heartbeat;
use runtime::{Backoff, CancellationToken};
use store::{Divergence, Listing, Store, Subject, Turn};
use tokio::sync::watch;

use self::decide::{Act, Lagging, Rules, Why, in_turn, is_all_told, is_listed, judge};
pub use self::place::Place;
use self::words::{failed, note, raised, told, unread};
use crate::doorbell::Doorbell;
use crate::metrics::Metrics;

/// Who asks for what the sweep mints.
pub(crate) const ACTOR: &str = "slipway:sweep";
/// Databases looked at in one statement.
pub const PAGE: u32 = 500;
/// Patience with one turn.
const DEADLINE: Duration = Duration::from_mins(2);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// How to sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How often everything is compared.
    pub period: Duration,
    /// Most databases that are sent or minted again in a turn.
    pub cap: u32,
    /// Databases looked at in one statement.
    pub page: u32,
    /// When something is late.
    pub rules: Rules,
}

/// Compares what was minted with what clusters show.
#[derive(Debug)]
pub struct Sweep {
    /// Both sides.
    pub store: Store,
    /// The topic whose dead letters are no instructions.
    pub gossip: String,
    /// Rung when there is something to publish.
    pub doorbell: Doorbell,
    /// What is counted.
    pub metrics: Metrics,
    /// How.
    pub settings: Settings,
}

/// What a turn did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Databases that were looked at.
    pub seen: usize,
    /// Databases whose divergence began, ended or became another.
    pub changed: u64,
    /// States that are published again.
    pub resent: u64,
    /// States that were minted again.
    pub repaired: u64,
    /// Tombstones whose removal was asked for.
    pub buried: u64,
    /// Databases of which nothing is left.
    pub purged: u64,
    /// Databases that others had locked: they are repaired in a later turn.
    pub busy: u64,
    /// Databases that cannot be read: they are not swept.
    pub unreadable: Vec<DatabaseId>,
    /// Databases that cannot be repaired, and why.
    pub unrepaired: BTreeMap<DatabaseId, String>,
}

/// Databases by what is to be done about them.
#[derive(Debug, Default)]
struct Due {
    resend: Vec<Lagging>,
    repair: Vec<(DatabaseId, Position)>,
    bury: Vec<(DatabaseId, Position)>,
    keep: Vec<DatabaseId>,
    purged: Vec<(DatabaseId, Position)>,
    unpurged: Vec<(DatabaseId, Position)>,
    diverged: Vec<(DatabaseId, Position, Option<Divergence>)>,
}

/// How long the sweep's loop may stand still.
pub(crate) fn silence(settings: &Settings) -> Duration {
    settings.period + DEADLINE * 3
}

impl Sweep {
    /// Sweeps until `stop`. `retention` takes the place of the one in the rules: it is as long as the topic really needs.
    pub async fn run(
        mut self,
        retention: watch::Receiver<Option<Duration>>,
        heartbeat: Heartbeat,
        stop: CancellationToken,
    ) {
        let mut retry = BACKOFF.start();
        let (mut place, mut unrepaired) = (Place::default(), BTreeMap::new());
        while !stop.is_cancelled() {
            heartbeat.beat();
            self.settings.rules.retention = *retention.borrow();
            self.measure().await;
            let whole = place.is_start();
            let turn = runtime::deadline(DEADLINE, "a turn of the sweep", self.step(&mut place)).await;
            let wait = match turn {
                Ok(Ok(tally)) => {
                    retry.reset();
                    told(tally, whole, &mut unrepaired);
                    // Twice a period, each replica at its own moment, so that no turn is missed by much.
                    self.settings.period.mul_f64(0.25 + 0.5 * runtime::backoff::random_share())
                }
                Ok(Err(error)) => failed(&error, &mut retry),
                Err(late) => failed(&late, &mut retry),
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// One turn, which goes on at `place`; `None` while it is not time, or another replica has it.
    pub async fn step(&self, place: &mut Place) -> Result<Option<Tally>, store::Error> {
        let Some(turn) = self.store.begin_sweep(self.settings.period).await? else { return Ok(None) };
        raised(&self.store.raise_terms().await?);
        let listings = self.listings().await?;
        let listings: BTreeMap<ClusterId, Listing> =
            listings.into_iter().map(|one| (one.cluster.clone(), one)).collect();
        let mut tally = Tally::default();
        // What an earlier turn found and did not send, because it was over or cut off by then: before its end this one may be, too.
        // Half of what may be sent is left for what this one finds.
        let kept = self.resend(turn, place, self.settings.cap.div_ceil(2), &mut tally).await;
        // Each whatever became of the others: what fails in one place for good is in nobody's way.
        let compared = self.compare(turn, &listings, place, &mut tally).await;
        let resent = self.resend(turn, place, self.settings.cap, &mut tally).await;
        let resolved = self.resolve(&listings).await;
        kept.and(compared).and(resent).and(resolved)?;
        Ok(Some(tally))
    }

    /// Looks at all that is left of a round.
    async fn compare(
        &self,
        turn: Turn,
        listings: &BTreeMap<ClusterId, Listing>,
        place: &mut Place,
        tally: &mut Tally,
    ) -> Result<(), store::Error> {
        loop {
            let page = place.begin();
            let batch = self.store.sweep_subjects(page.after, self.settings.page, &self.gossip).await?;
            place.read(page, batch.next);
            for (database, error) in &batch.unreadable {
                self.metrics.unreadable("databases");
                unread(*database, error);
                tally.unreadable.push(*database);
            }
            tally.seen += batch.subjects.len();
            let mut due = self.judge(&batch.subjects, listings);
            let judged = batch.subjects.iter().map(|subject| subject.database);
            // What cannot be read may be impossible to write as well, and all that is due is written together.
            let known = judged.chain(batch.unreadable.iter().map(|(database, _)| *database));
            place.judged(known, std::mem::take(&mut due.resend));
            self.act(turn, due, tally).await?;
            place.done(batch.next);
            if batch.next.is_none() {
                return Ok(());
            }
        }
    }

    /// Ends alarms whose reason is gone.
    async fn resolve(&self, listings: &BTreeMap<ClusterId, Listing>) -> Result<(), store::Error> {
        self.store.resolve_unclaimed().await?;
        let told = listings.values().filter(|listing| is_all_told(listing, &self.settings.rules));
        let told: Vec<_> = told.map(|listing| (&listing.cluster, listing.term)).collect();
        self.store.resolve_gone(&told).await?;
        Ok(())
    }

    /// What is known of the clusters' observers. Of a cluster that cannot be read nothing is known: its databases are left alone.
    async fn listings(&self) -> Result<Vec<Listing>, store::Error> {
        let mut listings = Vec::new();
        for listing in self.store.listings().await? {
            match listing {
                Ok(listing) => listings.push(listing),
                Err(error) => {
                    tracing::error!(reason = %error, "a cluster cannot be read: its databases are not swept");
                }
            }
        }
        Ok(listings)
    }

    fn judge(&self, subjects: &[Subject], listings: &BTreeMap<ClusterId, Listing>) -> Due {
        let mut due = Due::default();
        for subject in subjects {
            let judgement = judge(subject, listings.get(&subject.cluster), &self.settings.rules);
            let at = (subject.database, subject.minted);
            if judgement.diverged != subject.diverged {
                due.diverged.push((at.0, at.1, judgement.diverged));
                note(subject, judgement, due.diverged.len());
            }
            match judgement.act {
                Act::Leave(why) => self.metrics.left(judgement.diverged, why),
                Act::Resend => {
                    let is_purge = subject.run_state == RunState::Purged;
                    due.resend.push(Lagging { resent_ago: subject.resent_ago, is_purge, at });
                }
                Act::Repair => due.repair.push(at),
                Act::Bury => due.bury.push(at),
                Act::KeepTombstone => due.keep.push(subject.database),
                Act::MarkPurged => due.purged.push(at),
                Act::UnmarkPurged => due.unpurged.push(at),
            }
        }
        due
    }

    async fn act(&self, turn: Turn, due: Due, tally: &mut Tally) -> Result<(), store::Error> {
        let store = &self.store;
        if !due.diverged.is_empty() {
            tally.changed += store.mark_diverged(&due.diverged).await?;
        }
        for (database, judged) in due.repair {
            // Where nearly all are ahead, asking in vain for each of them would take the time of a turn, and of whatever else is due in it.
            if tally.repaired + tally.resent >= u64::from(self.settings.cap) {
                break;
            }
            self.try_repair(turn, (database, judged), tally).await?;
        }
        if !due.bury.is_empty() {
            tally.buried += store.bury(&due.bury).await?;
        }
        if !due.keep.is_empty() {
            store.keep_tombstones(&due.keep).await?;
        }
        if !due.purged.is_empty() {
            tally.purged += store.mark_purged(&due.purged).await?;
        }
        if !due.unpurged.is_empty() {
            store.unmark_purged(&due.unpurged).await?;
            tracing::error!(count = due.unpurged.len(), "purged databases show again: they are purged again");
        }
        if tally.repaired > 0 {
            self.doorbell.ring();
        }
        Ok(())
    }

    /// Has states published again, as many as the cap allows: of all that were compared at once, because there may be more.
    async fn resend(
        &self,
        turn: Turn,
        place: &mut Place,
        cap: u32,
        tally: &mut Tally,
    ) -> Result<(), store::Error> {
        let due = in_turn(place.lagging());
        if due.is_empty() {
            return Ok(());
        }
        let resent = self.store.resend(turn, cap, &due).await?;
        // Where another replica has begun the next turn meanwhile, nothing was sent: it is tried again with the next one's own cap.
        if resent > 0 {
            place.resent();
            self.doorbell.ring();
        }
        tally.resent += resent;
        self.metrics.resent.inc_by(resent);
        Ok(())
    }

    /// Shows how many databases differ, and of which clusters nobody knows what they hold.
    async fn measure(&self) {
        let asked = async { Ok((self.store.diverged_count().await?, self.listings().await?)) };
        let answer: Result<Result<_, store::Error>, _> =
            runtime::deadline(DEADLINE, "what differs", asked).await;
        match answer {
            Ok(Ok((diverged, listings))) => {
                self.metrics.diverged(&diverged);
                let listed = |one: &Listing| (one.cluster.to_string(), is_listed(one, &self.settings.rules));
                let served = listings.iter().filter(|one| one.state != ClusterState::Disabled);
                self.metrics.listed(served.map(listed));
            }
            Ok(Err(error)) => tracing::debug!(reason = runtime::telemetry::chain(&error), "not measured"),
            Err(late) => tracing::debug!(reason = %late, "not measured"),
        }
    }
}

impl Why {
    /// The word in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Report => "report",
            Self::Young => "young",
            Self::Unpublished => "unpublished",
            Self::Parked => "parked",
            Self::DeadLetter => "dead_letter",
            Self::SentAgain => "sent_again",
            Self::Disabled => "disabled",
            Self::Unlisted => "unlisted",
        }
    }
}
