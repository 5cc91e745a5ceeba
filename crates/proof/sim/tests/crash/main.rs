//! The session against a simulated kernel and a simulated daemon that crashes at every step.
//!
//! `BELAY_SEED=n` runs one seed of the random tests, `BELAY_SOAK=n` makes all of them n times
//! as long, `BELAY_FROM=n` begins with another seed than 1, `BELAY_TRACE=1` shows every request.
#![forbid(unsafe_code)]

mod checkpoint;
mod poison;
mod scripts;

use belay_seeds::Tally as _;
use belay_sim::memory::Rng;
use belay_sim::scenario::{self, FLAVOURS, Scenario, Tally};
use belay_sim::world::{Setup, run};

fn soak() -> u64 {
    std::env::var("BELAY_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn seeds(n: u64) -> Vec<u64> {
    match std::env::var("BELAY_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => {
            let from = std::env::var("BELAY_FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
            (from..from + n * soak()).collect()
        }
    }
}

/// Runs it with so many seeds.
fn all(scenario: Scenario, n: u64) {
    let mut tally = Tally::default();
    seeds(n).into_iter().for_each(|seed| tally.join(&scenario.run(seed)));
    assert!(tally.crashes > 0, "{tally:?}");
}

#[test]
fn random_operations_without_a_crash() {
    for seed in seeds(200) {
        run(&scenario::operations(seed, 80));
    }
}

/// Crashes at every step of a script, one run for each, under all flavours and kernels.
fn at_every_step(name: &str) {
    let ops = scripts::script(name);
    for (i, flavour) in FLAVOURS.into_iter().enumerate() {
        if name == "exchange" && flavour.numbered {
            continue; // which of two files is which, nothing tells
        }
        for resend in [true, false] {
            let threads = 1 + i % 2;
            let setup = Setup::new(5 + i as u64, vec![ops.clone()], flavour);
            let setup = Setup { resend, threads, ..setup };
            let ticks = run(&setup).ticks;
            // Every step with the first flavour; of the others, a part unless there is time.
            let stride = if i == 0 || soak() > 1 { 1 } else { 3 };
            for at in (1 + i as u64..=ticks).step_by(stride) {
                let ran = run(&Setup { plan: vec![at], ..setup.clone() });
                assert_eq!(ran.crashes, 1, "{name} dies at step {at}");
            }
        }
    }
}

/// Dies again, at a random step after a random first death, and sometimes a third time.
fn again_and_again(name: &str) {
    let ops = scripts::script(name);
    let mut rng = Rng::new(name.len() as u64);
    for round in 0..200 * soak() {
        let flavour = *rng.pick(&FLAVOURS);
        if name == "exchange" && flavour.numbered {
            continue;
        }
        let (resend, threads) = (rng.chance(60), 1 + rng.below(3));
        let setup = Setup { resend, threads, ..Setup::new(round, vec![ops.clone()], flavour) };
        let first = 1 + rng.below(run(&setup).ticks as usize) as u64;
        for _ in 0..4 {
            let spread = *rng.pick(&[60, 300, 1000]);
            let deaths = 1 + rng.below(3);
            let more = (0..deaths).map(|_| 1 + rng.below(spread) as u64);
            let plan = std::iter::once(first).chain(more).collect();
            run(&Setup { plan, ..setup.clone() });
        }
    }
}

#[test]
fn random_operations_with_random_crashes() {
    all(Scenario::Crashes, 1000);
}

/// Seeds that have found something.
#[test]
fn random_operations_that_went_wrong_once() {
    // Whoever was to wake a reader found no room beside those whose requests older lives had not
    // answered.
    run(&scenario::with_crashes(scenario::undisturbed(3346, 60)));
}

#[test]
fn random_operations_with_a_crash_at_every_step() {
    all(Scenario::EveryStep, 4);
}

macro_rules! scripted {
    ($($name:ident)*) => {
        mod one_crash {$(
            #[test]
            fn $name() {
                crate::at_every_step(stringify!($name));
            }
        )*}
        mod more_crashes {$(
            #[test]
            fn $name() {
                crate::again_and_again(stringify!($name));
            }
        )*}
    };
}

scripted! {
    create mkdir links unlink rmdir rename_plain rename_over rename_over_open rename_fails exchange
    unlink_open unlink_open_linked rmdir_hidden write append setattr xattr listing listing_plus locks forget poll
    modes
}
