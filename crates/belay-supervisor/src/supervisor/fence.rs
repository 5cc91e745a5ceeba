//! Late effects: what a dead generation had handed to its children may still be carried out, and
//! would overwrite what comes later. So nothing is issued again before they are gone.

use super::Supervisor;
use crate::process::{Watched, descendants};
use std::time::{Duration, Instant};

/// How long the children of a dead daemon may take to end by themselves.
const PATIENCE: Duration = Duration::from_millis(200);

impl Supervisor {
    /// The remaining processes of the dead generation; to be asked before the next one starts.
    /// Supervisor and keeper are both subreapers, so whatever the daemon left behind is below one
    /// of them.
    pub(super) fn leftovers(&self) -> Vec<Watched> {
        let me = std::process::id();
        let belay = [me, self.keeper_pid];
        let mut except = belay.to_vec();
        except.extend(&self.config.bystanders);
        descendants(&belay, &except)
            .into_iter()
            .filter_map(Watched::open)
            .filter(|watched| !watched.is_dead())
            .collect()
    }

    /// Waits for the end of what the dead generation left behind, kills what does not end by
    /// itself, and lets the successor, which may be starting meanwhile, issue requests. Gives the
    /// ids of the killed.
    pub(super) fn fence(&self, rest: &[Watched]) -> Vec<u32> {
        let end = Instant::now() + PATIENCE;
        let mut killed = Vec::new();
        for process in rest {
            if process.wait_end(end.saturating_duration_since(Instant::now())) {
                continue;
            }
            tracing::debug!(
                "process {} of the dead daemon lives on: killing it",
                process.pid
            );
            if process.signal(9).is_ok() {
                killed.push(process.pid);
            }
        }
        for process in rest.iter().filter(|process| killed.contains(&process.pid)) {
            process.wait_end(Duration::from_secs(1));
        }
        self.control().set_fence(self.book.generation);
        killed
    }
}
