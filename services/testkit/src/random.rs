//! Random choices that can be made again: the same seed gives the same choices, on every machine.
//!
//! For tests only; never for anything that must not be guessed.

/// The seed of a test: what a variable says, or another one each time. It is said, so that the test can be played again.
///
/// # Panics
/// When the variable holds no number.
#[expect(clippy::print_stdout, reason = "whoever reads of a test that failed is to see its seed")]
pub fn seed(variable: &str) -> u64 {
    // The random half of it.
    let drawn = || uuid::Uuid::now_v7().as_u64_pair().1;
    let seed = setting(variable).unwrap_or_else(drawn);
    println!("play it again with {variable}={seed}");
    seed
}

/// A number that a variable holds, if it is set.
///
/// # Panics
/// When it holds no number.
#[expect(clippy::disallowed_methods, reason = "tests have no main to read their configuration in")]
#[expect(clippy::panic, reason = "a test with another seed than the one asked for proves nothing")]
pub fn setting(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// A generator of the family `SplitMix64`.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The choices of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 where that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_number() % bound }
    }

    /// True so many times in a hundred.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them, unless there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len() as u64);
        of.get(usize::try_from(at).unwrap_or_default())
    }

    /// Another order of the same things.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap_or_default();
            things.swap(at, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_choices_and_another_seed_others() {
        let choices = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| random.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut things: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut things);
        assert_ne!(things, (0..100).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..100).collect::<Vec<_>>());
    }
}
