//! What `refuse` leaves in its results file.

use belay_workloads::Scale;
use serde::{Deserialize, Serialize};

use crate::model::{CostCase, Failure, Load};

/// Results of `refuse` and `membrane`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefuseRun {
    /// Size of the macro-benchmarks.
    pub scale: Scale,
    /// Pairs of samples of each micro-benchmark.
    pub rounds: usize,
    /// Starts of the daemons over which these were spread.
    pub sessions: usize,
    /// Pairs of runs of each macro-benchmark.
    pub macro_rounds: usize,
    /// Belay's own process was left out of the placement.
    #[serde(default)]
    pub belay_anywhere: bool,
    /// One entry for each daemon.
    pub fixtures: Vec<RefuseFixture>,
}

/// One daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefuseFixture {
    /// Its name.
    pub fixture: String,
    /// Load of the machine.
    pub load: Load,
    /// One entry for each benchmark.
    pub cases: Vec<RefuseCase>,
    /// What the bare daemon cannot do.
    #[serde(default)]
    pub unable: Vec<Failure>,
    /// What failed.
    pub failures: Vec<Failure>,
}

/// One benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefuseCase {
    /// The paper's table that it belongs to.
    pub table: u8,
    /// What was done.
    pub parameters: String,
    /// Held against bare: the times are of the whole benchmark.
    pub result: CostCase,
    /// A second bare daemon in the place of the held one; absent without control.
    pub control: Option<CostCase>,
}
