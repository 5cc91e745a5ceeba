//! Volumes in a simulation that is the same for the same seed. The code that ships is what runs in
//! it: layers, and what the processes do with them. Disks, memory, time, and what carries messages
//! are simulated.
//!
//! | module | answers |
//! | --- | --- |
//! | [`disk`] | what a disk can do wrong, and what a power failure leaves of it |
//! | [`model`] | what a file store must hold, told by plain maps |
//! | [`store`] | a file store at work, that dies at any write, and is compared with the model |
//! | [`memory`] | memory that outlives processes, which die at any store to it |
//! | [`scenario`] | what is simulated again and again, each time with another seed |
//! | [`sabotage`] | what is done wrong on purpose, to see that it is found |
//! | [`stack`] | cache, logical layer and stores at work, each of which dies at any step |
//! | [`whole`] | all layers and files and directories on them, compared with a plain directory, whatever happens |
//! | [`outcome`] | what came of a simulation |
//! | [`paid`] | what transactions have to pay for room, compared with what the stores take |
//! | [`posix`] | the namespace module at work, compared with a plain directory |
//! | [`rules`] | whether an answer of the namespace module is one that belay passes on |
//! | [`stuffed`] | a volume that is filled by files, and emptied, again and again |
//! | [`layout`] | the layouts that the paper compares, and how a volume comes by each |
//! | [`survival`] | which of them survive power failures |
//! | [`logical`] | the same for the logical layer, on several disks at once |
//! | [`hostile`] | what somebody else wrote: disks, memory and objects with anything in them

#![forbid(unsafe_code)]

mod asked;
pub mod disk;
pub mod hostile;
pub mod layout;
pub mod logical;
pub mod memory;
pub mod model;
pub mod outcome;
pub mod paid;
pub mod posix;
pub mod rules;
pub mod sabotage;
pub mod scenario;
pub mod stack;
pub mod store;
pub mod stuffed;
pub mod survival;
pub mod whole;

use belay_cache::Capacity;
use belay_posix::Secret;
use rand::Rng;

/// The secret of all volumes here: what happens depends on the seed alone.
pub const SECRET: Secret = Secret::known(*b"no secret at all");

/// The capacity of a cache that is soon full, or is not.
pub fn random_capacity(random: &mut Random) -> Capacity {
    Capacity {
        frames: [40, 200, 800][random.random_range(0..3)],
        slots: [8, 30, 200][random.random_range(0..3)],
    }
}

/// The seeds of a test: as many as usual, `BELAY_SOAK` times as many, or `BELAY_SEED` alone.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("BELAY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..usual * number("BELAY_SOAK").unwrap_or(1),
    }
}

/// Random numbers, the same for the same seed.
pub type Random = rand_chacha::ChaCha8Rng;
