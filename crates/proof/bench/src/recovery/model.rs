//! What `recovery` leaves in its results file.

use serde::{Deserialize, Serialize};

use crate::model::{Failure, Load};
use crate::stats::{Spread, median};

/// What there is more and more of at the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Series {
    /// Nothing.
    Empty,
    /// Megabytes of new files that are not part of a checkpoint.
    Dirty,
    /// Files that are open.
    Sessions,
    /// Reads at places all over some files: as the paper makes its records.
    Reads,
    /// Writes of the same few pages, each of which takes the place of the one before in the op-log.
    Rewrites,
    /// Changes of files' times, each of which has to be made again.
    Changes,
    /// The same with the early checkpoints that there are by default.
    Default,
}

impl Series {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Dirty,
        Self::Sessions,
        Self::Reads,
        Self::Rewrites,
        Self::Changes,
        Self::Default,
    ];

    /// What is counted, for a table.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Empty => "nothing",
            Self::Dirty => "MB of new files",
            Self::Sessions => "open files",
            Self::Reads => "reads",
            Self::Rewrites => "writes of the same 1 MB",
            Self::Changes => "changes of times",
            Self::Default => "changes of times, early checkpoints",
        }
    }

    /// The paper's milliseconds for so much, with the name of its table.
    pub fn paper(self, size: u64) -> Option<f64> {
        Some(match (self, size) {
            (Self::Empty, _) => 8.6,
            (Self::Dirty, 10) => 12.9,
            (Self::Dirty, 20) => 13.2,
            (Self::Dirty, 40) => 16.1,
            (Self::Sessions, 200) => 11.4,
            (Self::Sessions, 400) => 14.6,
            (Self::Sessions, 800) => 22.0,
            (Self::Dirty | Self::Sessions, _) => return None,
            // All others are kinds of records.
            (_, 1_000) => 15.3,
            (_, 10_000) => 16.8,
            (_, 100_000) => 25.2,
            _ => return None,
        })
    }
}

/// Results of `recovery`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryRun {
    /// The policy with which the daemons were held.
    pub policy: String,
    /// Crashes of each kind.
    pub crashes: u32,
    /// One entry for each daemon.
    pub fixtures: Vec<RecoveryFixture>,
    /// What failed.
    pub failures: Vec<Failure>,
}

/// One daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecoveryFixture {
    /// Its name.
    pub fixture: String,
    /// Load of the machine.
    pub load: Load,
    /// Bare daemon, from spawn to the first answered listing: samples.
    pub bare_start_us: Vec<f64>,
    /// One entry for each series and size.
    pub cases: Vec<RecoveryCase>,
}

/// Crashes with so much of something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryCase {
    /// Of what.
    pub series: Series,
    /// How much.
    pub size: u64,
    /// The crashes.
    pub crashes: Vec<Crash>,
}

/// One crash. Times in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Crash {
    /// From the signal to the answer that an application waited for.
    pub pause_us: f64,
    /// From the death to the successor's first reply, as belay reports it.
    pub blackout_us: f64,
    /// From the death until the successor's shim was loaded.
    pub attached_us: f64,
    /// From then until it was negotiated with the kernel.
    pub start_us: f64,
    /// From then until new requests were let in.
    pub settle_us: f64,
    /// What the daemon took of that for requests of the op-log.
    pub daemon_us: f64,
    /// Requests that were replayed from the op-log.
    pub records: u64,
    /// What the successor had used of the CPU by the answer above: it does not depend on who else
    /// uses the machine.
    pub cpu_us: f64,
    /// Until all open files had been read from once more, after the answer above.
    pub reopened_us: f64,
}

impl RecoveryCase {
    /// The samples of one figure.
    pub fn samples(&self, of: impl Fn(&Crash) -> f64) -> Vec<f64> {
        self.crashes.iter().map(of).collect()
    }

    /// Summary of one figure.
    pub fn spread(&self, of: impl Fn(&Crash) -> f64) -> Option<Spread> {
        Spread::of(&self.samples(of))
    }

    /// belay's own part of the pause: without what the bare daemon takes to start, and what it
    /// takes to do again what the op-log has.
    pub fn own_us(&self, bare_start: f64) -> Option<f64> {
        median(&self.samples(|crash| crash.pause_us - crash.daemon_us)).map(|us| us - bare_start)
    }

    /// belay's part of each request of the op-log.
    pub fn own_per_record_us(&self) -> Option<f64> {
        let each = self.crashes.iter().filter(|crash| crash.records > 0);
        let each: Vec<f64> = each.map(|c| (c.settle_us - c.daemon_us) / c.records as f64).collect();
        median(&each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belays_own_part_is_what_remains() {
        let crash = Crash {
            pause_us: 10_000.0,
            settle_us: 6_000.0,
            daemon_us: 4_000.0,
            records: 100,
            ..Crash::default()
        };
        let case = RecoveryCase { series: Series::Changes, size: 100, crashes: vec![crash; 3] };
        assert_eq!(case.own_us(5_000.0), Some(1_000.0));
        assert_eq!(case.own_per_record_us(), Some(20.0));
        let empty =
            RecoveryCase { series: Series::Empty, size: 0, crashes: vec![Crash::default()] };
        assert_eq!(empty.own_per_record_us(), None);
        assert_eq!((Series::Dirty.paper(40), Series::Dirty.paper(3)), (Some(16.1), None));
    }
}
