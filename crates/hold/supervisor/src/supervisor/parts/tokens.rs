//! By which number the event loop knows what it waits for.

/// Signals.
pub(crate) const SIGNALS: u64 = 1;
/// The daemon's event counter.
pub(crate) const EVENT: u64 = 2;
/// The control socket.
pub(crate) const CONTROL: u64 = 3;
/// The daemon's standard error.
pub(crate) const STDERR: u64 = 4;
/// The link to the keeper.
pub(crate) const LINK: u64 = 5;
/// The daemon's process.
pub(crate) const PROCESS: u64 = 6;
/// The supervisor's own event counter.
pub(crate) const COMMITTED: u64 = 7;
/// The first client at the control socket.
pub(crate) const FIRST_CLIENT: u64 = 100;
