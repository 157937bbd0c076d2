//! Two writers on one field: told, and not fought. A field that is changed again after each time it was put right is left
//! as it is for a while, with the name of who else writes it. Rules of a firewall are told alike but not left (`firewall`), nor are
//! security groups and metadata of a machine (`machines`), tags in EC2 (`tags`), records in Route 53 (`records`) and objects that somebody takes
//! away as a whole (`returns`). The annotation by which a resource names its database is left like a field (`identity`).
//!
//! What is set of a machine and tags wait for their turn as a whole, in one place (`paced`); rules of a firewall each by itself.
//!
//! The first repair of an object is done without a further look; from the second on the object is read as it is on the
//! server, which alone knows who wrote what.

pub(super) mod firewall;
pub(super) mod identity;
pub(super) mod machines;
mod paced;
pub(super) mod records;
pub(super) mod returns;
pub(super) mod tags;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Api;
use kube::core::DynamicObject;
use plan::{Contest, Manifest, Settings, Validated};
use resources::names;
use tokio::sync::Semaphore;

use super::Pass;
use crate::error::Error;

/// Repairs of one intention count together for so long, and a field that is fought over is left for so long.
const WHILE: Duration = Duration::from_mins(10);
/// How often a field is put right, after the object's first repair, before somebody is said to write it too.
const OFTEN: u32 = 2;
/// Between two repairs of what is fought over and not left: of one thing in EC2, or of a firewall.
const PACE: Duration = Duration::from_mins(1);
/// What is put right in EC2 so soon after the last time that counted says nothing of others: EC2 may show late what was written.
const SHOWN: Duration = Duration::from_secs(10);

/// What is known of others who change what we write.
pub(crate) struct Contention {
    /// Sorted, so that those of one database stand side by side: each pass asks for them, and after many databases were made there are
    /// some of each.
    repairs: Mutex<BTreeMap<Object, Repairs>>,
    /// Places of machines that are put back at once.
    machines: Semaphore,
}

impl Default for Contention {
    fn default() -> Self {
        Self { repairs: Mutex::default(), machines: Semaphore::new(machines::AT_ONCE) }
    }
}

/// Whose child, what, which.
type Object = (String, &'static str, String);

struct Repairs {
    /// What was intended, or a hash of that: another intention has a count of its own. Of a machine people are told it.
    intention: String,
    last: Instant,
    fields: BTreeMap<String, u32>,
    left: Option<String>,
    /// When something that is fought over, and is not left all the same, was last put right.
    paced: Option<Instant>,
}

impl Repairs {
    fn new(intention: &str, now: Instant) -> Self {
        Self { intention: intention.to_owned(), last: now, fields: BTreeMap::new(), left: None, paced: None }
    }

    /// Counts a repair of each of these. Whether one of them turned out to be fought over by that.
    fn count(&mut self, fields: impl Iterator<Item = String>, now: Instant) -> bool {
        let mut begins = false;
        for field in fields {
            let count = self.fields.entry(field).or_default();
            *count = count.saturating_add(1);
            begins |= *count == OFTEN + 1;
            if *count > OFTEN {
                self.paced = Some(now);
            }
        }
        begins
    }

    fn is_fought(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|count| *count > OFTEN)
    }

    /// How long those that are fought over wait for their turn; none when it has come.
    fn turn(&self, now: Instant) -> Option<Duration> {
        let left = PACE.checked_sub(now.duration_since(self.paced?));
        left.filter(|left| !left.is_zero())
    }
}

/// What is known of an object before it is put right.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// Nobody changed it lately.
    First,
    /// It was put right a moment ago, too.
    Again,
    /// It is left as it is; the text says why.
    Left(String),
}

impl Contention {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Object, Repairs>> {
        self.repairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that still count.
    fn recent(&self, now: Instant) -> MutexGuard<'_, BTreeMap<Object, Repairs>> {
        let mut all = self.lock();
        all.retain(|_, repairs| now.duration_since(repairs.last) < WHILE);
        all
    }

    fn known(&self, object: &Object, intention: &str, now: Instant) -> Known {
        let all = self.recent(now);
        match all.get(object).filter(|repairs| repairs.intention == intention) {
            None => Known::First,
            Some(Repairs { left: Some(text), .. }) => Known::Left(text.clone()),
            Some(_) => Known::Again,
        }
    }

    /// The first of these fields that was put right often enough. Then the object is left as it is.
    fn judge(&self, object: &Object, contests: &[Contest], now: Instant) -> Option<String> {
        let mut all = self.lock();
        let repairs = all.get_mut(object)?;
        let often =
            |contest: &&Contest| repairs.fields.get(&contest.field).is_some_and(|count| *count >= OFTEN);
        let text = contests.iter().find(often).map(|contest| told(object, contest))?;
        repairs.last = now;
        repairs.left = Some(text.clone());
        Some(text)
    }

    /// What is to be said of what is fought over while no step fails by that: of all that is not left to the other, and of an annotation.
    pub(crate) fn beside_steps(
        &self,
        validated: &Validated,
        settings: &Settings,
        now: Instant,
    ) -> Vec<String> {
        if self.lock().is_empty() {
            return Vec::new();
        }
        let mut told = self.of_firewall(validated, settings, now);
        told.extend(self.of_others(&validated.subject.uid, now));
        told.extend(self.of_identity(&validated.subject, now));
        told
    }

    /// How long it is until something of a database that is fought over, and waits for its turn, has it.
    pub(crate) fn waits(&self, uid: &str, now: Instant) -> Option<Duration> {
        let all = self.lock();
        let turns = of_database(&all, uid).filter_map(|(_, repairs)| repairs.turn(now));
        turns.min()
    }

    /// What is to be said of what else a database has, also while all of it is as it should be: the other was there a moment ago.
    fn of_others(&self, uid: &str, now: Instant) -> Vec<String> {
        let all = self.lock();
        let recent = of_database(&all, uid).filter(|(_, repairs)| now.duration_since(repairs.last) < WHILE);
        let mut recent: Vec<_> = recent.collect();
        // Of many only the first are told: those of them that have others wait.
        recent.sort_by_key(|(_, repairs)| repairs.paced.is_none());
        recent.into_iter().filter_map(|(object, repairs)| told_of(object, repairs)).collect()
    }

    fn repaired(&self, object: Object, intention: &str, contests: &[Contest], now: Instant) {
        let mut all = self.lock();
        let repairs = of(&mut all, object, intention, now);
        for contest in contests {
            *repairs.fields.entry(contest.field.clone()).or_default() += 1;
        }
    }
}

/// What is said of something that is fought over and not left; nothing while nobody fights. Of a field that is left its step tells, of
/// rules of a firewall and of the annotation with the identity those who know their wish.
fn told_of((_, kind, name): &Object, repairs: &Repairs) -> Option<String> {
    match *kind {
        machines::GROUPS => machines::told_of_groups(name, repairs),
        machines::METADATA => machines::told_of_metadata(name, repairs),
        records::KIND => records::told(name, repairs),
        returns::KIND => returns::told(name, repairs),
        tags::KIND => tags::told(name, repairs),
        // None of these waits by `paced`, which has nothing wait of which it cannot say why.
        _ => None,
    }
}

/// Those of what one database has.
fn of_database<'a>(
    all: &'a BTreeMap<Object, Repairs>,
    uid: &'a str,
) -> impl Iterator<Item = (&'a Object, &'a Repairs)> {
    let first: Object = (uid.to_owned(), "", String::new());
    all.range(first..).take_while(move |((owner, ..), _)| owner == uid)
}

/// The repairs of an object under an intention, one of which is done now.
fn of<'a>(
    all: &'a mut BTreeMap<Object, Repairs>,
    object: Object,
    intention: &str,
    now: Instant,
) -> &'a mut Repairs {
    let repairs = all.entry(object).or_insert_with(|| Repairs::new(intention, now));
    if repairs.intention != intention {
        *repairs = Repairs::new(intention, now);
    }
    repairs.last = now;
    repairs
}

fn told((_, kind, name): &Object, Contest { field, others, is_there }: &Contest) -> String {
    let who = match (others.as_slice(), is_there) {
        ([], false) => "somebody who takes it away".to_owned(),
        // Those leave no name: what they make of a write is owned by who wrote.
        ([], true) => "a webhook or policy that changes what is stored, or another operator,".to_owned(),
        (others, _) => others.join(", "),
    };
    format!(
        "{field} of {kind} {name} is written by {who} as well, and is left as it is for a while: let only one of the two write it"
    )
}

/// What a repair is to be remembered by once it is done.
pub(super) struct Repair {
    object: Object,
    intention: String,
    contests: Vec<Contest>,
}

impl Repair {
    /// An error when the object is fought over.
    pub(super) async fn begin(
        pass: &Pass<'_>,
        api: &Api<DynamicObject>,
        manifest: &Manifest,
    ) -> Result<Self, Error> {
        let intention = manifest.body["metadata"]["annotations"][names::APPLIED].as_str();
        Self::of(pass, api, manifest, intention.unwrap_or_default()).await
    }

    /// The same of what says in another way which intention it is.
    pub(super) async fn of(
        pass: &Pass<'_>,
        api: &Api<DynamicObject>,
        manifest: &Manifest,
        intention: &str,
    ) -> Result<Self, Error> {
        let contention = &pass.context.contention;
        let object = (pass.validated.subject.uid.clone(), manifest.kind.as_str(), manifest.name.clone());
        let mut contests = Vec::new();
        match contention.known(&object, intention, Instant::now()) {
            Known::First => {}
            Known::Left(what) => return Err(Error::Contended { what }),
            Known::Again => {
                let found =
                    pass.context.call("see who writes an object", api.get_opt(&manifest.name)).await?;
                let found = serde_json::to_value(found).unwrap_or_default();
                contests = plan::contests(&found, manifest);
                if let Some(what) = contention.judge(&object, &contests, Instant::now()) {
                    pass.context.measures.contended(manifest.kind.as_str());
                    return Err(Error::Contended { what });
                }
            }
        }
        Ok(Self { object, intention: intention.to_owned(), contests })
    }

    pub(super) fn done(self, pass: &Pass<'_>) {
        let Self { object, intention, contests } = self;
        pass.context.contention.repaired(object, &intention, &contests, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Object {
        ("uid".to_owned(), plan::Kind::Service.as_str(), "trades".to_owned())
    }

    fn field(name: &str) -> Contest {
        Contest { field: name.to_owned(), others: vec!["kubectl".to_owned()], is_there: true }
    }

    /// A field is changed again after each repair; how many repairs that takes until it is left.
    fn fight(
        contention: &Contention,
        intention: &str,
        name: impl Fn(u32) -> String,
        now: Instant,
    ) -> Option<u32> {
        for repairs in 0..20 {
            let contests = match contention.known(&object(), intention, now) {
                Known::First => Vec::new(),
                Known::Again => vec![field(&name(repairs))],
                Known::Left(_) => panic!("left before it was said"),
            };
            if let Some(text) = contention.judge(&object(), &contests, now) {
                assert!(text.contains("/spec/a of Service trades is written by kubectl"), "{text}");
                return Some(repairs);
            }
            contention.repaired(object(), intention, &contests, now);
        }
        None
    }

    #[test]
    fn a_field_that_is_changed_again_and_again_is_left_for_a_while() {
        let (contention, now) = (Contention::default(), Instant::now());
        let same = |_| "/spec/a".to_owned();
        assert_eq!(fight(&contention, "one", same, now), Some(3));
        assert!(matches!(contention.known(&object(), "one", now), Known::Left(_)));
        // Another wish is carried out at once; later the same is tried again.
        assert_eq!(contention.known(&object(), "two", now), Known::First);
        assert_eq!(fight(&contention, "two", same, now), Some(3));
        assert_eq!(contention.known(&object(), "two", now + WHILE), Known::First);
    }

    #[test]
    fn what_waits_for_its_turn_is_told_before_what_does_not() {
        let (contention, now) = (Contention::default(), Instant::now());
        let mut all = contention.lock();
        for (kind, name, field) in [(returns::KIND, "Service a", "Service a"), (tags::KIND, "vol-1", "a=b")] {
            let repairs = of(&mut all, ("uid".to_owned(), kind, name.to_owned()), "", now);
            (0..=OFTEN).for_each(|_| _ = repairs.count(std::iter::once(field.to_owned()), now));
            repairs.paced = repairs.paced.filter(|_| kind == tags::KIND);
        }
        drop(all);
        let told = contention.of_others("uid", now);
        let [first, second] = &told[..] else { panic!("{told:?}") };
        assert!(first.contains("vol-1") && second.contains("Service a"), "{told:?}");
    }

    #[test]
    fn of_many_databases_only_what_the_asked_one_has_is_looked_at() {
        let mut all = BTreeMap::new();
        for owner in ["u", "uid", "uid2", "v"] {
            for (kind, name) in [("", ""), ("Service", "trades"), ("Tags", "vol-1")] {
                all.insert((owner.to_owned(), kind, name.to_owned()), Repairs::new("", Instant::now()));
            }
        }
        let found = |uid: &str| of_database(&all, uid).count();
        assert_eq!(["", "ui", "uid", "v", "w"].map(found), [0, 0, 3, 3, 0]);
    }

    #[test]
    fn who_writes_a_field_is_named_as_far_as_it_is_known() {
        for (others, is_there, expected) in [
            (vec!["kubectl".to_owned(), "scaler".to_owned()], true, "written by kubectl, scaler as well"),
            (Vec::new(), false, "written by somebody who takes it away as well"),
            (
                Vec::new(),
                true,
                "written by a webhook or policy that changes what is stored, or another operator, as well",
            ),
        ] {
            let text = told(&object(), &Contest { others, is_there, ..field("/spec/a") });
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn as_many_changes_of_different_fields_are_all_put_right() {
        let (contention, now) = (Contention::default(), Instant::now());
        assert_eq!(fight(&contention, "one", |number| format!("/spec/{number}"), now), None);
    }
}
