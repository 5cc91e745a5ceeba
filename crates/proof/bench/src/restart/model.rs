//! What `restart` leaves in its results file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Failure, Load};
use crate::stats::Spread;

/// The steps of a restart, in their order, as belay's crash reports name them.
pub const PHASES: [&str; 6] = ["spawned", "attached", "first_read", "ready", "first_reply", "open"];

/// Results of `restart`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestartRun {
    /// Size of the text that was sorted, in MB.
    pub size_mb: u64,
    /// Crashes of each daemon.
    pub crashes: u32,
    /// One entry for each daemon.
    pub fixtures: Vec<RestartFixture>,
    /// What failed.
    pub failures: Vec<Failure>,
}

/// One daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RestartFixture {
    /// Its name.
    pub fixture: String,
    /// Load of the machine.
    pub load: Load,
    /// Bare daemon, from spawn to the first answered listing: samples.
    pub bare_start_us: Vec<f64>,
    /// Summary of them.
    pub bare_start: Option<Spread>,
    /// Seconds that sorts took on the bare mount, without a crash.
    pub bare_s: Vec<f64>,
    /// On the held mount, without a crash: taken in pairs with those above.
    pub held_s: Vec<f64>,
    /// On the held mount, with one crash.
    pub crashed_s: Vec<f64>,
    /// The crashes.
    pub crashes: Vec<Crash>,
    /// From the daemon's death to its successor's first reply: summary.
    pub blackout_us: Option<Spread>,
    /// Mean of the same.
    pub blackout_mean_us: Option<f64>,
    /// When each of the steps was reached, after the death: summaries.
    pub phases: Vec<(String, Spread)>,
}

/// One crash, as belay reports it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Crash {
    /// From the daemon's death to its successor's first reply, or to its readiness if nobody waited
    /// for one.
    pub blackout_us: f64,
    /// Requests that were in flight.
    pub in_flight: usize,
    /// When each of the steps was reached, after the death.
    pub phases_us: BTreeMap<String, f64>,
}
