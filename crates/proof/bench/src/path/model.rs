//! What `belay-bench path` writes.

use serde::{Deserialize, Serialize};

use crate::model::Failure;
use crate::stats::Spread;

/// Results of `path`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathRun {
    /// Operations in one sample.
    pub count: u64,
    /// Samples of each side.
    pub rounds: usize,
    /// One entry for each kind of operation.
    pub cases: Vec<PathCase>,
    /// What could not be measured.
    pub failures: Vec<Failure>,
}

/// What belay adds to the requests of one kind of operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathCase {
    /// The operation.
    pub operation: String,
    /// Requests of an operation.
    pub requests: u32,
    /// Nanoseconds a request.
    pub ns: Spread,
    /// Instructions a request.
    pub instructions: Option<f64>,
}
