//! After which writes operators die: one life for each k, until no operation has as many writes.

use std::sync::Mutex;

use futures::future::join_all;
use testkit::Random;
use tokio::sync::Semaphore;

use super::life::{Death, Turn, lead};
use super::origin::Source;

/// After every how-manieth write of an operation a death comes: 1 for all of them.
const EVERY: &str = "SLIPWAY_CRASH_EVERY";
/// How many writes of an operation are between two deaths in one life. More than it has: of one life it dies once.
const APART: &str = "SLIPWAY_CRASH_APART";
/// The seed by which the same ones are chosen again.
const SEED: &str = "SLIPWAY_CRASH_SEED";
/// No operation has as many writes.
pub(super) const MANY: u32 = 80;
/// Lives of one road that are led at once. More of them would begin lives that nobody needs, before the first is known of which
/// that is so; with the other roads there are enough to fill the room.
const ON_A_ROAD: usize = 2;
/// Lives that are led at once, in all tests together. Each has an operator of its own.
const AT_ONCE: usize = 8;
static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);

/// Right after which writes a death comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Those to the API server.
    Api,
    /// Those to AWS.
    Aws,
}

impl Place {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Api => "operator.write",
            Self::Aws => "operator.aws",
        }
    }

    /// How many of them are between two deaths in one life, unless another number is told.
    const fn apart(self) -> u64 {
        match self {
            Self::Api => 12,
            Self::Aws => 4,
        }
    }
}

/// What an operation has at least: writes to the API server, writes to AWS, and kinds of steps.
#[derive(Clone, Copy)]
pub(super) struct Least {
    pub(super) api: u32,
    pub(super) aws: u32,
    pub(super) kinds: usize,
}

impl Least {
    const fn at(self, place: Place) -> u32 {
        match place {
            Place::Api => self.api,
            Place::Aws => self.aws,
        }
    }
}

/// The operations of a life in order, the last of which leaves nothing.
pub(super) struct Road {
    pub(super) turns: Vec<Turn>,
    /// How many of the last turns every life ends with, because the last one needs those before it.
    pub(super) ending: usize,
    /// Whether something answers in QuestDB's place.
    pub(super) questdb: bool,
    /// What the first disk is made from, if not from nothing.
    pub(super) source: Option<Source>,
}

impl Road {
    /// The same with these turns alone.
    fn part(&self, numbers: &[usize]) -> Self {
        let turns = numbers.iter().map(|number| self.turns[*number]).collect();
        Self { turns, ..*self }
    }

    const fn shape(&self) -> Shape {
        Shape { turns: self.turns.len(), ending: self.ending }
    }
}

/// How many turns there are, and how many of the last ones every life ends with.
#[derive(Clone, Copy)]
struct Shape {
    turns: usize,
    ending: usize,
}

impl Shape {
    /// The turns up to one, and the end.
    fn as_far_as(self, until: usize) -> Vec<usize> {
        let end = self.turns - self.ending;
        (0..end).take(self.reached_by(until) + 1).chain(end..self.turns).collect()
    }

    /// As far as which turn a life has to go for one: to the end, any goes.
    const fn reached_by(self, turn: usize) -> usize {
        if turn < self.turns - self.ending { turn } else { 0 }
    }
}

/// What is led of the roads that are led less often: all of them where all is gone through, none anywhere else.
pub(super) fn all_or_none(roads: Vec<Road>) -> Vec<Road> {
    if testkit::setting(EVERY) == Some(1) { roads } else { Vec::new() }
}

/// The same, but for one that is drawn instead of none.
pub(super) fn all_or_one(mut roads: Vec<Road>) -> Vec<Road> {
    if testkit::setting(EVERY) == Some(1) {
        return roads;
    }
    let drawn = Random::new(testkit::seed(SEED)).below(roads.len() as u64);
    vec![roads.swap_remove(usize::try_from(drawn).unwrap())]
}

/// Every so-many-th k from the first on. Of those, a life has every so-many-th from its first on: its operators die one after the
/// other, and what one of them has written counts for the next. Where one life has them all, a turn may have fewer writes than the
/// first k, because a busy machine tells at once what is told one by one otherwise: then it is led again, and dies after fewer.
#[derive(Clone, Copy, Debug)]
struct Choice {
    first: u32,
    every: u32,
    /// Between two deaths of a life: a multiple of `every`.
    apart: u32,
}

impl Choice {
    /// Where nothing is told, that of one life.
    fn of(place: Place) -> Self {
        let apart = testkit::setting(APART).unwrap_or_else(|| place.apart()).max(1);
        let every = testkit::setting(EVERY).unwrap_or(apart).max(1);
        let first = 1 + Random::new(testkit::seed(SEED)).below(every);
        let number = |number: u64| u32::try_from(number).unwrap();
        let apart = apart.next_multiple_of(every);
        Self { first: number(first), every: number(every), apart: number(apart) }
    }

    /// Whether one life has all that are chosen, and not those between.
    const fn is_drawn(self) -> bool {
        self.every > 1 && self.every == self.apart
    }

    /// The greatest k that is chosen up to this number.
    fn up_to(self, most: u32) -> Option<u32> {
        let beyond = most.checked_sub(self.first)?;
        Some(most - beyond % self.every)
    }
}

/// How many writes the turns of a road have, as far as lives have shown.
struct Known {
    choice: Choice,
    shape: Shape,
    /// By turn, a k at which a death has to come; 0 for none.
    wanted: Vec<u32>,
    /// How many lives have begun.
    begun: u32,
    /// The k of the next life for those that had no death at the first one that was drawn.
    fewer: u32,
    /// The greatest k at which a death came, by turn.
    last: Vec<u32>,
    /// The least k of a first death that did not come, by turn.
    end: Vec<Option<u32>>,
}

impl Known {
    /// Of turns that have at least so many writes.
    fn new(shape: Shape, choice: Choice, least: &[u32]) -> Self {
        let wanted = least.iter().map(|least| choice.up_to(*least).unwrap_or(0)).collect();
        let (deaths, ends) = (vec![0; shape.turns], vec![None; shape.turns]);
        Self { choice, shape, wanted, begun: 0, fewer: choice.first / 2, last: deaths, end: ends }
    }

    fn is_over(&self, turn: usize, k: u32) -> bool {
        self.end[turn].is_some_and(|end| end <= k)
    }

    /// The k of the first deaths in the next life and its turns, if there is to be one: what comes later is met by those before it.
    /// Turns are left out that are led to nothing any more.
    fn next(&mut self) -> Option<(u32, Vec<usize>)> {
        let k = self.choice.first + self.choice.every * self.begun;
        let open = (0..self.shape.turns).filter(|turn| !self.is_over(*turn, k));
        let most = self.choice.apart.min(MANY);
        let Some(until) = open.map(|turn| self.shape.reached_by(turn)).max().filter(|_| k <= most) else {
            return self.after_fewer();
        };
        self.begun += 1;
        Some((k, self.shape.as_far_as(until)))
    }

    /// The same for turns that had fewer writes than the first k, though they usually have more.
    fn after_fewer(&mut self) -> Option<(u32, Vec<usize>)> {
        if !self.choice.is_drawn() || self.fewer == 0 {
            return None;
        }
        let missed =
            (0..self.shape.turns).filter(|turn| self.end[*turn].is_some() && !self.has_enough(*turn));
        let until = missed.map(|turn| self.shape.reached_by(turn)).max()?;
        let k = self.fewer;
        self.fewer = k / 2;
        Some((k, self.shape.as_far_as(until)))
    }

    /// Whether deaths came in a turn after all the writes that were chosen, as far as anybody knows of them.
    fn has_enough(&self, turn: usize) -> bool {
        let (last, wanted) = (self.last[turn], self.wanted[turn]);
        last >= wanted || (self.choice.is_drawn() && last > 0)
    }

    /// So many deaths came in a turn of a life, of which the first was to come at k.
    fn note(&mut self, turn: usize, k: u32, deaths: u32) {
        if let Some(more) = deaths.checked_sub(1) {
            self.last[turn] = self.last[turn].max(k + self.choice.apart * more);
        } else {
            self.end[turn] = Some(self.end[turn].map_or(k, |end| end.min(k)));
        }
    }

    /// Deaths came in all turns after all the writes that were chosen.
    fn judge(&self) {
        let is_enough = (0..self.shape.turns).all(|turn| self.has_enough(turn));
        assert!(is_enough, "deaths at {:?} and not at {:?}, {:?}", self.last, self.wanted, self.choice);
        let is_whole = self.choice.apart <= MANY || self.end.iter().all(Option::is_some);
        assert!(is_whole, "no end of writes: {:?}", self.last);
    }
}

/// As many lives as it takes until a death came after each write that is chosen, of each turn that has as many.
pub(super) async fn sweep(road: &Road, place: Place, wiped: bool) {
    let choice = Choice::of(place);
    let least: Vec<u32> = road.turns.iter().map(|turn| turn.least.at(place)).collect();
    let known = Mutex::new(Known::new(road.shape(), choice, &least));
    let (apart, shared) = (choice.apart, &known);
    let leaders = (0..ON_A_ROAD).map(|_| async move {
        loop {
            let _room = ROOM.acquire().await.unwrap();
            let next = shared.lock().unwrap().next();
            let Some((first, numbers)) = next else { return };
            let death = Death::At { place, first, apart };
            let deaths = lead(&road.part(&numbers), (death, wiped)).await;
            for (number, deaths) in numbers.into_iter().zip(deaths) {
                shared.lock().unwrap().note(number, first, u32::try_from(deaths).unwrap());
            }
        }
    });
    join_all(leaders).await;
    let known = known.into_inner().unwrap();
    let words: Vec<_> = road.turns.iter().map(|turn| turn.word).zip(&known.last).collect();
    println!("{place:?}, status lost: {wiped}: {:?} deaths at most at {words:?}", known.choice);
    known.judge();
}

/// A life for each turn, in which a death comes after the first step of each kind of it; with its status lost, or without that: both
/// where all is gone through.
pub(super) async fn kinds(road: &Road) {
    let mut random = Random::new(testkit::seed(SEED));
    let ways = if testkit::setting(EVERY) == Some(1) { 2 } else { 1 };
    let mut lives = Vec::new();
    for (number, turn) in road.turns.iter().enumerate().filter(|(_, turn)| turn.least.kinds > 0) {
        let wiped = random.chance(50);
        lives.extend([wiped, !wiped].into_iter().take(ways).map(|wiped| (number, turn, wiped)));
    }
    let lives = lives.into_iter().map(|(number, turn, wiped)| async move {
        let _room = ROOM.acquire().await.unwrap();
        let numbers = road.shape().as_far_as(number);
        let at = numbers.iter().position(|led| *led == number).unwrap();
        let died = lead(&road.part(&numbers), (Death::OfEachKind(at), wiped)).await;
        println!("{}, status lost: {wiped}: {} kinds of steps", turn.word, died[at]);
        assert!(died[at] >= turn.least.kinds, "{}: {died:?} kinds of steps", turn.word);
    });
    join_all(lives).await;
}

/// A life of which two operators do everything, both at once.
pub(super) async fn never_alone(road: &Road) {
    let _room = ROOM.acquire().await.unwrap();
    lead(road, (Death::NeverAlone, false)).await;
}

/// The lives that are led where turns have so many writes.
fn lives(known: &mut Known, writes: &[u32]) -> Vec<(u32, Vec<usize>)> {
    let (apart, mut led) = (known.choice.apart, Vec::new());
    while let Some((k, numbers)) = known.next() {
        for turn in &numbers {
            known.note(*turn, k, writes[*turn].checked_sub(k).map_or(0, |more| 1 + more / apart));
        }
        led.push((k, numbers));
    }
    led
}

#[test]
fn a_turn_is_led_until_it_has_no_more_writes_and_no_longer_than_it_is_needed() {
    let led = |writes: &[u32], ending: usize, apart: u32| {
        let shape = Shape { turns: writes.len(), ending };
        let mut known = Known::new(shape, Choice { first: 1, every: 1, apart }, writes);
        let led = lives(&mut known, writes);
        assert_eq!(known.last, writes);
        known.judge();
        led.into_iter().map(|(_, numbers)| numbers).collect::<Vec<_>>()
    };
    let alone = 2 * MANY;
    assert_eq!(led(&[4, 1, 3], 1, alone), [vec![0, 1, 2], vec![0, 1, 2], vec![0, 2], vec![0, 2], vec![0, 2]]);
    assert_eq!(led(&[2, 1, 1, 1], 2, alone), [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![0, 2, 3]]);
    assert_eq!(led(&[1, 2], 2, alone), [[0, 1]; 3], "one that is led whole");
    assert_eq!(led(&[7, 1, 3], 1, 3), [vec![0, 1, 2], vec![0, 1, 2], vec![0, 2]], "several deaths in a life");
}

#[test]
fn who_had_fewer_writes_than_were_drawn_dies_after_fewer() {
    let shape = Shape { turns: 3, ending: 1 };
    let drawn = |first: u32, least: &[u32]| Known::new(shape, Choice { first, every: 12, apart: 12 }, least);
    let mut known = drawn(8, &[8, 8, 8]);
    assert_eq!(lives(&mut known, &[9, 8, 30]), [(8, vec![0, 1, 2])]);
    known.judge();
    let mut known = drawn(8, &[8, 8, 0]);
    assert_eq!(
        lives(&mut known, &[7, 1, 0]),
        [(8, vec![0, 1, 2]), (4, vec![0, 1, 2]), (2, vec![0, 1, 2]), (1, vec![0, 1, 2])]
    );
    known.judge();
    let mut known = drawn(8, &[8, 1, 0]);
    assert_eq!(
        lives(&mut known, &[4, 0, 0]),
        [(8, vec![0, 1, 2]), (4, vec![0, 2])],
        "as far as who lived on"
    );
    known.judge();
    let mut known = drawn(12, &[8, 8, 8]);
    assert_eq!(lives(&mut known, &[7, 7, 7]).len(), 1, "nobody knows of so many");
    known.judge();
    let mut known = drawn(3, &[8, 8, 8]);
    assert_eq!(lives(&mut known, &[8, 0, 8]).len(), 2);
    assert!(!known.has_enough(1), "who never dies fails");
}

#[test]
fn a_few_runs_choose_every_write() {
    let chosen = |first: u32| (0..4).map(move |number| first + 5 * number);
    let mut all: Vec<u32> = (1..=5).flat_map(chosen).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=20).collect::<Vec<_>>());
    let choice = Choice { first: 3, every: 5, apart: 5 };
    assert_eq!([2, 3, 7, 8, 13].map(|most| choice.up_to(most)), [None, Some(3), Some(3), Some(8), Some(13)]);
}
