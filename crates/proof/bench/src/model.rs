//! What is measured, as it stands in a results file ([`crate::run_file`]): parts that know nothing
//! of it.
//!
//! Times are in microseconds and sizes in bytes unless a field's name says otherwise.

use serde::{Deserialize, Serialize};

use crate::stats::Spread;

/// What the machine is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the running kernel.
    pub kernel: String,
    /// Architecture of the machine.
    pub architecture: String,
    /// Name of the distribution.
    pub system: String,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// Size of the memory.
    pub memory_bytes: u64,
    /// `release` or `debug`: how belay-bench itself was built.
    pub profile: String,
}

/// Where clients and daemons ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// All of them, supervisor and keeper included, on this one CPU.
    Pinned(usize),
    /// Wherever the scheduler put them.
    Free,
}

/// The load of the machine around a measurement: one-minute averages.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
}

/// A part of a run that could not be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Which part.
    pub what: String,
    /// The error, with its causes.
    pub error: String,
}

/// Results of `cost`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostRun {
    /// Bare against bare: the ratios show the noise of the method and not a cost.
    pub aa: bool,
    /// Pairs of samples for each operation.
    pub rounds: usize,
    /// Times that both daemons were started anew in the course of the rounds.
    pub sessions: usize,
    /// Aimed length of one sample.
    pub batch_ms: u64,
    /// One entry for each daemon.
    pub fixtures: Vec<CostFixture>,
}

/// Cost of holding one daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostFixture {
    /// Name of the daemon.
    pub fixture: String,
    /// CPUs that the daemons themselves were found to be allowed, bare and held.
    pub daemon_cpus: [String; 2],
    /// Load of the machine.
    pub load: Load,
    /// Geometric mean of the median ratios of all cases.
    pub geometric_mean: Option<f64>,
    /// One entry for each operation and number of threads.
    pub cases: Vec<CostCase>,
    /// What failed.
    pub failures: Vec<Failure>,
}

/// Cost of one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostCase {
    /// Name of the operation.
    pub op: String,
    /// Client threads.
    pub threads: usize,
    /// Operations of each thread in one sample.
    pub batch: u64,
    /// The ratio held / bare.
    pub estimate: Estimate,
    /// Order statistics of the ratio over all pairs.
    pub ratios: Spread,
    /// Median time of one operation, bare.
    pub bare_us: f64,
    /// Median time of one operation, held.
    pub held_us: f64,
    /// `read` and `write` calls of the daemon for one operation, bare and held: evidence that the
    /// operation reaches the daemon and is not answered from the kernel's caches. Absent where the
    /// kernel does not count them.
    pub daemon_calls_per_op: Option<[f64; 2]>,
    /// The samples, in the order in which they were taken.
    pub pairs: Vec<Pair>,
}

/// A ratio, with its 95 % confidence interval. How it is made: [`crate::pairs`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The ratio.
    pub ratio: f64,
    /// Lower end of the interval.
    pub ci_low: f64,
    /// Upper end of the interval.
    pub ci_high: f64,
}

/// Two samples taken directly one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Time of one operation, bare.
    pub bare_us: f64,
    /// Time of one operation, held.
    pub held_us: f64,
    /// The start of both daemons that the pair belongs to, counted from 0.
    pub session: usize,
    /// Whether held was set up first in that session and sampled first in the pair.
    pub held_first: bool,
}

/// Results of `memory`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryRun {
    /// Bare against bare.
    pub aa: bool,
    /// One entry for each daemon.
    pub fixtures: Vec<MemoryFixture>,
    /// What failed.
    pub failures: Vec<Failure>,
}

/// Memory that holding one daemon takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryFixture {
    /// Name of the daemon.
    pub fixture: String,
    /// Nodes looked up in the end, directories included.
    pub nodes: u64,
    /// Files held open besides.
    pub open_files: u64,
    /// Measurements of the bare daemon while nodes were looked up, and with files open as the last
    /// one.
    pub bare: Vec<MemoryPoint>,
    /// The same with the daemon held.
    pub held: Vec<MemoryPoint>,
    /// The figures drawn from them.
    pub summary: MemorySummary,
}

/// Memory at one number of cached nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemoryPoint {
    /// Nodes looked up so far.
    pub nodes: u64,
    /// Files held open.
    pub open_files: u64,
    /// The daemon.
    pub daemon: ProcessMemory,
    /// The supervisor; absent for a bare daemon.
    pub supervisor: Option<ProcessMemory>,
    /// The keeper; absent for a bare daemon.
    pub keeper: Option<ProcessMemory>,
    /// Memory of the distinct memfd files that these processes hold open, mapped or not: the
    /// recorder.
    pub memfd: u64,
}

/// What `/proc/PID/smaps_rollup` says of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Resident set.
    pub rss: u64,
    /// Resident set, each shared page divided by the number of its users.
    pub pss: u64,
    /// The part of `pss` that is shared memory or a memfd.
    pub pss_shmem: u64,
    /// Pages that no other process maps.
    pub private: u64,
}

/// Figures of one daemon's memory. All differences are held minus bare.
///
/// "belay" is the supervisor's and the keeper's memory outside shared memory, and all of the
/// recorder's memfd.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MemorySummary {
    /// belay's memory before any node is looked up.
    pub belay_fixed: i64,
    /// Growth of belay's memory per cached node: slope of the least-squares line.
    pub belay_per_node: f64,
    /// More in the daemon's process (outside shared memory) before any node is looked up.
    pub daemon_fixed: i64,
    /// More growth of the daemon's process per cached node.
    pub daemon_per_node: f64,
    /// Growth of the bare daemon per cached node, for comparison.
    pub bare_daemon_per_node: f64,
    /// More growth of everything per open file; absent where none was opened.
    pub per_open_file: Option<f64>,
}

/// Results of `blackout`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlackoutRun {
    /// Nodes that were to be cached.
    pub nodes: u64,
    /// Files that were to be open.
    pub open_files: u64,
    /// Kills for each daemon.
    pub kills: usize,
    /// One entry for each daemon.
    pub fixtures: Vec<BlackoutFixture>,
    /// What failed.
    pub failures: Vec<Failure>,
}

/// How long applications wait for one daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BlackoutFixture {
    /// Name of the daemon.
    pub fixture: String,
    /// Nodes that were cached while the daemon was killed.
    pub nodes: u64,
    /// Files that were open.
    pub open_files: u64,
    /// Load of the machine.
    pub load: Load,
    /// Bare daemon, from spawn to the first answered listing: samples.
    pub bare_start_us: Vec<f64>,
    /// Summary of them.
    pub bare_start: Option<Spread>,
    /// Longest gap between two answers that the probe saw around each kill: samples.
    pub pause_us: Vec<f64>,
    /// Summary of them.
    pub pause: Option<Spread>,
    /// Median and largest gap that the probe saw between kills: its resolution.
    pub quiet_us: Option<Spread>,
    /// Answers that the probe got.
    pub answers: u64,
    /// Errors or wrong data that the probe saw, counted.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// belay's own figures from `belay status`, where it gives them.
    pub belay: Option<OwnFigures>,
}

/// The blackout as belay measures it itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnFigures {
    /// Median.
    pub median_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Largest.
    pub max_us: Option<f64>,
}

impl Failure {
    /// Says on stderr that `what` failed, and remembers it.
    pub fn new(what: impl ToString, error: &anyhow::Error) -> Self {
        let (what, error) = (what.to_string(), format!("{error:#}"));
        eprintln!("{what} failed: {error}");
        Self { what, error }
    }
}
