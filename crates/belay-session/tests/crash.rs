//! The session against a simulated kernel and a simulated daemon that crashes at every step.
//!
//! `BELAY_SEED=n` runs one seed of the random tests, `BELAY_SOAK=n` makes all of them n times
//! as long, `BELAY_TRACE=1` shows every request.
#![forbid(unsafe_code)]

mod sim;

use sim::daemon::Flavour;
use sim::generate::random_ops;
use sim::memory::Rng;
use sim::world::{Setup, run};

const FLAVOURS: [Flavour; 3] = [
    Flavour { numbered: false, links: true },
    Flavour { numbered: true, links: true },
    Flavour { numbered: false, links: false },
];

fn soak() -> u64 {
    std::env::var("BELAY_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn seeds(n: u64) -> Vec<u64> {
    match std::env::var("BELAY_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=n * soak()).collect(),
    }
}

fn random_setup(seed: u64, ops: usize) -> Setup {
    let mut rng = Rng::new(seed);
    let clients = 1 + rng.below(3);
    Setup {
        clients: (0..clients).map(|i| random_ops(&mut rng, &format!("c{i}"), ops)).collect(),
        flavour: *rng.pick(&FLAVOURS),
        resend: rng.chance(60),
        threads: 1 + rng.below(3),
        seed,
        plan: Vec::new(),
    }
}

#[test]
fn random_operations_without_a_crash() {
    for seed in seeds(200) {
        run(&random_setup(seed, 80));
    }
}
