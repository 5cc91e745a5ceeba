//! Blackouts: how long applications waited, as statistics.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest blackout that is told apart, in microseconds: one hour.
const LONGEST: u64 = 3_600_000_000;

/// Statistics of blackouts, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How many there were.
    pub count: u64,
    /// Half of them were at most this long.
    pub median: u64,
    /// 99 of 100 were at most this long.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// The last.
    pub last: u64,
}

/// All blackouts of a mount, to three digits.
#[derive(Debug)]
pub struct Blackouts {
    histogram: Option<Histogram<u64>>,
    last: u64,
}

impl Blackouts {
    /// From what [`Blackouts::pairs`] gave.
    pub fn from_pairs(pairs: &[(u64, u64)], last: u64) -> Self {
        let mut histogram = Histogram::new_with_bounds(1, LONGEST, 3).ok();
        if let Some(histogram) = &mut histogram {
            for (value, count) in pairs {
                histogram.saturating_record_n(*value, *count);
            }
        }
        Self { histogram, last }
    }

    /// Adds one of `us` microseconds.
    pub fn record(&mut self, us: u64) {
        self.last = us;
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(us.min(LONGEST));
        }
    }

    /// All values with how often they came, for the ledger.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter().flat_map(Histogram::iter_recorded);
        recorded.map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }

    /// The statistics.
    pub fn summary(&self) -> Summary {
        let Some(histogram) = &self.histogram else {
            return Summary::default();
        };
        if histogram.is_empty() {
            return Summary::default();
        }
        Summary {
            count: histogram.len(),
            median: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
            last: self.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_survive_the_ledger() {
        let mut blackouts = Blackouts::from_pairs(&[], 0);
        assert_eq!(blackouts.summary(), Summary::default());
        for us in 1..=1000 {
            blackouts.record(us);
        }
        blackouts.record(u64::MAX);
        let summary = blackouts.summary();
        assert_eq!((summary.count, summary.last), (1001, u64::MAX));
        assert!((495..=505).contains(&summary.median), "{summary:?}");
        let again = Blackouts::from_pairs(&blackouts.pairs(), summary.last);
        assert_eq!(again.summary(), summary);
    }
}
