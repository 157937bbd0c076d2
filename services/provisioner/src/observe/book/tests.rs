//! What is told of what was seen, and when.

use super::*;
use crate::observe::translate::{observation, tests::object};

fn seen(version: u64, phase: &str) -> (DatabaseId, Observation) {
    let (database, seen) = observation(&object(), 1, true).unwrap();
    (database, Observation { resource_version: version, phase: phase.to_owned(), ..seen })
}

fn see(book: &mut Book, version: u64, phase: &str) -> DatabaseId {
    let (database, seen) = seen(version, phase);
    assert!(!book.see(database, seen), "no older one was seen");
    database
}

fn book() -> Book {
    Book::new(1, 8)
}

/// Ends a list of a server that stands where it was.
fn end(book: &mut Book) {
    assert!(!book.end_list(book.newest()), "it was not restored");
}

/// What is told next, once nothing is paused any more.
fn next(book: &mut Book) -> Option<(u64, bool)> {
    let later = Instant::now() + Duration::from_hours(1);
    book.take(later).map(|(_, seen)| (seen.resource_version, seen.present))
}

#[test]
fn changes_are_told_and_repetitions_are_not() {
    let (mut book, now) = (book(), Instant::now());
    let database = see(&mut book, 5, "Pending");
    assert_eq!(next(&mut book), Some((5, true)));
    assert_eq!(next(&mut book), None);
    book.told(database, now);
    see(&mut book, 6, "Pending");
    assert_eq!(next(&mut book), None, "only the version moved");
    see(&mut book, 7, "Ready");
    assert_eq!(next(&mut book), Some((7, true)));
    assert_eq!(book.newest(), 7);
}

#[test]
fn an_older_version_is_of_a_restored_server_and_changes_nothing() {
    let (mut book, now) = (book(), Instant::now());
    let database = see(&mut book, 7, "Ready");
    assert_eq!(next(&mut book), Some((7, true)));
    book.told(database, now);
    see(&mut book, 7, "Ready");
    book.begin_list();
    let (database, older) = seen(6, "Pending");
    assert!(book.see(database, older), "however far the server has come by now");
    assert_eq!(next(&mut book), None, "nothing of it is told under this term");
    let (database, older) = seen(6, "Pending");
    let copy = Observation { namespace: "elsewhere".to_owned(), ..older };
    assert!(!book.see(database, copy), "another resource that names the database");
}

/// A copy so young that the server has passed all versions since: of what it brought back no version goes down.
#[test]
fn what_a_list_brings_back_is_of_a_restored_server() {
    let (mut book, now) = (book(), Instant::now());
    book.begin_list();
    let database = see(&mut book, 7, "Deleted");
    end(&mut book);
    assert_eq!(next(&mut book), Some((7, true)));
    book.told(database, now);
    let gone = Observation { present: false, ..seen(9, "Deleted").1 };
    assert!(!book.see(database, gone));
    book.reach(9);
    assert_eq!(next(&mut book), Some((9, false)));
    book.told(database, now);
    // What the server says of where it stands, the watch may not have come to yet.
    book.note_version(20);
    book.begin_list();
    assert!(!book.see(DatabaseId::mint(), seen(12, "Pending").1), "made meanwhile");
    assert!(book.see(database, seen(8, "Deleted").1), "it was gone at 9");
    assert!(!book.end_list(20));
    book.begin_list();
    assert!(book.end_list(19), "the last one was of 20");
    assert_eq!(next(&mut book), Some((12, true)), "nothing is gone by it");
}

/// Of what a list lacked nobody knows the last version: it may be below the one that a copy brings back.
#[test]
fn what_a_list_brings_back_is_of_a_restored_server_although_nobody_saw_it_go() {
    for is_told in [false, true] {
        let (mut book, now) = (book(), Instant::now());
        book.begin_list();
        let database = see(&mut book, 5, "Ready");
        end(&mut book);
        assert_eq!(next(&mut book), Some((5, true)));
        book.told(database, now);
        book.begin_list();
        assert!(!book.end_list(20));
        assert_eq!(next(&mut book), Some((6, false)));
        if is_told {
            book.told(database, now);
        }
        book.begin_list();
        assert!(book.see(database, seen(8, "Ready").1), "it was gone at 20");
        assert!(!book.see(database, seen(21, "Pending").1), "another one, made since");
    }
}

#[test]
fn what_changes_on_the_way_is_told_once_afterwards() {
    let (mut book, now) = (book(), Instant::now());
    let database = see(&mut book, 5, "Pending");
    assert!(next(&mut book).is_some());
    see(&mut book, 6, "Provisioning");
    see(&mut book, 7, "Ready");
    assert_eq!(next(&mut book), None);
    book.told(database, now);
    assert_eq!(next(&mut book), Some((7, true)));
    book.not_told(database, now);
    assert_eq!(next(&mut book), Some((7, true)), "again, because nobody knows");
    book.told(database, now);
    assert_eq!(next(&mut book), None);
}

#[test]
fn everything_is_said_again_after_a_while() {
    let (mut book, now, period) = (book(), Instant::now(), Duration::from_mins(10));
    let database = see(&mut book, 5, "Ready");
    next(&mut book);
    book.told(database, now);
    book.roll(now + period.mul_f64(0.5), period);
    assert_eq!(next(&mut book), None);
    book.roll(now + period.mul_f64(1.2), period);
    book.roll(now + period.mul_f64(1.3), period);
    assert_eq!(next(&mut book), Some((5, true)));
    assert_eq!(next(&mut book), None);
}

#[test]
fn a_book_is_not_told_any_more_while_something_new_cannot_be_told() {
    let (mut book, start) = (book(), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    let database = see(&mut book, 1, "Pending");
    assert_eq!(next(&mut book), Some((1, true)));
    book.told(database, start);
    see(&mut book, 2, "Ready");
    book.roll(at(1), Duration::from_hours(1));
    assert!(book.is_told(at(61)), "it may take its time");
    for second in [20, 40, 62] {
        assert_eq!(next(&mut book), Some((2, true)));
        book.not_told(database, at(second));
        book.roll(at(second), Duration::from_hours(1));
    }
    assert!(!book.is_told(at(62)));
    assert_eq!(next(&mut book), Some((2, true)));
    book.told(database, at(63));
    assert!(book.is_told(at(63)));
}

#[test]
fn it_is_known_for_how_long_the_oldest_word_waits() {
    let (mut book, start, period) = (book(), Instant::now(), Duration::from_hours(1));
    let (at, seconds) = (|seconds| start + Duration::from_secs(seconds), Duration::from_secs);
    let database = see(&mut book, 1, "Pending");
    book.roll(at(0), period);
    assert_eq!(book.waits(at(5)), seconds(5));
    assert!(next(&mut book).is_some());
    book.roll(at(6), period);
    assert_eq!(book.waits(at(6)), seconds(6), "on its way");
    see(&mut book, 2, "Ready");
    book.roll(at(7), period);
    book.told(database, at(20));
    assert_eq!(book.waits(at(20)), seconds(14), "what came meanwhile has waited for as long");
    assert!(next(&mut book).is_some());
    book.not_told(database, at(21));
    assert_eq!(book.waits(at(21)), seconds(15), "again, because nobody knows");
    assert!(next(&mut book).is_some());
    book.told(database, at(22));
    assert_eq!(book.waits(at(22)), seconds(0));
    see(&mut book, 3, "Paused");
    book.roll(at(30), period);
    assert_eq!(book.waits(at(30)), seconds(23), "nobody knows when it came since the roll before");
}

#[test]
fn a_book_is_told_when_every_page_arrived_once() {
    let (mut book, now) = (book(), Instant::now());
    assert!(book.is_told(now), "there is nothing to tell");
    let database = see(&mut book, 5, "Ready");
    assert!(!book.is_told(now));
    next(&mut book);
    assert!(!book.is_told(now), "on its way");
    book.told(database, now);
    assert!(book.is_told(now));
    see(&mut book, 6, "Degraded");
    assert!(book.is_told(now), "a change of what was told");
}

#[test]
fn what_a_list_does_not_have_is_gone() {
    let (mut book, now) = (book(), Instant::now());
    book.begin_list();
    let database = see(&mut book, 5, "Ready");
    end(&mut book);
    next(&mut book);
    book.told(database, now);
    book.begin_list();
    end(&mut book);
    assert_eq!(next(&mut book), Some((6, false)));
    assert!(book.is_empty());
    book.told(database, now);
    book.begin_list();
    end(&mut book);
    assert_eq!(next(&mut book), None, "told once, until the roll comes to it");
}

#[test]
fn what_a_list_has_without_a_position_is_not_gone() {
    let (mut book, now) = (book(), Instant::now());
    let database = see(&mut book, 5, "Ready");
    next(&mut book);
    book.told(database, now);
    let own = object().metadata;
    let own = (own.namespace.unwrap(), own.name.unwrap());
    for (namespace, name, gone) in [(&*own.0, &*own.1, None), ("elsewhere", &*own.1, Some((6, false)))] {
        book.begin_list();
        book.is_there(database, (namespace, name));
        end(&mut book);
        assert_eq!(next(&mut book), gone, "{namespace}/{name}");
    }
}

#[test]
fn a_list_that_breaks_off_says_nothing_of_what_is_missing() {
    let (mut book, now) = (book(), Instant::now());
    let database = see(&mut book, 5, "Ready");
    next(&mut book);
    book.told(database, now);
    book.begin_list();
    book.begin_list();
    see(&mut book, 5, "Ready");
    end(&mut book);
    assert_eq!(next(&mut book), None);
}

/// What its watch tells of what goes.
fn gone(version: u64) -> Observation {
    Observation { present: false, ..seen(version, "Deleted").1 }
}

/// A database that was there and was told to be gone once.
fn told_gone(book: &mut Book, now: Instant) -> DatabaseId {
    let database = see(book, 5, "Deleted");
    drain(book, now);
    assert!(!book.see(database, gone(6)));
    assert_eq!(drain(book, now), [(database, false)]);
    database
}

/// Tells all that waits, and all of it arrives. Gives whether it was there.
fn drain(book: &mut Book, now: Instant) -> Vec<(DatabaseId, bool)> {
    let mut told = Vec::new();
    while let Some((database, seen)) = book.take(now) {
        book.told(database, now);
        told.push((database, seen.present));
    }
    told
}

/// Databases whose moments within the roll are as far from each other as they can be.
fn spaced(count: u16) -> impl Iterator<Item = DatabaseId> {
    (0..count).map(move |number| {
        let share = u16::MAX / count * number;
        format!("00000000-0000-7000-8000-00000000{share:04x}").parse::<DatabaseId>().unwrap()
    })
}

/// Kafka may lose what it took.
#[test]
fn what_went_is_told_once_more_with_the_roll() {
    let (mut book, now, period) = (book(), Instant::now(), Duration::from_mins(10));
    let database = told_gone(&mut book, now);
    book.roll(now + period.mul_f64(0.5), period);
    assert_eq!(next(&mut book), None);
    let later = now + period.mul_f64(1.2);
    book.roll(later, period);
    assert_eq!(next(&mut book), Some((6, false)));
    book.not_told(database, later);
    assert_eq!(next(&mut book), Some((6, false)), "again, because nobody knows");
    book.forget_on_its_way();
    assert_eq!(next(&mut book), Some((6, false)), "by another watch");
    book.told(database, later);
    assert!(book.pages.is_empty());
    book.roll(now + period * 3, period);
    assert_eq!(next(&mut book), None, "twice is enough");
}

#[test]
fn what_comes_back_before_it_was_told_once_more_is_told_instead() {
    let (mut book, now, period) = (book(), Instant::now(), Duration::from_mins(10));
    let later = now + period.mul_f64(1.2);
    let database = told_gone(&mut book, now);
    see(&mut book, 9, "Ready");
    assert_eq!(next(&mut book), Some((9, true)));
    book.told(database, now);
    book.roll(later, period);
    assert_eq!(next(&mut book), Some((9, true)), "what is there is told with the roll, and not what went");
    book.told(database, later);
    assert_eq!(book.len(), 1);
}

#[test]
fn what_comes_back_while_it_is_told_once_more_stays() {
    let (mut book, now, period) = (book(), Instant::now(), Duration::from_mins(10));
    let database = told_gone(&mut book, now);
    let later = now + period.mul_f64(1.2);
    book.roll(later, period);
    assert_eq!(next(&mut book), Some((6, false)));
    see(&mut book, 9, "Ready");
    book.told(database, later);
    assert_eq!(next(&mut book), Some((9, true)));
    book.told(database, later);
    assert_eq!(book.len(), 1);
}

#[test]
fn what_went_again_is_told_twice_again() {
    let (mut book, now, period) = (book(), Instant::now(), Duration::from_mins(10));
    let database = told_gone(&mut book, now);
    see(&mut book, 9, "Ready");
    assert!(!book.see(database, gone(10)));
    assert_eq!(next(&mut book), Some((10, false)), "before anybody was told of it");
    book.told(database, now);
    book.roll(now + period.mul_f64(1.2), period);
    assert_eq!(next(&mut book), Some((10, false)));
}

#[test]
fn of_what_went_the_book_has_no_more_than_went_within_a_roll() {
    let (mut book, start, period) = (book(), Instant::now(), Duration::from_mins(10));
    for (second, database) in (0..).zip(spaced(1800)) {
        let now = start + Duration::from_secs(second);
        assert!(!book.see(database, seen(2 * second + 1, "Deleted").1));
        drain(&mut book, now);
        assert!(!book.see(database, gone(2 * second + 2)));
        book.roll(now, period);
        drain(&mut book, now);
        assert!(book.pages.len() <= 661, "at {second} s: {}", book.pages.len());
    }
    let end = start + Duration::from_mins(30) + period.mul_f64(1.1);
    book.roll(end, period);
    assert!(!drain(&mut book, end).is_empty());
    assert!(book.pages.is_empty());
}

#[test]
fn many_that_went_at_once_are_told_once_more_a_few_at_a_time() {
    let (mut book, start, period) = (book(), Instant::now(), Duration::from_mins(10));
    let many: Vec<DatabaseId> = spaced(1000).collect();
    for database in &many {
        assert!(!book.see(*database, seen(5, "Deleted").1));
    }
    drain(&mut book, start);
    for database in &many {
        assert!(!book.see(*database, gone(6)));
    }
    assert_eq!(drain(&mut book, start).len(), many.len());
    let mut again = 0;
    for second in 1..=660 {
        let now = start + Duration::from_secs(second);
        book.roll(now, period);
        let other = see(&mut book, 6 + second, &format!("at {second} s"));
        let told = drain(&mut book, now);
        assert!(told.contains(&(other, true)));
        assert!(told.len() <= 11, "at {second} s nothing else waits behind {}", told.len());
        again += told.len() - 1;
    }
    assert_eq!(again, many.len(), "each once");
    assert_eq!(book.pages.len(), 1);
}

/// Databases whose gossip goes to a partition.
fn of(partition: i32, partitions: i32) -> impl Iterator<Item = DatabaseId> {
    let is_there =
        move |id: &DatabaseId| bus::partition_of(id.to_string().as_bytes(), partitions) == partition;
    std::iter::repeat_with(DatabaseId::mint).filter(is_there)
}

#[test]
fn a_full_partition_holds_back_nothing_of_another() {
    let (mut book, now) = (Book::new(4, 2), Instant::now());
    let stuck: Vec<DatabaseId> = of(1, 4).take(5).collect();
    let free: Vec<DatabaseId> = of(2, 4).take(5).collect();
    // What goes to the partition without a leader was there before.
    for database in stuck.iter().chain(&free) {
        assert!(!book.see(*database, seen(5, "Ready").1));
    }
    let take = |book: &mut Book, at: Instant| -> Vec<DatabaseId> {
        std::iter::from_fn(|| book.take(at)).map(|(database, _)| database).collect()
    };
    let mut first = take(&mut book, now);
    first.sort();
    let mut both = [&stuck[..2], &free[..2]].concat();
    both.sort();
    assert_eq!(first, both, "as much of each as may be on its way");
    for (told, taken) in [(0, 2), (1, 3), (2, 4)] {
        book.told(free[told], now);
        assert_eq!(take(&mut book, now), [free[taken]], "its place is free, and the others are not");
    }
    // What did not arrive pauses its own partition alone, and keeps its turn behind what waits there.
    book.not_told(stuck[0], now);
    book.told(free[3], now);
    assert!(!book.see(free[0], seen(6, "Degraded").1));
    assert_eq!(take(&mut book, now), [free[0]]);
    assert_eq!(take(&mut book, now + UNSENT), [stuck[2]]);
    // Another watch has all places of its own again.
    book.forget_on_its_way();
    assert_eq!(take(&mut book, now + UNSENT).len(), 4);
}
