//! The relay's parts together, whatever is minted, said, left unsaid, cut off or done by others, in any order. Postgres and Kafka
//! are played; [`World::step`] does with the parts what `Relay::step` and `Relay::publish` do. Nothing here waits for a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bus::Delivered;
use domain::{DatabaseId, Position};
use futures::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use runtime::Backoff;
use store::Instruction;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::doubts::{Asked, Doubts};
use super::left_out_of;
use super::record::tests::instruction;
use super::refusals::Refusals;
use super::round::{Round, Word};
use super::sent::Sent;

/// How many databases there are, and how many of them a round takes.
const DATABASES: usize = 5;
const PORTION: usize = 2;
/// The longest wait of what failed.
const CAP: Duration = Duration::from_secs(8);
/// Rounds after the end of all faults in which everything is published: each state may be tried in a batch first and then alone,
/// and the first round only hears what was said before.
const ROUNDS: usize = 2 * DATABASES + 2;
/// Longer than anything is remembered of which nobody hears any more.
const LONG: Duration = Duration::from_hours(1);

/// What happens.
#[derive(Debug, Clone)]
enum Step {
    /// A database's next state is minted, which may be too large.
    Mint(usize, bool),
    Round(How),
    /// Kafka gives a word that it owes.
    Word(prop::sample::Index),
    /// Kafka takes nothing of a database any more, or does again.
    Sick(usize),
    /// The same of all.
    Dark,
    /// Another relay publishes a database's state, or sets it aside.
    Other(usize),
    /// So many seconds pass.
    Wait(u64),
}

/// How a round goes.
#[derive(Debug, Clone)]
struct How {
    /// On which of its records Kafka says nothing at once: a bit each.
    silent: u8,
    /// After how many stretches of words it is cut off, one more of which was heard and nothing done about it.
    cut: Option<usize>,
    /// Whether Postgres takes what is to be marked.
    marks: bool,
}

/// One in which all goes well.
const GOOD: How = How { silent: 0, cut: None, marks: true };

fn step() -> impl Strategy<Value = Step> {
    let how = (any::<u8>(), prop::option::weighted(0.2, 0..=PORTION), prop::bool::weighted(0.8));
    prop_oneof![
        6 => (0..DATABASES, prop::bool::weighted(0.2)).prop_map(|(which, large)| Step::Mint(which, large)),
        8 => how.prop_map(|(silent, cut, marks)| Step::Round(How { silent, cut, marks })),
        4 => any::<prop::sample::Index>().prop_map(Step::Word),
        2 => (0..DATABASES).prop_map(Step::Sick),
        1 => Just(Step::Dark),
        2 => (0..DATABASES).prop_map(Step::Other),
        2 => (0_u64..400).prop_map(Step::Wait),
    ]
}

/// A database as Postgres has it. Numbers of states count from 1.
#[derive(Debug, Default)]
struct Row {
    minted: i64,
    /// How many states of all databases were minted before.
    since: usize,
    is_large: bool,
    published: i64,
    set_aside: i64,
}

impl Row {
    fn waits(&self) -> bool {
        self.published < self.minted && self.set_aside < self.minted
    }
}

type Tell = mpsc::UnboundedSender<Vec<(usize, Word)>>;

/// A record that Kafka has not answered for.
struct Record {
    asked: Asked,
    /// Its number in its round.
    which: usize,
    /// Whether it, or what it was sent with, is larger than brokers take.
    is_too_large: bool,
    tell: Tell,
}

struct World {
    now: Instant,
    ids: Vec<DatabaseId>,
    rows: BTreeMap<DatabaseId, Row>,
    mints: usize,
    /// What Kafka has.
    log: BTreeSet<Asked>,
    open: Vec<Record>,
    sick: BTreeSet<DatabaseId>,
    is_dark: bool,
    /// Of which a record was sent, and no word heard.
    on_way: BTreeSet<DatabaseId>,
    /// When it was heard that a record was not taken, if that was the last word.
    failed: BTreeMap<DatabaseId, Instant>,
    refusals: Refusals,
    delivered: BTreeMap<DatabaseId, Position>,
    like: Instruction,
}

fn at(seq: i64) -> Position {
    Position { seq, ..Position::FIRST }
}

impl World {
    fn new() -> Self {
        let ids: Vec<DatabaseId> = (0..DATABASES).map(|_| DatabaseId::mint()).collect();
        Self {
            now: Instant::now(),
            rows: ids.iter().map(|id| (*id, Row::default())).collect(),
            ids,
            mints: 0,
            log: BTreeSet::new(),
            open: Vec::new(),
            sick: BTreeSet::new(),
            is_dark: false,
            on_way: BTreeSet::new(),
            failed: BTreeMap::new(),
            refusals: Refusals::new(Backoff::new(Duration::from_secs(1), CAP)),
            delivered: BTreeMap::new(),
            like: instruction("sre:on-call", false),
        }
    }

    fn take(&mut self, step: Step, doubts: &Mutex<Doubts<Word>>) {
        match step {
            Step::Mint(which, is_large) => self.mint(self.ids[which], is_large),
            Step::Round(how) => self.round(&how, doubts),
            Step::Word(which) if !self.open.is_empty() => {
                let record = self.open.swap_remove(which.index(self.open.len()));
                self.answer(record);
            }
            Step::Word(_) => {}
            Step::Sick(which) => {
                let database = self.ids[which];
                if !self.sick.remove(&database) {
                    self.sick.insert(database);
                }
            }
            Step::Dark => self.is_dark = !self.is_dark,
            Step::Other(which) => self.other(self.ids[which]),
            Step::Wait(seconds) => self.now += Duration::from_secs(seconds),
        }
    }

    fn row(&mut self, database: DatabaseId) -> &mut Row {
        self.rows.get_mut(&database).unwrap()
    }

    fn mint(&mut self, database: DatabaseId, is_large: bool) {
        self.mints += 1;
        let since = self.mints;
        let row = self.row(database);
        *row = Row { minted: row.minted + 1, since, is_large, ..*row };
    }

    fn other(&mut self, database: DatabaseId) {
        let row = self.row(database);
        if !row.waits() {
            return;
        }
        let newest = row.minted;
        if row.is_large {
            row.set_aside = newest;
        } else {
            row.published = newest;
            self.log.insert((database, at(newest)));
        }
    }

    /// Kafka says what became of a record.
    fn answer(&mut self, record: Record) {
        let Record { asked, which, is_too_large, tell } = record;
        let topic = "t".to_owned();
        let word = if self.is_dark || self.sick.contains(&asked.0) {
            Err(bus::Error::Unknown { topic, reason: "as the test wishes".to_owned() })
        } else if is_too_large {
            Err(bus::Error::TooLarge { topic, bytes: 0 })
        } else {
            self.log.insert(asked);
            Ok(Delivered { partition: 0, offset: 0 })
        };
        tell.send(vec![(which, word)]).expect("somebody waits for the word");
    }

    fn round(&mut self, how: &How, doubts: &Mutex<Doubts<Word>>) {
        self.step(how, doubts);
        let on_way: Vec<DatabaseId> = self.on_way.iter().copied().collect();
        assert_eq!(doubts.lock().unwrap().databases(), on_way, "in doubt is what is on its way");
    }

    /// What `Relay::step` does. It ends early where that gives up.
    fn step(&mut self, how: &How, doubts: &Mutex<Doubts<Word>>) {
        let answered = doubts.lock().unwrap().answered();
        let mut before = Sent::default();
        let of_each = |(asked, word)| self.hear(asked, word, &mut before);
        let heard: Vec<Asked> = answered.into_iter().filter_map(of_each).collect();
        self.take_in(&before);
        if !self.mark(&heard, how) {
            return;
        }
        let (left_out, full) = left_out_of(&doubts.lock().unwrap(), &mut self.refusals, self.now);
        assert!(!full, "so few are never too many");
        self.check(&left_out);
        let waiting = self.unpublished(&left_out);
        let is_delivered = |one: &Instruction| self.delivered.get(&one.database) == Some(&one.position);
        let (known, fresh): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_delivered);
        let known: Vec<Asked> = known.into_iter().map(|one| (one.database, one.position)).collect();
        self.delivered.clear();
        let marked = self.mark(&known, how);
        let Some(sent) = self.publish(&fresh, how, doubts) else { return };
        self.take_in(&sent);
        if marked && (sent.taken == 0 || how.marks) {
            for (asked, _) in before.and(sent).too_large {
                self.set_aside(asked);
            }
        }
    }

    /// What `Relay::publish` does with what was not sent before; nothing comes back of a round that is cut off.
    fn publish(&mut self, fresh: &[Instruction], how: &How, doubts: &Mutex<Doubts<Word>>) -> Option<Sent> {
        let (tell, words) = mpsc::unbounded_channel();
        let words = UnboundedReceiverStream::new(words).boxed();
        let round = Round::over(fresh, LONG, doubts, words);
        let silent = |record: &Record| how.silent & (1 << record.which) != 0;
        let (later, now): (Vec<_>, Vec<_>) = self.send(&round, &tell).into_iter().partition(silent);
        drop(tell);
        let in_doubt = later.len();
        self.open.extend(later);
        for record in now {
            self.answer(record);
        }
        let (mut sent, mut stretches) = (Sent::default(), 0);
        while let Some(Some(stretch)) = round.next().now_or_never() {
            if how.cut == Some(stretches) {
                self.lose(fresh, &stretch);
                return None;
            }
            stretches += 1;
            let of_each = |(which, word): (usize, Word)| {
                self.hear((fresh[which].database, fresh[which].position), word, &mut sent)
            };
            let taken: Vec<Asked> = stretch.into_iter().filter_map(of_each).collect();
            self.mark(&taken, how);
        }
        if how.cut.is_some() {
            return None;
        }
        sent.in_doubt = round.end();
        assert_eq!(sent.in_doubt, in_doubt);
        Some(sent)
    }

    /// Queues all: those that go alone by themselves, all others in one batch.
    fn send(&mut self, round: &Round<'_>, tell: &Tell) -> Vec<Record> {
        let is_large = |one: &Instruction| self.rows[&one.database].is_large;
        let is_alone = |one: &Instruction| self.refusals.is_alone(one.database);
        let batch_is_large = round.instructions.iter().any(|one| !is_alone(one) && is_large(one));
        let mut records = Vec::new();
        for (which, one) in round.instructions.iter().enumerate() {
            assert!(self.on_way.insert(one.database), "two states of one database are on their way");
            round.asked(which);
            let is_too_large = if is_alone(one) { is_large(one) } else { batch_is_large };
            records.push(Record {
                asked: (one.database, one.position),
                which,
                is_too_large,
                tell: tell.clone(),
            });
        }
        records
    }

    fn hear(&mut self, asked: Asked, word: Word, sent: &mut Sent) -> Option<Asked> {
        assert!(self.on_way.remove(&asked.0), "a word on nothing that was sent");
        self.failed.remove(&asked.0);
        if matches!(word, Err(bus::Error::Unknown { .. })) {
            self.failed.insert(asked.0, self.now);
        }
        sent.hear(asked, word, &mut self.refusals, self.now).map(|_| asked)
    }

    /// These words were heard by a round that ended before it did anything about them.
    fn lose(&mut self, fresh: &[Instruction], stretch: &[(usize, Word)]) {
        for (which, _) in stretch {
            self.on_way.remove(&fresh[*which].database);
        }
    }

    fn take_in(&mut self, sent: &Sent) {
        let failed = sent.failures.iter().map(|(database, _)| *database);
        self.refusals.heard(failed, sent.taken, self.now, || 1.0);
    }

    /// What Postgres does about what Kafka took, if it does anything; whether it did.
    fn mark(&mut self, taken: &[Asked], how: &How) -> bool {
        self.delivered.extend(taken.iter().copied());
        if taken.is_empty() || !how.marks {
            return taken.is_empty();
        }
        for &(database, position) in taken {
            assert!(self.log.contains(&(database, position)), "marked, and Kafka does not have it");
            let row = self.row(database);
            if at(row.minted) == position && row.published < row.minted {
                row.published = row.minted;
                self.delivered.remove(&database);
            }
        }
        true
    }

    fn set_aside(&mut self, (database, position): Asked) {
        let row = self.row(database);
        if at(row.minted) == position {
            assert!(row.is_large, "set aside, and not too large");
            row.set_aside = row.minted;
            self.refusals.settled(database);
        }
    }

    /// Nobody is left out but whose record is on its way, or failed lately.
    fn check(&self, left_out: &[DatabaseId]) {
        for database in left_out {
            let has_failed = self.failed.get(database).is_some_and(|at| *at + CAP > self.now);
            assert!(has_failed || self.on_way.contains(database), "it waits for another one's failure");
        }
    }

    /// The newest states that wait, the longest waiting first.
    fn unpublished(&self, left_out: &[DatabaseId]) -> Vec<Instruction> {
        let waits = |(database, row): &(&DatabaseId, &Row)| row.waits() && !left_out.contains(database);
        let mut waiting: Vec<_> = self.rows.iter().filter(waits).collect();
        waiting.sort_by_key(|(_, row)| row.since);
        waiting.truncate(PORTION);
        let instruction = |(database, row): (&DatabaseId, &Row)| Instruction {
            database: *database,
            position: at(row.minted),
            ..self.like.clone()
        };
        waiting.into_iter().map(instruction).collect()
    }

    /// All faults end, and some rounds later there is nothing left to do; a while later nothing is remembered.
    fn end(&mut self, doubts: &Mutex<Doubts<Word>>) {
        self.is_dark = false;
        self.sick.clear();
        for _ in 0..ROUNDS {
            for record in std::mem::take(&mut self.open) {
                self.answer(record);
            }
            self.now += CAP;
            self.round(&GOOD, doubts);
        }
        let waiting: Vec<&Row> = self.rows.values().filter(|row| row.waits()).collect();
        assert!(waiting.is_empty(), "not published after {ROUNDS} rounds: {waiting:?}");
        self.now += LONG;
        self.round(&GOOD, doubts);
        assert!(doubts.lock().unwrap().is_empty() && self.delivered.is_empty() && self.refusals.is_calm());
        assert!(!self.ids.iter().any(|id| self.refusals.is_alone(*id)), "nobody goes alone for ever");
    }
}

proptest! {
    #[test]
    fn whatever_happens_each_state_is_published_or_outdated_and_none_beside_another_of_its_database(
        steps in prop::collection::vec(step(), 0..100)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _timers = runtime.enter();
        let (mut world, doubts) = (World::new(), Mutex::default());
        for step in steps {
            world.take(step, &doubts);
        }
        world.end(&doubts);
    }
}
