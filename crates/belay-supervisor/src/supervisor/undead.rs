//! Daemons that are dead while their process stays: their core goes to their own mount, or somebody who traces them keeps them. No
//! signal ends them, and the kernel tells of their end only when it is over.
//!
//! The rule: a daemon is dead when none of its threads ever runs again ([`is_over`]). A successor may answer what its core waits
//! for, and the fence ends a child that keeps it.

use super::{SECOND, Supervisor};
use crate::process::{Watched, descendants, fact, is_kept, is_over};
use signal_hook::consts::SIGKILL;

/// How long the end of a process that is over is waited for: most of them have just no processor.
const PATIENCE: u64 = SECOND;
/// How long one that was killed may take, before who traces it is ended, and once more before it is taken for dead.
const DEATH: u64 = 2 * SECOND;

/// What was seen of the daemon's process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    /// The process that is over, and since when.
    over: Option<(u32, u64)>,
    /// The process that was killed, and since when.
    killed: Option<(u32, u64)>,
}

/// For how long `pid` has been what it is now, which `seen` keeps.
fn age(seen: &mut Option<(u32, u64)>, pid: u32, is_so: bool, now: u64) -> u64 {
    let since = seen.filter(|(of, _)| *of == pid).map_or(now, |(_, since)| since);
    *seen = is_so.then_some((pid, since));
    if is_so { now.saturating_sub(since) } else { 0 }
}

impl Supervisor {
    /// Looks whether the daemon is dead, though its process is there, and whether it could be killed.
    pub(super) fn look_at_process(&mut self, now: u64) {
        let process = self.process();
        let waits = self.launch_at.is_some() || self.finished.is_some();
        let Some(pid) = process.map(|process| process.pid).filter(|_| !waits) else { return };
        let wanted = self.is_being_killed() || self.book.stop.is_some_and(|stop| stop.at_once);
        let killed = age(&mut self.process_looks.killed, pid, wanted, now);
        let is_dead = is_over(pid) || killed >= 2 * DEATH && is_kept(pid);
        let over = age(&mut self.process_looks.over, pid, is_dead, now);
        if over >= PATIENCE {
            let why = match tracer(pid) {
                Some(tracer) => format!("process {tracer} traces it, and keeps it"),
                None if fact(pid, "CoreDumping:").as_deref() == Some("1") => {
                    "its core is being written, to where nobody serves perhaps".to_owned()
                }
                None => cannot_be_killed(pid),
            };
            tracing::warn!("daemon {pid} is dead, but its process does not end: {why}");
            self.ended_at(pid, now.saturating_sub(over));
            return;
        }
        if killed >= DEATH {
            self.end_tracer(pid);
        }
        if self.complete {
            self.look_whether_killable(pid);
        }
    }

    /// One that was about to end when it was killed is kept by its tracer for ever: a child of its own is ended.
    fn end_tracer(&self, pid: u32) {
        let belay = [std::process::id(), self.keeper_pid];
        if let Some(tracer) = tracer(pid)
            && descendants(&belay, &belay).contains(&tracer)
            && let Some(process) = Watched::open(tracer)
            && process.signal(SIGKILL).is_ok()
        {
            tracing::warn!(
                "process {tracer} traces daemon {pid}, which does not end: it is killed"
            );
        }
    }
}

/// What is said of a process that a signal has killed, and that stays.
pub(super) fn cannot_be_killed(pid: u32) -> String {
    format!(
        "process {pid} cannot be killed: it waits in the kernel, for a file system that does not answer. It is left behind, and \
         ends when that answers or is unmounted by force (`umount -f`)"
    )
}

/// Who traces process `pid`.
fn tracer(pid: u32) -> Option<u32> {
    fact(pid, "TracerPid:")?.parse().ok().filter(|tracer| *tracer != 0)
}
