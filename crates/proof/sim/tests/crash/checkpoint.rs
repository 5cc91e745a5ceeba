//! Checkpoints against a simulated kernel and a simulated daemon that writes when it is asked to: no request
//! spans one, nothing is left unwritten, and what an application has had made safe is there.

use super::{seeds, soak};
use belay_oplog::Capacity;
use belay_recorder::control::FlushBy;
use belay_sim::daemon::Flavour;
use belay_sim::generate::random_ops;
use belay_sim::memory::Rng;
use belay_sim::world::{Setup, run};

fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed);
    let clients = 1 + rng.below(3);
    let clients = (0..clients).map(|i| random_ops(&mut rng, &format!("c{i}"), 80)).collect();
    // Links that are one node of a daemon without inode numbers: after a crash nothing tells that a further name
    // is one of a file whose other name has gone.
    let flavour = if rng.chance(70) {
        Flavour { numbered: false, links: true, deadly: None, hands_over: rng.chance(30) }
    } else {
        let numbered = rng.chance(30);
        Flavour { numbered, links: false, deadly: None, hands_over: rng.chance(30) }
    };
    let (resend, threads) = (rng.chance(60), 1 + rng.below(3));
    Setup { resend, threads, epochs: true, ..Setup::new(seed, clients, flavour) }
}

/// Runs it: nothing came out otherwise when it was issued again.
fn run_alike(setup: &Setup) {
    let failed = run(setup).failed;
    let mut differ = failed.iter().filter(|decision| decision.text.contains("from the op-log"));
    let told = format!("seed {} plan {:?}", setup.seed, setup.plan);
    assert!(differ.next().is_none(), "{told}: {failed:?}");
}

/// Random operations, and checkpoints at random instants. `BELAY_SEED=n` runs one seed.
#[test]
fn checkpoints_at_random_instants() {
    for seed in seeds(300) {
        run(&setup(seed));
    }
}

/// The same with a daemon that loses what it has not written, at random instants.
#[test]
fn roll_forward_after_crashes_at_random_instants() {
    for seed in seeds(500) {
        let mut setup = setup(seed);
        let mut rng = Rng::new(seed ^ 0x77);
        let ticks = run(&setup).ticks;
        let deaths = 1 + rng.below(3);
        setup.plan = (0..deaths).map(|_| 1 + rng.below(ticks as usize) as u64).collect();
        run_alike(&setup);
    }
}

/// The same where the op-log is full again and again: what finds no room waits for a checkpoint, also if it was in flight
/// at a crash, and nothing that was answered is lost.
#[test]
fn roll_forward_of_an_op_log_that_is_full() {
    for seed in seeds(500) {
        let mut setup = setup(seed);
        setup.oplog = Capacity { record_bytes: 12 << 10, pages: 8 };
        let mut rng = Rng::new(seed ^ 0x55);
        let ticks = run(&setup).ticks;
        let deaths = 1 + rng.below(4);
        let spread = *rng.pick(&[100, 1000, ticks as usize]);
        let first = 1 + rng.below(ticks as usize) as u64;
        let more = (1..deaths).map(|_| 1 + rng.below(spread) as u64);
        setup.plan = std::iter::once(first).chain(more).collect();
        run_alike(&setup);
    }
}

/// A daemon that loses what it has not written dies at every step of a few operations.
#[test]
fn roll_forward_after_a_crash_at_every_step() {
    for seed in seeds(4) {
        let mut setup = setup(seed);
        setup.clients.truncate(1);
        setup.clients.iter_mut().for_each(|ops| ops.truncate(30));
        let ticks = run(&setup).ticks;
        let stride = if soak() > 1 { 1 } else { 3 };
        for at in (1 + seed % 3..=ticks).step_by(stride) {
            setup.plan = vec![at];
            run_alike(&setup);
        }
    }
}

/// Daemons that write at a FLUSH, and daemons that write at their end only and are started again then, with crashes in
/// between.
#[test]
fn checkpoints_by_other_ways_to_have_a_daemon_write() {
    for seed in seeds(120) {
        for flush in [FlushBy::Flush, FlushBy::Restart] {
            let mut setup = Setup { flush, ..setup(seed) };
            let ran = run(&setup);
            let mut rng = Rng::new(seed ^ 0x99);
            setup.plan = (0..2).map(|_| 1 + rng.below(ran.ticks as usize) as u64).collect();
            run(&setup);
        }
    }
}

/// Daemons that write at their end only, and die again and again while they are given what was answered: those that come far
/// enough are ended on the way, whatever they die of besides.
#[test]
fn roll_forward_by_daemons_that_write_at_their_end_only() {
    for seed in seeds(300) {
        let mut setup = Setup { flush: FlushBy::Restart, ..setup(seed) };
        let mut rng = Rng::new(seed ^ 0x33);
        let ticks = run(&setup).ticks;
        let spread = *rng.pick(&[60, 200, 600]);
        let first = 1 + rng.below(ticks as usize) as u64;
        let more = (0..12).map(|_| 1 + rng.below(spread) as u64);
        setup.plan = std::iter::once(first).chain(more).collect();
        run_alike(&setup);
    }
}
