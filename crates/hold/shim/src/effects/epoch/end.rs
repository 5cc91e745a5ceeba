//! The end of the mount. The kernel gives no notice of it: reads of the device fail, and the daemon
//! would write what it holds and end. Before it hears of that a last checkpoint is made, so that a
//! daemon that dies while it ends loses nothing. The requests for it are belay's own and need no
//! kernel; a successor of such a daemon does its roll-forward in the same way.

use super::Epoch;
use crate::shim::now;
use belay_host::Process;
use belay_session::Phase;
use std::sync::atomic::Ordering::Relaxed;

/// How long the daemon may take for it, in ns. What it does not get done its successor does.
const PATIENCE: u64 = 30_000_000_000;
/// How often it is tried.
const TRIES: u32 = 20;

impl Epoch<'_> {
    /// The kernel has said that the mount is gone. Whether the daemon is not to hear of it yet:
    /// there may be work for it.
    #[cold]
    pub(crate) fn goes_on(&self) -> bool {
        if self.state.destroyed.load(Relaxed) {
            return false;
        }
        let now = now();
        let begun = self.state.ending.compare_exchange(0, now, Relaxed, Relaxed);
        if begun.is_err_and(|since| now.saturating_sub(since) > PATIENCE) {
            return false;
        }
        let mut session = self.shim.host.session();
        session.reap();
        let unsaved = session.log_sizes().is_some_and(|sizes| sizes.records > 0);
        match session.phase() {
            Phase::Open if !unsaved || self.buffers_files() => return false,
            Phase::Open if self.overlay().can_seal().unwrap_or(false) => {
                if self.state.last_tries.fetch_add(1, Relaxed) >= TRIES {
                    return false; // it cannot write
                }
                session.begin_checkpoint(now);
            }
            _ => {}
        }
        self.shim.host.look_again();
        drop(session);
        Process::nap(self.shim);
        true
    }
}
