//! From pairs of samples to one ratio.
//!
//! Whichever of the two daemons is set up first in a session was seen to be up to 5 % slower than
//! the other throughout it, for operations that move much data, even with both bare: it got other
//! memory. So sessions take turns in who is first, and the estimate weighs both orders alike: it is
//! the geometric mean of the median ratio of the sessions in which bare was first and of those in
//! which held was. As the samples of one session share its luck, the confidence interval comes from
//! a bootstrap that draws whole sessions before it draws pairs.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::model::{CostCase, Estimate, Pair};
use crate::stats::{Spread, geometric_mean, median, percentile};

/// Draws of the bootstrap.
const DRAWS: usize = 2_000;

/// The ratios of the pairs of one session.
type Session = Vec<f64>;

/// Estimates the ratio held / bare; `None` without pairs.
pub fn estimate(pairs: &[Pair]) -> Option<Estimate> {
    let orders: Vec<Vec<Session>> = [false, true]
        .into_iter()
        .map(|held_first| sessions(pairs, held_first))
        .filter(|sessions| !sessions.is_empty())
        .collect();
    let ratio = balanced(&orders)?;
    // A fixed seed: the same results file gives the same report.
    let mut random = StdRng::seed_from_u64(0);
    let draws: Vec<f64> =
        (0..DRAWS).filter_map(|_| balanced(&draw(&orders, &mut random))).collect();
    Some(Estimate {
        ratio,
        ci_low: percentile(&draws, 0.025)?,
        ci_high: percentile(&draws, 0.975)?,
    })
}

/// The ratios of the sessions with one order of setting up.
fn sessions(pairs: &[Pair], held_first: bool) -> Vec<Session> {
    let mut sessions: Vec<(usize, Session)> = Vec::new();
    for pair in pairs.iter().filter(|p| p.held_first == held_first) {
        let ratio = pair.held_us / pair.bare_us;
        match sessions.iter_mut().find(|(number, _)| *number == pair.session) {
            Some((_, ratios)) => ratios.push(ratio),
            None => sessions.push((pair.session, vec![ratio])),
        }
    }
    sessions.into_iter().map(|(_, ratios)| ratios).collect()
}

/// The geometric mean over the orders of the median over the pairs of each.
fn balanced(orders: &[Vec<Session>]) -> Option<f64> {
    let medians: Vec<f64> =
        orders.iter().map(|sessions| median(&sessions.concat())).collect::<Option<_>>()?;
    geometric_mean(&medians)
}

/// One draw: of each order as many sessions as there are, with replacement, and of each as many
/// pairs.
fn draw(orders: &[Vec<Session>], random: &mut impl Rng) -> Vec<Vec<Session>> {
    let again = |session: &Session, random: &mut _| -> Session {
        (0..session.len()).filter_map(|_| session.choose(random).copied()).collect()
    };
    orders
        .iter()
        .map(|sessions| {
            (0..sessions.len())
                .filter_map(|_| sessions.choose(random))
                .collect::<Vec<_>>()
                .into_iter()
                .map(|session| again(session, random))
                .collect()
        })
        .collect()
}

/// Summarises the pairs of one case; `None` without pairs.
pub fn summarise(op: String, threads: usize, batch: u64, pairs: Vec<Pair>) -> Option<CostCase> {
    let of = |value: fn(&Pair) -> f64| -> Vec<f64> { pairs.iter().map(value).collect() };
    Some(CostCase {
        op,
        threads,
        batch,
        estimate: estimate(&pairs)?,
        ratios: Spread::of(&of(|p| p.held_us / p.bare_us))?,
        bare_us: median(&of(|p| p.bare_us))?,
        held_us: median(&of(|p| p.held_us))?,
        daemon_calls_per_op: None,
        pairs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(session: usize, bare_us: f64, ratio: f64) -> Pair {
        Pair { bare_us, held_us: bare_us * ratio, session, held_first: session % 2 == 1 }
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The machine slows down threefold between the pairs; within each, held costs 10 % more.
        let pairs = vec![pair(0, 10.0, 1.1), pair(0, 30.0, 1.1), pair(0, 20.0, 1.1)];
        let case = summarise("stat".into(), 1, 10, pairs).expect("pairs");
        assert!((case.estimate.ratio - 1.1).abs() < 1e-9);
        assert!((case.ratios.max - case.ratios.min).abs() < 1e-9);
        assert_eq!((case.bare_us, case.ratios.count), (20.0, 3));
        assert!(summarise("stat".into(), 1, 10, Vec::new()).is_none());
    }

    #[test]
    fn being_set_up_first_cancels_out() {
        // Held costs nothing, but who is set up first is 5 % slower, and bare is first in two
        // sessions of three.
        let pairs: Vec<Pair> = [(0, 1.0 / 1.05), (1, 1.05), (2, 1.0 / 1.05)]
            .into_iter()
            .flat_map(|(session, ratio)| (0..5).map(move |_| pair(session, 10.0, ratio)))
            .collect();
        let found = estimate(&pairs).expect("pairs");
        assert!((found.ratio - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn the_interval_shows_the_luck_of_sessions() {
        // Within a session all pairs agree, between sessions they do not.
        let lucky = |ratios: [f64; 4]| -> Estimate {
            let pairs: Vec<Pair> = ratios
                .iter()
                .enumerate()
                .flat_map(|(s, r)| (0..9).map(move |_| pair(s, 10.0, *r)))
                .collect();
            estimate(&pairs).expect("pairs")
        };
        let steady = lucky([1.02; 4]);
        assert!(steady.ci_high - steady.ci_low < 1e-9, "{steady:?}");
        let unsteady = lucky([0.97, 0.98, 1.06, 1.07]);
        assert!(unsteady.ci_high - unsteady.ci_low > 0.005, "{unsteady:?}");
        assert!(unsteady.ci_low <= unsteady.ratio && unsteady.ratio <= unsteady.ci_high);
    }
}
