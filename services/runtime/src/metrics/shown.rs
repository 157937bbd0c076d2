//! Numbers by what they are of, which are counted anew now and then.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use crate::lock;

/// A number for each set of labels that was named last. Clones share it.
#[derive(Debug, Clone)]
pub struct Shown<L> {
    family: Family<L, Gauge>,
    named: Arc<Mutex<HashSet<L>>>,
}

impl<L: EncodeLabelSet + Debug + Clone + Eq + Hash + Send + Sync + 'static> Shown<L> {
    /// Registers it.
    pub fn new(metrics: &Metrics, name: &str, help: &str) -> Self {
        Self { family: metrics.register(name, help, Family::default()), named: Arc::default() }
    }

    /// Shows these numbers and no others. What is shown before and after is shown in between too: somebody may be reading.
    pub fn show(&self, numbers: impl IntoIterator<Item = (L, i64)>) {
        let (mut named, mut now) = (lock(&self.named), HashSet::new());
        for (labels, number) in numbers {
            self.family.get_or_create(&labels).set(number);
            now.insert(labels);
        }
        for gone in named.difference(&now) {
            self.family.remove(gone);
        }
        *named = now;
    }

    /// Shows one of them no more, until it is named again.
    pub fn remove(&self, labels: &L) {
        lock(&self.named).remove(labels);
        self.family.remove(labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_any_more_goes() {
        let metrics = Metrics::default();
        let shown = Shown::new(&metrics, "waiting", "Rows");
        let check = |numbers: &[(&str, i64)]| {
            shown.show(numbers.iter().map(|(of, number)| ([("of", (*of).to_owned())], *number)));
            let text = metrics.encode().unwrap();
            let mut lines: Vec<&str> = text.lines().filter(|line| line.starts_with("waiting{")).collect();
            lines.sort_unstable();
            let expected: Vec<String> =
                numbers.iter().map(|(of, number)| format!("waiting{{of=\"{of}\"}} {number}")).collect();
            assert_eq!(lines, expected);
        };
        check(&[("a", 1), ("b", 2)]);
        check(&[("b", 3), ("c", 0)]);
        check(&[]);
    }
}
