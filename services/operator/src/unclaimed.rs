//! Machines that run for databases of which there is no resource: found in the pictures of the account, counted and told once
//! each.

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

/// What is needed to say of a machine that nobody claims it.
#[derive(Clone)]
pub(crate) struct Claims {
    caches: Caches,
    watches: Watches,
    scope: Scope,
    settings: Settings,
    count: Gauge,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Found {
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
            count: register(metrics),
        }
    }

    /// Compares a picture with the resources that there are. Where those of a namespace cannot be seen, nothing is said of it.
    pub(crate) fn check(&self, found: &mut Found, picture: &Snapshot) {
        let is_seen =
            |namespace: &str| self.scope.covers(namespace) && self.watches.unseen(Some(namespace)).is_none();
        let briefs = self.caches.resources.briefs();
        // Of a cluster without machines nobody's identity is asked for.
        let known: LazyCell<HashSet<&str>, _> =
            LazyCell::new(|| briefs.iter().filter_map(|(_, brief)| brief.identity()).collect());
        let now =
            plan::unclaimed(&self.settings, picture.machines(), is_seen, |database| known.contains(database));
        let (confirmed, news) = found.take_in(picture.as_of(), now.into_iter().collect());
        for Unclaimed { machine, database, resource } in news {
            tracing::warn!(
                %machine,
                database,
                resource,
                "a machine runs for a database that no resource stands for, as when a finalizer is taken off by hand: \
                 make the resource again, with its identity, or terminate the machine; its disk stays in both cases"
            );
        }
        self.count.set(i64::try_from(confirmed).unwrap_or(i64::MAX));
    }
}

pub(crate) fn register(metrics: &Metrics) -> Gauge {
    let help = "Machines that run for databases of which there is no resource";
    metrics.register("slipway_machines_unclaimed", help, Gauge::default())
}

impl Found {
    /// How many two pictures in a row show, and which of them were not told yet: one that shows up once may be of a resource
    /// that is on its way out, or in.
    fn take_in(&mut self, as_of: Instant, now: BTreeSet<Unclaimed>) -> (usize, Vec<Unclaimed>) {
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
        (confirmed.len(), news)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cloud::InstanceId;

    use super::*;

    fn machines(ids: &[&str]) -> BTreeSet<Unclaimed> {
        let of = |id: &&str| Unclaimed {
            machine: InstanceId::new(*id),
            database: "d".to_owned(),
            resource: "n/a".to_owned(),
        };
        ids.iter().map(of).collect()
    }

    #[test]
    fn what_two_pictures_in_a_row_show_is_told_once() {
        let (mut found, begin) = (Found::default(), Instant::now());
        let mut take_in = |second: u64, ids: &[&str]| {
            let (count, news) = found.take_in(begin + Duration::from_secs(second), machines(ids));
            (count, news.into_iter().map(|one| one.machine.to_string()).collect::<Vec<_>>())
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
