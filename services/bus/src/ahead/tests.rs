//! What is told of finished records, there and back.

#![expect(
    clippy::single_range_in_vec_init,
    reason = "stretches of offsets are ranges, and one of them is a list too"
)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Stretches from the lengths of gaps and of what is finished.
fn stretches(from: i64, lengths: &[(i64, i64)]) -> Vec<Range<i64>> {
    let mut end = from;
    let stretch = |(gap, length): &(i64, i64)| {
        let start = end + gap;
        end = start + length;
        start..end
    };
    lengths.iter().map(stretch).collect()
}

fn offsets<'a>(stretches: impl IntoIterator<Item = &'a Range<i64>>) -> BTreeSet<i64> {
    stretches.into_iter().flat_map(Clone::clone).collect()
}

#[test]
fn the_text_stays_as_it_is() {
    // Others read what we wrote: a change of these needs other letters.
    assert_eq!(encode(100, &[]), "");
    assert_eq!(encode(100, &stretches(100, &[(1, 1_000)])), "rlzByN2QB6Ac");
    let every_other: Vec<_> = (0..20).map(|_| (1, 1)).collect();
    assert_eq!(encode(100, &stretches(100, &every_other)), "bWxJ7xGSqqqqqqg");
}

#[test]
fn one_open_record_and_very_many_finished_take_little() {
    let far = 1_000_000_000_000;
    let text = encode(far, &[far + 1..far + 5_000_000]);
    assert!(text.len() < 40, "{text}");
    assert_eq!(decode(&text, far).unwrap(), [far + 1..far + 5_000_000]);
}

#[test]
fn what_does_not_fit_is_left_out_from_behind() {
    let finished = stretches(7, &vec![(100, 150); 50_000]);
    let text = encode(7, &finished);
    assert!(text.len() <= LONGEST && text.len() > LONGEST - 100, "{}", text.len());
    let told = decode(&text, 7).unwrap();
    assert!(told.len() > 800, "{}", told.len());
    assert_eq!(told, &finished[..told.len()]);
}

#[test]
fn it_belongs_to_its_offset() {
    let text = encode(100, &[101..103]);
    assert!(decode(&text, 100).is_some());
    assert_eq!(decode(&text, 99), None);
    assert_eq!(decode(&text, 101), None);
}

proptest! {
    #[test]
    fn what_is_told_was_finished(
        from in 0..i64::MAX / 2,
        lengths in prop::collection::vec((1_i64..400, 1_i64..400), 0..3_000),
        small in any::<bool>(),
    ) {
        let lengths: Vec<_> = lengths.into_iter().map(|(gap, length)| if small { (gap % 3 + 1, length % 3 + 1) } else { (gap, length) }).collect();
        let finished = stretches(from, &lengths);
        let text = encode(from, &finished);
        prop_assert!(text.len() <= LONGEST);
        prop_assert_eq!(text.is_empty(), finished.is_empty());
        if !finished.is_empty() {
            let (told, truth) = (offsets(&decode(&text, from).unwrap()), offsets(&finished));
            prop_assert!(told.is_subset(&truth));
            // Nothing is left out of the middle.
            let last = *told.last().unwrap();
            prop_assert!(truth.range(..=last).eq(told.iter()));
            if text.len() < LONGEST - 30 {
                prop_assert_eq!(told, truth, "there was room");
            }
        }
    }

    #[test]
    fn cut_off_or_changed_it_is_nothing(
        lengths in prop::collection::vec((1_i64..400, 1_i64..400), 1..50),
        at in any::<prop::sample::Index>(),
        letter in any::<char>(),
    ) {
        let text = encode(9, &stretches(9, &lengths));
        let at = at.index(text.len());
        prop_assert_eq!(decode(&text[..at], 9), None, "cut off");
        let mut changed: Vec<char> = text.chars().collect();
        if changed[at] != letter {
            changed[at] = letter;
            prop_assert_eq!(decode(&String::from_iter(changed), 9), None, "changed");
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60), from in any::<i64>()) {
        prop_assert_eq!(decode(&text, from), None);
        let letters = ["r", "b", "x"];
        for letter in letters {
            let _ = decode(&format!("{letter}{}", BASE64.encode(&bytes)), from);
            // With a right checksum too.
            let mut all = checksum(letter.chars().next().unwrap(), &bytes).to_le_bytes().to_vec();
            all.extend(&bytes);
            let _ = decode(&format!("{letter}{}", BASE64.encode(all)), from);
        }
    }
}
