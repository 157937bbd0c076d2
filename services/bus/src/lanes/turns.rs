//! Whose turn it is: classes by weight, tenants one after the other, groups bounded. Pure; knows keys by name only.
//!
//! Keys that are ready stand in flows, one for each class, tenant and group. A flow is *admitted* while its group has
//! room for it: then its tenant takes part in the round. Otherwise it waits with its group, first come, first served, so
//! that a group that is full costs nothing to those who look for work. *Invariant:* each flow that is not empty is
//! admitted or waits with its group, once. *Invariant:* flows of a class wait with their group only while those that run
//! and those of the class that are admitted fill its bound.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Class, Place};

/// So many keys of [`Class::Interactive`] go before one of [`Class::Bulk`], if both have some.
pub(super) const WEIGHT: u32 = 4;

/// Keys that are ready, in the order of their turns.
#[derive(Debug)]
pub(super) struct Turns {
    /// How many of a group may run at once.
    bound: usize,
    rounds: [Round; 2],
    groups: HashMap<Arc<str>, Group>,
    /// Interactive keys since the last bulk one.
    streak: u32,
}

/// The tenants of one class.
#[derive(Debug, Default)]
struct Round {
    tenants: HashMap<Arc<str>, Tenant>,
    /// Tenants with admitted flows, each once.
    order: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct Tenant {
    /// Keys by group.
    flows: HashMap<Arc<str>, VecDeque<Arc<str>>>,
    /// Groups whose flow is admitted, each once.
    admitted: VecDeque<Arc<str>>,
    /// Whether the tenant stands in the order of the round.
    queued: bool,
}

#[derive(Debug, Default)]
struct Group {
    running: usize,
    /// Flows admitted, by class.
    admitted: [usize; 2],
    /// Tenants whose flow waits for room, by class.
    waiting: [VecDeque<Arc<str>>; 2],
}

impl Group {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.admitted == [0, 0] && self.waiting.iter().all(VecDeque::is_empty)
    }
}

impl Round {
    /// A tenant whose turn is over stands behind the others, if it has anything more.
    fn put_back(&mut self, name: Arc<str>) {
        let Some(tenant) = self.tenants.get_mut(&name) else { return };
        tenant.queued = !tenant.admitted.is_empty();
        if tenant.queued {
            self.order.push_back(name);
        } else if tenant.flows.is_empty() {
            self.tenants.remove(&name);
        }
    }

    /// A tenant takes part with its flow of this group, which has one more that does.
    fn admit(&mut self, name: &Arc<str>, group: &Arc<str>, admitted: &mut usize) {
        let Some(tenant) = self.tenants.get_mut(name) else { return };
        *admitted += 1;
        tenant.admitted.push_back(Arc::clone(group));
        if !tenant.queued {
            tenant.queued = true;
            self.order.push_back(Arc::clone(name));
        }
    }
}

impl Turns {
    pub(super) fn new(bound: usize) -> Self {
        Self { bound, rounds: Default::default(), groups: HashMap::new(), streak: 0 }
    }

    /// A key is ready.
    pub(super) fn push(&mut self, place: &Place) {
        let tenant = self.rounds[place.class.index()].tenants.entry(Arc::clone(&place.tenant)).or_default();
        if let Some(flow) = tenant.flows.get_mut(&place.group) {
            flow.push_back(Arc::clone(&place.key));
            return;
        }
        tenant.flows.insert(Arc::clone(&place.group), VecDeque::from([Arc::clone(&place.key)]));
        self.enter(place.class, &place.tenant, &place.group);
    }

    /// The next key that may run. `valid` tells whether a key still stands in the flow that it was found in. The group
    /// has one more that runs afterwards.
    pub(super) fn take(&mut self, mut valid: impl FnMut(&Flow<'_>) -> bool) -> Option<Arc<str>> {
        let classes = if self.streak < WEIGHT {
            [Class::Interactive, Class::Bulk]
        } else {
            [Class::Bulk, Class::Interactive]
        };
        for class in classes {
            if let Some(key) = self.take_of(class, &mut valid) {
                self.streak = match class {
                    Class::Interactive => (self.streak + 1).min(WEIGHT),
                    Class::Bulk => 0,
                };
                return Some(key);
            }
        }
        None
    }

    /// One of the group runs no longer.
    pub(super) fn release(&mut self, group: &Arc<str>) {
        if let Some(found) = self.groups.get_mut(group) {
            found.running = found.running.saturating_sub(1);
            self.fill(group);
        }
    }

    /// Forgets the keys that are not `valid` any more. Their flows stay until their turn.
    pub(super) fn retain(&mut self, mut valid: impl FnMut(&Flow<'_>) -> bool) {
        for class in Class::ALL {
            let tenants = self.rounds[class.index()].tenants.iter_mut();
            let flows =
                tenants.flat_map(|(name, tenant)| tenant.flows.iter_mut().map(move |flow| (name, flow)));
            for (tenant, (group, flow)) in flows {
                flow.retain(|key| valid(&Flow { class, tenant, group, key }));
            }
        }
    }

    /// The next key of a class: of the first tenant whose turn it is and who has one.
    fn take_of(&mut self, class: Class, valid: &mut impl FnMut(&Flow<'_>) -> bool) -> Option<Arc<str>> {
        while let Some(name) = self.rounds[class.index()].order.pop_front() {
            let key = self.take_of_tenant(class, &name, valid);
            self.rounds[class.index()].put_back(name);
            if key.is_some() {
                return key;
            }
        }
        None
    }

    fn take_of_tenant(
        &mut self,
        class: Class,
        name: &Arc<str>,
        valid: &mut impl FnMut(&Flow<'_>) -> bool,
    ) -> Option<Arc<str>> {
        loop {
            let tenant = self.rounds[class.index()].tenants.get_mut(name)?;
            let group = tenant.admitted.pop_front()?;
            let room = self.groups.entry(Arc::clone(&group)).or_default();
            room.admitted[class.index()] = room.admitted[class.index()].saturating_sub(1);
            if room.running >= self.bound {
                // It was here before those that wait already.
                room.waiting[class.index()].push_front(Arc::clone(name));
                continue;
            }
            let flow = tenant.flows.get_mut(&group)?;
            let mut next = || {
                std::iter::from_fn(|| flow.pop_front())
                    .find(|key| valid(&Flow { class, tenant: name, group: &group, key }))
            };
            let key = next();
            room.running += usize::from(key.is_some());
            if flow.is_empty() {
                tenant.flows.remove(&group);
                self.fill(&group);
            } else {
                // The tenant is put back into the round by the caller.
                tenant.queued = true;
                self.enter(class, name, &group);
            }
            if key.is_some() {
                return key;
            }
        }
    }

    /// A flow that has keys takes part if its group has room and nobody waits for it, or else waits too.
    fn enter(&mut self, class: Class, name: &Arc<str>, group: &Arc<str>) {
        let room = self.groups.entry(Arc::clone(group)).or_default();
        if room.running < self.bound && room.waiting[class.index()].is_empty() {
            self.rounds[class.index()].admit(name, group, &mut room.admitted[class.index()]);
        } else {
            room.waiting[class.index()].push_back(Arc::clone(name));
        }
    }

    /// Lets flows that wait with their group take part, as many as it has room for.
    fn fill(&mut self, group: &Arc<str>) {
        let Some(room) = self.groups.get_mut(group) else { return };
        for (at, round) in self.rounds.iter_mut().enumerate() {
            let free = self.bound.saturating_sub(room.running + room.admitted[at]);
            let count = free.min(room.waiting[at].len());
            for name in room.waiting[at].drain(..count) {
                round.admit(&name, group, &mut room.admitted[at]);
            }
        }
        if room.is_idle() {
            self.groups.remove(group);
        }
    }

    /// Whether nothing at all is kept.
    #[cfg(test)]
    pub(super) fn is_clean(&self) -> bool {
        self.groups.is_empty() && self.rounds.iter().all(|round| round.tenants.is_empty())
    }
}

/// A key, and the flow that it stands in.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    class: Class,
    tenant: &'a Arc<str>,
    group: &'a Arc<str>,
    pub(super) key: &'a Arc<str>,
}

impl Flow<'_> {
    /// Whether a record of this place stands in the flow.
    pub(super) fn is_of(&self, place: &Place) -> bool {
        self.class == place.class && *self.tenant == place.tenant && *self.group == place.group
    }
}
