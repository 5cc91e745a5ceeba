//! The statistics that the benchmarks report.
//!
//! Everything here is a pure function of its samples, so that a figure in the report can be
//! recomputed from the results file. Medians and order statistics are used throughout: timings have
//! long one-sided tails, and a mean of them says more about the neighbours on the machine than
//! about the program.

use serde::{Deserialize, Serialize};

/// The `q`-quantile (0 ≤ `q` ≤ 1) with linear interpolation between the two nearest samples; `None`
/// without samples.
///
/// Samples that are not finite are ignored.
pub fn percentile(samples: &[f64], q: f64) -> Option<f64> {
    let sorted = sorted(samples);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let low = position.floor() as usize;
    let high = position.ceil() as usize;
    let weight = position - low as f64;
    Some(sorted[low] * (1.0 - weight) + sorted[high] * weight)
}

/// The median; `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    percentile(samples, 0.5)
}

/// The geometric mean; `None` without samples or where one is not positive.
pub fn geometric_mean(samples: &[f64]) -> Option<f64> {
    if samples.is_empty() || samples.iter().any(|s| !s.is_finite() || *s <= 0.0) {
        return None;
    }
    let sum: f64 = samples.iter().map(|s| s.ln()).sum();
    Some((sum / samples.len() as f64).exp())
}

/// Five order statistics of a sample, with a confidence interval for its median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of samples.
    pub count: usize,
    /// Smallest sample.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest sample.
    pub max: f64,
    /// Lower end of the distribution-free 95 % confidence interval of the median.
    pub ci_low: f64,
    /// Upper end of it.
    pub ci_high: f64,
}

impl Spread {
    /// Summarises `samples`; `None` without samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let (ci_low, ci_high) = median_interval(samples)?;
        Some(Self {
            count: sorted(samples).len(),
            min: percentile(samples, 0.0)?,
            q1: percentile(samples, 0.25)?,
            median: median(samples)?,
            q3: percentile(samples, 0.75)?,
            p99: percentile(samples, 0.99)?,
            max: percentile(samples, 1.0)?,
            ci_low,
            ci_high,
        })
    }
}

/// The distribution-free 95 % confidence interval of the median, from order statistics (the sign
/// test's interval).
///
/// With fewer than six samples no such interval exists, and the whole range is returned.
pub fn median_interval(samples: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(samples);
    let n = sorted.len();
    if n == 0 {
        return None;
    }
    // The largest k with P(Binomial(n, 1/2) < k) <= 2.5 %: the k-th smallest and k-th largest bound
    // the median.
    let mut term = 0.5f64.powi(i32::try_from(n).ok()?);
    let mut below = 0.0;
    let mut k = 0;
    while k < n / 2 {
        below += term;
        if below > 0.025 {
            break;
        }
        k += 1;
        term *= (n + 1 - k) as f64 / k as f64;
    }
    let k = k.max(1);
    Some((sorted[k - 1], sorted[n - k]))
}

/// The least-squares line `intercept + slope * x` through `points`, as `(intercept, slope)`.
///
/// `None` where it is not determined: fewer than two distinct `x`.
pub fn fit_line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let variance: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    if points.len() < 2 || variance == 0.0 {
        return None;
    }
    let covariance: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let slope = covariance / variance;
    Some((mean_y - slope * mean_x, slope))
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, 7.0]), Some(7.0));
    }

    #[test]
    fn percentile_interpolates_and_clamps() {
        let samples = [10.0, 20.0, 30.0, 40.0, 50.0];
        assert_eq!(percentile(&samples, 0.0), Some(10.0));
        assert_eq!(percentile(&samples, 0.25), Some(20.0));
        assert_eq!(percentile(&samples, 0.1), Some(14.0));
        assert_eq!(percentile(&samples, 2.0), Some(50.0));
    }

    #[test]
    fn geometric_mean_treats_doubling_and_halving_alike() {
        let mean = geometric_mean(&[2.0, 0.5]).expect("positive samples");
        assert!((mean - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }

    #[test]
    fn median_interval_matches_the_sign_test_tables() {
        // Tables of the sign test: n = 6 gives the extremes, n = 10 the 2nd and 9th, n = 15 the 4th
        // and 12th, n = 25 the 8th and 18th.
        for (n, low, high) in [(6, 1, 6), (10, 2, 9), (15, 4, 12), (25, 8, 18)] {
            let samples: Vec<f64> = (1..=n).map(f64::from).collect();
            let expected = (f64::from(low), f64::from(high));
            assert_eq!(median_interval(&samples), Some(expected), "n = {n}");
        }
        assert_eq!(median_interval(&[5.0]), Some((5.0, 5.0)));
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn spread_holds_the_order_statistics() {
        let samples: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&samples).expect("samples");
        assert_eq!((spread.count, spread.min, spread.max), (101, 0.0, 100.0));
        assert_eq!((spread.q1, spread.median, spread.q3, spread.p99), (25.0, 50.0, 75.0, 99.0));
        assert!(spread.ci_low < spread.median && spread.median < spread.ci_high);
    }

    #[test]
    fn line_through_points() {
        let (intercept, slope) = fit_line(&[(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]).expect("a line");
        assert!((intercept - 5.0).abs() < 1e-12 && (slope - 2.0).abs() < 1e-12);
        assert_eq!(fit_line(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(fit_line(&[(1.0, 1.0)]), None);
        assert_eq!(fit_line(&[]), None);
    }
}
