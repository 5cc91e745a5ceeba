//! What is told of many measurements.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Measurements in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// How many there are.
    pub count: u64,
    /// Half of them are at most this.
    pub median_us: u64,
    /// 99 in 100 are at most this.
    pub p99_us: u64,
    /// All are at most this.
    pub max_us: u64,
}

impl Spread {
    /// That of these.
    pub fn of(all: impl IntoIterator<Item = u64>) -> Self {
        let mut all: Vec<u64> = all.into_iter().collect();
        all.sort_unstable();
        let rank = |part: usize| all.get((all.len() * part).div_ceil(100).max(1) - 1).copied();
        Self {
            count: all.len() as u64,
            median_us: rank(50).unwrap_or_default(),
            p99_us: rank(99).unwrap_or_default(),
            max_us: rank(100).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return f.pad("-");
        }
        let ms = |us: u64| us as f64 / 1000.0;
        write!(f, "{:.1} / {:.1} / {:.1} ms", ms(self.median_us), ms(self.p99_us), ms(self.max_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_of_what_was_measured() {
        assert_eq!(Spread::of([]).to_string(), "-");
        let all = Spread::of((1..=200).rev());
        assert_eq!((all.count, all.median_us, all.p99_us, all.max_us), (200, 100, 198, 200));
        let one = Spread::of([1500]);
        assert_eq!(one.to_string(), "1.5 / 1.5 / 1.5 ms");
    }
}
