//! The project's aims, with which results are compared. No result is written here.

/// Geometric mean of the cost ratios of a daemon that the shim holds.
pub const COST_MEAN: f64 = 1.03;
/// Cost ratio of each operation of such a daemon.
pub const COST_EACH: f64 = 1.05;
/// What belay adds to a request that changes nothing, in nanoseconds.
pub const REQUEST_NS: f64 = 150.0;
/// The same of a request that changes something.
pub const CHANGING_REQUEST_NS: f64 = 300.0;
/// belay's memory per cached node, in bytes.
pub const BYTES_PER_NODE: f64 = 200.0;
/// belay's fixed memory, in bytes.
pub const BELAY_FIXED: f64 = 32.0 * 1024.0 * 1024.0;
/// More memory in the daemon, in bytes.
pub const DAEMON_FIXED: f64 = 8.0 * 1024.0 * 1024.0;
/// How much longer than the bare daemon's start the median pause may be, in microseconds.
pub const PAUSE_OVER_START_US: f64 = 5_000.0;
/// The same with very many nodes or open files, in microseconds.
pub const PAUSE_OVER_START_LOADED_US: f64 = 25_000.0;
