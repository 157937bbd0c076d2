//! Durations measured one by one, and what is said of them. Pure.

use std::time::Duration;

use anyhow::ensure;

use crate::Results;

/// Durations of rounds, in the order they were measured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a round.
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The shortest duration that at least `percent` of the samples do not exceed; in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map(|sample| sample.as_secs_f64() * 1_000.0)
    }

    /// The rounds of stages that follow each other: the first of each, the second of each, and so on.
    ///
    /// The percentile of such sums is below the sum of percentiles: not every stage is slow in the same round.
    pub(crate) fn sum(stages: &[Self]) -> Self {
        let rounds = stages.iter().map(Self::len).min().unwrap_or_default();
        Self((0..rounds).map(|round| stages.iter().map(|stage| stage.0[round]).sum()).collect())
    }

    /// Writes the middle and the tail under these names.
    pub(crate) fn write(&self, results: &mut Results, prefix: &str) -> anyhow::Result<()> {
        ensure!(!self.0.is_empty(), "nothing was measured");
        for percent in [50, 99] {
            results.extend(self.percentile(percent).map(|value| (format!("{prefix}p{percent}"), value)));
        }
        Ok(())
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(samples: T) -> Self {
        Self(samples.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(milliseconds: impl IntoIterator<Item = u64>) -> Samples {
        milliseconds.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_samples() {
        let check = |samples: &Samples, percent, expect: Option<f64>| {
            assert_eq!(samples.percentile(percent), expect, "{percent} % of {samples:?}");
        };
        let hundred = samples((1..=100).rev());
        check(&hundred, 50, Some(50.0));
        check(&hundred, 99, Some(99.0));
        check(&hundred, 100, Some(100.0));
        let three = samples([30, 10, 20]);
        check(&three, 50, Some(20.0));
        check(&three, 99, Some(30.0));
        check(&samples([7]), 50, Some(7.0));
        check(&samples([]), 50, None);
    }

    #[test]
    fn stages_add_up_round_by_round() {
        let sum = Samples::sum(&[samples([1, 2, 30]), samples([10, 20, 3])]);
        assert_eq!(sum, samples([11, 22, 33]));
        assert_eq!(
            Samples::sum(&[samples([1, 2]), samples([10])]),
            samples([11]),
            "a round needs all its stages"
        );
        assert_eq!(Samples::sum(&[]), samples([]));
    }

    #[test]
    fn results_are_named_after_their_percentile() {
        let mut results = Results::new();
        samples([1, 2]).write(&mut results, "sent-").unwrap();
        assert_eq!(results, Results::from([("sent-p50".to_owned(), 1.0), ("sent-p99".to_owned(), 2.0)]));
        assert!(samples([]).write(&mut results, "").is_err());
    }
}
