//! From pairs of measurements to a ratio with its confidence interval. Pure: the randomness is a fixed sequence, so the same
//! measurements always give the same result.

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2_000;
/// Seed of the fixed sequence; any odd number would do.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// One product slice and the anchor slice beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pair {
    pub(super) product: f64,
    pub(super) anchor: f64,
}

/// What many pairs say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    /// Median of the product's slices.
    pub(super) product: f64,
    /// Median of the anchor's slices.
    pub(super) anchor: f64,
    /// Median of the paired ratios.
    pub(super) ratio: f64,
    /// Lower end of its 95 % interval.
    pub(super) low: f64,
    /// Upper end of its 95 % interval.
    pub(super) high: f64,
    /// The least of the paired ratios.
    pub(super) least: f64,
    /// The greatest of them.
    pub(super) greatest: f64,
}

/// What the ratio ought to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// Throughput: at least this part of the limit.
    AtLeast(f64),
    /// Latency or cost: at most this multiple of the limit.
    AtMost(f64),
}

impl Goal {
    /// Whether a ratio reaches the goal.
    pub(super) fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
        }
    }

    /// The ratio of the pair that does worst.
    pub(super) fn worst(self, summary: &Summary) -> f64 {
        match self {
            Self::AtLeast(_) => summary.least,
            Self::AtMost(_) => summary.greatest,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(formatter, ">= {bound}"),
            Self::AtMost(bound) => write!(formatter, "<= {bound}"),
        }
    }
}

/// Sums up pairs; nothing can be said of fewer than three, or of an anchor that measured nothing.
pub(super) fn summarise(pairs: &[Pair]) -> Option<Summary> {
    if pairs.len() < 3 || pairs.iter().any(|pair| pair.anchor <= 0.0 || !pair.product.is_finite()) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|pair| pair.product / pair.anchor).collect();
    let (low, high) = interval(&ratios);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(Summary {
        product: median(pairs.iter().map(|pair| pair.product)),
        anchor: median(pairs.iter().map(|pair| pair.anchor)),
        ratio: median(ratios),
        low,
        high,
        least,
        greatest,
    })
}

/// 95 % interval of the median, by drawing again with replacement.
fn interval(values: &[f64]) -> (f64, f64) {
    let mut state = SEED;
    let mut draw = || {
        // xorshift64: short, repeatable, good enough to pick indices.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let index = (state >> 16) % (values.len() as u64);
        values[usize::try_from(index).unwrap_or_default()]
    };
    let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| median((0..values.len()).map(|_| draw()))).collect();
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40])
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        ratios.iter().map(|ratio| Pair { product: ratio * 100.0, anchor: 100.0 }).collect()
    }

    #[test]
    fn the_middle_of_the_pairs_is_the_ratio() {
        let summary = summarise(&pairs(&[0.5, 0.7, 0.6, 0.65, 9.0])).expect("enough pairs");
        assert!((summary.ratio - 0.65).abs() < 1e-9, "one outlier does not move the median");
        assert!((summary.product - 65.0).abs() < 1e-9);
        assert!((summary.anchor - 100.0).abs() < f64::EPSILON);
        assert!(summary.low <= summary.ratio && summary.ratio <= summary.high);
    }

    #[test]
    fn the_worst_of_the_pairs_is_the_one_furthest_from_the_goal() {
        let summary = summarise(&pairs(&[0.5, 0.25, 9.0, 0.75, 0.5])).expect("enough pairs");
        let worst = |goal: Goal| goal.worst(&summary);
        assert!((worst(Goal::AtLeast(0.5)) - 0.25).abs() < 1e-9, "of throughput the least");
        assert!((worst(Goal::AtMost(0.5)) - 9.0).abs() < 1e-9, "of latency the greatest");
    }

    #[test]
    fn the_interval_shrinks_with_agreement_and_repeats_exactly() {
        let close = summarise(&pairs(&[0.60, 0.61, 0.60, 0.61, 0.60, 0.61, 0.60])).expect("enough pairs");
        let wide = summarise(&pairs(&[0.2, 0.9, 0.4, 0.8, 0.3, 0.7, 0.6])).expect("enough pairs");
        assert!(close.high - close.low < wide.high - wide.low);
        assert_eq!(summarise(&pairs(&[0.2, 0.9, 0.4])), summarise(&pairs(&[0.2, 0.9, 0.4])));
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(summarise(&pairs(&[1.0, 1.0])), None);
        assert_eq!(summarise(&[Pair { product: 1.0, anchor: 0.0 }; 3]), None);
        assert_eq!(summarise(&[Pair { product: f64::NAN, anchor: 1.0 }; 3]), None);
    }

    #[test]
    fn goals_look_the_right_way() {
        assert!(Goal::AtLeast(0.6).holds(0.6) && !Goal::AtLeast(0.6).holds(0.59));
        assert!(Goal::AtMost(1.5).holds(1.5) && !Goal::AtMost(1.5).holds(1.51));
        assert_eq!(Goal::AtMost(1.5).to_string(), "<= 1.5");
    }
}
