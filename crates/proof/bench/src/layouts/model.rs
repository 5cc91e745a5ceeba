//! What `layouts` leaves in its results file.

use serde::{Deserialize, Serialize};

use crate::model::{Failure, Load};
use crate::stats::Spread;

/// Results of `layouts`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LayoutsRun {
    /// Rounds, in each of which all layouts take turns.
    pub rounds: usize,
    /// What `belay volume mount --memory` was given.
    pub memory: String,
    /// Where the images were.
    pub workdir: String,
    /// Load of the machine.
    pub load: Load,
    /// One entry for each benchmark.
    pub benchmarks: Vec<Benchmark>,
    /// One entry for each layout, from the simulation.
    pub survival: Vec<Survived>,
    /// What could not be measured.
    pub failures: Vec<Failure>,
}

/// One benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Benchmark {
    /// Its name.
    pub name: String,
    /// What was done.
    pub parameters: String,
    /// One entry for each layout.
    pub layouts: Vec<Cost>,
}

/// How long a benchmark takes on a layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// The layout.
    pub layout: String,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Order statistics of them, in microseconds; absent without samples.
    pub us: Option<Spread>,
    /// The same of what each is of the sample that twin offset 0 has in the same round.
    pub ratio: Option<Spread>,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, counted from 0.
    pub round: usize,
    /// How long it took.
    pub us: f64,
}

/// What came of a layout in the simulation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Survived {
    /// The layout.
    pub layout: String,
    /// Seeds that were tried, from 0 on.
    pub seeds: u64,
    /// Power failures in all of them.
    pub power_failures: u64,
    /// Blocks of data that were torn, so that reading them is an error. Only what is written in
    /// place can be.
    pub torn: u64,
    /// Seeds at which something was lost or wrong.
    pub losses: u64,
    /// The first of them.
    pub first_seed: Option<u64>,
    /// What is said of it.
    pub said: Option<String>,
}
