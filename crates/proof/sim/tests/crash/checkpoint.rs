//! Checkpoints against a simulated kernel and a simulated daemon that writes when it is asked to:
//! no request spans one, nothing is left unwritten, and what an application has had made safe is
//! there.

use super::{all, seeds};
use belay_recorder::control::FlushBy;
use belay_sim::memory::Rng;
use belay_sim::scenario::{Scenario, checkpoints};
use belay_sim::world::{Setup, run};

/// Random operations, and checkpoints at random instants. `BELAY_SEED=n` runs one seed.
#[test]
fn checkpoints_at_random_instants() {
    for seed in seeds(300) {
        run(&checkpoints(seed));
    }
}

/// The same with a daemon that loses what it has not written, at random instants.
#[test]
fn roll_forward_after_crashes_at_random_instants() {
    all(Scenario::RollForward, 500);
}

/// The same where the op-log is full again and again: what finds no room waits for a checkpoint,
/// also if it was in flight at a crash, and nothing that was answered is lost.
#[test]
fn roll_forward_of_an_op_log_that_is_full() {
    all(Scenario::FullLog, 500);
}

/// A daemon that loses what it has not written dies at every step of a few operations.
#[test]
fn roll_forward_after_a_crash_at_every_step() {
    all(Scenario::EveryStepOfRollForward, 2);
}

/// Daemons that write at a FLUSH, and daemons that write at their end only and are started again
/// then, with crashes in between.
#[test]
fn checkpoints_by_other_ways_to_have_a_daemon_write() {
    for seed in seeds(120) {
        for flush in [FlushBy::Flush, FlushBy::Restart] {
            let mut setup = Setup { flush, ..checkpoints(seed) };
            let ran = run(&setup);
            let mut rng = Rng::new(seed ^ 0x99);
            setup.plan = (0..2).map(|_| 1 + rng.below(ran.ticks as usize) as u64).collect();
            run(&setup);
        }
    }
}

/// Daemons that write at their end only, and die again and again while they are given what was
/// answered: those that come far enough are ended on the way, whatever they die of besides.
#[test]
fn roll_forward_by_daemons_that_write_at_their_end_only() {
    all(Scenario::Restarts, 300);
}
