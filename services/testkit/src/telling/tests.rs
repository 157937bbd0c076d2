//! Each fate, event by event.

use serde_json::json;

use super::*;

/// `+a1`: the object `a` with the uid 1 was added; `~`: it changed; `-`: it is gone. `.`: a bookmark, `!`: an error.
fn line(word: &str, version: usize) -> Vec<u8> {
    let (sign, object) = word.split_at(1);
    let kind = match sign {
        "+" => "ADDED",
        "~" => "MODIFIED",
        "-" => "DELETED",
        "." => "BOOKMARK",
        _ => "ERROR",
    };
    let (name, uid) = object.split_at(object.len().min(1));
    let metadata =
        json!({ "namespace": "n", "name": name, "uid": uid, "resourceVersion": version.to_string() });
    format!("{}\n", json!({ "type": kind, "object": { "metadata": metadata } })).into_bytes()
}

/// The words of what was said, and their versions.
fn words(said: &Said) -> (String, Vec<u64>) {
    let lines = said.text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let both = lines.map(|line| {
        let value: Value = serde_json::from_slice(line).unwrap();
        let sign = match value["type"].as_str().unwrap() {
            "ADDED" => "+",
            "MODIFIED" => "~",
            "DELETED" => "-",
            "BOOKMARK" => ".",
            _ => "!",
        };
        let metadata = &value["object"]["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        (
            format!("{sign}{}{}", text("name"), text("uid")),
            text("resourceVersion").parse::<u64>().unwrap_or_default(),
        )
    });
    let (words, versions): (Vec<_>, Vec<_>) = both.unzip();
    (words.join(" "), versions)
}

const SEED: u64 = 7;

fn teller(fate: Fate) -> Teller {
    let mut teller = Teller::new("pods");
    assert_eq!(teller.turn(fate, SEED), Said::default());
    teller
}

fn hear(teller: &mut Teller, events: &str, now: Instant) -> Said {
    let lines = events.split_whitespace().enumerate().flat_map(|(number, word)| line(word, number + 1));
    teller.hear(&lines.collect::<Vec<_>>(), now)
}

#[test]
fn what_is_told_is_told_line_by_line_as_it_came() {
    let mut teller = teller(Fate::Told);
    let whole = [line("+a1", 1), line(".", 2), line("!", 3)].concat();
    let (first, second) = whole.split_at(10);
    assert_eq!(teller.hear(first, Instant::now()), Said::default());
    assert_eq!(teller.hear(second, Instant::now()).text, whole);
    // An answer need not end with a line.
    assert_eq!(teller.hear(b"rest", Instant::now()), Said::default());
    assert_eq!(teller.end(), Said { text: b"rest".to_vec(), ends: true });
    assert_eq!(teller.take_fates(), Fates::default());
}

#[test]
fn of_each_object_only_what_became_of_it_is_told_when_events_are_merged() {
    let none = Fates::default();
    for (came, told, fates) in [
        ("+a1", "+a1", none),
        ("~a1 ~a1 ~a1", "~a1", Fates { covered: 2, ..none }),
        ("+a1 ~a1", "+a1", Fates { covered: 1, ..none }),
        ("~a1 -a1", "-a1", Fates { covered: 1, ..none }),
        ("+a1 -a1", "", Fates { unseen: 2, ..none }),
        ("+a1 ~a1 -a1 +b2", "+b2", Fates { covered: 1, unseen: 2, ..none }),
        ("-a1 +a2", "~a2", Fates { replaced: 1, ..none }),
        ("-a1 +a2 ~a2", "~a2", Fates { replaced: 1, covered: 1, ..none }),
        ("-a1 +a2 -a2", "-a2", Fates { replaced: 1, covered: 1, ..none }),
        ("-a1 +a2 -a2 +a3", "~a3", Fates { replaced: 2, covered: 1, ..none }),
        // One that only lost its labels, and got them back.
        ("-a1 +a1", "~a1", Fates { covered: 1, ..none }),
        ("~a1 ~b2 . ~a1", "~b2 ~a1", Fates { covered: 1, ..none }),
    ] {
        let mut teller = teller(Fate::Merged);
        let now = Instant::now();
        assert_eq!(hear(&mut teller, came, now), Said::default(), "{came}");
        let held = teller.due().expect("it is told some time") - now;
        assert!((100..900).contains(&held.as_millis()), "{came}: {held:?}");
        let (words, versions) = words(&teller.tell());
        assert_eq!((words.as_str(), teller.take_fates()), (told, fates), "{came}");
        assert!(versions.is_sorted(), "{came}: {versions:?}");
        assert_eq!((teller.due(), teller.tell()), (None, Said::default()), "{came}");
    }
}

#[test]
fn what_is_held_back_comes_before_an_error_and_the_end() {
    for fate in [Fate::Merged, Fate::Late] {
        let mut one = teller(fate);
        assert_eq!(words(&hear(&mut one, "~a1 ~b1 !", Instant::now())).0, "~a1 ~b1 !");
        hear(&mut one, "~a1", Instant::now());
        let said = one.end();
        assert_eq!((words(&said).0.as_str(), said.ends), ("~a1", true));
        let mut other = teller(fate);
        hear(&mut other, "~a1", Instant::now());
        let said = other.turn(Fate::Told, SEED);
        assert_eq!((words(&said).0.as_str(), said.ends), ("~a1", false));
    }
}

#[test]
fn what_is_late_is_all_told_in_order() {
    let mut teller = teller(Fate::Late);
    assert_eq!(hear(&mut teller, "+a1 ~a1 . -a1 +a2", Instant::now()), Said::default());
    assert_eq!((teller.due(), teller.turn(Fate::Late, SEED)), (None, Said::default()));
    let (words, versions) = words(&teller.turn(Fate::Told, SEED));
    assert_eq!((words.as_str(), versions), ("+a1 ~a1 -a1 +a2", vec![1, 2, 4, 5]));
    assert_eq!(teller.take_fates(), Fates { late: 4, ..Fates::default() });
}

#[test]
fn who_lost_something_is_told_that_the_watch_is_too_old() {
    let mut one = teller(Fate::Lost);
    assert_eq!(one.turn(Fate::Told, SEED), Said::default(), "nothing was lost");
    one.turn(Fate::Lost, SEED);
    let came = "~a1 ".repeat(100);
    let told = words(&hear(&mut one, &came, Instant::now())).1.len();
    let lost = one.take_fates().lost;
    assert_eq!(told + lost, 100);
    assert!((30..70).contains(&lost), "{lost}");
    assert_eq!(one.turn(Fate::Told, SEED), Said { text: FORGOTTEN.as_bytes().to_vec(), ends: true });
    // However the watch ends.
    let mut other = teller(Fate::Lost);
    hear(&mut other, "~a1", Instant::now());
    assert_eq!(other.end(), Said { text: FORGOTTEN.as_bytes().to_vec(), ends: true });
}

#[test]
fn a_seed_has_the_same_choices_again_and_each_kind_its_own() {
    let told = |seed, kind: &str| {
        let mut teller = Teller::new(kind);
        teller.turn(Fate::Lost, seed);
        words(&hear(&mut teller, &"~a1 ".repeat(100), Instant::now())).1
    };
    assert_eq!(told(1, "pods"), told(1, "pods"));
    assert_ne!(told(1, "pods"), told(2, "pods"));
    assert_ne!(told(1, "pods"), told(1, "nodes"));
}
