//! Machines that run for databases of which there is no resource, and firewalls of such: found in the pictures of the account, counted
//! and told once each.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use cloud::Snapshot;
use plan::{Settings, Unclaimed};
use runtime::Metrics;
use runtime::prometheus_client::metrics::gauge::Gauge;

use crate::caches::Caches;
use crate::scope::Scope;
use crate::watch::{Upkeep, Watches};

/// What is needed to say of a machine or a firewall that nobody claims it.
#[derive(Clone)]
pub(crate) struct Claims {
    caches: Caches,
    watches: Watches,
    scope: Scope,
    settings: Settings,
    counts: Counts,
}

/// How many there are.
#[derive(Clone)]
pub(crate) struct Counts {
    machines: Gauge,
    firewalls: Gauge,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Found {
    machines: Shown,
    firewalls: Shown,
}

/// The same of one of the two.
#[derive(Debug, Default)]
struct Shown {
    /// By the last picture, which was of this moment.
    last: Option<(Instant, BTreeSet<Unclaimed>)>,
    told: BTreeSet<Unclaimed>,
}

impl Claims {
    pub(crate) fn new(metrics: &Metrics, upkeep: &Upkeep, (caches, settings): (&Caches, Settings)) -> Self {
        Self {
            caches: caches.clone(),
            watches: upkeep.watches.clone(),
            scope: upkeep.scope.clone(),
            settings,
            counts: register(metrics),
        }
    }

    /// Compares a picture with the resources that there are. Where those of a namespace cannot be seen, nothing is said of it.
    pub(crate) fn check(&self, found: &mut Found, picture: &Snapshot) {
        let is_seen =
            |namespace: &str| self.scope.covers(namespace) && self.watches.unseen(Some(namespace)).is_none();
        let briefs = self.caches.resources.briefs();
        // Of a cluster without either nobody's identity is asked for.
        let known: LazyCell<HashSet<&str>, _> =
            LazyCell::new(|| briefs.iter().filter_map(|(_, brief)| brief.identity()).collect());
        let is_known = |database: &str| known.contains(database);
        let machines = plan::unclaimed(&self.settings, picture.machines(), is_seen, is_known);
        let firewalls = plan::unclaimed_firewalls(&self.settings, picture.firewalls(), is_seen, is_known);
        let (count, news) = found.machines.take_in(picture.as_of(), machines);
        for Unclaimed { id, database, resource } in news {
            tracing::warn!(
                machine = id,
                database,
                resource,
                "a machine runs for a database that no resource stands for, as when a finalizer is taken off by hand: \
                 make the resource again, with its identity, or terminate the machine; its disk stays in both cases"
            );
        }
        self.counts.machines.set(count);
        let (count, news) = found.firewalls.take_in(picture.as_of(), firewalls);
        for Unclaimed { id, database, resource } in news {
            tracing::warn!(
                firewall = id,
                database,
                resource,
                "a firewall is left of a database without a resource, as when a finalizer is taken off by hand, and its disk and \
                 the records of its name may be, too: make the resource again, with its identity, or delete them"
            );
        }
        self.counts.firewalls.set(count);
    }
}

pub(crate) fn register(metrics: &Metrics) -> Counts {
    let machines = "Machines that run for databases of which there is no resource";
    let firewalls = "Security groups of databases of which there is no resource";
    Counts {
        machines: metrics.register("slipway_machines_unclaimed", machines, Gauge::default()),
        firewalls: metrics.register("slipway_firewalls_unclaimed", firewalls, Gauge::default()),
    }
}

impl Shown {
    /// How many two pictures in a row show, and which of them were not told yet: one that shows up once may be of a resource
    /// that is on its way out, or in.
    fn take_in(&mut self, as_of: Instant, now: Vec<Unclaimed>) -> (i64, Vec<Unclaimed>) {
        let now: BTreeSet<Unclaimed> = now.into_iter().collect();
        let confirmed: BTreeSet<Unclaimed> = match &self.last {
            Some((before, last)) if *before < as_of => now.intersection(last).cloned().collect(),
            // The very picture of before tells nothing new.
            Some((_, last)) => {
                now.intersection(last).filter(|one| self.told.contains(one)).cloned().collect()
            }
            None => BTreeSet::new(),
        };
        let news = confirmed.difference(&self.told).cloned().collect();
        self.last = Some((as_of, now));
        self.told.clone_from(&confirmed);
        (i64::try_from(confirmed.len()).unwrap_or(i64::MAX), news)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn machines(ids: &[&str]) -> Vec<Unclaimed> {
        let of = |id: &&str| Unclaimed {
            id: (*id).to_owned(),
            database: "d".to_owned(),
            resource: "n/a".to_owned(),
        };
        ids.iter().map(of).collect()
    }

    #[test]
    fn what_two_pictures_in_a_row_show_is_told_once() {
        let (mut found, begin) = (Shown::default(), Instant::now());
        let mut take_in = |second: u64, ids: &[&str]| {
            let (count, news) = found.take_in(begin + Duration::from_secs(second), machines(ids));
            (count, news.into_iter().map(|one| one.id).collect::<Vec<_>>())
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(take_in(0, &["i-1"]), (0, none.clone()), "it may be gone by the next");
        assert_eq!(take_in(0, &["i-1"]), (0, none.clone()), "the same picture");
        assert_eq!(take_in(1, &["i-1", "i-2"]), (1, vec!["i-1".to_owned()]));
        assert_eq!(take_in(1, &["i-1", "i-2"]), (1, none.clone()));
        assert_eq!(take_in(2, &["i-1", "i-2"]), (2, vec!["i-2".to_owned()]));
        assert_eq!(take_in(3, &["i-2"]), (1, none.clone()));
        assert_eq!(take_in(4, &[]), (0, none.clone()));
        assert_eq!(take_in(5, &["i-2"]), (0, none));
        assert_eq!(take_in(6, &["i-2"]), (1, vec!["i-2".to_owned()]), "it came back");
    }
}
