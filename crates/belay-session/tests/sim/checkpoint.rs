//! Checkpoints against a simulated kernel and a simulated daemon that writes when it is asked to: no request
//! spans one, nothing is left unwritten, and what an application has had made safe is there.

use super::sim::daemon::Flavour;
use super::sim::generate::random_ops;
use super::sim::memory::Rng;
use super::sim::world::{Setup, run};

/// Random operations, and checkpoints at random instants. `BELAY_SEED=n` runs one seed.
#[test]
fn checkpoints_at_random_instants() {
    let one = std::env::var("BELAY_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(1..=300, |seed: u64| seed..=seed) {
        let mut rng = Rng::new(seed);
        let clients = 1 + rng.below(3);
        run(&Setup {
            clients: (0..clients).map(|i| random_ops(&mut rng, &format!("c{i}"), 80)).collect(),
            flavour: Flavour { numbered: rng.chance(30), links: rng.chance(70), deadly: None },
            resend: rng.chance(60),
            threads: 1 + rng.below(3),
            seed,
            plan: Vec::new(),
            epochs: true,
            poison: Vec::new(),
        });
    }
}
