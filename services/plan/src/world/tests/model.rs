//! Everything there is, who sees how much of it, and the resource itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cloud::{
    ChangeId, DnsChange, DnsChangeState, DnsRecord, Instance, SecurityGroup, Volume, VolumeModification,
    VolumeSnapshot,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use resources::{Phase, QuestDB, QuestDBSnapshot, QuestDBStatus, names};

use super::blind::Blind;
use super::copies::Copied;
use super::half::Protected;
use super::zones::Full;
use crate::fixture::{settings, validated};
use crate::references::{Reference, references};
use crate::secrets::Origin;
use crate::{
    Children, Dns, DnsQuestion, Goal, Kind, Led, Memory, Observed, Source, Step, Validated, are_as_noted,
    copy_to_look_at, dns_question, is_name_known_released, last_copy_to_look_at, name_at_rest, names_left,
    names_to_release, owner_text, pod_is_ready, put_right, rivals, serving, source_to_look_at, stem_of_order,
};

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It was not done.
    Request,
    /// It was done and nobody heard.
    Answer,
    /// Of several calls only the first was done.
    Half,
}

/// Why the other side did not do a step.
pub(super) type Refusal = &'static str;

/// What a change of records gives: how far it came, and which name it leads where.
pub(super) type Renamed = Option<(DnsChange, Option<Led>)>;

/// What EC2 showed at some time.
type Shown = (Vec<Instance>, Vec<Volume>, Vec<SecurityGroup>);

/// A route, of its kind.
type Route = (Kind, Arc<DynamicObject>);

/// Everything there is.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a trouble of its own")]
pub(crate) struct World {
    pub(crate) resource: QuestDB,
    pub(crate) children: Children,
    /// Other databases of the namespace, and their routes.
    pub(super) neighbours: (Vec<Arc<QuestDB>>, Vec<Route>),
    pub(crate) instances: Vec<Instance>,
    pub(crate) protected: Protected,
    pub(crate) volumes: Vec<Volume>,
    /// A volume that is not this database's, or not yet.
    pub(crate) offered: Option<Volume>,
    /// What EC2 answers when it is asked for the copy that a database starts with.
    pub(crate) copies: Vec<VolumeSnapshot>,
    pub(crate) groups: Vec<SecurityGroup>,
    pub(crate) records: Vec<DnsRecord>,
    pub(crate) changes: Vec<DnsChange>,
    /// Route 53 says nothing of the zone.
    pub(super) withheld: Option<crate::Withheld>,
    pub(crate) secrets_drawn: u32,
    /// How many of them somebody deleted.
    pub(crate) secrets_lost: u32,
    /// Secrets beside the operator's own: those that people made, and those in which keys are handed out.
    pub(crate) secrets: Vec<Secret>,
    /// What people made for pods to read, and the operator's watches of it that did not answer yet.
    pub(crate) given: BTreeMap<Reference, Origin>,
    pub(crate) unanswered: BTreeSet<Reference>,
    /// Names of those that the operator may not read.
    pub(crate) unreadable: Vec<String>,
    /// How often each key was drawn.
    pub(crate) keys_drawn: BTreeMap<String, u32>,
    /// What the running QuestDB read when it started.
    pub(crate) process: Option<Arc<Secret>>,
    pub(crate) released: bool,
    /// For so many ticks EC2 answers from a time before the database.
    pub(crate) hidden: usize,
    /// EC2 answers from so many ticks ago.
    pub(crate) lag: usize,
    /// Every other look shows the caches one write behind.
    pub(crate) late: bool,
    /// So many looks do not show what caches that are further behind do not.
    pub(super) blind: usize,
    pub(super) blind_to: Blind,
    /// So many passes find no status.
    pub(crate) wiped: usize,
    /// EC2 takes no change of a volume for now.
    pub(crate) too_soon: bool,
    /// Changes of a volume that it took.
    pub(super) modified: usize,
    /// The last of them.
    pub(super) modification: Option<VolumeModification>,
    /// Ticks until that can be used.
    pub(super) modifying: usize,
    /// Ticks from then on until EC2 takes another one.
    pub(super) optimizing: usize,
    /// Which claim the disk is for is said by the operator alone.
    pub(super) names_claim: bool,
    /// How large the disk is until then, whatever EC2 shows.
    pub(super) usable: Option<u32>,
    /// So many machines do not join the cluster.
    pub(super) strangers: usize,
    /// Of so many that join the Node is not ready.
    pub(super) unready: usize,
    /// What there is no room for.
    pub(crate) full: Full,
    /// Copies of the disk.
    pub(crate) snapshots: Vec<Arc<QuestDBSnapshot>>,
    /// No copy can be made.
    pub(crate) uncopied: bool,
    /// Last copies in EC2.
    pub(super) copied: Vec<Copied>,
    /// So many of them EC2 cannot finish.
    pub(super) spoilt: usize,
    /// Nobody looks after orders for copies.
    pub(super) unheeded: bool,
    /// What was last written to the disk.
    pub(super) written: u64,
    /// There may be a third machine, because it was needed when the last one was launched.
    pub(super) third: bool,
    /// QuestDB does not read server.conf again: because it refuses a value, or because it cannot be told.
    pub(super) deaf: Option<bool>,
    /// How often it did.
    pub(super) reloads: u32,
    /// Images that end as soon as they are started.
    pub(crate) broken: Vec<String>,
    /// Images that no registry gives.
    pub(crate) unpulled: Vec<String>,
    /// Keys of server.conf that QuestDB lists, where it can be asked.
    pub(super) listed: Option<Arc<BTreeSet<String>>>,
    /// The API server takes no objects for now.
    pub(crate) read_only: bool,
    /// It takes none of this kind for now.
    pub(crate) read_only_for: Option<Kind>,
    /// Time of day.
    pub(crate) now: Timestamp,
    /// How much of it a tick takes.
    pub(crate) clock: SignedDuration,
    /// What the process remembers.
    pub(crate) memory: Memory,
    pub(super) number: u32,
    /// Ticks since something was last created in EC2.
    pub(super) quiet: usize,
    past: VecDeque<Shown>,
    former: Option<(QuestDB, Children)>,
    /// The last look was behind, so the next is not.
    caught_up: bool,
}

impl World {
    #[expect(clippy::too_many_lines, reason = "one for each field")]
    pub(crate) fn new(resource: QuestDB) -> Self {
        Self {
            resource,
            children: Children::default(),
            neighbours: (Vec::new(), Vec::new()),
            instances: Vec::new(),
            protected: Protected::default(),
            volumes: Vec::new(),
            offered: None,
            copies: Vec::new(),
            groups: Vec::new(),
            records: Vec::new(),
            changes: Vec::new(),
            withheld: None,
            secrets_drawn: 0,
            secrets_lost: 0,
            secrets: Vec::new(),
            given: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            unreadable: Vec::new(),
            keys_drawn: BTreeMap::new(),
            process: None,
            released: false,
            hidden: 0,
            lag: 0,
            late: false,
            blind: 0,
            blind_to: Blind::Set,
            wiped: 0,
            too_soon: false,
            modified: 0,
            modification: None,
            modifying: 0,
            optimizing: 0,
            names_claim: false,
            usable: None,
            strangers: 0,
            unready: 0,
            full: Full::default(),
            snapshots: Vec::new(),
            uncopied: false,
            copied: Vec::new(),
            spoilt: 0,
            unheeded: false,
            written: 0,
            third: false,
            deaf: None,
            reloads: 0,
            broken: Vec::new(),
            unpulled: Vec::new(),
            listed: None,
            read_only: false,
            read_only_for: None,
            now: Timestamp::UNIX_EPOCH,
            clock: SignedDuration::ZERO,
            memory: Memory::default(),
            number: 0,
            quiet: 0,
            past: VecDeque::new(),
            former: None,
            caught_up: false,
        }
    }

    /// What an observer sees.
    pub(crate) fn look(&self) -> Observed {
        self.observed(&self.resource, self.children.clone())
    }

    /// The resource and the world as an observer sees them now: one write behind, if the caches are.
    pub(super) fn see(&mut self) -> (QuestDB, Observed) {
        let former = self.former.take().filter(|_| !self.caught_up);
        self.caught_up = former.is_some();
        let (resource, mut children) =
            former.unwrap_or_else(|| (self.resource.clone(), self.children.clone()));
        if self.blind > 0 {
            self.blind -= 1;
            self.blind_to.hide(&mut children);
        }
        let observed = self.observed(&resource, children);
        (resource, observed)
    }

    /// Whether whoever looks now sees what is.
    pub(super) fn is_plain_to_see(&self) -> bool {
        let shown = self.past.front().filter(|_| self.lag > 0);
        let past = shown.is_some_and(|(instances, volumes, groups)| {
            (instances, volumes, groups) != (&self.instances, &self.volumes, &self.groups)
        });
        let all = self.blind == 0 && self.wiped == 0 && self.hidden == 0;
        (self.former.is_none() || self.caught_up) && all && !past
    }

    fn observed(&self, resource: &QuestDB, mut children: Children) -> Observed {
        let secrets = self.secrets_seen(resource, &mut children);
        let mut observed = Observed {
            children,
            secrets,
            listed_keys: self.listed.clone(),
            memory: self.memory.clone(),
            at: self.now,
            ..Observed::default()
        };
        if self.hidden == 0 {
            let account = &mut observed.account;
            (account.instances, account.volumes, account.groups) = match self.past.front() {
                Some(past) if self.lag > 0 => past.clone(),
                _ => (self.instances.clone(), self.volumes.clone(), self.groups.clone()),
            };
            account.conclusive = self.lag == 0 || self.quiet > self.lag;
            self.find_by_tags_and_ids(resource, &mut observed);
        }
        let wish = validated(resource);
        let (neighbours, routes) = &self.neighbours;
        observed.rivals = rivals((resource, &wish), neighbours, &settings(), |kind, name| {
            let is = |found: &DynamicObject| found.metadata.name.as_deref() == Some(name);
            routes
                .iter()
                .find(|(other, found)| *other == kind && is(found))
                .map(|(_, found)| Arc::clone(found))
        });
        let named = references(&wish).into_iter().filter(|what| !self.unanswered.contains(what));
        observed.references = named.map(|what| (what.clone(), self.given.get(&what).cloned())).collect();
        let is_seen = observed.children.copies_unseen.is_none();
        let find = |name: &str| {
            let mut shown = self.snapshots.iter().filter(|_| is_seen);
            shown.find(|found| found.metadata.name.as_deref() == Some(name)).cloned()
        };
        observed.children.copy = copy_to_look_at(resource, &wish, &observed.children, find);
        let of_stem = |stem: &str| {
            let mut orders = self.snapshots.clone();
            orders.retain(|order| {
                is_seen && order.metadata.name.as_deref().and_then(stem_of_order) == Some(stem)
            });
            orders
        };
        observed.children.last_copy = last_copy_to_look_at(&wish.subject, of_stem);
        put_right(resource, &wish.subject, &mut observed.account);
        observed.account.copies = self.last_copies(&wish, &observed);
        observed.account.source = self.source(resource, &wish, &observed);
        observed.account.modification = self.modification_of(resource, &wish, &observed);
        observed.dns = self.as_far_as_told(self.dns(resource, &wish, &observed));
        observed
    }

    /// What Route 53 says, of what is asked for and of what is left.
    fn dns(&self, resource: &QuestDB, wish: &Validated, observed: &Observed) -> Dns {
        let of = |name: &str| -> Vec<DnsRecord> {
            self.records.iter().filter(|record| record.name == name).cloned().collect()
        };
        let phase = resource.status.as_ref().and_then(|status| status.phase);
        if matches!(phase, Some(Phase::Ready | Phase::Paused | Phase::Deleted))
            && crate::is_judged(resource)
            && resource.metadata.deletion_timestamp.is_none()
        {
            let noted = name_at_rest(resource, self.now);
            if let Some(name) = noted.filter(|name| !are_as_noted(resource, wish, &of(name))) {
                return Dns { records: Some(of(name)), ..Dns::default() };
            }
            let text = [owner_text(&wish.subject)];
            let of_text = self.records.iter().filter(|record| record.texts() == text);
            let named: Vec<String> = of_text.map(|record| record.name.clone()).collect();
            if let Some(name) = names_left(resource, &named).first() {
                let records = noted.filter(|_| wish.goal == Goal::Serve).map(of);
                return Dns { left: of(name), records, ..Dns::default() };
            }
            if !crate::is_named(wish, &observed.children) {
                return Dns::default();
            }
        }
        if is_name_known_released(resource, wish, &observed.children) {
            return Dns::default();
        }
        if !crate::is_named(wish, &observed.children) {
            let text = [owner_text(&wish.subject)];
            let mut names = names_to_release(resource, wish);
            let of_text = self.records.iter().filter(|found| wish.removing && found.texts() == text);
            names.extend(of_text.map(|found| found.name.as_str()));
            names.sort_unstable();
            names.dedup();
            return Dns { records: Some(names.into_iter().flat_map(of).collect()), ..Dns::default() };
        }
        let address = serving(resource, observed).filter(|_| pod_is_ready(observed));
        let question =
            dns_question(resource, wish, (address.and_then(|found| found.private_ip), observed.at));
        let came = |id: Option<ChangeId>| {
            id.and_then(|id| self.changes.iter().find(|change| change.id == id).cloned())
        };
        match question {
            DnsQuestion::Nothing => Dns::default(),
            DnsQuestion::InForce { name, change } => match came(change) {
                Some(change) => Dns { change: Some(change), ..Dns::default() },
                None => Dns { records: Some(of(&name)), ..Dns::default() },
            },
            DnsQuestion::Next { name, change } => {
                let change = came(change);
                let waits = change.as_ref().is_some_and(|change| change.state != DnsChangeState::InSync);
                Dns { beside: (!waits).then(|| of(&name)), change, ..Dns::default() }
            }
            DnsQuestion::Back { in_force, name } => {
                Dns { records: Some(of(&in_force)), beside: Some(of(&name)), ..Dns::default() }
            }
        }
    }

    /// Asked for live: what was made a disk a moment ago is shown as that.
    fn source(&self, resource: &QuestDB, wish: &Validated, observed: &Observed) -> Option<Source> {
        let source = source_to_look_at(resource, wish, observed)?;
        let Some(id) = &source.volume_id else { return Some(Source::Copies(self.copies.clone())) };
        let mut all = self.volumes.iter().chain(&self.offered);
        Some(Source::Volume(all.find(|found| found.id.as_str() == id).cloned().map(Box::new)))
    }

    /// Carries out a step, as the real ones would, for somebody who saw this resource.
    pub(crate) fn apply(&mut self, step: &Step, seen: &QuestDB) -> Result<Renamed, Refusal> {
        if step.writes_resource() {
            return self.on_resource(step, seen).map(|()| None);
        }
        match step {
            Step::CreateSecret(_)
            | Step::DrawKey(..)
            | Step::RevokeKey(_)
            | Step::KeepSecret(_)
            | Step::SetCredentials(_)
            | Step::Apply(_)
            | Step::Delete(_)
            | Step::LabelNode { .. }
            | Step::Reload(_) => {
                if let Step::Apply(manifest) | Step::CreateSecret(manifest) = step
                    && (self.read_only || self.read_only_for == Some(manifest.kind))
                {
                    return Err("the API server takes no objects");
                }
                if let Step::Apply(manifest) = step
                    && self.is_yet_to_be_seen(manifest)
                {
                    return Err("it is there, and was not seen");
                }
                self.remember();
                self.on_kubernetes(step).map(|()| None)
            }
            Step::ChangeRecords { changes, led } => Ok(Some((self.change_records(changes)?, led.clone()))),
            other => self.on_aws(other, seen).map(|()| None),
        }
    }

    fn on_resource(&mut self, step: &Step, seen: &QuestDB) -> Result<(), Refusal> {
        if seen.metadata.resource_version != self.resource.metadata.resource_version {
            return Err("the resource has changed");
        }
        match step {
            Step::AddFinalizer { identity } => {
                self.remember();
                self.resource.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
                if let Some(identity) = identity {
                    self.annotate(names::ADOPTED_ID, identity);
                }
            }
            Step::WriteGeneration { generation, launch, zone, beside } => {
                self.check_no_living((*generation, beside.as_ref()), seen)?;
                self.remember();
                self.annotate(names::GENERATION, &generation.to_string());
                self.annotate(names::LAUNCH, launch);
                self.annotate(names::LAUNCH_ZONE, zone);
            }
            Step::WriteReleased { released, unjoined } => {
                self.remember();
                self.annotate(names::RELEASED, released);
                if let Some(unjoined) = unjoined {
                    self.annotate(names::UNJOINED, unjoined);
                }
            }
            // Looked for once more, as the operator does.
            Step::RemoveFinalizer if !self.children.nodes.is_empty() => return Err("a Node is still there"),
            Step::RemoveFinalizer => self.release()?,
            other => panic!("{} does not write the resource", other.name()),
        }
        self.touch();
        Ok(())
    }

    /// Writes a status over the version that was seen.
    pub(super) fn report(&mut self, version: Option<&String>, status: QuestDBStatus) {
        let seen = version == self.resource.metadata.resource_version.as_ref();
        // The API server keeps what is written as text: times in whole seconds.
        let status: QuestDBStatus = serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap();
        if seen && self.resource.status.as_ref() != Some(&status) {
            self.remember();
            self.resource.status = Some(status);
            self.touch();
        }
    }

    /// Which pod there is.
    pub(super) fn pod_uid(&self) -> Option<String> {
        self.children.pod.as_ref()?.metadata.uid.clone()
    }

    /// The resource has another version from now on.
    pub(super) fn touch(&mut self) {
        self.resource.metadata.resource_version = Some(format!("r{}", self.next()));
    }

    /// Caches that are one write behind show what is now, before a write.
    fn remember(&mut self) {
        self.former = self.late.then(|| (self.resource.clone(), self.children.clone()));
    }

    /// The others do their part: Kubernetes' controllers, kubelet, EC2, Route 53.
    pub(crate) fn tick(&mut self) {
        self.hidden = self.hidden.saturating_sub(1);
        if self.lag > 0 {
            self.past.push_back((self.instances.clone(), self.volumes.clone(), self.groups.clone()));
            while self.past.len() > self.lag {
                self.past.pop_front();
            }
        }
        self.quiet += 1;
        self.now += self.clock;
        let dns = self.resource.status.as_ref().and_then(|status| status.dns.as_ref());
        if let Some(former) = dns.and_then(|dns| dns.former.as_ref()) {
            // Nothing else waits while it still leads to the database.
            self.now = self.now.max(former.since.0 + SignedDuration::from_secs(30));
        }
        self.tick_aws();
        self.tick_kubernetes();
        self.tick_disk();
    }

    pub(super) fn next(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.resource.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }
}
