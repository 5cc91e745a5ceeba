//! One life after another on each fixture, until its share of the cuts is made or something was
//! wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use belay_fixtures::Kind;

use super::counts::{self, Counts};

/// After so many cuts something must have been durable before one of them, or they show nothing.
const ENOUGH: u64 = 10;

/// A place in which power is lost again and again.
pub trait Lives {
    /// One life of it, and what is found after its end.
    ///
    /// # Errors
    /// When something was wrong.
    fn life(&mut self) -> Result<()>;

    /// What was done and seen so far.
    fn counts(&mut self) -> &mut Counts;
}

/// Shares `cuts` among the fixtures. `bench` makes the place for one of them; `replay` gives the
/// arguments that show again what was wrong, from the fixture, its counts and its share.
///
/// # Errors
/// When there is no place to be had.
pub fn run<B: Lives>(
    fixtures: &[Kind],
    cuts: u64,
    interrupted: &AtomicBool,
    bench: impl Fn(Kind) -> Result<B>,
    replay: impl Fn(Kind, &Counts, u64) -> String,
) -> Result<Vec<(Kind, Counts)>> {
    let mut total = Counts::default();
    let mut rows = Vec::new();
    let (each, rest) = (cuts / fixtures.len().max(1) as u64, cuts % fixtures.len().max(1) as u64);
    for (index, kind) in fixtures.iter().copied().enumerate() {
        let cuts = each + u64::from((index as u64) < rest);
        let started = Instant::now();
        let mut bench =
            bench(kind).with_context(|| format!("preparing power failures on {kind}"))?;
        let bar = counts::bar(kind, cuts);
        while bench.counts().cuts < cuts && !interrupted.load(Ordering::Relaxed) {
            if let Err(why) = bench.life() {
                let counts = bench.counts();
                counts.wrong += 1;
                println!("{kind}: WRONG after {} cuts: {why:#}", counts.cuts);
                println!("  replay: belay-chaos {}", replay(kind, counts, cuts));
                break;
            }
            bar.set_position(bench.counts().cuts);
        }
        bar.finish_and_clear();
        println!("{kind}: {}, {:.0} s", bench.counts(), started.elapsed().as_secs_f64());
        if shows_nothing(bench.counts()) {
            println!(
                "{kind}: WRONG: nothing was durable before any of these cuts, so they show nothing"
            );
        }
        total.add(bench.counts());
        rows.push((kind, bench.counts().clone()));
    }
    println!("total: {total}");
    Ok(rows)
}

/// Whether everything was right on all fixtures, and that was shown.
pub fn is_right(rows: &[(Kind, Counts)]) -> bool {
    rows.iter().all(|(_, counts)| counts.wrong == 0 && !shows_nothing(counts))
}

fn shows_nothing(counts: &Counts) -> bool {
    counts.cuts >= ENOUGH && counts.durable == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_before_which_nothing_was_durable_show_nothing() {
        let rows = |cuts, durable, wrong| {
            let mut counts = Counts::default();
            (counts.cuts, counts.durable, counts.wrong) = (cuts, durable, wrong);
            [(Kind::Volume, counts)]
        };
        assert!(is_right(&rows(ENOUGH, 1, 0)) && is_right(&rows(ENOUGH - 1, 0, 0)));
        assert!(!is_right(&rows(ENOUGH, 0, 0)) && !is_right(&rows(ENOUGH, 1, 1)));
    }
}
